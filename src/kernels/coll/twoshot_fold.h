/* SPDX-License-Identifier: MIT */
/*
 * One step of a fold of `twoshot`: acc a with the unit x of rank pe, which is the first if 0. Factors of pre-multiplied sums are `bits`,
 * by the rules of fold_premul.c; a mean has none.
 */
#ifndef SPMT_KERNELS_TWOSHOT_FOLD_H
#define SPMT_KERNELS_TWOSHOT_FOLD_H

#include "ll/ll_loops.h"

struct twoshot_step {
	int pe, op, second; /* second: of the two types that share a loop */
	int times;	    /* by `bits` */
	uint64_t bits;
};

#define DEFINE_TWOSHOT_UNITS(name, factor)                                                      \
	LL_FN union unit twoshot_step_##name(union unit a, union unit x, struct twoshot_step s) \
	{                                                                                       \
		if (s.times)                                                                    \
			x.name = x.name * factor;                                               \
		return s.pe ? ll_step_##name(a, x, s.op, s.second) : x;                         \
	}
DEFINE_TWOSHOT_UNITS(u8, (uint8_t)s.bits)
DEFINE_TWOSHOT_UNITS(u16, (uint16_t)s.bits)
DEFINE_TWOSHOT_UNITS(u32, (uint32_t)s.bits)
DEFINE_TWOSHOT_UNITS(u64, s.bits)
DEFINE_TWOSHOT_UNITS(f32, spmtd_float_of_((uint32_t)s.bits))
DEFINE_TWOSHOT_UNITS(f64, spmtd_double_of_(s.bits))

#define DEFINE_TWOSHOT_HALVES(name)                                                               \
	LL_FN struct wide twoshot_step_##name(struct wide a, union unit u, struct twoshot_step s) \
	{                                                                                         \
		struct wide x = name##_widen(u);                                                  \
                                                                                                  \
		if (s.times) {                                                                    \
			float factor = name##_value((uint16_t)s.bits);                            \
                                                                                                  \
			x.lo = x.lo * factor;                                                     \
			x.hi = x.hi * factor;                                                     \
		}                                                                                 \
		if (!s.pe)                                                                        \
			return x;                                                                 \
		a.lo = f32_step(a.lo, x.lo, s.op);                                                \
		a.hi = f32_step(a.hi, x.hi, s.op);                                                \
		return a;                                                                         \
	}
DEFINE_TWOSHOT_HALVES(f16)
DEFINE_TWOSHOT_HALVES(bf16)

LL_FN struct f8_wide twoshot_step_f8(struct f8_wide a, union unit u, struct twoshot_step s)
{
	struct f8_wide x = f8_widen(u, s.second);
	float factor = s.times ? f8_value((uint8_t)s.bits, s.second) : 1;

	for (int i = 0; i < 4; i++) {
		if (s.times)
			x.part[i] = x.part[i] * factor;
		a.part[i] = s.pe ? f32_step(a.part[i], x.part[i], s.op) : x.part[i];
	}
	return a;
}

#define DEFINE_TWOSHOT_MEANS(w)                                           \
	LL_FN struct ll_sums##w twoshot_step_mean##w(                     \
		struct ll_sums##w a, union unit x, struct twoshot_step s) \
	{                                                                 \
		return s.pe ? ll_step_mean##w(a, x, s.op, s.second)       \
			    : ll_begin_mean##w(x, s.second);              \
	}
DEFINE_TWOSHOT_MEANS(8)
DEFINE_TWOSHOT_MEANS(16)
DEFINE_TWOSHOT_MEANS(32)
DEFINE_TWOSHOT_MEANS(64)

#endif
