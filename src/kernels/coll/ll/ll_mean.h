/* SPDX-License-Identifier: MIT */
/* Means of integers, as `ll` folds them: sums in a type that has room for 32768 of either sign. */
#ifndef SPMT_KERNELS_LL_MEAN_H
#define SPMT_KERNELS_LL_MEAN_H

#include "src/kernels/fold/fold_unit.h"

/* As COLL_FN, for functions of these files. On CPUs the compiler inlines as it likes, in a third of the time. */
#if defined(__AMDGCN__) || defined(__NVPTX__)
#define LL_FN static inline __attribute__((always_inline)) SPMTD_MEETS
#else
#define LL_FN static inline
#endif

#define DEFINE_LL_MEANS(w, sum, each)                                                         \
	struct ll_sums##w {                                                                   \
		sum at[each];                                                                 \
	};                                                                                    \
	LL_FN struct ll_sums##w ll_step_mean##w(                                              \
		struct ll_sums##w s, union unit x, int op, int is_signed)                     \
	{                                                                                     \
		(void)op;                                                                     \
		for (int i = 0; i < (each); i++)                                              \
			s.at[i] += is_signed ? (sum)x.i##w[i] : (sum)x.u##w[i];               \
		return s;                                                                     \
	}                                                                                     \
	LL_FN struct ll_sums##w ll_begin_mean##w(union unit x, int is_signed)                 \
	{                                                                                     \
		struct ll_sums##w s = { { 0 } };                                              \
                                                                                              \
		return ll_step_mean##w(s, x, 0, is_signed);                                   \
	}                                                                                     \
	LL_FN union unit ll_end_mean##w(struct ll_sums##w s, int op, int npes, int is_signed) \
	{                                                                                     \
		union unit u;                                                                 \
                                                                                              \
		(void)op;                                                                     \
		(void)is_signed;                                                              \
		for (int i = 0; i < (each); i++)                                              \
			u.i##w[i] = (int##w##_t)(s.at[i] / (sum)npes);                        \
		return u;                                                                     \
	}
DEFINE_LL_MEANS(8, int32_t, 16)
DEFINE_LL_MEANS(16, int32_t, 8)
DEFINE_LL_MEANS(32, int64_t, 4)

struct ll_sums64 {
	struct mean_sum at[2];
};

LL_FN struct ll_sums64 ll_step_mean64(struct ll_sums64 s, union unit x, int op, int is_signed)
{
	(void)op;
	mean_add(&s.at[0], x.words[0], is_signed);
	mean_add(&s.at[1], x.words[1], is_signed);
	return s;
}

LL_FN struct ll_sums64 ll_begin_mean64(union unit x, int is_signed)
{
	struct ll_sums64 s = { { { 0, 0 }, { 0, 0 } } };

	return ll_step_mean64(s, x, 0, is_signed);
}

LL_FN union unit ll_end_mean64(struct ll_sums64 s, int op, int npes, int is_signed)
{
	union unit u;

	(void)op;
	for (int i = 0; i < 2; i++)
		u.words[i] = mean_over(s.at[i], (uint64_t)(uint32_t)npes, is_signed);
	return u;
}

#endif
