/* SPDX-License-Identifier: MIT */
/* Atomics on the heaps of peers. */
#ifndef SPMTD_ATOMIC_H
#define SPMTD_ATOMIC_H

#include "fifo.h"
#include "half.h"

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

/* All 11 types, half and bfloat16. compare_swap compares bits. */
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
SPMTD_AMO(half, uint16_t, uint16_t, 16, U)
SPMTD_AMO(bfloat16, uint16_t, uint16_t, 16, U)

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

/*
 * Sums of floats, each rounded to nearest even: of float, double, half and bfloat16 (as their bits), and of pairs of halves. A pair is two
 * neighbours in an aligned word, the first in its lower bits; each of them is added by itself. What lies beside an element keeps its bits.
 * NVIDIA GPUs have instructions for these sums: float's reads and writes subnormals as 0, bfloat16's begin with sm_90, and ptxas makes a
 * loop of a single half's, as the chips have pairs alone. Elsewhere compare-and-swap does it: MI200 drops float atomics on fine-grained
 * memory, and PCIe carries none.
 */
SPMTD_FN uint32_t spmtd_float_plus_(uint32_t x, uint32_t y)
{
	return spmtd_float_bits_(spmtd_float_of_(x) + spmtd_float_of_(y));
}
SPMTD_FN uint64_t spmtd_double_plus_(uint64_t x, uint64_t y)
{
	return spmtd_double_bits_(spmtd_double_of_(x) + spmtd_double_of_(y));
}
/* f32 has more than twice their digits: to round its sum again gives what one rounding gives. */
#define SPMTD_PLUS(name)                                                                        \
	SPMTD_FN uint16_t spmtd_##name##_plus_(uint16_t x, uint16_t y)                          \
	{                                                                                       \
		return spmtd_##name##_nearest_(                                                 \
			spmtd_##name##_value_(x) + spmtd_##name##_value_(y));                   \
	}                                                                                       \
	SPMTD_FN uint32_t spmtd_##name##_pair_plus_(uint32_t x, uint32_t y)                     \
	{                                                                                       \
		uint32_t high = spmtd_##name##_plus_((uint16_t)(x >> 16), (uint16_t)(y >> 16)); \
                                                                                                \
		return high << 16 | spmtd_##name##_plus_((uint16_t)x, (uint16_t)y);             \
	}
SPMTD_PLUS(half)
SPMTD_PLUS(bfloat16)

/* Adds x to the element at a, in the word of type W_ round it, which `load` and `cas` access; returns what was there. */
#define SPMTD_PLUS_BY_CAS(name, U_, W_, a, load, cas)                                      \
	uint32_t shift = (uint32_t)((a) & (sizeof(W_) - sizeof(U_))) * 8;                  \
	W_ old = load, sum, seen;                                                          \
                                                                                           \
	for (;;) {                                                                         \
		U_ was = (U_)(old >> shift);                                               \
                                                                                           \
		sum = (W_)(old ^ (W_)((W_)(was ^ spmtd_##name##_plus_(was, x)) << shift)); \
		seen = cas;                                                                \
		if (seen == old)                                                           \
			return was;                                                        \
		old = seen;                                                                \
	}
/* At peers without an address, whose atomics have 4 bytes at least. */
#define SPMTD_FAR_FADD(name, U_, W_, bits)                                                       \
	SPMTD_FN U_ spmtd_far_fadd_##name##_(                                                    \
		const struct spmt_view *v, const void *dst, U_ x, int pe)                        \
	{                                                                                        \
		const void *word = spmtd_to_(spmtd_at_(dst) & ~(uint64_t)(sizeof(W_) - 1));      \
                                                                                                 \
		SPMTD_PLUS_BY_CAS(name, U_, W_, spmtd_at_(dst),                                  \
			(W_)spmtd_far_amo_fetch_(v, word, pe, SPMTD_AMO_FETCH_, bits / 8, 0, 0), \
			(W_)spmtd_far_amo_fetch_(                                                \
				v, word, pe, SPMTD_AMO_COMPARE_SWAP_, bits / 8, sum, old))       \
	}
SPMTD_FAR_FADD(float, uint32_t, uint32_t, 32)
SPMTD_FAR_FADD(double, uint64_t, uint64_t, 64)
SPMTD_FAR_FADD(half, uint16_t, uint32_t, 32)
SPMTD_FAR_FADD(bfloat16, uint16_t, uint32_t, 32)
SPMTD_FAR_FADD(half_pair, uint32_t, uint32_t, 32)
SPMTD_FAR_FADD(bfloat16_pair, uint32_t, uint32_t, 32)

#define SPMTD_FADD(name, U_, W_, bits)                                        \
	SPMTD_FN U_ spmtd_fadd_##name##_(uint64_t a, U_ x)                    \
	{                                                                     \
		uint64_t word = a & ~(uint64_t)(sizeof(W_) - 1);              \
                                                                              \
		SPMTD_PLUS_BY_CAS(name, U_, W_, a, spmtd_peek##bits##_(word), \
			spmtd_cas##bits##_(word, old, sum))                   \
	}                                                                     \
	SPMTD_FN void spmtd_noret_fadd_##name##_(uint64_t a, U_ x)            \
	{                                                                     \
		(void)spmtd_fadd_##name##_(a, x);                             \
	}
#if !defined(SPMTD_NVPTX)
SPMTD_FADD(float, uint32_t, uint32_t, 32)
SPMTD_FADD(double, uint64_t, uint64_t, 64)
SPMTD_FADD(half_pair, uint32_t, uint32_t, 32)
#endif
#if !defined(SPMTD_FADD_BFLOAT16)
SPMTD_FADD(bfloat16_pair, uint32_t, uint32_t, 32)
#endif
#if defined(SPMTD_HOST) /* where ThreadSanitizer would take the neighbour for accessed, too */
SPMTD_FADD(half, uint16_t, uint16_t, 16)
SPMTD_FADD(bfloat16, uint16_t, uint16_t, 16)
#else
#if !defined(SPMTD_NVPTX)
SPMTD_FADD(half, uint16_t, uint32_t, 32)
#endif
#if !defined(SPMTD_FADD_BFLOAT16)
SPMTD_FADD(bfloat16, uint16_t, uint32_t, 32)
#endif
#endif

#define SPMTD_AMO_SUM(name, T)                                                                     \
	SPMTD_FN T spmtd_##name##_atomic_fetch_add(                                                \
		const struct spmt_view *v, T *dst, T value, int pe)                                \
	{                                                                                          \
		T old;                                                                             \
		if (spmtd_is_far_(v, pe))                                                          \
			return spmtd_##name##_of_(spmtd_far_fadd_##name##_(                        \
				v, dst, spmtd_##name##_bits_(value), pe));                         \
		old = spmtd_##name##_of_(spmtd_fadd_##name##_(                                     \
			spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value)));                   \
		spmtd_wake_(v, pe);                                                                \
		return old;                                                                        \
	}                                                                                          \
	SPMTD_FN void spmtd_##name##_atomic_add(                                                   \
		const struct spmt_view *v, T *dst, T value, int pe)                                \
	{                                                                                          \
		if (spmtd_is_far_(v, pe)) {                                                        \
			(void)spmtd_far_fadd_##name##_(v, dst, spmtd_##name##_bits_(value), pe);   \
			return;                                                                    \
		}                                                                                  \
		spmtd_noret_fadd_##name##_(spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value)); \
		spmtd_wake_(v, pe);                                                                \
	}
#define SPMTD_AMO_FLOAT(name, T, one)                                                         \
	SPMTD_AMO_SUM(name, T)                                                                \
	SPMTD_FN void spmtd_##name##_atomic_inc(const struct spmt_view *v, T *dst, int pe)    \
	{                                                                                     \
		spmtd_##name##_atomic_add(v, dst, one, pe);                                   \
	}                                                                                     \
	SPMTD_FN T spmtd_##name##_atomic_fetch_inc(const struct spmt_view *v, T *dst, int pe) \
	{                                                                                     \
		return spmtd_##name##_atomic_fetch_add(v, dst, one, pe);                      \
	}
SPMTD_AMO_FLOAT(float, float, 1.0f)
SPMTD_AMO_FLOAT(double, double, 1.0)
SPMTD_AMO_FLOAT(half, uint16_t, 0x3c00u)
SPMTD_AMO_FLOAT(bfloat16, uint16_t, 0x3f80u)
SPMTD_AMO_SUM(half_pair, uint32_t)
SPMTD_AMO_SUM(bfloat16_pair, uint32_t)

#undef SPMTD_SET8
#undef SPMTD_SET16
#undef SPMTD_SET32
#undef SPMTD_SET64
#undef SPMTD_AMO
#undef SPMTD_AMO_OP
#undef SPMTD_AMO_INT
#undef SPMTD_PLUS
#undef SPMTD_PLUS_BY_CAS
#undef SPMTD_FAR_FADD
#undef SPMTD_FADD
#undef SPMTD_AMO_SUM
#undef SPMTD_AMO_FLOAT

SPMTD_END

#endif
