/* SPDX-License-Identifier: MIT */
#include "atomics.h"

#include <string.h>

#include "src/base/tsan.h"

int type_comparable(enum spmt_type type)
{
	return (unsigned)type <= SPMT_TYPE_U64 || type == SPMT_TYPE_F32 || type == SPMT_TYPE_F64;
}

static uint64_t word_acquire(enum spmt_type type, const void *ptr)
{
	switch (type_size(type)) {
	case 1:
		return __atomic_load_n((const uint8_t *)ptr, __ATOMIC_ACQUIRE);
	case 2:
		return __atomic_load_n((const uint16_t *)ptr, __ATOMIC_ACQUIRE);
	case 4:
		return __atomic_load_n((const uint32_t *)ptr, __ATOMIC_ACQUIRE);
	default:
		return __atomic_load_n((const uint64_t *)ptr, __ATOMIC_ACQUIRE);
	}
}

uint64_t word_load(enum spmt_type type, const void *ptr)
{
	uint64_t word = word_acquire(type, ptr);

	tsan_acquire(ptr);
	return word;
}

/* -1, 0, 1, or 2 where nothing but NE holds. */
static int order_float(double a, double b)
{
	return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;
}

static int order_int(enum spmt_type type, uint64_t a, uint64_t b)
{
	unsigned unused = 64 - 8 * (unsigned)type_size(type);
	int64_t x = (int64_t)(a << unused), y = (int64_t)(b << unused);

	switch (type) {
	case SPMT_TYPE_I8:
	case SPMT_TYPE_I16:
	case SPMT_TYPE_I32:
	case SPMT_TYPE_I64:
		return x < y ? -1 : x > y;
	default:
		return (uint64_t)x < (uint64_t)y ? -1 : (uint64_t)x > (uint64_t)y;
	}
}

static int compare_values(enum spmt_type type, uint64_t a, uint64_t b)
{
	if (type == SPMT_TYPE_F32) {
		float x, y;

		memcpy(&x, &a, sizeof(x));
		memcpy(&y, &b, sizeof(y));
		return order_float((double)x, (double)y);
	}
	if (type == SPMT_TYPE_F64) {
		double x, y;

		memcpy(&x, &a, sizeof(x));
		memcpy(&y, &b, sizeof(y));
		return order_float(x, y);
	}
	return order_int(type, a, b);
}

int word_compare(enum spmt_type type, enum spmt_cmp cmp, uint64_t a, uint64_t b)
{
	int o = compare_values(type, a, b);

	switch (cmp) {
	case SPMT_CMP_EQ:
		return o == 0;
	case SPMT_CMP_NE:
		return o != 0;
	case SPMT_CMP_GT:
		return o == 1;
	case SPMT_CMP_GE:
		return o == 0 || o == 1;
	case SPMT_CMP_LT:
		return o == -1;
	case SPMT_CMP_LE:
		return o == 0 || o == -1;
	}
	return 0;
}
