/* SPDX-License-Identifier: MIT */
/*
 * The kernels that are compared, over the operations of one library (ops_*.cuh, included before
 * this file). One text for nvcc and for clang, which takes it as C.
 */
#include "pings.cuh"

/* ---- bandwidth: every block its part of each call, call after call ---------------------- */

#define BANDWIDTH(name, op)                                                       \
	KERNEL(name)                                                              \
	{                                                                         \
		uint64_t part = j.size / BLOCKS, at = BLOCK * part, off = 0;      \
                                                                                  \
		for (uint32_t i = 0; i < j.iters; i++) {                          \
			op##_block(&j, j.dst + off + at, j.src + off + at, part); \
			off += j.step;                                            \
			if (off == j.window)                                      \
				off = 0;                                          \
		}                                                                 \
		quiet_block(&j);                                                  \
	}
BANDWIDTH(k_bw_put, put)
BANDWIDTH(k_bw_get, get)

/* ---- latency: one call after the other, puts with their quiet --------------------------- */

#define LATENCY(name, op, end)                                    \
	KERNEL(name)                                              \
	{                                                         \
		uint64_t off = 0;                                 \
                                                                  \
		for (uint32_t i = 0; i < j.iters; i++) {          \
			op(&j, j.dst + off, j.src + off, j.size); \
			end(&j);                                  \
			off += j.step;                            \
			if (off == j.window)                      \
				off = 0;                          \
		}                                                 \
	}
#define NOTHING(j) ((void)(j))
LATENCY(k_put_thread, put_thread, quiet_thread)
LATENCY(k_put_warp, put_warp, quiet_warp)
LATENCY(k_put_block, put_block, quiet_block)
LATENCY(k_get_thread, get_thread, NOTHING)
LATENCY(k_get_warp, get_warp, NOTHING)
LATENCY(k_get_block, get_block, NOTHING)

/* ---- meetings of all ranks -------------------------------------------------------------- */

#define MEETING(name, op)                                      \
	KERNEL(name)                                           \
	{                                                      \
		int rc = 0;                                    \
                                                               \
		for (uint32_t i = 1; i <= j.iters && !rc; i++) \
			rc = op(&j, j.base + i);               \
		if (rc)                                        \
			*j.code = rc;                          \
	}
MEETING(k_sync_thread, sync_thread)
MEETING(k_sync_warp, sync_warp)
MEETING(k_sync_block, sync_block)
MEETING(k_barrier_thread, barrier_thread)
MEETING(k_barrier_warp, barrier_warp)
MEETING(k_barrier_block, barrier_block)

/* ---- atomics: every thread a word of its own -------------------------------------------- */

KERNEL(k_amo_add)
{
	uint64_t *word = j.words + WORDS_AMO + TID;

	for (uint32_t i = 0; i < j.iters; i++)
		amo_add(&j, word, 1);
	quiet_thread(&j);
}

KERNEL(k_amo_fetch_add)
{
	uint64_t *word = j.words + WORDS_AMO + TID, sum = 0;

	for (uint32_t i = 0; i < j.iters; i++)
		sum += amo_fetch_add(&j, word, 1);
	if (sum == 1 && j.iters > 2)
		*j.code = 1;
}
