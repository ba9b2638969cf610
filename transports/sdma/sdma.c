/* SPDX-License-Identifier: MIT */
#include "sdma.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "copy_queue.h"
#include "src/base/env.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define FIRST_ROOM 16 /* moves a lane remembers at first, and at most: then it waits */
#define MOST_ROOM 65536
#define FIRST_TICKET ((uint64_t)-8) /* so that every program sees the counters wrap */
#define YIELDS 16
#define SLICE_NS 1000000 /* longest sleep between two looks at an event */
#define CLOSE_WAIT_MS 10000

/* ---- a link's share of a copy queue */

struct sdma_move {
	void *dst;
	const void *src;
	size_t n;
};

/* A move in flight. Events are made with the first use of a slot, and kept. */
struct lane_slot {
	struct sdma_move move;
	device_event before, behind; /* recorded on both sides of the copy */
	bool guarded, marked;	     /* `before`, `behind` was recorded for this move */
};

/* The moves from `done` to `issued` are in `stream`, move t in slots[t % room]. */
struct lane {
	device_stream stream;
	uint64_t issued, done;
	struct lane_slot *slots;
	uint64_t room; /* power of two */
};

struct sdma {
	struct copy_queue *queue;
	int error; /* first failure since the last quiet */
	struct status_saved why;
	int nlanes;
	struct lane lanes[];
};

static void slot_free(const struct link *link, struct lane_slot *slot)
{
	if (slot->before)
		link->backend->event_destroy(link->dev, slot->before);
	if (slot->behind)
		link->backend->event_destroy(link->dev, slot->behind);
}

static void state_free(struct link *link, struct sdma *st, bool inherited)
{
	for (int i = 0; i < st->nlanes; i++) {
		struct lane *lane = &st->lanes[i];

		for (uint64_t k = 0; k < lane->room && !inherited; k++)
			slot_free(link, &lane->slots[k]);
		mem_free(lane->slots);
	}
	if (!inherited)
		copy_queue_drop(st->queue);
	mem_free(st);
}

static int lane_make(struct lane *lane)
{
	lane->issued = lane->done = FIRST_TICKET;
	lane->slots = mem_calloc(FIRST_ROOM, sizeof(*lane->slots));
	if (!lane->slots)
		return fail(-ENOMEM, "no memory for the moves of a copy queue");
	lane->room = FIRST_ROOM;
	return 0;
}

static int state_make(struct link *link, struct sdma **state)
{
	const struct env *env;
	struct copy_queue *q;
	struct sdma *st;
	int rc = env_get(&env);

	if (!rc)
		rc = copy_queue_get(link->backend, link->dev, link->peer_dev,
			(int)MIN_OF(env->channels, COPY_QUEUE_LANES), &q);
	if (rc)
		return rc;
	st = mem_calloc(1, sizeof(*st) + (size_t)q->nlanes * sizeof(st->lanes[0]));
	if (!st) {
		copy_queue_drop(q);
		return fail(-ENOMEM, "no memory for a link's share of a copy queue");
	}
	st->queue = q;
	while (!rc && st->nlanes < q->nlanes)
		rc = lane_make(&st->lanes[st->nlanes++]);
	if (rc) {
		state_free(link, st, false);
		return rc;
	}
	*state = st;
	return 0;
}

/* The move that asked is made by other means, so the thread's sentence is left as it was. */
static void fall_back(struct mover *m)
{
	struct link *link = m->link;

	if (!atomic_load_explicit(&link->fell_back, memory_order_relaxed)) {
		snprintf(link->why, sizeof(link->why), "sdma: %.*s", (int)sizeof(link->why) - 8,
			status_sentence());
		log_line(LOG_WARN, "rank %d: no copy queue to rank %d; %s", link->rank, link->pe,
			link->why);
		atomic_store_explicit(&link->fell_back, true, memory_order_release);
	}
	m->ops = &mover_store;
}

void link_route(const struct link *link, struct route *route)
{
	size_t used = strnlen(link->route.reason, sizeof(link->route.reason) - 1);

	*route = link->route;
	if (!atomic_load_explicit(&link->fell_back, memory_order_acquire))
		return;
	snprintf(route->reason + used, sizeof(route->reason) - used, "; %s", link->why);
	route->movers[0] = MOVER_STORE;
	route->nmovers = 1;
	route->threshold = UINT64_MAX;
}

/* ---- waiting */

static struct lane_slot *slot_at(const struct lane *lane, uint64_t ticket)
{
	return &lane->slots[ticket & (lane->room - 1)];
}

/* 1 done, 0 not yet, or the code of a stream in which this move failed, or some link's before it. */
static int slot_query(
	const struct link *link, const struct lane *lane, const struct lane_slot *slot)
{
	return slot->marked ? link->backend->event_query(link->dev, slot->behind)
			    : link->backend->stream_query(link->dev, lane->stream);
}

/*
 * Until the last move of a lane is served: 1 or a code in *verdict. -ETIMEDOUT or -ECANCELED: it is not. Sleeps in the stream's
 * own wait, which wakes when all that is queued is served; other links may have queued more behind ours, hence the slices.
 */
static int lane_wait(const struct link *link, const struct lane *lane, int64_t timeout_ms,
	const uint32_t *stop, int *verdict)
{
	const struct lane_slot *last = slot_at(lane, lane->issued - 1);
	bool forever = timeout_ms < 0 || timeout_ms > INT64_MAX / 4000000;
	int64_t end = forever ? INT64_MAX : process_now() + timeout_ms * 1000000;
	int yields = 0, rc;

	while (!(*verdict = slot_query(link, lane, last))) {
		int64_t left = end - process_now();

		if (left <= 0)
			return -ETIMEDOUT;
		if (yields++ < YIELDS) {
			sched_yield();
			continue;
		}
		rc = link->backend->stream_sync(
			link->dev, lane->stream, MIN_OF(left, SLICE_NS), stop);
		if (rc == -ECANCELED)
			return rc;
	}
	return 0;
}

static int redo(const struct link *link, const struct sdma_move *m)
{
	const struct backend *b = link->backend;
	int64_t ms = *link->timeout_ms;
	device_stream s;
	int rc = b->stream_create(link->dev, &s);

	if (rc)
		return rc;
	rc = b->copy(link->dev, m->dst, m->src, m->n, s);
	if (!rc)
		rc = b->stream_sync(link->dev, s, ms < 0 ? -1 : ms * 1000000, link->stop);
	rc = link_wait_failed(link, "sdma", rc);
	b->stream_destroy(link->dev, s);
	return rc;
}

static void note_failure(
	const struct link *link, struct sdma *st, const struct sdma_move *m, int rc)
{
	if (st->error)
		return;
	st->error = fail_rank(rc, link->rank, "copy of %zu bytes between %p and rank %d failed: %s",
		m->n, m->dst, link->pe, status_sentence());
	status_save(&st->why);
}

/*
 * After a failure a stream runs nothing more, so that of this link's moves only the first that failed can be the cause: it is if
 * the stream was still sound before it. It is not tried again, since its addresses may be no longer valid. The others never
 * ran, and are made now, in a stream of their own. (Two links that submit at the same moment may both be blamed.)
 */
static void recover(struct link *link, struct sdma *st, int i, int verdict)
{
	struct lane *lane = &st->lanes[i];
	bool first = true;

	copy_queue_renew(st->queue, i, lane->stream);
	for (uint64_t t = lane->done; t != lane->issued; t++) {
		const struct lane_slot *slot = slot_at(lane, t);
		int rc = slot_query(link, lane, slot);

		if (rc == 1)
			continue;
		rc = verdict;
		if (!first ||
			(slot->guarded && link->backend->event_query(link->dev, slot->before) != 1))
			rc = redo(link, &slot->move);
		first = false;
		if (rc)
			note_failure(link, st, &slot->move, rc);
	}
}

/* Waits for the link's moves in a lane and forgets them; what failed is noted in st. -ETIMEDOUT, -ECANCELED: nothing changed.
   The engine needs nobody: in a broken world, too, it is waited for, as the caller takes its buffers back. */
static int settle_lane(struct link *link, struct sdma *st, int i)
{
	struct lane *lane = &st->lanes[i];
	int rc, verdict;

	if (lane->issued == lane->done)
		return 0;
	rc = lane_wait(link, lane, *link->timeout_ms, link->stop, &verdict);
	if (rc == -ECANCELED && lane_wait(link, lane, CLOSE_WAIT_MS, NULL, &verdict))
		return rc;
	if (rc && rc != -ECANCELED)
		return rc;
	if (verdict < 0) {
		log_line(LOG_WARN, "rank %d: a copy stream to rank %d failed: %s", link->rank,
			link->pe, status_sentence());
		recover(link, st, i, verdict);
	}
	lane->done = lane->issued;
	return 0;
}

static int settle_all(struct link *link, struct sdma *st, const char *what)
{
	for (int i = 0; i < st->nlanes; i++) {
		int rc = settle_lane(link, st, i);

		if (rc)
			return link_wait_failed(link, what, rc);
	}
	return 0;
}

/* ---- moving */

static void lane_grow(struct lane *lane)
{
	uint64_t room = 2 * lane->room;
	struct lane_slot *more = mem_calloc(room, sizeof(*more));

	if (!more)
		return;
	for (uint64_t t = lane->done; t != lane->issued; t++)
		more[t & (room - 1)] = *slot_at(lane, t);
	mem_free(lane->slots);
	lane->slots = more;
	lane->room = room;
}

/* Room for one more move: forgets those that are done, or grows, or waits. */
static int lane_room(struct link *link, struct sdma *st, int i)
{
	struct lane *lane = &st->lanes[i];

	if (lane->issued - lane->done < lane->room)
		return 0;
	while (lane->done != lane->issued && slot_query(link, lane, slot_at(lane, lane->done)) == 1)
		lane->done++;
	if (lane->issued - lane->done == lane->room && lane->room < MOST_ROOM)
		lane_grow(lane);
	return lane->issued - lane->done < lane->room ? 0 : settle_lane(link, st, i);
}

/* Moves that are in a stream which the copy queue has given up since are settled first. */
static int lane_ready(struct link *link, struct sdma *st, int i)
{
	device_stream now = atomic_load_explicit(&st->queue->lanes[i], memory_order_acquire);
	struct lane *lane = &st->lanes[i];
	int rc = lane->stream == now ? lane_room(link, st, i) : settle_lane(link, st, i);

	if (!rc)
		lane->stream = now;
	return rc;
}

/* False where there is no event to be had. */
static bool mark_event(const struct link *link, const struct lane *lane, device_event *event)
{
	const struct backend *b = link->backend;

	if (!*event && b->event_create(link->dev, event))
		return false;
	return !b->event_record(link->dev, *event, lane->stream);
}

/* Alone in a copy queue a link needs no proof of whose fault a failure is. */
static int lane_copy(struct link *link, struct sdma *st, int i, const struct sdma_move *m)
{
	struct lane *lane = &st->lanes[i];
	struct lane_slot *slot = slot_at(lane, lane->issued);
	int rc;

	slot->guarded = copy_queue_shared(st->queue) && mark_event(link, lane, &slot->before);
	rc = link->backend->copy(link->dev, m->dst, m->src, m->n, lane->stream);
	if (rc)
		return rc;
	slot->move = *m;
	slot->marked = mark_event(link, lane, &slot->behind);
	lane->issued++;
	link->pending = true;
	return 0;
}

/* A failed stream may refuse new work; then it goes into the one that takes its place. */
static int submit(struct link *link, struct sdma *st, int i, const struct sdma_move *m)
{
	int rc = link_wait_failed(link, "sdma", lane_ready(link, st, i));
	device_stream stream = st->lanes[i].stream;

	if (rc)
		return rc;
	rc = lane_copy(link, st, i, m);
	if (!rc || link->backend->stream_query(link->dev, stream) >= 0)
		return rc;
	rc = copy_queue_renew(st->queue, i, stream);
	if (!rc)
		rc = link_wait_failed(link, "sdma", lane_ready(link, st, i));
	return rc ? rc : lane_copy(link, st, i, m);
}

/* Settled before as well, so that a failure found behind it can only be this move's. */
static int submit_and_wait(struct link *link, struct sdma *st, int i, const struct sdma_move *m)
{
	struct status_saved why;
	bool pending = link->pending;
	int rc = link_wait_failed(link, "sdma", settle_lane(link, st, i));
	int before = st->error;

	if (rc)
		return rc;
	why = st->why;
	st->error = 0;
	rc = submit(link, st, i, m);
	if (!rc)
		rc = link_wait_failed(link, "sdma", settle_lane(link, st, i));
	if (!rc)
		link->pending = pending;
	if (!rc && st->error)
		rc = fail_again(st->error, &st->why);
	st->error = before;
	st->why = why;
	return rc;
}

/* Made by the first move that needs it. NULL: the mover has fallen back, and the thread's sentence is as it was. */
static struct sdma *state_of(struct mover *m)
{
	struct status_saved saved;
	struct sdma *st = m->state;

	if (LIKELY(st))
		return st;
	status_save(&saved);
	if (state_make(m->link, &st)) {
		fall_back(m);
		status_restore(&saved);
		return NULL;
	}
	m->state = st;
	return st;
}

static int sdma_stream_move(
	struct link *link, void *dst, const void *src, size_t n, device_stream stream)
{
	int rc = link->backend->copy(link->dev, dst, src, n, stream);

	if (!rc)
		link_count(link, MOVER_SDMA, n);
	return rc;
}

static int sdma_move(struct mover *m, const struct sdma_move *move, enum move_mode mode)
{
	struct sdma *st = m->state;
	int i = copy_queue_reserve(st->queue);
	int rc = mode == MOVE_NBI ? submit(m->link, st, i, move)
				  : submit_and_wait(m->link, st, i, move);

	if (!rc)
		link_count(m->link, MOVER_SDMA, move->n);
	return rc;
}

static int sdma_put(struct mover *m, uint64_t offset, const void *local, size_t n,
	enum move_mode mode, device_stream stream)
{
	struct sdma_move move = { .dst = link_at(m->link, offset), .src = local, .n = n };

	if (mode == MOVE_STREAM)
		return sdma_stream_move(m->link, move.dst, local, n, stream);
	if (!state_of(m))
		return mover_store.put(m, offset, local, n, mode, stream);
	return sdma_move(m, &move, mode);
}

static int sdma_get(struct mover *m, void *local, uint64_t offset, size_t n, enum move_mode mode,
	device_stream stream)
{
	struct sdma_move move = { .dst = local, .src = link_at(m->link, offset), .n = n };

	if (mode == MOVE_STREAM)
		return sdma_stream_move(m->link, local, move.src, n, stream);
	if (!state_of(m))
		return mover_store.get(m, local, offset, n, mode, stream);
	return sdma_move(m, &move, mode);
}

static int sdma_fence(struct mover *m)
{
	struct sdma *st = m->state;
	int rc = st ? settle_all(m->link, st, "fence") : 0;

	return !rc && st && st->error ? fail_again(st->error, &st->why) : rc;
}

static int sdma_quiet(struct mover *m)
{
	struct sdma *st = m->state;
	int rc = st ? settle_all(m->link, st, "quiet") : 0;

	if (rc || !st || !st->error)
		return rc;
	rc = fail_again(st->error, &st->why);
	st->error = 0;
	return rc;
}

/* Waits even in a broken world, for the engine and not for a rank, because the heaps are unmapped next. */
static void drain_lanes(const struct link *link, const struct sdma *st)
{
	int64_t ms = *link->timeout_ms;
	int verdict;

	for (int i = 0; i < st->nlanes; i++) {
		const struct lane *lane = &st->lanes[i];

		if (lane->issued != lane->done &&
			lane_wait(link, lane, ms < 0 ? CLOSE_WAIT_MS : ms, NULL, &verdict))
			log_line(LOG_ERROR, "rank %d: copies to rank %d still in flight at the end",
				link->rank, link->pe);
	}
}

static void sdma_close(struct mover *m)
{
	struct sdma *st = m->state;
	bool inherited = st && copy_queue_inherited(st->queue);

	if (!st)
		return;
	m->state = NULL;
	if (!inherited)
		drain_lanes(m->link, st);
	state_free(m->link, st, inherited);
}

const struct mover_ops mover_sdma = {
	.name = "sdma",
	.put = sdma_put,
	.get = sdma_get,
	.signal = store_signal,
	.atomic = store_atomic,
	.fence = sdma_fence,
	.quiet = sdma_quiet,
	.close = sdma_close,
};

static const struct sdma *state_in(const struct link *link)
{
	for (int i = 0; i < link->nmovers; i++)
		if (link->movers[i].ops == &mover_sdma)
			return link->movers[i].state;
	return NULL;
}

int sdma_stream(const struct link *link, int i, device_stream *stream)
{
	const struct sdma *st = state_in(link);

	if (!st || i < 0 || i >= st->nlanes)
		return -ENOENT;
	*stream = atomic_load_explicit(&st->queue->lanes[i], memory_order_acquire);
	return 0;
}

uint64_t sdma_pending(const struct link *link)
{
	const struct sdma *st = state_in(link);
	uint64_t n = 0;

	for (int i = 0; st && i < st->nlanes; i++)
		n += st->lanes[i].issued - st->lanes[i].done;
	return n;
}
