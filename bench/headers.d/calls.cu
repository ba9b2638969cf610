// SPDX-License-Identifier: MIT
// The calls, by the version of the header that the compiler's command line names. Ranks 0 and 1.
#include HEADER
#include "calls.h"

static __device__ __forceinline__ uint64_t now(void)
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
	return ns;
}

#define CALL_OF(name, what)                                                                \
	static __global__ void __launch_bounds__(1024) name(const __grid_constant__ job j) \
	{                                                                                  \
		const spmt_view *v = (const spmt_view *)j.view;                            \
		uint64_t begin = now();                                                    \
		int rc = 0;                                                                \
                                                                                           \
		for (uint32_t i = 1; i <= j.rounds && !rc; i++) {                          \
			what;                                                              \
		}                                                                          \
		if (rc)                                                                    \
			*j.code = rc;                                                      \
		if (threadIdx.x == 0)                                                      \
			*j.ns = now() - begin;                                             \
	}
#define PINGS(put, meet)                                                    \
	if (v->pe == 0)                                                     \
		put(v, j.dst, j.src, j.size, j.sig, i, SPMT_SIGNAL_SET, 1); \
	if (threadIdx.x == 0)                                               \
		rc = spmtd_signal_wait_until(v, j.sig, SPMT_CMP_GE, i);     \
	meet;                                                               \
	if (v->pe == 1)                                                     \
	put(v, j.dst, j.src, j.size, j.sig, i, SPMT_SIGNAL_SET, 0)
#define COPIES(copy, quiet)                       \
	if (v->pe == 0) {                         \
		copy(v, j.dst, j.src, j.size, 1); \
		quiet;                            \
	}

/* Each call elsewhere: gets never ask for what the first-level cache still has. */
#define GETS(copy)                                                                 \
	if (v->pe == 0) {                                                          \
		copy(v, j.dst, j.src + i % (j.room / j.size) * j.size, j.size, 1); \
	}

CALL_OF(sync_thread, rc = spmtd_sync(v))
CALL_OF(sync_warp, rc = spmtd_sync_warp(v))
CALL_OF(sync_block, rc = spmtd_sync_block(v))
CALL_OF(barrier_thread, rc = spmtd_barrier(v))
CALL_OF(barrier_warp, rc = spmtd_barrier_warp(v))
CALL_OF(barrier_block, rc = spmtd_barrier_block(v))
CALL_OF(ping_thread, PINGS(spmtd_putmem_signal, ))
CALL_OF(ping_block, PINGS(spmtd_putmem_signal_block, __syncthreads()))
CALL_OF(put_thread, COPIES(spmtd_putmem, spmtd_quiet(v)))
CALL_OF(put_warp, COPIES(spmtd_putmem_warp, spmtd_quiet_warp(v)))
CALL_OF(put_block, COPIES(spmtd_putmem_block, spmtd_quiet_block(v)))
CALL_OF(puts_block, COPIES(spmtd_putmem_block, if (i == j.rounds) spmtd_quiet_block(v)))
CALL_OF(get_warp, GETS(spmtd_getmem_warp))
CALL_OF(get_block, GETS(spmtd_getmem_block))

/* In the order of enum call. */
kernel_fn *const CALLS_OF[CALLS] = { sync_thread, sync_warp, sync_block, barrier_thread,
	barrier_warp, barrier_block, ping_thread, ping_block, put_thread, put_warp, put_block,
	puts_block, get_warp, get_block };
