/* SPDX-License-Identifier: MIT */
/* Units: 16 bytes of elements, loaded and stored at any alignment. */
#ifndef SPMT_KERNELS_UNIT_H
#define SPMT_KERNELS_UNIT_H

#include "../../../include/spmt_device/machine.h"

/* Nothing is loaded or stored across what its size is: on GPUs, and by tests that run what these do. */
#if defined(__AMDGCN__) || defined(__NVPTX__)
#define UNITS_ALIGNED
#endif

typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef uint64_t u64x2 __attribute__((vector_size(16)));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int64_t i64x2 __attribute__((vector_size(16)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef double f64x2 __attribute__((vector_size(16)));

union unit {
	struct spmtd_unit_ raw;
	uint64_t words[2];
	u8x16 u8;
	u16x8 u16;
	u32x4 u32;
	u64x2 u64;
	i8x16 i8;
	i16x8 i16;
	i32x4 i32;
	i64x2 i64;
	f32x4 f32;
	f64x2 f64;
};

/* The values of one unit of halves. */
struct wide {
	f32x4 lo, hi;
};

#if defined(UNITS_ALIGNED)

/* Parts of a unit, as wide as the address allows: a short or misaligned one. Around a call small kernels would have to put
   their registers away. */
static inline __attribute__((always_inline)) union unit gather_here(uint64_t a, uint32_t n)
{
	union unit u = { .words = { 0, 0 } };
	uint32_t width = (a | n) & 1 ? 1 : (a | n) & 2 ? 2 : (a | n) & 4 ? 4 : 8;

	for (uint32_t i = 0; i < n; i += width) {
		uint64_t x = width == 8 ? spmtd_gload64_(a + i)
			: width == 4	? spmtd_gload32_(a + i)
			: width == 2	? spmtd_gload16_(a + i)
					: spmtd_gload8_(a + i);

		/* not by index, which would put the unit into memory */
		x <<= i % 8 * 8;
		u.words[0] |= i < 8 ? x : 0;
		u.words[1] |= i < 8 ? 0 : x;
	}
	return u;
}

static inline __attribute__((always_inline)) void scatter_here(uint64_t a, union unit u, uint32_t n)
{
	uint32_t width = (a | n) & 1 ? 1 : (a | n) & 2 ? 2 : (a | n) & 4 ? 4 : 8;

	for (uint32_t i = 0; i < n; i += width) {
		uint64_t x = (i < 8 ? u.words[0] : u.words[1]) >> (i % 8 * 8);

		if (width == 8)
			spmtd_gstore64_(a + i, x);
		else if (width == 4)
			spmtd_gstore32_(a + i, (uint32_t)x);
		else if (width == 2)
			spmtd_gstore16_(a + i, (uint16_t)x);
		else
			spmtd_gstore8_(a + i, (uint8_t)x);
	}
}

static __attribute__((noinline)) union unit gather(uint64_t a, uint32_t n)
{
	return gather_here(a, n);
}

static __attribute__((noinline)) void scatter(uint64_t a, union unit u, uint32_t n)
{
	scatter_here(a, u, n);
}

static inline union unit fetch(uint64_t a, uint32_t n)
{
	union unit u = { .words = { 0, 0 } };

	if (n < 16 || (a & 15))
		return gather(a, n);
	u.raw = spmtd_gload16b_(a);
	return u;
}

static inline void place(uint64_t a, union unit u, uint32_t n)
{
	if (n < 16 || (a & 15))
		scatter(a, u, n);
	else
		spmtd_gstore16b_(a, u.raw);
}

#else

static inline union unit fetch(uint64_t a, uint32_t n)
{
	union unit u = { .words = { 0, 0 } };

	if (n == 16)
		__builtin_memcpy(&u, spmtd_to_(a), 16);
	else
		__builtin_memcpy(&u, spmtd_to_(a), n);
	return u;
}

static inline void place(uint64_t a, union unit u, uint32_t n)
{
	if (n == 16)
		__builtin_memcpy(spmtd_to_(a), &u, 16);
	else
		__builtin_memcpy(spmtd_to_(a), &u, n);
}

#endif

#endif
