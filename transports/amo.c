/* SPDX-License-Identifier: MIT */
#include "amo.h"

/* The same text for both widths. */
#define DEFINE_AMO(bits)                                                                        \
	static uint##bits##_t amo_##bits(                                                       \
		uint##bits##_t *p, enum spmt_amo amo, uint##bits##_t a, uint##bits##_t compare) \
	{                                                                                       \
		uint##bits##_t expected = compare;                                              \
                                                                                                \
		switch (amo) {                                                                  \
		case SPMT_AMO_FETCH:                                                            \
			return __atomic_load_n(p, __ATOMIC_ACQUIRE);                            \
		case SPMT_AMO_SET:                                                              \
			__atomic_store_n(p, a, __ATOMIC_RELEASE);                               \
			return 0;                                                               \
		case SPMT_AMO_SWAP:                                                             \
			return __atomic_exchange_n(p, a, __ATOMIC_ACQ_REL);                     \
		case SPMT_AMO_COMPARE_SWAP:                                                     \
			__atomic_compare_exchange_n(                                            \
				p, &expected, a, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);        \
			return expected;                                                        \
		case SPMT_AMO_INC:                                                              \
		case SPMT_AMO_FETCH_INC:                                                        \
			return __atomic_fetch_add(p, 1, __ATOMIC_ACQ_REL);                      \
		case SPMT_AMO_ADD:                                                              \
		case SPMT_AMO_FETCH_ADD:                                                        \
			return __atomic_fetch_add(p, a, __ATOMIC_ACQ_REL);                      \
		case SPMT_AMO_AND:                                                              \
		case SPMT_AMO_FETCH_AND:                                                        \
			return __atomic_fetch_and(p, a, __ATOMIC_ACQ_REL);                      \
		case SPMT_AMO_OR:                                                               \
		case SPMT_AMO_FETCH_OR:                                                         \
			return __atomic_fetch_or(p, a, __ATOMIC_ACQ_REL);                       \
		case SPMT_AMO_XOR:                                                              \
		case SPMT_AMO_FETCH_XOR:                                                        \
			return __atomic_fetch_xor(p, a, __ATOMIC_ACQ_REL);                      \
		}                                                                               \
		return 0;                                                                       \
	}

DEFINE_AMO(32)
DEFINE_AMO(64)
#undef DEFINE_AMO

uint64_t amo_do(void *word, const struct amo *amo)
{
	return amo->size == 4
		? amo_32(word, amo->op, (uint32_t)amo->operand, (uint32_t)amo->compare)
		: amo_64(word, amo->op, amo->operand, amo->compare);
}
