/* SPDX-License-Identifier: MIT */
/*
 * What kernels of packets, signals and bulk copies do between ranks 0 and 1, over the operations of one library: functions of a class, which
 * return 0 or what a wait ended with. OP is defined before.
 */
#ifndef COMPARE_LOOPS_CUH
#define COMPARE_LOOPS_CUH

#include "job.cuh"

/* Of the two rooms for packets that turn i has. */
OP char *room_of(const struct job *j, uint32_t i)
{
	return (char *)(j->words + WORDS_AMO) + i % 2 * 2 * PACKETS_MOST;
}

/* Packets there, which are read as they come, and back: put() of a block's data at off, get() to there, behind which all of it has come. */
template <class PACKETS> OP void ping_packets(const struct job *j)
{
	uint64_t off = 0;
	int rc = 0;

	for (uint32_t i = 1; i <= j->iters && !rc; i++) {
		char *room = room_of(j, i);
		uint32_t flag = (uint32_t)(j->base + i);

		if (j->pe == 0)
			PACKETS::put(j, room, off, flag);
		rc = PACKETS::get(j, room, off, flag);
		if (j->pe == 1)
			PACKETS::put(j, room, off, flag);
		off += j->step;
		if (off == j->window)
			off = 0;
	}
	if (rc)
		*j->code = rc;
}

/* One packet there and back, by value: its data is in a register, as a fused kernel has it. */
template <class PACKET> OP void ping_packet(const struct job *j)
{
	uint64_t off = 0, x;
	int rc = 0;

	for (uint32_t i = 1; i <= j->iters && !rc; i++) {
		char *room = room_of(j, i);
		uint32_t flag = (uint32_t)(j->base + i);
		uint64_t *dst = (uint64_t *)(j->dst + off), *src = (uint64_t *)(j->src + off);

		if (j->pe == 0)
			PACKET::put(j, room, *src, flag);
		rc = PACKET::get(j, room, flag, &x);
		if (!rc)
			*dst = x;
		if (j->pe == 1)
			PACKET::put(j, room, *src, flag);
		off += j->step;
		if (off == j->window)
			off = 0;
	}
	if (rc)
		*j->code = rc;
}

/* A channel's signal there and back. */
template <class CHANNEL> OP void ping_channel(const struct job *j)
{
	int rc = 0;

	for (uint32_t i = 0; i < j->iters && !rc; i++) {
		if (j->pe == 0)
			CHANNEL::signal(j);
		rc = CHANNEL::wait(j);
		if (j->pe == 1)
			CHANNEL::signal(j);
	}
	if (rc)
		*j->code = rc;
}

/* One thread's bulk put and its signal there, then back. */
template <class BULK> OP void ping_bulk(const struct job *j, char *room)
{
	uint64_t off = 0;
	BULK bulk;
	int rc = bulk.begin(room);

	for (uint32_t i = 1; i <= j->iters && !rc; i++) {
		for (int side = 0; side < 2 && !rc; side++)
			if (j->pe == side) {
				bulk.put(j, off);
				BULK::signal(j, j->base + i);
			} else {
				rc = BULK::wait(j, j->base + i);
			}
		off += j->step;
		if (off == j->window)
			off = 0;
	}
	bulk.end();
	if (rc)
		*j->code = rc;
}

/* As k_put_thread: each put delivered before the next one begins. */
template <class BULK> OP void bulk_quiet(const struct job *j, char *room)
{
	uint64_t off = 0;
	BULK bulk;
	int rc = bulk.begin(room);

	for (uint32_t i = 0; i < j->iters && !rc; i++) {
		bulk.put(j, off);
		rc = BULK::quiet(j);
		off += j->step;
		if (off == j->window)
			off = 0;
	}
	bulk.end();
	if (rc)
		*j->code = rc;
}

#endif
