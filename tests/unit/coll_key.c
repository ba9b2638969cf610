/* SPDX-License-Identifier: MIT */
/* Keys of collectives: two are equal where the calls are, and where not, the sentence says in what. */
#include <criterion/criterion.h>
#include <stdint.h>

#include "spmt.h"
#include "spmt/control/coll_key.h"

static const struct coll_same calls[] = {
	{ COLL_BROADCAST, SPMT_TYPE_I8, 0, 0, 0, 0 },
	{ COLL_BROADCAST, SPMT_TYPE_I8, 0, 0, 1, 0 },
	{ COLL_BROADCAST, SPMT_TYPE_I8, 0, 1, 0, 0 },
	{ COLL_BROADCAST, SPMT_TYPE_F64, 0, 32767, (1ull << 39) - 1, 0 },
	{ COLL_BROADCAST, SPMT_TYPE_F64, 0, 32767, 1ull << 39, 0 },
	{ COLL_BROADCAST, SPMT_TYPE_F64, 0, 32766, 1ull << 39, 0 },
	{ COLL_BROADCAST, SPMT_TYPE_F64, 0, 32767, UINT64_MAX, 0 },
	{ COLL_ALL_GATHER, SPMT_TYPE_U8, 0, 0, (1ull << 54) - 1, 0 },
	{ COLL_ALL_GATHER, SPMT_TYPE_U8, 0, 0, 1ull << 54, 0 },
	{ COLL_ALL_TO_ALL, SPMT_TYPE_U8, 0, 0, 1ull << 54, 0 },
	{ COLL_ALL_TO_ALL, SPMT_TYPE_BF16, 0, 0, 7, 0 },
	{ COLL_PERMUTE, SPMT_TYPE_U16, 0, 0, 7, 1 },
	{ COLL_PERMUTE, SPMT_TYPE_U16, 0, 0, 7, 2 },
	{ COLL_PERMUTE, SPMT_TYPE_U16, 0, 0, 8, 1 },
	{ COLL_REDUCE_SCATTER, SPMT_TYPE_F32, SPMT_OP_MAX, 0, (1ull << 50) - 1, 0 },
	{ COLL_REDUCE_SCATTER, SPMT_TYPE_F32, SPMT_OP_MAX, 0, 1ull << 50, 0 },
	{ COLL_REDUCE_SCATTER, SPMT_TYPE_F32, SPMT_OP_SUM, 0, 1ull << 50, 0 },
	{ COLL_ALL_REDUCE, SPMT_TYPE_U64, SPMT_OP_XOR, 0, 7, 0 },
	{ COLL_ALL_REDUCE, SPMT_TYPE_U64, SPMT_OP_SUM, 0, 7, 0 },
	{ COLL_ALL_REDUCE, SPMT_TYPE_F64, SPMT_OP_SUM, 0, 7, 0 },
	{ COLL_REDUCE, SPMT_TYPE_F8E5M2, SPMT_OP_AVG, 32767, (1ull << 35) - 1, 0 },
	{ COLL_REDUCE, SPMT_TYPE_F8E5M2, SPMT_OP_AVG, 32766, (1ull << 35) - 1, 0 },
	{ COLL_REDUCE, SPMT_TYPE_F8E5M2, SPMT_OP_XOR, 32767, (1ull << 35) - 1, 0 },
	{ COLL_REDUCE, SPMT_TYPE_F8E5M2, SPMT_OP_AVG, 32767, 1ull << 35, 0 },
	{ COLL_REDUCE, SPMT_TYPE_F8E5M2, SPMT_OP_AVG, 32766, 1ull << 35, 0 },
	{ COLL_GATHER, SPMT_TYPE_U8, 0, 1, 7, 0 },
	{ COLL_GATHER, SPMT_TYPE_U8, 0, 2, 7, 0 },
	{ COLL_SCATTER, SPMT_TYPE_U8, 0, 2, 7, 0 },
	{ COLL_EXCHANGE, SPMT_TYPE_U8, 0, 0, 7, 0 },
	{ COLL_ALL_GATHER_V, SPMT_TYPE_U8, 0, 0, 7, 0 },
	{ COLL_ALL_TO_ALL_V, SPMT_TYPE_U8, 0, 0, 7, 0 },
	{ COLL_ALL_TO_ALL_V, SPMT_TYPE_U8, 0, 0, 8, 0 },
};

Test(coll_key, no_two_calls_have_one)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		for (size_t j = 0; j < sizeof(calls) / sizeof(*calls); j++)
			cr_expect_eq(coll_key(&calls[i]) == coll_key(&calls[j]), i == j,
				"calls %zu and %zu", i, j);
}

/* The root of a permute is each rank's own, and only a permute has a table. */
Test(coll_key, what_is_each_ranks_own_is_not_in_it)
{
	struct coll_same c = calls[11];

	c.root = 3;
	cr_expect_eq(coll_key(&c), coll_key(&calls[11]));
}

static void expect(size_t i, size_t j, const char *want)
{
	char text[192];

	coll_differ(text, sizeof(text), 3, coll_key(&calls[i]), 0, coll_key(&calls[j]));
	cr_expect_str_eq(text, want);
}

Test(coll_key, in_words)
{
	expect(1, 0, "spmt_broadcast: count differs: rank 3 passed 1, rank 0 passed 0");
	expect(2, 0, "spmt_broadcast: root differs: rank 3 passed 1, rank 0 passed 0");
	expect(3, 0, "spmt_broadcast: type differs: rank 3 passed f64, rank 0 passed i8");
	expect(4, 3, "spmt_broadcast: count or root differs between rank 3 and rank 0");
	expect(8, 7, "spmt_all_gather: count differs between rank 3 and rank 0");
	expect(8, 9,
		"spmt_all_to_all: the function called differs: rank 3 passed spmt_all_gather, rank 0 passed spmt_all_to_all");
	expect(12, 11, "spmt_permute: count or to differs between rank 3 and rank 0");
	expect(15, 14, "spmt_reduce_scatter: count or op differs between rank 3 and rank 0");
	expect(21, 20, "spmt_reduce: root differs: rank 3 passed 32766, rank 0 passed 32767");
	expect(22, 20, "spmt_reduce: op differs: rank 3 passed xor, rank 0 passed avg");
	expect(23, 20, "spmt_reduce: count, op or root differs between rank 3 and rank 0");
	expect(25, 26, "spmt_gather: root differs: rank 3 passed 1, rank 0 passed 2");
	expect(28, 26,
		"spmt_gather: the function called differs: rank 3 passed spmt_all_to_all in place, rank 0 passed spmt_gather");
	expect(30, 31,
		"spmt_all_to_all_v: what rank 3 sends rank 0 differs: rank 3 passed 7, rank 0 passed 8");
	expect(17, 18, "spmt_all_reduce: op differs: rank 3 passed xor, rank 0 passed sum");
}

static void expect_plan(int argument, uint64_t a, uint64_t b, const char *want)
{
	uint64_t key = coll_plan_key(SPMT_TYPE_F32, UINT64_MAX);
	char text[192];

	coll_differ(text, sizeof(text), 3, plan_shown(key, argument, a), 0,
		plan_shown(key, argument, b));
	cr_expect_str_eq(text, want);
}

/* Of a run of a plan kernels tell one argument. */
Test(coll_key, a_plans_arguments_in_words)
{
	char text[192];

	expect_plan(PLAN_COUNT, 1ull << 50, 8,
		"spmt_plan_run: count differs: rank 3 passed 1125899906842624, rank 0 passed 8");
	expect_plan(PLAN_OP, SPMT_OP_XOR, SPMT_OP_SUM,
		"spmt_plan_run: op differs: rank 3 passed xor, rank 0 passed sum");
	expect_plan(PLAN_DST, 64, 128,
		"spmt_plan_run: dst (as an offset) differs: rank 3 passed 64, rank 0 passed 128");
	expect_plan(PLAN_SRC, 64, 0,
		"spmt_plan_run: src (as an offset) differs: rank 3 passed 64, rank 0 passed 0");
	expect_plan(PLAN_OPEN, 0, 2,
		"spmt_plan_run: open (by order of spmt_plan_begin) differs: rank 3 passed another or made another call, rank 0 passed 2");
	coll_differ(text, sizeof(text), 3, coll_plan_key(SPMT_TYPE_F32, 1), 0,
		coll_plan_key(SPMT_TYPE_F64, 2));
	cr_expect_str_eq(text, "spmt_plan_run: type differs: rank 3 passed f32, rank 0 passed f64");
}

/* Kernels take the count of a pair to the key of its call. */
Test(coll_key, a_count_is_in_the_lowest_bits)
{
	struct coll_same c = { COLL_ALL_TO_ALL_V, SPMT_TYPE_F8E5M2, 0, 0, 0, 0 };
	uint64_t key = coll_key(&c);

	c.count = (1ull << 54) - 1;
	cr_expect_eq(coll_key(&c), key | c.count);
	cr_expect_eq(key & c.count, 0);
}

/* By its highest bit a kernel knows that a call that differs ends the comm. */
Test(coll_key, what_breaks)
{
	for (int kind = 0; kind < COLL_CALLS; kind++) {
		struct coll_same c = { (enum kernel_collective_kind)kind, SPMT_TYPE_U8, 0, 0, 1,
			0 };

		cr_expect_eq(coll_key(&c) >> 63, coll_kinds[kind].breaks, "kind %d", kind);
	}
}

/* Words that no call has made: from a peer's memory. */
Test(coll_key, any_word_has_words)
{
	char text[192];
	uint64_t x = 1;

	for (int i = 0; i < 100000; i++) {
		uint64_t a = coll_fold(x, (uint64_t)i), b = coll_fold(a, 1);

		coll_differ(text, sizeof(text), 32767, a, 32766, b);
		cr_assert_not_null(strstr(text, "rank 32766"), "%s", text);
		x = b;
	}
}
