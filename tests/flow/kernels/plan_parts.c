/* SPDX-License-Identifier: MIT */
/* SPMT_COLL=plan:FILE on parts of a world: those of as many ranks as the plan take it, in memory of their own. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "spmt/collective/collective.h"
#include "spmt_device.h"
#include "src/kernels/area.h"
#include "tests/lib/processes.h"
#include "tools/spmt-plan/made.h"

enum { RANKS = 4 };

/* SPMT_COLL names a file with the plan, which goes with the process and its children. */
static void wish_for(spmt_plan *plan, const char *more)
{
	int fd = memfd_create("plan", 0);
	char text[128], *json;
	size_t need = 0;

	cr_assert_eq(spmt_plan_write(plan, SPMT_PLAN_JSON, NULL, 0, &need), -ERANGE);
	json = malloc(need);
	cr_assert_eq(spmt_plan_write(plan, SPMT_PLAN_JSON, json, need, &need), 0);
	cr_assert_eq(write(fd, json, need - 1), (ssize_t)need - 1);
	free(json);
	snprintf(text, sizeof(text), "plan:/proc/self/fd/%d%s", fd, more);
	setenv("SPMT_COLL", text, 1);
}

struct wish {
	struct processes p; /* first */
	bool less;
};

static uint64_t epochs(spmt_comm *comm)
{
	struct spmt_view view = { .size = sizeof(view) };

	return spmt_view_get(comm, &view) ? 0 : area_of(&view)->coll_epoch;
}

static bool takes_plan(spmt_comm *part, size_t count)
{
	const struct coll_planned call = {
		.what = "test", .kind = COLL_ALL_REDUCE, .count = count, .type = SPMT_TYPE_U64
	};
	const struct coll_plan *plan = NULL;

	return part->plans && !part->plans->choose(part, &call, &plan) && plan;
}

enum by { BY_ANY, BY_PLAN, BY_TABLE };

/* An all_reduce on the part, of a plan's chunks: its result, and by what; either is one collective. */
static int part_sum(spmt_comm *comm, spmt_comm *part, uint64_t sum, size_t count, enum by by)
{
	uint64_t *buf, *local = malloc(count * sizeof(*local)), before;
	int me = spmt_rank(comm);

	REQUIRE(local);
	for (size_t i = 0; i < count; i++)
		local[i] = ((uint64_t)me + 1) << (i % 8);
	REQUIRE_OK(spmt_malloc(comm, count * sizeof(*buf), (void **)&buf));
	REQUIRE_OK(spmt_copy_in(comm, buf, local, count * sizeof(*buf)));
	before = by ? epochs(part) : 0;
	REQUIRE_OK(spmt_all_reduce(part, buf, buf, count, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(part));
	if (by) {
		REQUIRE_EQ(epochs(part) - before, 1);
		REQUIRE_EQ(takes_plan(part, count), by == BY_PLAN);
	}
	REQUIRE_OK(spmt_copy_out(comm, local, buf, count * sizeof(*buf)));
	for (size_t i = 0; i < count; i++)
		REQUIRE_EQ(local[i], sum << (i % 8));
	free(local);
	return spmt_free(comm, buf);
}

/* Pairs, of which one rank's area lies elsewhere; what has no room there, and the world, go by the table. */
static int on_parts(spmt_comm *comm, void *arg)
{
	const struct wish *w = arg;
	bool counts = !strchr(w->p.layout, '|') && host_access(comm);
	enum by plans = counts ? BY_PLAN : BY_ANY, table = counts ? BY_TABLE : BY_ANY;
	uint64_t sums[] = { 3, 7 }, all = 10, sum;
	int me = spmt_rank(comm);
	spmt_comm *alone = NULL, *pair, *again;

	REQUIRE_OK(spmt_split(comm, me ? -1 : 0, 0, &alone));
	REQUIRE_OK(spmt_split(comm, me / 2, -me, &pair));
	sum = sums[me / 2];
	for (int round = 0; round < 3; round++) {
		TRY(part_sum(comm, pair, sum, 2, plans));
		TRY(part_sum(comm, pair, sum, 64, plans));
		TRY(part_sum(comm, pair, sum, 2000, plans));
	}
	if (w->less)
		TRY(part_sum(comm, pair, sum, 100000, table));
	TRY(part_sum(comm, comm, all, 64, table));
	REQUIRE_OK(spmt_split(pair, 0, 0, &again));
	TRY(part_sum(comm, again, sum, 64, plans));
	TRY(part_sum(comm, pair, sum, 64, plans));
	REQUIRE_OK(spmt_finalize(pair)); /* with its own part */
	REQUIRE_OK(spmt_split(comm, me % 2, me, &pair));
	TRY(part_sum(comm, pair, me % 2 ? 6 : 4, 64, plans));
	return 0; /* they end with the world */
}

Test(plan_parts, parts_take_plans_of_as_many_ranks)
{
	static const char *const layouts[] = { "0,1,2,3", "0|1,3|2" },
				 *const made[] = { "allreduce", "allreduce-packets" };

	for (int k = 0; k < 4; k++) {
		struct wish w = { .p = { .layout = layouts[k / 2] }, .less = k % 2 };
		spmt_plan *plan = NULL;

		NEEDS_LAYOUT(w.p.layout);
		cr_assert_eq(made_plan(made[k % 2], 2, &plan), 0, "%s", spmt_last_error());
		wish_for(plan, "");
		spmt_plan_destroy(plan);
		RANKS_OK(processes_world(&w.p, on_parts, &w));
	}
}

/* More scratch than a part has room for, which a world has. */
static int without_room(spmt_comm *comm, void *arg)
{
	const struct wish *w = arg;
	spmt_comm *part = NULL;

	TRY(part_sum(comm, comm, 10, RANKS, host_access(comm) ? BY_PLAN : BY_ANY));
	if (w->less) {
		REQUIRE_CODE(spmt_split(comm, 0, 0, &part), -EINVAL);
		REQUIRE_SAYS(
			"SPMT_COLL: plan large: 2000 chunks of scratch are too many for 256 KiB");
		REQUIRE(!part);
	} else {
		REQUIRE_OK(spmt_split(comm, 0, 0, &part));
		TRY(part_sum(comm, part, 10, RANKS, host_access(comm) ? BY_TABLE : BY_ANY));
	}
	return 0;
}

Test(plan_parts, a_part_has_less_room)
{
	struct wish w = { .p = { .layout = "0,1,2,3" } };
	spmt_plan *plan = NULL;

	NEEDS_LAYOUT(w.p.layout);
	cr_assert_eq(
		spmt_plan_create(&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					 .name = "large",
					 .collective = "allreduce",
					 .nranks = RANKS,
					 .input_chunks = 1,
					 .output_chunks = 1,
					 .scratch_chunks = 2000 },
			&plan),
		0);
	for (int r = 0; r < RANKS; r++) {
		struct spmt_plan_chunk terms[RANKS];

		for (int i = 0; i < RANKS; i++)
			terms[i] = spmt_plan_input((r + i) % RANKS, 0, 1);
		cr_assert_eq(
			spmt_plan_reduce(plan, r, 0, spmt_plan_output(r, 0, 1), terms, RANKS), 0);
	}
	for (int only = 0; only < 2; only++) {
		w.less = only;
		wish_for(plan, only ? ",only" : "");
		RANKS_OK(processes_world(&w.p, without_room, &w));
	}
	spmt_plan_destroy(plan);
}

/* Chunks that pass a part's stage as 32-bit integers, and not as 64-bit ones. */
enum { STAGED = 128 << 10, FINE = STAGED / 4 };

static int through_the_stage(spmt_comm *comm, void *arg)
{
	const struct wish *w = arg;
	uint64_t *buf, *local = malloc(FINE * sizeof(*local));
	uint32_t *words = (uint32_t *)(void *)local;
	spmt_comm *part;
	int rc;

	REQUIRE(local);
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	REQUIRE_OK(spmt_malloc(comm, FINE * sizeof(*buf), (void **)&buf));
	for (int i = 0; i < FINE; i++)
		words[i] = (uint32_t)i;
	REQUIRE_OK(spmt_copy_in(comm, buf, words, FINE * sizeof(*words)));
	REQUIRE_OK(spmt_all_reduce(part, buf, buf, FINE, SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(part));
	REQUIRE_OK(spmt_copy_out(comm, words, buf, FINE * sizeof(*words)));
	for (int i = 0; i < FINE; i++)
		REQUIRE_EQ(words[i], 2 * (uint32_t)i);
	for (int i = 0; i < FINE; i++)
		local[i] = (uint64_t)i;
	REQUIRE_OK(spmt_copy_in(comm, buf, local, FINE * sizeof(*local)));
	rc = spmt_all_reduce(part, buf, buf, FINE, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
	if (w->less) {
		REQUIRE_CODE(rc, -EINVAL);
		REQUIRE_SAYS("wants plans only, and none fits: plan fine: 32768 of u64 at once");
		REQUIRE_SAYS("131072 bytes of stage");
	} else {
		REQUIRE_OK(rc);
		REQUIRE_OK(spmt_quiet(part));
		REQUIRE_OK(spmt_copy_out(comm, local, buf, FINE * sizeof(*local)));
		for (int i = 0; i < FINE; i++)
			REQUIRE_EQ(local[i], 2 * (uint64_t)i);
	}
	free(local);
	return spmt_free(comm, buf);
}

/* Each rank folds a half of the chunks, and puts it to the other. */
Test(plan_parts, chunks_that_exceed_the_stage)
{
	struct wish w = { .p = { .layout = "0|1" } };
	spmt_plan *plan = NULL;

	NEEDS_LAYOUT(w.p.layout);
	cr_assert_eq(
		spmt_plan_create(&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					 .name = "fine",
					 .collective = "allreduce",
					 .nranks = 2,
					 .in_place = 1,
					 .input_chunks = FINE,
					 .output_chunks = FINE },
			&plan),
		0);
	for (int r = 0; r < 2; r++) {
		uint32_t at = (uint32_t)r * FINE / 2;
		struct spmt_plan_chunk terms[] = { spmt_plan_input(r, at, FINE / 2),
			spmt_plan_input(1 - r, at, FINE / 2) };

		cr_assert_eq(spmt_plan_reduce(plan, r, 0, terms[0], terms, 2), 0);
		cr_assert_eq(spmt_plan_put(plan, r, 0, terms[0], terms[1]), 0);
	}
	for (int only = 0; only < 2; only++) {
		w.less = only;
		wish_for(plan, only ? ",only" : "");
		RANKS_OK(processes_world(&w.p, through_the_stage, &w));
	}
	spmt_plan_destroy(plan);
}
