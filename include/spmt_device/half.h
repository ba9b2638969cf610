/* SPDX-License-Identifier: MIT */
/* f16 and bf16, carried as their 16 bits, by integer code and exact f32 operations: the same bits on the host and on every
   device. */
#ifndef SPMTD_HALF_H
#define SPMTD_HALF_H

#include "machine.h"

SPMTD_BEGIN

#define SPMTD_BITS(name, T)                  \
	SPMTD_FN T spmtd_##name##_bits_(T x) \
	{                                    \
		return x;                    \
	}                                    \
	SPMTD_FN T spmtd_##name##_of_(T x)   \
	{                                    \
		return x;                    \
	}
SPMTD_BITS(half, uint16_t)
SPMTD_BITS(bfloat16, uint16_t)
SPMTD_BITS(half_pair, uint32_t)
SPMTD_BITS(bfloat16_pair, uint32_t)
#undef SPMTD_BITS

SPMTD_FN float spmtd_half_value_(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16, low = h & 0x7fffu;

	if (low >= 0x7c00u) /* infinity, NaN */
		return spmtd_float_of_(sign | 0x7f800000u | (low & 0x3ffu) << 13);
	if (low >= 0x0400u)
		return spmtd_float_of_(sign | ((low << 13) + (112u << 23)));
	/* Below the normal range f16 is a multiple of 2^-24. */
	return spmtd_float_of_(sign | spmtd_float_bits_((float)low * 5.9604644775390625e-8f));
}

/* Nearest, ties to even; a NaN becomes the positive quiet one. */
SPMTD_FN uint16_t spmtd_half_nearest_(float value)
{
	uint32_t bits = spmtd_float_bits_(value), sign = bits >> 16 & 0x8000u,
		 x = bits & 0x7fffffffu;
	uint32_t mantissa, shift, rest, middle, q;

	if (x > 0x7f800000u)
		return 0x7e00u;
	if (x >= 0x477ff000u) /* from 65520 on */
		return (uint16_t)(sign | 0x7c00u);
	if (x >= 0x38800000u) { /* from 2^-14 on: the carry may reach the exponent */
		x -= 112u << 23;
		return (uint16_t)(sign | (x + 0xfffu + (x >> 13 & 1u)) >> 13);
	}
	if (x < 0x33000000u) /* below 2^-25 */
		return (uint16_t)sign;
	mantissa = (x & 0x7fffffu) | 0x800000u;
	shift = 126u - (x >> 23);
	q = mantissa >> shift;
	rest = mantissa & ((1u << shift) - 1u);
	middle = 1u << (shift - 1u);
	if (rest > middle || (rest == middle && (q & 1u)))
		q++;
	return (uint16_t)(sign | q);
}

SPMTD_FN float spmtd_bfloat16_value_(uint16_t h)
{
	return spmtd_float_of_((uint32_t)h << 16);
}

SPMTD_FN uint16_t spmtd_bfloat16_nearest_(float value)
{
	uint32_t x = spmtd_float_bits_(value);

	if ((x & 0x7fffffffu) > 0x7f800000u)
		return 0x7fc0u;
	return (uint16_t)((x + 0x7fffu + (x >> 16 & 1u)) >> 16);
}

SPMTD_END

#endif
