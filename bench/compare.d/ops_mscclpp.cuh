/* SPDX-License-Identifier: MIT */
/*
 * What is compared, by MSCCL++: its headers for kernels alone, none of its library. The handles that its connections would give a kernel have
 * the addresses of plain allocations. Its waits have no end of their own: who waits for ever is stopped by finish().
 */
#include <mscclpp/memory_channel_device.hpp>

#if defined(__has_include)
#if __has_include(<mscclpp/bulk_device.hpp>)
#include <mscclpp/bulk_device.hpp>
#define HAS_BULK 1
#endif
#endif
#if !defined(HAS_BULK)
#define HAS_BULK 0
#define MSCCLPP_BULK_AVAILABLE 0
#endif
#include <stdint.h>

#if !defined(MSCCLPP_IS)
#define MSCCLPP_IS "of an unknown version"
#endif

#define OP static __device__ __forceinline__

/* Of ranks 0 and 1 to each other. Puts and packets go from src here; what packets bring is unpacked behind src, in dst here. */
struct place {
	mscclpp::MemoryChannelDeviceHandle data, packets;
};

#include "job.cuh"

/* What its semaphore waits for next, in other lines than what comes in. */
enum { WORDS_EXPECTED = WORDS_SYNC };

/* ---- puts with signals: counted from 0 on both sides as soon as the words are ----------- */

OP void meet_thread(void)
{
}

OP void meet_block(void)
{
	__syncthreads();
}

OP void put_with_signal(
	const struct job *j, const char *src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	mscclpp::MemoryChannelDeviceHandle data = j->place.data;
	uint64_t at = (uint64_t)(src - j->src);

	if (n % 16)
		data.put<8>(at, n, lane, lanes);
	else
		data.put<16>(at, n, lane, lanes);
	if (lanes > 1)
		__syncthreads();
	if (lane == 0)
		data.signal();
}

OP void put_signal_thread(
	const struct job *j, char *, const char *src, uint64_t n, uint64_t *, uint64_t)
{
	put_with_signal(j, src, n, 0, 1);
}

OP void put_signal_block(
	const struct job *j, char *, const char *src, uint64_t n, uint64_t *, uint64_t)
{
	put_with_signal(j, src, n, threadIdx.x, blockDim.x);
}

OP int wait_signal(const struct job *j, uint64_t *, uint64_t)
{
	mscclpp::MemoryChannelDeviceHandle data = j->place.data;

	data.wait(-1);
	return 0;
}
