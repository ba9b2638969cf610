/* SPDX-License-Identifier: MIT */
/* The kernels that are no collectives, as host functions, and the arithmetic of halves. */
#include "src/kernels/area.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "halves_oracle.h"
#include "spmt.h"
#include "src/kernels/fold/fold_float.h"
#include "tests/lib/device/plain_views.h"

TestSuite(kernels_simple, .timeout = 100);

/* ---- f16 and bf16 */

static bool same_value(double a, double b)
{
	return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b);
}

Test(kernels_simple, every_half_has_its_value)
{
	for (uint32_t i = 0; i < 65536; i++) {
		uint16_t h = (uint16_t)i;

		cr_assert(same_value(f16_value(h), decode(h, 10, 15)), "f16 %#x", i);
		cr_assert(same_value(bf16_value(h), decode(h, 7, 127)), "bf16 %#x", i);
	}
}

/* Each value, each middle between two, and the floats next to them. */
Test(kernels_simple, halves_round_to_nearest_even)
{
	for (uint32_t i = 0; i < 65536; i++) {
		uint16_t h = (uint16_t)i, up = (uint16_t)(i + 1);
		float at[4] = { f16_value(h), bf16_value(h), 0, 0 };

		at[2] = (at[0] + f16_value(up)) / 2;
		at[3] = (float)(((double)at[1] + (double)bf16_value(up)) / 2);
		for (int k = 0; k < 4; k++) {
			float near[3] = { at[k], nextafterf(at[k], INFINITY),
				nextafterf(at[k], -INFINITY) };

			for (int j = 0; j < 3; j++) {
				cr_assert_eq(f16_nearest(near[j]), encode((double)near[j], 10, 15),
					"f16 of %a", (double)near[j]);
				cr_assert_eq(bf16_nearest(near[j]), encode((double)near[j], 7, 127),
					"bf16 of %a", (double)near[j]);
			}
		}
	}
}

/* ---- the others ----------------------------------------------------------------------------- */

Test(kernels_simple, copy)
{
	char a[256], b[256];
	struct views w;

	cr_assert_eq(views_open(&w, 2, 4096, true), 0);
	for (size_t i = 0; i < sizeof(a); i++)
		a[i] = (char)(i * 37);
	for (size_t n = 0; n < 200; n++) {
		struct kernel_copy_args args = {
			.view = view_of(&w, 0), .size = n, .wake = n % 2 ? 1 : -1
		};

		args.src = (uint64_t)(uintptr_t)(a + n % 7);
		args.dst = (uint64_t)(uintptr_t)(b + n % 11);
		memset(b, 0, sizeof(b));
		kernel_copy.host(&args);
		cr_assert_eq(memcmp(b + n % 11, a + n % 7, n), 0);
		cr_assert_eq(b[n % 11 + n], 0);
	}
	cr_expect_eq(views_wakes(&w, 1), 100);
	views_close(&w);
}

Test(kernels_simple, signal_and_wait)
{
	struct kernel_signal_args args = { .value = 5, .op = SPMT_SIGNAL_ADD, .pe = 1 };
	struct kernel_wait_args wait = { .value = 10, .cmp = SPMT_CMP_EQ };
	uint64_t raw = 0, *there;
	struct views w;

	cr_assert_eq(views_open(&w, 2, 4096, true), 0);
	there = (uint64_t *)(void *)views_heap(&w, 1);
	args.view = view_of(&w, 0);
	args.sig = (uint64_t)(uintptr_t)views_heap(&w, 0);
	kernel_signal.host(&args);
	kernel_signal.host(&args);
	cr_expect_eq(*there, 10);
	cr_expect_eq(views_wakes(&w, 1), 2);
	args.op = SPMT_SIGNAL_SET;
	args.sig = (uint64_t)(uintptr_t)&raw;
	args.pe = -1;
	kernel_signal.host(&args);
	cr_expect_eq(raw, 5);

	wait.view = view_of(&w, 1);
	wait.sig = (uint64_t)(uintptr_t)there;
	kernel_wait.host(&wait);
	cr_expect_eq(w.records[1].valid, 0);
	wait.value = 11;
	wait.view.timeout_ns = 1000000;
	kernel_wait.host(&wait);
	cr_expect_eq(w.records[1].code, SPMT_ERR_TIMEOUT);
	cr_expect_eq(w.records[1].expected, 11);
	cr_expect_eq(area_of(&wait.view)->error, 0); /* of meetings alone */
	views_close(&w);
}

/* old, operand 0x35, compare: what each gives */
static uint64_t amo_next(int amo, uint64_t old, uint64_t x, uint64_t compare)
{
	static const uint64_t one = 1;

	switch (amo) {
	case SPMT_AMO_SET:
	case SPMT_AMO_SWAP:
		return x;
	case SPMT_AMO_COMPARE_SWAP:
		return old == compare ? x : old;
	case SPMT_AMO_INC:
	case SPMT_AMO_FETCH_INC:
		return old + one;
	case SPMT_AMO_ADD:
	case SPMT_AMO_FETCH_ADD:
		return old + x;
	case SPMT_AMO_AND:
	case SPMT_AMO_FETCH_AND:
		return old & x;
	case SPMT_AMO_OR:
	case SPMT_AMO_FETCH_OR:
		return old | x;
	case SPMT_AMO_XOR:
	case SPMT_AMO_FETCH_XOR:
		return old ^ x;
	default:
		return old;
	}
}

static bool wide(int type)
{
	return type == SPMT_TYPE_I64 || type == SPMT_TYPE_U64 || type == SPMT_TYPE_F64;
}

static void check_amo(const struct views *w, int type, int amo, uint64_t compare)
{
	uint64_t *there = (uint64_t *)(void *)views_heap(w, 1), old = 0xfffffffffffffff3ull, want,
		 fetched = 99;
	uint64_t mask = wide(type) ? UINT64_MAX : UINT32_MAX;
	struct kernel_atomic_args args = { .view = view_of(w, 0),
		.target = (uint64_t)(uintptr_t)views_heap(w, 0),
		.operand = 0x35 & mask,
		.compare = compare & mask,
		.fetched = (uint64_t)(uintptr_t)&fetched,
		.amo = amo,
		.type = type,
		.pe = 1 };

	*there = old;
	kernel_atomic.host(&args);
	want = (old & ~mask) | (amo_next(amo, old & mask, 0x35, compare & mask) & mask);
	cr_expect_eq(*there, want, "amo %d type %d: %#llx", amo, type, (unsigned long long)*there);
	if (amo != SPMT_AMO_SET)
		cr_expect_eq(fetched, old & mask, "amo %d type %d fetched %#llx", amo, type,
			(unsigned long long)fetched);
	args.fetched = 0;
	kernel_atomic.host(&args);
}

Test(kernels_simple, atomic)
{
	static const int types[] = { SPMT_TYPE_I32, SPMT_TYPE_U32, SPMT_TYPE_I64, SPMT_TYPE_U64 };
	struct views w;

	cr_assert_eq(views_open(&w, 2, 4096, true), 0);
	for (size_t t = 0; t < 4; t++)
		for (int amo = 0; amo <= SPMT_AMO_FETCH_XOR; amo++) {
			check_amo(&w, types[t], amo, 0xfffffffffffffff3ull);
			check_amo(&w, types[t], amo, 0);
		}
	for (int amo = 0; amo <= SPMT_AMO_SWAP; amo++) {
		check_amo(&w, SPMT_TYPE_F32, amo, 0);
		check_amo(&w, SPMT_TYPE_F64, amo, 0);
	}
	views_close(&w);
}

static void *run_barriers(void *arg)
{
	struct kernel_barrier_args args = { .view = *(const struct spmt_view *)arg };

	for (int i = 0; i < 200; i++)
		kernel_barrier.host(&args);
	return NULL;
}

Test(kernels_simple, barrier)
{
	struct spmt_view v[4];
	pthread_t threads[4];
	struct views w;

	cr_assert_eq(views_open(&w, 4, 4096, true), 0);
	for (int pe = 0; pe < 4; pe++) {
		v[pe] = view_of(&w, pe);
		cr_assert_eq(pthread_create(&threads[pe], NULL, run_barriers, &v[pe]), 0);
	}
	for (int pe = 0; pe < 4; pe++) {
		pthread_join(threads[pe], NULL);
		cr_expect_eq(area_of(&v[pe])->error, 0);
		cr_expect_eq(v[pe].own->sync_epoch, 200);
	}
	views_close(&w);
}
