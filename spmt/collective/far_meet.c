/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "far_state.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/waits.h"
#include "spmt/control/coll_key.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define FAR_LOOKS 200	   /* at a word before sleeping */
#define FAR_SLEEP_NS 50000 /* then so long, growing to .. */
#define FAR_SLEEP_MOST 1000000
#define FAR_STEPS 20 /* bits of a step's number */

/* From the stage: of the word that `writer` has in a round. */
static int64_t word_at(const spmt_comm *comm, uint64_t round, int writer)
{
	uint64_t nth = (round & 1) * (uint64_t)comm->nranks + (uint64_t)writer;

	return (int64_t)(nth * sizeof(struct far_word)) - (int64_t)far_head(comm->nranks);
}

uint64_t far_there(const spmt_comm *comm, const struct link *link, int64_t at)
{
	const char *area = comm->parent ? comm->heap->base + comm->area : comm->heap->own;

	return link->own + (uint64_t)(comm->stage - area) + (uint64_t)at;
}

const struct far_word *far_told(const spmt_comm *comm, uint64_t round, int writer)
{
	return (const struct far_word *)(const void *)(comm->stage + word_at(comm, round, writer));
}

int64_t far_half(const spmt_comm *comm)
{
	return (int64_t)((comm->far_state->round & 1) * comm->stage_size);
}

int far_put(spmt_comm *comm, int pe, int64_t at, const void *src, uint64_t n)
{
	struct mover *mover = &comm->far_state->links[pe].movers[0];

	if (!n)
		return 0;
	if (pe != comm->rank)
		return mover->ops->put(
			mover, far_there(comm, mover->link, at), src, n, MOVE_BLOCKING, NULL);
	memcpy(comm->stage + at, src, n);
	return 0;
}

int far_begin_round(spmt_comm *comm, const struct far_hello *hello)
{
	comm->far_state->round++;
	return far_greet(comm, comm->rank, hello);
}

int far_greet(spmt_comm *comm, int pe, const struct far_hello *hello)
{
	struct far *far = comm->far_state;
	struct mover *mover = &far->links[pe].movers[0];
	uint64_t place = far_there(comm, mover->link, word_at(comm, far->round, comm->rank));
	int rc = mover->ops->put(mover, place, hello, sizeof(*hello), MOVE_BLOCKING, NULL);

	return rc ? rc
		  : mover->ops->signal(mover, place + offsetof(struct far_word, round), far->round,
			    SPMT_SIGNAL_SET, NULL);
}

static uint64_t step_word(const struct far *far, uint64_t step)
{
	return far->round << FAR_STEPS | step;
}

int far_greet_step(spmt_comm *comm, int pe, uint64_t step)
{
	struct far *far = comm->far_state;
	struct mover *mover = &far->links[pe].movers[0];
	uint64_t place = far_there(comm, mover->link, word_at(comm, far->round, comm->rank));

	return mover->ops->signal(mover, place + offsetof(struct far_word, step),
		step_word(far, step), SPMT_SIGNAL_SET, NULL);
}

static bool has_greeted(const spmt_comm *comm, int pe, uint64_t step)
{
	const struct far *far = comm->far_state;
	const struct far_word *word = far_told(comm, far->round, pe);

	return step ? __atomic_load_n(&word->step, __ATOMIC_ACQUIRE) >= step_word(far, step)
		    : __atomic_load_n(&word->round, __ATOMIC_ACQUIRE) >= far->round;
}

/* Not all greet this rank; but each has first noted at itself that it has come. */
static bool has_noted(spmt_comm *comm, int pe)
{
	struct far *far = comm->far_state;
	struct mover *mover = &far->links[pe].movers[0];
	uint64_t place = far_there(comm, mover->link, word_at(comm, far->round, pe));
	int rc;
	KEEPS_SENTENCE;

	rc = mover->ops->get(mover, &far->noted[pe], place + offsetof(struct far_word, round),
		sizeof(far->noted[pe]), MOVE_BLOCKING, NULL);
	return !rc && far->noted[pe] >= far->round;
}

/* Finds who has not come to this round; if all have, `pe` has not got that far in it. */
static int missing_find(spmt_comm *comm, int pe, bool *missing)
{
	int n = 0;

	for (int r = 0; r < comm->nranks; r++) {
		missing[r] = !has_greeted(comm, r, 0) && !has_noted(comm, r);
		n += missing[r];
	}
	if (n)
		return n;
	missing[pe] = true;
	return 1;
}

/* "spmt_all_reduce: rank 0: 1 of 4 ranks missing in a stream after 5.0 s: 3" */
static int far_missing(spmt_comm *comm, const struct far_call *c, int pe, int64_t waited)
{
	struct waits_text waits = { .used = 0 };
	struct text t = { .used = 0 };
	struct cause cause;
	int n, said = 0;
	bool *missing = mem_calloc((size_t)comm->nranks, sizeof(*missing));

	if (!missing)
		return -ENOMEM;
	n = missing_find(comm, pe, missing);
	for (int r = 0; r < comm->nranks; r++)
		if (missing[r])
			waits_add(&waits, comm, r, process_now() - waited);
	text_add(&t, "%s: rank %d: in a stream: %s%d of %d ranks missing after %.*f s:", c->what,
		comm->rank, waits_said(&waits), n, comm->nranks, SECONDS((double)waited / 1e9));
	for (int r = 0; r < comm->nranks; r++)
		if (missing[r])
			text_add(&t, "%s %d", said++ ? "," : "", r);
	mem_free(missing);
	cause_set(&cause, SPMT_ERR_TIMEOUT, c->what, t.bytes);
	comm_break(comm, &cause);
	return SPMT_ERR_TIMEOUT;
}

int far_await(spmt_comm *comm, const struct far_call *c, int pe, uint64_t step)
{
	struct far *far = comm->far_state;
	struct timespec slice = { .tv_nsec = FAR_SLEEP_NS };

	for (int looks = 0; !has_greeted(comm, pe, step); looks++) {
		int64_t limit = comm_timeout(comm), waited;

		if (atomic_load_explicit(&comm->control->stop, memory_order_acquire))
			return -ECANCELED;
		if (looks < FAR_LOOKS) {
			sched_yield();
			continue;
		}
		waited = process_now() - far->begin;
		if (limit >= 0 && waited >= limit * 1000000)
			return has_greeted(comm, pe, step) ? 0 : far_missing(comm, c, pe, waited);
		waits_show(comm, c, &(struct wait_for){ .name = c->what, .since = far->begin });
		clock_nanosleep(CLOCK_MONOTONIC, 0, &slice, NULL);
		slice.tv_nsec = MIN_OF(2 * slice.tv_nsec, FAR_SLEEP_MOST);
	}
	return 0;
}

static void differ(char *text, size_t size, const spmt_comm *comm, const struct far_call *c, int pe,
	const uint64_t key[2])
{
	if (key[0] != FAR_BARRIER && key[1] != FAR_BARRIER)
		coll_differ(text, size, pe, key[0], comm->rank, key[1]);
	else
		snprintf(text, size,
			"%s: the function called differs between rank %d and rank %d: one is in a barrier",
			c->what, pe, comm->rank);
}

int far_mismatch(spmt_comm *comm, const struct far_call *c, int pe, const uint64_t key[2])
{
	struct cause cause;
	char text[256];

	differ(text, sizeof(text), comm, c, pe, key);
	cause_set(&cause, SPMT_ERR_MISMATCH, c->what, text);
	comm_break(comm, &cause);
	return SPMT_ERR_MISMATCH;
}

/* No rank hears that calls differ before it has made its own. */
static int await_notes(spmt_comm *comm, const struct far_call *c)
{
	const struct timespec slice = { .tv_nsec = FAR_SLEEP_MOST };
	const struct far *far = comm->far_state;

	for (int pe = 0; pe < comm->nranks; pe++)
		while (!has_greeted(comm, pe, 0) && !has_noted(comm, pe)) {
			int64_t limit = comm_timeout(comm), waited = process_now() - far->begin;

			if (atomic_load_explicit(&comm->control->stop, memory_order_acquire))
				return -ECANCELED;
			if (limit >= 0 && waited >= limit * 1000000)
				return far_missing(comm, c, pe, waited);
			clock_nanosleep(CLOCK_MONOTONIC, 0, &slice, NULL);
		}
	return 0;
}

int far_await_key(spmt_comm *comm, const struct far_call *c, int pe)
{
	const struct far *far = comm->far_state;
	int rc = far_await(comm, c, pe, 0);
	uint64_t key[2] = { 0, c->key };

	waits_hide(comm, c);
	if (rc)
		return rc;
	key[0] = __atomic_load_n(&far_told(comm, far->round, pe)->hello.key, __ATOMIC_RELAXED);
	if (key[0] == key[1])
		return 0;
	rc = await_notes(comm, c);
	return rc ? rc : far_mismatch(comm, c, pe, key);
}

/* ---- nodes ------------------------------------------------------------------------------------- */

static bool on_one_machine(const spmt_comm *comm, int a, int b)
{
	const int *node = comm->world->node;

	return a == b || (node && node[comm_world_rank(comm, a)] == node[comm_world_rank(comm, b)]);
}

/* before[k + 1]: how many ranks node k has; ranks[k]: the first of them. */
static void nodes_find(const spmt_comm *comm, struct far *far)
{
	for (int pe = 0; pe < comm->nranks; pe++) {
		int k = 0;

		while (k < far->nodes && !on_one_machine(comm, far->ranks[k], pe))
			k++;
		if (k == far->nodes)
			far->ranks[far->nodes++] = pe;
		far->node[pe] = k;
		far->nth[pe] = far->before[k + 1]++;
	}
	far->mine = far->node[comm->rank];
}

int far_nodes(const spmt_comm *comm, struct far *far)
{
	size_t n = (size_t)comm->nranks;

	far->node = mem_calloc(5 * n + 2, sizeof(*far->node));
	if (!far->node)
		return -ENOMEM;
	far->nth = far->node + n;
	far->ranks = far->nth + n;
	far->before = far->ranks + n;
	far->places = far->before + n + 1;
	nodes_find(comm, far);
	far->rails = comm->nranks;
	for (int k = 0; k < far->nodes; k++)
		far->rails = MIN_OF(far->rails, far->before[k + 1]);
	for (int k = 0; k < far->nodes; k++) {
		far->places[k + 1] =
			far->places[k] + (far->before[k + 1] + far->rails - 1) / far->rails;
		far->before[k + 1] += far->before[k];
	}
	for (int pe = 0; pe < comm->nranks; pe++)
		far->ranks[far->before[far->node[pe]] + far->nth[pe]] = pe;
	return 0;
}

int far_rank(const struct far *far, int node, int nth)
{
	int at = far->before[node] + nth;

	return at < far->before[node + 1] ? far->ranks[at] : -1;
}
