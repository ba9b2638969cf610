/* SPDX-License-Identifier: MIT */
/*
 * ---- the machine ----------------------------------------------------------------------------
 * Everything below that ends in an underscore, and every macro SPMTD_*, is private; the macros end
 * with this file.
 *
 * What each machine gives, for 8, 16, 32 and 64 bits and a 16-byte unit, on addresses as numbers:
 *	load store     any memory of the thread, ordinary
 *	gload gstore   device memory, ordinary
 *	peek poke      device memory, system scope, relaxed
 *	look           as peek, and acquires on NVIDIA and the host
 *	swap cas add and or xor   atomics, system scope, relaxed: the old value
 *	tell_*         the same without it
 * On the host peek acquires and poke releases: it costs nothing there, and ThreadSanitizer, which
 * knows no fences, sees the order.
 */
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
#define SPMTD_FN static SPMTD_DEVICE inline __attribute__((always_inline, unused))
/* Not inlined on devices: a caller's loop round them would carry dozens of their invariants in
   registers. */
#define SPMTD_RARE static SPMTD_DEVICE __attribute__((noinline, unused))
#if defined(SPMTD_HOST)
#define SPMTD_LONG SPMTD_FN
#define SPMTD_ROLLED
#else
#define SPMTD_LONG SPMTD_RARE
#define SPMTD_ROLLED _Pragma("unroll 1")
#endif

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
