/* SPDX-License-Identifier: MIT */
/* Reductions of plans with several sources and several destinations, of this rank and of others, plain and packets, whole and in parts, at any
   alignment: every type and op, bit by bit. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "spmt_plan.h"
#include "src/base/names.h"
#include "tests/lib/device/backend_here.h"
#include "tests/lib/folds.h"
#include "tests/lib/ranks.h"

/* LONG elements of 8 bytes are more than 512 threads have in flight. */
enum { RANKS = 3, INPUTS = 4, FORMS = 3, LONG = 4099, CHUNK = 8 * LONG };

/* Of each rank r: the fold of term j of rank (r + j) % n, for j below `terms`. */
struct folding {
	spmt_plan *plan;
	int n, terms, blocks;
	bool packets;
};

static uint64_t given(enum spmt_type type, int rank, uint64_t i)
{
	uint64_t x = ((uint64_t)rank * 1000003 + i + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
	return (x ^ x >> 32) & folds_mask(type);
}

/* ---- plans ------------------------------------------------------------------------------------- */

static struct spmt_plan_op op_of(const struct folding *f, enum spmt_plan_kind kind, int block)
{
	return (struct spmt_plan_op){ .size = sizeof(struct spmt_plan_op),
		.kind = kind,
		.slice = f->blocks > 1 ? block : 0,
		.slices = f->blocks > 1 ? f->blocks : 0 };
}

static int move(const struct folding *f, enum spmt_plan_kind kind, int rank, int block,
	struct spmt_plan_chunk src, struct spmt_plan_chunk dst)
{
	struct spmt_plan_op op = op_of(f, kind, block);

	op.nsrc = op.ndst = 1;
	op.src[0] = src;
	op.dst[0] = dst;
	return spmt_plan_add(f->plan, rank, block, &op);
}

/* To output chunk r of all, and to two more places of this rank, the second of which is copied. */
static int folds_plain(const struct folding *f, int r, int block)
{
	struct spmt_plan_op op = op_of(f, SPMT_PLAN_REDUCE, block);
	struct spmt_plan_chunk last = spmt_plan_scratch(r, 1, 1);
	uint32_t n = (uint32_t)f->n, own = (uint32_t)r;

	op.nsrc = f->terms;
	for (int j = 0; j < f->terms; j++)
		op.src[j] = spmt_plan_input((r + j) % f->n, (uint32_t)j % INPUTS, 1);
	for (int j = 0; j < f->n; j++)
		op.dst[op.ndst++] = spmt_plan_output((r + j) % f->n, own, 1);
	op.dst[op.ndst++] = spmt_plan_output(r, n + own, 1);
	op.dst[op.ndst++] = last;
	REQUIRE_OK(spmt_plan_add(f->plan, r, block, &op));
	return move(f, SPMT_PLAN_COPY, r, block, last, spmt_plan_output(r, 2 * n + own, 1));
}

/* Term j comes in scratch chunk j; the result goes to chunk 16 + r of all. The first packets are read once more. */
static int folds_packets(const struct folding *f, int r, int block)
{
	struct spmt_plan_op op = op_of(f, SPMT_PLAN_REDUCE_PACKETS, block);
	uint32_t n = (uint32_t)f->n, own = (uint32_t)r;

	op.nsrc = f->terms;
	op.src[0] = spmt_plan_input(r, 0, 1);
	for (int j = 1; j < f->terms; j++)
		op.src[j] = spmt_plan_scratch(r, (uint32_t)j, 1);
	op.dst[op.ndst++] = spmt_plan_output(r, own, 1);
	for (int j = 0; j < f->n; j++)
		op.dst[op.ndst++] = spmt_plan_scratch((r + j) % f->n, SPMT_PLAN_TERMS + own, 1);
	REQUIRE_OK(spmt_plan_add(f->plan, r, block, &op));
	REQUIRE_OK(move(f, SPMT_PLAN_UNPACK_PACKETS, r, block, spmt_plan_scratch(r, 1, 1),
		spmt_plan_output(r, 2 * n + own, 1)));
	for (int q = 0; q < f->n; q++)
		REQUIRE_OK(move(f, SPMT_PLAN_UNPACK_PACKETS, r, block,
			spmt_plan_scratch(r, SPMT_PLAN_TERMS + (uint32_t)q, 1),
			spmt_plan_output(r, q == r ? n + own : (uint32_t)q, 1)));
	return 0;
}

static int gives(const struct folding *f, int r, int block)
{
	for (int j = 1; f->packets && j < f->terms; j++)
		REQUIRE_OK(move(f, SPMT_PLAN_PUT_PACKETS, (r + j) % f->n, block,
			spmt_plan_input((r + j) % f->n, (uint32_t)j % INPUTS, 1),
			spmt_plan_scratch(r, (uint32_t)j, 1)));
	return 0;
}

static int make(struct folding *f)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "folds",
		.collective = "folds",
		.nranks = f->n,
		.input_chunks = INPUTS,
		.output_chunks = FORMS * (uint32_t)f->n,
		.scratch_chunks = SPMT_PLAN_TERMS + RANKS };

	REQUIRE_OK(spmt_plan_create(&attr, &f->plan));
	for (int r = 0; r < f->n; r++)
		for (int b = 0; b < f->blocks; b++)
			TRY(gives(f, r, b));
	for (int r = 0; r < f->n; r++)
		for (int b = 0; b < f->blocks; b++)
			TRY(f->packets ? folds_packets(f, r, b) : folds_plain(f, r, b));
	return 0;
}

/* ---- runs -------------------------------------------------------------------------------------- */

/* Element i of a chunk. */
static uint64_t term(enum spmt_type type, int rank, int j, size_t chunk, size_t i)
{
	return given(type, rank, (uint64_t)j % INPUTS * chunk + i);
}

static uint64_t wanted(const struct folding *f, enum spmt_type type, enum spmt_op op, int r,
	size_t chunk, size_t i)
{
	uint64_t in[SPMT_PLAN_TERMS];

	for (int j = 0; j < f->terms; j++)
		in[j] = term(type, (r + j) % f->n, j, chunk, i);
	return folds_of(type, op, in, f->terms);
}

static uint64_t element(const unsigned char *at, size_t i, enum spmt_type type)
{
	uint64_t x = 0;

	memcpy(&x, at + i * type_size(type), type_size(type));
	return x;
}

static int holds(const struct folding *f, enum spmt_type type, enum spmt_op op, int rank,
	size_t chunk, const unsigned char *out)
{
	size_t n = (size_t)f->n, own = (size_t)rank;

	for (size_t i = 0; i < chunk; i++) {
		uint64_t mine = wanted(f, type, op, rank, chunk, i), last = mine;

		if (f->packets)
			last = term(type, (rank + 1) % f->n, 1, chunk, i);
		for (size_t r = 0; r < n; r++)
			REQUIRE_EQ(element(out, r * chunk + i, type),
				wanted(f, type, op, (int)r, chunk, i));
		REQUIRE_EQ(element(out, (n + own) * chunk + i, type), mine);
		REQUIRE_EQ(element(out, (2 * n + own) * chunk + i, type), last);
	}
	return 0;
}

struct buffers {
	unsigned char *dst, *src, *in, *out;
};

/* dst and src lie as many elements behind what is aligned as `shift` says. */
static int runs(spmt_comm *comm, const struct folding *f, spmt_plan_open *open,
	const struct buffers *b, enum spmt_type type, enum spmt_op op, size_t chunk, int shift)
{
	size_t size = type_size(type), ins = INPUTS * chunk * size;
	size_t outs = FORMS * (size_t)f->n * chunk * size;
	unsigned char *dst = b->dst + (size_t)(shift & 1) * size,
		      *src = b->src + (size_t)(shift >> 1) * size;
	int rank = spmt_rank(comm);

	for (size_t i = 0; i < INPUTS * chunk; i++) {
		uint64_t x = given(type, rank, i);

		memcpy(b->in + i * size, &x, size);
	}
	REQUIRE_OK(spmt_copy_in(comm, src, b->in, ins));
	REQUIRE_OK(spmt_plan_run(comm, open, dst, src, INPUTS * chunk, type, op, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_copy_out(comm, b->out, dst, outs));
	if (holds(f, type, op, rank, chunk, b->out))
		return ranks_fail("%s %s, %zu elements, %d terms, shift %d: wrong", type_name(type),
			op_name(op), chunk, f->terms, shift);
	return spmt_barrier(comm);
}

/* Elements of a chunk: some that leave no unit whole, some that are less than a unit, and enough for several of a thread. */
static size_t chunk_of(const struct folding *f, enum spmt_type type, enum spmt_op op)
{
	const size_t sizes[] = { 1, 16, 37, 129, on_host() ? LONG / 8 : LONG };
	size_t each = f->packets ? 8 / type_size(type) : 1;

	return each * sizes[((size_t)type * 7 + (size_t)op + (size_t)f->terms) % 5];
}

static int runs_all(spmt_comm *comm, void *arg)
{
	const struct folding *f = arg;
	size_t most = (size_t)FORMS * RANKS * CHUNK + 16;
	struct buffers b = { .in = malloc(most), .out = malloc(most) };
	spmt_plan_open *open;

	REQUIRE(b.in && b.out);
	REQUIRE_OK(spmt_plan_begin(comm, f->plan, (size_t)INPUTS * CHUNK, &open));
	REQUIRE_OK(spmt_malloc(comm, most, (void **)&b.dst));
	REQUIRE_OK(spmt_malloc(comm, most, (void **)&b.src));
	for (enum spmt_type type = 0; type <= SPMT_TYPE_F64; type++)
		for (enum spmt_op op = 0; op <= SPMT_OP_XOR; op++)
			if (folds_valid(type, op))
				TRY(runs(comm, f, open, &b, type, op, chunk_of(f, type, op),
					((int)type + (int)op) % 4));
	free(b.in);
	free(b.out);
	REQUIRE_OK(spmt_plan_end(comm, open));
	REQUIRE_OK(spmt_free(comm, b.src));
	return spmt_free(comm, b.dst);
}

static void folds_right(bool packets)
{
	static const int terms[] = { 1, 2, 3, 4, 5, 8, 9, SPMT_PLAN_TERMS };

	for (size_t i = 0; i < sizeof(terms) / sizeof(terms[0]); i++) {
		struct folding f = { .n = ranks_here(RANKS),
			.terms = terms[i],
			.blocks = 1 + (int)i % 3,
			.packets = packets };

		if (packets && f.terms == 1)
			continue;
		cr_assert_eq(make(&f), 0, "%s", ranks_message());
		cr_assert_eq(spmt_plan_check(f.plan), 0, "%s", spmt_last_error());
		RANKS_OK(ranks_run(f.n, NULL, runs_all, &f));
		spmt_plan_destroy(f.plan);
	}
}

Test(plan_folds, to_several_places)
{
	folds_right(false);
}

Test(plan_folds, of_packets_to_several_places)
{
	folds_right(true);
}
