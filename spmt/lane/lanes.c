/* SPDX-License-Identifier: MIT */
#include "lanes.h"

#include <errno.h>
#include <time.h>

#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/base/tsan.h"

#define LANE_ROWS 256u

struct lanes {
	_Atomic int
		refs; /* the world, and each lane: streams may come to a lane after its world has ended */
	pthread_mutex_t lock; /* guards what follows, and the members of lanes that say so */
	struct comm_lane *rows[LANE_ROWS];
	uint64_t made; /* lanes so far */
	struct lane_clock {
		pthread_mutex_t
			lock; /* guards this paragraph but next; behind the locks of lanes */
		pthread_cond_t sooner;
		pthread_t thread;
		bool stop;
		int64_t wanted;
		_Atomic bool runs;
		_Atomic int64_t next; /* when it looks again; INT64_MAX while it looks */
	} clock;
};

/* ---- the table ------------------------------------------------------------------------------- */

static struct lanes *lanes_make(void)
{
	struct lanes *all = mem_calloc(1, sizeof(*all));
	pthread_condattr_t attr;

	if (!all)
		return NULL;
	atomic_store(&all->refs, 1);
	pthread_mutex_init(&all->lock, NULL);
	pthread_mutex_init(&all->clock.lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&all->clock.sooner, &attr);
	pthread_condattr_destroy(&attr);
	atomic_store(&all->clock.next, INT64_MAX);
	return all;
}

static void lanes_unref(struct lanes *all)
{
	if (atomic_fetch_sub(&all->refs, 1) > 1)
		return;
	pthread_cond_destroy(&all->clock.sooner);
	pthread_mutex_destroy(&all->clock.lock);
	pthread_mutex_destroy(&all->lock);
	mem_free(all);
}

struct lanes *lanes_of(_Atomic(struct lanes *) *slot)
{
	struct lanes *all = atomic_load(slot), *none = NULL;

	if (all) {
		tsan_acquire(slot);
		return all;
	}
	all = lanes_make();
	tsan_release(slot);
	if (!all || atomic_compare_exchange_strong(slot, &none, all))
		return all;
	tsan_acquire(slot);
	lanes_unref(all);
	return none;
}

void lanes_lock(struct lanes *all)
{
	pthread_mutex_lock(&all->lock);
}

void lanes_unlock(struct lanes *all)
{
	pthread_mutex_unlock(&all->lock);
}

static struct comm_lane **row_of(struct lanes *all, uint64_t comm, uint64_t key)
{
	uint64_t h = (comm ^ key * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;

	return &all->rows[(h >> 32) % LANE_ROWS];
}

struct comm_lane *lanes_find(struct lanes *all, uint64_t comm, uint64_t key)
{
	struct comm_lane *lane = *row_of(all, comm, key);

	while (lane && (lane->comm != comm || lane->key != key || lane_is_broken(lane)))
		lane = lane->next;
	return lane;
}

struct comm_lane *lanes_add(
	struct lanes *all, uint64_t comm, uint64_t key, int nranks, const struct lane_place *place)
{
	struct comm_lane **row = row_of(all, comm, key);
	struct comm_lane *lane = lane_open(comm, key, nranks, place);

	if (!lane)
		return NULL;
	lane->all = all;
	lane->id = (comm ^ ++all->made) * 0x9e3779b97f4a7c15u;
	lane->next = *row;
	*row = lane;
	atomic_fetch_add(&all->refs, 1);
	return lane;
}

void lanes_drop(struct comm_lane *lane)
{
	struct lanes *all = lane->all;
	struct comm_lane **at = row_of(all, lane->comm, lane->key);

	if (lane->users)
		return;
	while (*at != lane)
		at = &(*at)->next;
	*at = lane->next;
	lane_close(lane);
	atomic_fetch_sub(&all->refs, 1); /* not the last: the caller has one */
}

void lanes_enter(struct comm_lane *lane, int rank, void *user)
{
	lane->sides[rank].user = user;
	lane->users++;
}

void lanes_leave(struct comm_lane *lane, int rank)
{
	struct lanes *all = lane->all;

	lanes_lock(all);
	lane->sides[rank].user = NULL;
	lane->users--;
	lanes_drop(lane);
	lanes_unlock(all);
}

void lanes_hold(struct comm_lane *lane)
{
	lanes_lock(lane->all);
	lane->users++;
	lanes_unlock(lane->all);
}

void lanes_release(struct comm_lane *lane)
{
	struct lanes *all = lane->all;

	atomic_fetch_add(&all->refs, 1);
	lanes_lock(all);
	lane->users--;
	lanes_drop(lane);
	lanes_unlock(all);
	lanes_unref(all);
}

/* For each lane, under the lock. */
static void lanes_each(struct lanes *all, void (*fn)(struct comm_lane *lane, void *arg), void *arg)
{
	lanes_lock(all);
	for (size_t i = 0; i < LANE_ROWS; i++)
		for (struct comm_lane *lane = all->rows[i]; lane; lane = lane->next)
			fn(lane, arg);
	lanes_unlock(all);
}

struct lanes_broken {
	uint64_t comm;
	const struct cause *cause;
};

static void break_one(struct comm_lane *lane, void *arg)
{
	const struct lanes_broken *broken = arg;
	struct cause cause;

	if (broken->comm != LANES_ANY && broken->comm != lane->comm)
		return;
	keys_cause(lane->key, broken->cause, &cause);
	lane_break(lane, &cause);
}

void lanes_break(struct lanes *all, uint64_t comm, const struct cause *cause)
{
	if (all)
		lanes_each(all, break_one, &(struct lanes_broken){ comm, cause });
}

/* ---- the clock ------------------------------------------------------------------------------- */

struct lanes_look {
	int64_t now, next;
};

static void look_one(struct comm_lane *lane, void *arg)
{
	struct lanes_look *look = arg;
	int64_t due;

	if (atomic_load(&lane->due) <= look->now)
		lane_expire(lane, look->now);
	due = atomic_load(&lane->due);
	look->next = MIN_OF(look->next, due);
}

static void clock_sleep(struct lane_clock *clock, int64_t until)
{
	struct timespec ts = { .tv_sec = until / 1000000000, .tv_nsec = until % 1000000000 };

	if (until == INT64_MAX)
		pthread_cond_wait(&clock->sooner, &clock->lock);
	else
		pthread_cond_timedwait(&clock->sooner, &clock->lock, &ts);
}

/* A lane whose deadline is set while this looks finds that it is looking, and says so. */
static void *clock_main(void *arg)
{
	struct lanes *all = arg;
	struct lane_clock *clock = &all->clock;

	pthread_setname_np(pthread_self(), "spmt-lanes");
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_mutex_lock(&clock->lock);
	while (!clock->stop) {
		struct lanes_look look = { .now = process_now(), .next = INT64_MAX };

		clock->wanted = INT64_MAX;
		atomic_store(&clock->next, INT64_MAX);
		pthread_mutex_unlock(&clock->lock);
		lanes_each(all, look_one, &look);
		pthread_mutex_lock(&clock->lock);
		look.next = MIN_OF(look.next, clock->wanted);
		atomic_store(&clock->next, look.next);
		while (!clock->stop && clock->wanted >= look.next && process_now() < look.next)
			clock_sleep(clock, look.next);
	}
	pthread_mutex_unlock(&clock->lock);
	return NULL;
}

int lanes_clock(struct lanes *all)
{
	struct lane_clock *clock = &all->clock;
	int err = 0;

	if (LIKELY(atomic_load(&clock->runs)))
		return 0;
	pthread_mutex_lock(&clock->lock);
	if (!atomic_load(&clock->runs)) {
		err = fault_here(FAULT_THREAD) ? fault_errno(FAULT_THREAD)
					       : process_thread(&clock->thread, 0, clock_main, all);
		atomic_store(&clock->runs, !err);
	}
	pthread_mutex_unlock(&clock->lock);
	return err ? fail_errno(err, "no thread for the deadlines of lanes") : 0;
}

void lanes_due(struct lanes *all, int64_t due)
{
	struct lane_clock *clock = &all->clock;

	if (due >= atomic_load(&clock->next))
		return;
	pthread_mutex_lock(&clock->lock);
	if (due < clock->wanted) {
		clock->wanted = due;
		pthread_cond_signal(&clock->sooner);
	}
	pthread_mutex_unlock(&clock->lock);
}

void lanes_close(struct lanes *all)
{
	UNCANCELLED;
	struct lane_clock *clock;

	if (!all)
		return;
	clock = &all->clock;
	pthread_mutex_lock(&clock->lock);
	clock->stop = true;
	pthread_cond_signal(&clock->sooner);
	pthread_mutex_unlock(&clock->lock);
	if (atomic_load(&clock->runs))
		pthread_join(clock->thread, NULL);
	lanes_unref(all);
}
