/* SPDX-License-Identifier: MIT */
/*
 * What one launch is asked to do. `struct place`, what a library has to know, is defined before this
 * file is included. No vendor header.
 */
#ifndef COMPARE_JOB_CUH
#define COMPARE_JOB_CUH

#define COMPARE_MAX_PES 16

/* In job.words: signals of the ping-pong, slots of the raw barrier, targets of atomics or the packets of two turns. */
enum {
	PACKETS_MOST = 65536, /* bytes of data: half of what packets are */
	WORDS_SIGNAL = 0,
	WORDS_SYNC = 64,
	WORDS_AMO = 1024,
	WORDS_ALL = WORDS_AMO + 2 * 2 * PACKETS_MOST / 8
};

struct job {
	struct place place;
	char *dst, *src; /* symmetric, this rank's */
	uint64_t *words; /* symmetric, this rank's */
	/* Call i works on `size` bytes at i * step, back to 0 at `window`. */
	uint64_t size, step, window;
	uint64_t base; /* signals and epochs of this launch are above it */
	uint32_t iters;
	int32_t pe, npes, peer;
	int32_t *code; /* first failure of a wait */
};

#endif
