/* SPDX-License-Identifier: MIT */
/* How many of each thing the library area has, and its words by which ranks, or their blocks one by one, let go of each other's buffers. */
#ifndef SPMT_KERNELS_AREA_WORDS_H
#define SPMT_KERNELS_AREA_WORDS_H

#include <stdint.h>

#define AREA_LINE 64u
/* Barrier sessions: more than any GPU has units that run blocks. */
#define AREA_SESSIONS 320u
/* Channels to each peer, and as many ports. */
#define AREA_CHANNELS 64u

/* By which a rank lets go of another's buffers, or one block of it does. */
struct area_words {
	/* twice the writer's collective epoch: it is through with this rank; odd: it has given up */
	uint64_t done;
	/* twice the collective epoch that the writer has taken back, one more: that may touch its
	   buffers */
	uint64_t turn;
};

struct area_inbox {
	struct area_words words;
	uint64_t src, dst; /* the writer's buffers, addresses as valid in this process */
	/* by parity of the writer's collective epoch: what it called, folded, in halves below
	   area_flag(epoch) */
	uint64_t hello[2][2];
};

/* Where each block meets by itself: the most blocks, and the most in a lane. The first block's words are those of the inbox. */
#define AREA_BLOCKS 128u
#define AREA_LANE_BLOCKS 8u
struct area_blocks {
	/* how many the writer's launch has, told with the hello, by parity of its collective epoch: it may be in the next one before
	   this rank has seen that it is through with this one */
	uint64_t blocks[2];
	struct area_words further[AREA_LANE_BLOCKS - 1];
};
struct area_more_blocks {
	struct area_words further[AREA_BLOCKS - AREA_LANE_BLOCKS];
};
_Static_assert(sizeof(struct area_blocks) % AREA_LINE == 0 &&
		sizeof(struct area_more_blocks) % AREA_LINE == 0,
	"no two writers share a line");

#endif
