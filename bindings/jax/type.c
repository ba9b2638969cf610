/* SPDX-License-Identifier: MIT */
#include "bindings/jax/type.h"

#include "bindings/jax/ffi.h"
#include "spmt.h"

static const struct xla_type xla_types[] = {
	[FFI_PRED] = { "pred", 1, SPMT_TYPE_U8, 1 },
	[FFI_S8] = { "s8", 1, SPMT_TYPE_I8, 1 },
	[FFI_S16] = { "s16", 2, SPMT_TYPE_I16, 1 },
	[FFI_S32] = { "s32", 4, SPMT_TYPE_I32, 1 },
	[FFI_S64] = { "s64", 8, SPMT_TYPE_I64, 1 },
	[FFI_U8] = { "u8", 1, SPMT_TYPE_U8, 1 },
	[FFI_U16] = { "u16", 2, SPMT_TYPE_U16, 1 },
	[FFI_U32] = { "u32", 4, SPMT_TYPE_U32, 1 },
	[FFI_U64] = { "u64", 8, SPMT_TYPE_U64, 1 },
	[FFI_F16] = { "f16", 2, SPMT_TYPE_F16, 1 },
	[FFI_F32] = { "f32", 4, SPMT_TYPE_F32, 1 },
	[FFI_F64] = { "f64", 8, SPMT_TYPE_F64, 1 },
	[FFI_C64] = { "c64", 8, SPMT_TYPE_F32, 2 },
	[FFI_BF16] = { "bf16", 2, SPMT_TYPE_BF16, 1 },
	[FFI_C128] = { "c128", 16, SPMT_TYPE_F64, 2 },
	[FFI_F8E5M2] = { "f8e5m2", 1, SPMT_TYPE_F8E5M2, 1 },
	[FFI_F8E4M3FN] = { "f8e4m3fn", 1, SPMT_TYPE_F8E4M3, 1 },
	[FFI_F8E4M3B11FNUZ] = { "f8e4m3b11fnuz", 1, 0, 0 },
	[FFI_F8E5M2FNUZ] = { "f8e5m2fnuz", 1, 0, 0 },
	[FFI_F8E4M3FNUZ] = { "f8e4m3fnuz", 1, 0, 0 },
	[FFI_F8E4M3] = { "f8e4m3", 1, 0, 0 },
	[FFI_F8E3M4] = { "f8e3m4", 1, 0, 0 },
	[FFI_F8E8M0FNU] = { "f8e8m0fnu", 1, 0, 0 },
	[FFI_TOKEN] = { .name = "token" }, /* from here on: what no call takes */
	[FFI_S4] = { .name = "s4" },
	[FFI_U4] = { .name = "u4" },
	[FFI_S2] = { .name = "s2" },
	[FFI_U2] = { .name = "u2" },
	[FFI_S1] = { .name = "s1" },
	[FFI_U1] = { .name = "u1" },
	[FFI_F4E2M1FN] = { .name = "f4e2m1fn" },
};

const struct xla_type *xla_type_of(int dtype)
{
	size_t n = sizeof(xla_types) / sizeof(xla_types[0]);

	return dtype >= 0 && (size_t)dtype < n && xla_types[dtype].size ? &xla_types[dtype] : NULL;
}

const char *xla_type_name(int dtype)
{
	size_t n = sizeof(xla_types) / sizeof(xla_types[0]);
	const char *name = dtype >= 0 && (size_t)dtype < n ? xla_types[dtype].name : NULL;

	return name ? name : "unknown";
}

const char *xla_op_name(int64_t op)
{
	static const char *const names[] = { "sum", "prod", "min", "max", "and", "or", "xor" };

	return names[op];
}
