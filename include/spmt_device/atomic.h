/* SPDX-License-Identifier: MIT */
/* Atomics on the heaps of peers. */
#ifndef SPMTD_ATOMIC_H
#define SPMTD_ATOMIC_H

#include "fifo.h"

SPMTD_BEGIN

/* ---- atomics -------------------------------------------------------------------------------- */

/* Sets of 8 and 16 bits are swaps, because a swap and the compare-and-swap loops see each other. */
#if defined(SPMTD_HOST)
#define SPMTD_SET8(a, x) spmtd_poke8_(a, x)
#define SPMTD_SET16(a, x) spmtd_poke16_(a, x)
#else
#define SPMTD_SET8(a, x) spmtd_noret_swap8_(a, x)
#define SPMTD_SET16(a, x) spmtd_noret_swap16_(a, x)
#endif
#define SPMTD_SET32(a, x) spmtd_poke32_(a, x)
#define SPMTD_SET64(a, x) spmtd_poke64_(a, x)

/* All 11 types. compare_swap compares bits. */
#define SPMTD_AMO(name, T, U_, bits, kind)                                                        \
	SPMTD_FN T spmtd_##name##_atomic_fetch(const struct spmt_view *v, const T *src, int pe)   \
	{                                                                                         \
		if (spmtd_is_far_(v, pe))                                                         \
			return spmtd_##name##_of_((U_)spmtd_far_amo_fetch_(                       \
				v, src, pe, SPMTD_AMO_FETCH_, bits / 8, 0, 0));                   \
		return spmtd_##name##_of_(spmtd_peek##bits##_(spmtd_there_(v, src, pe)));         \
	}                                                                                         \
	SPMTD_FN void spmtd_##name##_atomic_set(                                                  \
		const struct spmt_view *v, T *dst, T value, int pe)                               \
	{                                                                                         \
		if (spmtd_is_far_(v, pe)) {                                                       \
			spmtd_far_amo_(v, dst, pe, SPMTD_AMO_SET_, bits / 8,                      \
				spmtd_##name##_bits_(value));                                     \
			return;                                                                   \
		}                                                                                 \
		SPMTD_SET##bits(spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value));           \
		spmtd_wake_(v, pe);                                                               \
	}                                                                                         \
	SPMTD_FN T spmtd_##name##_atomic_swap(const struct spmt_view *v, T *dst, T value, int pe) \
	{                                                                                         \
		U_ old;                                                                           \
		if (spmtd_is_far_(v, pe))                                                         \
			return spmtd_##name##_of_((U_)spmtd_far_amo_fetch_(v, dst, pe,            \
				SPMTD_AMO_SWAP_, bits / 8, spmtd_##name##_bits_(value), 0));      \
		old = spmtd_swap##bits##_(spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value)); \
		spmtd_wake_(v, pe);                                                               \
		return spmtd_##name##_of_(old);                                                   \
	}                                                                                         \
	SPMTD_FN T spmtd_##name##_atomic_compare_swap(                                            \
		const struct spmt_view *v, T *dst, T cond, T value, int pe)                       \
	{                                                                                         \
		U_ old;                                                                           \
		if (spmtd_is_far_(v, pe))                                                         \
			return spmtd_##name##_of_((U_)spmtd_far_amo_fetch_(v, dst, pe,            \
				SPMTD_AMO_COMPARE_SWAP_, bits / 8, spmtd_##name##_bits_(value),   \
				spmtd_##name##_bits_(cond)));                                     \
		old = spmtd_cas##bits##_(spmtd_there_(v, dst, pe), spmtd_##name##_bits_(cond),    \
			spmtd_##name##_bits_(value));                                             \
		spmtd_wake_(v, pe);                                                               \
		return spmtd_##name##_of_(old);                                                   \
	}
SPMTD_TYPES(SPMTD_AMO)

#define SPMTD_AMO_OP(name, T, U_, bits, op, call, OP)                                         \
	SPMTD_FN void spmtd_##name##_atomic_##op(                                             \
		const struct spmt_view *v, T *dst, T value, int pe)                           \
	{                                                                                     \
		if (spmtd_is_far_(v, pe)) {                                                   \
			spmtd_far_amo_(v, dst, pe, SPMTD_AMO_##OP##_, bits / 8,               \
				spmtd_##name##_bits_(value));                                 \
			return;                                                               \
		}                                                                             \
		spmtd_noret_##call##bits##_(                                                  \
			spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value));               \
		spmtd_wake_(v, pe);                                                           \
	}                                                                                     \
	SPMTD_FN T spmtd_##name##_atomic_fetch_##op(                                          \
		const struct spmt_view *v, T *dst, T value, int pe)                           \
	{                                                                                     \
		U_ old;                                                                       \
		if (spmtd_is_far_(v, pe))                                                     \
			return spmtd_##name##_of_(                                            \
				(U_)spmtd_far_amo_fetch_(v, dst, pe, SPMTD_AMO_FETCH_##OP##_, \
					bits / 8, spmtd_##name##_bits_(value), 0));           \
		old = spmtd_##call##bits##_(                                                  \
			spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value));               \
		spmtd_wake_(v, pe);                                                           \
		return spmtd_##name##_of_(old);                                               \
	}
#define SPMTD_AMO_INT(name, T, U_, bits)                                                      \
	SPMTD_AMO_OP(name, T, U_, bits, add, add, ADD)                                        \
	SPMTD_AMO_OP(name, T, U_, bits, and, and, AND)                                        \
	SPMTD_AMO_OP(name, T, U_, bits, or, or, OR)                                           \
	SPMTD_AMO_OP(name, T, U_, bits, xor, xor, XOR)                                        \
	SPMTD_FN void spmtd_##name##_atomic_inc(const struct spmt_view *v, T *dst, int pe)    \
	{                                                                                     \
		spmtd_##name##_atomic_add(v, dst, (T)1, pe);                                  \
	}                                                                                     \
	SPMTD_FN T spmtd_##name##_atomic_fetch_inc(const struct spmt_view *v, T *dst, int pe) \
	{                                                                                     \
		return spmtd_##name##_atomic_fetch_add(v, dst, (T)1, pe);                     \
	}
SPMTD_AMO_INT(uint8, uint8_t, uint8_t, 8)
SPMTD_AMO_INT(int8, int8_t, uint8_t, 8)
SPMTD_AMO_INT(schar, signed char, uint8_t, 8)
SPMTD_AMO_INT(uint16, uint16_t, uint16_t, 16)
SPMTD_AMO_INT(int16, int16_t, uint16_t, 16)
SPMTD_AMO_INT(uint32, uint32_t, uint32_t, 32)
SPMTD_AMO_INT(int32, int32_t, uint32_t, 32)
SPMTD_AMO_INT(uint64, uint64_t, uint64_t, 64)
SPMTD_AMO_INT(int64, int64_t, uint64_t, 64)

/* Sums of floating-point words by compare-and-swap. */
#define SPMTD_AMO_FLOAT(name, T, U_, bits)                                                         \
	SPMTD_FN T spmtd_##name##_atomic_fetch_add(                                                \
		const struct spmt_view *v, T *dst, T value, int pe)                                \
	{                                                                                          \
		uint64_t a = spmtd_there_(v, dst, pe);                                             \
		int far = spmtd_is_far_(v, pe);                                                    \
		U_ old, seen, sum;                                                                 \
		old = far ? (U_)spmtd_far_amo_fetch_(v, dst, pe, SPMTD_AMO_FETCH_, bits / 8, 0, 0) \
			  : spmtd_peek##bits##_(a);                                                \
		for (;;) {                                                                         \
			sum = spmtd_##name##_bits_(spmtd_##name##_of_(old) + value);               \
			seen = far ? (U_)spmtd_far_amo_fetch_(v, dst, pe, SPMTD_AMO_COMPARE_SWAP_, \
					     bits / 8, sum, old)                                   \
				   : spmtd_cas##bits##_(a, old, sum);                              \
			if (seen == old)                                                           \
				break;                                                             \
			old = seen;                                                                \
		}                                                                                  \
		spmtd_wake_(v, pe);                                                                \
		return spmtd_##name##_of_(old);                                                    \
	}                                                                                          \
	SPMTD_FN void spmtd_##name##_atomic_add(                                                   \
		const struct spmt_view *v, T *dst, T value, int pe)                                \
	{                                                                                          \
		(void)spmtd_##name##_atomic_fetch_add(v, dst, value, pe);                          \
	}                                                                                          \
	SPMTD_FN void spmtd_##name##_atomic_inc(const struct spmt_view *v, T *dst, int pe)         \
	{                                                                                          \
		(void)spmtd_##name##_atomic_fetch_add(v, dst, (T)1, pe);                           \
	}                                                                                          \
	SPMTD_FN T spmtd_##name##_atomic_fetch_inc(const struct spmt_view *v, T *dst, int pe)      \
	{                                                                                          \
		return spmtd_##name##_atomic_fetch_add(v, dst, (T)1, pe);                          \
	}
SPMTD_AMO_FLOAT(float, float, uint32_t, 32)
SPMTD_AMO_FLOAT(double, double, uint64_t, 64)

#undef SPMTD_SET8
#undef SPMTD_SET16
#undef SPMTD_SET32
#undef SPMTD_SET64
#undef SPMTD_AMO
#undef SPMTD_AMO_OP
#undef SPMTD_AMO_INT
#undef SPMTD_AMO_FLOAT

SPMTD_END

#endif
