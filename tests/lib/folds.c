/* SPDX-License-Identifier: MIT */
#include "folds.h"

/* Any integer of a type that there is. */
__extension__ typedef __int128 folds_wide;

static folds_wide wide_of(enum spmt_type type, uint64_t bits)
{
	unsigned shift = 64 - 8 * (unsigned)folds_width[type];

	return type % 2 == 0 ? (folds_wide)((int64_t)(bits << shift) >> shift) : (folds_wide)bits;
}

static folds_wide step(enum spmt_op op, folds_wide a, folds_wide b)
{
	switch (op) {
	case SPMT_OP_PROD:
		return (folds_wide)((uint64_t)a * (uint64_t)b);
	case SPMT_OP_MIN:
		return a < b ? a : b;
	case SPMT_OP_MAX:
		return a < b ? b : a;
	case SPMT_OP_AND:
		return a & b;
	case SPMT_OP_OR:
		return a | b;
	case SPMT_OP_XOR:
		return a ^ b;
	default:
		return a + b;
	}
}

uint64_t folds_integers(enum spmt_type type, enum spmt_op op, const uint64_t *in, int n)
{
	folds_wide x = wide_of(type, in[0]);

	for (int i = 1; i < n; i++)
		x = step(op, x, wide_of(type, in[i]));
	if (op == SPMT_OP_AVG)
		x /= n;
	return (uint64_t)x & folds_mask(type);
}

static double product(enum spmt_type type, uint64_t a, uint64_t b)
{
	double x = folds_value(type, a), y = folds_value(type, b);

	return type == SPMT_TYPE_F64 ? x * y : (double)((float)x * (float)y);
}

uint64_t folds_premul(enum spmt_type type, const uint64_t *in, const uint64_t *factors, int n)
{
	uint64_t sum = 0;
	double x;

	for (int i = 0; i < n; i++)
		sum += in[i] * factors[i];
	if (type < SPMT_TYPE_F16)
		return sum & folds_mask(type);
	x = product(type, in[0], factors[0]);
	for (int i = 1; i < n; i++)
		x = folds_step(type, SPMT_OP_SUM, x, product(type, in[i], factors[i]));
	return folds_bits(type, x);
}
