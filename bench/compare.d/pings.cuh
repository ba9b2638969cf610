/* SPDX-License-Identifier: MIT */
/* What a kernel is, and those that every program with device calls has: put_signal_*() and wait_signal() of one library, defined before. */
#ifndef COMPARE_PINGS_CUH
#define COMPARE_PINGS_CUH

#include "job.cuh"

#if defined(__CUDACC__)
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(1024) name(struct job j)
#define BLOCK blockIdx.x
#define BLOCKS gridDim.x
#define TID threadIdx.x
#else
#define KERNEL(name)                                         \
	__attribute__((nvptx_kernel)) void name(struct job); \
	__attribute__((nvptx_kernel)) void name(struct job j)
#define BLOCK ((uint32_t)__nvvm_read_ptx_sreg_ctaid_x())
#define BLOCKS ((uint32_t)__nvvm_read_ptx_sreg_nctaid_x())
#define TID ((uint32_t)__nvvm_read_ptx_sreg_tid_x())
#endif

/* ---- ping-pong of ranks 0 and 1: data and its signal there, then back ------------------- */

#define PING(name, scope, wait)                                                                 \
	KERNEL(name)                                                                            \
	{                                                                                       \
		uint64_t *sig = j.words + WORDS_SIGNAL, off = 0;                                \
		int rc = 0;                                                                     \
                                                                                                \
		for (uint32_t i = 1; i <= j.iters; i++) {                                       \
			if (j.pe == 0)                                                          \
				put_signal_##scope(                                             \
					&j, j.dst + off, j.src + off, j.size, sig, j.base + i); \
			if (TID == 0)                                                           \
				rc |= wait(&j, sig, j.base + i);                                \
			meet_##scope();                                                         \
			if (j.pe == 1)                                                          \
				put_signal_##scope(                                             \
					&j, j.dst + off, j.src + off, j.size, sig, j.base + i); \
			off += j.step;                                                          \
			if (off == j.window)                                                    \
				off = 0;                                                        \
		}                                                                               \
		if (rc)                                                                         \
			*j.code = rc;                                                           \
	}
PING(k_ping_thread, thread, wait_signal)
PING(k_ping_block, block, wait_signal)

#endif
