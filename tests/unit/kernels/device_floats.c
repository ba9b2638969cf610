/* SPDX-License-Identifier: MIT */
/* Atomics on f16, bf16 and pairs of them, and sums of floats by many threads, on views made by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "halves_oracle.h"
#include "tests/lib/device/plain_views.h"

enum { THREADS = 4, EACH = 50, ELEMENTS = 8 };

static struct views world;
static struct spmt_view me; /* rank 1 of 3 */

static void open_world(void)
{
	cr_assert_eq(views_open(&world, 3, 4096, false), 0);
	me = view_of(&world, 1);
}

static void close_world(void)
{
	views_close(&world);
}

TestSuite(device_floats, .init = open_world, .fini = close_world, .timeout = 60);

static void *sym(size_t off)
{
	return views_heap(&world, 1) + off;
}

static void *theirs(size_t off)
{
	return views_heap(&world, 2) + off;
}

static uint32_t any_bits(void)
{
	static uint64_t seed = 1;

	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 32);
}

/* ---- against the C library ------------------------------------------------------------------ */

static uint16_t sum(uint16_t x, uint16_t y, int digits, int bias)
{
	double s = decode(x, digits, bias) + decode(y, digits, bias);

	return encode(s, digits, bias);
}

/* Any bits on any bits; the neighbours, which most often are no numbers of their own, stay. */
#define HALF_TEST(name, digits, bias)                                                              \
	Test(device_floats, sums_of_##name)                                                        \
	{                                                                                          \
		for (int round = 0; round < 200000; round++) {                                     \
			uint16_t was[4], *now = theirs(64), add = (uint16_t)any_bits();            \
			size_t at = any_bits() % 4;                                                \
                                                                                                   \
			for (int i = 0; i < 4; i++)                                                \
				was[i] = (uint16_t)any_bits();                                     \
			if (round % 4 == 0) /* of one size, where sums are rounded most */         \
				add = (uint16_t)((was[at] & 0xfc00) | (add & 0x83ff));             \
			memcpy(now, was, sizeof(was));                                             \
			if (round % 2)                                                             \
				spmtd_##name##_atomic_add(&me, (uint16_t *)sym(64) + at, add, 2);  \
			else                                                                       \
				cr_assert_eq(spmtd_##name##_atomic_fetch_add(                      \
						     &me, (uint16_t *)sym(64) + at, add, 2),       \
					was[at]);                                                  \
			cr_assert_eq(now[at], sum(was[at], add, digits, bias), "%#x + %#x = %#x",  \
				was[at], add, now[at]);                                            \
			now[at] = was[at];                                                         \
			cr_assert_arr_eq(now, was, sizeof(was));                                   \
		}                                                                                  \
		cr_expect_eq(views_wakes(&world, 2), 200000);                                      \
	}                                                                                          \
	static void name##_pairs(void)                                                             \
	{                                                                                          \
		for (int round = 0; round < 100000; round++) {                                     \
			uint32_t was = any_bits(), add = any_bits(), *now = theirs(64);            \
			uint32_t want = sum((uint16_t)was, (uint16_t)add, digits, bias) |          \
				(uint32_t)sum((uint16_t)(was >> 16), (uint16_t)(add >> 16),        \
					digits, bias)                                              \
					<< 16;                                                     \
                                                                                                   \
			*now = was;                                                                \
			if (round % 2)                                                             \
				spmtd_##name##_pair_atomic_add(&me, sym(64), add, 2);              \
			else                                                                       \
				cr_assert_eq(spmtd_##name##_pair_atomic_fetch_add(                 \
						     &me, sym(64), add, 2),                        \
					was);                                                      \
			cr_assert_eq(*now, want, "%#x + %#x = %#x", was, add, *now);               \
		}                                                                                  \
		cr_expect_eq(views_wakes(&world, 2), 100000);                                      \
	}                                                                                          \
	Test(device_floats, other_atomics_of_##name)                                               \
	{                                                                                          \
		uint16_t one = encode(1, digits, bias), two = encode(2, digits, bias),             \
			 *now = theirs(66), *at = sym(66);                                         \
                                                                                                   \
		spmtd_##name##_atomic_set(&me, at, one, 2);                                        \
		cr_expect_eq(spmtd_##name##_atomic_fetch(&me, at, 2), one);                        \
		spmtd_##name##_atomic_inc(&me, at, 2);                                             \
		cr_expect_eq(*now, two);                                                           \
		cr_expect_eq(spmtd_##name##_atomic_fetch_inc(&me, at, 2), two);                    \
		cr_expect_eq(*now, encode(3, digits, bias));                                       \
		cr_expect_eq(                                                                      \
			spmtd_##name##_atomic_swap(&me, at, 0x8000, 2), encode(3, digits, bias));  \
		/* by its bits: 0 is not -0 */                                                     \
		cr_expect_eq(spmtd_##name##_atomic_compare_swap(&me, at, 0, one, 2), 0x8000);      \
		cr_expect_eq(spmtd_##name##_atomic_compare_swap(&me, at, 0x8000, one, 2), 0x8000); \
		cr_expect_eq(*now, one);                                                           \
		cr_expect_eq(now[-1], 0);                                                          \
		cr_expect_eq(now[1], 0);                                                           \
	}
HALF_TEST(half, 10, 15)
HALF_TEST(bfloat16, 7, 127)

Test(device_floats, sums_of_half_pairs)
{
	half_pairs();
}

Test(device_floats, sums_of_bfloat16_pairs)
{
	bfloat16_pairs();
}

/* ---- by many threads ------------------------------------------------------------------------ */

/* Every thread adds 1 to each element, to every fourth without fetching; bf16 counts exactly up to 256. The test stores to the last
   one's neighbour meanwhile. */
#define THREADS_TEST(name, T, one, fetched, all)                                               \
	static unsigned char name##_seen[ELEMENTS][THREADS * EACH + 1];                        \
	static void *name##_adds(void *unused)                                                 \
	{                                                                                      \
		(void)unused;                                                                  \
		for (int i = 0; i < EACH * ELEMENTS; i++) {                                    \
			int k = i % ELEMENTS;                                                  \
			T old, *at = (T *)sym(64) + k;                                         \
                                                                                               \
			if (k % 4 == 3) {                                                      \
				spmtd_##name##_atomic_add(&me, at, one, 2);                    \
				continue;                                                      \
			}                                                                      \
			old = spmtd_##name##_atomic_fetch_add(&me, at, one, 2);                \
			__atomic_fetch_add(                                                    \
				&name##_seen[k][(size_t)(fetched)], 1, __ATOMIC_RELAXED);      \
		}                                                                              \
		return NULL;                                                                   \
	}                                                                                      \
	Test(device_floats, threads_sum_##name)                                                \
	{                                                                                      \
		pthread_t threads[THREADS];                                                    \
		T *now = theirs(64), old;                                                      \
		volatile T *beside = now + ELEMENTS;                                           \
                                                                                               \
		for (int i = 0; i < THREADS; i++)                                              \
			cr_assert_eq(pthread_create(threads + i, NULL, name##_adds, NULL), 0); \
		for (int i = 0; i < 10000; i++) {                                              \
			*beside = (T)i;                                                        \
			cr_assert_eq(*beside, (T)i);                                           \
		}                                                                              \
		for (int i = 0; i < THREADS; i++)                                              \
			pthread_join(threads[i], NULL);                                        \
		for (int k = 0; k < ELEMENTS; k++) {                                           \
			old = now[k];                                                          \
			cr_expect_eq(old, all);                                                \
			for (int i = 0; i < THREADS * EACH && k % 4 != 3; i++)                 \
				cr_expect_eq(name##_seen[k][i], 1, "%d of element %d", i, k);  \
		}                                                                              \
	}
#define ALL (THREADS * EACH)
#define PAIR(digits, bias) (encode(ALL, digits, bias) | (uint32_t)encode(-ALL, digits, bias) << 16)
THREADS_TEST(float, float, 1.0f, old, ALL)
THREADS_TEST(double, double, 1.0, old, ALL)
THREADS_TEST(half, uint16_t, 0x3c00, decode(old, 10, 15), encode(ALL, 10, 15))
THREADS_TEST(bfloat16, uint16_t, 0x3f80, decode(old, 7, 127), encode(ALL, 7, 127))
/* 1 in the lower half, -1 in the upper one. */
THREADS_TEST(half_pair, uint32_t, 0xbc003c00, decode((uint16_t)old, 10, 15), PAIR(10, 15))
THREADS_TEST(bfloat16_pair, uint32_t, 0xbf803f80, decode((uint16_t)old, 7, 127), PAIR(7, 127))
