/* SPDX-License-Identifier: MIT */
/*
 * Copies by packets in the ring of a user-mode queue (src/device/sdma). What is submitted at once is reserved at once: packets of the
 * copy, then one that says how far the engine has come, so that a ticket is a position: done once the queue's completed position has
 * reached it. Any thread, several at once; nobody waits for another thread, only for the engine where the ring is full.
 */
#ifndef SPMT_SDMA_RING_H
#define SPMT_SDMA_RING_H

#include "src/device/device.h"

struct sdma_ring {
	const struct device_sdma_ops *ops;
	struct sdma_queue *queue;
	size_t most; /* bytes of one copy: it takes at most a quarter of the ring */
	_Alignas(CACHE_LINE) _Atomic uint64_t reserved;
	_Atomic uint64_t doorbell; /* the doorbell's value */
	_Atomic bool telling;
	_Atomic uint64_t ends[]; /* of what begins at unit i of the ring and is written */
};

/* What was submitted at once, in positions. */
struct sdma_span {
	uint64_t begin, end;
};

int sdma_ring_open(const struct backend *b, int src, int dst, struct sdma_ring **ring);
/* What the engine has not begun is dropped. Takes NULL. */
void sdma_ring_close(struct sdma_ring *r);

/*
 * One submission of n bytes, 1 to most, that do not overlap. Where the ring is full, waits for the engine: -ETIMEDOUT or -ECANCELED
 * without a sentence, nothing submitted. The engine's code with its sentence if it has stopped.
 */
int sdma_ring_copy(struct sdma_ring *r, void *dst, const void *src, size_t n, int64_t timeout_ns,
	const uint32_t *stop, struct sdma_span *span);

/* 1 done, 0 not yet, or the engine's code with its sentence if it has stopped before. */
int sdma_ring_query(const struct sdma_ring *r, uint64_t ticket);
/* Whether the engine has stopped in this submission, and not before it. */
bool sdma_ring_culprit(const struct sdma_ring *r, const struct sdma_span *span);

#endif
