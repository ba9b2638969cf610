/* SPDX-License-Identifier: MIT */
/*
 * An SDMA engine in software: reads packets from a queue's ring and does what they say, in their order. It refuses what an engine
 * would, or would do wrong in silence: unknown packets, bits that are not zero and have to be, words that are not aligned, lengths
 * beyond the format's, copies that overlap themselves, packets that are torn by the doorbell or by the end of the ring, addresses
 * that the device does not reach, a doorbell that is ahead of the write pointer.
 */
#ifndef SPMT_SDMA_ENGINE_H
#define SPMT_SDMA_ENGINE_H

#include "queue.h"

struct sdma_engine {
	struct sdma_queue *queue;
	int dev;
	/* Whether a packet of dev's may touch these bytes; any thread. */
	bool (*reach)(int dev, const void *ptr, size_t n);
	void (*move)(void *dst, const void *src, size_t n);
};

/*
 * One packet, with `end` the doorbell's value: 1 done, and *read is behind it; 0 nothing to do, or a poll that waits; below 0: it
 * is refused, and the queue's error says so from now on.
 */
int sdma_engine_step(const struct sdma_engine *e, uint64_t end);

#endif
