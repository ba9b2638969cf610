/* SPDX-License-Identifier: MIT */
/*
 * What is compared, with nothing between the program and the hardware: aligned 16-byte accesses, four
 * in flight for puts and eight for gets, one fence or release, flags.
 */
#include <stdint.h>

#define OP static __device__ __forceinline__

struct place {
	char *base[16]; /* of each rank's symmetric memory */
};

#include "job.cuh"

OP char *raw_there(const struct job *j, const void *mine, int pe)
{
	return j->place.base[pe] + ((const char *)mine - j->place.base[j->pe]);
}

template <int FLIGHT>
OP void raw_copy(char *dst, const char *src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	const uint4 *from = (const uint4 *)src;
	uint4 *to = (uint4 *)dst, x[FLIGHT], y[FLIGHT - 1] = {};
	uint64_t units = n / 16, i = lane;

	for (; i + (uint64_t)(FLIGHT - 1) * lanes < units; i += (uint64_t)FLIGHT * lanes) {
#pragma unroll
		for (int k = 0; k < FLIGHT; k++)
			x[k] = from[i + (uint64_t)k * lanes];
#pragma unroll
		for (int k = 0; k < FLIGHT; k++)
			to[i + (uint64_t)k * lanes] = x[k];
	}
#pragma unroll
	for (int k = 0; k < FLIGHT - 1; k++)
		if (i + (uint64_t)k * lanes < units)
			y[k] = from[i + (uint64_t)k * lanes];
#pragma unroll
	for (int k = 0; k < FLIGHT - 1; k++)
		if (i + (uint64_t)k * lanes < units)
			to[i + (uint64_t)k * lanes] = y[k];
	if (lane == 0 && (n & 8))
		((uint64_t *)dst)[n / 8 - 1] = ((const uint64_t *)src)[n / 8 - 1];
}

OP void raw_fence(void)
{
	asm volatile("fence.acq_rel.sys;" ::: "memory");
}

OP void raw_release(char *a, uint64_t x)
{
	asm volatile(
		"st.release.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(a)), "l"(x)
		: "memory");
}

OP void raw_poke(char *a, uint64_t x)
{
	asm volatile(
		"st.relaxed.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(a)), "l"(x)
		: "memory");
}

/* Until the word has come to value; gives up after some seconds. */
template <bool ACQUIRE> OP int raw_await(const uint64_t *word, uint64_t value)
{
	size_t a = __cvta_generic_to_global(word);
	uint64_t x;

	for (uint64_t n = 0; n < 1ull << 24; n++) {
		if (ACQUIRE)
			asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
				     : "=l"(x)
				     : "l"(a)
				     : "memory");
		else
			asm volatile("ld.relaxed.sys.global.u64 %0, [%1];"
				     : "=l"(x)
				     : "l"(a)
				     : "memory");
		if (x >= value)
			return 0;
	}
	return -1;
}

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

OP uint32_t raw_lane_thread(void)
{
	return 0;
}

OP uint32_t raw_lane_warp(void)
{
	return threadIdx.x % 32;
}

OP uint32_t raw_lane_block(void)
{
	return threadIdx.x;
}

/* Every rank writes its slot at all others and waits for its own. */
template <bool ORDER>
OP int raw_meeting(const struct job *j, uint64_t epoch, uint32_t lane, uint32_t lanes)
{
	int rc = 0;

	for (int pe = (int)lane; pe < j->npes; pe += (int)lanes) {
		char *slot = raw_there(j, j->words + WORDS_SYNC + 8 * j->pe, pe);

		if (pe == j->pe)
			continue;
		if (ORDER)
			raw_release(slot, epoch);
		else
			raw_poke(slot, epoch);
	}
	for (int pe = (int)lane; pe < j->npes; pe += (int)lanes)
		if (pe != j->pe)
			rc |= raw_await<ORDER>(j->words + WORDS_SYNC + 8 * pe, epoch);
	return rc;
}

#define DEFINE_RAW_OPS(scope, lanes)                                                            \
	OP void put_##scope(const struct job *j, char *dst, const char *src, uint64_t n)        \
	{                                                                                       \
		raw_copy<4>(raw_there(j, dst, j->peer), src, n, raw_lane_##scope(), lanes);     \
	}                                                                                       \
	OP void get_##scope(const struct job *j, char *dst, const char *src, uint64_t n)        \
	{                                                                                       \
		raw_copy<8>(dst, raw_there(j, src, j->peer), n, raw_lane_##scope(), lanes);     \
		meet_##scope();                                                                 \
	}                                                                                       \
	OP void quiet_##scope(const struct job *)                                               \
	{                                                                                       \
		meet_##scope();                                                                 \
		if (raw_lane_##scope() == 0)                                                    \
			raw_fence();                                                            \
		meet_##scope();                                                                 \
	}                                                                                       \
	OP void put_signal_##scope(const struct job *j, char *dst, const char *src, uint64_t n, \
		uint64_t *sig, uint64_t value)                                                  \
	{                                                                                       \
		put_##scope(j, dst, src, n);                                                    \
		meet_##scope();                                                                 \
		if (raw_lane_##scope() == 0)                                                    \
			raw_release(raw_there(j, sig, j->peer), value);                         \
	}                                                                                       \
	OP int sync_##scope(const struct job *j, uint64_t epoch)                                \
	{                                                                                       \
		int rc = raw_meeting<false>(j, epoch, raw_lane_##scope(), lanes);               \
                                                                                                \
		meet_##scope();                                                                 \
		return rc;                                                                      \
	}                                                                                       \
	OP int barrier_##scope(const struct job *j, uint64_t epoch)                             \
	{                                                                                       \
		int rc;                                                                         \
                                                                                                \
		meet_##scope();                                                                 \
		rc = raw_meeting<true>(j, epoch, raw_lane_##scope(), lanes);                    \
		meet_##scope();                                                                 \
		return rc;                                                                      \
	}
DEFINE_RAW_OPS(thread, 1)
DEFINE_RAW_OPS(warp, 32)
DEFINE_RAW_OPS(block, blockDim.x)

OP int wait_signal(const struct job *, uint64_t *sig, uint64_t value)
{
	return raw_await<true>(sig, value);
}

/* By looks that acquire nothing, and a last one that does. */
OP int wait_signal_late(const struct job *, uint64_t *sig, uint64_t value)
{
	return raw_await<false>(sig, value) | raw_await<true>(sig, value);
}

OP void amo_add(const struct job *j, uint64_t *word, uint64_t value)
{
	asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(
			     __cvta_generic_to_global(raw_there(j, word, j->peer))),
		     "l"(value)
		     : "memory");
}

OP uint64_t amo_fetch_add(const struct job *j, uint64_t *word, uint64_t value)
{
	uint64_t old;

	asm volatile("atom.relaxed.sys.global.add.u64 %0, [%1], %2;"
		     : "=l"(old)
		     : "l"(__cvta_generic_to_global(raw_there(j, word, j->peer))), "l"(value)
		     : "memory");
	return old;
}
