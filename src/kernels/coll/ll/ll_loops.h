/* SPDX-License-Identifier: MIT */
/* Which loop folds what. */
#ifndef SPMT_KERNELS_LL_LOOPS_H
#define SPMT_KERNELS_LL_LOOPS_H

#include "ll_fold.h"

/* In the order of types. */
enum fold_loop {
#define X(name) FOLD_##name,
	COLL_FOLD_KERNELS(X)
#undef X
};
_Static_assert(SPMT_TYPE_I8 == 0 && SPMT_TYPE_U64 == 7 && SPMT_TYPE_F64 == 11 &&
		FOLD_u64 == FOLD_u8 + 3 && FOLD_f64 == FOLD_f16 + 3 &&
		FOLD_mean64 == FOLD_mean8 + 3,
	"types and loops are counted alike");

/* Of the two types that share a loop. */
LL_FN int second_type(int type)
{
	return type < SPMT_TYPE_F16 ? type % 2 == 0 : type == SPMT_TYPE_F8E5M2;
}

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
LL_FN enum fold_loop fold_loop_for(const struct kernel_collective_args *args)
{
	int type = args->type;

	if (type >= SPMT_TYPE_F8E4M3)
		return FOLD_f8;
	if (type >= SPMT_TYPE_F16)
		return (enum fold_loop)((int)FOLD_f16 + type - (int)SPMT_TYPE_F16);
	return (enum fold_loop)((int)(args->op == SPMT_OP_AVG ? FOLD_mean8 : FOLD_u8) + type / 2);
}
#endif

#endif
