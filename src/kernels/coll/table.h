/* SPDX-License-Identifier: MIT */
/*
 * The table of collective algorithms: read by the host, which chooses one for each call, and by the kernel, which is told its number. Of the
 * kinds of collectives the host alone knows: a kernel is told which ranks give and get what.
 */
#ifndef SPMT_KERNELS_COLL_TABLE_H
#define SPMT_KERNELS_COLL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kernel_collective_kind {
	COLL_BROADCAST,
	COLL_ALL_GATHER,
	COLL_ALL_TO_ALL,
	COLL_PERMUTE,
	COLL_GATHER,
	COLL_SCATTER,
	COLL_EXCHANGE, /* all_to_all in place */
	COLL_REDUCE_SCATTER,
	COLL_ALL_REDUCE,
	COLL_REDUCE,
	COLL_KINDS, /* each table row has some of the above; those below have their own kernel */
	COLL_ALL_GATHER_V = COLL_KINDS,
	COLL_ALL_TO_ALL_V,
	COLL_CALLS
};

#define COLL_FOLDS (1u << COLL_REDUCE_SCATTER | 1u << COLL_ALL_REDUCE | 1u << COLL_REDUCE)
#define COLL_COPIES ((1u << COLL_KINDS) - 1 - COLL_FOLDS)
#define COLL_SWAPS (1u << COLL_EXCHANGE)

/*
 * The way that the data takes.
 * COLL_BY_SLOTS: with the hello, through slots. No peer's buffer is touched; a block is no larger than a slot has room for.
 * COLL_AT_PEERS: ranks load from each other's buffers, or store to them, after all have come and before any goes. Between processes the
 *	buffers lie in a stage, and the call is cut into parts.
 * COLL_BY_ENGINES: by copies from buffer to buffer that the host queues once all have come (spmt/collective/engine.h). No kernel runs.
 */
enum coll_way { COLL_BY_SLOTS, COLL_AT_PEERS, COLL_BY_ENGINES };

/*
 * One row an algorithm, in order of preference: the first that fits is taken.
 *	name	what SPMT_COLL calls it; its function is coll_<name> in <name>.c
 *	kinds	those it can do, one bit each
 *	way	as above
 *	gpu cpu	bytes of a block up to which it is preferred, where kernels run on GPUs and on CPUs
 *	grain	bytes that come through a rank for each thread block of the launch
 */
/* clang-format off */
#define COLL_LL_MOST (128u << 10) /* one phase costs twice the bytes and saves a meeting */
#define COLL_LL_TOGETHER (1u << 20) /* that go to all others: up to so many it is preferred as well */
#define COLL_LL_THREADS 512 /* of a block, the most: as src/kernels/images.py has it */
#define COLL_LL_FOLDS 128   /* blocks, the most, where the comm has the device */
#define COLL_LL_COPIES 64
#define COLL_LL12_LEAST (96u << 10) /* bytes that go to all others: with more it is preferred to `ll`, .. */
#define COLL_LL12_TWICE (192u << 10) /* .. of an all_reduce, which has two phases, with more than these, .. */
#define COLL_LL12_MOST (4u << 20) /* .. up to so many of all blocks of a rank; of a permute's half */
#define COLL_LL12_BLOCKS 128
#define COLL_LL12_HALF (2u << 20) /* bytes that come through a rank: up to so many half of a GPU's units do .. */
#define COLL_HALF_LEAST 48	  /* .. if they are so many */
#define COLL_LL12_THREADS 512 /* as COLL_LL_THREADS */
#define COLL_BLOCKS_RANKS 8 /* the most among which every block meets; in twoshot a thread has a load from each in flight */
#define COLL_TWOSHOT_THREADS 512     /* as COLL_LL_THREADS */
#define COLL_PUSH2_LEAST (4ull << 20) /* bytes of all blocks of a rank, from which on it is preferred */
/* with kernels of their own */
#define COLL_TABLE_OWN(X)                                                                                \
	/* name    kinds                     way            gpu         cpu         grain */             \
	X(ll12,    (COLL_COPIES & ~COLL_SWAPS) | COLL_FOLDS, COLL_BY_SLOTS, COLL_LL12_MOST, 0, 8u << 10) \
	X(ll,      COLL_COPIES | COLL_FOLDS, COLL_BY_SLOTS, COLL_LL_MOST, 64,       4u << 10)            \
	X(push2,   COLL_FOLDS & ~(1u << COLL_REDUCE), COLL_AT_PEERS, UINT64_MAX, 0, 16u << 10)           \
	X(twoshot, COLL_FOLDS,               COLL_AT_PEERS, UINT64_MAX,  0,          16u << 10)           \
	X(give,    COLL_COPIES & ~COLL_SWAPS, COLL_AT_PEERS, UINT64_MAX, 0,         16u << 10)
/* with one for all */
#define COLL_TABLE_SHARED(X)                                                                             \
	X(pushed,  COLL_COPIES | COLL_FOLDS, COLL_BY_SLOTS, 64u << 10,  64,         4u << 10)            \
	X(copy,    COLL_COPIES & ~COLL_SWAPS, COLL_AT_PEERS, 0,          0,          UINT32_MAX)         \
	X(direct,  COLL_COPIES & ~COLL_SWAPS, COLL_AT_PEERS, UINT64_MAX, UINT64_MAX, 16u << 10)          \
	X(swap,    COLL_SWAPS,               COLL_AT_PEERS, UINT64_MAX, UINT64_MAX, 16u << 10)           \
	X(reduce,  COLL_FOLDS,               COLL_AT_PEERS, UINT64_MAX, UINT64_MAX, 16u << 10)
/* with a kernel */
#define COLL_TABLE(X) COLL_TABLE_OWN(X) COLL_TABLE_SHARED(X)
/* with none: before all others in preference, from COLL_ENGINE_LEAST on */
#define COLL_ENGINE_LEAST (128ull << 20) /* bytes of all blocks of a rank */
#define COLL_TABLE_HOST(X)                                                                               \
	X(engine,  COLL_COPIES & ~COLL_SWAPS, COLL_BY_ENGINES, UINT64_MAX, 0,       UINT32_MAX)
/* clang-format on */

enum coll_number {
#define X(name, kinds, way, gpu, cpu, grain) COLL_ROW_##name,
	COLL_TABLE(X)
#undef X
		COLL_KERNEL_ROWS,
	COLL_BEFORE_HOST = COLL_KERNEL_ROWS - 1,
#define X(name, kinds, way, gpu, cpu, grain) COLL_ROW_##name,
	COLL_TABLE_HOST(X)
#undef X
		COLL_ROWS
};

static inline enum coll_way coll_way(int number)
{
	const unsigned by_slots = 0 /* a bit for each row */
#define X(name, kinds, way, gpu, cpu, grain) | ((way) == COLL_BY_SLOTS ? 1u << COLL_ROW_##name : 0)
		COLL_TABLE(X);
#undef X

	return by_slots >> number & 1 ? COLL_BY_SLOTS : COLL_AT_PEERS;
}

/* Who gives and who gets, seen from one rank; ranks are counted round. Permute: one or none, either way. A rank that gives to itself is the
   first of those that it gives to, and of those that give to it. */
struct coll_moves {
	int32_t to, tos;     /* `tos` ranks from `to` on get this rank's data */
	int32_t from, froms; /* whose data comes here */
	/* 1: the buffer has a block for each rank; 0: it is one block */
	int32_t src_blocks, dst_blocks;
	int32_t folds; /* what comes makes one block, by an op */
};

#if !defined(__AMDGCN__) && !defined(__NVPTX__)

enum coll_among { COLL_ALL_TO_EACH, COLL_ROOT_TO_ALL, COLL_ALL_TO_ROOT, COLL_ONE_TO_ONE };

struct coll_kind {
	const char *call;
	enum coll_among among;
	bool src_blocks, dst_blocks, folds; /* as of struct coll_moves */
	bool in_place; /* src and dst may be one where what is the same in both has the same place */
	bool breaks;   /* calls that differ break the comm */
};
extern const struct coll_kind coll_kinds[COLL_CALLS];

/* root: the one rank that gives or gets; of a permute, whose data comes here, as `to` is who gets this rank's: -1 if none. */
struct coll_moves coll_moves(enum kernel_collective_kind kind, int pe, int npes, int root, int to);

struct coll_row {
	const char *name;
	uint32_t kinds;
	enum coll_way way;
	uint64_t gpu, cpu;
	uint32_t grain;
};
extern const struct coll_row coll_rows[COLL_ROWS];

#include "choose.h"

#endif
#endif
