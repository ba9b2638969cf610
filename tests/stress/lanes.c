/* SPDX-License-Identifier: MIT */
/*
 * Lanes as a framework uses them: one thread, or a few of a pool, calls for all ranks, and no call waits. Opposite orders, runs that are
 * queued ahead, functions that go on from where a collective has ended, lanes that fail beside others, an end with calls pending.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt/control/keys.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { RANKS = 8, WORDS = 40 };

static int world_open(spmt_comm **comms, int64_t timeout_ms)
{
	struct spmt_attr attrs[RANKS];

	for (int r = 0; r < RANKS; r++) {
		attrs[r] = ranks_attr(r, RANKS, NULL);
		attrs[r].timeout_ms = timeout_ms;
	}
	return spmt_init_all(RANKS, attrs, comms);
}

/* ---- what functions count ----------------------------------------------------------------------- */

struct tally {
	_Atomic int calls, failures;
	_Atomic int code; /* the last that was not 0 */
};

static void count(void *arg, int code)
{
	struct tally *t = arg;

	if (code) {
		atomic_store(&t->code, code);
		atomic_fetch_add(&t->failures, 1);
	}
	atomic_fetch_add(&t->calls, 1);
}

/* ---- one thread calls for all, lanes in opposite order --------------------------------------------- */

enum { LANES = 500, ROUNDS = 3 };

static int order(int rank, int i)
{
	return rank % 2 ? LANES - 1 - i : i;
}

static int queue_round(spmt_comm **comms, uint32_t *out, uint32_t *in, struct tally *tally)
{
	for (int r = 0; r < RANKS; r++)
		for (int i = 0; i < LANES; i++) {
			int key = order(r, i);
			spmt_comm *lane;

			REQUIRE_OK(spmt_lane(comms[r], (uint64_t)key, &lane));
			in[r * LANES + key] = (uint32_t)(r + key);
			REQUIRE_OK(spmt_all_reduce(lane, &out[r * LANES + key],
				&in[r * LANES + key], 1, SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
			REQUIRE_OK(spmt_on_complete(lane, NULL, count, tally));
		}
	return 0;
}

static int opposite(spmt_comm **comms, uint32_t *out, uint32_t *in)
{
	for (int round = 0; round < ROUNDS; round++) {
		struct tally tally = { 0 };

		memset(out, 0xff, sizeof(*out) * RANKS * LANES);
		TRY(queue_round(comms, out, in, &tally));
		for (int r = 0; r < RANKS; r++)
			for (int key = 0; key < LANES; key++) {
				spmt_comm *lane;

				REQUIRE_OK(spmt_lane(comms[r], (uint64_t)key, &lane));
				REQUIRE_OK(spmt_quiet(lane));
				REQUIRE_EQ(out[r * LANES + key], 28 + RANKS * key);
			}
		REQUIRE_EQ(atomic_load(&tally.calls), RANKS * LANES);
		REQUIRE_EQ(atomic_load(&tally.failures), 0);
	}
	return 0;
}

static int in_opposite_order(void)
{
	uint32_t *out = malloc(sizeof(*out) * RANKS * LANES),
		 *in = malloc(sizeof(*in) * RANKS * LANES);
	spmt_comm *comms[RANKS];
	int code;

	REQUIRE(out && in);
	REQUIRE_OK(world_open(comms, 60000));
	code = opposite(comms, out, in);
	REQUIRE_OK(spmt_finalize_all(RANKS, comms));
	free(in);
	free(out);
	return code;
}

/* ---- runs ahead, by a pool of threads ----------------------------------------------------------------- */

enum { AHEAD = 200, SITES = 3 };

struct run_ahead {
	spmt_comm *comms[RANKS];
	_Atomic int next; /* of the pool: a rank at a time */
	uint64_t buffers[RANKS][SITES][WORDS];
	struct tally tally;
};

/* A rank's whole program, queued at once: each call takes what the one before has made. */
static int ahead_rank(struct run_ahead *a, int r)
{
	for (int run = 0; run < AHEAD; run++)
		for (int i = 0; i < SITES; i++) {
			int site = r % 2 ? SITES - 1 - i : i, to[RANKS];
			uint64_t *b = a->buffers[r][site];
			spmt_comm *lane;

			for (int k = 0; k < RANKS; k++)
				to[k] = (k + 1) % RANKS;
			REQUIRE_OK(spmt_lane(a->comms[r], (uint64_t)site, &lane));
			if (run % 2)
				REQUIRE_OK(spmt_all_reduce(
					lane, b, b, WORDS, SPMT_TYPE_U64, SPMT_OP_MAX, NULL));
			else
				REQUIRE_OK(spmt_permute(lane, b + WORDS / 2, b, WORDS / 2,
					SPMT_TYPE_U64, to, NULL));
			REQUIRE_OK(spmt_on_complete(lane, NULL, count, &a->tally));
		}
	return 0;
}

static int ahead_thread(int index, void *arg)
{
	struct run_ahead *a = arg;
	int r;

	(void)index;
	while ((r = atomic_fetch_add(&a->next, 1)) < RANKS)
		TRY(ahead_rank(a, r));
	return 0;
}

static int runs_ahead(void)
{
	struct run_ahead *a = calloc(1, sizeof(*a));
	int code;

	REQUIRE(a);
	REQUIRE_OK(world_open(a->comms, 60000));
	for (int r = 0; r < RANKS; r++)
		for (int s = 0; s < SITES; s++)
			a->buffers[r][s][0] = (uint64_t)(1 + r);
	code = ranks_threads(2, ahead_thread, a);
	REQUIRE_OK(spmt_finalize_all(RANKS, a->comms));
	TRY(code);
	REQUIRE_EQ(atomic_load(&a->tally.calls), RANKS * AHEAD * SITES);
	REQUIRE_EQ(atomic_load(&a->tally.failures), 0);
	for (int r = 0; r < RANKS; r++)
		for (int s = 0; s < SITES; s++) {
			REQUIRE_EQ(a->buffers[r][s][0], RANKS);
			REQUIRE_EQ(a->buffers[r][s][WORDS / 2], RANKS);
		}
	free(a);
	return 0;
}

/* ---- functions that call the library, as an executor goes on where a future has come ------------------- */

enum { STEPS = 300 };

struct chain {
	spmt_comm *lane;
	int step, failed;
	uint64_t in, out;
	struct chains *all;
};

struct chains {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	int left;
	struct chain ranks[RANKS];
};

static void chain_step(void *arg, int code)
{
	struct chain *c = arg;

	if (c->step) {
		c->failed += code != 0 || c->out != (uint64_t)(RANKS * c->step);
		c->in = c->out / RANKS + 1;
	}
	if (c->step++ < STEPS) {
		c->failed += spmt_all_reduce(c->lane, &c->out, &c->in, 1, SPMT_TYPE_U64,
				     SPMT_OP_SUM, NULL) != 0;
		c->failed += spmt_on_complete(c->lane, NULL, chain_step, c) != 0;
		return;
	}
	pthread_mutex_lock(&c->all->lock);
	c->all->left--;
	pthread_cond_signal(&c->all->ended);
	pthread_mutex_unlock(&c->all->lock);
}

static int goes_on_from_there(void)
{
	static struct chains all = {
		.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER, .left = RANKS
	};
	spmt_comm *comms[RANKS];

	REQUIRE_OK(world_open(comms, 60000));
	for (int r = 0; r < RANKS; r++) {
		all.ranks[r] = (struct chain){ .in = 1, .all = &all };
		REQUIRE_OK(spmt_lane(comms[r], 77, &all.ranks[r].lane));
		REQUIRE_OK(spmt_on_complete(all.ranks[r].lane, NULL, chain_step, &all.ranks[r]));
	}
	pthread_mutex_lock(&all.lock);
	while (all.left)
		pthread_cond_wait(&all.ended, &all.lock);
	pthread_mutex_unlock(&all.lock);
	REQUIRE_OK(spmt_finalize_all(RANKS, comms));
	for (int r = 0; r < RANKS; r++) {
		REQUIRE_EQ(all.ranks[r].failed, 0);
		REQUIRE_EQ(all.ranks[r].out, RANKS * STEPS);
	}
	return 0;
}

/* ---- lanes that fail beside others ---------------------------------------------------------------------- */

struct beside {
	spmt_comm *comms[RANKS];
	_Atomic int stop;
};

/* Thread 0 drives a lane that is always whole, the others break one each, again and again. */
static int whole(struct beside *b)
{
	for (uint64_t i = 0; !atomic_load(&b->stop) || i < 20; i++) {
		spmt_comm *lanes[RANKS];
		uint64_t out[RANKS], in[RANKS];

		for (int r = 0; r < RANKS; r++) {
			in[r] = i;
			REQUIRE_OK(spmt_lane(b->comms[r], 1, &lanes[r]));
			REQUIRE_OK(spmt_all_reduce(
				lanes[r], &out[r], &in[r], 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		}
		for (int r = 0; r < RANKS; r++) {
			REQUIRE_OK(spmt_quiet(lanes[r]));
			REQUIRE_EQ(out[r], RANKS * i);
		}
	}
	return 0;
}

static int fails_once(struct beside *b, uint64_t key, int missing, int how)
{
	struct tally tally = { 0 };
	spmt_comm *lanes[RANKS];
	uint64_t out[RANKS][2], in[2] = { 0 };

	for (int r = 0; r < RANKS; r++) {
		out[r][0] = 99;
		REQUIRE_OK(spmt_lane(b->comms[r], key, &lanes[r]));
		if (how == 0)
			REQUIRE_OK(spmt_set_timeout(lanes[r], 5));
		if (r == missing && how != 2)
			continue;
		REQUIRE_OK(spmt_all_reduce(lanes[r], out[r], in, r == missing ? 2 : 1,
			SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		/* the last call that differs has broken the lane */
		if (how == 2 && r == RANKS - 1)
			REQUIRE_CODE(
				spmt_on_complete(lanes[r], NULL, count, &tally), SPMT_ERR_BROKEN);
		else
			REQUIRE_OK(spmt_on_complete(lanes[r], NULL, count, &tally));
	}
	/* What is queued keeps its deadline; functions may take longer where threads wait for CPUs. */
	for (int r = 0; r < RANKS; r++)
		REQUIRE_OK(spmt_set_timeout(lanes[r], 0));
	if (how == 1)
		REQUIRE_OK(spmt_abort(lanes[missing], -77));
	for (int r = 0; r < RANKS; r++) {
		REQUIRE(spmt_quiet(lanes[r]) < 0 || (r == missing && how == 0));
		REQUIRE_EQ(out[r][0], 99);
	}
	for (int r = 0; r < RANKS; r++)
		REQUIRE_OK(spmt_finalize(lanes[r]));
	REQUIRE_EQ(atomic_load(&tally.calls), RANKS - 1);
	REQUIRE_EQ(atomic_load(&tally.failures), RANKS - 1);
	REQUIRE_EQ(atomic_load(&tally.code),
		how == 0	   ? SPMT_ERR_TIMEOUT
			: how == 1 ? -77
				   : SPMT_ERR_MISMATCH);
	return 0;
}

static int beside_thread(int index, void *arg)
{
	struct beside *b = arg;
	int code = 0;

	if (index == 0)
		return whole(b);
	for (int i = 0; i < (int)test_count(30, 300) && !code; i++)
		code = fails_once(b, 1 + (uint64_t)index, (i + index) % RANKS, (i + index) % 3);
	if (code || index == 1)
		atomic_store(&b->stop, 1);
	return code;
}

static int fail_beside_others(void)
{
	struct beside b = { .stop = 0 };
	int code;

	REQUIRE_OK(world_open(b.comms, 60000));
	code = ranks_threads(3, beside_thread, &b);
	REQUIRE_OK(spmt_finalize_all(RANKS, b.comms));
	return code;
}

/* ---- the end, with calls pending ---------------------------------------------------------------------------- */

static int pending(int how)
{
	enum { KEYS = 20 };
	struct tally tally = { 0 };
	uint64_t out[RANKS][KEYS], in = 1;
	spmt_comm *comms[RANKS];

	REQUIRE_OK(world_open(comms, 60000));
	for (int r = 0; r < RANKS; r++)
		for (uint64_t key = 0; key < KEYS; key++) {
			spmt_comm *lane;

			REQUIRE_OK(spmt_lane(comms[r], key, &lane));
			/* the last rank does not come to every one */
			if (how && r == RANKS - 1 && key % 2)
				continue;
			REQUIRE_OK(spmt_all_reduce(
				lane, &out[r][key], &in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
			REQUIRE_OK(spmt_on_complete(lane, NULL, count, &tally));
		}
	if (how)
		REQUIRE_OK(spmt_abort(comms[0], -5));
	if (spmt_finalize_all(RANKS, comms))
		REQUIRE(how);
	REQUIRE_EQ(atomic_load(&tally.calls), RANKS * KEYS - (how ? KEYS / 2 : 0));
	if (how)
		REQUIRE_EQ(atomic_load(&tally.code), -5);
	else
		REQUIRE_EQ(atomic_load(&tally.failures), 0);
	return 0;
}

static int ends_with_calls_pending(void)
{
	for (size_t i = 0; i < test_count(20, 500); i++)
		TRY(pending((int)(i % 2)));
	return 0;
}

/* ---- the table of keys ------------------------------------------------------------------------------- */

enum { KEYS = 5, ENTRIES = 400, CLAIMERS = 4 };

static struct keys_shared {
	struct keys *keys;
	_Atomic int held[KEYS],
		areas[KEYS]; /* 1 + the area that those who have the key were given; 0: nobody has it */
	pthread_mutex_t lock[KEYS];
} table;

/* As processes do that come and go: whoever has a key has the area that all others have who have it, and no other key has. */
static int keys_by_one(int index, void *arg)
{
	static const uint32_t go_on = 0;

	(void)arg;
	for (int n = 0; n < ENTRIES; n++) {
		int k = (n * 7 + index * 3) % KEYS, before;
		struct keys_place place;

		REQUIRE_EQ(keys_enter(table.keys,
				   &(struct keys_want){ .comm = 1,
					   .key = (uint64_t)k,
					   .areas = KEYS,
					   .most_ns = -1,
					   .stop = &go_on },
				   &place),
			0);
		pthread_mutex_lock(&table.lock[k]);
		before = atomic_load(&table.areas[k]);
		if (atomic_fetch_add(&table.held[k], 1))
			REQUIRE_EQ(before, place.area + 1);
		atomic_store(&table.areas[k], place.area + 1);
		pthread_mutex_unlock(&table.lock[k]);
		for (int i = 0; i < KEYS; i++)
			REQUIRE(i == k || atomic_load(&table.areas[i]) != place.area + 1);
		pthread_mutex_lock(&table.lock[k]);
		if (atomic_fetch_sub(&table.held[k], 1) == 1)
			atomic_store(&table.areas[k], 0);
		keys_leave(table.keys, place.row, &go_on);
		pthread_mutex_unlock(&table.lock[k]);
	}
	return 0;
}

static int keys_come_and_go(void)
{
	int code;

	table.keys = aligned_alloc(64, keys_size());
	REQUIRE(table.keys);
	memset(table.keys, 0, keys_size());
	for (int i = 0; i < KEYS; i++)
		pthread_mutex_init(&table.lock[i], NULL);
	code = ranks_threads(CLAIMERS, keys_by_one, NULL);
	free(table.keys);
	return code;
}

/* ---- ops of several threads ------------------------------------------------------------------------------- */

enum { MAKERS = 4, OPS = 64, MAKES = 40 }; /* together as many ops as a comm may have */

struct makers {
	spmt_comm *lane;
	pthread_barrier_t all;
	enum spmt_op ops[MAKERS * OPS];
	_Atomic int destroyed, refused;
};

/* Makes an op and sums by it, as the others do. */
static int makes_and_sums(spmt_comm *lane, uint64_t factor)
{
	uint64_t in = 3, out = 0;
	enum spmt_op op;

	REQUIRE_OK(spmt_op_premul_create(lane, SPMT_TYPE_U64, &factor, SPMT_SCALAR_HOST, &op));
	REQUIRE_OK(spmt_all_reduce(lane, &out, &in, 1, SPMT_TYPE_U64, op, NULL));
	REQUIRE_OK(spmt_op_destroy(lane, op));
	REQUIRE_OK(spmt_quiet(lane));
	REQUIRE_EQ(out, 3 * factor);
	return 0;
}

static int sums_by_one(int index, void *arg)
{
	struct makers *m = arg;

	pthread_barrier_wait(&m->all);
	for (int i = 0; i < MAKES; i++)
		TRY(makes_and_sums(m->lane, (uint64_t)(index * MAKES + i)));
	return 0;
}

static int fills_by_one(int index, void *arg)
{
	struct makers *m = arg;
	uint64_t factor = 7;

	for (int i = 0; i < OPS; i++)
		REQUIRE_OK(spmt_op_premul_create(m->lane, SPMT_TYPE_U64, &factor, SPMT_SCALAR_HOST,
			&m->ops[index * OPS + i]));
	return 0;
}

/* All of them destroy all that there is. */
static int destroys_by_one(int index, void *arg)
{
	struct makers *m = arg;

	(void)index;
	for (int i = 0; i < MAKERS * OPS; i++)
		atomic_fetch_add(
			spmt_op_destroy(m->lane, m->ops[i]) ? &m->refused : &m->destroyed, 1);
	return 0;
}

static int ops_of_several_threads(void)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	struct makers m = { .destroyed = 0 };
	enum spmt_op op;
	uint64_t factor = 7;
	spmt_comm *comm;
	int code;

	REQUIRE_OK(spmt_init_all(1, &attr, &comm));
	REQUIRE_OK(spmt_lane(comm, 5, &m.lane));
	pthread_barrier_init(&m.all, NULL, MAKERS);
	code = ranks_threads(MAKERS, sums_by_one, &m);
	pthread_barrier_destroy(&m.all);
	TRY(code);
	TRY(ranks_threads(MAKERS, fills_by_one, &m));
	for (int i = 0; i < MAKERS * OPS; i++)
		for (int k = 0; k < i; k++)
			REQUIRE(m.ops[i] != m.ops[k]);
	REQUIRE_CODE(spmt_op_premul_create(m.lane, SPMT_TYPE_U64, &factor, SPMT_SCALAR_HOST, &op),
		-ENOSPC);
	TRY(ranks_threads(MAKERS, destroys_by_one, &m));
	REQUIRE_EQ(atomic_load(&m.destroyed), MAKERS * OPS);
	REQUIRE_EQ(atomic_load(&m.refused), (MAKERS - 1) * MAKERS * OPS);
	return spmt_finalize(comm);
}

int main(void)
{
	static const struct test_case cases[] = { { "lanes in opposite order", in_opposite_order },
		{ "runs ahead", runs_ahead }, { "goes on from there", goes_on_from_there },
		{ "lanes fail beside others", fail_beside_others },
		{ "ends with calls pending", ends_with_calls_pending },
		{ "keys come and go", keys_come_and_go },
		{ "ops of several threads", ops_of_several_threads } };

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
