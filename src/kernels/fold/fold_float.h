/* SPDX-License-Identifier: MIT */
/* Floats as folds see them: what NaN and zeros are to min and max, and halves as the f32 values that they are folded in. */
#ifndef SPMT_KERNELS_FOLD_FLOAT_H
#define SPMT_KERNELS_FOLD_FLOAT_H

#include "../../../include/spmt_device/half.h"
#include "unit.h"

/* As the device header has them. */
static inline float f16_value(uint16_t h)
{
	return spmtd_half_value_(h);
}

static inline uint16_t f16_nearest(float value)
{
	return spmtd_half_nearest_(value);
}

static inline float bf16_value(uint16_t h)
{
	return spmtd_bfloat16_value_(h);
}

static inline uint16_t bf16_nearest(float value)
{
	return spmtd_bfloat16_nearest_(value);
}

static inline float quiet32(float x)
{
	return x != x ? spmtd_float_of_(0x7fc00000u) : x;
}

static inline double quiet64(double x)
{
	return x != x ? spmtd_double_of_(0x7ff8000000000000ull) : x;
}

static inline float min32(float a, float b)
{
	if (a != a || b != b)
		return spmtd_float_of_(0x7fc00000u);
	if (a == b) /* zeros may differ by sign */
		return spmtd_float_of_(spmtd_float_bits_(a) | spmtd_float_bits_(b));
	return a < b ? a : b;
}

static inline float max32(float a, float b)
{
	if (a != a || b != b)
		return spmtd_float_of_(0x7fc00000u);
	if (a == b)
		return spmtd_float_of_(spmtd_float_bits_(a) & spmtd_float_bits_(b));
	return a < b ? b : a;
}

static inline double min64(double a, double b)
{
	if (a != a || b != b)
		return spmtd_double_of_(0x7ff8000000000000ull);
	if (a == b)
		return spmtd_double_of_(spmtd_double_bits_(a) | spmtd_double_bits_(b));
	return a < b ? a : b;
}

static inline double max64(double a, double b)
{
	if (a != a || b != b)
		return spmtd_double_of_(0x7ff8000000000000ull);
	if (a == b)
		return spmtd_double_of_(spmtd_double_bits_(a) & spmtd_double_bits_(b));
	return a < b ? b : a;
}

#define LANES2(f, a, b)                              \
	{                                            \
		f((a)[0], (b)[0]), f((a)[1], (b)[1]) \
	}
#define LANES4(f, a, b)                                                                    \
	{                                                                                  \
		f((a)[0], (b)[0]), f((a)[1], (b)[1]), f((a)[2], (b)[2]), f((a)[3], (b)[3]) \
	}

#define DEFINE_LANEWISE(name, type, lanes, f)   \
	static inline type name(type a, type b) \
	{                                       \
		type x = lanes(f, a, b);        \
                                                \
		return x;                       \
	}
DEFINE_LANEWISE(min_f32, f32x4, LANES4, min32)
DEFINE_LANEWISE(max_f32, f32x4, LANES4, max32)
DEFINE_LANEWISE(min_f64, f64x2, LANES2, min64)
DEFINE_LANEWISE(max_f64, f64x2, LANES2, max64)

static inline f32x4 quiet_f32(f32x4 a)
{
	f32x4 x = { quiet32(a[0]), quiet32(a[1]), quiet32(a[2]), quiet32(a[3]) };

	return x;
}

static inline f64x2 quiet_f64(f64x2 a)
{
	f64x2 x = { quiet64(a[0]), quiet64(a[1]) };

	return x;
}

#define VALUES(name, v, i)                                                                \
	{                                                                                 \
		name##_value((v)[i]), name##_value((v)[i + 1]), name##_value((v)[i + 2]), \
			name##_value((v)[i + 3])                                          \
	}
#define NEAREST(name, v, i) name##_nearest((v)[i]), name##_nearest((v)[i + 1])
#define DEFINE_HALVES(name)                                                                  \
	static inline struct wide name##_widen(union unit u)                                 \
	{                                                                                    \
		struct wide w = { VALUES(name, u.u16, 0), VALUES(name, u.u16, 4) };          \
                                                                                             \
		return w;                                                                    \
	}                                                                                    \
	static inline union unit name##_narrow(struct wide w)                                \
	{                                                                                    \
		union unit u = { .u16 = { NEAREST(name, w.lo, 0), NEAREST(name, w.lo, 2),    \
					 NEAREST(name, w.hi, 0), NEAREST(name, w.hi, 2) } }; \
                                                                                             \
		return u;                                                                    \
	}
DEFINE_HALVES(f16)
DEFINE_HALVES(bf16)

static inline union unit f32_end(union unit u)
{
	u.f32 = quiet_f32(u.f32);
	return u;
}

static inline union unit f64_end(union unit u)
{
	u.f64 = quiet_f64(u.f64);
	return u;
}

#endif
