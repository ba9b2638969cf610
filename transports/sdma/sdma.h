/* SPDX-License-Identifier: MIT */
/*
 * Mover `sdma`: copy engines, through the copy queues of sdma/copy_queue.h.
 *
 * put, get    NBI returns before the bytes have moved, unless 4096 are in flight on one stream: then it waits; BLOCKING is submit and wait. STREAM copies in the caller's own stream and
 *             leaves the copy queue alone.
 * fence       waits for the link's own moves: streams are not ordered with the stores of the CPU or of other engines.
 * quiet       the same, and reports the first of its own moves that failed; never another link's, though their streams are
 *             shared: what lies behind a failure in a stream is made again in another.
 * close       waits for the link's own moves, in a broken world too.
 * SPMT_SDMA   queues: a move goes into a ring that the engine reads from user space (ring.h), where there is one, it reaches both
 *             ranges by itself and they do not overlap; the rest, and all once that engine has stopped, into a stream.
 * no queue    the first move that finds none makes the link fall back to the store mover (link_route() says why) and succeeds.
 */
#ifndef SPMT_SDMA_H
#define SPMT_SDMA_H

#include "transports/transport.h"

/* For tests and tools. Stream i of the link's copy queue, which stays the copy queue's; -ENOENT without a sentence if there is none. */
int sdma_stream(const struct link *link, int i, device_stream *stream);
/* The link's moves that no wait has seen done. */
uint64_t sdma_pending(const struct link *link);

#endif
