/* SPDX-License-Identifier: MIT */
/*
 * Channels: streams kept for copies alone, some for each pair (device that issues, device at the other end) of a backend.
 *
 * The channels of a process live in one map, shared by all its worlds: made by the first link that asks for the pair, freed with
 * the last one that lets go. The map has a lock; a link asks once and holds the pointer, so that moves take no lock.
 */
#ifndef SPMT_CHANNEL_H
#define SPMT_CHANNEL_H

#include <stdatomic.h>

#include "src/device/device.h"

#define CHANNEL_LANES 8 /* most streams a channel may have */

/* A stream that failed. Kept while its channel lives, because some link may be about to submit to it. */
struct retired {
	struct retired *next;
	device_stream stream;
};

struct channel {
	struct channel *next;
	const struct backend *backend;
	int src, dst, nlanes;
	_Atomic unsigned refs; /* links */
	struct retired *retired;
	_Atomic uint64_t issued; /* moves of all links; only rises */
	_Atomic(device_stream) lanes[CHANNEL_LANES];
};

/* Makes the channel if there is none (with `nlanes` streams), and takes a reference, which channel_drop gives back. */
int channel_get(const struct backend *b, int src, int dst, int nlanes, struct channel **channel);
/* The last one destroys the streams; what is queued in them still runs. */
void channel_drop(struct channel *ch);

/* Puts a fresh stream in the place of `dead`, unless somebody has done so. `dead` stays valid as long as the channel. */
int channel_renew(struct channel *ch, int lane, device_stream dead);

/* True in a forked child, of a channel of its parent's: no op may be called on its streams. */
bool channel_inherited(const struct channel *ch);

/* One reservation a move: the lane it goes to. Lock-free. */
static inline int channel_reserve(struct channel *ch)
{
	uint64_t ticket = atomic_fetch_add_explicit(&ch->issued, 1, memory_order_relaxed);

	return (int)(ticket % (unsigned)ch->nlanes);
}

/* True while other links use it too. */
static inline bool channel_shared(const struct channel *ch)
{
	return atomic_load_explicit(&ch->refs, memory_order_relaxed) > 1;
}

size_t channels_live(void);

#endif
