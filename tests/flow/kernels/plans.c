/* SPDX-License-Identifier: MIT */
/* Plans on a comm: every operation with every type and op, random ones as the simulator has them, and what is refused. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt_plan.h"
#include "src/base/names.h"
#include "tests/lib/folds.h"
#include "tests/lib/plan/plans.h"
#include "tests/lib/ranks.h"

/* On each rank, the output behind the last of `runs` to out, `bytes` a rank. */
struct on_ranks {
	const spmt_plan *plan;
	enum spmt_type type;
	enum spmt_op op;
	size_t chunk; /* elements */
	int runs;
	unsigned char *out;
};

static int runs_plan(spmt_comm *comm, void *arg)
{
	struct on_ranks *o = arg;
	struct spmt_plan_info info = { .size = sizeof(info) };
	size_t size = type_size(o->type), count, bytes = plans_output(o->plan, o->type, o->chunk);
	spmt_plan_open *open;
	void *in, *dst, *local;

	REQUIRE_OK(spmt_plan_about(o->plan, &info));
	count = info.attr.input_chunks * o->chunk;
	REQUIRE_OK(spmt_plan_begin(comm, o->plan, count * size, &open));
	REQUIRE_OK(spmt_malloc(comm, count * size, &in));
	REQUIRE_OK(spmt_calloc(comm, 1, bytes, &dst));
	local = calloc(1, count * size);
	REQUIRE(local);
	plans_input(o->type, spmt_rank(comm), count, local);
	REQUIRE_OK(spmt_copy_in(comm, in, local, count * size));
	for (int i = 0; i < o->runs; i++)
		REQUIRE_OK(spmt_plan_run(comm, open, dst, in, count, o->type, o->op, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_copy_out(comm, o->out + (size_t)spmt_rank(comm) * bytes, dst, bytes));
	free(local);
	REQUIRE_OK(spmt_plan_end(comm, open));
	REQUIRE_OK(spmt_free(comm, dst));
	return spmt_free(comm, in);
}

/* Random plans, those of as many ranks one after the other in one world: to open one takes a GPU longer than a plan. */
enum { BATCH = 50 };
struct batch {
	struct drawn {
		spmt_plan *plan;
		struct on_ranks run;
		int nranks;
		unsigned char *want; /* all ranks' */
	} drawn[BATCH];
	uint64_t first; /* its seed */
	size_t n;
	_Atomic uint64_t seed; /* which rank 0 is at */
};

static int runs_batch(spmt_comm *comm, void *arg)
{
	struct batch *b = arg;
	size_t rank = (size_t)spmt_rank(comm);

	for (size_t i = 0; i < b->n; i++) {
		struct drawn *d = &b->drawn[i];
		size_t bytes = plans_output(d->plan, d->run.type, d->run.chunk);

		if (d->nranks != spmt_nranks(comm))
			continue;
		if (!rank)
			atomic_store(&b->seed, b->first + i);
		TRY(runs_plan(comm, &d->run));
		REQUIRE(!memcmp(d->run.out + rank * bytes, d->want + rank * bytes, bytes));
	}
	return 0;
}

static void draw(struct drawn *d, uint64_t seed, int ranks)
{
	struct spmt_plan_info info = { .size = sizeof(info) };
	size_t all, chunk = 2 + seed % 40 * 2;

	cr_assert_eq(plans_random(seed, ranks, 3, PLANS_RIGHT, &d->plan), 0);
	cr_assert_eq(spmt_plan_about(d->plan, &info), 0);
	d->nranks = info.attr.nranks;
	d->run = (struct on_ranks){ d->plan, SPMT_TYPE_I32, SPMT_OP_SUM, chunk, 1, NULL };
	all = plans_output(d->plan, SPMT_TYPE_I32, chunk) * (size_t)d->nranks;
	d->run.out = calloc(2, all);
	cr_assert_not_null(d->run.out);
	d->want = d->run.out + all;
	cr_assert_eq(plans_simulate(d->plan, SPMT_TYPE_I32, SPMT_OP_SUM, chunk, 1, d->want), 0);
}

/* As many on GPUs. */
static size_t plans_drawn(void)
{
	size_t n = test_long() ? 5000 : 1000;

	return SANITIZED ? n / 8 : n;
}

Test(plans, random_ones_as_simulated)
{
	static struct batch b;
	int ranks = ranks_here(PLANS_RANKS);

	for (b.first = 0; b.first < plans_drawn(); b.first += b.n) {
		size_t left = plans_drawn() - b.first;

		b.n = left < BATCH ? left : BATCH;
		for (size_t i = 0; i < b.n; i++)
			draw(&b.drawn[i], b.first + i, ranks);
		for (int n = 1; n <= ranks; n++)
			cr_assert_eq(ranks_run(n, NULL, runs_batch, &b), 0, "seed %llu: %s",
				(unsigned long long)b.seed, ranks_message());
		for (size_t i = 0; i < b.n; i++) {
			free(b.drawn[i].run.out);
			spmt_plan_destroy(b.drawn[i].plan);
		}
	}
}

/* ---- every operation, type and op ------------------------------------------------------------------- */

enum { OP_CHUNKS = 8 };

static int make_plan(int nranks, spmt_plan **plan)
{
	return spmt_plan_create(&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					.name = "each",
					.collective = "each",
					.nranks = nranks,
					.input_chunks = 2,
					.output_chunks = OP_CHUNKS,
					.scratch_chunks = 3 },
		plan);
}

/* Rank 0 has block 0 do one of each, rank 1 what belongs to it; chunk by chunk of rank 0's output:
   0 copied, 1 got, 2 put by rank 1, 3 folded of this and that rank, 4 unpacked, 5 folded with packets, 6 sent on by rank 1 */
static int one_of_each(spmt_plan *p)
{
	const struct spmt_plan_chunk both[] = { spmt_plan_input(0, 0, 1),
		spmt_plan_input(1, 1, 1) },
				     packets[] = { spmt_plan_input(0, 1, 1),
					     spmt_plan_scratch(0, 0, 1) };
	struct spmt_plan_op on = spmt_plan_op_(SPMT_PLAN_SEND_PACKETS_ON);

	REQUIRE_OK(spmt_plan_copy(p, 0, 0, spmt_plan_input(0, 0, 1), spmt_plan_output(0, 0, 1)));
	REQUIRE_OK(spmt_plan_fetch(p, 0, 0, spmt_plan_input(1, 1, 1), spmt_plan_output(0, 1, 1)));
	REQUIRE_OK(spmt_plan_put(p, 1, 0, spmt_plan_input(1, 0, 1), spmt_plan_output(0, 2, 1)));
	REQUIRE_OK(spmt_plan_signal(p, 1, 0, 0, 0));
	REQUIRE_OK(spmt_plan_wait(p, 0, 0, 1, 0));
	REQUIRE_OK(spmt_plan_reduce(p, 0, 0, spmt_plan_output(0, 3, 1), both, 2));
	REQUIRE_OK(spmt_plan_put_packets(
		p, 1, 0, spmt_plan_input(1, 0, 1), spmt_plan_scratch(0, 0, 1)));
	REQUIRE_OK(spmt_plan_unpack_packets(
		p, 0, 1, spmt_plan_scratch(0, 0, 1), spmt_plan_output(0, 4, 1)));
	REQUIRE_OK(spmt_plan_reduce_packets(p, 0, 0, spmt_plan_output(0, 5, 1), packets, 2));
	REQUIRE_OK(spmt_plan_put_packets(
		p, 0, 1, spmt_plan_input(0, 1, 1), spmt_plan_scratch(1, 1, 1)));
	on.nsrc = on.ndst = 1;
	on.src[0] = spmt_plan_scratch(1, 1, 1);
	on.dst[0] = spmt_plan_scratch(0, 2, 1);
	REQUIRE_OK(spmt_plan_add(p, 1, 1, &on));
	REQUIRE_OK(spmt_plan_unpack_packets(
		p, 0, 1, spmt_plan_scratch(0, 2, 1), spmt_plan_output(0, 6, 1)));
	REQUIRE_OK(spmt_plan_barrier(p, 0, 0, 0, 2));
	REQUIRE_OK(spmt_plan_barrier(p, 0, 1, 0, 2));
	return spmt_plan_copy(p, 0, 0, spmt_plan_output(0, 6, 1), spmt_plan_output(0, 7, 1));
}

static uint64_t element(const void *at, size_t i, enum spmt_type type)
{
	uint64_t x = 0;

	memcpy(&x, (const unsigned char *)at + i * type_size(type), type_size(type));
	return x;
}

/* By the fold of the tests' own oracle. */
static int right_elements(
	const unsigned char *out, enum spmt_type type, enum spmt_op op, size_t chunk)
{
	uint64_t in[2][512 * 2];

	for (int r = 0; r < 2; r++)
		plans_input(type, r, 2 * chunk, in[r]);
	for (size_t i = 0; i < chunk; i++) {
		uint64_t a = element(in[0], i, type), b = element(in[0], chunk + i, type),
			 c = element(in[1], i, type), d = element(in[1], chunk + i, type);
		const uint64_t ad[] = { a, d }, bc[] = { b, c };
		const uint64_t want[OP_CHUNKS] = { a, d, c, folds_of(type, op, ad, 2), c,
			folds_of(type, op, bc, 2), b, b };

		for (size_t k = 0; k < OP_CHUNKS; k++)
			REQUIRE_EQ(element(out, k * chunk + i, type), want[k]);
	}
	return 0;
}

Test(plans, every_operation_with_every_type_and_op)
{
	static unsigned char out[2 * OP_CHUNKS * 512 * 8];
	spmt_plan *plan = NULL;

	NEEDS_DEVICES(2);
	cr_assert_eq(make_plan(2, &plan), 0);
	cr_assert_eq(one_of_each(plan), 0, "%s", spmt_last_error());
	for (enum spmt_type type = 0; type <= SPMT_TYPE_F64; type++)
		for (enum spmt_op op = 0; op <= SPMT_OP_XOR; op++) {
			struct on_ranks o = { plan, type, op, 8 * (1 + (size_t)op), 3, out };

			if (!folds_valid(type, op))
				continue;
			RANKS_OK(ranks_run(2, NULL, runs_plan, &o));
			cr_assert_eq(right_elements(out, type, op, o.chunk), 0, "%s %s: %s",
				type_name(type), op_name(op), spmt_last_error());
		}
	spmt_plan_destroy(plan);
}

/* ---- in place --------------------------------------------------------------------------------- */

/* Each rank puts its own part to all others. */
static int gathers_in_place(spmt_comm *comm, void *arg)
{
	enum { EACH = 96 };
	const spmt_plan *plan = arg;
	int n = spmt_nranks(comm), rank = spmt_rank(comm);
	spmt_plan_open *open;
	uint32_t *dst, got[PLANS_RANKS * EACH];

	REQUIRE_OK(spmt_plan_begin(comm, plan, EACH * sizeof(*dst), &open));
	REQUIRE_OK(spmt_malloc(comm, sizeof(got), (void **)&dst));
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < EACH; i++)
			got[rank * EACH + i] = (uint32_t)(round * 1000000 + rank * 1000 + i);
		REQUIRE_OK(spmt_copy_in(
			comm, dst + rank * EACH, got + rank * EACH, EACH * sizeof(*dst)));
		REQUIRE_CODE(
			spmt_plan_run(comm, open, dst, dst, EACH, SPMT_TYPE_U32, SPMT_OP_SUM, NULL),
			rank ? -EINVAL : 0);
		if (rank)
			REQUIRE_OK(spmt_plan_run(comm, open, dst, dst + rank * EACH, EACH,
				SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_copy_out(comm, got, dst, sizeof(got)));
		for (int i = 0; i < n * EACH; i++)
			REQUIRE_EQ(
				got[i], (uint32_t)(round * 1000000 + i / EACH * 1000 + i % EACH));
	}
	REQUIRE_OK(spmt_plan_end(comm, open));
	return spmt_free(comm, dst);
}

Test(plans, in_place)
{
	int n = ranks_here(PLANS_RANKS);
	spmt_plan *plan = NULL;

	cr_assert_eq(
		spmt_plan_create(&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					 .name = "gather",
					 .collective = "allgather",
					 .nranks = n,
					 .in_place = 1,
					 .input_chunks = 2,
					 .output_chunks = 2 * (uint32_t)n },
			&plan),
		0);
	for (int r = 0; r < n; r++)
		for (int p = 0; p < n; p++)
			if (p != r)
				cr_assert_eq(spmt_plan_put(plan, r, p % 2, spmt_plan_input(r, 0, 2),
						     spmt_plan_output(p, (uint32_t)r * 2, 2)),
					0);
	RANKS_OK(ranks_run(n, NULL, gathers_in_place, plan));
	spmt_plan_destroy(plan);
}

/* ---- what is refused, and what goes wrong ----------------------------------------------------------- */

static int refusals(spmt_comm *comm, void *arg)
{
	spmt_plan *plan = arg;
	spmt_plan_open *open, *left, *none = NULL;
	uint64_t *dst, *src, local[8] = { 3 };
	enum spmt_op scaled;

	REQUIRE_OK(spmt_op_premul_create(comm, SPMT_TYPE_U64, local, SPMT_SCALAR_HOST, &scaled));
	REQUIRE_OK(spmt_plan_begin(comm, plan, 1024, &open));
	REQUIRE_OK(spmt_malloc(comm, 8192, (void **)&dst));
	REQUIRE_OK(spmt_malloc(comm, 2048, (void **)&src));
#define RUN(o, d, s, n, type, op) \
	spmt_plan_run(comm, o, d, s, n, SPMT_TYPE_##type, SPMT_OP_##op, NULL)
	REQUIRE_CODE(RUN(open, dst, src, 1024, U64, SUM), -EINVAL);
	REQUIRE_SAYS("max_bytes");
	REQUIRE_CODE(RUN(open, dst, src, 3, U64, SUM), -EINVAL);
	REQUIRE_SAYS("multiple of the plan's 2 chunks");
	REQUIRE_CODE(RUN(open, dst, src, 2, U32, SUM), -EINVAL);
	REQUIRE_SAYS("multiples of 8");
	REQUIRE_CODE(RUN(open, dst, src, 16, F8E5M2, SUM), -EINVAL);
	REQUIRE_CODE(RUN(open, dst, src, 16, U64, AVG), -EINVAL);
	REQUIRE_CODE(spmt_plan_run(comm, open, dst, src, 16, SPMT_TYPE_U64, scaled, NULL), -EINVAL);
	REQUIRE_SAYS("is one of spmt_op_premul_create: a plan folds with no factors");
	REQUIRE_CODE(RUN(open, dst, src, 16, F32, XOR), -EINVAL);
	REQUIRE_CODE(RUN(open, local, src, 2, U64, SUM), -EINVAL);
	REQUIRE_CODE(RUN(open, dst, dst, 2, U64, SUM), -EINVAL);
	REQUIRE_SAYS("overlap");
	REQUIRE_CODE(RUN(open, NULL, src, 2, U64, SUM), -EINVAL);
	REQUIRE_CODE(RUN(NULL, dst, src, 2, U64, SUM), -EINVAL);
	REQUIRE_CODE(spmt_plan_end(comm, NULL), -EINVAL);
	REQUIRE_CODE(spmt_plan_begin(comm, NULL, 64, &none), -EINVAL);
	REQUIRE_OK(RUN(open, dst, src, 0, U64, SUM));
	REQUIRE_OK(RUN(open, NULL, NULL, 0, U64, SUM));
	REQUIRE_OK(RUN(open, dst, src, 16, U64, SUM));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_plan_begin(comm, plan, 64, &left));
	REQUIRE_OK(spmt_plan_end(comm, open));
	REQUIRE_CODE(RUN(open, dst, src, 16, U64, SUM), -EINVAL);
	REQUIRE_SAYS("open is of another comm, or has ended");
	REQUIRE_CODE(spmt_plan_end(comm, open), -EINVAL);
	REQUIRE_SAYS("open is of another comm, or has ended");
	REQUIRE_OK(RUN(left, dst, src, 8, U64, SUM)); /* which finalize drops */
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_free(comm, src));
	return spmt_free(comm, dst);
}

Test(plans, what_is_refused)
{
	spmt_plan *plan = NULL;

	NEEDS_DEVICES(2);
	cr_assert_eq(make_plan(2, &plan), 0);
	cr_assert_eq(one_of_each(plan), 0);
	RANKS_OK(ranks_run(2, NULL, refusals, plan));
	spmt_plan_destroy(plan);
}

/* What is not checked is not begun, on no rank; and plans that differ are told to all. */
static int not_begun(spmt_comm *comm, void *arg)
{
	spmt_plan *const *plans = arg;
	spmt_plan_open *open;

	REQUIRE_CODE(spmt_plan_begin(comm, plans[1], 64, &open), -EINVAL);
	REQUIRE_SAYS("deadlock");
	REQUIRE_CODE(spmt_plan_begin(comm, plans[0], 64 * (size_t)(1 + spmt_rank(comm)), &open),
		SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("max_bytes differs: rank 1 passed 128, rank 0 passed 64");
	REQUIRE_CODE(spmt_plan_begin(comm, plans[spmt_rank(comm) ? 2 : 0], 64, &open),
		SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("plan differs: rank 1 passed each (each, 2 ranks, 2 input, 8 output, ");
	REQUIRE_SAYS("1 operations in 1 blocks), rank 0 passed each (");
	REQUIRE_CODE(
		spmt_plan_begin(comm, plans[2 + spmt_rank(comm)], 64, &open), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS(
		"an operation of the plan (spmt_plan_write shows them) differs: rank 1 passed each (");
	REQUIRE_CODE(spmt_plan_begin(comm, plans[0], (size_t)1 << 40, &open), -ENOMEM);
	REQUIRE_SAYS("spmt_plan_begin: spmt_calloc: ");
	REQUIRE_OK(spmt_plan_begin(comm, plans[0], 64, &open));
	return spmt_plan_end(comm, open);
}

Test(plans, what_is_not_begun)
{
	spmt_plan *plans[4];

	NEEDS_DEVICES(2);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(make_plan(2, &plans[i]), 0);
	for (int r = 0; r < 2; r++) {
		cr_assert_eq(spmt_plan_wait(plans[1], r, 0, 1 - r, 0), 0);
		cr_assert_eq(spmt_plan_signal(plans[1], r, 0, 1 - r, 0), 0);
		cr_assert_eq(spmt_plan_copy(plans[2 + r], 0, 0, spmt_plan_input(0, 0, 1),
				     spmt_plan_output(0, (uint32_t)r, 1)),
			0);
	}
	RANKS_OK(ranks_run(2, NULL, not_begun, plans));
	for (int i = 0; i < 4; i++)
		spmt_plan_destroy(plans[i]);
}

enum odd { ODD_COUNT, ODD_TYPE, ODD_OP, ODD_DST, ODD_SRC, ODD_WAYS };

/* One run, rank 1's with another argument. */
static int odd_run(spmt_comm *comm, spmt_plan_open *open, char *dst, char *src, enum odd way)
{
	bool odd = spmt_rank(comm) == 1;

	return spmt_plan_run(comm, open, dst + (odd && way == ODD_DST ? 64 : 0),
		src + (odd && way == ODD_SRC ? 128 : 0), odd && way == ODD_COUNT ? 8 : 16,
		odd && way == ODD_TYPE ? SPMT_TYPE_I64 : SPMT_TYPE_U64,
		odd && way == ODD_OP ? SPMT_OP_MAX : SPMT_OP_SUM, NULL);
}

/* Any rank's sentence has both values; of places any. */
static int says_odd(const char *name, const char *usual, const char *odd)
{
	char want[96];

	snprintf(want, sizeof(want), "spmt_plan_run: %s differs: rank ", name);
	REQUIRE_SAYS(want);
	snprintf(want, sizeof(want), "rank 0 passed %s", usual);
	REQUIRE_SAYS(want);
	snprintf(want, sizeof(want), "rank 1 passed %s", odd);
	REQUIRE_SAYS(want);
	return 0;
}

/* All hear which argument it was; nothing was moved, and the next run does what it is to. */
static int differ(spmt_comm *comm, void *arg)
{
	static const char *const said[ODD_WAYS][3] = { { "count", "16", "8" },
		{ "type", "u64", "i64" }, { "op", "sum", "max" }, { "dst (as an offset)", "", "" },
		{ "src (as an offset)", "", "" } };
	static const unsigned char nothing[OP_CHUNKS * 64];
	unsigned char got[sizeof(nothing)];
	spmt_plan_open *open;
	char *dst, *src;

	REQUIRE_OK(spmt_plan_begin(comm, arg, 1024, &open));
	REQUIRE_OK(spmt_calloc(comm, 1, 8192, (void **)&dst));
	REQUIRE_OK(spmt_calloc(comm, 1, 2048, (void **)&src));
	plans_input(SPMT_TYPE_U64, spmt_rank(comm), 16, got);
	REQUIRE_OK(spmt_copy_in(comm, src, got, 16 * sizeof(uint64_t)));
	for (enum odd way = 0; way < ODD_WAYS; way++) {
		REQUIRE_OK(odd_run(comm, open, dst, src, way));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_MISMATCH);
		TRY(says_odd(said[way][0], said[way][1], said[way][2]));
		REQUIRE_OK(spmt_copy_out(comm, got, dst, sizeof(got)));
		REQUIRE(!memcmp(got, nothing, sizeof(got)));
		REQUIRE_OK(spmt_status(comm));
		REQUIRE_OK(odd_run(comm, open, dst + 4096, src, ODD_WAYS));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_copy_out(comm, got, dst + 4096, sizeof(got)));
		if (!spmt_rank(comm))
			TRY(right_elements(got, SPMT_TYPE_U64, SPMT_OP_SUM, 8));
	}
	REQUIRE_OK(spmt_plan_end(comm, open));
	REQUIRE_OK(spmt_free(comm, src));
	return spmt_free(comm, dst);
}

static int differ_in_plan(spmt_comm *comm, void *arg)
{
	spmt_plan_open *open[2];
	char *dst, *src;
	int rc;

	for (int i = 0; i < 2; i++)
		REQUIRE_OK(spmt_plan_begin(comm, arg, 1024, &open[i]));
	REQUIRE_OK(spmt_calloc(comm, 1, 8192, (void **)&dst));
	REQUIRE_OK(spmt_calloc(comm, 1, 2048, (void **)&src));
	rc = odd_run(comm, open[spmt_rank(comm)], dst, src, ODD_WAYS);
	rc = rc ? rc : spmt_quiet(comm);
	REQUIRE_EQ(rc, SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("spmt_plan_run: open (by order of spmt_plan_begin) differs: rank ");
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_MISMATCH);
	for (int i = 0; i < 2; i++)
		REQUIRE(spmt_plan_end(comm, open[i]) < 0);
	return 0;
}

static void on_two(int (*fn)(spmt_comm *, void *))
{
	spmt_plan *plan = NULL;

	cr_assert_eq(make_plan(2, &plan), 0);
	cr_assert_eq(one_of_each(plan), 0);
	RANKS_OK(ranks_run(2, NULL, fn, plan));
	spmt_plan_destroy(plan);
}

Test(plans, arguments_that_differ)
{
	NEEDS_DEVICES(2);
	on_two(differ);
}

Test(plans, plans_that_differ)
{
	NEEDS_DEVICES(2);
	on_two(differ_in_plan);
}

/* ---- neither input nor output -------------------------------------------------------------------- */

/* Scratch and packets go round, by as many semaphores as there may be. */
static int scratch_alone(spmt_plan *plan)
{
	for (int r = 0; r < 2; r++) {
		int other = 1 - r;
		struct spmt_plan_chunk own = spmt_plan_scratch(r, 0, 1);

		REQUIRE_OK(spmt_plan_put(plan, r, 0, own, spmt_plan_scratch(other, 1, 1)));
		REQUIRE_OK(spmt_plan_signal(plan, r, 0, other, 0));
		for (int i = 0; i < SPMT_PLAN_SEMAPHORES; i++) {
			REQUIRE_OK(spmt_plan_release(plan, r, 0, i));
			REQUIRE_OK(spmt_plan_acquire(plan, r, 1, i, 0));
		}
		REQUIRE_OK(spmt_plan_wait(plan, r, 1, other, 0));
		REQUIRE_OK(spmt_plan_put_packets(
			plan, r, 1, spmt_plan_scratch(r, 1, 1), spmt_plan_scratch(other, 2, 1)));
		REQUIRE_OK(spmt_plan_unpack_packets(
			plan, r, 1, spmt_plan_scratch(r, 2, 1), spmt_plan_scratch(r, 2, 1)));
	}
	return spmt_plan_check(plan);
}

static int runs_alone(spmt_comm *comm, void *arg)
{
	spmt_plan_open *open;
	int me = spmt_rank(comm);

	REQUIRE_OK(spmt_plan_begin(comm, arg, 1024, &open));
	for (size_t count = 0; count <= 128; count += 64)
		REQUIRE_OK(spmt_plan_run(
			comm, open, NULL, NULL, count, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_CODE(spmt_plan_run(comm, open, NULL, NULL, 129, SPMT_TYPE_U64, SPMT_OP_SUM, NULL),
		-EINVAL);
	REQUIRE_SAYS("more than the max_bytes 1024");
	REQUIRE_OK(spmt_plan_run(comm, open, me ? (void *)&open : NULL, NULL, (size_t)me + 1,
		SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("count differs: rank ");
	return spmt_plan_end(comm, open);
}

Test(plans, neither_input_nor_output)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "alone",
		.collective = "test",
		.nranks = 2,
		.scratch_chunks = 3 };
	struct spmt_plan_trial trial = {
		.size = sizeof(trial), .count = 7, .type = SPMT_TYPE_U64, .op = SPMT_OP_SUM
	};
	spmt_plan *plan = NULL;

	NEEDS_DEVICES(2);
	cr_assert_eq(spmt_plan_create(&attr, &plan), 0);
	cr_assert_eq(scratch_alone(plan), 0, "%s", spmt_last_error());
	cr_expect_eq(spmt_plan_simulate(plan, &trial), 0, "%s", spmt_last_error());
	RANKS_OK(ranks_run(2, NULL, runs_alone, plan));
	spmt_plan_destroy(plan);
}
