/* SPDX-License-Identifier: MIT */
/*
 * Three units on their way to a peer, which waits for nothing else: four pieces of 16 bytes, a quad, each of which has 12 of data below a
 * flag; the fourth has the last 4 bytes of each unit. On GPUs four threads have a quad, a piece each, and what is of other pieces they tell each
 * other; elsewhere a thread has all of it. Either is a part.
 *
 * A piece is stored, and arrives, as a whole: NVIDIA's GPUs access 16 aligned bytes at once (PTX says so of .b128 from sm_70 on, of which
 * ptxas makes the same instruction as of the vector of two that is written here); a CPU stores the half with the flag last, and loads it
 * first. AMD's promise neither.
 */
#ifndef SPMT_KERNELS_LL12_QUAD_H
#define SPMT_KERNELS_LL12_QUAD_H

#include "ll12_warp.h"
#include "src/kernels/fold/slot.h"

struct quad_part {
	union unit u[PART_UNITS];
};

struct quad_pieces {
	struct spmtd_unit_ at[PART_PIECES];
};

/* Never 0, as slots are at first, nor any in the same place of what `ll` leaves there, whose highest bit is set; they come again after slots
   have been cleared. */
LL_FN uint32_t quad_flag(uint64_t epoch)
{
	return area_flag(epoch) & 0x7fffffff;
}

#if QUADS_SHARED

LL_FN struct quad_pieces part_pieces_of(const struct quad_part *x, uint32_t flag)
{
	const uint64_t above = (uint64_t)flag << 32;
	const uint32_t high = (uint32_t)(x->u[0].words[1] >> 32);
	const uint32_t a = quad_take(high, 0), b = quad_take(high, 1), c = quad_take(high, 2);
	struct quad_pieces p = { { { x->u[0].words[0], above | (uint32_t)x->u[0].words[1] } } };

	if (spmtd_tid_() % QUAD == QUAD_UNITS) {
		p.at[0].a = a | (uint64_t)b << 32;
		p.at[0].b = above | c;
	}
	return p;
}

LL_FN struct quad_part part_data(const struct quad_pieces *p)
{
	const uint32_t at = spmtd_tid_() % QUAD;
	const uint32_t a = quad_take((uint32_t)p->at[0].a, QUAD_UNITS);
	const uint32_t b = quad_take((uint32_t)(p->at[0].a >> 32), QUAD_UNITS);
	const uint32_t c = quad_take((uint32_t)p->at[0].b, QUAD_UNITS);
	const uint64_t high = at == 0 ? a : at == 1 ? b : c;
	struct quad_part x = { { { .words = { p->at[0].a, (uint32_t)p->at[0].b | high << 32 } } } };

	return x;
}

#else

LL_FN struct quad_pieces part_pieces_of(const struct quad_part *x, uint32_t flag)
{
	const uint64_t above = (uint64_t)flag << 32;
	struct quad_pieces p;

	LL_EACH(QUAD_UNITS)
	{
		p.at[i].a = x->u[i].words[0];
		p.at[i].b = above | (uint32_t)x->u[i].words[1];
	}
	p.at[QUAD_UNITS].a = x->u[0].words[1] >> 32 | x->u[1].words[1] >> 32 << 32;
	p.at[QUAD_UNITS].b = above | x->u[2].words[1] >> 32;
	return p;
}

LL_FN struct quad_part part_data(const struct quad_pieces *p)
{
	const struct spmtd_unit_ last = p->at[QUAD_UNITS];
	struct quad_part x;

	LL_EACH(QUAD_UNITS)
	{
		x.u[i].words[0] = p->at[i].a;
		x.u[i].words[1] = (uint32_t)p->at[i].b;
	}
	x.u[0].words[1] |= last.a << 32;
	x.u[1].words[1] |= last.a >> 32 << 32;
	x.u[2].words[1] |= last.b << 32;
	return x;
}

#endif

LL_FN struct quad_pieces part_peek(uint64_t place)
{
	struct quad_pieces p;

	LL_EACH(PART_PIECES)
	p.at[i] = slot_peek_flagged(place + 16 * i);
	return p;
}

LL_FN int part_is_whole(const struct quad_pieces *p, uint32_t flag)
{
	uint32_t differ = 0;

	LL_EACH(PART_PIECES)
	differ |= (uint32_t)(p->at[i].b >> 32) ^ flag;
	return !differ;
}

LL_FN void part_poke(uint64_t place, const struct quad_pieces *p)
{
	LL_EACH(PART_PIECES)
	slot_poke(place + 16 * i, p->at[i]);
}

#endif
