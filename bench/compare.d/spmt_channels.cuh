/* SPDX-License-Identifier: MIT */
/* Packets, signals of channels and bulk copies by libspmt: loops like those of kernels.cuh, which is included before. */
#ifndef COMPARE_SPMT_CHANNELS_CUH
#define COMPARE_SPMT_CHANNELS_CUH

#include "channels.cuh"

/* Packets there, which are read as they come, and back. */
KERNEL(k_ping_packets)
{
	char *room = (char *)(j.words + WORDS_AMO);
	uint64_t off = 0;
	int rc = 0;

	for (uint32_t i = 1; i <= j.iters && !rc; i++) {
		char *turn = room + i % 2 * 2 * PACKETS_MOST;
		uint32_t flag = (uint32_t)(j.base + i);

		if (j.pe == 0)
			spmtd_put_packets_block(
				&j.place.view, turn, j.src + off, j.size, flag, j.peer);
		rc = spmtd_get_packets_block(&j.place.view, j.dst + off, turn, j.size, flag);
		if (j.pe == 1)
			spmtd_put_packets_block(
				&j.place.view, turn, j.src + off, j.size, flag, j.peer);
		off += j.step;
		if (off == j.window)
			off = 0;
	}
	if (rc)
		*j.code = rc;
}

/* One packet there and back, by value: its data is in a register, as a fused kernel has it. */
KERNEL(k_ping_packet)
{
	char *room = (char *)(j.words + WORDS_AMO);
	uint64_t off = 0, x;
	int rc = 0;

	for (uint32_t i = 1; i <= j.iters && !rc; i++) {
		char *turn = room + i % 2 * 2 * PACKETS_MOST;
		uint32_t flag = (uint32_t)(j.base + i);
		uint64_t *dst = (uint64_t *)(j.dst + off), *src = (uint64_t *)(j.src + off);

		if (j.pe == 0)
			spmtd_put_packet(&j.place.view, turn, *src, flag, j.peer);
		rc = spmtd_get_packet(&j.place.view, turn, flag, &x);
		if (!rc)
			*dst = x;
		if (j.pe == 1)
			spmtd_put_packet(&j.place.view, turn, *src, flag, j.peer);
		off += j.step;
		if (off == j.window)
			off = 0;
	}
	if (rc)
		*j.code = rc;
}

#define PING_CHANNEL(name, suffix)                                                             \
	KERNEL(name)                                                                           \
	{                                                                                      \
		int rc = 0;                                                                    \
                                                                                               \
		for (uint32_t i = 0; i < j.iters && !rc; i++) {                                \
			if (j.pe == 0)                                                         \
				spmtd_channel_signal##suffix(&j.place.view, &j.place.channel); \
			rc = spmtd_channel_wait##suffix(&j.place.view, &j.place.channel);      \
			if (j.pe == 1)                                                         \
				spmtd_channel_signal##suffix(&j.place.view, &j.place.channel); \
		}                                                                              \
		if (rc)                                                                        \
			*j.code = rc;                                                          \
	}
PING_CHANNEL(k_ping_channel, )
PING_CHANNEL(k_ping_channel_relaxed, _relaxed)

/* One thread's bulk put and its signal there, then back. */
KERNEL(k_ping_bulk)
{
	extern __shared__ __align__(128) char room[];
	uint64_t *sig = j.words + WORDS_SIGNAL, off = 0;
	struct spmtd_bulk bulk;
	int rc = spmtd_bulk_begin(&bulk, room, BULK_CHUNK, BULK_STAGES);

	for (uint32_t i = 1; i <= j.iters && !rc; i++) {
		for (int side = 0; side < 2 && !rc; side++)
			if (j.pe == side) {
				spmtd_bulk_put(&j.place.view, &bulk, j.dst + off, j.src + off,
					j.size, j.peer);
				spmtd_signal_op(
					&j.place.view, sig, j.base + i, SPMT_SIGNAL_SET, j.peer);
			} else {
				rc = spmtd_signal_wait_until(
					&j.place.view, sig, SPMT_CMP_GE, j.base + i);
			}
		off += j.step;
		if (off == j.window)
			off = 0;
	}
	spmtd_bulk_end(&bulk);
	if (rc)
		*j.code = rc;
}

/* As k_put_thread: each put delivered before the next one begins. */
KERNEL(k_bulk_quiet)
{
	extern __shared__ __align__(128) char room[];
	uint64_t off = 0;
	struct spmtd_bulk bulk;
	int rc = spmtd_bulk_begin(&bulk, room, BULK_CHUNK, BULK_STAGES);

	for (uint32_t i = 0; i < j.iters && !rc; i++) {
		spmtd_bulk_put(&j.place.view, &bulk, j.dst + off, j.src + off, j.size, j.peer);
		rc = spmtd_quiet(&j.place.view);
		off += j.step;
		if (off == j.window)
			off = 0;
	}
	spmtd_bulk_end(&bulk);
	if (rc)
		*j.code = rc;
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
	struct channel_kernels k = { KERNEL_OF(k_ping_packets), KERNEL_OF(k_ping_packet),
		KERNEL_OF(k_ping_channel), KERNEL_OF(k_ping_channel_relaxed),
		KERNEL_OF(k_ping_bulk), KERNEL_OF(k_bulk_quiet), KERNEL_OF(k_bw_bulk) };

	run_channels(r, &k);
}

#endif
