/* SPDX-License-Identifier: MIT */
#include "lane.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lanes.h"
#include "spmt/control/coll_key.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/kernels/area.h"

/* ---- lanes ----------------------------------------------------------------------------------- */

static void cond_open(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

static void place_leave(const struct lane_place *place)
{
	if (place->keys)
		keys_leave(place->keys, place->in.row, place->stop);
}

struct comm_lane *lane_open(uint64_t comm, uint64_t key, int nranks, const struct lane_place *place)
{
	struct comm_lane *lane =
		mem_calloc(1, sizeof(*lane) + (size_t)(unsigned)nranks * sizeof(lane->sides[0]));

	if (!lane) {
		if (place)
			place_leave(place);
		return NULL;
	}
	if (place)
		lane->place = *place;
	lane->control = place ? place->in.control : mem_aligned(CACHE_LINE, sizeof(*lane->control));
	lane->area = mem_aligned(CACHE_LINE, align_up(area_size(nranks, 0), CACHE_LINE));
	pthread_mutex_init(&lane->lock, NULL);
	cond_open(&lane->ended);
	lane->comm = comm;
	lane->key = key;
	lane->nranks = nranks;
	atomic_store(&lane->due, INT64_MAX);
	for (int r = 0; r < nranks; r++) {
		lane->sides[r].end = &lane->sides[r].first;
		pthread_mutex_init(&lane->sides[r].calls, NULL);
	}
	if (lane->control && lane->area)
		return lane;
	lane_close(lane);
	return NULL;
}

void lane_close(struct comm_lane *lane)
{
	if (!lane)
		return;
	for (int r = 0; r < lane->nranks; r++)
		pthread_mutex_destroy(&lane->sides[r].calls);
	pthread_cond_destroy(&lane->ended);
	pthread_mutex_destroy(&lane->lock);
	mem_free(lane->area);
	if (lane->place.keys)
		place_leave(&lane->place);
	else
		mem_free(lane->control);
	mem_free(lane);
}

/* ---- the steps of one rank, under the lock ------------------------------------------------------ */

static void step_end(struct comm_lane *lane, struct side *side, int code)
{
	struct step *step = side->first;

	side->first = step->next;
	if (!side->first)
		side->end = &side->first;
	side->ended++;
	side->here = false;
	if (code && !side->failed)
		side->failed = code;
	step->code = code;
	step->ended = true;
	if (lane->sleepers)
		pthread_cond_broadcast(&lane->ended);
	if (!step->streamed)
		mem_free(step);
}

static void side_come(struct comm_lane *lane, struct side *side, int64_t timeout_ns)
{
	side->here = true;
	side->due = timeout_ns < 0 ? INT64_MAX : process_now() + timeout_ns;
	lane->here++;
	if (lane->here < lane->nranks && side->due < atomic_load(&lane->due)) {
		atomic_store(&lane->due, side->due);
		lanes_due(lane->all, side->due);
	}
}

static bool step_is_held(const struct step *step)
{
	return step->streamed && !step->reached;
}

/* Goes on with a rank's steps as far as they depend on nobody else. */
static void side_go(struct comm_lane *lane, struct side *side)
{
	struct step *step;

	while ((step = side->first) && !side->here && !step->posted) {
		if (!step->fn && lane_is_broken(lane)) {
			step_end(lane, side, control_cause(lane->control)->code);
		} else if (step_is_held(step)) {
			break;
		} else if (step->fn) {
			step->posted = true;
			caller_post(step->caller, &step->errand);
		} else {
			side_come(lane, side, step->timeout_ns);
		}
	}
}

/* ---- running a collective -------------------------------------------------------------------- */

/* Nobody begins what has not begun; what is being moved ends as it would. */
static bool break_locked(struct comm_lane *lane, const struct cause *cause)
{
	bool first = control_break(lane->control, cause);

	/* another process may have been the first */
	if (lane->raise)
		__atomic_store_n(lane->raise, 1, __ATOMIC_RELEASE);
	if (!first)
		return false;
	atomic_store(&lane->due, INT64_MAX);
	for (int r = 0; r < lane->nranks && !lane->moving; r++)
		lane->sides[r].here = false;
	if (!lane->moving)
		lane->here = 0;
	for (int r = 0; r < lane->nranks; r++)
		side_go(lane, &lane->sides[r]);
	return true;
}

/* The first rank whose call is another one than rank 0's; -1: none. */
static int lane_odd(const struct comm_lane *lane)
{
	const struct step *first = lane->sides[0].first;

	for (int r = 1; r < lane->nranks; r++) {
		const struct step *step = lane->sides[r].first;

		if (step->args.key != first->args.key || strcmp(step->what, first->what) != 0)
			return r;
	}
	return -1;
}

static void say_odd_rank(const struct comm_lane *lane, int odd, struct cause *cause)
{
	const struct step *a = lane->sides[0].first, *b = lane->sides[odd].first;
	struct text text = { .used = 0 };
	char differs[192];

	text_add(&text, "lane %llu: ", (unsigned long long)lane->key);
	if (strcmp(a->what, b->what) != 0) {
		text_add(&text, "rank %d called %s, rank 0 %s", odd, b->what, a->what);
	} else {
		coll_differ(differs, sizeof(differs), odd, b->args.key, 0, a->args.key);
		text_add(&text, "%s", differs);
	}
	cause_set(cause, SPMT_ERR_MISMATCH, NULL, text.bytes);
}

/* All ranks' parts, one after the other: they may be run so, as each is right whenever it runs. Without the lock: the first steps
   stay what they are while this moves. */
static void lane_move(struct comm_lane *lane)
{
	uint64_t own = (uint64_t)(uintptr_t)lane->area;

	if (!lane->sides[0].first->args.bytes)
		return;
	for (int r = 0; r < lane->nranks; r++) {
		struct kernel_collective_args *args = &lane->sides[r].first->args;
		struct area_inbox *inbox = area_inbox_at(own, lane->nranks, r);

		args->view.own = lane->area;
		inbox->src = args->src;
		inbox->dst = args->dst;
		if (args->op == COLL_PREMUL)
			coll_here_factor(args);
	}
	for (int r = 0; r < lane->nranks; r++)
		coll_here(&lane->sides[r].first->args);
}

/* Under the lock, which is given up while data moves. */
static void lane_run(struct comm_lane *lane)
{
	while (lane->here == lane->nranks && !lane->moving) {
		int odd = lane_odd(lane);
		struct cause cause;

		if (odd >= 0) {
			say_odd_rank(lane, odd, &cause);
			break_locked(lane, &cause);
			return;
		}
		lane->moving = true;
		atomic_store(&lane->due, INT64_MAX);
		pthread_mutex_unlock(&lane->lock);
		lane_move(lane);
		pthread_mutex_lock(&lane->lock);
		lane->moving = false;
		lane->here = 0;
		for (int r = 0; r < lane->nranks; r++)
			step_end(lane, &lane->sides[r], 0);
		for (int r = 0; r < lane->nranks; r++)
			side_go(lane, &lane->sides[r]);
	}
}

/* ---- from outside ---------------------------------------------------------------------------- */

/* The user's function is called without the lock. What it has queued on this lane stands behind it. */
static void step_call(struct errand *errand)
{
	struct step *step = (struct step *)(void *)((char *)errand - offsetof(struct step, errand));
	struct comm_lane *lane = step->lane;
	struct side *side = &lane->sides[step->rank];

	step->fn(step->arg, lane_is_broken(lane) ? control_cause(lane->control)->code : 0);
	pthread_mutex_lock(&lane->lock);
	step_end(lane, side, 0);
	side_go(lane, side);
	lane_run(lane);
	pthread_mutex_unlock(&lane->lock); /* from here on the lane may be gone */
}

void lane_queue(struct step *step)
{
	struct comm_lane *lane = step->lane;
	struct side *side = &lane->sides[step->rank];

	step->args.view.pe = step->rank;
	step->args.view.npes = lane->nranks;
	step->errand.run = step_call;
	pthread_mutex_lock(&lane->lock);
	*side->end = step;
	side->end = &step->next;
	side->queued++;
	side_go(lane, side);
	lane_run(lane);
	pthread_mutex_unlock(&lane->lock);
}

static void lane_sleep(struct comm_lane *lane, int64_t until)
{
	struct timespec ts = { .tv_sec = until / 1000000000, .tv_nsec = until % 1000000000 };

	lane->sleepers++;
	if (until == INT64_MAX)
		pthread_cond_wait(&lane->ended, &lane->lock);
	else
		pthread_cond_timedwait(&lane->ended, &lane->lock, &ts);
	lane->sleepers--;
}

int lane_reach(struct step *step, struct cause *cause)
{
	UNCANCELLED;
	struct comm_lane *lane = step->lane;
	struct side *side = &lane->sides[step->rank];
	int code;

	pthread_mutex_lock(&lane->lock);
	step->reached = true;
	side_go(lane, side);
	lane_run(lane);
	while (!step->ended)
		lane_sleep(lane, INT64_MAX);
	code = step->code;
	if (code)
		*cause = *control_cause(lane->control);
	pthread_mutex_unlock(&lane->lock);
	mem_free(step);
	lanes_release(lane);
	return code;
}

int lane_drain(struct comm_lane *lane, int rank, int64_t timeout_ns)
{
	UNCANCELLED;
	struct side *side = &lane->sides[rank];
	int64_t until = timeout_ns < 0 ? INT64_MAX : process_now() + timeout_ns;
	uint64_t ticket;
	int rc = 0;

	pthread_mutex_lock(&lane->lock);
	ticket = side->queued;
	while (!rc && side->ended < ticket) {
		if (process_now() >= until)
			rc = -ETIMEDOUT;
		else
			lane_sleep(lane, until);
	}
	pthread_mutex_unlock(&lane->lock);
	return rc;
}

int lane_failure(struct comm_lane *lane, int rank)
{
	struct side *side = &lane->sides[rank];
	int code;

	pthread_mutex_lock(&lane->lock);
	code = side->failed;
	side->failed = 0;
	pthread_mutex_unlock(&lane->lock);
	return code;
}

bool lane_break(struct comm_lane *lane, const struct cause *cause)
{
	bool first;

	pthread_mutex_lock(&lane->lock);
	first = break_locked(lane, cause);
	pthread_mutex_unlock(&lane->lock);
	return first;
}

void lane_raises(struct comm_lane *lane, uint32_t *word)
{
	pthread_mutex_lock(&lane->lock);
	lane->raise = word;
	if (lane_is_broken(lane))
		__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lane->lock);
}

/* "spmt_all_reduce: lane 42: 2 of 8 ranks missing after 5.0 s: 3, 6" */
static void say_missing(const struct comm_lane *lane, const struct step *waits, struct cause *cause)
{
	struct text text = { .used = 0 };

	text_add(&text, "%s: lane %llu: %d of %d ranks missing after %.*f s:", waits->what,
		(unsigned long long)lane->key, lane->nranks - lane->here, lane->nranks,
		SECONDS((double)waits->timeout_ns / 1e9));
	for (int r = 0, n = 0; r < lane->nranks; r++)
		if (!lane->sides[r].here)
			text_add(&text, "%s %d", n++ ? "," : "", r);
	cause_set(cause, SPMT_ERR_TIMEOUT, waits->what, text.bytes);
}

void lane_expire(struct comm_lane *lane, int64_t now)
{
	const struct step *waits = NULL;
	struct cause cause;

	pthread_mutex_lock(&lane->lock);
	for (int r = 0; r < lane->nranks && !lane->moving && !waits; r++)
		if (lane->sides[r].here && lane->sides[r].due <= now)
			waits = lane->sides[r].first;
	if (waits) {
		say_missing(lane, waits, &cause);
		break_locked(lane, &cause);
	}
	pthread_mutex_unlock(&lane->lock);
}

void lane_unstream(struct comm_lane *lane, int rank)
{
	struct side *side = &lane->sides[rank];

	pthread_mutex_lock(&lane->lock);
	for (struct step *step = side->first; step; step = step->next)
		step->reached = true;
	side_go(lane, side);
	pthread_mutex_unlock(&lane->lock);
}
