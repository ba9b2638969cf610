/* SPDX-License-Identifier: MIT */
#include "atomics.h"

/* The kth value set by anybody: both halves of an integer are equal, so that a torn one shows. */
static inline uint64_t halves(uint64_t k, uint32_t bytes)
{
	uint64_t half = bytes == 1 ? k : k & (((uint64_t)1 << (4 * bytes)) - 1);

	return bytes == 1 ? half : half | half << (4 * bytes);
}

/* Owner o has bit o of the words alone. 0, or which step saw another value than its own bit's. */
#define BITS_OF(name, T)                                                                       \
	static inline int name##_bits(const struct spmt_view *v, T *words, uint64_t o, int pe) \
	{                                                                                      \
		T *w = words + o / (8 * sizeof(T)), one = (T)((T)1 << o % (8 * sizeof(T)));    \
		T not_one = (T)~one;                                                           \
                                                                                               \
		if (spmtd_##name##_atomic_fetch_or(v, w, one, pe) & one)                       \
			return 1;                                                              \
		if (!(spmtd_##name##_atomic_fetch_xor(v, w, one, pe) & one))                   \
			return 2;                                                              \
		spmtd_##name##_atomic_or(v, w, one, pe);                                       \
		if (!(spmtd_##name##_atomic_fetch_and(v, w, not_one, pe) & one))               \
			return 3;                                                              \
		spmtd_##name##_atomic_xor(v, w, one, pe);                                      \
		if (!(spmtd_##name##_atomic_fetch(v, w, pe) & one))                            \
			return 4;                                                              \
		spmtd_##name##_atomic_and(v, w, not_one, pe);                                  \
		return spmtd_##name##_atomic_fetch(v, w, pe) & one ? 5 : 0;                    \
	}
#define NO_BITS(name, T)                                                                       \
	static inline int name##_bits(const struct spmt_view *v, T *words, uint64_t o, int pe) \
	{                                                                                      \
		(void)v;                                                                       \
		(void)words;                                                                   \
		(void)o;                                                                       \
		(void)pe;                                                                      \
		return 6;                                                                      \
	}
#define SET_BIT(name, T)          \
	spmtd_##name##_atomic_or( \
		v, words + o / (8 * sizeof(T)), (T)((T)1 << o % (8 * sizeof(T))), a->pe)
#define NO_BIT(name, T) (void)o

#define ONE_TYPE(name, T, bits, set_bit, integer)                                                  \
	bits(name, T) static inline T name##_cas(const struct spmt_view *v, T *target, int pe)     \
	{                                                                                          \
		T old = spmtd_##name##_atomic_fetch(v, target, pe), seen;                          \
                                                                                                   \
		for (;;) {                                                                         \
			seen = spmtd_##name##_atomic_compare_swap(                                 \
				v, target, old, (T)(old + (T)1), pe);                              \
			if (!(seen < old) && !(seen > old))                                        \
				return old;                                                        \
			old = seen;                                                                \
		}                                                                                  \
	}                                                                                          \
	static inline T name##_one(const struct atomics_args *a, T *target, uint64_t k)            \
	{                                                                                          \
		const struct spmt_view *v = &a->view;                                              \
                                                                                                   \
		switch (a->form) {                                                                 \
		case ATOMIC_ADD:                                                                   \
			spmtd_##name##_atomic_add(v, target, (T)1, a->pe);                         \
			return 0;                                                                  \
		case ATOMIC_INC:                                                                   \
			spmtd_##name##_atomic_inc(v, target, a->pe);                               \
			return 0;                                                                  \
		case ATOMIC_FETCH_ADD:                                                             \
			return spmtd_##name##_atomic_fetch_add(v, target, (T)1, a->pe);            \
		case ATOMIC_FETCH_INC:                                                             \
			return spmtd_##name##_atomic_fetch_inc(v, target, a->pe);                  \
		case ATOMIC_SWAP:                                                                  \
			return spmtd_##name##_atomic_swap(v, target, (T)(k + 1), a->pe);           \
		case ATOMIC_CAS:                                                                   \
			return name##_cas(v, target, a->pe);                                       \
		default:                                                                           \
			spmtd_##name##_atomic_set(v, target,                                       \
				(T)((integer) ? halves(k + 1, sizeof(T)) : k + 1), a->pe);         \
			return spmtd_##name##_atomic_fetch(v, target, a->pe);                      \
		}                                                                                  \
	}                                                                                          \
	static __attribute__((noinline)) void name##_all(const struct atomics_args *a, uint32_t t) \
	{                                                                                          \
		const struct spmt_view *v = &a->view;                                              \
		T *words = (T *)spmtd_to_(a->target);                                              \
		uint64_t o = (uint64_t)t * (uint32_t)v->npes + (uint32_t)v->pe;                    \
		int wrong = 0;                                                                     \
                                                                                                   \
		if (a->form == ATOMIC_BITS) {                                                      \
			for (uint32_t i = 0; i < a->each && !wrong; i++)                           \
				wrong = name##_bits(v, words, o, a->pe);                           \
			if (wrong)                                                                 \
				outcome_add(a->outcome, 0, o, (uint64_t)wrong, 0);                 \
			set_bit(name, T);                                                          \
			return;                                                                    \
		}                                                                                  \
		for (uint32_t i = 0; i < a->each; i++) {                                           \
			uint64_t k = (uint64_t)t * a->each + i;                                    \
			T old = name##_one(a, words, a->first + k);                                \
                                                                                                   \
			spmtd_store64_(a->results + 8 * k, spmtd_##name##_bits_(old));             \
		}                                                                                  \
	}
#define INTEGER(name, T) ONE_TYPE(name, T, BITS_OF, SET_BIT, 1)
#define FLOATING(name, T) ONE_TYPE(name, T, NO_BITS, NO_BIT, 0)
INTEGER(uint8, uint8_t)
INTEGER(int8, int8_t)
INTEGER(schar, signed char)
INTEGER(uint16, uint16_t)
INTEGER(int16, int16_t)
INTEGER(uint32, uint32_t)
INTEGER(int32, int32_t)
INTEGER(uint64, uint64_t)
INTEGER(int64, int64_t)
FLOATING(float, float)
FLOATING(double, double)

KERNEL_BODY run_atomics(const struct atomics_args *a)
{
	for (uint32_t t = kernel_lane(); t < a->threads; t += kernel_lanes())
		switch (a->type) {
#define X(name, T)                \
	case TYPE_OF_##name:      \
		name##_all(a, t); \
		break;
			TYPES(X)
#undef X
		default:
			break;
		}
}
TEST_KERNEL(atomics)

#define HALVES(name, one)                                                                  \
	static __attribute__((noinline))                                                   \
	uint32_t name##_one_sum(const struct halves_args *a, uint32_t element)             \
	{                                                                                  \
		const struct spmt_view *v = &a->view;                                      \
		uint16_t *half = (uint16_t *)spmtd_to_(a->target) + element * a->stride;   \
		uint32_t *pair = (uint32_t *)spmtd_to_(a->target) + element;               \
		uint32_t ones = (one)*0x10001u;                                            \
                                                                                           \
		switch (a->form) {                                                         \
		case HALF_ADD:                                                             \
			spmtd_##name##_atomic_add(v, half, one, a->pe);                    \
			return 0;                                                          \
		case HALF_FETCH_ADD:                                                       \
			return spmtd_##name##_atomic_fetch_add(v, half, one, a->pe);       \
		case HALF_PAIR_ADD:                                                        \
			spmtd_##name##_pair_atomic_add(v, pair, ones, a->pe);              \
			return 0;                                                          \
		default:                                                                   \
			return spmtd_##name##_pair_atomic_fetch_add(v, pair, ones, a->pe); \
		}                                                                          \
	}
HALVES(half, 0x3c00)
HALVES(bfloat16, 0x3f80)

KERNEL_BODY run_halves(const struct halves_args *a)
{
	for (uint32_t t = kernel_lane(); t < a->threads; t += kernel_lanes())
		for (uint32_t i = 0; i < a->each; i++) {
			uint64_t k = (uint64_t)t * a->each + i;
			uint32_t element = (uint32_t)((a->first + k) % HALF_ELEMENTS);

			spmtd_store64_(a->results + 8 * k,
				a->bfloat16 ? bfloat16_one_sum(a, element)
					    : half_one_sum(a, element));
		}
}
TEST_KERNEL(halves)
