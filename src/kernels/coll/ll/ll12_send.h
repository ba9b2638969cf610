/* SPDX-License-Identifier: MIT */
/* What a thread of `ll12` sends: its parts, and what it has folded. */
#ifndef SPMT_KERNELS_LL12_SEND_H
#define SPMT_KERNELS_LL12_SEND_H

#include "ll12_blocks.h"
#include "ll_wait.h"

/* Ranks to which a thread sends at once, and from which it takes; a fold has this one's as well. */
#define LL12_ONE 1
#define LL12_MANY 3

/* In even epochs. Behind what this rank has sent to be folded, or to be taken, there is what it has folded. */
LL_FN uint64_t ll12_there(const struct ll12 *l, int pe, uint32_t t, int phase)
{
	return area_there(l->c->view, pe) + l->there + (phase ? l->c->args->room : 0) +
		(uint64_t)t * (16 * PART_PIECES);
}

/* A thread's part t for some ranks, where they lie here, and where they go in even epochs, 0: nowhere. */
struct ll12_batch {
	struct quad_part x[LL12_MANY];
	struct ll12_spot from[LL12_MANY];
	uint64_t there[LL12_MANY];
};

/* To those of the `ranks` ranks behind `first` that begin with the nth. */
LL_FN void ll12_find_there(const struct ll12 *l, uint32_t t, int first, int nth, int ranks,
	int phase, struct ll12_way way, uint64_t *there)
{
	UNROLLED
	for (int i = 0; i < way.many; i++) {
		there[i] = 0;
		if (nth + i < ranks && t < l->parts)
			there[i] =
				kernel_now(ll12_there(l, ll_rank(l->c, first, nth + i), t, phase));
	}
}

/* The same of the ranks to which this one sends, and what it has for them. */
LL_FN void ll12_batch_find(
	const struct ll12 *l, uint32_t t, int nth, struct ll12_way way, struct ll12_batch *b)
{
	const struct coll_moves *m = &l->c->args->moves;

	ll12_find_there(l, t, m->to, nth, m->tos, 0, way, b->there);
	UNROLLED
	for (int i = 0; i < way.many; i++) {
		const int pe = ll_rank(l->c, m->to, nth + i);

		b->from[i].n = 0;
		if (nth + i < m->tos)
			b->from[i] = ll12_spot(l, ll12_src(l, pe), pe, t);
	}
}

LL_FN void ll12_batch_load(
	const struct ll12 *l, uint32_t t, int nth, struct ll12_way way, struct ll12_batch *b)
{
	UNROLLED
	for (int i = 0; i < way.many; i++)
		b->x[i] = ll12_load(
			l, ll_rank(l->c, l->c->args->moves.to, nth + i), t, b->from[i], way.odd);
}

LL_FN void ll12_batch_send(
	const struct ll12 *l, int nth, struct ll12_way way, const struct ll12_batch *b)
{
	UNROLLED
	for (int i = 0; i < way.many; i++) {
		struct quad_pieces p;

		if (nth + i >= l->c->args->moves.tos)
			break;
		p = part_pieces_of(&b->x[i], l->flag);
		if (b->there[i])
			part_poke(b->there[i] + l->set, &p);
	}
}

/* The first one is found, and loaded if its units are whole, before it is known which epoch this is. */
LL_FN void ll12_send(const struct ll12 *l, struct ll12_way way, struct ll12_batch *b)
{
	const struct coll_moves *m = &l->c->args->moves;
	const int self = ll_self(l->c, m->to, m->tos);
	uint32_t base = l->base;
	int nth = self;

	if (base >= l->parts || nth >= m->tos)
		return;
	if (way.odd)
		ll12_batch_load(l, base + warp_lane(), nth, way, b);
	LL_ROLLED
	for (;;) {
		ll12_batch_send(l, nth, way, b);
		nth += way.many;
		if (nth >= m->tos) {
			nth = self;
			base += l->step;
			if (base >= l->parts)
				return;
		}
		ll12_batch_find(l, base + warp_lane(), nth, way, b);
		ll12_batch_load(l, base + warp_lane(), nth, way, b);
	}
}

/* What this rank has folded, to all others; where it goes of the first of them has been found. */
LL_FN void ll12_relay(const struct ll12 *l, uint32_t t, struct ll12_way way, uint64_t *there,
	const struct quad_part *x)
{
	const struct quad_pieces p = part_pieces_of(x, l->flag);
	const struct coll *c = l->c;
	int first = 1;

	LL_ROLLED
	for (;;) {
		UNROLLED
		for (int i = 0; i < way.many; i++) {
			if (there[i])
				part_poke(there[i] + l->set, &p);
		}
		first += way.many;
		if (first >= c->view->npes)
			return;
		ll12_find_there(l, t, c->view->pe, first, c->view->npes, 1, way, there);
	}
}

/* Who sleeps meanwhile looks again. */
LL_FN void ll12_wake(const struct ll12 *l)
{
	for (int nth = 1; nth < l->c->view->npes; nth++)
		spmtd_wake_(l->c->view, ll_rank(l->c, l->c->view->pe, nth));
}

#endif
