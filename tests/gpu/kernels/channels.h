/* SPDX-License-Identifier: MIT */
/* What the kernels of channel.c take. */
#ifndef TESTS_GPU_CHANNELS_H
#define TESTS_GPU_CHANNELS_H

#include "kernels.h"

/* ---- channels round a ring, each worker by two of its own -------------------------------------- */

enum { CHANNELS_WORKERS = 32 };

/* Each worker has 4 places of `words` words in symmetric memory: its own, what comes, what it gets; the sums. */
struct channels_args {
	struct spmt_view view;
	uint64_t
		channels; /* struct spmt_channel: a worker's to the next rank and to the previous one, side by side */
	uint64_t places, packets, outcome;
	uint64_t words, rounds, done; /* rounds of earlier launches */
	int32_t scope;
};

/* ---- a signal there and back, by one thread of each of two ranks ------------------------------- */

struct pingpong_args {
	struct spmt_view view;
	struct spmt_channel other;
	uint64_t outcome, rounds;
	int32_t relaxed;
};

/* ---- switch channels --------------------------------------------------------------------------- */

/* By one group of blocks: a rank's `words` words, then room for the sums and for what is broadcast. */
struct switches_args {
	struct spmt_view view;
	struct spmt_switch all;
	uint64_t outcome, words, rounds;
};

/* ---- bulk copies by one warp or thread of each block ------------------------------------------- */

enum { BULK_CHUNK = 8192, BULK_STAGES = 4 };

/* Each block copies `bytes` of its place in src to the next rank's dst, as far off as `odd` says; both are symmetric. */
struct bulk_args {
	struct spmt_view view;
	uint64_t src, dst, outcome;
	uint64_t place, bytes, odd;
	int32_t warp, many;
};

/* ---- bulk reductions, likewise ------------------------------------------------------------------ */

enum { FOLD_INT32, FOLD_FLOAT, FOLD_HALF, FOLD_TYPES };

/* As bulk_args, but that `odd` counts elements. */
struct bulk_folds_args {
	struct spmt_view view;
	uint64_t src, dst, outcome;
	uint64_t place, bytes, odd;
	int32_t warp, fold; /* fold: FOLD_INT32, .. */
};

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
extern const struct test_kernel test_channels, test_pingpong, test_switches, test_bulk,
	test_bulk_folds;
#endif

#endif
