/* SPDX-License-Identifier: MIT */
/* What the kernels of fused.c take: each worker (thread, warp or block) works with its like of the other ranks. */
#ifndef TESTS_GPU_FUSED_H
#define TESTS_GPU_FUSED_H

#include "kernels.h"

/* ---- packets: rounds in which all put to all, or that go round the ring ----------------------- */

enum packets_form { PACKETS_TO_ALL, PACKETS_ROUND_THE_RING, PACKETS_FORMS };

/* Packets of 16 bytes; of 8; of 16 that each thread fills, moves and checks by itself, without any meeting; lines. */
enum packets_format { PACKETS_WIDE, PACKETS_NARROW, PACKETS_EACH, PACKETS_LINES, PACKETS_FORMATS };

/* Each worker has, in symmetric memory, 2 x npes places for `words` words as packets or lines; a buffer to send from and one to
   unpack into. */
struct packets_args {
	struct spmt_view view;
	uint64_t places, buffers, unpacked, outcome;
	uint64_t words, rounds, done; /* rounds of earlier launches */
	uint64_t place;		      /* bytes, a multiple of 128 */
	int32_t scope, form, format, unused;
};

/* ---- sessions: rounds of stores to all, a meeting by index, a look ---------------------------- */

/* Each worker has 2 x npes words in symmetric memory; its index is its session. */
struct sessions_args {
	struct spmt_view view;
	uint64_t slots, outcome;
	uint64_t rounds, done;
	int32_t scope, sync; /* sync: quiet and sync_at; else barrier_at */
};

/* ---- collectives, in a session a worker -------------------------------------------------------- */

/* Each worker has npes x words words of 4 bytes to give, and as many for what comes, in symmetric memory. */
struct together_args {
	struct spmt_view view;
	uint64_t src, dst, outcome;
	uint64_t words, rounds;
	int32_t scope;
};

/* ---- waits for some of many words, by warp and block ------------------------------------------- */

enum { CHOICES = 100, CHOICES_HOLD = (CHOICES + 2) / 3 };

/* words: CHOICES, every third of them 1, the others 0; cells: one a thread. By one warp or block. */
struct choices_args {
	struct spmt_view view;
	uint64_t words, cells, outcome, rounds;
	int32_t scope;
};

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
extern const struct test_kernel test_packets, test_sessions, test_together, test_choices;
#endif

#endif
