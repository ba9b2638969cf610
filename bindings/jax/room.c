/* SPDX-License-Identifier: MIT */
#include "bindings/jax/room.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bindings/jax/move.h"
#include "bindings/jax/spmt_xla.h"
#include "bindings/jax/work.h"

#define MS 1000000LL
#define KEPT_MS 60000LL /* a failed room, for devices that come late */

static struct {
	pthread_mutex_t lock; /* guards all of it, and rooms until they are full */
	pthread_cond_t sooner;
	struct room *first;
	int64_t shortest_ms,
		wake_ns; /* the shortest timeout of all worlds; when the timer looks next */
	bool timer;
} rooms = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Atomic int injected;

void spmt_xla_inject(int n)
{
	atomic_store(&injected, n);
}

static int64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 * MS + t.tv_nsec;
}

/* ---- the ends of calls */

static void member_end(struct member *member, enum ffi_code code, const char *why)
{
	struct ffi_error *error;

	if (code == FFI_OK) {
		struct ffi_future_available args = { { sizeof(args), NULL }, member->future };

		error = member->api->future_available(&args);
	} else {
		struct ffi_future_error args = { { sizeof(args), NULL }, member->future,
			error_make(member->api, code, "%s", why) };

		error = member->api->future_error(&args);
	}
	if (error) {
		struct ffi_error_destroy args = { { sizeof(args), NULL }, error };

		member->api->error_destroy(&args);
	}
}

/* Gives back what the data was moved with. */
static void room_leave(struct room *room)
{
	for (int i = 0; i < room->world->nranks; i++)
		free(room->members[i].call.tables);
	xla_world_put(room->world);
	room->world = NULL;
}

static void room_free(struct room *room)
{
	room_leave(room);
	free(room);
}

static void member_end_later(void *arg)
{
	struct member *member = arg;
	struct room *room = member->room;

	member_end(member, room->code, room->why);
	if (atomic_fetch_sub(&room->left, 1) == 1)
		free(room);
}

/* Of a room that is out of the list: every call that waits ends. It leaves the world first, whose end waits for rooms: to end a call
   goes on with the program, which may call back into Python for long. */
static void room_end(struct room *room)
{
	int n = 0, all = room->world->nranks;

	room_leave(room);
	/* One for this loop, as the first may be done before the last is queued. */
	atomic_store(&room->left, all + 1);
	for (int i = 0; i < all; i++) {
		struct member *member = &room->members[i];

		if (member->future) {
			work_later(&member->work, member_end_later, member);
			n++;
		}
	}
	if (atomic_fetch_sub(&room->left, all + 1 - n) == all + 1 - n)
		free(room);
}

/* ---- failures, under the lock */

static void room_unlink(struct room *room)
{
	struct room **at;

	for (at = &rooms.first; *at != room; at = &(*at)->next)
		;
	*at = room->next;
}

/* Fails a room: its members' futures get the error with the lock let go, since XLA goes on on this thread. Whoever closed the world
   meanwhile left the room, and waits until the timer forgets it. */
static void room_fail(struct room *room, enum ffi_code code, const char *why)
{
	room->code = code;
	snprintf(room->why, sizeof(room->why), "%s", why);
	room->deadline_ns = clock_ns() + KEPT_MS * MS;
	room->busy = true;
	for (int i = 0; i < room->world->nranks; i++) {
		struct member *member = &room->members[i];

		if (!member->future)
			continue;
		pthread_mutex_unlock(&rooms.lock);
		member_end(member, room->code, room->why);
		pthread_mutex_lock(&rooms.lock);
		member->future = NULL;
	}
	room->busy = false;
	if (atomic_load(&room->world->closed)) {
		room->deadline_ns = 0;
		pthread_cond_signal(&rooms.sooner);
	}
}

/* "3, 6" of devices that are not here; "3, 6, .." of more than the text takes. */
static void missing(const struct room *room, char *text, size_t size)
{
	size_t n = 0;

	text[0] = '\0';
	for (int i = 0; i < room->world->nranks; i++) {
		char one[16];
		size_t more;

		if (room->members[i].here)
			continue;
		more = (size_t)snprintf(one, sizeof(one), "%s%d", n ? ", " : "",
			xla_world_device(room->world, room->group, i));
		if (n + more + sizeof(", ..") > size) {
			snprintf(text + n, size - n, ", ..");
			return;
		}
		memcpy(text + n, one, more + 1);
		n += more;
	}
}

static void room_late(struct room *room)
{
	char why[256], who[128];
	int n = room->world->nranks;
	enum kind kind = KINDS;

	for (int i = 0; i < n; i++)
		if (room->members[i].here)
			kind = room->members[i].call.kind;
	missing(room, who, sizeof(who));
	snprintf(why, sizeof(why), "spmt %s: %d of %d devices missing after %.*f s: %s",
		kind == KINDS ? "call" : kind_names[kind], n - room->arrived, n,
		room->world->timeout_ms < 100 ? 3 : 1, (double)room->world->timeout_ms / 1000, who);
	room_fail(room, FFI_DEADLINE_EXCEEDED, why);
}

/* Fails what is due and forgets what failed long ago; when to look again. */
static int64_t timer_look(void)
{
	struct room *room;
	int64_t now = clock_ns(), next;

again:
	next = now + rooms.shortest_ms * MS;
	for (room = rooms.first; room; room = room->next) {
		if (room->deadline_ns <= now && !room->busy) {
			if (room->code == FFI_OK) {
				room_late(room);
			} else {
				room_unlink(room);
				room_free(room);
			}
			goto again; /* the list has changed */
		}
		if (room->deadline_ns < next)
			next = room->deadline_ns;
	}
	return next;
}

static void *timer_main(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&rooms.lock);
	for (;;) {
		struct timespec t;

		rooms.wake_ns = timer_look();
		t = (struct timespec){ rooms.wake_ns / (1000 * MS), rooms.wake_ns % (1000 * MS) };
		pthread_cond_timedwait(&rooms.sooner, &rooms.lock, &t);
	}
	return NULL;
}

int room_start(int64_t timeout_ms)
{
	int rc = work_start();

	pthread_mutex_lock(&rooms.lock);
	if (!rc && !rooms.timer) {
		work_cond(&rooms.sooner);
		rooms.shortest_ms = timeout_ms;
		rc = work_thread(timer_main);
		rooms.timer = !rc;
	}
	if (timeout_ms < rooms.shortest_ms)
		rooms.shortest_ms = timeout_ms;
	if (rooms.timer)
		pthread_cond_signal(&rooms.sooner);
	pthread_mutex_unlock(&rooms.lock);
	return rc;
}

/* ---- a full room */

static void room_moved(struct room *room)
{
	int status = atomic_load(&room->status);

	if (status) {
		room->code = code_of(status);
		snprintf(room->why, sizeof(room->why), "spmt %s: %s",
			kind_names[room->members[0].call.kind], spmt_strerror(status));
		atomic_store(&room->world->groups[room->group].broken, true);
	}
	room_end(room);
}

static void room_count(struct room *room, int code)
{
	int none = 0;

	if (code)
		atomic_compare_exchange_strong(&room->status, &none, code);
	if (atomic_fetch_sub(&room->left, 1) == 1)
		room_moved(room);
}

struct ending {
	struct member *member;
	spmt_comm *comm;
};

/* On the thread of a stream, behind the collective. */
static void member_moved(void *args)
{
	const struct ending *ending = args;

	if (!atomic_exchange(&ending->member->done, true))
		room_count(ending->member->room, spmt_status(ending->comm));
}

static int member_issue(struct room *room, int rank, spmt_comm *comm)
{
	struct ending ending = { &room->members[rank], comm };
	int rc = call_issue(&room->members[rank].call, room->site, comm, NULL);

	return rc ? rc : spmt_host_launch(comm, NULL, member_moved, &ending, sizeof(ending));
}

/* Queues the call for all ranks at once, so that all comms have the same order. */
static void room_issue(void *arg)
{
	struct room *room = arg;
	struct group *group = &room->world->groups[room->group];
	int n = room->world->nranks, rc;
	bool inject = atomic_load(&injected) > 0 && atomic_fetch_sub(&injected, 1) == 1;

	atomic_store(&room->left, n + 1);
	pthread_mutex_lock(&group->issue);
	rc = xla_world_renew(room->world, room->group);
	for (int i = 0; !rc && i < n; i++) {
		if (inject && i == n / 2)
			spmt_abort(group->comms[i], 0);
		rc = member_issue(room, i, group->comms[i]);
	}
	if (rc) {
		atomic_store(&group->broken, true); /* who comes now goes to a worker */
		for (int i = 0; group->comms && i < n; i++) {
			spmt_abort(group->comms[i], rc);
			spmt_quiet(
				group->comms
					[i]); /* behind this nothing reads or writes a buffer, nor ends a member */
		}
	}
	pthread_mutex_unlock(&group->issue);
	for (int i = 0; rc && i < n; i++)
		if (!atomic_exchange(&room->members[i].done, true))
			room_count(room, rc);
	room_count(room, rc);
}

/* The last to come: its thread moves the data or queues it. */
static struct ffi_error *room_full(struct room *room, struct ffi_frame *frame, struct member *self)
{
	struct ffi_future_create create = { { sizeof(create), NULL }, NULL };
	struct ffi_error *error = NULL;

	move_prepare(room);
	if (move_is_here(room)) {
		move_here(room);
		if (room->code != FFI_OK)
			error = error_make(frame->api, room->code, "%s", room->why);
		room_end(room);
		return error;
	}
	error = frame->api->future_create(&create);
	if (error) {
		room->code = FFI_RESOURCE_EXHAUSTED;
		snprintf(room->why, sizeof(room->why), "spmt %s: a device has no future",
			kind_names[self->call.kind]);
		room_end(room);
		return error;
	}
	self->future = frame->future = create.future;
	if (atomic_load(&room->world->groups[room->group].broken))
		work_later(&room->work, room_issue, room);
	else
		room_issue(room);
	return NULL;
}

/* ---- entering, under the lock */

/* The room of this visit that this rank has not been in yet, or NULL. */
static struct room *room_find(const struct visit *visit)
{
	struct room *room;

	for (room = rooms.first; room; room = room->next)
		if (room->run == visit->run && room->id == visit->site->id &&
			room->group == visit->group && room->world == visit->world &&
			!room->members[visit->rank].here)
			break;
	return room;
}

static struct room *room_new(const struct visit *visit)
{
	size_t n = (size_t)visit->world->nranks;
	struct room *room = calloc(1, sizeof(*room) + n * sizeof(room->members[0])), **last;

	if (!room)
		return NULL;
	room->world = visit->world;
	xla_world_hold(visit->world);
	room->group = visit->group;
	room->run = visit->run;
	room->id = visit->site->id;
	room->deadline_ns = clock_ns() + visit->world->timeout_ms * MS;
	for (size_t i = 0; i < n; i++)
		room->members[i].room = room;
	for (last = &rooms.first; *last; last = &(*last)->next)
		;
	*last = room;
	if (room->deadline_ns < rooms.wake_ns)
		pthread_cond_signal(&rooms.sooner);
	return room;
}

/* Takes its place; true if it was the last and the room is out of the list. */
static bool room_take(struct room *room, int rank)
{
	room->members[rank].here = true;
	if (++room->arrived < room->world->nranks)
		return false;
	if (room->busy)
		return false;
	room_unlink(room);
	return true;
}

static bool differs(const struct room *room, const struct call *call)
{
	for (int i = 0; i < room->world->nranks; i++) {
		const struct call *other = &room->members[i].call;

		if (room->members[i].here)
			return other->kind != call->kind || other->count != call->count ||
				other->type != call->type || other->row != call->row ||
				!other->before != !call->before;
	}
	return false;
}

/* A room that has failed, seen by one more rank. */
static struct ffi_error *room_tell(struct room *room, struct ffi_frame *frame, int rank)
{
	struct ffi_error *error = error_make(frame->api,
		room->code == FFI_DEADLINE_EXCEEDED ? FFI_ABORTED : room->code, "%s", room->why);

	if (room_take(room, rank))
		room_free(room);
	return error;
}

static struct ffi_error *enter(struct ffi_frame *frame, const struct visit *visit,
	const struct call *call, struct room **full)
{
	struct ffi_future_create create = { { sizeof(create), NULL }, NULL };
	struct ffi_error *error;
	struct room *room;
	struct member *self;

	*full = NULL;
	if (atomic_load(&visit->world->closed))
		return error_make(frame->api, FFI_FAILED_PRECONDITION,
			"spmt %s: its world is closed", kind_names[call->kind]);
	room = room_find(visit);
	if (room && room->code != FFI_OK)
		return room_tell(room, frame, visit->rank);
	if (!room)
		room = room_new(visit);
	if (!room)
		return error_make(frame->api, FFI_RESOURCE_EXHAUSTED,
			"spmt %s: no memory for a call", kind_names[call->kind]);
	if (differs(room, call)) {
		room_fail(room, FFI_INVALID_ARGUMENT,
			"spmt: devices of one call differ in what they call, or with how much");
		return room_tell(room, frame, visit->rank);
	}
	self = &room->members[visit->rank];
	if (room->arrived + 1 < visit->world->nranks) {
		error = frame->api->future_create(&create);
		if (error) /* as if it had not come */
			return error;
		self->future = frame->future = create.future;
	}
	self->api = frame->api;
	self->call = *call;
	room->site = visit->site;
	if (room_take(room, visit->rank))
		*full = room;
	return NULL;
}

struct ffi_error *room_enter(
	struct ffi_frame *frame, const struct visit *visit, const struct call *call)
{
	struct room *full;
	struct ffi_error *error;

	pthread_mutex_lock(&rooms.lock);
	error = enter(frame, visit, call, &full);
	pthread_mutex_unlock(&rooms.lock);
	if (error)
		free(call->tables);
	return full ? room_full(full, frame, &full->members[visit->rank]) : error;
}

void room_refuse(const struct visit *visit, enum kind kind, enum ffi_code code, const char *why)
{
	struct room *room;
	char text[256];

	snprintf(text, sizeof(text), "spmt %s: device %d did not take part: %s", kind_names[kind],
		xla_world_device(visit->world, visit->group, visit->rank), why);
	pthread_mutex_lock(&rooms.lock);
	room = room_find(visit);
	if (!room && !atomic_load(&visit->world->closed))
		room = room_new(visit);
	if (room && room->code == FFI_OK)
		room_fail(room, code, text);
	if (room && room_take(room, visit->rank))
		room_free(room);
	pthread_mutex_unlock(&rooms.lock);
}

void room_close(struct world *world)
{
	struct room *room;

	pthread_mutex_lock(&rooms.lock);
again:
	for (room = rooms.first; room; room = room->next) {
		if (room->world != world || room->busy)
			continue;
		if (room->code == FFI_OK)
			room_fail(room, FFI_FAILED_PRECONDITION,
				"spmt: the world was closed while a call waited for other devices");
		room_unlink(room);
		room_free(room);
		goto again;
	}
	pthread_mutex_unlock(&rooms.lock);
}
