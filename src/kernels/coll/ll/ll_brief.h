/* SPDX-License-Identifier: MIT */
/*
 * Of a call in which each thread has one unit at the most to send, one to take, and one that its rank has itself: what it executes
 * is most of what the call takes. Such units are whole and aligned, or the call's only one.
 */
#ifndef SPMT_KERNELS_LL_BRIEF_H
#define SPMT_KERNELS_LL_BRIEF_H

#include "ll_wait.h"

/* A thread's part. */
struct ll_brief {
	uint32_t k;	  /* its unit */
	int32_t to, from; /* ranks, which get it and give it; -1: none */
	int32_t folds;	  /* it stores what this unit makes of all ranks' */
	int32_t keeps;	  /* it stores what its rank gives to itself */
	union unit x, own;
	uint64_t x_at, own_at;	 /* where they are */
	struct unit_place place; /* of a unit in any slot */
	/* for epochs of either parity, of its first half at the rank that gets it, and of what this rank calls */
	uint64_t there[2], hello[2];
};

LL_FN union unit ll_brief_load(const struct coll *c, uint64_t a)
{
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

/* Needs nothing of what is ahead in the stream. */
LL_FN void ll_brief_find(const struct coll *c, struct ll_brief *b)
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
	b->x_at = b->own_at = 0;
	if (b->to >= 0) {
		b->x_at = kernel_now(ll_src(c, b->to) + 16 * (uint64_t)b->k);
		for (int odd = 0; odd < 2; odd++)
			b->there[odd] = kernel_now(b->place.even +
				coll_slot_of(
					c, area_there(c->view, b->to), c->view->pe, (uint64_t)odd));
	}
	if (m->folds ? b->folds : b->keeps)
		b->own_at = kernel_now(ll_src(c, c->view->pe) + 16 * (uint64_t)b->k);
	ll_hello_find(c, b->hello);
}

LL_FN void ll_brief_begin(const struct coll *c, struct ll_brief *b)
{
	if (b->x_at)
		b->x = ll_brief_load(c, b->x_at);
	if (b->own_at)
		b->own = ll_brief_load(c, b->own_at);
}

LL_FN struct unit_place ll_brief_place(const struct ll_brief *b, uint64_t slot)
{
	return (struct unit_place){ slot + b->place.even, slot + b->place.odd };
}

/* Its unit, and what this rank calls. */
LL_FN void ll_brief_send(
	const struct coll *c, const struct ll_brief *b, const struct slot_flags *flags)
{
	uint64_t at = c->epoch & 1 ? b->there[1] : b->there[0];

	if (b->to >= 0)
		ll_send_there((struct unit_place){ at, at + (b->place.odd - b->place.even) }, b->x,
			flags);
	ll_hello_found(c, b->hello);
}

/* That which another rank gives it. */
LL_FN union unit ll_brief_arrives(
	const struct coll *c, struct ll_waits *w, const struct ll_brief *b)
{
	struct unit_place at = ll_brief_place(b, ll_slot(c, b->from));

	return ll_arrives(c, w, b->from, at, slot_unit_peek(at));
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
