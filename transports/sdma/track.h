/* SPDX-License-Identifier: MIT */
/*
 * A link's share of a copy queue: what it has in flight in each track, in order of submission. A move is in the track's stream, with
 * events on both sides, or in the ring beside it.
 */
#ifndef SPMT_SDMA_TRACK_H
#define SPMT_SDMA_TRACK_H

#include "copy_queue.h"
#include "src/base/status.h"
#include "transports/transport.h"

struct sdma_move {
	void *dst;
	const void *src;
	size_t n;
};

/* A move in flight. Events are made with the first use of a slot, and kept. */
struct track_slot {
	struct sdma_move move;
	device_event before, behind; /* recorded on both sides of the copy */
	bool guarded, marked;	     /* `before`, `behind` was recorded for this move */
	bool ringed;		     /* it is in the ring, at span */
	struct sdma_span span;
};

/* The moves from `done` to `issued` are in flight, move t in slots[t % room]. */
struct track {
	device_stream stream;
	struct sdma_ring *ring; /* NULL: the stream takes all */
	uint64_t issued, done;
	uint64_t last[2]; /* the last one in the stream, and in the ring */
	struct track_slot *slots;
	uint64_t room; /* power of two */
};

struct sdma {
	struct copy_queue *queue;
	int error; /* first failure since the last quiet */
	struct status_saved why;
	size_t most; /* bytes of one move */
	int ntracks;
	struct track tracks[];
};

static inline struct track_slot *track_slot(const struct track *track, uint64_t ticket)
{
	return &track->slots[ticket & (track->room - 1)];
}

/*
 * Waits for the link's moves in a track and forgets them; what failed is noted in st. -ETIMEDOUT, -ECANCELED: nothing changed. The
 * engine needs nobody, so it is waited for even in a broken world, as the caller takes its buffers back.
 */
int track_settle(struct link *link, struct sdma *st, int i, struct move_wait *wait);
/* Room for one more move: forgets those that are done, or grows, or waits. */
int track_room(struct link *link, struct sdma *st, int i, struct move_wait *wait);
/* Waits even in a broken world, for the engine and not for a rank, because the heaps are unmapped next. */
void lanes_drain(const struct link *link, const struct sdma *st);
/* Notes, for link_route(), that the link has fallen to other means, and says so. The first reason stays. */
void link_fall(struct link *link, enum link_fall fall, const char *why);

#endif
