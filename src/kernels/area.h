/* SPDX-License-Identifier: MIT */
/*
 * A rank's library area, at the end of its heap; its layout is fixed by npes and the room of a slot.
 * It begins with what users' kernels reach by the public header: struct spmtd_own, then npes struct
 * spmtd_inbox; in lines of their own, barrier sessions; words of channels: npes times AREA_CHANNELS of what has arrived
 * (index: the rank that writes), as many of what this rank has waited for (index: the peer); the same of ports. Behind them lies what the library alone uses: struct area,
 * npes struct area_inbox (index: the rank that writes), as many lines with the factors of pre-multiplied sums (fold/factor.h), npes struct
 * area_blocks, with which lanes' areas end, as many struct area_more_blocks, 2 * npes slots (parity of the epoch, the writer). Peers write,
 * the owner reads. Counters only rise, but where a kernel's sync takes its arrivals back.
 */
#ifndef SPMT_KERNELS_AREA_H
#define SPMT_KERNELS_AREA_H

#include "area_words.h"
#include "kernels.h"

/* This rank's; on the device, so that graphs replay. */
struct area {
	uint64_t coll_epoch;
	/* not 0: a collective or barrier in a stream has failed, and none takes place any more: its
	   code; in the upper half 1 + the rank that told */
	uint64_t error;
	uint64_t grid[4]; /* meeting points of one kernel's blocks: enum area_grid */
	uint64_t staged;  /* blocks of this launch that have filled their part of the stage */
	uint64_t unused;
};

/* How many blocks have ever been counted, in the upper 16 bits how many of them had failed; the same before this launch; how the
   last collective ended that did not well: its epoch, below it how; and the last one for which the peers
   were taken, below it whether that failed. */
enum area_grid { GRID_ENDED, GRID_BEFORE, GRID_HOW, GRID_TAKEN };

_Static_assert(sizeof(struct area) == AREA_LINE && sizeof(struct area_inbox) == AREA_LINE,
	"no two writers share a line");

/* In the upper half of words by which every collective tells of itself: never 0, and no other's among those before. */
static inline uint32_t area_flag(uint64_t epoch)
{
	return (uint32_t)epoch << 1 | 1;
}

/* Epochs after which the flags in slots (fold/slot.h) come again: half of them are of either set. */
#define AREA_TURN (1u << 16)

/* own: the address of a library area, of npes ranks. */
static inline uint64_t area_sessions(uint64_t own, int npes)
{
	uint64_t size =
		sizeof(struct spmtd_own) + (uint64_t)(uint32_t)npes * sizeof(struct spmtd_inbox);

	return own + (size + AREA_LINE - 1) / AREA_LINE * AREA_LINE;
}

static inline uint64_t area_channels(uint64_t own, int npes)
{
	return area_sessions(own, npes) + AREA_SESSIONS * spmtd_session_size_(npes);
}

/* How often `writer` has signalled through a channel, in the library area at `own`. */
static inline uint64_t area_arrived(uint64_t own, int npes, int writer, uint32_t index)
{
	return area_channels(own, npes) +
		((uint64_t)(uint32_t)writer * AREA_CHANNELS + index) * sizeof(uint64_t);
}

/* How often the rank of this area has waited for peer's signals. */
static inline uint64_t area_expected(uint64_t own, int npes, int peer, uint32_t index)
{
	return area_arrived(own, npes, npes + peer, index);
}

/* The same of ports. */
static inline uint64_t area_port_arrived(uint64_t own, int npes, int writer, uint32_t index)
{
	return area_arrived(own, npes, 2 * npes + writer, index);
}

static inline uint64_t area_port_expected(uint64_t own, int npes, int peer, uint32_t index)
{
	return area_arrived(own, npes, 3 * npes + peer, index);
}

static inline uint64_t area_begin(uint64_t own, int npes)
{
	return area_arrived(own, npes, 4 * npes, 0);
}

static inline struct area *area_at(uint64_t own, int npes)
{
	return (struct area *)spmtd_to_(area_begin(own, npes));
}

static inline struct area_inbox *area_inbox_at(uint64_t own, int npes, int writer)
{
	return (struct area_inbox *)(area_at(own, npes) + 1) + writer;
}

static inline struct area_blocks *area_blocks_at(uint64_t own, int npes, int writer)
{
	return (struct area_blocks *)area_inbox_at(own, npes, 2 * npes) + writer;
}

static inline struct area_more_blocks *area_more_blocks_at(uint64_t own, int npes, int writer)
{
	return (struct area_more_blocks *)area_blocks_at(own, npes, npes) + writer;
}

static inline struct area_words *area_words_at(uint64_t own, int npes, int writer, uint32_t block)
{
	if (!block)
		return &area_inbox_at(own, npes, writer)->words;
	if (block < AREA_LANE_BLOCKS)
		return &area_blocks_at(own, npes, writer)->further[block - 1];
	return &area_more_blocks_at(own, npes, writer)->further[block - AREA_LANE_BLOCKS];
}

static inline uint64_t area_slots(uint64_t own, int npes)
{
	return spmtd_at_(area_more_blocks_at(own, npes, npes));
}

/* `room` bytes of data in every slot, with a flag to every word. */
static inline uint64_t area_size(int npes, uint32_t room)
{
	return area_slots(0, npes) + 2 * 2 * (uint64_t)(uint32_t)npes * room;
}

/* Of the rank whose view it is. */
static inline struct area *area_of(const struct spmt_view *v)
{
	return area_at(spmtd_at_(v->own), v->npes);
}

static inline struct area_inbox *area_inbox(const struct spmt_view *v, int writer)
{
	return area_inbox_at(spmtd_at_(v->own), v->npes, writer);
}

/* The address of pe's library area, and this rank's inbox there. */
static inline uint64_t area_there(const struct spmt_view *v, int pe)
{
	return v->stride ? spmtd_there_(v, v->own, pe) : v->peers[pe].own;
}

static inline struct area_inbox *area_outbox(const struct spmt_view *v, int pe)
{
	return area_inbox_at(area_there(v, pe), v->npes, v->pe);
}

#endif
