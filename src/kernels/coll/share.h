/* SPDX-License-Identifier: MIT */
/* What the host works out of a call, so that its kernels need not. */
#ifndef SPMT_KERNELS_SHARE_H
#define SPMT_KERNELS_SHARE_H

#include <stdint.h>

/* How a call's units of 16 bytes are divided: among ranks, and in thread blocks. */
struct coll_share {
	uint64_t each; /* of a block's units for each rank, and one more for the first `over` */
	uint32_t over;
	uint32_t units;	     /* of a block for each thread block, by slots */
	uint32_t rows, rest; /* threads / units, threads % units */
	uint32_t scale;	     /* n * scale >> 20 is n / units, n: a thread's number */
	uint16_t blocks, threads;
};
/* Where in a library area (src/kernels/area.h) struct area and the slots begin; where the stage of row push2 does, 0: there is none, and units of a
   piece of it. */
struct coll_places {
	uint32_t area, slots, stage, piece;
};
/* Pieces of that for each block and writer; bits of a word that counts them, below the epoch, for one block terabytes; units that a thread
   has under way. */
#define PUSH2_PIECES 4
#define PUSH2_EPOCH 28
#define PUSH2_AT_ONCE 4

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
/* Of `bytes`, for `blocks` thread blocks of `threads` threads, 1024 at most. */
struct coll_share coll_share(uint64_t bytes, int npes, uint32_t blocks, uint32_t threads);
struct coll_places coll_places(int npes);
#endif

#endif
