/* SPDX-License-Identifier: MIT */
/*
 * Plans as rows that begin with what they store into another rank's scratch, which they do before the ranks have met, where scratch has two
 * sets: a rank that is through with a call, and begins the next one, or three more, overwrites nothing that another one has yet to read.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/plan/row_plans.h"
#include "tests/lib/processes.h"

enum { RANKS = 2, CALLS = 24, COUNT = 4096, TIMES = 16 };

static void ok(int rc)
{
	cr_assert_eq(rc, 0, "%s", spmt_last_error());
}

/*
 * Each rank puts what it has into the other's scratch, from where that one takes it. The last rank takes it late, when the first one has long
 * ended: it copies its own TIMES times before.
 */
static void wish_for(uint64_t max_bytes)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "late",
		.collective = "allgather",
		.nranks = RANKS,
		.input_chunks = 1,
		.output_chunks = RANKS,
		.scratch_chunks = 2,
		.max_bytes = max_bytes };
	char file[ROW_PLANS_NAME], text[2 * ROW_PLANS_NAME];
	spmt_plan *plan = NULL;

	ok(spmt_plan_create(&attr, &plan));
	for (int r = 0; r < RANKS; r++) {
		struct spmt_plan_chunk own = spmt_plan_input(r, 0, 1);

		ok(spmt_plan_put(plan, r, 0, own, spmt_plan_scratch(1 - r, 0, 1)));
		ok(spmt_plan_signal(plan, r, 0, 1 - r, 0));
		ok(spmt_plan_wait(plan, r, 0, 1 - r, 0));
		for (int i = 0; r == RANKS - 1 && i < TIMES; i++)
			ok(spmt_plan_copy(plan, r, 0, own, spmt_plan_scratch(r, 1, 1)));
		ok(spmt_plan_copy(plan, r, 0, own, spmt_plan_output(r, (uint32_t)r, 1)));
		ok(spmt_plan_copy(plan, r, 0, spmt_plan_scratch(r, 0, 1),
			spmt_plan_output(r, (uint32_t)(1 - r), 1)));
	}
	ok(row_plans_file(plan, file));
	snprintf(text, sizeof(text), "plan:%s,only", file);
	setenv("SPMT_COLL", text, 1);
	spmt_plan_destroy(plan);
}

static uint32_t given(int rank, int call, size_t i)
{
	return (uint32_t)rank << 24 | (uint32_t)call << 16 | (uint32_t)i;
}

/* What each call gathers, wherever the ranks are by then. */
static int gathers(spmt_comm *comm, void *arg)
{
	uint32_t *src, *dst, local[RANKS * COUNT];
	int me = spmt_rank(comm);

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, (size_t)CALLS * COUNT * 4, (void **)&src));
	REQUIRE_OK(spmt_malloc(comm, (size_t)CALLS * RANKS * COUNT * 4, (void **)&dst));
	for (int c = 0; c < CALLS; c++) {
		for (size_t i = 0; i < COUNT; i++)
			local[i] = given(me, c, i);
		REQUIRE_OK(spmt_copy_in(comm, src + (size_t)c * COUNT, local, COUNT * 4));
	}
	REQUIRE_OK(spmt_barrier(comm));
	for (int c = 0; c < CALLS; c++)
		REQUIRE_OK(spmt_all_gather(comm, dst + (size_t)c * RANKS * COUNT,
			src + (size_t)c * COUNT, COUNT, SPMT_TYPE_U32, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	for (int c = 0; c < CALLS; c++) {
		REQUIRE_OK(
			spmt_copy_out(comm, local, dst + (size_t)c * RANKS * COUNT, sizeof(local)));
		for (size_t i = 0; i < RANKS * COUNT; i++)
			REQUIRE_EQ(local[i], given((int)(i / COUNT), c, i % COUNT));
	}
	REQUIRE_OK(spmt_free(comm, dst));
	return spmt_free(comm, src);
}

TestSuite(plan_sets, .timeout = 120);

/* In one process, and in two. */
static void run(uint64_t max_bytes)
{
	static const char *const layouts[] = { "0,1", "0|1" };

	wish_for(max_bytes);
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		struct processes w = { .layout = layouts[i] };

		RANKS_OK(processes_world(&w, gathers, NULL));
	}
}

Test(plan_sets, two)
{
	run(COUNT * 4);
}

/* Without a limit scratch is as large as has room: there is one set, and nothing is sent early. */
Test(plan_sets, one)
{
	run(0);
}
