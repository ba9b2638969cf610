/* SPDX-License-Identifier: MIT */
/* Where the lists of a plan, and what their steps touch, are. */
#ifndef SPMT_KERNELS_PLAN_PLACES_H
#define SPMT_KERNELS_PLAN_PLACES_H

#include "plan_run.h"

PLAN_FN const struct plan_first *plan_firsts(const struct plan_given *g)
{
	return (const struct plan_first *)spmtd_to_(g->at);
}

PLAN_FN const struct plan_step *plan_step_at(const struct plan_run *r, uint32_t i)
{
	return (const struct plan_step *)spmtd_to_(r->now->steps) + (i - r->now->first.step);
}

PLAN_FN const struct plan_step_place *plan_place(
	const struct plan_run *r, const struct plan_step *s, uint32_t nth)
{
	return (const struct plan_step_place *)spmtd_to_(r->now->places) +
		(s->places - r->now->first.place + nth);
}

/* The address of this rank's `own` on another one. Rows have their memory in the library's area, which of a part may lie elsewhere in
   each heap. */
PLAN_FN uint64_t plan_there(const struct plan_run *r, uint64_t own, uint32_t rank)
{
	const struct spmt_view *v = r->v;

	if ((int)rank == v->pe)
		return own;
	return r->given->row ? area_there(v, (int)rank) + (own - spmtd_at_(v->own))
			     : spmtd_there_(v, spmtd_to_(own), (int)rank);
}

PLAN_FN uint64_t plan_word(const struct plan_given *g, uint32_t word)
{
	return g->at + g->words + sizeof(struct plan_words) + (uint64_t)word * sizeof(uint64_t);
}

PLAN_FN uint64_t plan_base(const struct plan_run *r, uint32_t space)
{
	const struct plan_given *g = r->given;

	switch (space) {
	case PLAN_SPACE_INPUT:
		return g->src;
	case PLAN_SPACE_OUTPUT:
		return g->dst;
	case PLAN_SPACE_SCRATCH:
		return g->at + r->now->scratch;
	default:
		return g->at + r->now->packets;
	}
}

/* As a row: a buffer of another rank, as it has told when the ranks met. */
PLAN_FN int plan_is_told(const struct plan_run *r, const struct plan_step_place *p)
{
	return r->given->row && p->space <= PLAN_SPACE_OUTPUT && (int)p->rank != r->v->pe;
}

PLAN_FN uint64_t plan_called_with(const struct spmt_view *v, const struct plan_step_place *p)
{
	const struct area_inbox *box = area_inbox(v, (int)p->rank);

	return peek_word(p->space == PLAN_SPACE_INPUT ? &box->src : &box->dst);
}

/* What a step moves: the same part of each of its places. */
PLAN_FN struct spmtd_range_ plan_part(const struct plan_run *r, const struct plan_step *s)
{
	uint64_t n = s->chunks * r->given->chunk;

	if (s->slices == 1)
		return (struct spmtd_range_){ 0, n };
	return spmtd_share_by_(n, s->slice, s->slices);
}

PLAN_FN uint64_t plan_place_from(
	const struct plan_run *r, const struct plan_step_place *p, uint64_t from)
{
	uint64_t at = p->index * r->given->chunk + from;

	if (p->space == PLAN_SPACE_PACKETS)
		at *= 2;
	if (plan_is_told(r, p))
		return plan_called_with(r->v, p) + at;
	return plan_there(r, plan_base(r, p->space) + at, p->rank);
}

PLAN_FN uint64_t plan_word_from(const struct plan_run *r, const struct plan_step *s)
{
	uint64_t own = plan_word(r->given, s->word);

	return s->kind == PLAN_STEP_SIGNAL ? plan_there(r, own, s->peer) : own;
}

/* ---- of a list that is kept, or found as it is asked for -------------------------------------- */

PLAN_FN uint64_t plan_bytes(const struct plan_run *r, const struct plan_step *s)
{
	return r->now->at ? s->found : plan_part(r, s).n;
}

PLAN_FN uint64_t plan_word_at(const struct plan_run *r, const struct plan_step *s)
{
	return r->now->at ? s->found : plan_word_from(r, s);
}

PLAN_FN const uint64_t *plan_kept_at(const struct plan_run *r, const struct plan_step *s)
{
	return (const uint64_t *)spmtd_to_(r->now->at) + (s->places - r->now->first.place);
}

PLAN_FN uint64_t plan_place_at(const struct plan_run *r, const struct plan_step *s, uint32_t nth)
{
	if (r->now->at)
		return plan_kept_at(r, s)[nth];
	return plan_place_from(r, plan_place(r, s, nth), plan_part(r, s).from);
}

#endif
