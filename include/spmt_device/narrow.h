/* SPDX-License-Identifier: MIT */
/* Atomics of 8 and 16 bits for GPUs, which have none: over spmtd_peek32_ and spmtd_cas32_ of the machine. */
#ifndef SPMTD_NARROW_H
#define SPMTD_NARROW_H

#include "amdgcn.h"
#include "nvptx.h"

#if !defined(SPMTD_HOST)

SPMTD_BEGIN

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
	SPMTD_FN void spmtd_noret_##name##bits##_(uint64_t a, uint##bits##_t x)     \
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

#undef SPMTD_PART
#undef SPMTD_PARTS

SPMTD_END

#endif

#endif
