/* SPDX-License-Identifier: MIT */
/* All_reduces by plans made at random, as rows of the collectives: right whoever is late, replayed, and told of where calls differ. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt/plan/lower.h"
#include "spmt_device.h"
#include "src/base/mem.h"
#include "src/kernels/area.h"
#include "tests/lib/device/backend_here.h"
#include "tests/lib/plan/row_plans.h"
#include "tests/lib/processes.h"
#include "tools/spmt-plan/made.h"

enum { RANKS = ROW_PLANS_RANKS, CALLS = 6, MOST = 120 * ROW_PLANS_CHUNKS, REPLAYS = 25 };

struct wish {
	struct processes p; /* first */
	uint64_t seed;
};

static void wish_for(const spmt_plan *plan)
{
	char file[ROW_PLANS_NAME], text[2 * ROW_PLANS_NAME];

	cr_assert_eq(row_plans_file(plan, file), 0, "%s", spmt_last_error());
	snprintf(text, sizeof(text), "plan:%s,only", file);
	setenv("SPMT_COLL", text, 1);
}

static uint64_t drawn(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed * 1000003 + i + 1) * 0x9e3779b97f4a7c15u;

	return x >> 33;
}

static uint64_t given(int rank, uint64_t call, size_t i)
{
	return drawn((uint64_t)rank, call * 4096 + i);
}

static uint64_t summed(int n, uint64_t call, size_t i)
{
	uint64_t sum = 0;

	for (int r = 0; r < n; r++)
		sum += given(r, call, i);
	return sum;
}

static uint64_t epochs(spmt_comm *comm)
{
	struct spmt_view view = { .size = sizeof(view) };

	return spmt_view_get(comm, &view) ? 0 : area_of(&view)->coll_epoch;
}

/* ---- as random ----------------------------------------------------------------------------------- */

static int fill(spmt_comm *comm, uint64_t *at, size_t count, uint64_t call, bool poison)
{
	uint64_t local[MOST];

	for (size_t i = 0; i < count; i++)
		local[i] = poison ? ~0ull : given(spmt_rank(comm), call, i);
	return spmt_copy_in(comm, at, local, count * sizeof(*at));
}

static int holds(spmt_comm *comm, const uint64_t *at, size_t count, uint64_t call, bool sum)
{
	uint64_t local[MOST];

	REQUIRE_OK(spmt_copy_out(comm, local, at, count * sizeof(*at)));
	for (size_t i = 0; i < count; i++)
		REQUIRE_EQ(local[i],
			sum ? summed(spmt_nranks(comm), call, i) : given(spmt_rank(comm), call, i));
	return 0;
}

/* Some calls, in place and not, one behind the other without a wait; ranks come when they like. */
static int calls_of(spmt_comm *comm, const struct wish *w, size_t count, bool counts)
{
	uint64_t *src[CALLS], *dst[CALLS], before;
	int me = spmt_rank(comm);

	for (uint64_t c = 0; c < CALLS; c++) {
		REQUIRE_OK(spmt_malloc(comm, count * sizeof(*src), (void **)&src[c]));
		dst[c] = src[c];
		TRY(fill(comm, src[c], count, c, false));
		if (drawn(w->seed, c) % 2)
			continue;
		REQUIRE_OK(spmt_malloc(comm, count * sizeof(*dst), (void **)&dst[c]));
		TRY(fill(comm, dst[c], count, c, true));
	}
	before = counts ? epochs(comm) : 0;
	for (uint64_t c = 0; c < CALLS; c++) {
		if (drawn(w->seed + (uint64_t)me, c) % 5 == 0)
			sleep_ms(1);
		REQUIRE_OK(spmt_all_reduce(
			comm, dst[c], src[c], count, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	}
	REQUIRE_OK(spmt_quiet(comm));
	if (counts)
		REQUIRE_EQ(epochs(comm) - before, CALLS);
	for (uint64_t c = 0; c < CALLS; c++) {
		TRY(holds(comm, dst[c], count, c, true));
		if (dst[c] == src[c])
			continue;
		TRY(holds(comm, src[c], count, c, false));
		REQUIRE_OK(spmt_free(comm, dst[c]));
	}
	for (int c = 0; c < CALLS; c++)
		REQUIRE_OK(spmt_free(comm, src[c]));
	return 0;
}

/* A plan is cut into at most ROW_PLANS_CHUNKS: their least common multiple fits all. */
static int all_sizes(spmt_comm *comm, void *arg)
{
	const struct wish *w = arg;
	bool counts = host_access(comm) && !strchr(w->p.layout, '|');

	TRY(calls_of(comm, w, 12, counts));
	TRY(calls_of(comm, w, 36, counts));
	return calls_of(comm, w, MOST, counts);
}

static int any_one(uint64_t seed, int nranks, spmt_plan **plan)
{
	return row_plans_random(seed, nranks, false, plan);
}

static int one_that_is_apart(uint64_t seed, int nranks, spmt_plan **plan)
{
	return row_plans_random(seed, nranks, true, plan);
}

static void random_ones(int (*make)(uint64_t seed, int nranks, spmt_plan **plan))
{
	static const char *const layouts[] = { "0,1", "0,1,2", "0,1,2,3", "0|1,3|2" };
	/* To open a world takes GPUs seconds. Each layout comes twice then; ranks share devices where there are fewer. */
	uint64_t n = !on_host() ? 8 : SANITIZED ? 16 : 48;

	for (uint64_t seed = 0; seed < n; seed++) {
		struct wish w = { .p = { .layout = layouts[seed % 4] }, .seed = seed };
		spmt_plan *plan = NULL;

		cr_assert_eq(make(seed, seed % 4 == 3 ? 4 : 2 + (int)(seed % 4), &plan), 0, "%s",
			spmt_last_error());
		cr_assert_eq(spmt_plan_check(plan), 0, "seed %llu: %s", (unsigned long long)seed,
			spmt_last_error());
		wish_for(plan);
		spmt_plan_destroy(plan);
		cr_assert_eq(processes_world(&w.p, all_sizes, &w), 0, "seed %llu: %s",
			(unsigned long long)seed, ranks_message());
	}
}

Test(row_plans, random_ones)
{
	random_ones(any_one);
}

/* Whose ranks do not meet at the end. */
Test(row_plans, random_ones_by_packets_alone)
{
	random_ones(one_that_is_apart);
}

/* Which GPUs run by kernels of their own. */
Test(row_plans, random_ones_of_packets_whose_blocks_are_alike)
{
	random_ones(row_plans_packets);
}

/* ---- graphs -------------------------------------------------------------------------------------- */

/* src and its sum in place, by turns: a replay finds the epoch on the device. */
static int replays(spmt_comm *comm, void *arg)
{
	enum { COUNT = 24 };
	uint64_t *src, *dst, local[COUNT];
	spmt_host_graph *graph;
	spmt_stream stream;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, sizeof(local), (void **)&src));
	REQUIRE_OK(spmt_malloc(comm, sizeof(local), (void **)&dst));
	TRY(fill(comm, src, COUNT, 0, false));
	TRY(fill(comm, dst, COUNT, 0, true));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_host_graph_begin(stream));
	REQUIRE_OK(spmt_all_reduce(comm, dst, src, COUNT, SPMT_TYPE_U64, SPMT_OP_SUM, stream));
	REQUIRE_OK(spmt_all_reduce(comm, src, src, COUNT, SPMT_TYPE_U64, SPMT_OP_SUM, stream));
	REQUIRE_OK(spmt_host_graph_end(stream, &graph));
	for (int i = 0; i < REPLAYS; i++) {
		REQUIRE_OK(spmt_host_graph_launch(graph, stream));
		if (i % 10 == 3)
			REQUIRE_OK(spmt_barrier(comm));
	}
	REQUIRE_OK(spmt_host_stream_synchronize(stream));
	REQUIRE_OK(spmt_copy_out(comm, local, dst, sizeof(local)));
	for (size_t i = 0; i < COUNT; i++) {
		uint64_t want = summed(spmt_nranks(comm), 0, i);

		for (int k = 1; k < REPLAYS; k++)
			want *= (uint64_t)spmt_nranks(comm);
		REQUIRE_EQ(local[i], want);
	}
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	REQUIRE_OK(spmt_host_stream_destroy(stream));
	REQUIRE_OK(spmt_free(comm, dst));
	return spmt_free(comm, src);
}

Test(row_plans, what_is_captured_replays)
{
	NEEDS_HOST("its graphs");
	for (uint64_t seed = 0; seed < 12; seed++) {
		struct wish w = { .p = { .layout = "0,1,2" } };
		spmt_plan *plan = NULL;

		cr_assert_eq(row_plans_random(seed, 3, seed % 2, &plan), 0);
		wish_for(plan);
		spmt_plan_destroy(plan);
		RANKS_OK(processes_world(&w.p, replays, &w));
	}
}

/* ---- calls that differ --------------------------------------------------------------------------- */

/* What a rank calls in a round in which one of all differs. */
static int odd_call(spmt_comm *comm, int round, uint64_t *dst, const uint64_t *src)
{
	enum { COUNT = 24 };

	switch (round % 4) {
	case 0:
		return spmt_all_reduce(comm, dst, src, COUNT / 2, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
	case 1:
		return spmt_all_reduce(comm, dst, src, COUNT, SPMT_TYPE_I64, SPMT_OP_SUM, NULL);
	case 2:
		return spmt_all_reduce(comm, dst, src, COUNT, SPMT_TYPE_U64, SPMT_OP_MAX, NULL);
	default: /* by a row of the table */
		return spmt_all_gather(comm, dst, src, COUNT / 4, SPMT_TYPE_U64, NULL);
	}
}

/* Nothing is moved, all are told, and the world goes on. In place, so that a plan in place copies nothing. */
static int calls_differ(spmt_comm *comm, void *arg)
{
	enum { COUNT = 24 };
	static const char *const says[] = { "count differs", "type differs", "op differs", "" };
	const struct wish *w = arg;
	uint64_t *at;
	int n = spmt_nranks(comm), me = spmt_rank(comm);

	REQUIRE_OK(spmt_malloc(comm, RANKS * COUNT * sizeof(*at), (void **)&at));
	for (int round = 0; round < 16; round++) {
		int odd = (int)(drawn(w->seed, (uint64_t)round) % (uint64_t)n), rc;

		TRY(fill(comm, at, COUNT, (uint64_t)round, false));
		if (me == odd) {
			if (round % 3 == 0)
				sleep_ms(1);
			rc = odd_call(comm, round, round % 4 == 3 ? at + COUNT : at, at);
		} else {
			rc = spmt_all_reduce(comm, at, at, COUNT, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
		}
		rc = rc ? rc : spmt_quiet(comm);
		REQUIRE_EQ(rc, SPMT_ERR_MISMATCH);
		REQUIRE_SAYS(says[round % 4]);
		TRY(holds(comm, at, COUNT, (uint64_t)round, false));
		REQUIRE_OK(spmt_all_reduce(comm, at, at, COUNT, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		TRY(holds(comm, at, COUNT, (uint64_t)round, true));
	}
	return spmt_free(comm, at);
}

Test(row_plans, calls_that_differ)
{
	for (uint64_t seed = 0; seed < (SANITIZED ? 4 : 12); seed++) {
		struct wish w = { .p = { .layout = "0,1,2" }, .seed = seed };
		spmt_plan *plan = NULL;

		cr_assert_eq(seed % 3 == 2 ? row_plans_packets(seed, 3, &plan)
					   : row_plans_random(seed, 3, seed % 3, &plan),
			0);
		wish_for(plan);
		spmt_plan_destroy(plan);
		cr_assert_eq(processes_world(&w.p, calls_differ, &w), 0, "seed %llu: %s",
			(unsigned long long)seed, ranks_message());
	}
}

/* ---- what a plan says itself ---------------------------------------------------------------------- */

/* Both ranks put to the other; then they signal, or have before. */
static void put_and_signal(bool before, enum spmt_plan_kind kind, struct plan_layout *layout)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "put",
		.collective = "any",
		.nranks = 2,
		.input_chunks = 1,
		.output_chunks = 1 };
	spmt_plan *plan = NULL;

	cr_assert_eq(spmt_plan_create(&attr, &plan), 0);
	for (int r = 0; r < 2; r++)
		for (int i = 0; i < 2; i++)
			if (before == (i == 0))
				cr_assert_eq(spmt_plan_meet_(plan, r, 0, kind, 1 - r, 0, 0), 0);
			else
				cr_assert_eq(spmt_plan_put(plan, r, 0, spmt_plan_input(r, 0, 1),
						     spmt_plan_output(1 - r, 0, 1)),
					0);
	cr_assert_eq(plan_lay_out(plan, false, 64, layout), 0);
	spmt_plan_destroy(plan);
}

/* Whether ranks meet at the end depends on it. */
Test(row_plans, who_has_been_told_that_all_is_done)
{
	static const struct {
		const char *made;
		bool apart, closed, leads;
	} rows[] = { { "allreduce", false, true, false },
		{ "allreduce-packets", true, true, false },
		{ "allreduce-twoshot", true, true, false },
		{ "allreduce-push", false, false, true }, { "allgather", false, false, false },
		{ "reducescatter", false, false, false } };
	struct plan_layout layout;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (int blocks = 1; blocks < 4; blocks++) {
			spmt_plan *plan = NULL;

			cr_assert_eq(made_plan_of(rows[i].made, 3, blocks, &plan), 0);
			cr_assert_eq(plan_lay_out(plan, false, 6144, &layout), 0);
			cr_assert_eq(layout.apart, rows[i].apart, "%s", rows[i].made);
			cr_assert_eq(layout.closed, rows[i].closed, "%s", rows[i].made);
			cr_assert_eq(layout.leads, rows[i].leads, "%s", rows[i].made);
			spmt_plan_destroy(plan);
		}
	put_and_signal(false, SPMT_PLAN_SIGNAL, &layout);
	cr_assert(layout.closed && !layout.apart);
	put_and_signal(true, SPMT_PLAN_SIGNAL, &layout);
	cr_assert(!layout.closed);
	put_and_signal(false, SPMT_PLAN_SIGNAL_RELAXED, &layout);
	cr_assert(!layout.closed);
}

/* ---- where a block's threads meet ------------------------------------------------------------------ */

static void moves(spmt_plan *plan, enum spmt_plan_kind kind, struct spmt_plan_chunk src,
	struct spmt_plan_chunk dst)
{
	struct spmt_plan_op op = { .size = sizeof(op), .kind = kind, .nsrc = 1, .ndst = 1 };

	op.src[0] = src;
	op.dst[0] = dst;
	cr_assert_eq(spmt_plan_add(plan, 0, 0, &op), 0, "%s", spmt_last_error());
}

static void folds_and_tells(spmt_plan *plan, uint32_t chunk)
{
	struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_REDUCE_PACKETS);

	op.nsrc = op.ndst = 2;
	op.src[0] = spmt_plan_input(0, 3, 1);
	op.src[1] = spmt_plan_scratch(0, 2, 1);
	op.dst[0] = spmt_plan_output(0, chunk, 1);
	op.dst[1] = spmt_plan_scratch(1, chunk, 1);
	cr_assert_eq(spmt_plan_add(plan, 0, 0, &op), 0, "%s", spmt_last_error());
}

/* Before what touches what was written, or writes what was touched, unless packets have them meet between the two; before it is told, and
   before packets tell that what was read is over; else nowhere. Where steps of packets do not meet by themselves it is as if there were none. */
Test(row_plans, where_the_threads_of_a_block_meet)
{
	enum { NO, ALL = PLAN_MEETS_ALL, YES = PLAN_MEETS | PLAN_MEETS_ALL };
	static const uint32_t meets[] = { NO, NO, YES | PLAN_MEETS_TOLD, YES, NO, NO, YES, NO, NO,
		ALL, YES, YES, ALL };
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "meets",
		.collective = "any",
		.nranks = 2,
		.input_chunks = 4,
		.output_chunks = 4,
		.scratch_chunks = 4 };
	const struct plan_step *steps;
	struct plan_layout layout;
	spmt_plan *plan = NULL;
	char *table;

	cr_assert_eq(spmt_plan_create(&attr, &plan), 0);
	moves(plan, SPMT_PLAN_COPY, spmt_plan_input(0, 0, 1), spmt_plan_output(0, 0, 1));
	moves(plan, SPMT_PLAN_COPY, spmt_plan_input(0, 0, 1), spmt_plan_output(0, 1, 1));
	moves(plan, SPMT_PLAN_PUT, spmt_plan_output(0, 0, 2), spmt_plan_output(1, 0, 2));
	cr_assert_eq(spmt_plan_signal(plan, 0, 0, 1, 0), 0);
	cr_assert_eq(spmt_plan_signal(plan, 0, 0, 1, 1), 0);
	moves(plan, SPMT_PLAN_COPY, spmt_plan_scratch(0, 0, 1), spmt_plan_output(0, 3, 1));
	moves(plan, SPMT_PLAN_COPY, spmt_plan_input(0, 1, 1), spmt_plan_scratch(0, 0, 1));
	moves(plan, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, 1, 1), spmt_plan_scratch(0, 1, 1));
	moves(plan, SPMT_PLAN_UNPACK_PACKETS, spmt_plan_scratch(0, 1, 1),
		spmt_plan_output(0, 2, 1));
	moves(plan, SPMT_PLAN_COPY, spmt_plan_input(0, 2, 1), spmt_plan_output(0, 2, 1));
	moves(plan, SPMT_PLAN_COPY, spmt_plan_input(0, 3, 1), spmt_plan_output(0, 2, 1));
	folds_and_tells(plan, 3);
	folds_and_tells(plan, 0);
	cr_assert_eq(plan_lay_out(plan, false, 256, &layout), 0);
	table = plan_table(plan, &layout, 0);
	cr_assert_not_null(table);
	steps = (const struct plan_step *)(const void *)(table + layout.steps);
	for (size_t i = 0; i < sizeof(meets) / sizeof(meets[0]); i++)
		cr_assert_eq(steps[i].meets, meets[i], "step %zu", i);
	mem_free(table);
	spmt_plan_destroy(plan);
}
