/* SPDX-License-Identifier: MIT */
/* Units on their way to a peer: two pieces each, and where in a slot they lie. */
#ifndef SPMT_KERNELS_SLOT_UNIT_H
#define SPMT_KERNELS_SLOT_UNIT_H

#include "slot.h"

/* A unit as it lies in a slot. */
struct slot_unit {
	struct spmtd_unit_ lo, hi;
};

/*
 * Of units that lie together come first the even pieces, then the odd ones: what a warp stores, or looks at, in one instruction are whole
 * lines. 1 << unit_group(room) lie together, if slots have room for a multiple of so many, else each alone.
 */
#define UNIT_GROUP 5u
#define UNITS_TOGETHER (2 * PIECE << UNIT_GROUP) /* bytes of data */

static inline uint32_t unit_group(uint32_t room)
{
	return room % UNITS_TOGETHER ? 0 : UNIT_GROUP;
}

struct unit_place {
	uint64_t even, odd;
};

static inline struct unit_place unit_place(uint64_t slot, uint64_t k, uint32_t group)
{
	uint64_t even = slot + PIECE_IN_SLOT * ((k >> group << group) + k);

	return (struct unit_place){ even, even + (PIECE_IN_SLOT << group) };
}

static inline struct slot_unit slot_unit_peek(struct unit_place at)
{
	struct slot_unit s = { slot_peek(at.even), slot_peek(at.odd) };

	return s;
}

static inline int slot_unit_is_whole(const struct slot_unit *s, const struct slot_flags *f)
{
	return piece_is_whole(s->lo, f->lo) && piece_is_whole(s->hi, f->hi);
}

static inline union unit slot_unit_data(const struct slot_unit *s)
{
	union unit u = { .words = { piece_data(s->lo), piece_data(s->hi) } };

	return u;
}

/* Of pieces that lie in their order. */
static inline union unit unit_arrived(uint64_t slot, uint64_t k)
{
	struct slot_unit s = slot_unit_peek(unit_place(slot, k, 0));

	return slot_unit_data(&s);
}

#endif
