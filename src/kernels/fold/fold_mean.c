/* SPDX-License-Identifier: MIT */
/*
 * The mean. Of integers it is exact and then rounded toward zero: the sum is made in a type that has room for it, of 64 bits in two
 * words. Of floats it is the sum as SUM makes it, and one division.
 */
#include "fold_loop.h"

/* ---- integers --------------------------------------------------------------------------------- */

/* acc has room for 32768 of them. */
#define DEFINE_MEAN(type, element, acc, each)                                  \
	static void mean_of_##type(const struct fold *r)                       \
	{                                                                      \
		for (uint64_t k = r->lane; 16 * k < r->bytes; k += r->lanes) { \
			acc a[each] = { 0 };                                   \
			union unit u;                                          \
                                                                               \
			for (int pe = 0; pe < r->npes; pe++) {                 \
				u = unit_of(r, pe, k);                         \
				for (int i = 0; i < (each); i++)               \
					a[i] += u.type[i];                     \
			}                                                      \
			for (int i = 0; i < (each); i++)                       \
				u.type[i] = (element)(a[i] / (acc)r->npes);    \
			unit_out(r, k, u);                                     \
		}                                                              \
	}
DEFINE_MEAN(i8, int8_t, int32_t, 16)
DEFINE_MEAN(u8, uint8_t, uint32_t, 16)
DEFINE_MEAN(i16, int16_t, int32_t, 8)
DEFINE_MEAN(u16, uint16_t, uint32_t, 8)
DEFINE_MEAN(i32, int32_t, int64_t, 4)
DEFINE_MEAN(u32, uint32_t, uint64_t, 4)

static inline void mean_of_64(const struct fold *r, int is_signed)
{
	for (uint64_t k = r->lane; 16 * k < r->bytes; k += r->lanes) {
		struct mean_sum s[2] = { { 0, 0 }, { 0, 0 } };
		union unit u;

		for (int pe = 0; pe < r->npes; pe++) {
			u = unit_of(r, pe, k);
			mean_add(&s[0], u.words[0], is_signed);
			mean_add(&s[1], u.words[1], is_signed);
		}
		for (int i = 0; i < 2; i++)
			u.words[i] = mean_over(s[i], (uint64_t)(uint32_t)r->npes, is_signed);
		unit_out(r, k, u);
	}
}

/* ---- floats ------------------------------------------------------------------------------------ */

static inline union unit mean_f32_end(union unit u, const struct fold *r)
{
	u.f32 = u.f32 / (float)r->npes;
	return f32_end(u);
}

static inline union unit mean_f64_end(union unit u, const struct fold *r)
{
	u.f64 = u.f64 / (double)r->npes;
	return f64_end(u);
}

static inline struct wide mean_wide_end(struct wide w, const struct fold *r)
{
	w.lo = w.lo / (float)r->npes;
	w.hi = w.hi / (float)r->npes;
	return w;
}

#define END_F32(a) mean_f32_end(a, r)
#define END_F64(a) mean_f64_end(a, r)
#define END_F16(a) f16_narrow(mean_wide_end(a, r))
#define END_BF16(a) bf16_narrow(mean_wide_end(a, r))
DEFINE_REDUCER(mean_of_f32, union unit, packed, same, STEP_SUM, f32, END_F32)
DEFINE_REDUCER(mean_of_f64, union unit, packed, same, STEP_SUM, f64, END_F64)
DEFINE_REDUCER(mean_of_f16, struct wide, packed_wide, f16_widen, STEP_WIDE_SUM, f16, END_F16)
DEFINE_REDUCER(mean_of_bf16, struct wide, packed_wide, bf16_widen, STEP_WIDE_SUM, bf16, END_BF16)

__attribute__((noinline)) void fold_mean(const struct fold *r, int type)
{
	switch (type) {
	case SPMT_TYPE_I8:
		mean_of_i8(r);
		break;
	case SPMT_TYPE_U8:
		mean_of_u8(r);
		break;
	case SPMT_TYPE_I16:
		mean_of_i16(r);
		break;
	case SPMT_TYPE_U16:
		mean_of_u16(r);
		break;
	case SPMT_TYPE_I32:
		mean_of_i32(r);
		break;
	case SPMT_TYPE_U32:
		mean_of_u32(r);
		break;
	case SPMT_TYPE_I64:
	case SPMT_TYPE_U64:
		mean_of_64(r, type == SPMT_TYPE_I64);
		break;
	case SPMT_TYPE_F16:
		mean_of_f16(r);
		break;
	case SPMT_TYPE_BF16:
		mean_of_bf16(r);
		break;
	case SPMT_TYPE_F32:
		mean_of_f32(r);
		break;
	case SPMT_TYPE_F64:
		mean_of_f64(r);
		break;
	default:
		break;
	}
}
