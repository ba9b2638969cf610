/* SPDX-License-Identifier: MIT */
/*
 * libspmt inside kernels: one header for hipcc, nvcc, NVRTC, hiprtc, clang (hip, cuda, and C for
 * amdgcn and nvptx) and host C and C++, where one thread is a block of one. No vendor header, no
 * libc.
 *
 * A kernel gets `struct spmt_view` by value (spmt_view_get) and passes its address to every call.
 *
 * Addresses
 *   The remote side (dst of put, src of get, sig, target of an atomic) is this rank's symmetric
 *   address of the block meant on pe, as on the host. The local side is any memory the thread can
 *   reach, its stack and the block's shared memory included. Nothing is checked here but by
 *   spmtd_ptr and spmtd_mem_ptr: pe is a rank of the world that spmtd_ptr does not refuse, and the
 *   range lies in the heap (or buffer), not in one block of it: with SPMT_CHECK (spmt.h, "Checking")
 *   the library finds later what was written behind a block. On GPUs the two sides of a copy may not
 *   overlap; on the host they may.
 *
 * Scopes
 *   No suffix: the calling thread alone. _warp, _block: called by all threads of the warp
 *   (wavefront) or block with equal arguments, who share the work; such a call is a meeting point
 *   of those threads, so that what they wrote before is sent, and what came may be read by all of
 *   them after. _nbi forms need not be that on return: quiet of the same scope completes them.
 *
 * Order (OpenSHMEM 1.5)
 *   fence orders this thread's earlier puts, signals and atomics to each pe before its later ones.
 *   quiet completes them. A signal comes after its data, also for 0 bytes. A naturally aligned put
 *   or get of 1, 2, 4 or 8 bytes, and _p and _g, is one atomic access. Atomics order nothing by
 *   themselves. barrier is quiet, then sync; sync alone orders nothing of the calling ranks, but
 *   what they completed by a quiet of the same scope before it is seen after it.
 *
 * Waiting
 *   Words that are waited for are this rank's own copies. A wait acquires: what was put before the
 *   signal it saw is seen. Every wait ends at the view's deadline (SPMTD_TIMEOUT) or when the world
 *   breaks (SPMTD_ABORTED), returns 0 or such a code, and the first that fails leaves a record that
 *   spmt_last_error reads. Deadlines are kept by the constant-rate counter: %globaltimer on NVIDIA,
 *   s_memrealtime on AMD (25 MHz up to MI200, 100 MHz else); on the host by the library.
 */
#ifndef SPMT_DEVICE_H
#define SPMT_DEVICE_H

#if defined(__cplusplus) && defined(__GNUC__) && !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
/* The casts are C's. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuseless-cast"
#endif
#endif

/* ---- integer types -------------------------------------------------------------------------- */

#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef signed short int16_t;
typedef unsigned short uint16_t;
typedef signed int int32_t;
typedef unsigned int uint32_t;
typedef signed long long int64_t;
typedef unsigned long long uint64_t;
#if defined(__HIPCC_RTC__)
typedef __SIZE_TYPE__ size_t;
#endif
#elif (defined(__AMDGCN__) || defined(__NVPTX__)) && !defined(__CUDA__) && !defined(__HIP__)
/* C for a device: there need not be a libc whose headers fit the target. */
typedef __INT8_TYPE__ int8_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __INT16_TYPE__ int16_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __SIZE_TYPE__ size_t;
#else
#include <stddef.h>
#include <stdint.h>
#endif

/* ---- numbers shared with spmt.h ------------------------------------------------------------- */

#ifndef SPMT_SHARED_ENUMS
#define SPMT_SHARED_ENUMS
enum spmt_cmp { SPMT_CMP_EQ, SPMT_CMP_NE, SPMT_CMP_GT, SPMT_CMP_GE, SPMT_CMP_LT, SPMT_CMP_LE };

enum spmt_signal_op { SPMT_SIGNAL_SET, SPMT_SIGNAL_ADD };
#endif

/* What a wait returns beside 0: the same numbers as SPMT_ERR_TIMEOUT, .. */
enum spmtd_code { SPMTD_TIMEOUT = -10001, SPMTD_ABORTED = -10002, SPMTD_MISMATCH = -10004 };

/* What a record's wait was for. */
enum spmtd_what {
	SPMTD_WHAT_WAIT = 1,
	SPMTD_WHAT_SIGNAL,
	SPMTD_WHAT_SYNC,
	SPMTD_WHAT_BARRIER,
	SPMTD_WHAT_COLLECTIVE,
	SPMTD_WHAT_ON_STREAM /* spmt_signal_wait_on_stream */
};

/* ---- plain data ----------------------------------------------------------------------------- */

#define SPMT_VIEW_ABI 2u

/* How one peer is reached. */
struct spmtd_peer {
	uint64_t base; /* address of its user heap as seen from here; 0: cannot be loaded from */
	uint64_t own;  /* address of its library area (struct spmtd_own) */
	uint64_t mine; /* this rank's user heap as the peer sees it; 0: as this rank does */
};

/* What a wait left behind when it ended without its condition: the first one counts. In
   host-visible memory. */
struct spmtd_record {
	uint64_t valid;	  /* 2: the rest is there; 0: free; written last */
	int32_t code;	  /* SPMTD_TIMEOUT, .. */
	int32_t pe;	  /* who waited */
	int32_t peer;	  /* for whom; -1: not known */
	uint32_t what;	  /* enum spmtd_what */
	uint64_t address; /* of the word */
	uint64_t expected, seen;
};

struct spmt_view;

/* One wait's way through pausing; private to the host's callbacks. */
struct spmtd_pause {
	uint32_t n;    /* pauses so far */
	uint32_t bell; /* what the rank's bell read when the wait announced itself */
	int64_t begin; /* ns */
};

/* Host backend only: how a wait sleeps and how a store wakes a sleeper. NULL on GPUs. */
struct spmtd_host {
	/* Between two looks at the word. 0: look again; else the code that ends the wait. */
	int (*pause)(const struct spmt_view *v, struct spmtd_pause *p);
	/* After a wait that paused at least once, however it ended. */
	void (*resume)(const struct spmt_view *v, struct spmtd_pause *p);
	/* After a store to pe's memory: wakes its sleepers; contains the fence that orders the
	   store before the look. */
	void (*wake)(const struct spmt_view *v, int32_t pe);
	/* A kernel of the library has not done what it was to do: its code. May be NULL. */
	void (*ended)(const struct spmt_view *v, int code);
	/* As pause, of a comm that is broken: 0 as long as a peer is to be waited for. May be NULL. */
	int (*linger)(const struct spmt_view *v, struct spmtd_pause *p);
};

struct spmt_view {
	uint32_t size, abi; /* size: set by the caller of spmt_view_get */
	int32_t pe, npes;
	uint64_t base;	    /* this rank's user heap */
	uint64_t heap_size; /* bytes */
	uint64_t stride;    /* not 0: peer heaps lie at flat + pe * stride, no table needed */
	uint64_t flat;
	const struct spmtd_peer *peers; /* npes of them */
	struct spmtd_own *own;		/* this rank's library area */
	const uint32_t *stop;		/* not 0: the world is broken */
	struct spmtd_record *record;
	uint64_t timeout_ns;	       /* 0: none */
	const struct spmtd_host *host; /* NULL on GPUs */
	uint64_t reserved[4];
};

/*
 * The library area at the end of every rank's heap; layout fixed by npes. Peers write, the owner
 * reads. Counters only rise.
 *	struct spmtd_own, then npes struct spmtd_inbox (index: the rank that writes), then slots for
 *	the data of small collectives: 2 * npes (parity of the epoch, the rank that writes)
 */
struct spmtd_inbox {
	uint64_t sync; /* writer's arrivals at device syncs */
	uint64_t
		done; /* twice the writer's collective epoch: it is through with this rank; odd: it has given up */
	uint64_t src, dst; /* writer's buffers, addresses as valid in this process */
	uint64_t seen;	   /* where the writer sees this rank's user heap; written in init */
	uint64_t
		turn; /* in the rank's own: how many looks for one of many words have begun; in the others': twice the
			      collective epoch that the writer has taken back, one more: that may touch its buffers */
	uint64_t hello[2]
		      [2]; /* by parity of the writer's collective epoch: what it called, folded, in
				 halves below spmtd_flag_(epoch) */
};
struct spmtd_own {
	uint64_t sync_epoch; /* this rank's; lives on the device so that graphs replay */
	uint64_t coll_epoch;
	uint64_t
		error; /* not 0: a collective or barrier in a stream has failed, and none takes place any more: its
			     code; in the upper half 1 + the rank that told */
	uint64_t grid[4];   /* meeting points of one kernel's blocks */
	uint64_t recording; /* 1: a wait of this rank is filling the record */
};

/* A registered buffer for kernels, by value. */
struct spmt_mem_view {
	uint32_t size, abi;
	int32_t pe, npes;
	const struct spmtd_mem_peer *peers; /* npes of them */
	uint64_t reserved[4];
};
struct spmtd_mem_peer {
	uint64_t base, size;
};

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

#if defined(SPMTD_NVPTX)

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
	SPMTD_FN void spmtd_tell_##name##bits##_(uint64_t a, type x)                              \
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

SPMTD_FN void spmtd_ring_set_(uint64_t a, uint64_t x)
{
	SPMTD_ASM(SPMTD_G0("st.release.sys.global.u64 [g], %1;")::"l"(a), "l"(x) : "memory");
}

SPMTD_FN void spmtd_ring_add_(uint64_t a, uint64_t x)
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

/* Of the warp's threads that are here together one looks at a word for all: 1 where it is not 0. In one
   piece, so that whatever a compiler makes of the way here, those who vote are those who counted. */
SPMTD_FN int spmtd_any_sees_(uint64_t a)
{
	int any;

	SPMTD_ASM("{ .reg .u64 g; .reg .b32 here, first, x; .reg .pred p; "
		  "cvta.to.global.u64 g, %1; activemask.b32 here; neg.s32 first, here; "
		  "and.b32 first, first, here; mov.u32 x, %%lanemask_eq; setp.eq.u32 p, x, first; "
		  "mov.b32 x, 0; @p ld.relaxed.sys.global.u32 x, [g]; setp.ne.u32 p, x, 0; "
		  "vote.sync.any.pred p, p, here; selp.s32 %0, 1, 0, p; }"
		  : "=r"(any)
		  : "l"(a)
		  : "memory");
	return any;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define SPMTD_REDUX 1
#endif

/* In C clang takes builtins, but no inline assembly, for convergent; as CUDA it may refuse
   builtins by the PTX version. */
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

#elif defined(SPMTD_AMDGCN)

/* Global memory by its address space: with generic addresses every access would check for LDS. */
#define SPMTD_G(type, a) ((__attribute__((address_space(1))) type *)(a))
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
		return *SPMTD_G(const spmtd_u##bits##_, a);                 \
	}                                                                   \
	SPMTD_FN uint##bits##_t spmtd_peek##bits##_(uint64_t a)             \
	{                                                                   \
		return load(SPMTD_G(access, a));                            \
	}                                                                   \
	SPMTD_FN uint##bits##_t spmtd_look##bits##_(uint64_t a)             \
	{                                                                   \
		return load(SPMTD_G(access, a));                            \
	}                                                                   \
	SPMTD_FN void spmtd_store##bits##_(uint64_t a, uint##bits##_t x)    \
	{                                                                   \
		*(spmtd_u##bits##_ *)a = x;                                 \
	}                                                                   \
	SPMTD_FN void spmtd_gstore##bits##_(uint64_t a, uint##bits##_t x)   \
	{                                                                   \
		*SPMTD_G(spmtd_u##bits##_, a) = x;                          \
	}                                                                   \
	SPMTD_FN void spmtd_poke##bits##_(uint64_t a, uint##bits##_t x)     \
	{                                                                   \
		store(SPMTD_G(access, a), x);                               \
	}
SPMTD_ACCESS(8, volatile spmtd_u8_, SPMTD_GET_SMALL, SPMTD_SET_SMALL)
SPMTD_ACCESS(16, volatile spmtd_u16_, SPMTD_GET_SMALL, SPMTD_SET_SMALL)
SPMTD_ACCESS(32, spmtd_u32_, SPMTD_GET_WORD, SPMTD_SET_WORD)
SPMTD_ACCESS(64, spmtd_u64_, SPMTD_GET_WORD, SPMTD_SET_WORD)

#define SPMTD_ATOMIC(name, builtin, bits)                                           \
	SPMTD_FN uint##bits##_t spmtd_##name##bits##_(uint64_t a, uint##bits##_t x) \
	{                                                                           \
		return builtin(SPMTD_G(spmtd_u##bits##_, a), x, __ATOMIC_RELAXED);  \
	}
#define SPMTD_REDUCE(name, builtin, bits)                                         \
	SPMTD_FN void spmtd_tell_##name##bits##_(uint64_t a, uint##bits##_t x)    \
	{                                                                         \
		(void)builtin(SPMTD_G(spmtd_u##bits##_, a), x, __ATOMIC_RELAXED); \
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
	SPMTD_FN void spmtd_tell_##name##bits##_(uint64_t a, uint##bits##_t x)      \
	{                                                                           \
		(void)spmtd_##name##bits##_(a, x);                                  \
	}
#define SPMTD_ATOMICS(bits)                                                               \
	SPMTD_ATOMIC(swap, __atomic_exchange_n, bits)                                     \
	SPMTD_ATOMIC(add, __atomic_fetch_add, bits)                                       \
	SPMTD_REDUCE(add, __atomic_fetch_add, bits)                                       \
	SPMTD_FN uint##bits##_t spmtd_cas##bits##_(                                       \
		uint64_t a, uint##bits##_t compare, uint##bits##_t x)                     \
	{                                                                                 \
		__atomic_compare_exchange_n(SPMTD_G(spmtd_u##bits##_, a), &compare, x, 0, \
			__ATOMIC_RELAXED, __ATOMIC_RELAXED);                              \
		return compare;                                                           \
	}                                                                                 \
	SPMTD_BITWISE(and, &, bits)                                                       \
	SPMTD_BITWISE(or, |, bits)                                                        \
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
	spmtd_v2_ x = *SPMTD_G(const spmtd_v2_, a);
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

	*SPMTD_G(spmtd_v2_, a) = x;
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

SPMTD_FN void spmtd_ring_set_(uint64_t a, uint64_t x)
{
	spmtd_release_();
	spmtd_poke64_(a, x);
}

SPMTD_FN void spmtd_ring_add_(uint64_t a, uint64_t x)
{
	spmtd_release_();
	spmtd_tell_add64_(a, x);
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

/* Of the wavefront's threads that are here together one looks at a word for all: 1 where it is not 0. */
SPMTD_FN int spmtd_any_sees_(uint64_t a)
{
	uint32_t lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)), x = 0;

	if (lane == (uint32_t)__builtin_amdgcn_readfirstlane((int)lane))
		x = spmtd_peek32_(a);
	return spmtd_any_warp_((int)x);
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

#else /* host */

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
#define SPMTD_ATOMIC(name, builtin, bits)                                           \
	SPMTD_FN uint##bits##_t spmtd_##name##bits##_(uint64_t a, uint##bits##_t x) \
	{                                                                           \
		SPMTD_SHOWN(spmtd_to_(a));                                          \
		x = builtin(spmtd_word##bits##_(a), x, __ATOMIC_ACQ_REL);           \
		SPMTD_SEEN(spmtd_to_(a));                                           \
		return x;                                                           \
	}
#define SPMTD_REDUCE(name, builtin, bits)                                      \
	SPMTD_FN void spmtd_tell_##name##bits##_(uint64_t a, uint##bits##_t x) \
	{                                                                      \
		(void)spmtd_##name##bits##_(a, x);                             \
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

SPMTD_FN void spmtd_ring_set_(uint64_t a, uint64_t x)
{
	spmtd_poke64_(a, x);
}

SPMTD_FN void spmtd_ring_add_(uint64_t a, uint64_t x)
{
	spmtd_tell_add64_(a, x);
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

SPMTD_FN int spmtd_any_sees_(uint64_t a)
{
	return spmtd_peek32_(a) != 0;
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

#endif

/* ---- threads of a scope --------------------------------------------------------------------- */

/* The calling thread in its block, and how many there are. */
SPMTD_FN uint32_t spmtd_tid_(void)
{
#if defined(SPMTD_HOST)
	return 0;
#else
	return spmtd_tid_x_() +
		spmtd_ntid_x_() * (spmtd_tid_y_() + spmtd_ntid_y_() * spmtd_tid_z_());
#endif
}

SPMTD_FN uint32_t spmtd_threads_(void)
{
#if defined(SPMTD_HOST)
	return 1;
#else
	return spmtd_ntid_x_() * spmtd_ntid_y_() * spmtd_ntid_z_();
#endif
}

SPMTD_FN uint32_t spmtd_lane_(int scope)
{
#if defined(SPMTD_HOST)
	(void)scope;
	return 0;
#else
	if (scope == SPMTD_THREAD_)
		return 0;
	return scope == SPMTD_WARP_ ? spmtd_tid_() % spmtd_warp_size_() : spmtd_tid_();
#endif
}

/* A block's last warp may be short. */
SPMTD_FN uint32_t spmtd_lanes_(int scope)
{
#if defined(SPMTD_HOST)
	(void)scope;
	return 1;
#else
	uint32_t size = spmtd_warp_size_(), left;

	if (scope == SPMTD_THREAD_)
		return 1;
	if (scope == SPMTD_BLOCK_)
		return spmtd_threads_();
	left = spmtd_threads_() - spmtd_tid_() / size * size;
	return left < size ? left : size;
#endif
}

SPMTD_FN void spmtd_meet_(int scope)
{
	if (scope == SPMTD_WARP_)
		spmtd_meet_warp_();
	else if (scope == SPMTD_BLOCK_)
		spmtd_meet_block_();
}

/* After it one thread's release covers what all threads of the scope have stored. */
SPMTD_FN void spmtd_gather_(int scope)
{
	if (scope != SPMTD_THREAD_)
		spmtd_settle_();
	spmtd_meet_(scope);
}

/* One code for all threads of the scope; an abort, the least, outdoes a timeout. Then what one of
   them has seen is before all that any does next: a warp's vote alone orders no memory. */
SPMTD_FN int spmtd_agree_(int code, int scope)
{
	if (scope == SPMTD_WARP_) {
#if defined(SPMTD_REDUX) /* between GPUs two votes took a sync of a warp 0.15 us more */
		code = spmtd_least_warp_(code);
#else
		if (spmtd_any_warp_(code))
			code = spmtd_any_warp_(code == SPMTD_ABORTED) ? SPMTD_ABORTED
								      : SPMTD_TIMEOUT;
#endif
		spmtd_meet_warp_();
		return code;
	}
	if (scope == SPMTD_BLOCK_) {
		if (!spmtd_any_block_(code))
			return 0;
		return spmtd_any_block_(code == SPMTD_ABORTED) ? SPMTD_ABORTED : SPMTD_TIMEOUT;
	}
	return code;
}

/* ---- copies --------------------------------------------------------------------------------- */

/* Which side of a copy is device memory; the other may be any memory. */
enum spmtd_way_ { SPMTD_PUT_, SPMTD_GET_, SPMTD_RAW_ };

#if defined(SPMTD_HOST)

/* Overlap is fine. The caller has dealt with single accesses. */
SPMTD_FN void spmtd_bulk_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	(void)way;
	if (lanes == 1)
		__builtin_memmove(spmtd_to_(dst), spmtd_to_(src), (size_t)n);
	else if (lane == 0)
		__builtin_memcpy(spmtd_to_(dst), spmtd_to_(src), (size_t)n);
}

#define SPMTD_LOCAL(bits)                                                \
	SPMTD_FN uint##bits##_t spmtd_load##bits##_(uint64_t a)          \
	{                                                                \
		uint##bits##_t x;                                        \
		__builtin_memcpy(&x, spmtd_to_(a), sizeof(x));           \
		return x;                                                \
	}                                                                \
	SPMTD_FN void spmtd_store##bits##_(uint64_t a, uint##bits##_t x) \
	{                                                                \
		__builtin_memcpy(spmtd_to_(a), &x, sizeof(x));           \
	}
SPMTD_LOCAL(8)
SPMTD_LOCAL(16)
SPMTD_LOCAL(32)
SPMTD_LOCAL(64)

SPMTD_FN int spmtd_plain_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	(void)way, (void)dst, (void)src, (void)n, (void)lane, (void)lanes;
	return 0;
}

SPMTD_FN uint64_t spmtd_local_load_(uint64_t a, uint64_t n)
{
	if (n == 8)
		return spmtd_load64_(a);
	if (n == 4)
		return spmtd_load32_(a);
	return n == 2 ? spmtd_load16_(a) : spmtd_load8_(a);
}

SPMTD_FN void spmtd_local_store_(uint64_t a, uint64_t n, uint64_t x)
{
	if (n == 8)
		spmtd_store64_(a, x);
	else if (n == 4)
		spmtd_store32_(a, (uint32_t)x);
	else if (n == 2)
		spmtd_store16_(a, (uint16_t)x);
	else
		spmtd_store8_(a, (uint8_t)x);
}

#else

/* Accesses of one kind that a thread keeps in flight: all loads are issued before the first
   store. */
#define SPMTD_FLIGHT 8
#define SPMTD_MANY 512 /* threads */

/* base + step * j. Opaque where the compiler would rather keep all of a round's addresses in
   registers, more than a full block has. */
SPMTD_FN uint64_t spmtd_hop_(uint64_t base, uint32_t step, uint32_t j)
{
#if defined(SPMTD_NVPTX)
	uint64_t a = base;

	if (j)
		SPMTD_PURE("mad.wide.u32 %0, %1, %2, %3;" : "=l"(a) : "r"(step), "r"(j), "l"(base));
	return a;
#else
	return base + (uint64_t)step * j;
#endif
}

#define SPMTD_SIDES(bits, type)                                                              \
	SPMTD_FN type spmtd_from##bits##_(int way, uint64_t a)                               \
	{                                                                                    \
		return way == SPMTD_PUT_ ? spmtd_load##bits##_(a) : spmtd_gload##bits##_(a); \
	}                                                                                    \
	SPMTD_FN void spmtd_into##bits##_(int way, uint64_t a, type x)                       \
	{                                                                                    \
		if (way == SPMTD_GET_)                                                       \
			spmtd_store##bits##_(a, x);                                          \
		else                                                                         \
			spmtd_gstore##bits##_(a, x);                                         \
	}                                                                                    \
	SPMTD_FN type spmtd_zero##bits##_(void)                                              \
	{                                                                                    \
		union {                                                                      \
			uint64_t words[2];                                                   \
			type x;                                                              \
		} u;                                                                         \
		u.words[0] = u.words[1] = 0;                                                 \
		return u.x;                                                                  \
	}
SPMTD_SIDES(8, uint8_t)
SPMTD_SIDES(16, uint16_t)
SPMTD_SIDES(32, uint32_t)
SPMTD_SIDES(64, uint64_t)
SPMTD_SIDES(16b, struct spmtd_unit_)

/* n units of one size, lane by lane. The last, short round is in flight at once too; its values
   begin as zeros, because ptxas takes registers that need not be written here for live in all
   callers. Every warp of a block walks all of it, so what a round does not need costs: 16-byte units go
   in rounds of half the accesses where those suffice, and where many threads put, whose loads are
   near. */
#define SPMTD_RUN(bits, type, bytes)                                                               \
	SPMTD_FN uint64_t spmtd_rounds##bits##_(int way, uint64_t *dst, uint64_t *src, uint64_t n, \
		uint32_t lanes, uint32_t flight)                                                   \
	{                                                                                          \
		uint32_t step = lanes * bytes, round = lanes * flight;                             \
                                                                                                   \
		for (; n >= round; n -= round) {                                                   \
			type x[SPMTD_FLIGHT];                                                      \
                                                                                                   \
			SPMTD_UNROLL for (uint32_t j = 0; j < flight; j++) x[j] =                  \
				spmtd_from##bits##_(way, spmtd_hop_(*src, step, j));               \
			SPMTD_UNROLL for (uint32_t j = 0; j < flight; j++)                         \
				spmtd_into##bits##_(way, spmtd_hop_(*dst, step, j), x[j]);         \
			*src += (uint64_t)step * flight;                                           \
			*dst += (uint64_t)step * flight;                                           \
		}                                                                                  \
		return n;                                                                          \
	}                                                                                          \
	SPMTD_FN void spmtd_rest##bits##_(int way, uint64_t dst, uint64_t src, uint32_t n,         \
		uint32_t lane, uint32_t lanes, uint32_t flight)                                    \
	{                                                                                          \
		type x[SPMTD_FLIGHT];                                                              \
                                                                                                   \
		SPMTD_UNROLL for (uint32_t j = 0; j < flight; j++) x[j] = spmtd_zero##bits##_();   \
		SPMTD_UNROLL for (uint32_t j = 0; j < flight; j++) if (lane + j * lanes < n)       \
			x[j] = spmtd_from##bits##_(way, spmtd_hop_(src, lanes * bytes, j));        \
		SPMTD_UNROLL for (uint32_t j = 0; j < flight; j++) if (lane + j * lanes < n)       \
			spmtd_into##bits##_(way, spmtd_hop_(dst, lanes *bytes, j), x[j]);          \
	}                                                                                          \
	SPMTD_FN void spmtd_run##bits##_(                                                          \
		int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)    \
	{                                                                                          \
		uint32_t half = SPMTD_FLIGHT / 2;                                                  \
		int wide = bytes == 16 && way == SPMTD_PUT_ && lanes >= SPMTD_MANY;                \
                                                                                                   \
		dst += (uint64_t)lane * bytes;                                                     \
		src += (uint64_t)lane * bytes;                                                     \
		if (!wide)                                                                         \
			n = spmtd_rounds##bits##_(way, &dst, &src, n, lanes, SPMTD_FLIGHT);        \
		if (bytes == 16 && (wide || n == half * lanes))                                    \
			n = spmtd_rounds##bits##_(way, &dst, &src, n, lanes, half);                \
		if (lane >= n)                                                                     \
			return;                                                                    \
		if (bytes == 16 && n < half * lanes)                                               \
			spmtd_rest##bits##_(way, dst, src, (uint32_t)n, lane, lanes, half);        \
		else                                                                               \
			spmtd_rest##bits##_(                                                       \
				way, dst, src, (uint32_t)n, lane, lanes, SPMTD_FLIGHT);            \
	}
#define SPMTD_UNROLL _Pragma("unroll")
SPMTD_RUN(8, uint8_t, 1u)
SPMTD_RUN(16, uint16_t, 2u)
SPMTD_RUN(32, uint32_t, 4u)
SPMTD_RUN(64, uint64_t, 8u)
SPMTD_RUN(16b, struct spmtd_unit_, 16u)

/* The widest accesses that both addresses and the length allow. */
SPMTD_RARE void spmtd_words_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	uint64_t odd = dst | src | n;

	if (odd & 1)
		spmtd_run8_(way, dst, src, n, lane, lanes);
	else if (odd & 2)
		spmtd_run16_(way, dst, src, n / 2, lane, lanes);
	else if (odd & 4)
		spmtd_run32_(way, dst, src, n / 4, lane, lanes);
	else
		spmtd_run64_(way, dst, src, n / 8, lane, lanes);
}

/* The ends of a copy whose two sides are misaligned alike, by one thread: `head` bytes up to a
   multiple of 16, then, from `from` on, `tail` bytes. At most four accesses each, all loads
   first. */
SPMTD_RARE void spmtd_ends_(
	int way, uint64_t dst, uint64_t src, uint64_t head, uint64_t from, uint64_t tail)
{
	uint64_t h2 = head & 1, h4 = head & 3, h8 = head & 7;
	uint64_t t8 = from, t4 = from + (tail & 8), t2 = from + (tail & 12),
		 t1 = from + (tail & 14);
	uint64_t ha8 = 0, ta8 = 0;
	uint32_t ha4 = 0, ta4 = 0;
	uint16_t ha2 = 0, ta2 = 0;
	uint8_t ha1 = 0, ta1 = 0;

	if (head & 1)
		ha1 = spmtd_from8_(way, src);
	if (head & 2)
		ha2 = spmtd_from16_(way, src + h2);
	if (head & 4)
		ha4 = spmtd_from32_(way, src + h4);
	if (head & 8)
		ha8 = spmtd_from64_(way, src + h8);
	if (tail & 8)
		ta8 = spmtd_from64_(way, src + t8);
	if (tail & 4)
		ta4 = spmtd_from32_(way, src + t4);
	if (tail & 2)
		ta2 = spmtd_from16_(way, src + t2);
	if (tail & 1)
		ta1 = spmtd_from8_(way, src + t1);
	if (head & 1)
		spmtd_into8_(way, dst, ha1);
	if (head & 2)
		spmtd_into16_(way, dst + h2, ha2);
	if (head & 4)
		spmtd_into32_(way, dst + h4, ha4);
	if (head & 8)
		spmtd_into64_(way, dst + h8, ha8);
	if (tail & 8)
		spmtd_into64_(way, dst + t8, ta8);
	if (tail & 4)
		spmtd_into32_(way, dst + t4, ta4);
	if (tail & 2)
		spmtd_into16_(way, dst + t2, ta2);
	if (tail & 1)
		spmtd_into8_(way, dst + t1, ta1);
}

/* The 16 bytes that begin s bytes into `lo`, 0 < s < 16. */
SPMTD_FN struct spmtd_unit_ spmtd_merge_(struct spmtd_unit_ lo, struct spmtd_unit_ hi, uint32_t s)
{
	uint64_t w0 = s < 8 ? lo.a : lo.b, w1 = s < 8 ? lo.b : hi.a, w2 = s < 8 ? hi.a : hi.b;
	uint32_t down = s % 8 * 8, up = 63 - down;
	struct spmtd_unit_ u;

	u.a = w0 >> down | w1 << 1 << up;
	u.b = w1 >> down | w2 << 1 << up;
	return u;
}

/*
 * Sides misaligned differently: dst in aligned units, each merged from two aligned units of src;
 * only units of src that lie wholly in the range are touched.
 */
SPMTD_FN void spmtd_shifted_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	uint64_t head = (0 - dst) & 15, s = (src + head) & 15, units;
	uint32_t step = 16 * lanes;

	if (head < s)
		head += 16;
	units = n + s < 32 + head ? 0 : (n + s - 32 - head) / 16 + 1;
	if (!units)
		head = n;
	spmtd_words_(way, dst, src, head, lane, lanes);
	spmtd_words_(way, dst + head + 16 * units, src + head + 16 * units, n - head - 16 * units,
		lane, lanes);
	dst += head + 16 * (uint64_t)lane;
	src += head - s + 16 * (uint64_t)lane;
	for (uint64_t i = lane; i < units; i += (uint64_t)(SPMTD_FLIGHT / 2) * lanes) {
		struct spmtd_unit_ lo[SPMTD_FLIGHT / 2], hi[SPMTD_FLIGHT / 2];

		SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_FLIGHT / 2; j++) lo[j] = hi[j] =
			spmtd_zero16b_();
		SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_FLIGHT / 2;
				  j++) if (i + (uint64_t)j * lanes < units)
		{
			lo[j] = spmtd_from16b_(way, spmtd_hop_(src, step, j));
			hi[j] = spmtd_from16b_(way, spmtd_hop_(src, step, j) + 16);
		}
		SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_FLIGHT / 2;
				  j++) if (i + (uint64_t)j * lanes < units) spmtd_into16b_(way,
			spmtd_hop_(dst, step, j), spmtd_merge_(lo[j], hi[j], (uint32_t)s));
		src += (uint64_t)step * (SPMTD_FLIGHT / 2);
		dst += (uint64_t)step * (SPMTD_FLIGHT / 2);
	}
}

/* Whole aligned units. Functions of their own, because ptxas gives one that calls others too few
   registers to keep a round in. */
#define SPMTD_LEAVES(way, WAY)                                                         \
	SPMTD_RARE void spmtd_units_##way##_(                                          \
		uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes) \
	{                                                                              \
		spmtd_run16b_(WAY, dst, src, n / 16, lane, lanes);                     \
	}                                                                              \
	SPMTD_RARE void spmtd_shifted_##way##_(                                        \
		uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes) \
	{                                                                              \
		spmtd_shifted_(WAY, dst, src, n, lane, lanes);                         \
	}
SPMTD_LEAVES(put, SPMTD_PUT_)
SPMTD_LEAVES(get, SPMTD_GET_)
SPMTD_LEAVES(raw, SPMTD_RAW_)

SPMTD_FN void spmtd_units_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	if (way == SPMTD_PUT_)
		spmtd_units_put_(dst, src, n, lane, lanes);
	else if (way == SPMTD_GET_)
		spmtd_units_get_(dst, src, n, lane, lanes);
	else
		spmtd_units_raw_(dst, src, n, lane, lanes);
}

SPMTD_FN void spmtd_bulk_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	if (((dst ^ src) & 15) && n >= 16) {
		if (way == SPMTD_PUT_)
			spmtd_shifted_put_(dst, src, n, lane, lanes);
		else if (way == SPMTD_GET_)
			spmtd_shifted_get_(dst, src, n, lane, lanes);
		else
			spmtd_shifted_raw_(dst, src, n, lane, lanes);
	} else if (n < 16) {
		spmtd_words_(way, dst, src, n, lane, lanes);
	} else {
		uint64_t head = (0 - dst) & 15, tail = (n - head) & 15;

		/* The last lane has the fewest units. */
		if ((head | tail) && lane == lanes - 1)
			spmtd_ends_(way, dst, src, head, n - tail, tail);
		spmtd_units_(way, dst + head, src + head, n - head - tail, lane, lanes);
	}
}

SPMTD_RARE uint64_t spmtd_bytes_load_(uint64_t a, uint64_t n)
{
	uint64_t x = 0;

	for (uint32_t i = 0; i < n; i++)
		x |= (uint64_t)spmtd_load8_(a + i) << (8 * i);
	return x;
}

SPMTD_RARE void spmtd_bytes_store_(uint64_t a, uint64_t n, uint64_t x)
{
	for (uint32_t i = 0; i < n; i++)
		spmtd_store8_(a + i, (uint8_t)(x >> (8 * i)));
}

SPMTD_FN uint64_t spmtd_local_load_(uint64_t a, uint64_t n)
{
	if (a & (n - 1))
		return spmtd_bytes_load_(a, n);
	if (n == 8)
		return spmtd_load64_(a);
	if (n == 4)
		return spmtd_load32_(a);
	return n == 2 ? spmtd_load16_(a) : spmtd_load8_(a);
}

SPMTD_FN void spmtd_local_store_(uint64_t a, uint64_t n, uint64_t x)
{
	if (a & (n - 1))
		spmtd_bytes_store_(a, n, x);
	else if (n == 8)
		spmtd_store64_(a, x);
	else if (n == 4)
		spmtd_store32_(a, (uint32_t)x);
	else if (n == 2)
		spmtd_store16_(a, (uint16_t)x);
	else
		spmtd_store8_(a, (uint8_t)x);
}

/* Aligned units; 0: they are not. One a lane is in line and short: all warps of a full block walk
   it, and a hundred instructions of each are a quarter of the time of a small copy. */
SPMTD_FN int spmtd_plain_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	uint32_t at = 16 * lane;

	if ((dst | src | n) & 15)
		return 0;
	if (n > 16 * (uint64_t)lanes)
		spmtd_units_(way, dst, src, n, lane, lanes);
	else if (at < n)
		spmtd_into16b_(way, dst + at, spmtd_from16b_(way, src + at));
	return 1;
}

#endif

SPMTD_LONG void spmtd_bulk_put_(
	uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	spmtd_bulk_(SPMTD_PUT_, dst, src, n, lane, lanes);
}

SPMTD_LONG void spmtd_bulk_get_(
	uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	spmtd_bulk_(SPMTD_GET_, dst, src, n, lane, lanes);
}

/* Both sides device memory: for the library's kernels. */
SPMTD_LONG void spmtd_bulk_raw_(
	uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	spmtd_bulk_(SPMTD_RAW_, dst, src, n, lane, lanes);
}

/* One atomic access on the remote side. */
SPMTD_FN int spmtd_single_(uint64_t remote, uint64_t n)
{
	return n && n <= 8 && !(n & (n - 1)) && !(remote & (n - 1));
}

SPMTD_FN uint64_t spmtd_peek_(uint64_t a, uint64_t n)
{
	if (n == 8)
		return spmtd_peek64_(a);
	if (n == 4)
		return spmtd_peek32_(a);
	return n == 2 ? spmtd_peek16_(a) : spmtd_peek8_(a);
}

SPMTD_FN void spmtd_poke_(uint64_t a, uint64_t n, uint64_t x)
{
	if (n == 8)
		spmtd_poke64_(a, x);
	else if (n == 4)
		spmtd_poke32_(a, (uint32_t)x);
	else if (n == 2)
		spmtd_poke16_(a, (uint16_t)x);
	else
		spmtd_poke8_(a, (uint8_t)x);
}

SPMTD_FN void spmtd_copy_put_(uint64_t dst, uint64_t src, uint64_t n, int scope)
{
	uint32_t lane = spmtd_lane_(scope), lanes = spmtd_lanes_(scope);

	if (spmtd_plain_(SPMTD_PUT_, dst, src, n, lane, lanes))
		return;
	if (!spmtd_single_(dst, n))
		spmtd_bulk_put_(dst, src, n, lane, lanes);
	else if (lane == 0)
		spmtd_poke_(dst, n, spmtd_local_load_(src, n));
}

SPMTD_FN void spmtd_copy_get_(uint64_t dst, uint64_t src, uint64_t n, int scope)
{
	uint32_t lane = spmtd_lane_(scope), lanes = spmtd_lanes_(scope);

	if (spmtd_plain_(SPMTD_GET_, dst, src, n, lane, lanes))
		return;
	if (!spmtd_single_(src, n))
		spmtd_bulk_get_(dst, src, n, lane, lanes);
	else if (lane == 0)
		spmtd_local_store_(dst, n, spmtd_peek_(src, n));
}

/* ---- who and where -------------------------------------------------------------------------- */

SPMTD_FN int spmtd_my_pe(const struct spmt_view *v)
{
	return v->pe;
}

SPMTD_FN int spmtd_n_pes(const struct spmt_view *v)
{
	return v->npes;
}

SPMTD_FN uint64_t spmtd_base_(const struct spmt_view *v, int pe)
{
	return v->stride ? v->flat + (uint64_t)(uint32_t)pe * v->stride : v->peers[pe].base;
}

SPMTD_FN uint64_t spmtd_there_(const struct spmt_view *v, const volatile void *sym, int pe)
{
	return spmtd_base_(v, pe) + (spmtd_at_(sym) - v->base);
}

SPMTD_FN uint64_t spmtd_mem_there_(const struct spmt_mem_view *m, size_t off, int pe)
{
	return m->peers[pe].base + off;
}

/* The address at which pe's copy of `sym` can be loaded and stored; NULL: pe out of range, not
   in the heap, not reachable. */
SPMTD_FN void *spmtd_ptr(const struct spmt_view *v, const void *sym, int pe)
{
	uint64_t off = spmtd_at_(sym) - v->base, base;

	if (pe < 0 || pe >= v->npes || off >= v->heap_size)
		return spmtd_to_(0);
	base = spmtd_base_(v, pe);
	return spmtd_to_(base ? base + off : 0);
}

/* Where pe's part of a registered buffer begins; NULL: pe out of range, no part, not reachable. */
SPMTD_FN void *spmtd_mem_ptr(const struct spmt_mem_view *m, int pe)
{
	return spmtd_to_(pe < 0 || pe >= m->npes ? 0 : m->peers[pe].base);
}

/* An address whose stores reach all ranks at once; NULL: there is none. */
SPMTD_FN void *spmtd_mc_ptr(const struct spmt_view *v, const void *sym)
{
	(void)v;
	(void)sym;
	return spmtd_to_(0);
}

SPMTD_FN void spmtd_wake_(const struct spmt_view *v, int pe)
{
#if defined(SPMTD_HOST)
	if (v->host)
		v->host->wake(v, pe);
#else
	(void)v;
	(void)pe;
#endif
}

/* ---- order ---------------------------------------------------------------------------------- */

/*
 * By PTX's model a relaxed store tells of what others have stored if its own thread has fenced before
 * it, after it had met them. So threads meet first, then fence; and those who fence for a block, its first
 * warp, for which a fence is one instruction, also post for it in a sync. Posts after a quiet of the same
 * scope then need no fence of their own, which would take as long as a barrier's.
 */
SPMTD_FN int spmtd_posts_(int scope)
{
	return spmtd_lane_(scope) < spmtd_warp_size_();
}

SPMTD_FN void spmtd_fence(const struct spmt_view *v)
{
	(void)v;
	spmtd_order_();
}

SPMTD_FN void spmtd_fence_warp(const struct spmt_view *v)
{
	(void)v;
	spmtd_meet_warp_();
	spmtd_order_();
}

SPMTD_FN void spmtd_fence_block(const struct spmt_view *v)
{
	(void)v;
	spmtd_gather_(SPMTD_BLOCK_);
	if (spmtd_posts_(SPMTD_BLOCK_))
		spmtd_order_();
	spmtd_meet_block_();
}

/* 0; a code, where completion has to be waited for and is not seen before the deadline. */
SPMTD_FN int spmtd_quiet(const struct spmt_view *v)
{
	(void)v;
	spmtd_complete_();
	return 0;
}

SPMTD_FN int spmtd_quiet_warp(const struct spmt_view *v)
{
	(void)v;
	spmtd_meet_warp_();
	spmtd_complete_();
	return 0;
}

SPMTD_FN int spmtd_quiet_block(const struct spmt_view *v)
{
	(void)v;
	spmtd_gather_(SPMTD_BLOCK_);
	if (spmtd_posts_(SPMTD_BLOCK_))
		spmtd_complete_();
	spmtd_meet_block_();
	return 0;
}

/* ---- put, get, signal ----------------------------------------------------------------------- */

/* dst: the raw address on pe. */
SPMTD_FN void spmtd_do_put_(const struct spmt_view *v, uint64_t dst, const void *src, uint64_t n,
	int pe, int scope, int nbi)
{
	spmtd_meet_(scope);
	if (n) {
		spmtd_copy_put_(dst, spmtd_at_(src), n, scope);
		spmtd_wake_(v, pe);
	}
	if (!nbi)
		spmtd_meet_(scope);
}

SPMTD_FN void spmtd_do_get_(void *dst, uint64_t src, uint64_t n, int scope, int nbi)
{
	spmtd_meet_(scope);
	if (n)
		spmtd_copy_get_(spmtd_at_(dst), src, n, scope);
	if (!nbi)
		spmtd_meet_(scope);
}

SPMTD_FN void spmtd_ring_(uint64_t sig, uint64_t val, int op)
{
	if (op == SPMT_SIGNAL_SET)
		spmtd_ring_set_(sig, val);
	else
		spmtd_ring_add_(sig, val);
}

SPMTD_FN void spmtd_do_put_signal_(const struct spmt_view *v, uint64_t dst, const void *src,
	uint64_t n, uint64_t *sig, uint64_t val, int op, int pe, int scope)
{
	spmtd_meet_(scope);
	if (n)
		spmtd_copy_put_(dst, spmtd_at_(src), n, scope);
	spmtd_gather_(scope);
	if (spmtd_lane_(scope) == 0)
		spmtd_ring_(spmtd_there_(v, sig, pe), val, op);
	spmtd_wake_(v, pe);
}

/* op: SPMT_SIGNAL_SET or SPMT_SIGNAL_ADD. One release at system scope. */
SPMTD_FN void spmtd_signal_op(
	const struct spmt_view *v, uint64_t *sig, uint64_t val, int op, int pe)
{
	spmtd_ring_(spmtd_there_(v, sig, pe), val, op);
	spmtd_wake_(v, pe);
}

SPMTD_FN uint64_t spmtd_signal_fetch(const struct spmt_view *v, const uint64_t *sig)
{
	uint64_t x = spmtd_look64_(spmtd_at_(sig));

	(void)v;
	spmtd_acquired_();
	return x;
}

/* The byte forms, on the heap and on a registered buffer at a byte offset. */
#define SPMTD_BYTES(suffix, scope, nbi)                                                           \
	SPMTD_FN void spmtd_putmem##suffix(                                                       \
		const struct spmt_view *v, void *dst, const void *src, size_t n, int pe)          \
	{                                                                                         \
		spmtd_do_put_(v, spmtd_there_(v, dst, pe), src, n, pe, scope, nbi);               \
	}                                                                                         \
	SPMTD_FN void spmtd_getmem##suffix(                                                       \
		const struct spmt_view *v, void *dst, const void *src, size_t n, int pe)          \
	{                                                                                         \
		spmtd_do_get_(dst, spmtd_there_(v, src, pe), n, scope, nbi);                      \
	}                                                                                         \
	SPMTD_FN void spmtd_putmem_signal##suffix(const struct spmt_view *v, void *dst,           \
		const void *src, size_t n, uint64_t *sig, uint64_t val, int op, int pe)           \
	{                                                                                         \
		spmtd_do_put_signal_(                                                             \
			v, spmtd_there_(v, dst, pe), src, n, sig, val, op, pe, scope);            \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_putmem##suffix(const struct spmt_view *v,                         \
		const struct spmt_mem_view *m, size_t dst_off, const void *src, size_t n, int pe) \
	{                                                                                         \
		spmtd_do_put_(v, spmtd_mem_there_(m, dst_off, pe), src, n, pe, scope, nbi);       \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_getmem##suffix(const struct spmt_view *v, void *dst,              \
		const struct spmt_mem_view *m, size_t src_off, size_t n, int pe)                  \
	{                                                                                         \
		(void)v;                                                                          \
		spmtd_do_get_(dst, spmtd_mem_there_(m, src_off, pe), n, scope, nbi);              \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_putmem_signal##suffix(const struct spmt_view *v,                  \
		const struct spmt_mem_view *m, size_t dst_off, const void *src, size_t n,         \
		uint64_t *sig, uint64_t val, int op, int pe)                                      \
	{                                                                                         \
		spmtd_do_put_signal_(                                                             \
			v, spmtd_mem_there_(m, dst_off, pe), src, n, sig, val, op, pe, scope);    \
	}
SPMTD_BYTES(, SPMTD_THREAD_, 0)
SPMTD_BYTES(_warp, SPMTD_WARP_, 0)
SPMTD_BYTES(_block, SPMTD_BLOCK_, 0)
SPMTD_BYTES(_nbi, SPMTD_THREAD_, 1)
SPMTD_BYTES(_nbi_warp, SPMTD_WARP_, 1)
SPMTD_BYTES(_nbi_block, SPMTD_BLOCK_, 1)

/* The 11 types: name, C type, its bits as a number, how many, and how two of them compare: U, S
   or F. */
#define SPMTD_TYPES(X)                       \
	X(uint8, uint8_t, uint8_t, 8, U)     \
	X(int8, int8_t, uint8_t, 8, S)       \
	X(schar, signed char, uint8_t, 8, S) \
	X(uint16, uint16_t, uint16_t, 16, U) \
	X(int16, int16_t, uint16_t, 16, S)   \
	X(uint32, uint32_t, uint32_t, 32, U) \
	X(int32, int32_t, uint32_t, 32, S)   \
	X(uint64, uint64_t, uint64_t, 64, U) \
	X(int64, int64_t, uint64_t, 64, S)   \
	X(float, float, uint32_t, 32, F)     \
	X(double, double, uint64_t, 64, F)

#define SPMTD_BITS(name, T, U_, bits, kind)   \
	union spmtd_##name##_pun_ {           \
		T x;                          \
		U_ u;                         \
	};                                    \
	SPMTD_FN U_ spmtd_##name##_bits_(T x) \
	{                                     \
		union spmtd_##name##_pun_ p;  \
		p.x = x;                      \
		return p.u;                   \
	}                                     \
	SPMTD_FN T spmtd_##name##_of_(U_ u)   \
	{                                     \
		union spmtd_##name##_pun_ p;  \
		p.u = u;                      \
		return p.x;                   \
	}
SPMTD_TYPES(SPMTD_BITS)

/* n counts elements; offsets into registered buffers stay bytes. */
#define SPMTD_TYPED(name, T, suffix, scope, nbi)                                                  \
	SPMTD_FN void spmtd_##name##_put##suffix(                                                 \
		const struct spmt_view *v, T *dst, const T *src, size_t n, int pe)                \
	{                                                                                         \
		spmtd_do_put_(v, spmtd_there_(v, dst, pe), src, n * sizeof(T), pe, scope, nbi);   \
	}                                                                                         \
	SPMTD_FN void spmtd_##name##_get##suffix(                                                 \
		const struct spmt_view *v, T *dst, const T *src, size_t n, int pe)                \
	{                                                                                         \
		spmtd_do_get_(dst, spmtd_there_(v, src, pe), n * sizeof(T), scope, nbi);          \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_##name##_put##suffix(const struct spmt_view *v,                   \
		const struct spmt_mem_view *m, size_t dst_off, const T *src, size_t n, int pe)    \
	{                                                                                         \
		spmtd_do_put_(                                                                    \
			v, spmtd_mem_there_(m, dst_off, pe), src, n * sizeof(T), pe, scope, nbi); \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_##name##_get##suffix(const struct spmt_view *v, T *dst,           \
		const struct spmt_mem_view *m, size_t src_off, size_t n, int pe)                  \
	{                                                                                         \
		(void)v;                                                                          \
		spmtd_do_get_(dst, spmtd_mem_there_(m, src_off, pe), n * sizeof(T), scope, nbi);  \
	}
#define SPMTD_RMA(name, T, U_, bits, kind)                                                        \
	SPMTD_TYPED(name, T, , SPMTD_THREAD_, 0)                                                  \
	SPMTD_TYPED(name, T, _warp, SPMTD_WARP_, 0)                                               \
	SPMTD_TYPED(name, T, _block, SPMTD_BLOCK_, 0)                                             \
	SPMTD_TYPED(name, T, _nbi, SPMTD_THREAD_, 1)                                              \
	SPMTD_TYPED(name, T, _nbi_warp, SPMTD_WARP_, 1)                                           \
	SPMTD_TYPED(name, T, _nbi_block, SPMTD_BLOCK_, 1)                                         \
	SPMTD_FN void spmtd_##name##_p(const struct spmt_view *v, T *dst, T value, int pe)        \
	{                                                                                         \
		spmtd_poke##bits##_(spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value));       \
		spmtd_wake_(v, pe);                                                               \
	}                                                                                         \
	SPMTD_FN T spmtd_##name##_g(const struct spmt_view *v, const T *src, int pe)              \
	{                                                                                         \
		return spmtd_##name##_of_(spmtd_peek##bits##_(spmtd_there_(v, src, pe)));         \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_##name##_p(const struct spmt_view *v,                             \
		const struct spmt_mem_view *m, size_t dst_off, T value, int pe)                   \
	{                                                                                         \
		spmtd_poke##bits##_(                                                              \
			spmtd_mem_there_(m, dst_off, pe), spmtd_##name##_bits_(value));           \
		spmtd_wake_(v, pe);                                                               \
	}                                                                                         \
	SPMTD_FN T spmtd_mem_##name##_g(                                                          \
		const struct spmt_view *v, const struct spmt_mem_view *m, size_t src_off, int pe) \
	{                                                                                         \
		(void)v;                                                                          \
		return spmtd_##name##_of_(spmtd_peek##bits##_(spmtd_mem_there_(m, src_off, pe))); \
	}
SPMTD_TYPES(SPMTD_RMA)

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

/* ---- waits ---------------------------------------------------------------------------------- */

/* The calling thread's way through one wait. */
struct spmtd_waiter_ {
	struct spmtd_pause pause;
	uint64_t begin;
	uint32_t polls;
};

/* Is the world broken? */
SPMTD_FN int spmtd_stopped_(const struct spmt_view *v)
{
	return v->stop && spmtd_any_sees_(spmtd_at_(v->stop));
}

SPMTD_FN void spmtd_wait_begin_(struct spmtd_waiter_ *w)
{
	w->pause.n = 0;
	w->pause.bell = 0;
	w->pause.begin = 0;
	w->begin = 0;
	w->polls = 0;
}

/* Looks from one to the next at the clock, and at the stop word: that lies in the host's memory, and
   a grid that waits may have 16384 threads. */
enum { SPMTD_CLOCK_EVERY_ = 64, SPMTD_STOP_EVERY_ = 512 };

/* Between two looks: 0, or the code that ends the wait. */
SPMTD_FN int spmtd_patience_(const struct spmt_view *v, struct spmtd_waiter_ *w)
{
#if defined(SPMTD_HOST)
	w->polls++;
	if (v->host)
		return v->host->pause(v, &w->pause);
	spmtd_relax_();
	return w->polls % SPMTD_CLOCK_EVERY_ == 0 && spmtd_stopped_(v) ? SPMTD_ABORTED : 0;
#else
	uint64_t now;

	if (++w->polls % SPMTD_CLOCK_EVERY_)
		return 0;
	if (w->polls % SPMTD_STOP_EVERY_ == 0 && spmtd_stopped_(v))
		return SPMTD_ABORTED;
	if (!v->timeout_ns)
		return 0;
	now = spmtd_clock_();
	if (!w->begin)
		w->begin = now;
	if (now - w->begin <= v->timeout_ns)
		return 0;
	return spmtd_stopped_(v) ? SPMTD_ABORTED : SPMTD_TIMEOUT;
#endif
}

SPMTD_FN void spmtd_wait_end_(const struct spmt_view *v, struct spmtd_waiter_ *w)
{
#if defined(SPMTD_HOST)
	if (w->polls && v->host)
		v->host->resume(v, &w->pause);
#else
	(void)v;
	(void)w;
#endif
	spmtd_acquired_();
}

/* The lock is device memory, because host memory need not take a device's atomics. Not the view,
   but what is needed of it: a kernel's argument whose address reaches a call is copied to the
   stack. */
SPMTD_RARE void spmtd_record_at_(struct spmtd_record *r, uint64_t lock, int code, int pe, int what,
	int peer, uint64_t a, uint64_t expected, uint64_t seen)
{
	if (spmtd_peek64_(spmtd_at_(&r->valid)) || spmtd_cas64_(lock, 0, 1))
		return;
	if (!spmtd_look64_(spmtd_at_(&r->valid))) {
		r->code = code;
		r->pe = pe;
		r->peer = peer;
		r->what = (uint32_t)what;
		r->address = a;
		r->expected = expected;
		r->seen = seen;
		spmtd_ring_set_(spmtd_at_(&r->valid), 2);
	}
	spmtd_ring_set_(lock, 0);
}

SPMTD_FN void spmtd_record_(const struct spmt_view *v, int code, int what, int peer, uint64_t a,
	uint64_t expected, uint64_t seen)
{
	if (v->record && v->own)
		spmtd_record_at_(v->record, spmtd_at_(&v->own->recording), code, v->pe, what, peer,
			a, expected, seen);
}

/* Values are carried as 64 bits: extended by sign or zeros; floating point as a double. W:
   counters that only rise. */
enum spmtd_kind_ { SPMTD_KIND_U_, SPMTD_KIND_S_, SPMTD_KIND_F_, SPMTD_KIND_W_ };

#define SPMTD_ORDERED(cmp, x, y)                            \
	((cmp) == SPMT_CMP_EQ		       ? (x) == (y) \
			: (cmp) == SPMT_CMP_NE ? (x) != (y) \
			: (cmp) == SPMT_CMP_GT ? (x) > (y)  \
			: (cmp) == SPMT_CMP_GE ? (x) >= (y) \
			: (cmp) == SPMT_CMP_LT ? (x) < (y)  \
					       : (x) <= (y))

SPMTD_FN int spmtd_holds_(int kind, uint64_t seen, int cmp, uint64_t val)
{
	if (kind == SPMTD_KIND_W_)
		return (int64_t)(seen - val) >= 0;
	if (kind == SPMTD_KIND_S_)
		return SPMTD_ORDERED(cmp, (int64_t)seen, (int64_t)val);
	if (kind == SPMTD_KIND_F_)
		return SPMTD_ORDERED(cmp, spmtd_double_of_(seen), spmtd_double_of_(val));
	return SPMTD_ORDERED(cmp, seen, val);
}

SPMTD_FN uint64_t spmtd_widen_(int kind, uint32_t bits, uint64_t x)
{
	if (kind == SPMTD_KIND_S_ && bits < 64)
		return (x ^ (uint64_t)1 << (bits - 1)) - ((uint64_t)1 << (bits - 1));
	if (kind == SPMTD_KIND_F_ && bits == 32)
		return spmtd_double_bits_((double)spmtd_float_of_((uint32_t)x));
	return x;
}

SPMTD_FN uint64_t spmtd_read_(int kind, uint32_t bits, uint64_t a)
{
	uint64_t x = bits == 8 ? spmtd_look8_(a)
		: bits == 16   ? spmtd_look16_(a)
		: bits == 32   ? spmtd_look32_(a)
			       : spmtd_look64_(a);

	return spmtd_widen_(kind, bits, x);
}

/* Polls one word with what patience *w has left; records a failure. */
SPMTD_FN int spmtd_await_(const struct spmt_view *v, struct spmtd_waiter_ *w, int kind,
	uint32_t bits, uint64_t a, int cmp, uint64_t val, int what, int peer)
{
	for (;;) {
		uint64_t seen = spmtd_read_(kind, bits, a);
		int rc;

		if (spmtd_holds_(kind, seen, cmp, val))
			return 0;
		rc = spmtd_patience_(v, w);
		if (rc) {
			spmtd_record_(v, rc, what, peer, a, val, seen);
			return rc;
		}
	}
}

SPMTD_FN int spmtd_wait_(const struct spmt_view *v, int kind, uint32_t bits, uint64_t a, int cmp,
	uint64_t val, int what)
{
	struct spmtd_waiter_ w;
	int rc;

	spmtd_wait_begin_(&w);
	rc = spmtd_await_(v, &w, kind, bits, a, cmp, val, what, -1);
	spmtd_wait_end_(v, &w);
	return rc;
}

SPMTD_FN int spmtd_test_(int kind, uint32_t bits, uint64_t a, int cmp, uint64_t val)
{
	int holds = spmtd_holds_(kind, spmtd_read_(kind, bits, a), cmp, val);

	spmtd_acquired_();
	return holds;
}

SPMTD_FN struct spmtd_inbox *spmtd_inbox_at_(uint64_t own, int writer)
{
	return (struct spmtd_inbox *)spmtd_to_(own + sizeof(struct spmtd_own)) + writer;
}

/* writer's slot at this rank. */
SPMTD_FN struct spmtd_inbox *spmtd_inbox_(const struct spmt_view *v, int writer)
{
	return spmtd_inbox_at_(spmtd_at_(v->own), writer);
}

/* In the upper half of words that tell of a collective: never 0, and as long as words of 2^31 epochs ago are cleared, no other's. */
SPMTD_FN uint32_t spmtd_flag_(uint64_t epoch)
{
	return (uint32_t)epoch << 1 | 1;
}

/* An order in which to look at n words: `at`, and every `step`, of which the bits of `mask` count; an
   odd step comes by all. */
struct spmtd_walk_ {
	uint64_t at, step, mask;
};

SPMTD_FN struct spmtd_walk_ spmtd_walk_over_(size_t n, uint64_t at, uint64_t step)
{
	struct spmtd_walk_ w;

	w.at = at;
	w.step = step;
	w.mask = n ? (uint64_t)n - 1 : 0;
	for (uint32_t by = 1; by < 64; by *= 2)
		w.mask |= w.mask >> by;
	return w;
}

/*
 * One of all orders, at random. Of several words that hold each then comes first now and then, whatever
 * else has been waited for in between: no call knows of the others. If it began behind what the last one
 * found, calls for two arrays in turn could pass over a word for ever.
 */
SPMTD_FN struct spmtd_walk_ spmtd_any_walk_(size_t n, uint64_t turn)
{
	uint64_t x = (turn + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x ^= x >> 31;
	return spmtd_walk_over_(n, x >> 32, x | 1);
}

/* One pass over the words whose status is 0: where they hold, at most `most` of them; *left: how
   many were asked. */
SPMTD_FN size_t spmtd_scan_(int kind, uint32_t bits, uint64_t a, size_t n, const int *status,
	int cmp, uint64_t val, struct spmtd_walk_ w, size_t most, size_t *indices, size_t *left)
{
	size_t found = 0;

	*left = 0;
	for (uint64_t k = 0; n && k <= w.mask && found < most; k++, w.at += w.step) {
		size_t i = (size_t)(w.at & w.mask);

		if (i >= n || (status && status[i]))
			continue;
		++*left;
		if (spmtd_holds_(kind, spmtd_read_(kind, bits, a + i * (bits / 8)), cmp, val))
			indices[found++] = i;
	}
	spmtd_acquired_();
	return found;
}

SPMTD_FN int spmtd_wait_some_(const struct spmt_view *v, int kind, uint32_t bits, uint64_t a,
	size_t n, const int *status, int cmp, uint64_t val, struct spmtd_walk_ walk, size_t most,
	size_t *indices, size_t *found)
{
	struct spmtd_waiter_ w;
	size_t some, left;
	int rc = 0;

	spmtd_wait_begin_(&w);
	for (;;) {
		some = spmtd_scan_(kind, bits, a, n, status, cmp, val, walk, most, indices, &left);
		if (some || !left)
			break;
		rc = spmtd_patience_(v, &w);
		if (rc) {
			spmtd_record_(
				v, rc, SPMTD_WHAT_WAIT, -1, a, val, spmtd_read_(kind, bits, a));
			break;
		}
	}
	spmtd_wait_end_(v, &w);
	if (!rc)
		*found = some;
	return rc;
}

SPMTD_FN struct spmtd_walk_ spmtd_next_walk_(const struct spmt_view *v, size_t n)
{
	uint64_t at = v->own ? spmtd_at_(&spmtd_inbox_(v, v->pe)->turn) : 0;
	uint64_t turn = at ? spmtd_peek64_(at) : 0;

	if (at)
		spmtd_poke64_(at, turn + 1);
	return spmtd_any_walk_(n, turn);
}

SPMTD_FN int spmtd_wait_any_(const struct spmt_view *v, int kind, uint32_t bits, uint64_t a,
	size_t n, const int *status, int cmp, uint64_t val, size_t *index)
{
	size_t at = (size_t)-1, found;
	int rc = spmtd_wait_some_(
		v, kind, bits, a, n, status, cmp, val, spmtd_next_walk_(v, n), 1, &at, &found);

	if (!rc)
		*index = at;
	return rc;
}

SPMTD_FN int spmtd_wait_all_(const struct spmt_view *v, int kind, uint32_t bits, uint64_t a,
	size_t n, const int *status, int cmp, uint64_t val)
{
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	for (size_t i = 0; i < n && !rc; i++)
		if (!status || !status[i])
			rc = spmtd_await_(v, &w, kind, bits, a + i * (bits / 8), cmp, val,
				SPMTD_WHAT_WAIT, -1);
	spmtd_wait_end_(v, &w);
	return rc;
}

SPMTD_FN int spmtd_test_all_(
	int kind, uint32_t bits, uint64_t a, size_t n, const int *status, int cmp, uint64_t val)
{
	for (size_t i = 0; i < n; i++)
		if ((!status || !status[i]) &&
			!spmtd_holds_(kind, spmtd_read_(kind, bits, a + i * (bits / 8)), cmp, val))
			return 0;
	spmtd_acquired_();
	return 1;
}

/*
 * cmp: SPMT_CMP_*. status may be NULL; status[i] != 0 leaves element i out. Nothing left in: 0 with
 * *index SIZE_MAX (any), *found 0 (some), 0 (all). Where several hold, _any takes one at random, so
 * that each has its turn, and _some writes rising indices. Outputs are unwritten when a wait fails. The test
 * forms ask once and return 1 or 0, with the same outputs; all of nothing is 1.
 */
#define SPMTD_WAIT(name, T, U_, bits, kind)                                                        \
	SPMTD_FN uint64_t spmtd_##name##_wide_(T x)                                                \
	{                                                                                          \
		return spmtd_widen_(SPMTD_KIND_##kind##_, bits, spmtd_##name##_bits_(x));          \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_wait_until(                                                    \
		const struct spmt_view *v, const T *ivar, int cmp, T val)                          \
	{                                                                                          \
		return spmtd_wait_(v, SPMTD_KIND_##kind##_, bits, spmtd_at_(ivar), cmp,            \
			spmtd_##name##_wide_(val), SPMTD_WHAT_WAIT);                               \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_wait_until_any(const struct spmt_view *v, const T *ivars,      \
		size_t n, const int *status, int cmp, T val, size_t *index)                        \
	{                                                                                          \
		return spmtd_wait_any_(v, SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n, status, \
			cmp, spmtd_##name##_wide_(val), index);                                    \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_wait_until_some(const struct spmt_view *v, const T *ivars,     \
		size_t n, const int *status, int cmp, T val, size_t *indices, size_t *found)       \
	{                                                                                          \
		return spmtd_wait_some_(v, SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n,        \
			status, cmp, spmtd_##name##_wide_(val), spmtd_walk_over_(n, 0, 1), n,      \
			indices, found);                                                           \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_wait_until_all(const struct spmt_view *v, const T *ivars,      \
		size_t n, const int *status, int cmp, T val)                                       \
	{                                                                                          \
		return spmtd_wait_all_(v, SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n, status, \
			cmp, spmtd_##name##_wide_(val));                                           \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_test(const struct spmt_view *v, const T *ivar, int cmp, T val) \
	{                                                                                          \
		(void)v;                                                                           \
		return spmtd_test_(SPMTD_KIND_##kind##_, bits, spmtd_at_(ivar), cmp,               \
			spmtd_##name##_wide_(val));                                                \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_test_any(const struct spmt_view *v, const T *ivars, size_t n,  \
		const int *status, int cmp, T val, size_t *index)                                  \
	{                                                                                          \
		size_t left, found;                                                                \
		*index = (size_t)-1;                                                               \
		found = spmtd_scan_(SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n, status, cmp,  \
			spmtd_##name##_wide_(val), spmtd_next_walk_(v, n), 1, index, &left);       \
		return found != 0;                                                                 \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_test_some(const struct spmt_view *v, const T *ivars, size_t n, \
		const int *status, int cmp, T val, size_t *indices, size_t *found)                 \
	{                                                                                          \
		size_t left;                                                                       \
		(void)v;                                                                           \
		*found = spmtd_scan_(SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n, status, cmp, \
			spmtd_##name##_wide_(val), spmtd_walk_over_(n, 0, 1), n, indices, &left);  \
		return *found != 0;                                                                \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_test_all(const struct spmt_view *v, const T *ivars, size_t n,  \
		const int *status, int cmp, T val)                                                 \
	{                                                                                          \
		(void)v;                                                                           \
		return spmtd_test_all_(SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n, status,    \
			cmp, spmtd_##name##_wide_(val));                                           \
	}
SPMTD_TYPES(SPMTD_WAIT)

SPMTD_FN int spmtd_signal_wait_until(
	const struct spmt_view *v, const uint64_t *sig, int cmp, uint64_t val)
{
	return spmtd_wait_(v, SPMTD_KIND_U_, 64, spmtd_at_(sig), cmp, val, SPMTD_WHAT_SIGNAL);
}

/* ---- barrier and sync ----------------------------------------------------------------------- */

/*
 * Each rank has a slot in every other's library area and counts its arrivals there; all wait until
 * every slot of their own has come to their epoch. An arrival is an add, which needs no look at the
 * epoch first: that look takes a third of a microsecond and now passes while the arrivals travel.
 * Where the wait fails the arrivals are taken back and the epoch stays: a later call begins the same
 * meeting again, whoever has seen them.
 */
/* This rank's slot at pe. */
SPMTD_FN struct spmtd_inbox *spmtd_outbox_(const struct spmt_view *v, int pe)
{
	return spmtd_inbox_at_(v->stride ? spmtd_there_(v, v->own, pe) : v->peers[pe].own, v->pe);
}

SPMTD_FN uint64_t spmtd_epoch_(const struct spmt_view *v)
{
	return spmtd_peek64_(spmtd_at_(&v->own->sync_epoch));
}

SPMTD_FN void spmtd_epoch_set_(const struct spmt_view *v, uint64_t epoch)
{
	spmtd_poke64_(spmtd_at_(&v->own->sync_epoch), epoch);
}

/* by: 1, or -1 to take it back. */
SPMTD_FN void spmtd_sync_post_(const struct spmt_view *v, int by, int scope)
{
	int lane = (int)spmtd_lane_(scope), lanes = (int)spmtd_lanes_(scope);
	int most = (int)spmtd_warp_size_();

	if (!spmtd_posts_(scope))
		return;
	if (lanes > most)
		lanes = most;
	SPMTD_ROLLED for (int pe = lane; pe < v->npes; pe += lanes)
	{
		if (pe == v->pe)
			continue;
		spmtd_tell_add64_(spmtd_at_(&spmtd_outbox_(v, pe)->sync), (uint64_t)(int64_t)by);
		spmtd_wake_(v, pe);
	}
}

SPMTD_FN int spmtd_sync_await_(
	const struct spmt_view *v, uint64_t epoch, int lane, int lanes, int what)
{
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	SPMTD_ROLLED for (int pe = lane; pe < v->npes && !rc; pe += lanes) if (pe != v->pe) rc =
		spmtd_await_(v, &w, SPMTD_KIND_W_, 64, spmtd_at_(&spmtd_inbox_(v, pe)->sync), 0,
			epoch, what, pe);
	spmtd_wait_end_(v, &w);
	return rc;
}

/* lasting: where the wait fails the arrival stays and the epoch goes on, for meetings that nobody
   begins again: who is missing can then be told from who gave up at the same time. */
SPMTD_FN int spmtd_sync_(const struct spmt_view *v, int scope, int what, int lasting)
{
	int lane = (int)spmtd_lane_(scope), lanes = (int)spmtd_lanes_(scope), rc = 0;
	uint64_t epoch = 0;

	if (what == SPMTD_WHAT_BARRIER)
		spmtd_settle_();
	spmtd_meet_(scope);
	if (lane < v->npes) {
		if (what == SPMTD_WHAT_BARRIER && spmtd_posts_(scope))
			spmtd_complete_();
		spmtd_sync_post_(v, 1, scope);
		epoch = spmtd_epoch_(v) + 1;
		rc = spmtd_sync_await_(v, epoch, lane, lanes, what);
	}
	if (scope != SPMTD_THREAD_) {
		rc = spmtd_agree_(rc, scope);
		spmtd_acquired_(); /* by those who did not look, too */
	}
	if (rc && !lasting)
		spmtd_sync_post_(v, -1, scope);
	else if (lane == 0)
		spmtd_epoch_set_(v, epoch);
	return rc;
}

/* One thread, warp or block of each rank takes part. 0, or the code that ended the wait, the
   same for all threads of the scope. */
SPMTD_FN int spmtd_sync(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_THREAD_, SPMTD_WHAT_SYNC, 0);
}

SPMTD_FN int spmtd_sync_warp(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_WARP_, SPMTD_WHAT_SYNC, 0);
}

SPMTD_FN int spmtd_sync_block(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_BLOCK_, SPMTD_WHAT_SYNC, 0);
}

SPMTD_FN int spmtd_barrier(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_THREAD_, SPMTD_WHAT_BARRIER, 0);
}

SPMTD_FN int spmtd_barrier_warp(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_WARP_, SPMTD_WHAT_BARRIER, 0);
}

SPMTD_FN int spmtd_barrier_block(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_BLOCK_, SPMTD_WHAT_BARRIER, 0);
}

/* A sync in two halves, by one thread: each arrive is followed by one wait before the next
   arrive, sync or barrier. */
SPMTD_FN void spmtd_sync_arrive(const struct spmt_view *v)
{
	spmtd_sync_post_(v, 1, SPMTD_THREAD_);
	spmtd_epoch_set_(v, spmtd_epoch_(v) + 1);
}

SPMTD_FN int spmtd_sync_wait(const struct spmt_view *v)
{
	return spmtd_sync_await_(v, spmtd_epoch_(v), 0, 1, SPMTD_WHAT_SYNC);
}

#undef SPMTD_NVPTX
#undef SPMTD_AMDGCN
#undef SPMTD_HOST
#undef SPMTD_SEEN
#undef SPMTD_SHOWN
#undef SPMTD_DEVICE
#undef SPMTD_FN
#undef SPMTD_LONG
#undef SPMTD_RARE
#undef SPMTD_ROLLED
#undef SPMTD_REDUX
#undef SPMTD_MANY
#undef SPMTD_ASM
#undef SPMTD_PURE
#undef SPMTD_G
#undef SPMTD_G0
#undef SPMTD_ACCESS
#undef SPMTD_ATOMIC
#undef SPMTD_REDUCE
#undef SPMTD_ATOMICS
#undef SPMTD_ID
#undef SPMTD_GET_SMALL
#undef SPMTD_SET_SMALL
#undef SPMTD_GET_WORD
#undef SPMTD_SET_WORD
#undef SPMTD_BITWISE
#undef SPMTD_TICK
#undef SPMTD_TSAN
#undef SPMTD_LOCAL
#undef SPMTD_FLIGHT
#undef SPMTD_SIDES
#undef SPMTD_RUN
#undef SPMTD_LEAVES
#undef SPMTD_UNROLL
#undef SPMTD_BYTES
#undef SPMTD_TYPES
#undef SPMTD_BITS
#undef SPMTD_TYPED
#undef SPMTD_RMA
#undef SPMTD_PART
#undef SPMTD_PARTS
#undef SPMTD_SET8
#undef SPMTD_SET16
#undef SPMTD_SET32
#undef SPMTD_SET64
#undef SPMTD_AMO
#undef SPMTD_AMO_OP
#undef SPMTD_AMO_INT
#undef SPMTD_AMO_FLOAT
#undef SPMTD_ORDERED
#undef SPMTD_WAIT

#if defined(__cplusplus) && defined(__GNUC__) && !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#pragma GCC diagnostic pop
#endif

#endif
