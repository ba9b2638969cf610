/* SPDX-License-Identifier: MIT */
/*
 * 8-bit floats of the OCP 8-bit Floating Point Specification, revision 1.0, by integer code and exact f32 operations. E4M3
 * has no infinity: S.1111.111 is its NaN, and what is too large becomes it. E5M2 is the upper half of an f16.
 */
#ifndef SPMT_KERNELS_F8_H
#define SPMT_KERNELS_F8_H

#include "../../../include/spmt.h"
#include "fold_float.h"

#define F8E4M3_NAN 0x7fu
#define F8E5M2_NAN 0x7eu
#define F8E5M2_INFINITY 0x7cu

static inline float f8e4m3_value(uint8_t h)
{
	uint32_t sign = (uint32_t)(h & 0x80u) << 24, low = h & 0x7fu;

	if (low == F8E4M3_NAN)
		return spmtd_float_of_(0x7fc00000u);
	if (low >= 8)
		return spmtd_float_of_(sign | ((low << 20) + (120u << 23)));
	/* Below the normal range a multiple of 2^-9. */
	return spmtd_float_of_(sign | spmtd_float_bits_((float)low * 0x1p-9f));
}

static inline float f8e5m2_value(uint8_t h)
{
	return f16_value((uint16_t)(h << 8));
}

/*
 * Nearest, ties to even, of a positive number that is no NaN, by its bits: exponent and fraction side by side, which runs on
 * beyond the largest. Below the normal range it is a multiple of some 2^k, and adding 2^(k + 23) rounds to that.
 */
static inline uint32_t f8_nearest(uint32_t x, uint32_t digits, uint32_t bias, float add)
{
	uint32_t drop = 23u - digits;

	if (x < (128u - bias) << 23)
		return spmtd_float_bits_(spmtd_float_of_(x) + add) - spmtd_float_bits_(add);
	x -= (127u - bias) << 23;
	return (x + (1u << (drop - 1)) - 1u + (x >> drop & 1u)) >> drop;
}

static inline uint8_t f8e4m3_nearest(float value)
{
	uint32_t bits = spmtd_float_bits_(value), x = bits & 0x7fffffffu;
	uint32_t q = f8_nearest(x > 0x7f800000u ? 0x7f800000u : x, 3, 7, 0x1p14f);

	return (uint8_t)(q >= F8E4M3_NAN ? F8E4M3_NAN : (bits >> 24 & 0x80u) | q);
}

static inline uint8_t f8e5m2_nearest(float value)
{
	uint32_t bits = spmtd_float_bits_(value), x = bits & 0x7fffffffu, q;

	if (x > 0x7f800000u)
		return F8E5M2_NAN;
	q = f8_nearest(x, 2, 15, 0x1p7f);
	return (uint8_t)((bits >> 24 & 0x80u) | (q < F8E5M2_INFINITY ? q : F8E5M2_INFINITY));
}

/* Left as a loop it has the values in memory. */
#if defined(__AMDGCN__) || defined(__NVPTX__)
#define F8_UNROLLED _Pragma("unroll")
#else
#define F8_UNROLLED
#endif

/* A unit has four times four values. */
struct f8_wide {
	f32x4 part[4];
};

static inline float f8_value(uint8_t x, int e5m2)
{
	return e5m2 ? f8e5m2_value(x) : f8e4m3_value(x);
}

static inline uint8_t f8_code(float x, int e5m2)
{
	return e5m2 ? f8e5m2_nearest(x) : f8e4m3_nearest(x);
}

static inline struct f8_wide f8_widen(union unit u, int e5m2)
{
	struct f8_wide w;

	F8_UNROLLED
	for (int i = 0; i < 16; i++)
		w.part[i / 4][i % 4] = f8_value(u.u8[i], e5m2);
	return w;
}

static inline union unit f8_narrow(struct f8_wide w, int e5m2)
{
	union unit u;

	F8_UNROLLED
	for (int i = 0; i < 16; i++)
		u.u8[i] = f8_code(w.part[i / 4][i % 4], e5m2);
	return u;
}

static inline f32x4 f32_step(f32x4 a, f32x4 x, int op)
{
	switch (op) {
	case SPMT_OP_PROD:
		return a * x;
	case SPMT_OP_MIN:
		return min_f32(a, x);
	case SPMT_OP_MAX:
		return max_f32(a, x);
	default:
		return a + x;
	}
}

/* Of `ll`. */
static inline __attribute__((always_inline)) struct f8_wide ll_step_f8(
	struct f8_wide a, union unit u, int op, int e5m2)
{
	struct f8_wide x = f8_widen(u, e5m2);

	for (int i = 0; i < 4; i++)
		a.part[i] = f32_step(a.part[i], x.part[i], op);
	return a;
}

static inline __attribute__((always_inline)) union unit ll_end_f8(
	struct f8_wide a, int op, int npes, int e5m2)
{
	for (int i = 0; i < 4 && op == SPMT_OP_AVG; i++)
		a.part[i] = a.part[i] / (float)npes;
	return f8_narrow(a, e5m2);
}

#endif
