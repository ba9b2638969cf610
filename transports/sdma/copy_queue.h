/* SPDX-License-Identifier: MIT */
/*
 * Copy queues: streams kept for copies alone, some for each pair (device that issues, device at the other end) of a backend, and,
 * where SPMT_SDMA asks for them, user-mode queues of a copy engine (ring.h), one beside each stream.
 *
 * The copy queues of a process live in one map, shared by all its worlds: made by the first link that asks for the pair, freed with
 * the last one that lets go. The map has a lock; a link asks once and holds the pointer, so that moves take no lock.
 */
#ifndef SPMT_COPY_QUEUE_H
#define SPMT_COPY_QUEUE_H

#include <stdatomic.h>

#include "ring.h"

#define COPY_QUEUE_TRACKS 8 /* most streams a copy queue may have */

/* A stream that failed. Kept while its copy queue lives, because some link may be about to submit to it. */
struct retired {
	struct retired *next;
	device_stream stream;
};

struct copy_queue {
	struct copy_queue *next;
	const struct backend *backend;
	int src, dst, ntracks;
	_Atomic unsigned refs; /* links */
	struct retired *retired;
	_Atomic uint64_t issued; /* moves of all links; only rises */
	_Atomic(device_stream) tracks[COPY_QUEUE_TRACKS];
	struct sdma_ring *rings[COPY_QUEUE_TRACKS]; /* NULL: the stream takes all */
	char why[DEVICE_REASON];		    /* why rings that were wanted are not there */
};

/* Makes the copy queue if there is none (with `ntracks` streams), and takes a reference, which copy_queue_drop gives back. */
int copy_queue_get(
	const struct backend *b, int src, int dst, int ntracks, struct copy_queue **queue);
/* The last one destroys the streams; what is queued in them still runs. */
void copy_queue_drop(struct copy_queue *q);

/* Puts a fresh stream in the place of `dead`, unless somebody has done so. `dead` stays valid as long as the copy queue. */
int copy_queue_renew(struct copy_queue *q, int track, device_stream dead);

/* True in a forked child, of a copy queue of its parent's: no op may be called on its streams. */
bool copy_queue_inherited(const struct copy_queue *q);

/* One reservation a move: the track it goes to. Lock-free. */
static inline int copy_queue_reserve(struct copy_queue *q)
{
	uint64_t ticket = atomic_fetch_add_explicit(&q->issued, 1, memory_order_relaxed);

	return (int)(ticket % (unsigned)q->ntracks);
}

/* True while other links use it too. */
static inline bool copy_queue_shared(const struct copy_queue *q)
{
	return atomic_load_explicit(&q->refs, memory_order_relaxed) > 1;
}

size_t copy_queues_live(void);

#endif
