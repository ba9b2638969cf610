/* SPDX-License-Identifier: MIT */
/* Packets, signals of channels and bulk copies by libspmt. Behind kernels.cuh. */
#ifndef COMPARE_SPMT_CHANNELS_CUH
#define COMPARE_SPMT_CHANNELS_CUH

#include "channels.cuh"
#include "loops.cuh"

struct spmt_packets {
	OP void put(const struct job *j, char *room, uint64_t off, uint32_t flag)
	{
		spmtd_put_packets_block(&j->place.view, room, j->src + off, j->size, flag, j->peer);
	}
	OP int get(const struct job *j, char *room, uint64_t off, uint32_t flag)
	{
		return spmtd_get_packets_block(&j->place.view, j->dst + off, room, j->size, flag);
	}
};

struct spmt_packets_each {
	OP void put(const struct job *j, char *room, uint64_t off, uint32_t flag)
	{
		spmtd_put_packets_each(&j->place.view, room, j->src + off, j->size, flag, j->peer,
			threadIdx.x, blockDim.x);
	}
	OP int get(const struct job *j, char *room, uint64_t off, uint32_t flag)
	{
		return spmtd_get_packets_each(
			&j->place.view, j->dst + off, room, j->size, flag, threadIdx.x, blockDim.x);
	}
};

struct spmt_packet {
	OP void put(const struct job *j, char *room, uint64_t x, uint32_t flag)
	{
		spmtd_put_packet(&j->place.view, room, x, flag, j->peer);
	}
	OP int get(const struct job *j, char *room, uint32_t flag, uint64_t *x)
	{
		return spmtd_get_packet(&j->place.view, room, flag, x);
	}
};

struct spmt_ordered {
	OP void signal(const struct job *j)
	{
		spmtd_channel_signal(&j->place.view, &j->place.channel);
	}
	OP int wait(const struct job *j)
	{
		return spmtd_channel_wait(&j->place.view, &j->place.channel);
	}
};

struct spmt_relaxed {
	OP void signal(const struct job *j)
	{
		spmtd_channel_signal_relaxed(&j->place.view, &j->place.channel);
	}
	OP int wait(const struct job *j)
	{
		return spmtd_channel_wait_relaxed(&j->place.view, &j->place.channel);
	}
};

struct spmt_bulk {
	struct spmtd_bulk bulk;

	__device__ __forceinline__ int begin(char *room)
	{
		return spmtd_bulk_begin(&bulk, room, BULK_CHUNK, BULK_STAGES);
	}
	__device__ __forceinline__ void put(const struct job *j, uint64_t off)
	{
		spmtd_bulk_put(&j->place.view, &bulk, j->dst + off, j->src + off, j->size, j->peer);
	}
	__device__ __forceinline__ void end(void)
	{
		spmtd_bulk_end(&bulk);
	}
	OP int quiet(const struct job *j)
	{
		return spmtd_quiet(&j->place.view);
	}
	OP void signal(const struct job *j, uint64_t value)
	{
		spmtd_signal_op(
			&j->place.view, j->words + WORDS_SIGNAL, value, SPMT_SIGNAL_SET, j->peer);
	}
	OP int wait(const struct job *j, uint64_t value)
	{
		return spmtd_signal_wait_until(
			&j->place.view, j->words + WORDS_SIGNAL, SPMT_CMP_GE, value);
	}
};

KERNEL(k_ping_packets)
{
	ping_packets<spmt_packets>(&j);
}

KERNEL(k_ping_packets_each)
{
	ping_packets<spmt_packets_each>(&j);
}

KERNEL(k_ping_packet)
{
	ping_packet<spmt_packet>(&j);
}

KERNEL(k_ping_channel)
{
	ping_channel<spmt_ordered>(&j);
}

KERNEL(k_ping_channel_relaxed)
{
	ping_channel<spmt_relaxed>(&j);
}

KERNEL(k_ping_bulk)
{
	extern __shared__ __align__(128) char room[];

	ping_bulk<spmt_bulk>(&j, room);
}

KERNEL(k_bulk_quiet)
{
	extern __shared__ __align__(128) char room[];

	bulk_quiet<spmt_bulk>(&j, room);
}

/* As k_bw_put, by a warp of each block. */
KERNEL(k_bw_bulk)
{
	extern __shared__ __align__(128) char room[];
	uint64_t part = j.size / BLOCKS, at = BLOCK * part, off = 0;
	struct spmtd_bulk bulk;
	int rc = spmtd_bulk_begin_warp(&bulk, room, BULK_CHUNK, BULK_STAGES);

	for (uint32_t i = 0; i < j.iters; i++) {
		spmtd_bulk_put_nbi_warp(
			&j.place.view, &bulk, j.dst + off + at, j.src + off + at, part, j.peer);
		off += j.step;
		if (off == j.window)
			off = 0;
	}
	spmtd_bulk_end_warp(&bulk);
	(void)spmtd_quiet_warp(&j.place.view);
	if (rc && TID == 0)
		*j.code = rc;
}

static void group_channel(struct rank *r)
{
	struct channel_kernels k = { KERNEL_OF(k_ping_packets), KERNEL_OF(k_ping_packets_each),
		KERNEL_OF(k_ping_packet), KERNEL_OF(k_ping_channel),
		KERNEL_OF(k_ping_channel_relaxed), KERNEL_OF(k_ping_bulk), KERNEL_OF(k_bulk_quiet),
		KERNEL_OF(k_bw_bulk) };

	run_channels(r, &k);
}

#endif
