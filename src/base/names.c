/* SPDX-License-Identifier: MIT */
#include "names.h"

#include <stdio.h>
#include <string.h>

#include "src/base/base.h"

#define NAME_OF(names, i) ((i) < ARRAY_SIZE(names) ? (names)[i] : "unknown")

const char *type_name(uint64_t type)
{
	static const char *const names[] = { [SPMT_TYPE_I8] = "i8",
		[SPMT_TYPE_U8] = "u8",
		[SPMT_TYPE_I16] = "i16",
		[SPMT_TYPE_U16] = "u16",
		[SPMT_TYPE_I32] = "i32",
		[SPMT_TYPE_U32] = "u32",
		[SPMT_TYPE_I64] = "i64",
		[SPMT_TYPE_U64] = "u64",
		[SPMT_TYPE_F16] = "f16",
		[SPMT_TYPE_BF16] = "bf16",
		[SPMT_TYPE_F32] = "f32",
		[SPMT_TYPE_F64] = "f64",
		[SPMT_TYPE_F8E4M3] = "f8e4m3",
		[SPMT_TYPE_F8E5M2] = "f8e5m2" };

	return NAME_OF(names, type);
}

size_t type_size(enum spmt_type type)
{
	switch (type) {
	case SPMT_TYPE_I8:
	case SPMT_TYPE_U8:
	case SPMT_TYPE_F8E4M3:
	case SPMT_TYPE_F8E5M2:
		return 1;
	case SPMT_TYPE_I16:
	case SPMT_TYPE_U16:
	case SPMT_TYPE_F16:
	case SPMT_TYPE_BF16:
		return 2;
	case SPMT_TYPE_I32:
	case SPMT_TYPE_U32:
	case SPMT_TYPE_F32:
		return 4;
	case SPMT_TYPE_I64:
	case SPMT_TYPE_U64:
	case SPMT_TYPE_F64:
		return 8;
	}
	return 0;
}

const char *op_name(uint64_t op)
{
	static const char *const names[] = { [SPMT_OP_SUM] = "sum",
		[SPMT_OP_PROD] = "prod",
		[SPMT_OP_MIN] = "min",
		[SPMT_OP_MAX] = "max",
		[SPMT_OP_AND] = "and",
		[SPMT_OP_OR] = "or",
		[SPMT_OP_XOR] = "xor",
		[SPMT_OP_AVG] = "avg",
		[SPMT_OP_AVG + 1] = "premul" /* inside the library: a pre-multiplied sum */ };

	return NAME_OF(names, op);
}

const char *amo_name(uint64_t amo)
{
	static const char *const names[] = { [SPMT_AMO_FETCH] = "fetch",
		[SPMT_AMO_SET] = "set",
		[SPMT_AMO_SWAP] = "swap",
		[SPMT_AMO_COMPARE_SWAP] = "compare_swap",
		[SPMT_AMO_INC] = "inc",
		[SPMT_AMO_ADD] = "add",
		[SPMT_AMO_AND] = "and",
		[SPMT_AMO_OR] = "or",
		[SPMT_AMO_XOR] = "xor",
		[SPMT_AMO_FETCH_INC] = "fetch_inc",
		[SPMT_AMO_FETCH_ADD] = "fetch_add",
		[SPMT_AMO_FETCH_AND] = "fetch_and",
		[SPMT_AMO_FETCH_OR] = "fetch_or",
		[SPMT_AMO_FETCH_XOR] = "fetch_xor" };

	return NAME_OF(names, amo);
}

const char *cmp_name(uint64_t cmp)
{
	static const char *const names[] = { [SPMT_CMP_EQ] = "==",
		[SPMT_CMP_NE] = "!=",
		[SPMT_CMP_GT] = ">",
		[SPMT_CMP_GE] = ">=",
		[SPMT_CMP_LT] = "<",
		[SPMT_CMP_LE] = "<=" };

	return NAME_OF(names, cmp);
}

struct word_text word_text(uint64_t type, uint64_t bits)
{
	struct word_text t;
	uint32_t low = (uint32_t)bits;
	double d;
	float f;

	memcpy(&d, &bits, sizeof(d));
	memcpy(&f, &low, sizeof(f));
	if (type == SPMT_TYPE_F32 || type == SPMT_TYPE_F64) {
		snprintf(t.text, sizeof(t.text), "%.17g", type == SPMT_TYPE_F32 ? (double)f : d);
	} else if (type == SPMT_TYPE_I8 || type == SPMT_TYPE_I16 || type == SPMT_TYPE_I32 ||
		type == SPMT_TYPE_I64) {
		unsigned unused = 64 - 8 * (unsigned)type_size((enum spmt_type)type);

		snprintf(t.text, sizeof(t.text), "%lld",
			(long long)((int64_t)(bits << unused) >> unused));
	} else {
		snprintf(t.text, sizeof(t.text), "%#llx", (unsigned long long)bits);
	}
	return t;
}
