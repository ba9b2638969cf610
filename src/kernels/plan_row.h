/* SPDX-License-Identifier: MIT */
/* The kernel that runs a plan as a row of the collectives. */
#ifndef SPMT_KERNELS_PLAN_ROW_H
#define SPMT_KERNELS_PLAN_ROW_H

#include "kernels.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
/*
 * `apart`: ranks touch nothing of each other's but packets and words, which are the library's: no rank waits for the others at its end, as by
 * slots. `closed`: nor where a rank has waited for signals of all that have touched its memory. The input, `bytes` of it, is to be copied
 * first where `from` is not `to`, where the plan finds it.
 */
struct kernel_plan_row_args {
	struct kernel_collective_args same;
	struct plan_given plan;
	uint64_t from, to, bytes;
	int32_t apart, closed;
};
/*
 * The same of a plan of packets alone whose blocks all do the same, each with its slice: the steps that a block has, where they find everything,
 * and what of it is a block's, so that nothing has to be looked up. `at`: the places of all steps, in their order, packets in even epochs.
 */
enum { PLAN_PACKETS_STEPS = 16, PLAN_PACKETS_PLACES = 48 };
struct plan_packets_step {
	uint8_t kind, ndst, n; /* enum plan_step_kind, and places */
	uint8_t first, meets;  /* of the places; enum plan_meets */
	uint8_t unused;
};
struct plan_packets {
	uint64_t other;	       /* bytes from one set of packets to the other */
	uint64_t bytes;	       /* that each step moves in all blocks */
	uint32_t lines, more;  /* of which a block has so many lines, the first `more` one more */
	uint32_t leads, steps; /* leads: of them, the first, which send what the rank has itself */
	uint32_t rounds;       /* in which a block's threads have PLAN_PACKETS_EACH each, at most */
	struct plan_packets_step step[PLAN_PACKETS_STEPS + 1]; /* behind the last one any */
	uint8_t unused[6];
	uint64_t at[PLAN_PACKETS_PLACES];
};
struct kernel_plan_packets_args {
	struct kernel_plan_row_args row; /* by which the host runs it */
	struct plan_packets packets;
};
#pragma GCC diagnostic pop

/* A kernel for copies, and one for each loop that folds. X(name). */
#define PLAN_PACKETS_KERNELS(X) X(copy) COLL_PUSH2_KERNELS(X)
enum { PLAN_PACKETS_EACH = 2 }; /* packets of a step that a thread has in a round */

extern const struct kernel kernel_plan_row;
#define X(name) extern const struct kernel kernel_plan_packets_##name;
PLAN_PACKETS_KERNELS(X)
#undef X
#if !defined(__AMDGCN__) && !defined(__NVPTX__)
/* folds: some step does. */
const struct kernel *kernel_of_plan_packets(int type, bool folds);
#endif

#endif
