/* SPDX-License-Identifier: MIT */
/* ---- atomics -------------------------------------------------------------------------------- */

#if !defined(SPMTD_HOST)
/* 8 and 16 bits: by compare-and-swap on the 32-bit word around them. */
enum spmtd_part_ {
	SPMTD_PART_SWAP_,
	SPMTD_PART_CAS_,
	SPMTD_PART_ADD_,
	SPMTD_PART_AND_,
	SPMTD_PART_OR_,
	SPMTD_PART_XOR_
};

SPMTD_FN uint32_t spmtd_part_next_(int op, uint32_t x, uint32_t y)
{
	switch (op) {
	case SPMTD_PART_ADD_:
		return x + y;
	case SPMTD_PART_AND_:
		return x & y;
	case SPMTD_PART_OR_:
		return x | y;
	case SPMTD_PART_XOR_:
		return x ^ y;
	default:
		return y;
	}
}

SPMTD_FN uint32_t spmtd_part_(int op, uint64_t a, uint32_t mask, uint32_t compare, uint32_t operand)
{
	uint64_t word = a & ~(uint64_t)3;
	uint32_t shift = (uint32_t)(a & 3) * 8, old = spmtd_peek32_(word), seen, was;

	for (;;) {
		was = old >> shift & mask;
		if (op == SPMTD_PART_CAS_ && was != compare)
			return was;
		seen = spmtd_cas32_(word, old,
			(old & ~(mask << shift)) |
				(spmtd_part_next_(op, was, operand) & mask) << shift);
		if (seen == old)
			return was;
		old = seen;
	}
}

#define SPMTD_PART(name, op, bits, mask)                                            \
	SPMTD_FN uint##bits##_t spmtd_##name##bits##_(uint64_t a, uint##bits##_t x) \
	{                                                                           \
		return (uint##bits##_t)spmtd_part_(op, a, mask, 0, x);              \
	}                                                                           \
	SPMTD_FN void spmtd_tell_##name##bits##_(uint64_t a, uint##bits##_t x)      \
	{                                                                           \
		(void)spmtd_part_(op, a, mask, 0, x);                               \
	}
#define SPMTD_PARTS(bits, mask)                                                           \
	SPMTD_PART(swap, SPMTD_PART_SWAP_, bits, mask)                                    \
	SPMTD_PART(add, SPMTD_PART_ADD_, bits, mask)                                      \
	SPMTD_PART(and, SPMTD_PART_AND_, bits, mask)                                      \
	SPMTD_PART(or, SPMTD_PART_OR_, bits, mask)                                        \
	SPMTD_PART(xor, SPMTD_PART_XOR_, bits, mask)                                      \
	SPMTD_FN uint##bits##_t spmtd_cas##bits##_(                                       \
		uint64_t a, uint##bits##_t compare, uint##bits##_t x)                     \
	{                                                                                 \
		return (uint##bits##_t)spmtd_part_(SPMTD_PART_CAS_, a, mask, compare, x); \
	}
SPMTD_PARTS(8, 0xffu)
SPMTD_PARTS(16, 0xffffu)
#endif

/* Sets of 8 and 16 bits are swaps, because a swap and the compare-and-swap loops see each other. */
#if defined(SPMTD_HOST)
#define SPMTD_SET8(a, x) spmtd_poke8_(a, x)
#define SPMTD_SET16(a, x) spmtd_poke16_(a, x)
#else
#define SPMTD_SET8(a, x) spmtd_tell_swap8_(a, x)
#define SPMTD_SET16(a, x) spmtd_tell_swap16_(a, x)
#endif
#define SPMTD_SET32(a, x) spmtd_poke32_(a, x)
#define SPMTD_SET64(a, x) spmtd_poke64_(a, x)

/* All 11 types. compare_swap compares bits. */
#define SPMTD_AMO(name, T, U_, bits, kind)                                                        \
	SPMTD_FN T spmtd_##name##_atomic_fetch(const struct spmt_view *v, const T *src, int pe)   \
	{                                                                                         \
		return spmtd_##name##_of_(spmtd_peek##bits##_(spmtd_there_(v, src, pe)));         \
	}                                                                                         \
	SPMTD_FN void spmtd_##name##_atomic_set(                                                  \
		const struct spmt_view *v, T *dst, T value, int pe)                               \
	{                                                                                         \
		SPMTD_SET##bits(spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value));           \
		spmtd_wake_(v, pe);                                                               \
	}                                                                                         \
	SPMTD_FN T spmtd_##name##_atomic_swap(const struct spmt_view *v, T *dst, T value, int pe) \
	{                                                                                         \
		U_ old = spmtd_swap##bits##_(                                                     \
			spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value));                   \
		spmtd_wake_(v, pe);                                                               \
		return spmtd_##name##_of_(old);                                                   \
	}                                                                                         \
	SPMTD_FN T spmtd_##name##_atomic_compare_swap(                                            \
		const struct spmt_view *v, T *dst, T cond, T value, int pe)                       \
	{                                                                                         \
		U_ old = spmtd_cas##bits##_(spmtd_there_(v, dst, pe), spmtd_##name##_bits_(cond), \
			spmtd_##name##_bits_(value));                                             \
		spmtd_wake_(v, pe);                                                               \
		return spmtd_##name##_of_(old);                                                   \
	}
SPMTD_TYPES(SPMTD_AMO)

#define SPMTD_AMO_OP(name, T, U_, bits, op, call)                                                  \
	SPMTD_FN void spmtd_##name##_atomic_##op(                                                  \
		const struct spmt_view *v, T *dst, T value, int pe)                                \
	{                                                                                          \
		spmtd_tell_##call##bits##_(spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value)); \
		spmtd_wake_(v, pe);                                                                \
	}                                                                                          \
	SPMTD_FN T spmtd_##name##_atomic_fetch_##op(                                               \
		const struct spmt_view *v, T *dst, T value, int pe)                                \
	{                                                                                          \
		U_ old = spmtd_##call##bits##_(                                                    \
			spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value));                    \
		spmtd_wake_(v, pe);                                                                \
		return spmtd_##name##_of_(old);                                                    \
	}
#define SPMTD_AMO_INT(name, T, U_, bits)                                                      \
	SPMTD_AMO_OP(name, T, U_, bits, add, add)                                             \
	SPMTD_AMO_OP(name, T, U_, bits, and, and)                                             \
	SPMTD_AMO_OP(name, T, U_, bits, or, or)                                               \
	SPMTD_AMO_OP(name, T, U_, bits, xor, xor)                                             \
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
#define SPMTD_AMO_FLOAT(name, T, U_, bits)                                                      \
	SPMTD_FN T spmtd_##name##_atomic_fetch_add(                                             \
		const struct spmt_view *v, T *dst, T value, int pe)                             \
	{                                                                                       \
		uint64_t a = spmtd_there_(v, dst, pe);                                          \
		U_ old = spmtd_peek##bits##_(a), seen;                                          \
		for (;;) {                                                                      \
			seen = spmtd_cas##bits##_(                                              \
				a, old, spmtd_##name##_bits_(spmtd_##name##_of_(old) + value)); \
			if (seen == old)                                                        \
				break;                                                          \
			old = seen;                                                             \
		}                                                                               \
		spmtd_wake_(v, pe);                                                             \
		return spmtd_##name##_of_(old);                                                 \
	}                                                                                       \
	SPMTD_FN void spmtd_##name##_atomic_add(                                                \
		const struct spmt_view *v, T *dst, T value, int pe)                             \
	{                                                                                       \
		(void)spmtd_##name##_atomic_fetch_add(v, dst, value, pe);                       \
	}                                                                                       \
	SPMTD_FN void spmtd_##name##_atomic_inc(const struct spmt_view *v, T *dst, int pe)      \
	{                                                                                       \
		(void)spmtd_##name##_atomic_fetch_add(v, dst, (T)1, pe);                        \
	}                                                                                       \
	SPMTD_FN T spmtd_##name##_atomic_fetch_inc(const struct spmt_view *v, T *dst, int pe)   \
	{                                                                                       \
		return spmtd_##name##_atomic_fetch_add(v, dst, (T)1, pe);                       \
	}
SPMTD_AMO_FLOAT(float, float, uint32_t, 32)
SPMTD_AMO_FLOAT(double, double, uint64_t, 64)
