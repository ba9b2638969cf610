/* SPDX-License-Identifier: MIT */
/* f16 and bf16 by the C library, to compare with. f16: 10 digits, bias 15; bf16: 7 and 127. */
#ifndef TESTS_HALVES_ORACLE_H
#define TESTS_HALVES_ORACLE_H

#include <math.h>
#include <stdint.h>

/* A value by its fields; `bias` and `digits` of the format, exponent all ones is infinity or
   NaN. */
static inline double decode(uint16_t h, int digits, int bias)
{
	int top = (1 << (15 - digits)) - 1, exponent = h >> digits & top,
	    mantissa = h & ((1 << digits) - 1);
	double x;

	if (exponent == top)
		x = mantissa ? (double)NAN : (double)INFINITY;
	else if (exponent)
		x = ldexp(mantissa + (1 << digits), exponent - bias - digits);
	else
		x = ldexp(mantissa, 1 - bias - digits);
	return h & 0x8000 ? -x : x;
}

/* The nearest, ties to even, by the C library. */
static inline uint16_t encode(double x, int digits, int bias)
{
	int top = (1 << (15 - digits)) - 1, exponent;
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	double scaled;

	if (isnan(x))
		return (uint16_t)(top << digits | 1 << (digits - 1));
	if (x == 0)
		return sign;
	if (isinf(x))
		return (uint16_t)(sign | top << digits);
	frexp(fabs(x), &exponent);
	exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
	scaled = nearbyint(ldexp(fabs(x), digits - exponent));
	if (scaled >= (double)(2 << digits)) {
		scaled /= 2;
		exponent++;
	}
	if (exponent > bias)
		return (uint16_t)(sign | top << digits);
	if (scaled < (double)(1 << digits))
		return (uint16_t)(sign | (int)scaled);
	return (uint16_t)(sign | (exponent + bias) << digits | ((int)scaled - (1 << digits)));
}

#endif
