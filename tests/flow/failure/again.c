/* SPDX-License-Identifier: MIT */
/* Collectives of kernels that are made again, after a deadline that some rank missed. */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "spmt_device.h"
#include "tests/lib/ranks.h"

enum { RANKS = 3, LATE = 2, INDEX = 1, MANY = 100000, TRIES = 20 };

#define KERNELS "kernels that are C functions"

struct args {
	struct spmt_view view;
	int32_t *dst, *src; /* symmetric, RANKS * MANY elements */
};

/* Bits: ranks whose first call has failed. */
static _Atomic unsigned failed;
/* A rank has come to the second barrier before it failed: it has moved something. */
static _Atomic int moved;

static int gathers(const struct args *a)
{
	return spmtd_all_gathermem_at(&a->view, a->dst, a->src, MANY * sizeof(*a->src), INDEX);
}

static int gathered(const struct args *a, int by)
{
	for (int pe = 0; pe < RANKS; pe++)
		for (int i = 0; i < MANY; i++)
			REQUIRE_EQ(a->dst[pe * MANY + i], by * (pe + 1) + i);
	return 0;
}

static int sums(const struct args *a)
{
	return spmtd_int32_sum_all_reduce(&a->view, a->dst, a->src, MANY);
}

static int summed(const struct args *a, int by)
{
	for (int i = 0; i < MANY; i++)
		REQUIRE_EQ(a->dst[i], by * 6 + 3 * i);
	return 0;
}

struct collective {
	int (*call)(const struct args *a);
	int (*check)(const struct args *a, int by);
	int at; /* of dst, which rank 1 moves */
	bool in_place;
};

static void give(const struct args *a, int by)
{
	for (int i = 0; i < MANY; i++)
		a->src[i] = by * (a->view.pe + 1) + i;
}

/* Rank 0 gives up before the late one comes, and rank 1, which has seen it, in the second barrier. */
static int fail_once(spmt_comm *comm, struct args *a, const struct collective *c)
{
	uint64_t patience = a->view.timeout_ns;
	int me = a->view.pe, was;

	give(a, 1);
	was = a->dst[c->at] = c->in_place ? a->src[c->at] : 0;
	atomic_store(&failed, 0);
	REQUIRE_OK(spmt_barrier(comm));
	while (me == LATE && !(atomic_load(&failed) & 1))
		sleep_ms(1);
	a->view.timeout_ns = me == 0 ? 20000000 : me == LATE ? 60000000 : 120000000;
	REQUIRE_EQ(c->call(a), SPMTD_TIMEOUT);
	atomic_fetch_or(&failed, 1u << me);
	while (atomic_load(&failed) != (1 << RANKS) - 1)
		sleep_ms(1);
	a->view.timeout_ns = patience;
	if (a->dst[c->at] != was)
		atomic_store(&moved, 1);
	return 0;
}

static int again(spmt_comm *comm, void *arg)
{
	const struct collective *c = arg;
	struct args a = { .view.size = sizeof(a.view) };

	REQUIRE_OK(spmt_calloc(comm, RANKS * MANY, sizeof(*a.dst), (void **)&a.dst));
	a.src = a.dst;
	if (!c->in_place)
		REQUIRE_OK(spmt_calloc(comm, RANKS * MANY, sizeof(*a.src), (void **)&a.src));
	REQUIRE_OK(spmt_view_get(comm, &a.view));
	for (int tries = 0; tries < TRIES && !atomic_load(&moved); tries++) {
		TRY(fail_once(comm, &a, c));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		for (int by = 7; by < 12; by++) {
			give(&a, by);
			if (by % RANKS == a.view.pe)
				sleep_ms(20);
			REQUIRE_EQ(c->call(&a), 0);
			TRY(c->check(&a, by));
			REQUIRE_OK(spmt_sync(comm));
		}
	}
	REQUIRE(atomic_load(&moved));
	return 0;
}

TestSuite(again, .timeout = 60);

static void run(const struct collective *c)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.heap_size = 8u << 20;
	attr.timeout_ms = 5000;
	atomic_store(&moved, 0);
	RANKS_OK(ranks_run(RANKS, &attr, again, (void *)(uintptr_t)c));
}

Test(again, what_moves)
{
	NEEDS_HOST(KERNELS);
	run(&(struct collective){ gathers, gathered, 2 * MANY - 1, false });
}

Test(again, what_reduces)
{
	NEEDS_HOST(KERNELS);
	run(&(struct collective){ sums, summed, MANY / 2, false });
}

/* What was there is a sum in part by then, and is written anew. */
Test(again, what_reduces_in_place)
{
	NEEDS_HOST(KERNELS);
	run(&(struct collective){ sums, summed, MANY / 2, true });
}
