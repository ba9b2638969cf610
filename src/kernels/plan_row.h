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
	uint32_t rounds; /* in which a block's threads have plan_packets_each() each, at most */
	struct plan_packets_step step[PLAN_PACKETS_STEPS + 1]; /* behind the last one any */
	uint8_t odd; /* not 0: data does not lie aligned to words of 4 bytes */
	uint8_t unused[5];
	uint64_t at[PLAN_PACKETS_PLACES];
};
struct kernel_plan_packets_args {
	struct kernel_plan_row_args row; /* by which the host runs it */
	struct plan_packets packets;
};
#pragma GCC diagnostic pop

/* A kernel for copies, and one for each loop that folds. X(name). */
#define PLAN_PACKETS_KERNELS(X) X(copy) COLL_PUSH2_KERNELS(X)
enum { PLAN_PACKETS_EACH = 3 }; /* packets of a step that a thread has in a round, the most */

/*
 * Bytes of data in a packet of 16. Where these arrive at once, as struct coll_case's `whole` has it, it has 12 below one flag, if elements are
 * words or less; else twice 4, each below its own. All ranks have the same.
 */
struct plan_packets_way {
	int brief;     /* a thread has a packet of each step at the most, which is narrow */
	uint32_t size; /* bytes of data in a packet; 0: the call is to run as any other plan */
};
enum { PLAN_PACKETS_NARROW = 8, PLAN_PACKETS_WIDE = 12 };
static inline uint32_t plan_packets_size(int whole, uint32_t element)
{
	return whole && element <= 4 ? PLAN_PACKETS_WIDE : PLAN_PACKETS_NARROW;
}
/* With three narrow ones AMD's kernels of halves put registers into memory. */
static inline uint32_t plan_packets_each(struct plan_packets_way way)
{
	return way.brief ? 1 : way.size == PLAN_PACKETS_WIDE ? PLAN_PACKETS_EACH : 2;
}
/* What the wide packets of a warp have are three lines of its threads' words; the last warp of a block may have fewer packets, some of them of 1 or 2 words. */
enum { PLAN_PACKETS_WARP = 32, PLAN_PACKETS_LINE = 4 * PLAN_PACKETS_WARP };
/* The first word of packet k, and how many it has of so many, the others a line further on each. */
static inline uint32_t plan_packets_first(uint32_t k)
{
	return 3 * k - 2 * (k % PLAN_PACKETS_WARP);
}
static inline uint32_t plan_packets_words(uint32_t k, uint32_t words)
{
	uint32_t first = plan_packets_first(k), left = first < words ? words - first : 0;

	return left > 2 * PLAN_PACKETS_WARP ? 3 : left > PLAN_PACKETS_WARP ? 2 : left > 0;
}
/* How many packets so many words are. */
static inline uint32_t plan_packets_of(uint32_t words, uint32_t size)
{
	uint32_t warps = words / (3 * PLAN_PACKETS_WARP);
	uint32_t rest = words - warps * (3 * PLAN_PACKETS_WARP);

	if (size != PLAN_PACKETS_WIDE)
		return words / 2;
	return warps * PLAN_PACKETS_WARP + (rest < PLAN_PACKETS_WARP ? rest : PLAN_PACKETS_WARP);
}

extern const struct kernel kernel_plan_row;
#define X(name) \
	extern const struct kernel kernel_plan_packets_##name, kernel_plan_packets_brief_##name;
PLAN_PACKETS_KERNELS(X)
#undef X
#if !defined(__AMDGCN__) && !defined(__NVPTX__)
/* folds: some step does. brief: as above. */
const struct kernel *kernel_of_plan_packets(int type, bool folds, bool brief);
#endif

#endif
