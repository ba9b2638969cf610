/* SPDX-License-Identifier: MIT */
/* SPMT_COLL=plan:FILE: what is no plan or no collective is refused, and what writes its input keeps the caller's. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmt/plan/plan.h"
#include "spmt/plan/rows/row.h"
#include "tests/lib/plan/plan_files.h"
#include "tests/lib/processes.h"
#include "tests/lib/ranks.h"
#include "tools/spmt-plan/made.h"

enum { RANKS = 4 };

struct refusal {
	struct processes p; /* first */
	int code;
	const char *says, *also;
};

static int refused(int rank, void *arg)
{
	const struct refusal *r = arg;
	struct spmt_attr attr = ranks_attr(rank, r->p.nranks, &r->p.uid[0]);
	spmt_comm *comm;

	REQUIRE_CODE(spmt_init(&attr, &comm), r->code);
	/* one rank proves a plan, and the others hear of it */
	REQUIRE_SAYS(r->says);
	REQUIRE_SAYS(r->also);
	return 0;
}

static void refuses(const char *coll, int code, const char *says, const char *also)
{
	struct refusal r = {
		.p = { .layout = "0,1,2,3" }, .code = code, .says = says, .also = also
	};

	NEEDS_LAYOUT(r.p.layout);
	setenv("SPMT_COLL", coll, 1);
	RANKS_OK(processes_run(&r.p, refused, &r));
}

/* A plan's text with one word for another. */
static void changed_file(const char *made, const char *from, const char *to, char name[NAME])
{
	spmt_plan *plan = NULL;
	size_t need = 0;
	char *text, *more, *at;

	cr_assert_eq(made_plan(made, RANKS, &plan), 0);
	cr_assert_eq(spmt_plan_write(plan, SPMT_PLAN_JSON, NULL, 0, &need), -ERANGE);
	text = malloc(need);
	more = calloc(need + 256, 1);
	cr_assert_eq(spmt_plan_write(plan, SPMT_PLAN_JSON, text, need, &need), 0);
	at = strstr(text, from);
	cr_assert_not_null(at, "%s in %s", from, text);
	snprintf(more, need + 256, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	text_file(more, strlen(more), name);
	spmt_plan_destroy(plan);
	free(more);
	free(text);
}

static void refuses_file(const char *file, const char *says)
{
	char text[2 * NAME];

	snprintf(text, sizeof(text), "plan:%s", file);
	refuses(text, -EINVAL, "SPMT_COLL", says);
}

Test(plan_proofs, what_is_no_plan)
{
	char file[NAME];

	refuses("plan:/nowhere/at/all", -ENOENT, "SPMT_COLL: /nowhere/at/all", "No such file");
	refuses("plan:/dev/null", -EINVAL, "/dev/null is no file", "SPMT_COLL");
	refuses("direct,reduce", -EINVAL, "two algorithms, direct and reduce", "SPMT_COLL");
	refuses("direct,reduced", -EINVAL, "two algorithms", "SPMT_COLL");
	refuses("plan:", -EINVAL, "no file behind plan:", "SPMT_COLL");
	refuses("only", -EINVAL, "only is for plans, and there is none", "SPMT_COLL");
	refuses("direct,only", -EINVAL, "only is for plans, and there is none", "SPMT_COLL");
	refuses("direct,", -EINVAL, "a name is missing beside a comma", "SPMT_COLL");
	refuses(",direct,only", -EINVAL, "a name is missing beside a comma", "SPMT_COLL");
	refuses("plans:x", -EINVAL, "SPMT_COLL=plans:x is no algorithm", "plan:FILE");
	text_file("{\n\n\"name\": 3}", 13, file);
	refuses_file(file, "line 3: name is no string");
	refuses_file(file, file);
	text_file("", 0, file);
	refuses_file(file, "line 1");
}

/* One that folds into its input leaves the caller's as it is. */
static int keeps_input(spmt_comm *comm, void *arg)
{
	enum { N = 24 };
	uint32_t *src, *dst, mine = (uint32_t)spmt_rank(comm);

	(void)arg;
	if (!host_access(comm))
		return 0;
	REQUIRE_OK(spmt_malloc(comm, RANKS * N * sizeof(*src), (void **)&src));
	REQUIRE_OK(spmt_malloc(comm, N * sizeof(*dst), (void **)&dst));
	for (uint32_t i = 0; i < RANKS * N; i++)
		src[i] = mine * 1000 + i;
	REQUIRE_OK(spmt_barrier(comm));
	for (int again = 0; again < 3; again++) {
		REQUIRE_OK(
			spmt_reduce_scatter(comm, dst, src, N, SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		for (uint32_t i = 0; i < N; i++)
			REQUIRE_EQ(dst[i], 6000 + RANKS * (mine * N + i));
	}
	for (uint32_t i = 0; i < RANKS * N; i++)
		REQUIRE_EQ(src[i], mine * 1000 + i);
	REQUIRE_OK(spmt_free(comm, dst));
	return spmt_free(comm, src);
}

static spmt_plan *plan_of(const char *collective, unsigned in, unsigned out)
{
	spmt_plan *plan = NULL;

	cr_assert_eq(
		spmt_plan_create(&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					 .name = "p",
					 .collective = collective,
					 .nranks = RANKS,
					 .input_chunks = in,
					 .output_chunks = out },
			&plan),
		0);
	return plan;
}

Test(plan_proofs, inputs_stay)
{
	spmt_plan *plan = plan_of("reducescatter", RANKS, 1);
	char file[NAME];

	for (int r = 0; r < RANKS; r++) {
		struct spmt_plan_chunk terms[RANKS], own = spmt_plan_input(r, (uint32_t)r, 1);

		for (int i = 0; i < RANKS; i++)
			terms[i] = spmt_plan_input((r + i) % RANKS, (uint32_t)r, 1);
		cr_assert_eq(spmt_plan_reduce(plan, r, 0, own, terms, RANKS), 0);
		cr_assert_eq(spmt_plan_copy(plan, r, 0, own, spmt_plan_output(r, 0, 1)), 0);
	}
	plan_file(plan, file);
	spmt_plan_destroy(plan);
	wish_for(file, ",only");
	RANKS_OK(ranks_run(RANKS, NULL, keeps_input, NULL));
}

/* Parts that are all of three lines of 128 bytes, and not of more. */
Test(plan_proofs, parts_with_holes)
{
	static const int parts[][2] = { { 0, 2 }, { 2, 3 } };
	spmt_plan *plan = plan_of("allgather", 1, RANKS);
	char file[NAME];

	for (int r = 0; r < RANKS; r++)
		for (int to = 0; to < RANKS; to++)
			for (int i = 0; i < 2; i++) {
				struct spmt_plan_op op =
					spmt_plan_op_(to == r ? SPMT_PLAN_COPY : SPMT_PLAN_PUT);

				op.nsrc = op.ndst = 1;
				op.src[0] = spmt_plan_input(r, 0, 1);
				op.dst[0] = spmt_plan_output(to, (uint32_t)r, 1);
				op.slice = parts[i][0];
				op.slices = parts[i][1];
				cr_assert_eq(
					spmt_plan_add(plan, r, 0, &op), 0, "%s", spmt_last_error());
			}
	plan_file(plan, file);
	spmt_plan_destroy(plan);
	refuses_file(file, "is no allgather");
}

/* A chunk, and the second half of two: of these it is all where chunks are whole lines. */
Test(plan_proofs, holes_of_odd_chunks)
{
	spmt_plan *plan = plan_of("allgather", 2, 2 * RANKS);
	char file[NAME];

	for (int r = 0; r < RANKS; r++)
		for (int to = 0; to < RANKS; to++) {
			struct spmt_plan_op op =
				spmt_plan_op_(to == r ? SPMT_PLAN_COPY : SPMT_PLAN_PUT);

			op.nsrc = op.ndst = 1;
			op.src[0] = spmt_plan_input(r, 0, 1);
			op.dst[0] = spmt_plan_output(to, 2 * (uint32_t)r, 1);
			cr_assert_eq(spmt_plan_add(plan, r, 0, &op), 0, "%s", spmt_last_error());
			op.src[0].count = op.dst[0].count = 2;
			op.slice = 1;
			op.slices = 2;
			cr_assert_eq(spmt_plan_add(plan, r, 0, &op), 0, "%s", spmt_last_error());
		}
	plan_file(plan, file);
	spmt_plan_destroy(plan);
	refuses_file(file, "is no allgather");
}

/* A file of some thousand bytes that would be tried with a gigabyte: of each chunk its parts. */
Test(plan_proofs, too_large_to_be_tried)
{
	spmt_plan *plan = plan_of("allreduce", 1u << 20, 1u << 20);
	struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_COPY);
	char file[NAME], text[2 * NAME];

	op.nsrc = op.ndst = 1;
	op.src[0] = spmt_plan_input(0, 0, 1);
	op.dst[0] = spmt_plan_output(0, 0, 1);
	op.slices = 32;
	for (op.slice = 0; op.slice < op.slices; op.slice++)
		cr_assert_eq(spmt_plan_add(plan, 0, 0, &op), 0, "%s", spmt_last_error());
	plan_file(plan, file);
	spmt_plan_destroy(plan);
	snprintf(text, sizeof(text), "plan:%s", file);
	refuses(text, -E2BIG, "plan p: trying whether it is right takes 1024 MiB, and 512", file);
}

/* A sum in place by packets: of so many chunks at once, cut into as many parts as there are blocks. Of one rank the last part is left out. */
static spmt_plan *parts_of_many(uint32_t chunks, int parts, bool all)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "parts",
		.collective = "allreduce",
		.nranks = RANKS,
		.in_place = 1,
		.output_chunks = chunks,
		.scratch_chunks = chunks * RANKS };
	spmt_plan *plan = NULL;

	cr_assert_eq(spmt_plan_create(&attr, &plan), 0, "%s", spmt_last_error());
	for (int i = 0; i < RANKS * parts; i++) {
		struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_PUT_PACKETS);
		int r = i / parts;

		op.slice = i % parts;
		op.slices = parts;
		op.nsrc = op.ndst = 1;
		op.src[0] = spmt_plan_output(r, 0, chunks);
		for (int d = 1; d < RANKS; d++) {
			op.dst[0] =
				spmt_plan_scratch((r + d) % RANKS, (uint32_t)r * chunks, chunks);
			cr_assert_eq(
				spmt_plan_add(plan, r, op.slice, &op), 0, "%s", spmt_last_error());
			op.src[d] =
				spmt_plan_scratch(r, (uint32_t)((r + d) % RANKS) * chunks, chunks);
		}
		op.kind = SPMT_PLAN_REDUCE_PACKETS;
		op.nsrc = RANKS;
		op.dst[0] = op.src[0];
		if (all || i < RANKS * parts - 1)
			cr_assert_eq(
				spmt_plan_add(plan, r, op.slice, &op), 0, "%s", spmt_last_error());
	}
	return plan;
}

enum { PARTS = 128, CHUNKS = 32 };

static int sums(spmt_comm *comm, void *arg)
{
	uint32_t *at;

	(void)arg;
	if (!host_access(comm))
		return 0;
	REQUIRE_OK(spmt_malloc(comm, 2 * CHUNKS * sizeof(*at), (void **)&at));
	for (uint32_t i = 0; i < 2 * CHUNKS; i++)
		at[i] = i + (uint32_t)spmt_rank(comm);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_all_reduce(comm, at, at, 2 * CHUNKS, SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	for (uint32_t i = 0; i < 2 * CHUNKS; i++)
		REQUIRE_EQ(at[i], RANKS * i + 6);
	return spmt_free(comm, at);
}

/* It is tried at as many sizes as twice its parts, while the other ranks wait. */
Test(plan_proofs, of_many_parts)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_plan *plan = parts_of_many(CHUNKS, PARTS, true);
	char file[NAME];

	attr.heap_size = 4u << 20;
	attr.timeout_ms = SANITIZED ? 0 : 3000;
	plan_file(plan, file);
	spmt_plan_destroy(plan);
	wish_for(file, ",only");
	RANKS_OK(ranks_run(RANKS, &attr, sums, NULL));
	plan = parts_of_many(CHUNKS, PARTS, false);
	plan_file(plan, file);
	spmt_plan_destroy(plan);
	refuses_file(file, "is no allreduce: of rank 3's output, chunk 31 is");
}

/* SPMT_TIMEOUT_MS below 0 is none. */
Test(plan_proofs, without_a_deadline)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_plan *plan = parts_of_many(2, 2, true);
	char file[NAME];

	attr.heap_size = 4u << 20;
	attr.timeout_ms = -1;
	plan_file(plan, file);
	spmt_plan_destroy(plan);
	wish_for(file, ",only");
	RANKS_OK(ranks_run(RANKS, &attr, sums, NULL));
}

/* The others do not wait for ever, nor where the world is broken; what has not been found out by then is no verdict, not even on a plan that
   stands still. */
Test(plan_proofs, while_others_wait)
{
	uint32_t stop = 0;
	struct plan_limit limit = { &stop, 0 };
	struct plan_found found = { .n = 0 };
	bool either;

	for (int i = 0; i < 4; i++) {
		int code = i > 1 ? -ECANCELED : SPMT_ERR_TIMEOUT;
		spmt_plan *plan = NULL;

		stop = i > 1;
		limit.until = stop ? INT64_MAX : 0;
		cr_assert_eq(made_plan("allreduce-packets", RANKS, &plan), 0);
		if (i % 2)
			cr_assert_eq(spmt_plan_wait(plan, 0, 0, 1, 0), 0);
		cr_expect_eq(plan_row_prove(plan, COLL_ALL_REDUCE, &limit), code);
		cr_expect(stop ||
				strstr(spmt_last_error(),
					"plan allreduce-packets: to check it, and to try it at all sizes"),
			"%s", spmt_last_error());
		cr_expect_eq(plan_row_either(plan, COLL_ALL_REDUCE, &limit, &found, &either), code);
		cr_expect_eq(found.n, 0);
		spmt_plan_destroy(plan);
	}
}

#define COLLECTIVE(word) "\"collective\": \"" word "\""

/* Plans that are right as such, or nearly, and yet no collective. */
Test(plan_proofs, what_is_no_row)
{
	spmt_plan *plan = NULL;
	char file[NAME];

	changed_file("allreduce", "{\"name\": \"signal\"", "{\"name\": \"nop\"", file);
	refuses_file(file, "waits for what nobody signals");
	changed_file("allgather", COLLECTIVE("allgather"), COLLECTIVE("broadcast"), file);
	refuses_file(file, "collective \"broadcast\" is none of");
	changed_file("allgather", COLLECTIVE("allgather"), COLLECTIVE("allreduce"), file);
	refuses_file(file, "are not those of an allreduce");
	changed_file("alltoall", COLLECTIVE("alltoall"), COLLECTIVE("allreduce"), file);
	refuses_file(file, "is no allreduce: of rank 0's output, chunk 0 is something else");
	changed_file("allreduce", COLLECTIVE("allreduce"), COLLECTIVE("alltoall"), file);
	refuses_file(file, "it reduces, which an alltoall does not");
	changed_file("allreduce-packets", "\"min_message_size\": 0",
		"\"min_message_size\": 33554432", file);
	refuses_file(file, "fits no call: min_message_size is 33554432, and");
	/* folds scratch that nobody has written: a sum does not tell */
	cr_assert_eq(
		spmt_plan_create(&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					 .name = "zero",
					 .collective = "allreduce",
					 .nranks = RANKS,
					 .input_chunks = 1,
					 .output_chunks = 1,
					 .scratch_chunks = 1 },
			&plan),
		0);
	for (int r = 0; r < RANKS; r++) {
		struct spmt_plan_chunk out = spmt_plan_output(r, 0, 1), terms[RANKS],
				       zero[] = { out, spmt_plan_scratch(r, 0, 1) };

		for (int i = 0; i < RANKS; i++)
			terms[i] = spmt_plan_input((r + i) % RANKS, 0, 1);
		cr_assert_eq(spmt_plan_reduce(plan, r, 0, out, terms, RANKS), 0);
		cr_assert_eq(spmt_plan_reduce(plan, r, 0, out, zero, 2), 0);
	}
	plan_file(plan, file);
	spmt_plan_destroy(plan);
	refuses_file(file, "is no allreduce");
}

/* A plan of nothing does nothing, and would be right of nothing. */
Test(plan_proofs, of_scratch_alone)
{
	static const char *const words[] = { "allreduce", "allgather", "reducescatter",
		"alltoall" };

	for (int i = 0; i < 4; i++) {
		spmt_plan *plan = plan_of(words[i], 0, 0);
		char file[NAME], says[80];

		plan_file(plan, file);
		spmt_plan_destroy(plan);
		snprintf(says, sizeof(says),
			"0 chunks of input and 0 of output are not those of an %s", words[i]);
		refuses_file(file, says);
	}
}

/* For another number of ranks there is another row, but with "only". */
Test(plan_proofs, of_other_ranks)
{
	char file[NAME], text[2 * NAME];

	made_file("allreduce", RANKS - 1, file);
	snprintf(text, sizeof(text), "plan:%s,only", file);
	refuses(text, -EINVAL, "is for 3 ranks, the world has 4", file);
}

static int differs(int rank, void *arg)
{
	struct refusal *r = arg;
	struct spmt_attr attr = ranks_attr(rank, 2, &r->p.uid[0]);
	spmt_comm *comm;

	setenv("SPMT_COLL", rank ? r->says : r->also, 1);
	REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("SPMT_COLL's plans (folded) differs: rank 1 passed ");
	return 0;
}

Test(plan_proofs, not_on_all_ranks)
{
	char files[2][NAME], texts[2][3 * NAME];
	struct refusal r = { .p = { .layout = "0|1" }, .says = texts[0], .also = texts[1] };

	made_file("allreduce", 2, files[0]);
	made_file("allreduce-packets", 2, files[1]);
	for (int i = 0; i < 2; i++)
		snprintf(texts[i], sizeof(texts[i]), "plan:%s", files[i]);
	RANKS_OK(processes_run(&r.p, differs, &r));
	r.also = "";
	RANKS_OK(processes_run(&r.p, differs, &r));
}
