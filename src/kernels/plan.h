/* SPDX-License-Identifier: MIT */
/* What the executor of plans is given; part of kernels.h, behind the view. */
#ifndef SPMT_KERNELS_PLAN_H
#define SPMT_KERNELS_PLAN_H

#include "../../include/spmt_device.h"

/*
 * A plan (spmt/plan): its steps, a list for each block of the grid, in memory that also holds what its ranks tell each other: symmetric, or of
 * a row at one place of all ranks' library areas. `at` is this rank's; the rest are offsets in it: blocks + 1 times where a block's
 * list begins, the steps, their places; u64 words of the plan; then scratch, and packets, twice as long. A launch posts what this rank calls;
 * behind a barrier the next one compares it with the others' and runs. As a row of the collectives it is one launch, which meets the others
 * as these do: they compare the calls, and tell each rank where the others' inputs and outputs are, which need not be symmetric then.
 */
enum plan_step_kind {
	PLAN_STEP_COPY, /* place 1 to place 0, either of them another rank's */
	PLAN_STEP_FOLD, /* the places behind the first `ndst`, in this order, to each of these */
	PLAN_STEP_FOLD_PACKETS, /* likewise, where the first of each are plain and the others packets: of this rank those that are read */
	PLAN_STEP_PACK,		/* place 1 to place 0, as packets */
	PLAN_STEP_UNPACK,	/* place 1, packets of this rank, to place 0 */
	PLAN_STEP_FORWARD,	/* place 1, packets of this rank, to place 0, packets */
	PLAN_STEP_SIGNAL,	/* word `word` of rank `peer` */
	PLAN_STEP_WAIT,	  /* word `word`, what was taken of it in the next; begins with `initial` */
	PLAN_STEP_BARRIER /* word `word`, of `initial` blocks */
};
/* PLAN_MEETS_ALL: where steps meet nowhere by themselves (plan_packets.c). PLAN_MEETS_TOLD: if they have not before, as it is the first step that
   touches what another rank tells. */
enum plan_meets { PLAN_MEETS = 1, PLAN_MEETS_ALL = 2, PLAN_MEETS_TOLD = 4 };
enum plan_space { PLAN_SPACE_INPUT, PLAN_SPACE_OUTPUT, PLAN_SPACE_SCRATCH, PLAN_SPACE_PACKETS };
struct plan_step_place {
	uint32_t rank, space, index;
	uint32_t step; /* whose it is */
};
struct plan_step {
	uint32_t kind, places, n; /* the first of so many places, */
	uint32_t ndst;		  /* of which so many are written */
	uint32_t chunks, slice, slices;
	uint32_t peer, word, initial;
	uint32_t relaxed;
	uint32_t meets; /* the block's threads meet before it: enum plan_meets */
	uint64_t found; /* of a list that is kept: bytes that it moves, or where its word is */
};
/* Where a block's list begins; the next one's beginning is its end. */
struct plan_first {
	uint32_t step, place;
};
/* What ranks pass to a run, in the order in which a difference is told. What does not matter is 0. */
enum plan_argument { PLAN_OPEN, PLAN_COUNT, PLAN_OP, PLAN_DST, PLAN_SRC, PLAN_ARGUMENTS };
struct plan_words {
	uint64_t epoch;	 /* runs so far; on the device, so that graphs replay */
	uint64_t key;	 /* what the rank calls in it: these, and the type */
	uint64_t copied; /* as a row: blocks that have ever copied their part of an input */
	uint64_t passed[PLAN_ARGUMENTS];
};
/* A key that shows one argument where others are folded: from the top 9 bits of the key, 1 that says that it is not folded, 3 that name the
   argument, its value. */
#define PLAN_VALUE_BITS 51
static inline uint64_t plan_shown(uint64_t key, int argument, uint64_t value)
{
	key = key >> 55 << 55 | (uint64_t)argument << PLAN_VALUE_BITS;
	return key | (value & ((1ull << PLAN_VALUE_BITS) - 1));
}
/* Where a plan's memory and its buffers are, and what it folds. */
struct plan_given {
	uint64_t at, dst, src, report;
	uint64_t steps, places, words, scratch, packets;
	/* bytes from one set to the other, by epoch; of scratch as a row alone, 0: there is one set */
	uint64_t other_packets, other_scratch;
	uint64_t chunk;	     /* bytes */
	int32_t type, op;    /* enum spmt_type, enum spmt_op */
	int32_t blocks, row; /* blocks of this rank; not 0: as a row */
};
struct kernel_plan_args {
	struct spmt_view view;
	struct plan_given plan;
	uint64_t key, passed[PLAN_ARGUMENTS];
	int32_t posts, unused; /* not 0: says what this rank calls */
};
#endif
