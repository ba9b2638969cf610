/* SPDX-License-Identifier: MIT */
/*
 * The machine (machine.h) in host C and C++, where one thread is a block of one. Empty for other targets. Besides:
 *	spmtd_relax_            between two looks of a loop that waits
 * Who includes this first may have defined SPMTD_SEEN(p) and SPMTD_SHOWN(p), which end here.
 */
#ifndef SPMTD_HOST_H
#define SPMTD_HOST_H

#include "target.h"

#if defined(SPMTD_HOST)

SPMTD_BEGIN

#if defined(__SANITIZE_THREAD__)
#define SPMTD_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SPMTD_TSAN 1
#endif
#endif

/* Round every store that others may acquire, and behind every load of one: for the library's own kernels, which are built without
   ThreadSanitizer and tell it of what they order. */
#if !defined(SPMTD_SEEN)
#define SPMTD_SEEN(a) ((void)0)
#define SPMTD_SHOWN(a) ((void)0)
#endif
#define SPMTD_ACCESS(bits)                                                                    \
	typedef uint##bits##_t __attribute__((may_alias)) spmtd_u##bits##_;                   \
	SPMTD_FN spmtd_u##bits##_ *spmtd_word##bits##_(uint64_t a)                            \
	{                                                                                     \
		return (spmtd_u##bits##_ *)spmtd_to_(a);                                      \
	}                                                                                     \
	SPMTD_FN uint##bits##_t spmtd_peek##bits##_(uint64_t a)                               \
	{                                                                                     \
		uint##bits##_t x = __atomic_load_n(spmtd_word##bits##_(a), __ATOMIC_ACQUIRE); \
		SPMTD_SEEN(spmtd_to_(a));                                                     \
		return x;                                                                     \
	}                                                                                     \
	SPMTD_FN uint##bits##_t spmtd_look##bits##_(uint64_t a)                               \
	{                                                                                     \
		return spmtd_peek##bits##_(a);                                                \
	}                                                                                     \
	SPMTD_FN void spmtd_poke##bits##_(uint64_t a, uint##bits##_t x)                       \
	{                                                                                     \
		SPMTD_SHOWN(spmtd_to_(a));                                                    \
		__atomic_store_n(spmtd_word##bits##_(a), x, __ATOMIC_RELEASE);                \
	}
/* gcc 12 takes the register of an address's base for the old value in the loop that stands for some of these, and stores anywhere. */
#define SPMTD_ONE_REGISTER(a) __asm__("" : "+r"(a))
#define SPMTD_ATOMIC(name, builtin, bits)                                           \
	SPMTD_FN uint##bits##_t spmtd_##name##bits##_(uint64_t a, uint##bits##_t x) \
	{                                                                           \
		SPMTD_SHOWN(spmtd_to_(a));                                          \
		SPMTD_ONE_REGISTER(a);                                              \
		x = builtin(spmtd_word##bits##_(a), x, __ATOMIC_ACQ_REL);           \
		SPMTD_SEEN(spmtd_to_(a));                                           \
		return x;                                                           \
	}
#define SPMTD_REDUCE(name, builtin, bits)                                       \
	SPMTD_FN void spmtd_noret_##name##bits##_(uint64_t a, uint##bits##_t x) \
	{                                                                       \
		(void)spmtd_##name##bits##_(a, x);                              \
	}
#define SPMTD_ATOMICS(bits)                                                         \
	SPMTD_ACCESS(bits)                                                          \
	SPMTD_ATOMIC(swap, __atomic_exchange_n, bits)                               \
	SPMTD_ATOMIC(add, __atomic_fetch_add, bits)                                 \
	SPMTD_ATOMIC(and, __atomic_fetch_and, bits)                                 \
	SPMTD_ATOMIC(or, __atomic_fetch_or, bits)                                   \
	SPMTD_ATOMIC(xor, __atomic_fetch_xor, bits)                                 \
	SPMTD_REDUCE(add, __atomic_fetch_add, bits)                                 \
	SPMTD_REDUCE(and, __atomic_fetch_and, bits)                                 \
	SPMTD_REDUCE(or, __atomic_fetch_or, bits)                                   \
	SPMTD_REDUCE(xor, __atomic_fetch_xor, bits)                                 \
	SPMTD_FN uint##bits##_t spmtd_cas##bits##_(                                 \
		uint64_t a, uint##bits##_t compare, uint##bits##_t x)               \
	{                                                                           \
		SPMTD_SHOWN(spmtd_to_(a));                                          \
		__atomic_compare_exchange_n(spmtd_word##bits##_(a), &compare, x, 0, \
			__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);                        \
		SPMTD_SEEN(spmtd_to_(a));                                           \
		return compare;                                                     \
	}
SPMTD_ATOMICS(8)
SPMTD_ATOMICS(16)
SPMTD_ATOMICS(32)
SPMTD_ATOMICS(64)

#define SPMTD_LOCAL(bits)                                                 \
	SPMTD_FN uint##bits##_t spmtd_load##bits##_(uint64_t a)           \
	{                                                                 \
		uint##bits##_t x;                                         \
		__builtin_memcpy(&x, spmtd_to_(a), sizeof(x));            \
		return x;                                                 \
	}                                                                 \
	SPMTD_FN uint##bits##_t spmtd_gload##bits##_(uint64_t a)          \
	{                                                                 \
		return spmtd_load##bits##_(a);                            \
	}                                                                 \
	SPMTD_FN void spmtd_store##bits##_(uint64_t a, uint##bits##_t x)  \
	{                                                                 \
		__builtin_memcpy(spmtd_to_(a), &x, sizeof(x));            \
	}                                                                 \
	SPMTD_FN void spmtd_gstore##bits##_(uint64_t a, uint##bits##_t x) \
	{                                                                 \
		spmtd_store##bits##_(a, x);                               \
	}
SPMTD_LOCAL(8)
SPMTD_LOCAL(16)
SPMTD_LOCAL(32)
SPMTD_LOCAL(64)

SPMTD_FN struct spmtd_unit_ spmtd_load16b_(uint64_t a)
{
	struct spmtd_unit_ u;

	__builtin_memcpy(&u, spmtd_to_(a), sizeof(u));
	return u;
}

SPMTD_FN struct spmtd_unit_ spmtd_gload16b_(uint64_t a)
{
	return spmtd_load16b_(a);
}

SPMTD_FN void spmtd_store16b_(uint64_t a, struct spmtd_unit_ u)
{
	__builtin_memcpy(spmtd_to_(a), &u, sizeof(u));
}

SPMTD_FN void spmtd_gstore16b_(uint64_t a, struct spmtd_unit_ u)
{
	spmtd_store16b_(a, u);
}

SPMTD_FN struct spmtd_unit_ spmtd_peek16b_(uint64_t a)
{
	struct spmtd_unit_ u;

	u.a = spmtd_peek64_(a);
	u.b = spmtd_peek64_(a + 8);
	return u;
}

SPMTD_FN void spmtd_poke16b_(uint64_t a, struct spmtd_unit_ u)
{
	spmtd_poke64_(a, u.a);
	spmtd_poke64_(a + 8, u.b);
}

SPMTD_FN void spmtd_release_set_(uint64_t a, uint64_t x)
{
	spmtd_poke64_(a, x);
}

SPMTD_FN void spmtd_release_add_(uint64_t a, uint64_t x)
{
	spmtd_noret_add64_(a, x);
}

SPMTD_FN void spmtd_order_(void)
{
#if defined(SPMTD_TSAN)
	uint32_t word = 0;

	(void)__atomic_fetch_add(&word, 1u, __ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

SPMTD_FN void spmtd_complete_(void)
{
	spmtd_order_();
}

SPMTD_FN void spmtd_acquired_(void)
{
}

SPMTD_FN void spmtd_settle_(void)
{
}

SPMTD_FN void spmtd_meet_block_(void)
{
}

SPMTD_FN void spmtd_meet_warp_(void)
{
}

SPMTD_FN int spmtd_any_block_(int x)
{
	return x != 0;
}

SPMTD_FN int spmtd_any_warp_(int x)
{
	return x != 0;
}

SPMTD_FN uint32_t spmtd_warp_size_(void)
{
	return 1;
}

SPMTD_FN void spmtd_relax_(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

#undef SPMTD_TSAN
#undef SPMTD_SEEN
#undef SPMTD_SHOWN
#undef SPMTD_ACCESS
#undef SPMTD_ATOMIC
#undef SPMTD_ONE_REGISTER
#undef SPMTD_REDUCE
#undef SPMTD_ATOMICS
#undef SPMTD_LOCAL

SPMTD_END

#endif

#endif
