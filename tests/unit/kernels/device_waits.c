/* SPDX-License-Identifier: MIT */
/* Waits of the device header by warp and block: as those of a thread. */
#include <criterion/criterion.h>
#include <limits.h>
#include <string.h>

#include "spmt.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/typed_calls.h"

static struct views world;
static struct spmt_view me; /* rank 1 of 2 */

static void open_world(void)
{
	cr_assert_eq(views_open(&world, 2, 4096, true), 0);
	me = view_of(&world, 1);
}

static void close_world(void)
{
	views_close(&world);
}

TestSuite(device_waits, .init = open_world, .fini = close_world, .timeout = 60);

static void *sym(size_t off)
{
	return views_heap(&world, 1) + off;
}

#define HOLDING(name, T, by)                                                                       \
	static void holding_##name##by(T *word)                                                    \
	{                                                                                          \
		int status[5] = { 0, 1, 0, 0, 0 }, none[5] = { 1, 1, 1, 1, 1 };                    \
		size_t index = 7, found = 7, indices[5];                                           \
		bool came[5] = { false };                                                          \
                                                                                                   \
		for (int i = 0; i < 5; i++)                                                        \
			word[i] = (T)i;                                                            \
		cr_expect_eq(spmtd_##name##_wait_until##by(&me, word + 3, SPMT_CMP_GE, 3), 0);     \
		for (int i = 0; i < 200; i++) {                                                    \
			cr_assert_eq(spmtd_##name##_wait_until_any##by(                            \
					     &me, word, 5, status, SPMT_CMP_GT, 0, &index),        \
				0);                                                                \
			cr_assert_lt(index, 5);                                                    \
			came[index] = true;                                                        \
		}                                                                                  \
		cr_expect(!came[0] && !came[1] && came[2] && came[3] && came[4]);                  \
		cr_expect_eq(spmtd_##name##_wait_until_some##by(                                   \
				     &me, word, 5, status, SPMT_CMP_GT, 0, indices, &found),       \
			0);                                                                        \
		cr_expect(found == 3 && indices[0] == 2 && indices[1] == 3 && indices[2] == 4);    \
		cr_expect_eq(                                                                      \
			spmtd_##name##_wait_until_all##by(&me, word + 1, 4, NULL, SPMT_CMP_GT, 0), \
			0);                                                                        \
		cr_expect_eq(spmtd_##name##_wait_until_any##by(                                    \
				     &me, word, 5, none, SPMT_CMP_EQ, 9, &index),                  \
			0);                                                                        \
		cr_expect_eq(index, SIZE_MAX);                                                     \
		cr_expect_eq(spmtd_##name##_wait_until_some##by(                                   \
				     &me, word, 5, none, SPMT_CMP_EQ, 9, indices, &found),         \
			0);                                                                        \
		cr_expect_eq(found, 0);                                                            \
		cr_expect_eq(                                                                      \
			spmtd_##name##_wait_until_all##by(&me, word, 5, none, SPMT_CMP_EQ, 9), 0); \
		cr_expect_eq(                                                                      \
			spmtd_##name##_wait_until_all##by(&me, word, 0, NULL, SPMT_CMP_EQ, 9), 0); \
	}                                                                                          \
	static void ending_##name##by(T *word, int code)                                           \
	{                                                                                          \
		size_t index = 7, found = 7, indices[5];                                           \
                                                                                                   \
		for (int i = 0; i < 5; i++)                                                        \
			word[i] = (T)i;                                                            \
		cr_expect_eq(spmtd_##name##_wait_until##by(&me, word, SPMT_CMP_EQ, 2), code);      \
		cr_expect_eq(spmtd_##name##_wait_until_any##by(                                    \
				     &me, word, 5, NULL, SPMT_CMP_EQ, 9, &index),                  \
			code);                                                                     \
		cr_expect_eq(spmtd_##name##_wait_until_some##by(                                   \
				     &me, word, 5, NULL, SPMT_CMP_EQ, 9, indices, &found),         \
			code);                                                                     \
		cr_expect_eq(                                                                      \
			spmtd_##name##_wait_until_all##by(&me, word, 5, NULL, SPMT_CMP_GT, 0),     \
			code);                                                                     \
		cr_expect(index == 7 && found == 7, "outputs of a wait that failed");              \
	}
#define WAIT_TEST(name, T)                                     \
	HOLDING(name, T, _warp)                                \
	HOLDING(name, T, _block)                               \
	Test(device_waits, wait_##name)                        \
	{                                                      \
		holding_##name##_warp(sym(64));                \
		holding_##name##_block(sym(64));               \
		me.timeout_ns = 1000000;                       \
		ending_##name##_warp(sym(64), SPMTD_TIMEOUT);  \
		ending_##name##_block(sym(64), SPMTD_TIMEOUT); \
		world.stop = 1;                                \
		ending_##name##_warp(sym(64), SPMTD_ABORTED);  \
		ending_##name##_block(sym(64), SPMTD_ABORTED); \
	}
TYPES(WAIT_TEST)

Test(device_waits, signals)
{
	uint64_t *sig = sym(64);
	struct spmtd_record *r = &world.records[1];

	spmtd_signal_op(&me, sig, 5, SPMT_SIGNAL_SET, 1);
	cr_expect_eq(spmtd_signal_wait_until_warp(&me, sig, SPMT_CMP_EQ, 5), 0);
	cr_expect_eq(spmtd_signal_wait_until_block(&me, sig, SPMT_CMP_GE, 4), 0);
	me.timeout_ns = 1000000;
	cr_expect_eq(spmtd_signal_wait_until_block(&me, sig, SPMT_CMP_GT, 5), SPMTD_TIMEOUT);
	cr_expect_eq(r->what, SPMTD_WHAT_SIGNAL);
	cr_expect(r->expected == 5 && r->seen == 5);
	cr_expect_eq(spmtd_signal_wait_until_warp(&me, sig, SPMT_CMP_NE, 5), SPMTD_TIMEOUT);
}

/* The view has no deadline. */
#define UNKNOWN(by)                                                                               \
	cr_expect_eq(spmtd_uint32_wait_until##by(&me, word, cmp, 9), SPMTD_INVALID);              \
	cr_expect_eq(                                                                             \
		spmtd_uint32_wait_until_any##by(&me, word, 2, NULL, cmp, 9, &n), SPMTD_INVALID);  \
	cr_expect_eq(spmtd_uint32_wait_until_some##by(&me, word, 2, NULL, cmp, 9, indices, &n),   \
		SPMTD_INVALID);                                                                   \
	cr_expect_eq(spmtd_uint32_wait_until_all##by(&me, word, 2, NULL, cmp, 9), SPMTD_INVALID); \
	cr_expect_eq(spmtd_signal_wait_until##by(&me, sym(128), cmp, 9), SPMTD_INVALID);          \
	cr_expect_eq(n, 7)

Test(device_waits, of_an_unknown_compare_are_none)
{
	static const int unknown[] = { -1, SPMT_CMP_LE + 1, 99, INT_MIN };
	uint32_t *word = sym(64);
	size_t n = 7, indices[2];

	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		int cmp = unknown[i];

		UNKNOWN();
		UNKNOWN(_warp);
		UNKNOWN(_block);
		cr_expect_not(spmtd_uint32_test(&me, word, cmp, 9));
		cr_expect_not(spmtd_uint32_test_any(&me, word, 2, NULL, cmp, 9, &n));
		cr_expect_not(spmtd_uint32_test_some(&me, word, 2, NULL, cmp, 9, indices, &n));
		cr_expect_not(spmtd_uint32_test_all(&me, word, 2, NULL, cmp, 9));
		n = 7;
	}
}
