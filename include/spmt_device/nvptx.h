/* SPDX-License-Identifier: MIT */
/*
 * The machine (machine.h) on NVIDIA GPUs. Empty for other targets. Besides, for parts that have code of their own for it:
 *	SPMTD_ASM, SPMTD_PURE   inline assembly, with and without side effects
 *	SPMTD_G, SPMTD_G0       text that finds its address in g, in the .global state space: that of operand 1 or 0
 *	SPMTD_REDUX             defined where there is spmtd_least_warp_
 *	spmtd_fadd_NAME_, spmtd_noret_fadd_NAME_   sums of floats as add and noret_add, operands as their bits: float, double, half, half_pair, and
 *	                        where SPMTD_FADD_BFLOAT16 is defined bfloat16, bfloat16_pair (atomic.h)
 *	SPMTD_WHOLE             defined where there is spmtd_poke128_: a poke of 16 bytes at once, which clang's PTX is too old for
 */
#ifndef SPMTD_NVPTX_H
#define SPMTD_NVPTX_H

#include "target.h"

#if defined(SPMTD_NVPTX)

SPMTD_BEGIN

#if defined(__CUDACC_RTC__)
#define SPMTD_ASM asm volatile
#define SPMTD_PURE asm
#else
#define SPMTD_ASM __asm__ volatile
#define SPMTD_PURE __asm__
#endif
/* The .global state space: with generic addresses each atomic would carry a branch for shared
   memory. */
#define SPMTD_G(text) "{ .reg .u64 g; cvta.to.global.u64 g, %1; " text " }"
#define SPMTD_G0(text) "{ .reg .u64 g; cvta.to.global.u64 g, %0; " text " }"

#define SPMTD_ACCESS(bits, type, reg, c)                                                           \
	SPMTD_FN type spmtd_load##bits##_(uint64_t a)                                              \
	{                                                                                          \
		reg x;                                                                             \
		SPMTD_ASM("ld.u" #bits " %0, [%1];" : "=" c(x) : "l"(a) : "memory");               \
		return (type)x;                                                                    \
	}                                                                                          \
	SPMTD_FN type spmtd_gload##bits##_(uint64_t a)                                             \
	{                                                                                          \
		reg x;                                                                             \
		SPMTD_ASM(SPMTD_G("ld.global.u" #bits " %0, [g];")                                 \
			  : "=" c(x)                                                               \
			  : "l"(a)                                                                 \
			  : "memory");                                                             \
		return (type)x;                                                                    \
	}                                                                                          \
	SPMTD_FN type spmtd_peek##bits##_(uint64_t a)                                              \
	{                                                                                          \
		reg x;                                                                             \
		SPMTD_ASM(SPMTD_G("ld.relaxed.sys.global.u" #bits " %0, [g];")                     \
			  : "=" c(x)                                                               \
			  : "l"(a)                                                                 \
			  : "memory");                                                             \
		return (type)x;                                                                    \
	}                                                                                          \
	SPMTD_FN type spmtd_look##bits##_(uint64_t a)                                              \
	{                                                                                          \
		reg x;                                                                             \
		SPMTD_ASM(SPMTD_G("ld.acquire.sys.global.u" #bits " %0, [g];")                     \
			  : "=" c(x)                                                               \
			  : "l"(a)                                                                 \
			  : "memory");                                                             \
		return (type)x;                                                                    \
	}                                                                                          \
	SPMTD_FN void spmtd_store##bits##_(uint64_t a, type x)                                     \
	{                                                                                          \
		SPMTD_ASM("st.u" #bits " [%0], %1;" ::"l"(a), c((reg)x) : "memory");               \
	}                                                                                          \
	SPMTD_FN void spmtd_gstore##bits##_(uint64_t a, type x)                                    \
	{                                                                                          \
		SPMTD_ASM(SPMTD_G0("st.global.u" #bits " [g], %1;")::"l"(a), c((reg)x)             \
			  : "memory");                                                             \
	}                                                                                          \
	SPMTD_FN void spmtd_poke##bits##_(uint64_t a, type x)                                      \
	{                                                                                          \
		SPMTD_ASM(SPMTD_G0("st.relaxed.sys.global.u" #bits " [g], %1;")::"l"(a), c((reg)x) \
			  : "memory");                                                             \
	}
SPMTD_ACCESS(8, uint8_t, uint32_t, "r")
SPMTD_ACCESS(16, uint16_t, uint32_t, "r")
SPMTD_ACCESS(32, uint32_t, uint32_t, "r")
SPMTD_ACCESS(64, uint64_t, uint64_t, "l")

#define SPMTD_ATOMIC(name, ptx, bits, type, c)                                          \
	SPMTD_FN type spmtd_##name##bits##_(uint64_t a, type x)                         \
	{                                                                               \
		type old;                                                               \
		SPMTD_ASM(SPMTD_G("atom.relaxed.sys.global." ptx #bits " %0, [g], %2;") \
			  : "=" c(old)                                                  \
			  : "l"(a), c(x)                                                \
			  : "memory");                                                  \
		return old;                                                             \
	}
#define SPMTD_REDUCE(name, ptx, bits, type, c)                                                    \
	SPMTD_FN void spmtd_noret_##name##bits##_(uint64_t a, type x)                             \
	{                                                                                         \
		SPMTD_ASM(SPMTD_G0("red.relaxed.sys.global." ptx #bits " [g], %1;")::"l"(a), c(x) \
			  : "memory");                                                            \
	}
#define SPMTD_ATOMICS(bits, type, c)                                                         \
	SPMTD_ATOMIC(swap, "exch.b", bits, type, c)                                          \
	SPMTD_ATOMIC(add, "add.u", bits, type, c)                                            \
	SPMTD_ATOMIC(and, "and.b", bits, type, c)                                            \
	SPMTD_ATOMIC(or, "or.b", bits, type, c)                                              \
	SPMTD_ATOMIC(xor, "xor.b", bits, type, c)                                            \
	SPMTD_REDUCE(add, "add.u", bits, type, c)                                            \
	SPMTD_REDUCE(and, "and.b", bits, type, c)                                            \
	SPMTD_REDUCE(or, "or.b", bits, type, c)                                              \
	SPMTD_REDUCE(xor, "xor.b", bits, type, c)                                            \
	SPMTD_FN type spmtd_cas##bits##_(uint64_t a, type compare, type x)                   \
	{                                                                                    \
		type old;                                                                    \
		SPMTD_ASM(SPMTD_G("atom.relaxed.sys.global.cas.b" #bits " %0, [g], %2, %3;") \
			  : "=" c(old)                                                       \
			  : "l"(a), c(compare), c(x)                                         \
			  : "memory");                                                       \
		return old;                                                                  \
	}
SPMTD_ATOMICS(32, uint32_t, "r")
SPMTD_ATOMICS(64, uint64_t, "l")

#define SPMTD_FADD(name, ptx, type, c)                                                          \
	SPMTD_FN type spmtd_fadd_##name##_(uint64_t a, type x)                                  \
	{                                                                                       \
		type old;                                                                       \
		SPMTD_ASM(SPMTD_G("atom.relaxed.sys.global.add." ptx " %0, [g], %2;")           \
			  : "=" c(old)                                                          \
			  : "l"(a), c(x)                                                        \
			  : "memory");                                                          \
		return old;                                                                     \
	}                                                                                       \
	SPMTD_FN void spmtd_noret_fadd_##name##_(uint64_t a, type x)                            \
	{                                                                                       \
		SPMTD_ASM(SPMTD_G0("red.relaxed.sys.global.add." ptx " [g], %1;")::"l"(a), c(x) \
			  : "memory");                                                          \
	}
SPMTD_FADD(float, "f32", uint32_t, "r")
SPMTD_FADD(double, "f64", uint64_t, "l")
SPMTD_FADD(half, "noftz.f16", uint16_t, "h")
SPMTD_FADD(half_pair, "noftz.f16x2", uint32_t, "r")
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SPMTD_FADD_BFLOAT16 1
SPMTD_FADD(bfloat16, "noftz.bf16", uint16_t, "h")
SPMTD_FADD(bfloat16_pair, "noftz.bf16x2", uint32_t, "r")
#endif

SPMTD_FN struct spmtd_unit_ spmtd_load16b_(uint64_t a)
{
	struct spmtd_unit_ u;

	SPMTD_ASM("ld.v2.u64 {%0, %1}, [%2];" : "=l"(u.a), "=l"(u.b) : "l"(a) : "memory");
	return u;
}

SPMTD_FN struct spmtd_unit_ spmtd_gload16b_(uint64_t a)
{
	struct spmtd_unit_ u;

	SPMTD_ASM("{ .reg .u64 g; cvta.to.global.u64 g, %2; ld.global.v2.u64 {%0, %1}, [g]; }"
		  : "=l"(u.a), "=l"(u.b)
		  : "l"(a)
		  : "memory");
	return u;
}

SPMTD_FN void spmtd_store16b_(uint64_t a, struct spmtd_unit_ u)
{
	SPMTD_ASM("st.v2.u64 [%0], {%1, %2};" ::"l"(a), "l"(u.a), "l"(u.b) : "memory");
}

SPMTD_FN void spmtd_gstore16b_(uint64_t a, struct spmtd_unit_ u)
{
	SPMTD_ASM(SPMTD_G0("st.global.v2.u64 [g], {%1, %2};")::"l"(a), "l"(u.a), "l"(u.b)
		  : "memory");
}

/* By PTX's model a vector is as many accesses as it has elements, in no order. */
SPMTD_FN struct spmtd_unit_ spmtd_peek16b_(uint64_t a)
{
	struct spmtd_unit_ u;

	SPMTD_ASM("{ .reg .u64 g; cvta.to.global.u64 g, %2; "
		  "ld.relaxed.sys.global.v2.u64 {%0, %1}, [g]; }"
		  : "=l"(u.a), "=l"(u.b)
		  : "l"(a)
		  : "memory");
	return u;
}

SPMTD_FN void spmtd_poke16b_(uint64_t a, struct spmtd_unit_ u)
{
	SPMTD_ASM(
		SPMTD_G0("st.relaxed.sys.global.v2.u64 [g], {%1, %2};")::"l"(a), "l"(u.a), "l"(u.b)
		: "memory");
}

#if defined(__CUDACC_VER_MAJOR__) && !defined(__clang__)
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 4)
#define SPMTD_WHOLE 1
SPMTD_FN void spmtd_poke128_(uint64_t a, struct spmtd_unit_ u)
{
	SPMTD_ASM("{ .reg .u64 g; .reg .b128 x; cvta.to.global.u64 g, %0; mov.b128 x, {%1, %2}; "
		  "st.relaxed.sys.global.b128 [g], x; }" ::"l"(a),
		  "l"(u.a), "l"(u.b)
		  : "memory");
}
#endif
#endif

SPMTD_FN void spmtd_release_set_(uint64_t a, uint64_t x)
{
	SPMTD_ASM(SPMTD_G0("st.release.sys.global.u64 [g], %1;")::"l"(a), "l"(x) : "memory");
}

SPMTD_FN void spmtd_release_add_(uint64_t a, uint64_t x)
{
	SPMTD_ASM(SPMTD_G0("red.release.sys.global.add.u64 [g], %1;")::"l"(a), "l"(x) : "memory");
}

SPMTD_FN void spmtd_order_(void)
{
	SPMTD_ASM("fence.acq_rel.sys;" ::: "memory");
}

/* Two ranks that store, complete and then load what the other stored: with fence.acq_rel both may
   see old values, as nothing synchronizes them. Of two fence.sc one comes first, and synchronizes
   with the other. It costs the same. */
SPMTD_FN void spmtd_complete_(void)
{
	SPMTD_ASM("fence.sc.sys;" ::: "memory");
}

/* After looks that succeeded: ld.acquire has done it. */
SPMTD_FN void spmtd_acquired_(void)
{
}

/* By each thread before the meeting that precedes one thread's release: that release is
   cumulative. */
SPMTD_FN void spmtd_settle_(void)
{
}

#define SPMTD_ID(name, reg)                                     \
	SPMTD_FN uint32_t spmtd_##name##_(void)                 \
	{                                                       \
		uint32_t x;                                     \
		SPMTD_PURE("mov.u32 %0, %%" reg ";" : "=r"(x)); \
		return x;                                       \
	}
SPMTD_ID(tid_x, "tid.x")
SPMTD_ID(tid_y, "tid.y")
SPMTD_ID(tid_z, "tid.z")
SPMTD_ID(ntid_x, "ntid.x")
SPMTD_ID(ntid_y, "ntid.y")
SPMTD_ID(ntid_z, "ntid.z")

SPMTD_FN uint32_t spmtd_warp_size_(void)
{
	return 32;
}

SPMTD_FN uint64_t spmtd_clock_(void)
{
	uint64_t ns;

	SPMTD_ASM("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
	return ns;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define SPMTD_REDUX 1
#endif

/* In C clang takes builtins, but no inline assembly, for convergent, and no function round them that does not say so (SPMTD_MEETS); as
   CUDA it may refuse builtins by the PTX version. */
#if defined(__clang__) && !defined(__CUDA__)
SPMTD_FN void spmtd_meet_block_(void)
{
	__syncthreads();
}

SPMTD_FN void spmtd_meet_warp_(void)
{
	__nvvm_bar_warp_sync(0xffffffffu);
}

SPMTD_FN int spmtd_any_block_(int x)
{
	return __nvvm_bar0_or(x);
}

SPMTD_FN int spmtd_any_warp_(int x)
{
	return (int)__nvvm_vote_any_sync(0xffffffffu, x != 0);
}

#if defined(SPMTD_REDUX)
SPMTD_FN int spmtd_least_warp_(int x)
{
	return __nvvm_redux_sync_min(x, -1);
}
#endif
#else
SPMTD_FN void spmtd_meet_block_(void)
{
	SPMTD_ASM("bar.sync 0;" ::: "memory");
}

SPMTD_FN void spmtd_meet_warp_(void)
{
	SPMTD_ASM("bar.warp.sync 0xffffffff;" ::: "memory");
}

/* 1 in all threads if x != 0 in any. */
SPMTD_FN int spmtd_any_block_(int x)
{
	int any;

	SPMTD_ASM("{ .reg .pred p; setp.ne.s32 p, %1, 0; bar.red.or.pred p, 0, p; "
		  "selp.s32 %0, 1, 0, p; }"
		  : "=r"(any)
		  : "r"(x)
		  : "memory");
	return any;
}

SPMTD_FN int spmtd_any_warp_(int x)
{
	int any;

	SPMTD_ASM("{ .reg .pred p; setp.ne.s32 p, %1, 0; vote.sync.any.pred p, p, 0xffffffff; "
		  "selp.s32 %0, 1, 0, p; }"
		  : "=r"(any)
		  : "r"(x)
		  : "memory");
	return any;
}

#if defined(SPMTD_REDUX)
SPMTD_FN int spmtd_least_warp_(int x)
{
	int least;

	SPMTD_ASM("redux.sync.min.s32 %0, %1, 0xffffffff;" : "=r"(least) : "r"(x) : "memory");
	return least;
}
#endif
#endif

#undef SPMTD_ACCESS
#undef SPMTD_ATOMIC
#undef SPMTD_REDUCE
#undef SPMTD_ATOMICS
#undef SPMTD_FADD
#undef SPMTD_ID

SPMTD_END

#endif

#endif
