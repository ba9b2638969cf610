/* SPDX-License-Identifier: MIT */
/*
 * Plans, built by calls for most kinds of operations: spmt.h says what they are. Each adds one behind those of a block of a rank,
 * and returns 0, or what spmt_plan_add does.
 *
 *	spmt_plan_put(plan, 0, 0, spmt_plan_input(0, 2, 1), spmt_plan_output(1, 0, 1)): rank 0, block 0 puts chunk 2 of its input to chunk 0
 *	of rank 1's output
 */
#ifndef SPMT_PLAN_H
#define SPMT_PLAN_H

#include "spmt.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline struct spmt_plan_chunk spmt_plan_chunk_(
	int rank, enum spmt_plan_buffer buffer, uint32_t index, uint32_t count)
{
	struct spmt_plan_chunk c;

	c.rank = rank;
	c.buffer = buffer;
	c.index = index;
	c.count = count;
	return c;
}

/* Chunks [index, index + count) of a rank's buffer. */
static inline struct spmt_plan_chunk spmt_plan_input(int rank, uint32_t index, uint32_t count)
{
	return spmt_plan_chunk_(rank, SPMT_PLAN_INPUT, index, count);
}

static inline struct spmt_plan_chunk spmt_plan_output(int rank, uint32_t index, uint32_t count)
{
	return spmt_plan_chunk_(rank, SPMT_PLAN_OUTPUT, index, count);
}

static inline struct spmt_plan_chunk spmt_plan_scratch(int rank, uint32_t index, uint32_t count)
{
	return spmt_plan_chunk_(rank, SPMT_PLAN_SCRATCH, index, count);
}

static inline struct spmt_plan_op spmt_plan_op_(enum spmt_plan_kind kind)
{
	struct spmt_plan_op op;

	__builtin_memset(&op, 0, sizeof(op));
	op.size = sizeof(op);
	op.kind = kind;
	return op;
}

/* From one place to another. */
static inline int spmt_plan_move_(spmt_plan *plan, int rank, int block, enum spmt_plan_kind kind,
	struct spmt_plan_chunk src, struct spmt_plan_chunk dst)
{
	struct spmt_plan_op op = spmt_plan_op_(kind);

	op.nsrc = op.ndst = 1;
	op.src[0] = src;
	op.dst[0] = dst;
	return spmt_plan_add(plan, rank, block, &op);
}

static inline int spmt_plan_put(spmt_plan *plan, int rank, int block, struct spmt_plan_chunk src,
	struct spmt_plan_chunk dst)
{
	return spmt_plan_move_(plan, rank, block, SPMT_PLAN_PUT, src, dst);
}

static inline int spmt_plan_fetch(spmt_plan *plan, int rank, int block, struct spmt_plan_chunk src,
	struct spmt_plan_chunk dst)
{
	return spmt_plan_move_(plan, rank, block, SPMT_PLAN_GET, src, dst);
}

static inline int spmt_plan_copy(spmt_plan *plan, int rank, int block, struct spmt_plan_chunk src,
	struct spmt_plan_chunk dst)
{
	return spmt_plan_move_(plan, rank, block, SPMT_PLAN_COPY, src, dst);
}

/* Packets: dst of put and src of unpack are chunks of scratch, by which the packets beside it are named. */
static inline int spmt_plan_put_packets(spmt_plan *plan, int rank, int block,
	struct spmt_plan_chunk src, struct spmt_plan_chunk dst)
{
	return spmt_plan_move_(plan, rank, block, SPMT_PLAN_PUT_PACKETS, src, dst);
}

static inline int spmt_plan_unpack_packets(spmt_plan *plan, int rank, int block,
	struct spmt_plan_chunk src, struct spmt_plan_chunk dst)
{
	return spmt_plan_move_(plan, rank, block, SPMT_PLAN_UNPACK_PACKETS, src, dst);
}

/* dst: the chunk, folded with n others, at src[0] on. */
static inline int spmt_plan_fold_(spmt_plan *plan, int rank, int block, enum spmt_plan_kind kind,
	struct spmt_plan_chunk dst, const struct spmt_plan_chunk *src, int n)
{
	struct spmt_plan_op op = spmt_plan_op_(kind);

	op.nsrc = n;
	op.ndst = 1;
	op.dst[0] = dst;
	for (int i = 0; i < n && i < SPMT_PLAN_TERMS; i++)
		op.src[i] = src[i];
	return spmt_plan_add(plan, rank, block, &op);
}

/* dst: src[0] of this rank and n - 1 more of any, folded in this order. */
static inline int spmt_plan_reduce(spmt_plan *plan, int rank, int block, struct spmt_plan_chunk dst,
	const struct spmt_plan_chunk *src, int n)
{
	return spmt_plan_fold_(plan, rank, block, SPMT_PLAN_REDUCE, dst, src, n);
}

/* The same of src[0] and n - 1 packets. */
static inline int spmt_plan_reduce_packets(spmt_plan *plan, int rank, int block,
	struct spmt_plan_chunk dst, const struct spmt_plan_chunk *src, int n)
{
	return spmt_plan_fold_(plan, rank, block, SPMT_PLAN_REDUCE_PACKETS, dst, src, n);
}

static inline int spmt_plan_meet_(spmt_plan *plan, int rank, int block, enum spmt_plan_kind kind,
	int peer, int index, int blocks)
{
	struct spmt_plan_op op = spmt_plan_op_(kind);

	op.peer = peer;
	op.index = index;
	op.blocks = blocks;
	return spmt_plan_add(plan, rank, block, &op);
}

static inline int spmt_plan_signal(spmt_plan *plan, int rank, int block, int peer, int index)
{
	return spmt_plan_meet_(plan, rank, block, SPMT_PLAN_SIGNAL, peer, index, 0);
}

static inline int spmt_plan_wait(spmt_plan *plan, int rank, int block, int peer, int index)
{
	return spmt_plan_meet_(plan, rank, block, SPMT_PLAN_WAIT, peer, index, 0);
}

static inline int spmt_plan_barrier(spmt_plan *plan, int rank, int block, int index, int blocks)
{
	return spmt_plan_meet_(plan, rank, block, SPMT_PLAN_BARRIER, 0, index, blocks);
}

static inline int spmt_plan_release(spmt_plan *plan, int rank, int block, int index)
{
	return spmt_plan_meet_(plan, rank, block, SPMT_PLAN_RELEASE, 0, index, 0);
}

static inline int spmt_plan_acquire(spmt_plan *plan, int rank, int block, int index, int initial)
{
	struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_ACQUIRE);

	op.index = index;
	op.initial = initial;
	return spmt_plan_add(plan, rank, block, &op);
}

#ifdef __cplusplus
}
#endif

#endif
