/* SPDX-License-Identifier: MIT */
#include "fold.h"

#include "fold_loop.h"

/* ---- loops: one for each pair of type and op that differs ----------------------------------- */

#define REDUCERS_SUM(type)                                                         \
	DEFINE_REDUCER(sum_##type, union unit, packed, same, STEP_SUM, type, same) \
	DEFINE_REDUCER(prod_##type, union unit, packed, same, STEP_PROD, type, same)
#define REDUCERS_ORDER(type)                                                          \
	DEFINE_REDUCER(min_of_##type, union unit, packed, same, STEP_MIN, type, same) \
	DEFINE_REDUCER(max_of_##type, union unit, packed, same, STEP_MAX, type, same)
#define REDUCERS_FLOAT(type)                                                                  \
	DEFINE_REDUCER(sum_##type, union unit, packed, same, STEP_SUM, type, type##_end)      \
	DEFINE_REDUCER(prod_##type, union unit, packed, same, STEP_PROD, type, type##_end)    \
	DEFINE_REDUCER(min_of_##type, union unit, packed, same, STEP_MIN_F, type, type##_end) \
	DEFINE_REDUCER(max_of_##type, union unit, packed, same, STEP_MAX_F, type, type##_end)
#define REDUCERS_HALF(type)                                                                        \
	DEFINE_REDUCER(sum_##type, struct wide, packed_wide, type##_widen, STEP_WIDE_SUM, type,    \
		type##_narrow)                                                                     \
	DEFINE_REDUCER(prod_##type, struct wide, packed_wide, type##_widen, STEP_WIDE_PROD, type,  \
		type##_narrow)                                                                     \
	DEFINE_REDUCER(min_of_##type, struct wide, packed_wide, type##_widen, STEP_WIDE_MIN, type, \
		type##_narrow)                                                                     \
	DEFINE_REDUCER(max_of_##type, struct wide, packed_wide, type##_widen, STEP_WIDE_MAX, type, \
		type##_narrow)

REDUCERS_SUM(u8)
REDUCERS_SUM(u16)
REDUCERS_SUM(u32)
REDUCERS_SUM(u64)
REDUCERS_ORDER(i8)
REDUCERS_ORDER(u8)
REDUCERS_ORDER(i16)
REDUCERS_ORDER(u16)
REDUCERS_ORDER(i32)
REDUCERS_ORDER(u32)
REDUCERS_ORDER(i64)
REDUCERS_ORDER(u64)
REDUCERS_HALF(f16)
REDUCERS_HALF(bf16)
REDUCERS_FLOAT(f32)
REDUCERS_FLOAT(f64)
DEFINE_REDUCER(and_all, union unit, packed, same, STEP_AND, u64, same)
DEFINE_REDUCER(or_all, union unit, packed, same, STEP_OR, u64, same)
DEFINE_REDUCER(xor_all, union unit, packed, same, STEP_XOR, u64, same)

/* Signed and unsigned integers differ in order alone. */
#define PICK(type, sums)                                             \
	static inline void pick_##type(const struct fold *r, int op) \
	{                                                            \
		if (op == SPMT_OP_SUM)                               \
			sum_##sums(r);                               \
		else if (op == SPMT_OP_PROD)                         \
			prod_##sums(r);                              \
		else if (op == SPMT_OP_MIN)                          \
			min_of_##type(r);                            \
		else                                                 \
			max_of_##type(r);                            \
	}
PICK(i8, u8)
PICK(u8, u8)
PICK(i16, u16)
PICK(u16, u16)
PICK(i32, u32)
PICK(u32, u32)
PICK(i64, u64)
PICK(u64, u64)
PICK(f16, f16)
PICK(bf16, bf16)
PICK(f32, f32)
PICK(f64, f64)

static inline int fold_bits(const struct fold *r, int op)
{
	switch (op) {
	case SPMT_OP_AND:
		and_all(r);
		return 1;
	case SPMT_OP_OR:
		or_all(r);
		return 1;
	case SPMT_OP_XOR:
		xor_all(r);
		return 1;
	default:
		return 0;
	}
}

__attribute__((noinline)) void fold_run(const struct fold *r, int type, int op)
{
#if !defined(__AMDGCN__) && !defined(__NVPTX__)
	if (op == SPMT_OP_SUM && fold_sum(r, type))
		return;
#endif
	if (fold_bits(r, op))
		return;
	if (type == SPMT_TYPE_F8E4M3 || type == SPMT_TYPE_F8E5M2) {
		fold_f8(r, type, op);
		return;
	}
	if (op == SPMT_OP_AVG) {
		fold_mean(r, type);
		return;
	}
	if (op == COLL_PREMUL) {
		fold_premul(r, type);
		return;
	}
	switch (type) {
	case SPMT_TYPE_I8:
		pick_i8(r, op);
		break;
	case SPMT_TYPE_U8:
		pick_u8(r, op);
		break;
	case SPMT_TYPE_I16:
		pick_i16(r, op);
		break;
	case SPMT_TYPE_U16:
		pick_u16(r, op);
		break;
	case SPMT_TYPE_I32:
		pick_i32(r, op);
		break;
	case SPMT_TYPE_U32:
		pick_u32(r, op);
		break;
	case SPMT_TYPE_I64:
		pick_i64(r, op);
		break;
	case SPMT_TYPE_U64:
		pick_u64(r, op);
		break;
	case SPMT_TYPE_F16:
		pick_f16(r, op);
		break;
	case SPMT_TYPE_BF16:
		pick_bf16(r, op);
		break;
	case SPMT_TYPE_F32:
		pick_f32(r, op);
		break;
	case SPMT_TYPE_F64:
		pick_f64(r, op);
		break;
	default:
		break;
	}
}
