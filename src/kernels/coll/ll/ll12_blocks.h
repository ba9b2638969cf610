/* SPDX-License-Identifier: MIT */
/* A call of `ll12`: ranks' blocks, or of an all_reduce their parts of one, and what a thread has of each. */
#ifndef SPMT_KERNELS_LL12_BLOCKS_H
#define SPMT_KERNELS_LL12_BLOCKS_H

#include "ll12_quad.h"
#include "src/kernels/coll/words.h"
#include "src/kernels/fold/in_flight.h"

/* As little as slots have room for is counted in 32 bits. */
struct ll12 {
	const struct coll *c;
	uint64_t src, dst; /* of rank 0's block */
	uint64_t here;	   /* of rank 0's slot, in even epochs */
	uint64_t there;	   /* of this rank's slot, from where a library area begins, likewise */
	uint64_t set;	   /* from there to this epoch's */
	uint32_t pitch;	   /* from a slot to the next */
	uint32_t src_step, dst_step; /* bytes from a rank's block to the next */
	uint32_t units;		     /* of the largest block */
	uint32_t all;		     /* of all of them, where some are shorter; else UINT32_MAX */
	uint32_t parts;		     /* of a block */
	uint32_t base, step;	     /* this warp's first one; from there to its next */
	uint32_t flag;
	int relays; /* it is an all_reduce */
	int gone;   /* a wait of this warp has failed */
};

/* For how many ranks at once something is done; odd: not all units are whole and aligned. Constants where it is inlined. */
struct ll12_way {
	int many, odd;
};

/* All_reduce alone has neither a block for each rank nor one rank that gives or gets. */
LL_FN int ll12_relays(const struct coll_moves *m, int npes)
{
	return m->folds && !m->src_blocks && m->tos == npes && m->froms == npes;
}

/* Needs nothing of what is ahead in the stream. */
LL_FN struct ll12 ll12_of(const struct coll *c)
{
	const struct coll_moves *m = &c->args->moves;
	const uint32_t threads = spmtd_threads_(), tid = spmtd_tid_();
	const uint32_t bytes = (uint32_t)c->bytes;
	const uint32_t have = threads > QUADS_WARP ? threads - QUADS_WARP : threads;
	struct ll12 l = { .c = c,
		.here = coll_slot_of(c, spmtd_at_(c->view->own), 0, 0),
		.there = coll_slot_of(c, 0, c->view->pe, 0),
		.pitch = 2 * c->args->room,
		.src = c->args->src,
		.dst = c->args->dst,
		.src_step = m->src_blocks ? bytes : 0,
		.dst_step = m->dst_blocks ? bytes : 0,
		.units = (bytes + 15) / 16,
		.all = UINT32_MAX,
		.relays = ll12_relays(m, c->view->npes) };

	if (l.relays) {
		l.all = l.units;
		l.units = (uint32_t)c->share->each + (c->share->over != 0);
		l.src_step = l.dst_step = 16 * l.units;
	}
	l.parts = (uint32_t)quads_of(l.units) * QUAD_PARTS;
	l.base = tid < have ? kernel_block() * have + tid - warp_lane() : l.parts;
	l.step = kernel_blocks() * have;
	return l;
}

LL_FN void ll12_begin(struct ll12 *l)
{
	const struct coll *c = l->c;

	l->set = c->epoch & 1 ? (uint64_t)(uint32_t)c->view->npes * l->pitch : 0;
	l->flag = quad_flag(c->epoch);
}

/* Units of pe's block. */
LL_FN uint32_t ll12_units(const struct ll12 *l, int pe)
{
	const uint32_t from = (uint32_t)pe * l->units, left = from < l->all ? l->all - from : 0;

	return left < l->units ? left : l->units;
}

LL_FN uint64_t ll12_src(const struct ll12 *l, int pe)
{
	return l->src + (uint64_t)(uint32_t)pe * l->src_step;
}

LL_FN uint64_t ll12_dst(const struct ll12 *l, int pe)
{
	return l->dst + (uint64_t)(uint32_t)pe * l->dst_step;
}

/* Of pe's kth unit. */
LL_FN uint32_t ll12_bytes(const struct ll12 *l, int pe, uint32_t k)
{
	const uint32_t at = 16 * k + (l->relays ? (uint32_t)pe * l->src_step : 0);
	const uint32_t left = (uint32_t)l->c->bytes - at;

	return left < 16 ? left : 16;
}

/* Where part t lies of pe's block, which begins at `block`: its units that there are, one behind the other. */
struct ll12_spot {
	uint64_t at;
	uint32_t n;
};

LL_FN struct ll12_spot ll12_spot(const struct ll12 *l, uint64_t block, int pe, uint32_t t)
{
	const uint32_t k = part_unit(t, 0), units = ll12_units(l, pe),
		       left = k < units ? units - k : 0;

	return (struct ll12_spot){ kernel_now(block + 16 * (uint64_t)k),
		left < PART_UNITS ? left : PART_UNITS };
}

LL_FN struct quad_part ll12_load(
	const struct ll12 *l, int pe, uint32_t t, struct ll12_spot spot, int odd)
{
	struct quad_part x;

	__builtin_memset(&x, 0, sizeof(x));
	LL_EACH(PART_UNITS)
	{
		if (i >= spot.n)
			break;
		x.u[i] = odd ? gather_here(spot.at + 16 * i, ll12_bytes(l, pe, part_unit(t, i)))
			     : fetch_whole(spot.at + 16 * i);
	}
	return x;
}

LL_FN void ll12_store(const struct ll12 *l, int pe, uint32_t t, struct ll12_spot spot,
	const struct quad_part *x, int odd)
{
	LL_EACH(PART_UNITS)
	{
		if (i >= spot.n)
			break;
		if (odd)
			place_here(spot.at + 16 * i, x->u[i], ll12_bytes(l, pe, part_unit(t, i)));
		else
			place_whole(spot.at + 16 * i, x->u[i]);
	}
}

#endif
