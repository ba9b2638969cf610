/* SPDX-License-Identifier: MIT */
/* What large folds of a plan consist of: sums of f32, f16 and bf16, of units that are whole and aligned wherever they go. */
#ifndef SPMT_KERNELS_PLAN_STRAIGHT_H
#define SPMT_KERNELS_PLAN_STRAIGHT_H

#include "coll/ll/ll_loops.h"
#include "plan_units.h"

PLAN_FN void plan_store_straight(const struct plan_fold *f, uint64_t k, union unit u)
{
	if (k >= f->whole)
		return;
	ROLLED
	for (uint32_t i = 0; i < f->ndst; i++)
		spmtd_gstore16b_(f->dst[i] + 16 * k, u.raw);
}

/* All that is summed straight, of `terms`, a constant: each unit in flight has code of its own. */
#define DEFINE_PLAN_STRAIGHT(name, acc, begin, step, end, hold)                                   \
	PLAN_FN void plan_straight_of_##name(const struct plan_fold *f, uint32_t terms)           \
	{                                                                                         \
		struct plan_way w = { spmtd_tid_(), 0, 0, 0 };                                    \
		struct in_flight x;                                                               \
                                                                                                  \
		__builtin_memset(&x, 0, sizeof(x));                                               \
		for (; w.k < f->whole; w.k += (uint64_t)spmtd_threads_() * (IN_FLIGHT / terms)) { \
			plan_load_of(f, &x, &w, 0, terms, 0);                                     \
			UNROLLED                                                                  \
			for (uint32_t nth = 0; nth < IN_FLIGHT / terms; nth++) {                  \
				acc a;                                                            \
                                                                                                  \
				__builtin_memset(&a, 0, sizeof(a));                               \
				UNROLLED                                                          \
				for (uint32_t i = 0; i < terms; i++) {                            \
					union unit u = packed(x.x[nth * terms + i]);              \
                                                                                                  \
					if (i < f->nsrc)                                          \
						a = hold(i ? step(a, u, SPMT_OP_SUM, f->second)   \
							   : begin(u, f->second));                \
				}                                                                 \
				plan_store_straight(f, w.k + (uint64_t)nth * spmtd_threads_(),    \
					end(a, SPMT_OP_SUM, 1, f->second));                       \
			}                                                                         \
		}                                                                                 \
	}                                                                                         \
	PLAN_FN void plan_straight_##name(const struct plan_fold *f)                              \
	{                                                                                         \
		if (PLAN_TERMS_LEAST == 1 && f->nsrc <= 2)                                        \
			plan_straight_of_##name(f, 2);                                            \
		else if (f->nsrc <= 4)                                                            \
			plan_straight_of_##name(f, 4);                                            \
		else                                                                              \
			plan_straight_of_##name(f, IN_FLIGHT);                                    \
	}
#define DEFINE_PLAN_NEVER_STRAIGHT(name, acc, begin, step, end, hold) \
	PLAN_FN void plan_straight_##name(const struct plan_fold *f)  \
	{                                                             \
		(void)f;                                              \
	}

/* AMD's kernels of plans have no registers for it. */
#if defined(__AMDGCN__)
#define PLAN_STRAIGHT 0
LL_LOOPS_OF_MODELS(DEFINE_PLAN_NEVER_STRAIGHT)
#else
#define PLAN_STRAIGHT 1
LL_LOOPS_OF_MODELS(DEFINE_PLAN_STRAIGHT)
#endif
LL_LOOPS_OF_INTEGERS(DEFINE_PLAN_NEVER_STRAIGHT)
LL_LOOPS_OF_DOUBLES(DEFINE_PLAN_NEVER_STRAIGHT)

PLAN_FN int plan_is_straight(const struct plan_fold *f, int type, int op)
{
	uint64_t odd = !PLAN_STRAIGHT || f->nsrc > IN_FLIGHT || op != SPMT_OP_SUM;

	odd |= type != SPMT_TYPE_F32 && type != SPMT_TYPE_F16 && type != SPMT_TYPE_BF16;
	for (uint32_t i = 0; i < f->ndst; i++)
		odd |= f->dst[i] & 15;
	return !odd;
}

#endif
