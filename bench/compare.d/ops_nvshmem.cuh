/* SPDX-License-Identifier: MIT */
/*
 * What is compared, by NVSHMEM. It has no quiet of warps and blocks: one thread's, between two
 * meetings, as in its own tests.
 */
#include <nvshmem.h>
#include <nvshmemx.h>
#include <stdint.h>

#define OP static __device__ __forceinline__

struct place {
	int unused;
};

#include "job.cuh"

OP void meet_thread(void)
{
}

OP void meet_warp(void)
{
	__syncwarp();
}

OP void meet_block(void)
{
	__syncthreads();
}

#define DEFINE_NVSHMEM_OPS(scope, first, put, get, put_signal, sync, barrier)                   \
	OP void put_##scope(const struct job *j, char *dst, const char *src, uint64_t n)        \
	{                                                                                       \
		put(dst, src, n, j->peer);                                                      \
	}                                                                                       \
	OP void get_##scope(const struct job *j, char *dst, const char *src, uint64_t n)        \
	{                                                                                       \
		get(dst, src, n, j->peer);                                                      \
	}                                                                                       \
	OP void quiet_##scope(const struct job *j)                                              \
	{                                                                                       \
		(void)j;                                                                        \
		meet_##scope();                                                                 \
		if (first)                                                                      \
			nvshmem_quiet();                                                        \
		meet_##scope();                                                                 \
	}                                                                                       \
	OP void put_signal_##scope(const struct job *j, char *dst, const char *src, uint64_t n, \
		uint64_t *sig, uint64_t value)                                                  \
	{                                                                                       \
		put_signal(dst, src, n, sig, value, NVSHMEM_SIGNAL_SET, j->peer);               \
	}                                                                                       \
	OP int sync_##scope(const struct job *, uint64_t)                                       \
	{                                                                                       \
		sync();                                                                         \
		return 0;                                                                       \
	}                                                                                       \
	OP int barrier_##scope(const struct job *, uint64_t)                                    \
	{                                                                                       \
		barrier();                                                                      \
		return 0;                                                                       \
	}
DEFINE_NVSHMEM_OPS(thread, 1, nvshmem_putmem, nvshmem_getmem, nvshmem_putmem_signal,
	nvshmem_sync_all, nvshmem_barrier_all)
DEFINE_NVSHMEM_OPS(warp, threadIdx.x % 32 == 0, nvshmemx_putmem_warp, nvshmemx_getmem_warp,
	nvshmemx_putmem_signal_warp, nvshmemx_sync_all_warp, nvshmemx_barrier_all_warp)
DEFINE_NVSHMEM_OPS(block, threadIdx.x == 0, nvshmemx_putmem_block, nvshmemx_getmem_block,
	nvshmemx_putmem_signal_block, nvshmemx_sync_all_block, nvshmemx_barrier_all_block)

OP int wait_signal(const struct job *, uint64_t *sig, uint64_t value)
{
	nvshmem_signal_wait_until(sig, NVSHMEM_CMP_GE, value);
	return 0;
}

OP void amo_add(const struct job *j, uint64_t *word, uint64_t value)
{
	nvshmem_uint64_atomic_add(word, value, j->peer);
}

OP uint64_t amo_fetch_add(const struct job *j, uint64_t *word, uint64_t value)
{
	return nvshmem_uint64_atomic_fetch_add(word, value, j->peer);
}
