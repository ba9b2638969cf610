/* SPDX-License-Identifier: MIT */
/* The 11 types of the device header's typed calls: X(name in the call, type). */
#ifndef TESTS_TYPED_CALLS_H
#define TESTS_TYPED_CALLS_H

#define INTEGERS(X)           \
	X(uint8, uint8_t)     \
	X(int8, int8_t)       \
	X(schar, signed char) \
	X(uint16, uint16_t)   \
	X(int16, int16_t)     \
	X(uint32, uint32_t)   \
	X(int32, int32_t)     \
	X(uint64, uint64_t)   \
	X(int64, int64_t)
#define TYPES(X)        \
	INTEGERS(X)     \
	X(float, float) \
	X(double, double)

#endif
