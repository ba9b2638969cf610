/* SPDX-License-Identifier: MIT */
/* What the executor of plans is given; part of kernels.h, behind the view. */
#ifndef SPMT_KERNELS_PLAN_H
#define SPMT_KERNELS_PLAN_H

#include "../../include/spmt_device.h"

/*
 * A plan (spmt/plan): its steps, a list for each block of the grid, in memory that also holds what its ranks tell each other: symmetric, or of
 * a row at one place of all ranks' library areas. `at` is
 * this rank's; the rest are offsets in it: u32 first[blocks + 1], the steps, their places; u64 words of the plan; then scratch, what comes
 * out of packets before it is folded, and packets, twice as long. A launch posts what this rank calls; behind a barrier the next one
 * compares it with the others' and runs. As a row of the collectives it runs between two of them that move nothing: these compare
 * the calls, and tell each rank where the others' inputs and outputs are, which need not be symmetric then.
 */
enum plan_launch { PLAN_LAUNCH_RUN, PLAN_LAUNCH_POST, PLAN_LAUNCH_ROW };
enum plan_step_kind {
	PLAN_STEP_COPY,	   /* place 1 to place 0, either of them another rank's */
	PLAN_STEP_FOLD,	   /* places 1 on, in this order, to place 0 */
	PLAN_STEP_PACK,	   /* place 1 to place 0, as packets */
	PLAN_STEP_UNPACK,  /* place 1, packets of this rank, to place 0 */
	PLAN_STEP_FORWARD, /* place 1, packets of this rank, to place 0, packets */
	PLAN_STEP_SIGNAL,  /* word `word` of rank `peer` */
	PLAN_STEP_WAIT,	  /* word `word`, what was taken of it in the next; begins with `initial` */
	PLAN_STEP_BARRIER /* word `word`, of `initial` blocks */
};
enum plan_space {
	PLAN_SPACE_INPUT,
	PLAN_SPACE_OUTPUT,
	PLAN_SPACE_SCRATCH,
	PLAN_SPACE_LANDING,
	PLAN_SPACE_PACKETS
};
struct plan_step_place {
	uint32_t rank, space, index;
};
struct plan_step {
	uint32_t kind, places, n; /* the first of so many places */
	uint32_t chunks, slice, slices;
	uint32_t peer, word, initial, relaxed;
};
struct plan_words {
	uint64_t epoch; /* runs so far; on the device, so that graphs replay */
	uint64_t key;	/* what the rank calls in it */
	uint64_t unused[6];
};
struct kernel_plan_args {
	struct spmt_view view;
	uint64_t at, dst, src, key, report;
	uint64_t steps, places, words, scratch, landing, packets;
	uint64_t chunk;		/* bytes */
	int32_t type, op;	/* enum spmt_type, enum spmt_op */
	int32_t blocks, launch; /* blocks of this rank; enum plan_launch */
};

#endif
