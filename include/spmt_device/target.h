/* SPDX-License-Identifier: MIT */
/*
 * For whom the compiler works, and how a function of a device is declared:
 *	SPMTD_NVPTX, SPMTD_AMDGCN, SPMTD_HOST   one of them is defined
 *	SPMTD_FN       in front of a function: inlined, and nobody has to use it. In C and C++ for the host at -O0 it is called, as a debugger wants it:
 *	               inlined everywhere, the types' functions take a compiler a minute
 *	SPMTD_RARE     likewise, never inlined
 *	SPMTD_LONG     as SPMTD_RARE on devices, as SPMTD_FN on the host
 *	SPMTD_ONCE     the other way round: what hundreds of functions share, on the host once
 *	SPMTD_ROLLED   in front of a loop: devices do not unroll it
 *	SPMTD_UNROLL   in front of a loop: devices unroll it
 *	SPMTD_DEVICE   what a compiler of CUDA or HIP wants in front of it, as SPMTD_FN has it
 *	SPMTD_BEGIN, SPMTD_END   around a part's functions: C++ takes their casts, which are C's
 */
#ifndef SPMTD_TARGET_H
#define SPMTD_TARGET_H

#include "types.h"

#if defined(__CUDA_ARCH__) || defined(__NVPTX__)
#define SPMTD_NVPTX 1
#elif defined(__AMDGCN__)
#define SPMTD_AMDGCN 1
#else
#define SPMTD_HOST 1
#endif

#if defined(__clang__) && (defined(__CUDA__) || defined(__HIP__))
#define SPMTD_DEVICE __attribute__((device))
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define SPMTD_DEVICE __device__
#else
#define SPMTD_DEVICE
#endif
/* In C clang assumes that threads may call a function divergently, and may duplicate the call for those that arrive by one path, though
   they must meet the others in it: a block waited for ever. In CUDA and HIP it never assumes this. */
#if defined(__clang__) && (defined(__NVPTX__) || defined(__AMDGCN__))
#define SPMTD_MEETS __attribute__((convergent))
#else
#define SPMTD_MEETS
#endif
#if defined(SPMTD_HOST) && !defined(__OPTIMIZE__) && !defined(__CUDACC__) && !defined(__CUDA__) && \
	!defined(__HIP__)
#define SPMTD_FN static inline __attribute__((unused))
#else
#define SPMTD_FN static SPMTD_DEVICE inline __attribute__((always_inline, unused)) SPMTD_MEETS
#endif
/* Not inlined on devices: a caller's loop round them would carry dozens of their invariants in
   registers. */
#define SPMTD_RARE static SPMTD_DEVICE __attribute__((noinline, unused)) SPMTD_MEETS
#if defined(SPMTD_HOST)
#define SPMTD_LONG SPMTD_FN
#define SPMTD_ONCE SPMTD_RARE
#define SPMTD_ROLLED
#define SPMTD_UNROLL
#else
#define SPMTD_LONG SPMTD_RARE
#define SPMTD_ONCE SPMTD_FN
#define SPMTD_ROLLED _Pragma("unroll 1")
#define SPMTD_UNROLL _Pragma("unroll")
#endif

#if defined(__cplusplus) && defined(__GNUC__) && !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#if defined(__clang__)
#define SPMTD_BEGIN \
	_Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wold-style-cast\"")
#else
#define SPMTD_BEGIN                                                                           \
	_Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wold-style-cast\"") \
		_Pragma("GCC diagnostic ignored \"-Wuseless-cast\"")
#endif
#define SPMTD_END _Pragma("GCC diagnostic pop")
#else
#define SPMTD_BEGIN
#define SPMTD_END
#endif

SPMTD_BEGIN

struct spmtd_unit_ {
	uint64_t a, b;
};

/* Who takes part in a call. */
enum spmtd_scope_ { SPMTD_THREAD_, SPMTD_WARP_, SPMTD_BLOCK_ };

SPMTD_FN uint64_t spmtd_at_(const volatile void *p)
{
	return (uint64_t)(size_t)p;
}

SPMTD_FN void *spmtd_to_(uint64_t a)
{
	return (void *)(size_t)a;
}

SPMTD_END

#endif
