/* SPDX-License-Identifier: MIT */
/*
 * Of a call in which each thread has one unit at the most to send, one to take, and one that its rank has itself: what it executes
 * is most of what the call takes. Such units are whole and aligned, or the call's only one.
 */
#ifndef SPMT_KERNELS_LL_BRIEF_H
#define SPMT_KERNELS_LL_BRIEF_H

#include "ll_send.h"

/* A thread's part. */
struct ll_brief {
	uint32_t k;	  /* its unit */
	int32_t to, from; /* ranks, which get it and give it; -1: none */
	int32_t folds;	  /* it takes this unit from all ranks */
	int32_t keeps;	  /* it stores what its rank gives to itself */
	union unit x, own;
	uint64_t there;		 /* the library area of the rank that gets it */
	struct unit_place place; /* of the unit in any slot */
};

LL_FN union unit ll_brief_load(const struct coll *c, int pe, uint32_t k)
{
	uint64_t a = ll_src(c, pe) + 16 * (uint64_t)k;
	union unit u = { .words = { 0, 0 } };

#if defined(UNITS_ALIGNED)
	if (c->brief == 16)
		u.raw = spmtd_gload16b_(a);
	else
		u.words[0] = c->brief == 8 ? spmtd_gload64_(a) : spmtd_gload32_(a);
#else
	u = fetch(a, c->brief);
#endif
	return u;
}

LL_FN void ll_brief_store(const struct coll *c, uint64_t a, union unit u)
{
#if defined(UNITS_ALIGNED)
	if (c->brief == 16)
		spmtd_gstore16b_(a, u.raw);
	else if (c->brief == 8)
		spmtd_gstore64_(a, u.words[0]);
	else
		spmtd_gstore32_(a, (uint32_t)u.words[0]);
#else
	place(a, u, c->brief);
#endif
}

/* The nth of `ranks` ranks from `first` on, without this one, of a thread that has a unit; -1: there are fewer. */
LL_FN int ll_brief_rank(const struct coll *c, uint32_t nth, int first, int ranks)
{
	int self = ll_self(c, first, ranks);

	return (int)nth < ranks - self ? ll_rank(c, first, self + (int)nth) : -1;
}

LL_FN void ll_brief_begin(const struct coll *c, struct ll_brief *b)
{
	const struct coll_share *s = c->share;
	const struct coll_moves *m = &c->args->moves;
	uint32_t nth = spmtd_tid_() * s->scale >> 20, k = spmtd_tid_() - nth * s->units;
	int has;

	b->k = kernel_block() * s->units + k;
	has = b->k < ((uint32_t)c->bytes + 15) / 16;
	b->to = has ? ll_brief_rank(c, nth, m->to, m->tos) : -1;
	b->from = has ? ll_brief_rank(c, nth, m->from, m->froms) : -1;
	has = has && !nth;
	b->folds = has && m->froms;
	b->keeps = has && ll_self(c, m->from, m->froms);
	b->place = ll_unit_place(c, 0, b->k);
	if (b->to >= 0) {
		b->x = ll_brief_load(c, b->to, b->k);
		b->there = area_there(c->view, b->to);
	}
	if (m->folds ? b->folds : b->keeps)
		b->own = ll_brief_load(c, c->view->pe, b->k);
}

LL_FN struct unit_place ll_brief_place(const struct ll_brief *b, uint64_t slot)
{
	return (struct unit_place){ slot + b->place.even, slot + b->place.odd };
}

LL_FN void ll_brief_send(
	const struct coll *c, const struct ll_brief *b, const struct slot_flags *flags)
{
	if (b->to >= 0)
		ll_send_there(ll_brief_place(b, coll_slot(c, b->there, c->view->pe)), b->x, flags);
}

/* What pe's slot has of a thread's unit; this rank's own has nothing. */
LL_FN struct slot_unit ll_brief_look(
	const struct coll *c, const struct ll_brief *b, uint64_t slot, int pe)
{
	struct slot_unit s;

	if (pe == c->view->pe)
		__builtin_memset(&s, 0, sizeof(s));
	else
		s = slot_unit_peek(ll_brief_place(b, slot));
	return s;
}

#endif
