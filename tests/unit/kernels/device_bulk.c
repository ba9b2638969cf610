/* SPDX-License-Identifier: MIT */
/* Bulk copies over a model of the engine (engine_model.c). */
#define SPMTD_BULK_MODEL 1
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "spmt.h"
#include "tests/lib/device/engine_model.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/folds.h"

/* ---- worlds ----------------------------------------------------------------------------------- */

enum { RANKS = 3, HEAP = 32768, SRC = 1024, DST = 16384, ROOM = 8 * 4096 + 64 };

static struct views world;
static struct spmt_view me;
static char before[RANKS * HEAP];
static char shared[ROOM] __attribute__((aligned(128)));

static void open_world(void)
{
	cr_assert_eq(views_open(&world, RANKS, HEAP, true), 0);
	me = view_of(&world, 1);
	engine = (struct engine){ .reaches = true, .seed = 1 };
}

static void close_world(void)
{
	views_close(&world);
}

TestSuite(device_bulk, .init = open_world, .fini = close_world, .timeout = 120);

static char *at(int pe, size_t off)
{
	return views_heap(&world, pe) + off;
}

static void scramble_all(uint32_t seed)
{
	for (size_t i = 0; i < RANKS * HEAP; i++) {
		seed = seed * 1664525u + 1013904223u;
		before[i] = (char)(seed >> 24);
	}
	for (int pe = 0; pe < RANKS; pe++)
		memcpy(at(pe, 0), before + (size_t)pe * HEAP, HEAP);
}

static char *expected(int pe, size_t off)
{
	return before + (size_t)pe * HEAP + off;
}

static void check_all(const char *what, size_t n, uint32_t chunk, uint32_t stages)
{
	for (int pe = 0; pe < RANKS; pe++)
		for (size_t i = 0; memcmp(at(pe, 0), expected(pe, 0), HEAP) && i < HEAP; i++)
			cr_assert_eq(at(pe, 0)[i], *expected(pe, i),
				"%s of %zu bytes, %u stages of %u: byte %zu of rank %d", what, n,
				stages, chunk, i, pe);
}

/* ---- the calls -------------------------------------------------------------------------------- */

struct form {
	const char *name;
	bool warp, nbi;
};
static const struct form forms[] = { { "thread", false, false }, { "warp", true, false },
	{ "thread nbi", false, true }, { "warp nbi", true, true } };
#define BY_FORM(f, call, ...)                                              \
	((f)->warp ? ((f)->nbi ? spmtd_bulk_##call##_nbi_warp(__VA_ARGS__) \
			       : spmtd_bulk_##call##_warp(__VA_ARGS__))    \
		   : ((f)->nbi ? spmtd_bulk_##call##_nbi(__VA_ARGS__)      \
			       : spmtd_bulk_##call(__VA_ARGS__)))

static int begin(const struct form *f, struct spmtd_bulk *b, uint32_t chunk, uint32_t stages)
{
	return f->warp ? spmtd_bulk_begin_warp(b, shared, chunk, stages)
		       : spmtd_bulk_begin(b, shared, chunk, stages);
}

static void end(const struct form *f, struct spmtd_bulk *b)
{
	if (f->warp)
		spmtd_bulk_end_warp(b);
	else
		spmtd_bulk_end(b);
	cr_assert_eq(engine.nstores, 0);
	for (int i = 0; i < BARS; i++)
		cr_assert(!engine.bars[i].open, "a barrier is left");
}

static void quiet(const struct form *f, struct spmtd_bulk *b)
{
	if (f->warp)
		spmtd_bulk_quiet_warp(b);
	else
		spmtd_bulk_quiet(b);
	cr_assert(engine.fenced, "quiet ends with a fence");
}

/* Some copies behind each other, so that stages go round; of nbi ones nothing is waited for in between. */
static void some_copies(const struct form *f, uint32_t chunk, uint32_t stages, size_t n, size_t odd)
{
	static const int pes[] = { 2, 0 };
	struct spmtd_bulk b;
	size_t src = SRC + odd % 16, dst = DST + (odd / 16 ? odd / 16 * 3 : odd) % 16;

	cr_assert_eq(begin(f, &b, chunk, stages), 0);
	scramble_all((uint32_t)(n * 100 + odd));
	memcpy(expected(2, dst), expected(1, src), n);
	BY_FORM(f, put, &me, &b, at(1, dst), at(1, src), n, 2);
	quiet(f, &b);
	check_all("put", n, chunk, stages);
	memcpy(expected(1, dst), expected(0, src), n);
	BY_FORM(f, get, &me, &b, at(1, dst), at(1, src), n, 0);
	memcpy(expected(0, dst), expected(2, src), n);
	BY_FORM(f, copy, &me, &b, at(0, dst), at(2, src), n);
	quiet(f, &b);
	check_all("get and copy", n, chunk, stages);
	for (int i = 0; i < 2; i++)
		memcpy(expected(pes[i], dst), expected(1, src), n);
	BY_FORM(f, put_many, &me, &b, at(1, dst), at(1, src), n, pes, 2);
	end(f, &b);
	check_all("put_many", n, chunk, stages);
}

static const size_t sizes[] = { 0, 1, 8, 15, 16, 17, 31, 32, 33, 48, 100, 256, 272, 1000, 1024,
	1040, 4096, 9999 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), FORMS = sizeof(forms) / sizeof(forms[0]) };

Test(device_bulk, copies)
{
	for (size_t f = 0; f < FORMS; f++)
		for (uint32_t stages = 2; stages <= 8; stages++)
			for (uint32_t chunk = 16; chunk <= 4096; chunk *= 4)
				for (size_t i = 0; i < SIZES; i++)
					some_copies(&forms[f], chunk, stages, sizes[i],
						i % 2 ? (i + f + stages) % 32 : 0);
	cr_assert_gt(engine.loads, 10000, "the engine was used");
}

/* Sides misaligned alike within 16 bytes go by the engine but for the ends; others do not. */
Test(device_bulk, what_the_engine_moves)
{
	struct spmtd_bulk b;

	cr_assert_eq(spmtd_bulk_begin(&b, shared, 256, 4), 0);
	for (size_t odd = 0; odd < 16; odd++) {
		uint64_t bytes = engine.loaded_bytes;

		spmtd_bulk_put(&me, &b, at(1, DST + odd), at(1, SRC + odd), 1000, 2);
		cr_assert_eq(engine.loaded_bytes - bytes, (1000 - (16 - odd) % 16) / 16 * 16,
			"odd by %zu", odd);
		bytes = engine.loaded_bytes;
		spmtd_bulk_put(&me, &b, at(1, DST + odd), at(1, SRC + odd + 1), 1000, 2);
		cr_assert_eq(engine.loaded_bytes, bytes);
	}
	engine.reaches = false;
	spmtd_bulk_put(&me, &b, at(1, DST), at(1, SRC), 1000, 2);
	cr_assert_eq(memcmp(at(2, DST), at(1, SRC), 1000), 0);
	spmtd_bulk_end(&b);
}

Test(device_bulk, from_shared_memory)
{
	static char data[4096] __attribute__((aligned(128)));
	struct spmtd_bulk b;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7);
	for (size_t f = 0; f < FORMS; f++)
		for (size_t n = 0; n <= sizeof(data); n += n < 64 ? 8 : 504)
			for (size_t odd = 0; odd <= 16; odd += 8) {
				cr_assert_eq(begin(&forms[f], &b, 256, 2), 0);
				scramble_all((uint32_t)n);
				memcpy(expected(2, DST + odd), data, n);
				BY_FORM(&forms[f], put_shared, &me, &b, at(1, DST + odd), data, n,
					2);
				end(&forms[f], &b);
				check_all("put_shared", n, 256, 2);
			}
}

/* ---- reductions ------------------------------------------------------------------------------- */

typedef void reduce_fn(
	const struct form *, struct spmtd_bulk *, void *, const void *, size_t, bool);
#define REDUCE(TYPE, name, OP, op)                                                              \
	static void reduce_##name##_##op(const struct form *f, struct spmtd_bulk *b, void *dst, \
		const void *src, size_t count, bool from_shared)                                \
	{                                                                                       \
		if (from_shared)                                                                \
			BY_FORM(f, name##_##op##_reduce_shared, &me, b, dst, src, count, 2);    \
		else                                                                            \
			BY_FORM(f, name##_##op##_reduce, &me, b, dst, src, count, 2);           \
	}
FOLDS(REDUCE)
static reduce_fn *const reduces[] = {
#define NAMED(TYPE, name, OP, op) reduce_##name##_##op,
	FOLDS(NAMED)
};

/* By `odd` elements, both sides or src alone, and bytes of the engine's share. */
static uint64_t engines_share(
	const struct fold *f, size_t n, size_t odd, bool alike, bool shared_src)
{
	size_t off = odd * folds_width[f->type] % 16, head = (16 - off) % 16;

	if (!f->fold || !engine.reaches || (!alike && off) || (shared_src && (off || n % 16)))
		return 0;
	return n >= head + 16 ? (n - head) / 16 * 16 : 0;
}

static void reduce_some(int row, const struct form *form, size_t count, size_t odd, bool alike)
{
	static char data[2048] __attribute__((aligned(128)));
	const struct fold *f = &folds[row];
	size_t width = folds_width[f->type], n = count * width;
	size_t src = SRC + odd * width, dst = DST + (alike ? odd * width : 0);

	for (int from_shared = 0; from_shared < 2; from_shared++) {
		const char *from = from_shared ? data + odd * width : at(1, src);
		uint64_t folded = engine.folds;
		struct spmtd_bulk b;

		cr_assert_eq(begin(form, &b, 128, 2 + (uint32_t)odd), 0);
		scramble_all((uint32_t)(count * 100 + odd) + (uint32_t)row);
		memcpy(data, at(1, SRC), sizeof(data));
		for (int twice = 0; twice < 2; twice++) {
			engine_fold_into(f, expected(2, dst), from, n);
			reduces[row](form, &b, at(1, dst), from, count, from_shared);
			quiet(form, &b);
		}
		end(form, &b);
		check_all("reduce", n, (uint32_t)row, (uint32_t)from_shared);
		cr_assert_eq(engine.folds - folded,
			2 * engines_share(f, n, odd, alike, from_shared), "row %d, %zu bytes", row,
			n);
	}
}

Test(device_bulk, reductions)
{
	static const size_t counts[] = { 0, 1, 3, 4, 8, 30, 33, 64, 200 };

	for (int row = 0; row < ALL_FOLDS; row++)
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
			for (size_t odd = 0; odd < 6; odd++)
				reduce_some(row, &forms[(i + odd) % FORMS], counts[i], odd,
					(i + (size_t)row) % 3 != 0);
	engine.reaches = false;
	for (int row = 0; row < ALL_FOLDS; row++)
		reduce_some(row, &forms[row % FORMS], 400 / folds_width[folds[row].type], 0, true);
}

Test(device_bulk, beyond_4_gib)
{
	const uint64_t n = ((uint64_t)5 << 30) + 48;
	struct spmtd_bulk_to_ to = spmtd_bulk_to_one_(&me, (uint64_t)1 << 44);
	struct spmtd_bulk b;

	engine.counting = true;
	engine.next = (uint64_t)1 << 40;
	cr_assert_eq(spmtd_bulk_begin(&b, shared, 32768, 2), 0);
	spmtd_bulk_move_(&b, &to, engine.next, n, SPMTD_PUT_, SPMTD_BULK_SRC_, SPMTD_THREAD_, 0);
	cr_assert_eq(engine.loaded_bytes, n);
	cr_assert_eq(engine.next, ((uint64_t)1 << 40) + n);
	cr_assert_eq(b.stage, (n / 32768 + 1) % 2, "two stages in turn");
	cr_assert_eq(b.parity, (n / 32768 + 1) / 2 % 2);
	spmtd_bulk_end(&b);
}

Test(device_bulk, a_put_wakes_and_nothing_wakes_nobody)
{
	static const int pes[] = { 2, 0 };
	struct spmtd_bulk b;

	cr_assert_eq(spmtd_bulk_begin(&b, shared, 256, 2), 0);
	for (size_t n = 0; n <= 64; n += 64) {
		spmtd_bulk_put(&me, &b, at(1, DST), at(1, SRC), n, 2);
		spmtd_bulk_put_many(&me, &b, at(1, DST), at(1, SRC), n, pes, 2);
		spmtd_bulk_put_shared(&me, &b, at(1, DST), shared, n, 0);
		spmtd_bulk_put_many(&me, &b, at(1, DST), at(1, SRC), n, pes, 0);
		cr_assert_eq(views_wakes(&world, 2), n ? 2 : 0);
		cr_assert_eq(views_wakes(&world, 0), n ? 2 : 0);
	}
	spmtd_bulk_end(&b);
}

Test(device_bulk, wrong_arguments)
{
	struct spmtd_bulk b;

	for (uint32_t chunk = 0; chunk < 66000; chunk++) {
		bool good = chunk >= 16 && chunk <= 4096 && !(chunk & (chunk - 1));

		if (good || (chunk == 8192 || chunk == 16384 || chunk == 32768))
			continue;
		cr_assert_eq(spmtd_bulk_begin(&b, shared, chunk, 2), SPMTD_INVALID);
	}
	for (uint32_t stages = 0; stages < 12; stages++) {
		int rc = spmtd_bulk_begin_warp(&b, shared, 64, stages);

		cr_assert_eq(rc, stages >= 2 && stages <= 8 ? 0 : SPMTD_INVALID);
		if (!rc)
			spmtd_bulk_end_warp(&b);
	}
	cr_assert_eq(spmtd_bulk_begin(&b, NULL, 64, 2), SPMTD_INVALID);
	cr_assert_eq(spmtd_bulk_begin(&b, shared + 64, 64, 2), SPMTD_INVALID);
	cr_assert_eq(spmtd_bulk_room(4096, 8), ROOM);
}

/* What does not look at begin's code copies all the same. */
Test(device_bulk, what_has_not_begun_goes_by_loads_and_stores)
{
	struct spmtd_bulk b;

	memset(&b, 0x5a, sizeof(b));
	b.chunk = 0;
	cr_assert_eq(spmtd_bulk_begin(&b, shared, 0, 2), SPMTD_INVALID);
	for (size_t n = 0; n <= 4096; n += 512) {
		memset(at(1, SRC), (int)n / 512, n);
		spmtd_bulk_copy_nbi(&me, &b, at(2, DST), at(1, SRC), n);
		spmtd_bulk_quiet(&b);
		cr_assert_eq(memcmp(at(2, DST), at(1, SRC), n), 0);
	}
	spmtd_bulk_end(&b);
	cr_assert_eq(engine.loads, 0);
}
