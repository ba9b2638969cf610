/* SPDX-License-Identifier: MIT */
/* Comms of one rank on threads of their own: parts come and go, allocate, meet and move data beside the world that they are of. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { RANKS = 4, COMMS = 3 };

/* One allocates and checks that it alone has the block, by way of all peers' puts. */
static int use(spmt_comm *comm, int round)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm), to = (me + 1) % n, from = (me + n - 1) % n;
	size_t size = 64 + (size_t)(round * 7919 + n * 331) % 20000;
	uint64_t sum = 0, one = 1, seed = (uint64_t)round * 1000 + (uint64_t)n;
	char *block, *own = malloc(size);
	int code;

	REQUIRE(own);
	pattern_fill(own, size, seed * 100 + (uint64_t)me);
	code = spmt_malloc(comm, size, (void **)&block);
	if (!code)
		code = spmt_put(comm, block, own, size, to);
	if (!code)
		code = spmt_barrier(comm);
	free(own);
	REQUIRE_OK(code);
	TRY(sym_check(comm, block, size, seed * 100 + (uint64_t)from));
	REQUIRE_OK(spmt_all_reduce(comm, &sum, &one, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_EQ(sum, n);
	return spmt_free(comm, block);
}

/* Parts of a comm that is this thread's alone, and parts of those. */
static int churn(spmt_comm *comm, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		int me = spmt_rank(comm);
		spmt_comm *part, *sub;

		REQUIRE_OK(spmt_split(comm, i % 3 ? me % 2 : 0, i % 2 ? -me : me, &part));
		TRY(use(part, i));
		REQUIRE_OK(spmt_split(part, 0, -me, &sub));
		TRY(use(sub, i));
		if (i % 2)
			REQUIRE_OK(spmt_finalize(sub));
		TRY(use(comm, i));
		REQUIRE_OK(spmt_finalize(part));
	}
	return 0;
}

static int one_comm(int index, void *arg)
{
	return churn(((spmt_comm **)arg)[index], (int)test_count(150, 3000));
}

static int side_by_side(spmt_comm *world, void *arg)
{
	spmt_comm *comms[COMMS] = { world };

	(void)arg;
	for (int i = 1; i < COMMS; i++)
		REQUIRE_OK(spmt_split(world, 0, i % 2 ? -spmt_rank(world) : 0, &comms[i]));
	return ranks_threads(COMMS, one_comm, comms) ? ranks_fail("%s", ranks_message()) : 0;
}

static int beside_each_other(void)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.heap_size = 4u << 20;
	return ranks_run(RANKS, &attr, side_by_side, NULL);
}

/* One thread a comm waits or works when the world is aborted; all end with its code, and all then shrink alike. */
static int until_broken(int index, void *arg)
{
	spmt_comm *comm = ((spmt_comm **)arg)[index];
	int code = 0;

	while (!code)
		code = index == 1 ? spmt_sync(comm) : spmt_barrier(comm);
	REQUIRE_EQ(code, -66);
	return 0;
}

static int doomed(spmt_comm *world, void *arg)
{
	spmt_comm *comms[COMMS] = { world };
	int rank = -1, n = -1;
	_Atomic int *turn = arg;
	spmt_uid next;

	for (int i = 1; i < COMMS; i++)
		REQUIRE_OK(spmt_split(world, 0, 0, &comms[i]));
	/* the last to come, so that all have their parts */
	if (atomic_fetch_add(turn, 1) % RANKS == RANKS - 1)
		REQUIRE_OK(spmt_abort(world, -66));
	TRY(ranks_threads(COMMS, until_broken, comms));
	REQUIRE_OK(spmt_shrink(comms[1], &next, &rank, &n));
	REQUIRE(rank == spmt_rank(world) && n == RANKS);
	return 0;
}

static int broken_beside(void)
{
	_Atomic int turn = 0;

	for (size_t i = 0; i < test_count(60, 1000); i++) {
		int code = ranks_run(RANKS, NULL, doomed, &turn);

		if (code)
			return code;
	}
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = { { "parts beside their world", beside_each_other },
		{ "broken beside each other", broken_beside } };

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
