/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
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

static bool has_greeted(const spmt_comm *comm, int pe)
{
	const struct far *far = comm->far_state;

	return __atomic_load_n(&far_told(comm, far->round, pe)->round, __ATOMIC_ACQUIRE) >=
		far->round;
}

/* Not all of a barrier greet this rank; but each has first noted at itself that it has come. */
static bool has_noted(spmt_comm *comm, int pe)
{
	struct far *far = comm->far_state;
	struct mover *mover = &far->links[pe].movers[0];
	uint64_t place = far_there(comm, mover->link, word_at(comm, far->round, pe)), round = 0;
	struct status_saved saved;
	int rc;

	status_save(&saved);
	rc = mover->ops->get(mover, &round, place + offsetof(struct far_word, round), sizeof(round),
		MOVE_BLOCKING, NULL);
	status_restore(&saved);
	return !rc && round >= far->round;
}

/* False: all have, but what they sent has not arrived. */
static bool notes_take(spmt_comm *comm, bool *come)
{
	bool missing = false;

	for (int pe = 0; pe < comm->nranks; pe++) {
		come[pe] = has_greeted(comm, pe) || has_noted(comm, pe);
		missing |= !come[pe];
	}
	return missing;
}

/* "spmt_all_reduce: rank 0: 1 of 4 ranks missing in a stream after 5.0 s: 3" */
static int far_missing(spmt_comm *comm, const struct far_call *c, int64_t waited)
{
	struct waits_text waits = { .used = 0 };
	struct text t = { .used = 0 };
	struct cause cause;
	int missing = 0, n = 0;
	bool *come = mem_calloc((size_t)comm->nranks, sizeof(*come));

	if (!come)
		return -ENOMEM;
	if (c->key != FAR_BARRIER || !notes_take(comm, come))
		for (int pe = 0; pe < comm->nranks; pe++)
			come[pe] = has_greeted(comm, pe);
	for (int pe = 0; pe < comm->nranks; pe++) {
		if (come[pe])
			continue;
		missing++;
		waits_add(&waits, comm, pe, process_now() - waited);
	}
	text_add(&t, "%s: rank %d: in a stream: %s%d of %d ranks missing after %.1f s:", c->what,
		comm->rank, waits_said(&waits), missing, comm->nranks, (double)waited / 1e9);
	for (int pe = 0; pe < comm->nranks; pe++)
		if (!come[pe])
			text_add(&t, "%s %d", n++ ? "," : "", pe);
	mem_free(come);
	cause_set(&cause, SPMT_ERR_TIMEOUT, c->what, t.bytes);
	comm_break(comm, &cause);
	return SPMT_ERR_TIMEOUT;
}

int far_await(spmt_comm *comm, const struct far_call *c, int pe)
{
	struct far *far = comm->far_state;
	struct timespec slice = { .tv_nsec = FAR_SLEEP_NS };

	for (int looks = 0; !has_greeted(comm, pe); looks++) {
		int64_t limit = comm_timeout(comm), waited;

		if (atomic_load_explicit(&comm->control->stop, memory_order_acquire))
			return -ECANCELED;
		if (looks < FAR_LOOKS) {
			sched_yield();
			continue;
		}
		waited = process_now() - far->begin;
		if (limit >= 0 && waited >= limit * 1000000)
			return has_greeted(comm, pe) ? 0 : far_missing(comm, c, waited);
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

/* ---- a barrier: first those of a node, then their leaders, in log2(nodes) steps ------------------ */

static int await_key(spmt_comm *comm, const struct far_call *c, int pe)
{
	const struct far *far = comm->far_state;
	int rc = far_await(comm, c, pe);
	uint64_t key[2] = { 0, c->key };

	waits_hide(comm, c);
	if (rc)
		return rc;
	key[0] = __atomic_load_n(&far_told(comm, far->round, pe)->hello.key, __ATOMIC_RELAXED);
	return key[0] == key[1] ? 0 : far_mismatch(comm, c, pe, key);
}

static bool on_one_machine(const spmt_comm *comm, int a, int b)
{
	const int *node = comm->world->node;

	return a == b || (node && node[comm_world_rank(comm, a)] == node[comm_world_rank(comm, b)]);
}

/* Step d: to the leader d nodes on, from the one d nodes back. */
static int leaders_meet(spmt_comm *comm, const struct far_call *c, const struct far_hello *hello)
{
	const struct far *far = comm->far_state;
	int rc = 0;

	for (int d = 1; d < far->nodes && !rc; d *= 2) {
		rc = far_greet(comm, far->leaders[(far->mine + d) % far->nodes], hello);
		if (!rc)
			rc = await_key(
				comm, c, far->leaders[(far->mine + far->nodes - d) % far->nodes]);
	}
	return rc;
}

static int leader_run(spmt_comm *comm, const struct far_call *c, const struct far_hello *hello)
{
	int rc = 0;

	for (int pe = 0; pe < comm->nranks && !rc; pe++)
		if (pe != comm->rank && on_one_machine(comm, pe, comm->rank))
			rc = await_key(comm, c, pe);
	if (!rc)
		rc = leaders_meet(comm, c, hello);
	for (int pe = 0; pe < comm->nranks && !rc; pe++)
		if (pe != comm->rank && on_one_machine(comm, pe, comm->rank))
			rc = far_greet(comm, pe, hello);
	return rc;
}

int far_barrier(spmt_comm *comm, const struct far_call *c)
{
	const struct far_hello hello = { .key = FAR_BARRIER };
	struct far *far = comm->far_state;
	int leader = far->leaders[far->mine], rc;

	far->round++;
	rc = far_greet(comm, comm->rank, &hello);
	if (rc)
		return rc;
	if (leader == comm->rank)
		return leader_run(comm, c, &hello);
	rc = far_greet(comm, leader, &hello);
	return rc ? rc : await_key(comm, c, leader);
}

/* Where all ranks are on one node each counts as one: none is nearer than the others. */
void far_leaders(const spmt_comm *comm, struct far *far)
{
	for (int pe = 0; pe < comm->nranks; pe++) {
		int first = 0;

		while (!on_one_machine(comm, first, pe))
			first++;
		if (first == pe)
			far->leaders[far->nodes++] = pe;
		if (pe == comm->rank)
			while (far->leaders[far->mine] != first)
				far->mine++;
	}
}
