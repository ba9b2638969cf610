/* SPDX-License-Identifier: MIT */
/*
 * The folds of `ll` and `twoshot`: of each unit, as the ranks' units come, in rank order. One loop has all ops of a type, which the step asks
 * for, since so few bytes wait for nothing but the ranks: a kernel is small, and has no other type's code.
 */
#ifndef SPMT_KERNELS_LL_FOLD_H
#define SPMT_KERNELS_LL_FOLD_H

#include "ll_mean.h"
#include "src/kernels/fold/f8.h"
#include "src/kernels/fold/fold_unit.h"

/* ---- steps: acc a with the next rank's unit --------------------------------------------------- */

#define DEFINE_LL_INTEGERS(w)                                                                      \
	LL_FN union unit ll_step_u##w(union unit a, union unit x, int op, int is_signed)           \
	{                                                                                          \
		switch (op) {                                                                      \
		case SPMT_OP_PROD:                                                                 \
			STEP_PROD(u##w, a, x);                                                     \
			break;                                                                     \
		case SPMT_OP_MIN:                                                                  \
			STEP_KEEP(is_signed ? (u64x2)(a.i##w < x.i##w) : (u64x2)(a.u##w < x.u##w), \
				a, x);                                                             \
			break;                                                                     \
		case SPMT_OP_MAX:                                                                  \
			STEP_KEEP(is_signed ? (u64x2)(a.i##w > x.i##w) : (u64x2)(a.u##w > x.u##w), \
				a, x);                                                             \
			break;                                                                     \
		case SPMT_OP_AND:                                                                  \
			STEP_AND(u64, a, x);                                                       \
			break;                                                                     \
		case SPMT_OP_OR:                                                                   \
			STEP_OR(u64, a, x);                                                        \
			break;                                                                     \
		case SPMT_OP_XOR:                                                                  \
			STEP_XOR(u64, a, x);                                                       \
			break;                                                                     \
		default:                                                                           \
			STEP_SUM(u##w, a, x);                                                      \
			break;                                                                     \
		}                                                                                  \
		return a;                                                                          \
	}
DEFINE_LL_INTEGERS(8)
DEFINE_LL_INTEGERS(16)
DEFINE_LL_INTEGERS(32)
DEFINE_LL_INTEGERS(64)

#define DEFINE_LL_FLOATS(m)                                                          \
	LL_FN union unit ll_step_##m(union unit a, union unit x, int op, int unused) \
	{                                                                            \
		(void)unused;                                                        \
		if (op == SPMT_OP_PROD)                                              \
			STEP_PROD(m, a, x);                                          \
		else if (op == SPMT_OP_MIN)                                          \
			STEP_MIN_F(m, a, x);                                         \
		else if (op == SPMT_OP_MAX)                                          \
			STEP_MAX_F(m, a, x);                                         \
		else                                                                 \
			STEP_SUM(m, a, x);                                           \
		return a;                                                            \
	}                                                                            \
	LL_FN union unit ll_end_##m(union unit a, int op, int npes, int unused)      \
	{                                                                            \
		(void)unused;                                                        \
		if (op == SPMT_OP_AVG)                                               \
			a.m = a.m / (__typeof__(a.m[0]))npes;                        \
		return m##_end(a);                                                   \
	}
DEFINE_LL_FLOATS(f32)
DEFINE_LL_FLOATS(f64)

#define DEFINE_LL_HALVES(m)                                                            \
	LL_FN struct wide ll_begin_##m(union unit x, int unused)                       \
	{                                                                              \
		(void)unused;                                                          \
		return m##_widen(x);                                                   \
	}                                                                              \
	LL_FN struct wide ll_step_##m(struct wide a, union unit u, int op, int unused) \
	{                                                                              \
		struct wide x = m##_widen(u);                                          \
                                                                                       \
		(void)unused;                                                          \
		a.lo = f32_step(a.lo, x.lo, op);                                       \
		a.hi = f32_step(a.hi, x.hi, op);                                       \
		return a;                                                              \
	}                                                                              \
	LL_FN union unit ll_end_##m(struct wide a, int op, int npes, int unused)       \
	{                                                                              \
		(void)unused;                                                          \
		if (op == SPMT_OP_AVG) {                                               \
			a.lo = a.lo / (float)npes;                                     \
			a.hi = a.hi / (float)npes;                                     \
		}                                                                      \
		return m##_narrow(a);                                                  \
	}
DEFINE_LL_HALVES(f16)
DEFINE_LL_HALVES(bf16)

/* ---- what a kernel folds ----------------------------------------------------------------------- */

/* Begin and end of those that need none. */
LL_FN union unit ll_same(union unit x, int unused)
{
	(void)unused;
	return x;
}

LL_FN union unit ll_as_is(union unit a, int op, int npes, int unused)
{
	(void)op;
	(void)npes;
	(void)unused;
	return a;
}

/* X(name, acc, begin, step, end, hold): a loop for each kernel that folds, plans folding with those of LL_LOOPS_OF_PLANS. Those of models, and of integers in
   `twoshot`, have code of their own for large sums; with that for f64 a kernel puts registers into memory. Two types may share one; which it is goes along: signed, or e5m2. */
/* clang-format off */
#define LL_LOOPS_OF_MODELS(X)                                                                    \
	X(f32,    union unit,        ll_same,         ll_step_f32,    ll_end_f32,     packed)    \
	X(f16,    struct wide,       ll_begin_f16,    ll_step_f16,    ll_end_f16,     LL_FREE)   \
	X(bf16,   struct wide,       ll_begin_bf16,   ll_step_bf16,   ll_end_bf16,    LL_FREE)
#define LL_LOOPS_OF_INTEGERS(X)                                                                  \
	X(u8,     union unit,        ll_same,         ll_step_u8,     ll_as_is,       packed)    \
	X(u16,    union unit,        ll_same,         ll_step_u16,    ll_as_is,       packed)    \
	X(u32,    union unit,        ll_same,         ll_step_u32,    ll_as_is,       packed)    \
	X(u64,    union unit,        ll_same,         ll_step_u64,    ll_as_is,       packed)
#define LL_LOOPS_OF_DOUBLES(X)                                                                   \
	X(f64,    union unit,        ll_same,         ll_step_f64,    ll_end_f64,     packed)
#define LL_LOOPS_OF_PLANS(X) LL_LOOPS_OF_INTEGERS(X) LL_LOOPS_OF_DOUBLES(X) LL_LOOPS_OF_MODELS(X)
#define LL_LOOPS_OTHER(X)                                                                        \
	X(f8,     struct f8_wide,    f8_widen,        ll_step_f8,     ll_end_f8,      LL_FREE)   \
	X(mean8,  struct ll_sums8,   ll_begin_mean8,  ll_step_mean8,  ll_end_mean8,   LL_FREE)   \
	X(mean16, struct ll_sums16,  ll_begin_mean16, ll_step_mean16, ll_end_mean16,  LL_FREE)   \
	X(mean32, struct ll_sums32,  ll_begin_mean32, ll_step_mean32, ll_end_mean32,  LL_FREE)   \
	X(mean64, struct ll_sums64,  ll_begin_mean64, ll_step_mean64, ll_end_mean64,  LL_FREE)
#define LL_LOOPS(X) LL_LOOPS_OF_PLANS(X) LL_LOOPS_OTHER(X)
/* clang-format on */
#define LL_FREE(a) (a)

#endif
