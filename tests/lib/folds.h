/* SPDX-License-Identifier: MIT */
/* What a reduction has to be, to the last bit, by the C library: every type and op, folded in the order of ranks. */
#ifndef TESTS_FOLDS_H
#define TESTS_FOLDS_H

#include <stdbool.h>
#include <string.h>

#include "spmt.h"
#include "tests/unit/kernels/halves_oracle.h"

enum { FOLDS_TYPES = SPMT_TYPE_F8E5M2 + 1 };

static const size_t folds_width[FOLDS_TYPES] = { 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1 };

static inline bool folds_valid(enum spmt_type type, enum spmt_op op)
{
	return type < SPMT_TYPE_F16 || op < SPMT_OP_AND || op > SPMT_OP_XOR;
}

static inline uint64_t folds_mask(enum spmt_type type)
{
	return UINT64_MAX >> (64 - 8 * folds_width[type]);
}

/* By its fields; the first code that is no number counts as the number that it would be. */
static inline double folds_f8(int code, int digits, int bias)
{
	int exponent = code >> digits, fraction = code & ((1 << digits) - 1);

	return exponent ? ldexp(fraction + (1 << digits), exponent - bias - digits)
			: ldexp(fraction, 1 - bias - digits);
}

static inline double folds_f8_value(unsigned code, bool e5m2)
{
	int low = (int)(code & 0x7f), top = e5m2 ? 0x7c : 0x7f;
	double x = low > top || (low == top && !e5m2) ? (double)NAN
		: low == top			      ? (double)INFINITY
						      : folds_f8(low, e5m2 ? 2 : 3, e5m2 ? 15 : 7);

	return code & 0x80 ? -x : x;
}

/* The nearest of all there are; of two the even one. */
static inline unsigned folds_f8_code(double x, bool e5m2)
{
	int digits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7, top = e5m2 ? 0x7c : 0x7f, low = 0,
	    high = top;
	double below, above;

	if (isnan(x))
		return e5m2 ? 0x7e : 0x7f;
	while (low + 1 < high) {
		int middle = (low + high) / 2;

		if (folds_f8(middle, digits, bias) <= fabs(x))
			low = middle;
		else
			high = middle;
	}
	below = fabs(x) - folds_f8(low, digits, bias);
	above = folds_f8(high, digits, bias) - fabs(x);
	if (above < below || (!(below < above) && high % 2 == 0))
		low = high;
	return (unsigned)low | (signbit(x) && (e5m2 || low != top) ? 0x80 : 0);
}

static inline double folds_value(enum spmt_type type, uint64_t bits)
{
	uint32_t low = (uint32_t)bits;
	double d;
	float f;

	memcpy(&d, &bits, 8);
	memcpy(&f, &low, 4);
	switch (type) {
	case SPMT_TYPE_F16:
		return decode((uint16_t)bits, 10, 15);
	case SPMT_TYPE_BF16:
		return decode((uint16_t)bits, 7, 127);
	case SPMT_TYPE_F32:
		return (double)f;
	case SPMT_TYPE_F64:
		return d;
	default:
		return folds_f8_value((unsigned)bits, type == SPMT_TYPE_F8E5M2);
	}
}

static inline uint64_t folds_bits(enum spmt_type type, double x)
{
	float f = (float)x;
	uint64_t wide;
	uint32_t low;

	memcpy(&wide, &x, 8);
	memcpy(&low, &f, 4);
	switch (type) {
	case SPMT_TYPE_F16:
		return encode(x, 10, 15);
	case SPMT_TYPE_BF16:
		return encode(x, 7, 127);
	case SPMT_TYPE_F32:
		return isnan(x) ? 0x7fc00000u : low;
	case SPMT_TYPE_F64:
		return isnan(x) ? 0x7ff8000000000000u : wide;
	default:
		return folds_f8_code(x, type == SPMT_TYPE_F8E5M2);
	}
}

static inline double folds_step(enum spmt_type type, enum spmt_op op, double a, double b)
{
	bool wide = type == SPMT_TYPE_F64;

	if (op == SPMT_OP_PROD)
		return wide ? a * b : (double)((float)a * (float)b);
	if (op == SPMT_OP_SUM || op == SPMT_OP_AVG)
		return wide ? a + b : (double)((float)a + (float)b);
	if (isnan(a) || isnan(b))
		return (double)NAN;
	if (a == b)
		return !signbit(a) == (op == SPMT_OP_MAX) ? a : b;
	return (a < b) == (op == SPMT_OP_MAX) ? b : a;
}

/* Of n ranks' elements. */
uint64_t folds_integers(enum spmt_type type, enum spmt_op op, const uint64_t *in, int n);

/* A pre-multiplied sum, beside enum spmt_op. */
#define FOLDS_PREMUL ((enum spmt_op)(SPMT_OP_AVG + 1))
uint64_t folds_premul(enum spmt_type type, const uint64_t *in, const uint64_t *factors, int n);

static inline uint64_t folds_of(enum spmt_type type, enum spmt_op op, const uint64_t *in, int n)
{
	double x;

	if (type < SPMT_TYPE_F16)
		return folds_integers(type, op, in, n);
	x = folds_value(type, in[0]);
	for (int i = 1; i < n; i++)
		x = folds_step(type, op, x, folds_value(type, in[i]));
	if (op == SPMT_OP_AVG)
		x = type == SPMT_TYPE_F64 ? x / n : (double)((float)x / (float)n);
	return folds_bits(type, x);
}

#endif
