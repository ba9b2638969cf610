/* SPDX-License-Identifier: MIT */
/*
 * The machine (machine.h) on AMD GPUs. Empty for other targets. Besides, for parts that have code of their own for it:
 *	SPMTD_GLOBAL(type, a)   address a as a pointer into device memory
 *	spmtd_release_          what is behind every release: a fence, and the wait that compilers leave out
 */
#ifndef SPMTD_AMDGCN_H
#define SPMTD_AMDGCN_H

#include "target.h"

#if defined(SPMTD_AMDGCN)

SPMTD_BEGIN

/* Global memory by its address space: with generic addresses every access would check for LDS. */
#define SPMTD_GLOBAL(type, a) ((__attribute__((address_space(1))) type *)(a))
/* 8 and 16 bits are volatile, because LLVM before 16 knows no atomic stores of them; 1 access
   either way. */
#define SPMTD_GET_SMALL(p) (*(p))
#define SPMTD_SET_SMALL(p, x) (*(p) = (x))
#define SPMTD_GET_WORD(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define SPMTD_SET_WORD(p, x) __atomic_store_n((p), (x), __ATOMIC_RELAXED)
#define SPMTD_ACCESS(bits, access, load, store)                             \
	typedef uint##bits##_t __attribute__((may_alias)) spmtd_u##bits##_; \
	SPMTD_FN uint##bits##_t spmtd_load##bits##_(uint64_t a)             \
	{                                                                   \
		return *(const spmtd_u##bits##_ *)a;                        \
	}                                                                   \
	SPMTD_FN uint##bits##_t spmtd_gload##bits##_(uint64_t a)            \
	{                                                                   \
		return *SPMTD_GLOBAL(const spmtd_u##bits##_, a);            \
	}                                                                   \
	SPMTD_FN uint##bits##_t spmtd_peek##bits##_(uint64_t a)             \
	{                                                                   \
		return load(SPMTD_GLOBAL(access, a));                       \
	}                                                                   \
	SPMTD_FN uint##bits##_t spmtd_look##bits##_(uint64_t a)             \
	{                                                                   \
		return load(SPMTD_GLOBAL(access, a));                       \
	}                                                                   \
	SPMTD_FN void spmtd_store##bits##_(uint64_t a, uint##bits##_t x)    \
	{                                                                   \
		*(spmtd_u##bits##_ *)a = x;                                 \
	}                                                                   \
	SPMTD_FN void spmtd_gstore##bits##_(uint64_t a, uint##bits##_t x)   \
	{                                                                   \
		*SPMTD_GLOBAL(spmtd_u##bits##_, a) = x;                     \
	}                                                                   \
	SPMTD_FN void spmtd_poke##bits##_(uint64_t a, uint##bits##_t x)     \
	{                                                                   \
		store(SPMTD_GLOBAL(access, a), x);                          \
	}
SPMTD_ACCESS(8, volatile spmtd_u8_, SPMTD_GET_SMALL, SPMTD_SET_SMALL)
SPMTD_ACCESS(16, volatile spmtd_u16_, SPMTD_GET_SMALL, SPMTD_SET_SMALL)
SPMTD_ACCESS(32, spmtd_u32_, SPMTD_GET_WORD, SPMTD_SET_WORD)
SPMTD_ACCESS(64, spmtd_u64_, SPMTD_GET_WORD, SPMTD_SET_WORD)

#define SPMTD_ATOMIC(name, builtin, bits)                                               \
	SPMTD_FN uint##bits##_t spmtd_##name##bits##_(uint64_t a, uint##bits##_t x)     \
	{                                                                               \
		return builtin(SPMTD_GLOBAL(spmtd_u##bits##_, a), x, __ATOMIC_RELAXED); \
	}
#define SPMTD_REDUCE(name, builtin, bits)                                              \
	SPMTD_FN void spmtd_noret_##name##bits##_(uint64_t a, uint##bits##_t x)        \
	{                                                                              \
		(void)builtin(SPMTD_GLOBAL(spmtd_u##bits##_, a), x, __ATOMIC_RELAXED); \
	}
/* PCIe carries add, swap and compare-and-swap; the others are lost on the way to a peer behind it,
   without an error, and compilers before LLVM 20 emit them all the same. */
#define SPMTD_BITWISE(name, op, bits)                                               \
	SPMTD_FN uint##bits##_t spmtd_##name##bits##_(uint64_t a, uint##bits##_t x) \
	{                                                                           \
		uint##bits##_t old = spmtd_peek##bits##_(a), seen;                  \
                                                                                    \
		while ((seen = spmtd_cas##bits##_(a, old, old op x)) != old)        \
			old = seen;                                                 \
		return old;                                                         \
	}                                                                           \
	SPMTD_FN void spmtd_noret_##name##bits##_(uint64_t a, uint##bits##_t x)     \
	{                                                                           \
		(void)spmtd_##name##bits##_(a, x);                                  \
	}
#define SPMTD_ATOMICS(bits)                                                                    \
	SPMTD_ATOMIC(swap, __atomic_exchange_n, bits)                                          \
	SPMTD_ATOMIC(add, __atomic_fetch_add, bits)                                            \
	SPMTD_REDUCE(add, __atomic_fetch_add, bits)                                            \
	SPMTD_FN uint##bits##_t spmtd_cas##bits##_(                                            \
		uint64_t a, uint##bits##_t compare, uint##bits##_t x)                          \
	{                                                                                      \
		__atomic_compare_exchange_n(SPMTD_GLOBAL(spmtd_u##bits##_, a), &compare, x, 0, \
			__ATOMIC_RELAXED, __ATOMIC_RELAXED);                                   \
		return compare;                                                                \
	}                                                                                      \
	SPMTD_BITWISE(and, &, bits)                                                            \
	SPMTD_BITWISE(or, |, bits)                                                             \
	SPMTD_BITWISE(xor, ^, bits)
SPMTD_ATOMICS(32)
SPMTD_ATOMICS(64)

typedef uint64_t spmtd_v2_ __attribute__((vector_size(16), may_alias));

SPMTD_FN struct spmtd_unit_ spmtd_load16b_(uint64_t a)
{
	spmtd_v2_ x = *(const spmtd_v2_ *)a;
	struct spmtd_unit_ u;

	u.a = x[0];
	u.b = x[1];
	return u;
}

SPMTD_FN struct spmtd_unit_ spmtd_gload16b_(uint64_t a)
{
	spmtd_v2_ x = *SPMTD_GLOBAL(const spmtd_v2_, a);
	struct spmtd_unit_ u;

	u.a = x[0];
	u.b = x[1];
	return u;
}

SPMTD_FN void spmtd_store16b_(uint64_t a, struct spmtd_unit_ u)
{
	spmtd_v2_ x = { u.a, u.b };

	*(spmtd_v2_ *)a = x;
}

SPMTD_FN void spmtd_gstore16b_(uint64_t a, struct spmtd_unit_ u)
{
	spmtd_v2_ x = { u.a, u.b };

	*SPMTD_GLOBAL(spmtd_v2_, a) = x;
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

/*
 * A release is a fence, a wait, and then a relaxed access. The fence writes the cache back (buffer_wbl2 on MI200 and
 * later, global_wb on GFX12), which counts as a store under way; but compilers leave out their own wait for it where they
 * know of no older store: LLVM before its pull requests 178316 of 2026 (GFX9) and 135340 of 2025 (GFX12). What comes
 * next would then not be ordered. Waits that the source asks for stay. Not in assembly, where there is another way: LLVM
 * takes a function with assembly for one that may recurse, and gives each lane of its kernels 16 KiB of scratch.
 */
SPMTD_FN void spmtd_written_back_(void)
{
#if defined(__GFX9__)
	__builtin_amdgcn_s_waitcnt(0x0f70); /* vmcnt(0), no other counter */
#elif defined(__GFX12__)
	__asm__ volatile("s_wait_storecnt 0x0" ::: "memory");
#endif
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

SPMTD_FN void spmtd_release_(void)
{
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
	spmtd_written_back_();
}

SPMTD_FN void spmtd_release_set_(uint64_t a, uint64_t x)
{
	spmtd_release_();
	spmtd_poke64_(a, x);
}

SPMTD_FN void spmtd_release_add_(uint64_t a, uint64_t x)
{
	spmtd_release_();
	spmtd_noret_add64_(a, x);
}

SPMTD_FN void spmtd_order_(void)
{
	spmtd_release_();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
}

/* What this thread has stored is in its place before it loads again: the release waits for it. */
SPMTD_FN void spmtd_complete_(void)
{
	spmtd_order_();
}

/* Looks are relaxed here, so that polling does not empty the cache each time. */
SPMTD_FN void spmtd_acquired_(void)
{
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
}

/* A barrier of the block does not wait for the other waves' stores to leave the compute unit. */
SPMTD_FN void spmtd_settle_(void)
{
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
	spmtd_written_back_();
}

SPMTD_FN uint32_t spmtd_tid_x_(void)
{
	return __builtin_amdgcn_workitem_id_x();
}
SPMTD_FN uint32_t spmtd_tid_y_(void)
{
	return __builtin_amdgcn_workitem_id_y();
}
SPMTD_FN uint32_t spmtd_tid_z_(void)
{
	return __builtin_amdgcn_workitem_id_z();
}
SPMTD_FN uint32_t spmtd_ntid_x_(void)
{
	return __builtin_amdgcn_workgroup_size_x();
}
SPMTD_FN uint32_t spmtd_ntid_y_(void)
{
	return __builtin_amdgcn_workgroup_size_y();
}
SPMTD_FN uint32_t spmtd_ntid_z_(void)
{
	return __builtin_amdgcn_workgroup_size_z();
}

SPMTD_FN uint32_t spmtd_warp_size_(void)
{
#if __has_builtin(__builtin_amdgcn_wavefrontsize)
	return __builtin_amdgcn_wavefrontsize();
#else
	return __AMDGCN_WAVEFRONT_SIZE;
#endif
}

/* ns between ticks. GFX9 is Vega and MI100 to MI200 as well as MI300 and MI350. */
#if defined(__GFX9__) && !defined(__gfx940__) && !defined(__gfx941__) && !defined(__gfx942__) && \
	!defined(__gfx950__) && !defined(__gfx9_4_generic__)
#define SPMTD_TICK 40
#else
#define SPMTD_TICK 10
#endif

SPMTD_FN uint64_t spmtd_clock_(void)
{
#if __has_builtin(__builtin_readsteadycounter)
	return __builtin_readsteadycounter() * SPMTD_TICK;
#elif defined(__GFX11__) || defined(__GFX12__)
	return __builtin_amdgcn_s_sendmsg_rtnl(0x83) * SPMTD_TICK;
#else
	return __builtin_amdgcn_s_memrealtime() * SPMTD_TICK;
#endif
}

SPMTD_FN void spmtd_meet_block_(void)
{
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
#if defined(__GFX12__) /* where this fence, too, writes back */
	spmtd_written_back_();
#endif
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

SPMTD_FN void spmtd_meet_warp_(void)
{
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
	__builtin_amdgcn_wave_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

SPMTD_FN int spmtd_any_warp_(int x)
{
#if __clang_major__ >= 19 /* which has the other for 32 lanes too, and may lack the macro */
	return __builtin_amdgcn_ballot_w64(x != 0) != 0;
#elif __has_builtin(__builtin_amdgcn_ballot_w32) && __AMDGCN_WAVEFRONT_SIZE == 32
	return __builtin_amdgcn_ballot_w32(x != 0) != 0;
#elif __has_builtin(__builtin_amdgcn_ballot_w64)
	return __builtin_amdgcn_ballot_w64(x != 0) != 0;
#else
	return __builtin_amdgcn_uicmp((uint32_t)x, 0u, 33) != 0; /* not equal */
#endif
}

SPMTD_FN int spmtd_any_block_(int x)
{
#if defined(__HIP__)
	static __attribute__((shared)) uint32_t cell;
#else
	static __attribute__((address_space(3), loader_uninitialized)) uint32_t cell;
#endif
	int any;

	if (!(spmtd_tid_x_() | spmtd_tid_y_() | spmtd_tid_z_()))
		cell = 0;
	spmtd_meet_block_();
	if (x)
		cell = 1;
	spmtd_meet_block_();
	any = cell != 0;
	spmtd_meet_block_(); /* before the cell is used again */
	return any;
}

#undef SPMTD_GET_SMALL
#undef SPMTD_SET_SMALL
#undef SPMTD_GET_WORD
#undef SPMTD_SET_WORD
#undef SPMTD_ACCESS
#undef SPMTD_ATOMIC
#undef SPMTD_REDUCE
#undef SPMTD_BITWISE
#undef SPMTD_ATOMICS
#undef SPMTD_TICK

SPMTD_END

#endif

#endif
