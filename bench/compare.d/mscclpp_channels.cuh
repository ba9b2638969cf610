/* SPDX-License-Identifier: MIT */
/* Packets, signals of channels and bulk copies by MSCCL++. Behind ops_mscclpp.cuh. */
#ifndef COMPARE_MSCCLPP_CHANNELS_CUH
#define COMPARE_MSCCLPP_CHANNELS_CUH

#include "channels.cuh"
#include "loops.cuh"

/* ---- packets of 16 bytes, 8 of them data ------------------------------------------------ */

OP uint64_t packets_at(const struct job *j, const char *room)
{
	return (uint64_t)(room - (const char *)(j->words + WORDS_AMO));
}

struct ll16_packets {
	OP void unpack(const struct job *j, char *room, uint64_t off, uint32_t flag)
	{
		mscclpp::MemoryChannelDeviceHandle packets = j->place.packets;
		uint64_t to = (uint64_t)(j->dst - j->src) + off;

		packets.unpackPackets<mscclpp::LL16Packet>(
			packets_at(j, room), to, j->size, threadIdx.x, blockDim.x, flag);
	}
	OP void put(const struct job *j, char *room, uint64_t off, uint32_t flag)
	{
		mscclpp::MemoryChannelDeviceHandle packets = j->place.packets;

		packets.putPackets<mscclpp::LL16Packet>(
			packets_at(j, room), off, j->size, threadIdx.x, blockDim.x, flag);
	}
	OP int get(const struct job *j, char *room, uint64_t off, uint32_t flag)
	{
		unpack(j, room, off, flag);
		__syncthreads(); /* all of it, for every thread, as with the others */
		return 0;
	}
};

struct ll16_packets_each : ll16_packets {
	OP int get(const struct job *j, char *room, uint64_t off, uint32_t flag)
	{
		unpack(j, room, off, flag);
		return 0;
	}
};

struct ll16_packet {
	OP void put(const struct job *j, char *room, uint64_t x, uint32_t flag)
	{
		mscclpp::LL16Packet *there = (mscclpp::LL16Packet *)((char *)j->place.packets.dst_ +
			packets_at(j, room));

		there->write(x, flag);
	}
	OP int get(const struct job *j, char *room, uint32_t flag, uint64_t *x)
	{
		mscclpp::MemoryChannelDeviceHandle packets = j->place.packets;
		uint2 data = packets.unpackPacket<mscclpp::LL16Packet>(
			packets_at(j, room) / sizeof(mscclpp::LL16Packet), flag);

		*x = data.x | (uint64_t)data.y << 32;
		return 0;
	}
};

KERNEL(k_ll16_packets)
{
	ping_packets<ll16_packets>(&j);
}

KERNEL(k_ll16_packets_each)
{
	ping_packets<ll16_packets_each>(&j);
}

KERNEL(k_ll16_packet)
{
	ping_packet<ll16_packet>(&j);
}

/* ---- signals ---------------------------------------------------------------------------- */

struct ordered {
	OP void signal(const struct job *j)
	{
		mscclpp::MemoryChannelDeviceHandle data = j->place.data;

		data.signal();
	}
	OP int wait(const struct job *j)
	{
		return wait_signal(j, NULL, 0);
	}
};

struct relaxed {
	OP void signal(const struct job *j)
	{
		mscclpp::MemoryChannelDeviceHandle data = j->place.data;

		data.relaxedSignal();
	}
	OP int wait(const struct job *j)
	{
		mscclpp::MemoryChannelDeviceHandle data = j->place.data;

		data.relaxedWait(-1);
		return 0;
	}
};

KERNEL(k_signal)
{
	ping_channel<ordered>(&j);
}

KERNEL(k_signal_relaxed)
{
	ping_channel<relaxed>(&j);
}

/* ---- bulk copies: one thread's, by what it has for them, from sm_90 on ------------------- */

#if MSCCLPP_BULK_AVAILABLE

struct bulk {
	mscclpp::BulkBarrier *bars;
	char *room;
	uint32_t phase; /* of all barriers that puts of one size use */

	__device__ __forceinline__ int begin(char *at)
	{
		room = at;
		bars = (mscclpp::BulkBarrier *)(at + BULK_CHUNK * BULK_STAGES);
		phase = 0;
		for (int i = 0; i < BULK_STAGES; i++)
			bars[i].relaxedInit(1);
		mscclpp::bulkFence();
		return 0;
	}
	/* All chunks are loaded, each into its own part of shared memory, and stored as they come; behind the wait they are there. */
	__device__ __forceinline__ void put(const struct job *j, uint64_t off)
	{
		const char *src = (const char *)j->place.data.src_ + off;
		char *dst = (char *)j->place.data.dst_ + off;
		uint32_t chunks = (uint32_t)((j->size + BULK_CHUNK - 1) / BULK_CHUNK);
		uint32_t n = chunks > 1 ? BULK_CHUNK : (uint32_t)j->size;

		for (uint32_t i = 0; i < chunks; i++) {
			bars[i].arriveAndExpect(n);
			mscclpp::bulkLoad(room + i * BULK_CHUNK, src + i * BULK_CHUNK, n, bars[i]);
		}
		for (uint32_t i = 0; i < chunks; i++) {
			uint32_t its = phase;

			bars[i].wait(its, -1);
			mscclpp::bulkStore(dst + i * BULK_CHUNK, room + i * BULK_CHUNK, n);
		}
		mscclpp::bulkStoreCommit();
		mscclpp::bulkStoreWait();
		phase ^= 1;
	}
	__device__ __forceinline__ void end(void)
	{
	}
	/* There is no more to it: put() has waited until the data had reached its destination. */
	OP int quiet(const struct job *)
	{
		return 0;
	}
	OP void signal(const struct job *j, uint64_t)
	{
		ordered::signal(j);
	}
	OP int wait(const struct job *j, uint64_t)
	{
		return ordered::wait(j);
	}
};

#define WITH_BULK(call) call
#else
#define WITH_BULK(call)
#endif

KERNEL(k_bulk)
{
	extern __shared__ __align__(128) char room[];

	WITH_BULK(ping_bulk<bulk>(&j, room);)
}

KERNEL(k_bulk_quiet)
{
	extern __shared__ __align__(128) char room[];

	WITH_BULK(bulk_quiet<bulk>(&j, room);)
}

static bool has_bulk(const struct rank *r)
{
	int major;

	CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, r->pe));
	return HAS_BULK && major >= 9;
}

static void group_channel(struct rank *r)
{
	struct channel_kernels k = { KERNEL_OF(k_ll16_packets), KERNEL_OF(k_ll16_packets_each),
		KERNEL_OF(k_ll16_packet), KERNEL_OF(k_signal), KERNEL_OF(k_signal_relaxed) };

	if (has_bulk(r)) {
		k.bulk = KERNEL_OF(k_bulk);
		k.bulk_quiet = KERNEL_OF(k_bulk_quiet);
	}
	run_channels(r, &k);
}

#endif
