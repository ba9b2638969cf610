/* SPDX-License-Identifier: MIT */
/*
 * What the instructions of packets, signals and bulk copies take by themselves: no view, no deadline but a count, no end of a world looked
 * for. Each kernel of spmt_channels.cuh has its like here. Behind ops_raw.cuh and kernels.cuh.
 */
#ifndef COMPARE_RAW_CHANNELS_CUH
#define COMPARE_RAW_CHANNELS_CUH

#include "channels.cuh"
#include "loops.cuh"

OP void raw_packet_put(char *a, uint64_t x, uint32_t flag)
{
	asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %2};" ::"l"(
			     __cvta_generic_to_global(a)),
		     "r"((uint32_t)x), "r"(flag), "r"((uint32_t)(x >> 32))
		     : "memory");
}

/* COUNT packets, STEP bytes apart, all of them on their way at once. */
template <int COUNT, int STEP> OP int raw_packets_some(const char *a, uint32_t flag, uint64_t *x)
{
	size_t at = __cvta_generic_to_global(a);
	uint32_t low[COUNT], high[COUNT], one[COUNT], two[COUNT];

	for (uint32_t n = 0; n < 1u << 24; n++) {
		bool come = true;

#pragma unroll
		for (int k = 0; k < COUNT; k++)
			asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
				     : "=r"(low[k]), "=r"(one[k]), "=r"(high[k]), "=r"(two[k])
				     : "l"(at + (size_t)(k * STEP))
				     : "memory");
#pragma unroll
		for (int k = 0; k < COUNT; k++)
			come = come && one[k] == flag && two[k] == flag;
		if (!come)
			continue;
#pragma unroll
		for (int k = 0; k < COUNT; k++)
			x[k] = low[k] | (uint64_t)high[k] << 32;
		return 0;
	}
	return -1;
}

OP int raw_packet_get(const char *a, uint32_t flag, uint64_t *x)
{
	return raw_packets_some<1, 16>(a, flag, x);
}

struct raw_packet {
	OP void put(const struct job *j, char *room, uint64_t x, uint32_t flag)
	{
		raw_packet_put(raw_there(j, room, j->peer), x, flag);
	}
	OP int get(const struct job *, char *room, uint32_t flag, uint64_t *x)
	{
		return raw_packet_get(room, flag, x);
	}
};

KERNEL(k_raw_packet)
{
	ping_packet<raw_packet>(&j);
}

/*
 * Of each of THREADS its packets, eight at once as long as there are as many; data goes through memory on both sides, and the block meets
 * before it is used, if it is to MEET.
 */
enum { PACKETS_AT_ONCE = 8 };

template <int THREADS>
OP void raw_packets_put(const struct job *j, char *turn, uint64_t off, uint32_t flag)
{
	const uint64_t *src = (const uint64_t *)(j->src + off);
	char *there = raw_there(j, turn, j->peer);
	uint64_t n = j->size / 8, i = threadIdx.x, x[PACKETS_AT_ONCE];

	for (; i + (PACKETS_AT_ONCE - 1) * THREADS < n; i += PACKETS_AT_ONCE * THREADS) {
#pragma unroll
		for (int k = 0; k < PACKETS_AT_ONCE; k++)
			x[k] = (src + i)[k * THREADS];
#pragma unroll
		for (int k = 0; k < PACKETS_AT_ONCE; k++)
			raw_packet_put(there + 16 * i + 16 * k * THREADS, x[k], flag);
	}
	for (; i < n; i += THREADS)
		raw_packet_put(there + 16 * i, src[i], flag);
}

template <int THREADS>
OP int raw_packets_get(const struct job *j, char *turn, uint64_t off, uint32_t flag)
{
	uint64_t *dst = (uint64_t *)(j->dst + off);
	uint64_t n = j->size / 8, i = threadIdx.x, x[PACKETS_AT_ONCE];
	int rc = 0;

	for (; i + (PACKETS_AT_ONCE - 1) * THREADS < n && !rc; i += PACKETS_AT_ONCE * THREADS) {
		rc = raw_packets_some<PACKETS_AT_ONCE, 16 * THREADS>(turn + 16 * i, flag, x);
#pragma unroll
		for (int k = 0; k < PACKETS_AT_ONCE; k++)
			if (!rc)
				(dst + i)[k * THREADS] = x[k];
	}
	for (; i < n && !rc; i += THREADS) {
		rc = raw_packet_get(turn + 16 * i, flag, x);
		if (!rc)
			dst[i] = x[0];
	}
	return rc;
}

template <int THREADS, bool MEET> struct raw_packets {
	OP void put(const struct job *j, char *room, uint64_t off, uint32_t flag)
	{
		raw_packets_put<THREADS>(j, room, off, flag);
	}
	OP int get(const struct job *j, char *room, uint64_t off, uint32_t flag)
	{
		int rc = raw_packets_get<THREADS>(j, room, off, flag);

		return MEET ? __syncthreads_or(rc) : rc;
	}
};

template <bool MEET> OP void raw_packets_of(const struct job *j)
{
	if (blockDim.x == 256)
		ping_packets<raw_packets<256, MEET>>(j);
	else
		ping_packets<raw_packets<1024, MEET>>(j);
}

KERNEL(k_raw_packets)
{
	raw_packets_of<true>(&j);
}

KERNEL(k_raw_packets_each)
{
	raw_packets_of<false>(&j);
}

/* One word there and back, behind a fence and without. */
template <bool ORDER> OP void ping_word(const struct job *j)
{
	uint64_t *sig = j->words + WORDS_SIGNAL;
	int rc = 0;

	for (uint32_t i = 1; i <= j->iters && !rc; i++)
		for (int side = 0; side < 2 && !rc; side++)
			if (j->pe != side)
				rc = raw_await<ORDER>(sig, j->base + i);
			else if (ORDER)
				raw_release(raw_there(j, sig, j->peer), j->base + i);
			else
				raw_poke(raw_there(j, sig, j->peer), j->base + i);
	if (rc)
		*j->code = rc;
}

KERNEL(k_ping_word)
{
	ping_word<true>(&j);
}

KERNEL(k_ping_word_relaxed)
{
	ping_word<false>(&j);
}

OP uint32_t raw_shared(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* Of one thread: all chunks are loaded, each into its own part of shared memory, and stored as they come; then all has been stored. */
OP void raw_bulk(const struct job *j, char *room, uint64_t off, uint32_t parity)
{
	uint64_t *bars = (uint64_t *)(room + BULK_CHUNK * BULK_STAGES);
	const char *src = j->src + off;
	char *dst = raw_there(j, j->dst + off, j->peer);
	uint32_t chunks = (uint32_t)((j->size + BULK_CHUNK - 1) / BULK_CHUNK);
	uint32_t n = chunks > 1 ? BULK_CHUNK : (uint32_t)j->size;

	asm volatile("fence.proxy.async.global;" ::: "memory");
	for (uint32_t i = 0; i < chunks; i++)
		asm volatile(
			"mbarrier.arrive.expect_tx.shared.b64 _, [%3], %2;\n\t"
			"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
				"r"(raw_shared(room + i * BULK_CHUNK)),
			"l"(__cvta_generic_to_global(src + i * BULK_CHUNK)), "r"(n),
			"r"(raw_shared(bars + i))
			: "memory");
	for (uint32_t i = 0; i < chunks; i++) {
		uint32_t done = 0;

		while (!done)
			asm volatile(
				"{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; "
				"selp.u32 %0, 1, 0, p; }"
				: "=r"(done)
				: "r"(raw_shared(bars + i)), "r"(parity)
				: "memory");
		asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
				     __cvta_generic_to_global(dst + i * BULK_CHUNK)),
			     "r"(raw_shared(room + i * BULK_CHUNK)), "r"(n)
			     : "memory");
	}
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
	asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
	asm volatile("fence.proxy.async.global;" ::: "memory");
}

OP void raw_bulk_bars(char *room)
{
	for (int i = 0; i < BULK_STAGES; i++)
		asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(
			raw_shared(room + BULK_CHUNK * BULK_STAGES + 8 * i))
			     : "memory");
}

KERNEL(k_raw_bulk)
{
	extern __shared__ __align__(128) char room[];
	uint64_t *sig = j.words + WORDS_SIGNAL, off = 0;
	int rc = 0;

	raw_bulk_bars(room);
	for (uint32_t i = 1; i <= j.iters && !rc; i++) {
		for (int side = 0; side < 2 && !rc; side++)
			if (j.pe == side) {
				raw_bulk(&j, room, off, (i - 1) & 1);
				raw_release(raw_there(&j, sig, j.peer), j.base + i);
			} else {
				rc = raw_await<true>(sig, j.base + i);
			}
		off += j.step;
		if (off == j.window)
			off = 0;
	}
	if (rc)
		*j.code = rc;
}

KERNEL(k_raw_bulk_quiet)
{
	extern __shared__ __align__(128) char room[];
	uint64_t off = 0;

	raw_bulk_bars(room);
	for (uint32_t i = 0; i < j.iters; i++) {
		raw_bulk(&j, room, off, i & 1);
		raw_fence();
		off += j.step;
		if (off == j.window)
			off = 0;
	}
}

static void group_channel(struct rank *r)
{
	struct channel_kernels k = { KERNEL_OF(k_raw_packets), KERNEL_OF(k_raw_packets_each),
		KERNEL_OF(k_raw_packet), KERNEL_OF(k_ping_word), KERNEL_OF(k_ping_word_relaxed),
		KERNEL_OF(k_raw_bulk), KERNEL_OF(k_raw_bulk_quiet), { NULL, NULL } };

	run_channels(r, &k);
}

#endif
