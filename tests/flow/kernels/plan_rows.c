/* SPDX-License-Identifier: MIT */
/* SPMT_COLL=plan:FILE: plans as rows of the collectives, with the results that all rows have. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt/plan/plan.h"
#include "spmt/plan/rows/row.h"
#include "spmt_device.h"
#include "src/base/names.h"
#include "src/kernels/area.h"
#include "tests/lib/clocks.h"
#include "tests/lib/every_call.h"
#include "tests/lib/folds.h"
#include "tests/lib/plan/plan_files.h"
#include "tests/lib/plan/plans.h"
#include "tests/lib/processes.h"
#include "tools/spmt-plan/made.h"

enum { RANKS = 4 };

/* The input of one is where its output is, of the other not, as for none of the library's plans. Those in place need it to be so. */
static void other_file(const char *collective, int in_place, char name[NAME])
{
	int scatters = !strcmp(collective, "reducescatter"),
	    reduces = scatters || !strcmp(collective, "allreduce");
	spmt_plan *plan = NULL;

	cr_assert_eq(
		spmt_plan_create(&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					 .name = "other",
					 .collective = collective,
					 .nranks = RANKS,
					 .in_place = in_place,
					 .input_chunks = reduces ? RANKS : 1,
					 .output_chunks = scatters ? 1 : RANKS },
			&plan),
		0);
	for (int r = 0; r < RANKS; r++)
		for (int p = 0; p < RANKS; p++) {
			uint32_t at = (uint32_t)p;
			struct spmt_plan_chunk terms[RANKS];

			for (int i = 0; i < RANKS; i++)
				terms[i] = spmt_plan_input(
					(r + i) % RANKS, scatters ? (uint32_t)r : at, 1);
			if (!reduces && p != r)
				cr_assert_eq(spmt_plan_put(plan, r, 0, spmt_plan_input(r, 0, 1),
						     spmt_plan_output(p, (uint32_t)r, 1)),
					0);
			else if (scatters ? p == 0 : reduces)
				cr_assert_eq(
					spmt_plan_reduce(plan, r, p % 2,
						scatters && in_place
							? terms[0]
							: spmt_plan_output(r, scatters ? 0 : at, 1),
						terms, RANKS),
					0);
		}
	cr_assert_eq(spmt_plan_check(plan), 0, "%s", spmt_last_error());
	plan_file(plan, name);
	spmt_plan_destroy(plan);
}

/* In place, of one buffer that is said once: each rank folds a chunk of it and puts it to all. */
static void one_buffer_file(bool input, char name[NAME])
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "one",
		.collective = "allreduce",
		.nranks = RANKS,
		.in_place = 1 };
	spmt_plan *plan = NULL;

	*(input ? &attr.input_chunks : &attr.output_chunks) = RANKS;
	cr_assert_eq(spmt_plan_create(&attr, &plan), 0);
	for (int r = 0; r < RANKS; r++) {
		struct spmt_plan_chunk terms[RANKS];

		for (int i = 0; i < RANKS; i++)
			terms[i] = spmt_plan_chunk_((r + i) % RANKS,
				input ? SPMT_PLAN_INPUT : SPMT_PLAN_OUTPUT, (uint32_t)r, 1);
		cr_assert_eq(spmt_plan_reduce(plan, r, 0, terms[0], terms, RANKS), 0);
		for (int i = 1; i < RANKS; i++)
			cr_assert_eq(spmt_plan_put(plan, r, 0, terms[0], terms[i]), 0);
	}
	plan_file(plan, name);
	spmt_plan_destroy(plan);
}

/* ---- as all rows --------------------------------------------------------------------------------- */

struct wish {
	struct processes p; /* first */
	unsigned kinds;	    /* that have a plan */
	int grain;	    /* 64-bit integers */
};

static uint64_t epochs(spmt_comm *comm)
{
	struct spmt_view view = { .size = sizeof(view) };

	return spmt_view_get(comm, &view) ? 0 : area_of(&view)->coll_epoch;
}

/* Each rank's buffers lie somewhere else. A plan is one collective. */
static int taken(spmt_comm *comm, unsigned kinds, size_t count, bool fits, bool counts)
{
	static const int to[] = { 1, 2, 3, 0 };
	size_t shift = (size_t)spmt_rank(comm) * 24, room = RANKS * count + shift;
	uint64_t *dst, *src, before;
	int me = spmt_rank(comm);

	REQUIRE_OK(spmt_calloc(comm, RANKS * count + RANKS * 24, sizeof(*dst), (void **)&dst));
	REQUIRE_OK(spmt_calloc(comm, RANKS * count + RANKS * 24, sizeof(*src), (void **)&src));
	for (int kind = 0; kind < COLL_KINDS; kind++) {
		enum kernel_collective_kind k = (enum kernel_collective_kind)kind;
		uint64_t *local = malloc(room * sizeof(*local));
		int rc;

		if (!(kinds >> kind & 1) || kind == COLL_EXCHANGE) {
			free(local);
			continue;
		}
		REQUIRE(local);
		for (size_t i = 0; i < RANKS * count; i++)
			local[i] = every_call_given(me, i);
		REQUIRE_OK(spmt_copy_in(comm, src + shift, local, RANKS * count * sizeof(*local)));
		before = counts ? epochs(comm) : 0;
		rc = every_call_collective(comm, k, dst + shift, src + shift, count, to);
		if (!fits) {
			REQUIRE_CODE(rc, -EINVAL);
			REQUIRE_SAYS("SPMT_COLL wants plans only");
			free(local);
			continue;
		}
		REQUIRE_OK(rc);
		REQUIRE_OK(spmt_quiet(comm));
		if (counts)
			REQUIRE_EQ(epochs(comm) - before, 1);
		REQUIRE_OK(spmt_copy_out(comm, local, dst + shift, RANKS * count * sizeof(*local)));
		for (size_t i = 0; i < (coll_kinds[k].dst_blocks ? RANKS * count : count); i++)
			REQUIRE_EQ(local[i], every_call_collected(k, me, RANKS, count, i));
		free(local);
	}
	REQUIRE_OK(spmt_free(comm, src));
	return spmt_free(comm, dst);
}

static int with_only(spmt_comm *comm, void *arg)
{
	struct wish *w = arg;
	bool one = !strchr(w->p.layout, '|'), counts = one && host_access(comm);
	size_t grain = (size_t)w->grain;

	TRY(taken(comm, w->kinds, grain, true, counts));
	TRY(taken(comm, w->kinds, 100 * grain, true, counts));
	return grain > 1 ? taken(comm, w->kinds, grain + 1, false, false) : 0;
}

static int with_more(spmt_comm *comm, void *arg)
{
	const struct wish *w = arg;

	TRY(taken(comm, w->kinds, RANKS, true, host_access(comm)));
	return taken(comm, w->kinds, (size_t)w->grain, true, host_access(comm));
}

/* On stand-ins whose memory the CPU does not reach each touched page costs two system calls. */
static int as_all(spmt_comm *comm, void *arg)
{
	(void)arg;
	return every_call_collectives(comm, host_access(comm) ? SIZE_MAX : 37);
}

static void each_file(const char *file, unsigned kinds, int grain)
{
	static const char *const layouts[] = { "0,1,2,3", "0|1,3|2" };

	for (size_t i = 0; i < 2; i++) {
		struct wish w = { .p = { .layout = layouts[i] }, .kinds = kinds, .grain = grain };

		NEEDS_LAYOUT(layouts[i]);
		wish_for(file, ",only");
		RANKS_OK(processes_world(&w.p, with_only, &w));
		wish_for(file, i ? ",pushed" : "");
		RANKS_OK(processes_world(&w.p, as_all, &w));
	}
}

/* Whether a plan needs a copy of an input, in place or not. */
Test(plan_rows, in_place_and_not_without_a_copy)
{
	static const struct {
		const char *made;
		enum kernel_collective_kind kind;
		bool either;
	} rows[] = { { "allreduce", COLL_ALL_REDUCE, true },
		{ "allreduce-packets", COLL_ALL_REDUCE, true },
		{ "allreduce-twoshot", COLL_ALL_REDUCE, true },
		{ "allreduce-push", COLL_ALL_REDUCE, true },
		{ "allgather", COLL_ALL_GATHER,
			false }, /* two blocks touch what is copied to where it is */
		{ "reducescatter", COLL_REDUCE_SCATTER, true },
		{ "alltoall", COLL_ALL_TO_ALL, false } };
	static const char *const others[] = { "allreduce", "allgather", "reducescatter" };
	struct plan_found found = { .n = 0 };
	enum kernel_collective_kind kind;
	spmt_plan *plan = NULL;
	char file[NAME];
	bool either;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int was;

		cr_assert_eq(made_plan(rows[i].made, RANKS, &plan), 0);
		was = plan->attr.in_place;

		cr_assert_eq(plan_row_either(plan, rows[i].kind, NULL, &found, &either), 0);
		cr_assert_eq(either, rows[i].either, "%s", rows[i].made);
		cr_assert_eq(plan->attr.in_place, was);
		spmt_plan_destroy(plan);
	}
	for (int i = 0; i < 3; i++) {
		other_file(others[i], i > 0, file);
		cr_assert_eq(plan_row_load(file, &plan, &kind), 0, "%s", spmt_last_error());
		cr_assert_eq(plan_row_either(plan, kind, NULL, &found, &either), 0);
		cr_assert(!either, "%s", others[i]);
		spmt_plan_destroy(plan);
	}
}

/* All ranks of a process ask, of plans that are equal. */
Test(plan_rows, tried_once)
{
	enum { MANY = 24 };
	struct plan_found found = { .n = 0 };
	int64_t begin = 0, first = 0;

	for (int again = 0; again < MANY; again++) {
		spmt_plan *plan = NULL;
		bool either = false;

		cr_assert_eq(made_plan_of("allreduce", MANY, 2, &plan), 0);
		begin = cpu_ns();
		cr_assert_eq(plan_row_either(plan, COLL_ALL_REDUCE, NULL, &found, &either), 0);
		if (!again)
			first = cpu_ns() - begin;
		else
			cr_assert_lt(cpu_ns() - begin, first / 2, "the %dth time", again);
		cr_assert(either);
		spmt_plan_destroy(plan);
	}
}

#define KIND(kind) (1u << COLL_##kind)

Test(plan_rows, the_librarys_own)
{
	static const struct {
		const char *made;
		unsigned kinds;
		int grain;
	} rows[] = { { "allreduce", KIND(ALL_REDUCE), RANKS },
		{ "allreduce-packets", KIND(ALL_REDUCE), 1 }, { "allgather", KIND(ALL_GATHER), 1 },
		{ "reducescatter", KIND(REDUCE_SCATTER), 1 }, { "alltoall", KIND(ALL_TO_ALL), 1 },
		{ "allreduce-push", KIND(ALL_REDUCE), RANKS },
		{ "allreduce-twoshot", KIND(ALL_REDUCE), RANKS } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		spmt_plan *plan = NULL;
		char file[NAME];

		cr_assert_eq(made_plan_of(rows[i].made, RANKS, i % 2 ? 3 : 1, &plan), 0);
		plan_file(plan, file);
		spmt_plan_destroy(plan);
		each_file(file, rows[i].kinds, rows[i].grain);
	}
}

/* Plans in place where the call is not, and the other way round. */
Test(plan_rows, in_place_and_not)
{
	static const struct {
		const char *collective;
		int in_place;
		unsigned kinds;
		int grain;
	} rows[] = { { "allreduce", 0, KIND(ALL_REDUCE), RANKS },
		{ "allgather", 1, KIND(ALL_GATHER), 1 },
		{ "reducescatter", 1, KIND(REDUCE_SCATTER), 1 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char file[NAME];

		other_file(rows[i].collective, rows[i].in_place, file);
		each_file(file, rows[i].kinds, rows[i].grain);
	}
	for (int input = 0; input < 2; input++) {
		char file[NAME];

		one_buffer_file(input, file);
		each_file(file, KIND(ALL_REDUCE), RANKS);
	}
}

/* ---- several, and their types --------------------------------------------------------------------- */

/* A third of them, but all types and all ops, where each touched page costs. */
static bool type_is_tried(spmt_comm *comm, enum spmt_type type, enum spmt_op op)
{
	return folds_valid(type, op) &&
		(host_access(comm) || ((unsigned)type + (unsigned)op) % 3 == 0);
}

/* Each op of each type, in place and not, by the tests' own folds; f8 and mean, which plans have not, by another row. */
static int every_type(spmt_comm *comm, void *arg)
{
	enum { COUNT = 8 * RANKS };
	uint64_t local[COUNT], in[RANKS][COUNT];
	void *dst, *src;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, sizeof(local), &dst));
	REQUIRE_OK(spmt_malloc(comm, sizeof(local), &src));
	for (enum spmt_type type = 0; type <= SPMT_TYPE_F64; type++)
		for (enum spmt_op op = 0; op <= SPMT_OP_XOR; op++) {
			void *to = op % 2 ? dst : src;
			size_t size = type_size(type);

			if (!type_is_tried(comm, type, op))
				continue;
			for (int r = 0; r < RANKS; r++)
				plans_input(type, r, COUNT, in[r]);
			REQUIRE_OK(spmt_copy_in(comm, src, in[spmt_rank(comm)], COUNT * size));
			REQUIRE_OK(spmt_all_reduce(comm, to, src, COUNT, type, op, NULL));
			REQUIRE_OK(spmt_quiet(comm));
			REQUIRE_OK(spmt_copy_out(comm, local, to, COUNT * size));
			for (size_t i = 0; i < COUNT; i++) {
				uint64_t all[RANKS] = { 0 }, got = 0;

				for (int r = 0; r < RANKS; r++)
					memcpy(&all[r], (char *)in[r] + i * size, size);
				memcpy(&got, (char *)local + i * size, size);
				REQUIRE_EQ(got, folds_of(type, op, all, RANKS));
			}
		}
	REQUIRE_OK(spmt_all_reduce(comm, dst, src, COUNT, SPMT_TYPE_F8E4M3, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_all_reduce(comm, dst, src, COUNT, SPMT_TYPE_F32, SPMT_OP_AVG, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_free(comm, src));
	return spmt_free(comm, dst);
}

/* The first that fits: packets for what has room, the other one for more. */
Test(plan_rows, several)
{
	struct wish w = { .p = { .layout = "0,1,2,3" },
		.kinds = KIND(ALL_REDUCE) | KIND(ALL_GATHER) | KIND(REDUCE_SCATTER) |
			KIND(ALL_TO_ALL),
		.grain = RANKS };
	char files[5][NAME], text[8 * NAME];
	static const char *const made[] = { "allreduce-packets", "allreduce", "allgather",
		"reducescatter", "alltoall" };

	NEEDS_LAYOUT(w.p.layout);
	for (int i = 0; i < 5; i++)
		made_file(made[i], RANKS, files[i]);
	snprintf(text, sizeof(text), "plan:%s,plan:%s,plan:%s,plan:%s,plan:%s", files[0], files[1],
		files[2], files[3], files[4]);
	setenv("SPMT_COLL", text, 1);
	RANKS_OK(processes_world(&w.p, every_type, &w));
	RANKS_OK(processes_world(&w.p, as_all, &w));
	strcat(text, ",only");
	setenv("SPMT_COLL", text, 1);
	w.grain = (1 << 17) +
		RANKS; /* more than the packets have room for, and a multiple of the chunks */
	w.kinds = KIND(ALL_REDUCE);
	RANKS_OK(processes_world(&w.p, with_more, &w));
}

/* ---- what is refused ----------------------------------------------------------------------------- */

struct room {
	struct processes p; /* first */
	size_t most;
};

/* Nothing is touched of a call that is refused, so its buffers need not be there. */
static int with_too_much(spmt_comm *comm, void *arg)
{
	const struct room *room = arg;
	size_t much = (room->most + 1536) / 4;
	float buffer[1536 / 4] = { 0 };
	char words[64];

	if (!host_access(comm))
		return 0;
	snprintf(words, sizeof(words), "bytes are not in 0 .. %zu", room->most);
	REQUIRE_CODE(spmt_all_reduce(comm, buffer, buffer, much, SPMT_TYPE_F32, SPMT_OP_SUM, NULL),
		-EINVAL);
	REQUIRE_SAYS(words);
	REQUIRE_OK(
		spmt_all_reduce(comm, buffer, buffer, 1536 / 4, SPMT_TYPE_F32, SPMT_OP_SUM, NULL));
	return spmt_quiet(comm);
}

/* A power of two, of which scratch has 16 MiB with packets, 64 without. */
Test(plan_rows, as_large_as_fits_the_room)
{
	static const struct {
		const char *made, *layout;
		int nranks;
		size_t most;
	} rows[] = { { "allreduce-packets", "0,1", 2, 1 << 20 },
		{ "allreduce-packets", "0,1,2", 3, 1 << 20 },
		{ "allreduce-twoshot", "0,1,2,3", 4, 1 << 20 },
		{ "allreduce-push", "0,1", 2, 128 << 20 },
		{ "allreduce-push", "0,1,2", 3, 64 << 20 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct room room = { .p = { .layout = rows[i].layout }, .most = rows[i].most };
		char file[NAME];

		NEEDS_LAYOUT(rows[i].layout);
		made_file(rows[i].made, rows[i].nranks, file);
		wish_for(file, ",only");
		RANKS_OK(processes_world(&room.p, with_too_much, &room));
	}
}

/* For another number of ranks: another row. */
Test(plan_rows, of_other_ranks)
{
	struct wish w = { .p = { .layout = "0,1,2,3" } };
	char file[NAME];

	NEEDS_LAYOUT(w.p.layout);
	made_file("allreduce", RANKS - 1, file);
	wish_for(file, "");
	RANKS_OK(processes_world(&w.p, as_all, &w));
}

/* ---- calls that differ --------------------------------------------------------------------------- */

/* One's count fits the plan and the other's does not: told to all, and the world goes on. */
static int counts_differ(spmt_comm *comm, void *arg)
{
	uint64_t *dst, *src, before[2 * RANKS];
	size_t count = RANKS + (spmt_rank(comm) == 2);
	int rc;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 2 * RANKS, sizeof(*dst), (void **)&dst));
	REQUIRE_OK(spmt_calloc(comm, 2 * RANKS, sizeof(*src), (void **)&src));
	for (int round = 0; round < 20; round++) {
		rc = spmt_all_reduce(comm, dst, src, count, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
		rc = rc ? rc : spmt_quiet(comm);
		REQUIRE_EQ(rc, SPMT_ERR_MISMATCH);
		REQUIRE_SAYS("spmt_all_reduce: count differs");
		REQUIRE_OK(
			spmt_all_reduce(comm, src, src, RANKS, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_quiet(comm));
	}
	REQUIRE_OK(spmt_copy_out(comm, before, dst, sizeof(before)));
	for (size_t i = 0; i < 2 * RANKS; i++)
		REQUIRE_EQ(before[i], 0);
	REQUIRE_OK(spmt_free(comm, src));
	return spmt_free(comm, dst);
}

Test(plan_rows, counts_that_differ)
{
	struct wish w = { .p = { .layout = "0,1,2,3" } };
	char file[NAME];

	NEEDS_LAYOUT(w.p.layout);
	made_file("allreduce", RANKS, file);
	wish_for(file, "");
	RANKS_OK(processes_world(&w.p, counts_differ, &w));
}
