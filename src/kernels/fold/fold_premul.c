/* SPDX-License-Identifier: MIT */
/*
 * The pre-multiplied sum: what each rank gives, times its factor, is added in the order of ranks. Integers wrap, as signed ones do in
 * two's complement; floats are rounded after the product and after the sum, halves work in f32 and are rounded once more at the end.
 */
#include "fold_loop.h"

/* m: the member of a unit, or the half; factor(bits): a rank's, as a value. */
#if defined(__AMDGCN__) || defined(__NVPTX__)

#define DEFINE_PREMUL(name, acc, factor, begin, step, end)                                     \
	static void name(const struct fold *r)                                                 \
	{                                                                                      \
		for (uint64_t k = r->lane; 16 * k < r->bytes; k += r->lanes) {                 \
			acc a = begin(unit_of(r, 0, k), factor(fold_factor(r, 0)));            \
                                                                                               \
			for (int pe = 1; pe < r->npes; pe++)                                   \
				step(a, begin(unit_of(r, pe, k), factor(fold_factor(r, pe)))); \
			unit_out(r, k, end(a));                                                \
		}                                                                              \
	}

#else

/* As the folds of fold_loop.h: rank by rank. */
#define DEFINE_PREMUL(name, acc, factor, begin, step, end)                                  \
	static void name(const struct fold *r)                                              \
	{                                                                                   \
		uint64_t at = (uint64_t)r->lane * FOLD_TILE;                                \
		union unit tile[FOLD_TILE], x;                                              \
		acc a[FOLD_TILE];                                                           \
                                                                                            \
		for (; 16 * at < r->bytes; at += (uint64_t)r->lanes * FOLD_TILE) {          \
			uint32_t n = tile_units(r, at);                                     \
                                                                                            \
			for (int pe = 0; pe < r->npes; pe++) {                              \
				const unsigned char *from = tile_of(r, pe, at, n, tile);    \
				const __typeof__(factor(0)) f = factor(fold_factor(r, pe)); \
                                                                                            \
				for (uint32_t i = 0; i < n; i++) {                          \
					__builtin_memcpy(&x, from + 16 * i, 16);            \
					if (pe)                                             \
						step(a[i], begin(x, f));                    \
					else                                                \
						a[i] = begin(x, f);                         \
				}                                                           \
			}                                                                   \
			for (uint32_t i = 0; i < n; i++)                                    \
				tile[i] = end(a[i]);                                        \
			tile_out(r, at, n, tile);                                           \
		}                                                                           \
	}

#endif

#define DEFINE_INTEGER_PREMUL(m, element)                           \
	static inline element m##_factor(uint64_t bits)             \
	{                                                           \
		return (element)bits;                               \
	}                                                           \
	static inline union unit m##_times(union unit u, element f) \
	{                                                           \
		u.m = u.m * f;                                      \
		return u;                                           \
	}                                                           \
	DEFINE_PREMUL(premul_##m, union unit, m##_factor, m##_times, STEP_PLUS_##m, same)
#define STEP_PLUS(m, a, x)         \
	do {                       \
		union unit x_ = x; \
		(a).m += x_.m;     \
	} while (0)
#define STEP_PLUS_u8(a, x) STEP_PLUS(u8, a, x)
#define STEP_PLUS_u16(a, x) STEP_PLUS(u16, a, x)
#define STEP_PLUS_u32(a, x) STEP_PLUS(u32, a, x)
#define STEP_PLUS_u64(a, x) STEP_PLUS(u64, a, x)
#define STEP_PLUS_f32(a, x) STEP_PLUS(f32, a, x)
#define STEP_PLUS_f64(a, x) STEP_PLUS(f64, a, x)
DEFINE_INTEGER_PREMUL(u8, uint8_t)
DEFINE_INTEGER_PREMUL(u16, uint16_t)
DEFINE_INTEGER_PREMUL(u32, uint32_t)
DEFINE_INTEGER_PREMUL(u64, uint64_t)

static inline float f32_factor(uint64_t bits)
{
	return spmtd_float_of_((uint32_t)bits);
}

static inline union unit f32_times(union unit u, float f)
{
	u.f32 = u.f32 * f;
	return u;
}

static inline double f64_factor(uint64_t bits)
{
	return spmtd_double_of_(bits);
}

static inline union unit f64_times(union unit u, double f)
{
	u.f64 = u.f64 * f;
	return u;
}
DEFINE_PREMUL(premul_f32, union unit, f32_factor, f32_times, STEP_PLUS_f32, f32_end)
DEFINE_PREMUL(premul_f64, union unit, f64_factor, f64_times, STEP_PLUS_f64, f64_end)

#define STEP_PLUS_WIDE(a, x)        \
	do {                        \
		struct wide x_ = x; \
		(a).lo += x_.lo;    \
		(a).hi += x_.hi;    \
	} while (0)
#define DEFINE_HALF_PREMUL(m)                                      \
	static inline float m##_factor(uint64_t bits)              \
	{                                                          \
		return m##_value((uint16_t)bits);                  \
	}                                                          \
	static inline struct wide m##_times(union unit u, float f) \
	{                                                          \
		struct wide w = m##_widen(u);                      \
                                                                   \
		w.lo = w.lo * f;                                   \
		w.hi = w.hi * f;                                   \
		return w;                                          \
	}                                                          \
	DEFINE_PREMUL(premul_##m, struct wide, m##_factor, m##_times, STEP_PLUS_WIDE, m##_narrow)
DEFINE_HALF_PREMUL(f16)
DEFINE_HALF_PREMUL(bf16)

__attribute__((noinline)) void fold_premul(const struct fold *r, int type)
{
	switch (type) {
	case SPMT_TYPE_I8:
	case SPMT_TYPE_U8:
		premul_u8(r);
		break;
	case SPMT_TYPE_I16:
	case SPMT_TYPE_U16:
		premul_u16(r);
		break;
	case SPMT_TYPE_I32:
	case SPMT_TYPE_U32:
		premul_u32(r);
		break;
	case SPMT_TYPE_I64:
	case SPMT_TYPE_U64:
		premul_u64(r);
		break;
	case SPMT_TYPE_F16:
		premul_f16(r);
		break;
	case SPMT_TYPE_BF16:
		premul_bf16(r);
		break;
	case SPMT_TYPE_F32:
		premul_f32(r);
		break;
	case SPMT_TYPE_F64:
		premul_f64(r);
		break;
	default:
		break;
	}
}
