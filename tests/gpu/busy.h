/* SPDX-License-Identifier: MIT */
/* A kernel that keeps a device's multiprocessors until it is told to end, in a stream of its own; on the host backend a thread. */
#ifndef TESTS_GPU_BUSY_H
#define TESTS_GPU_BUSY_H

#include "gpu.h"

enum { BUSY_THREADS = 512, BUSY_BLOCKS_MOST = (64 << 10) - 8 };

struct busy {
	struct rank *r;
	spmt_stream stream, stop;
	uint64_t *words,
		*words_dev; /* pinned: what ends it, and a word for each block that has begun */
	void *end;	    /* of the device: the word that ends it */
};

int busy_open(struct busy *b, struct rank *r);
void busy_close(struct busy *b);
int busy_clear(struct busy *b); /* before it begins; waits for the rank's stream */
int busy_begin(struct busy *b, unsigned blocks);
unsigned busy_seen(const struct busy *b); /* blocks that have begun */
int busy_end(struct busy *b);

#endif
