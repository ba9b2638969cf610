/* SPDX-License-Identifier: MIT */
/* The units of a plan's folds: how a block's threads go through them, and how they are loaded and stored. */
#ifndef SPMT_KERNELS_PLAN_UNITS_H
#define SPMT_KERNELS_PLAN_UNITS_H

#include "fold/in_flight.h"
#include "plan_run.h"

struct plan_fold {
	const uint64_t *dst, *src; /* addresses */
	uint32_t ndst, nsrc;
	uint64_t n;	       /* bytes of each */
	uint64_t whole, units; /* so many are loaded as such, and how many there are in all */
	int op, second;
};

/* A block's threads' way through the units: those that are whole, then the others. */
struct plan_way {
	uint64_t k, next;
	int part;  /* it has come to the others */
	int terms; /* 1 to IN_FLIGHT_LOG: what is in flight is of 1 << terms terms */
};

/* Of so few terms at the least, as ranks of `twoshot`: AMD's registers. */
#if defined(__AMDGCN__)
#define PLAN_TERMS_LEAST 2
#else
#define PLAN_TERMS_LEAST 1
#endif

PLAN_FN struct plan_way plan_way_of(const struct plan_fold *f)
{
	int terms = f->nsrc > 4 ? IN_FLIGHT_LOG : f->nsrc > 2 ? 2 : PLAN_TERMS_LEAST;

	return (struct plan_way){ 0, spmtd_tid_(), 0, terms };
}

/* 0: there are no more. */
PLAN_FN int plan_way_on(const struct plan_fold *f, struct plan_way *w)
{
	if (!w->part && w->next >= f->whole) {
		w->part = 1;
		w->terms = IN_FLIGHT_LOG;
		w->next = f->whole + spmtd_tid_();
	}
	w->k = w->next;
	w->next += (uint64_t)spmtd_threads_() << (IN_FLIGHT_LOG - w->terms);
	return w->k < f->units;
}

PLAN_FN uint32_t plan_unit_has(const struct plan_fold *f, uint64_t k)
{
	uint64_t left = f->n - 16 * k;

	return left < 16 ? (uint32_t)left : 16;
}

PLAN_FN union unit plan_load_part(const struct plan_fold *f, uint32_t term, uint64_t k)
{
	return gather_here(f->src[term] + 16 * k, plan_unit_has(f, k));
}

/* terms: a constant, so that what is loaded stays in registers. */
PLAN_FN void plan_load_of(const struct plan_fold *f, struct in_flight *x, const struct plan_way *w,
	uint32_t base, uint32_t terms)
{
	UNROLLED
	for (uint32_t i = 0; i < terms; i++) {
		uint64_t k = w->k, from;

		if (base + i >= f->nsrc)
			continue;
		from = f->src[base + i];
		UNROLLED
		for (uint32_t at = i; at < IN_FLIGHT; at += terms) {
			if (k < f->whole)
				x->x[at] = fetch_whole(from + 16 * k);
			k += spmtd_threads_();
		}
	}
}

PLAN_FN void plan_load(
	const struct plan_fold *f, struct in_flight *x, const struct plan_way *w, uint32_t base)
{
	if (w->part)
		return;
	if (PLAN_TERMS_LEAST == 1 && w->terms == 1)
		plan_load_of(f, x, w, base, 2);
	else if (w->terms == 2)
		plan_load_of(f, x, w, base, 4);
	else
		plan_load_of(f, x, w, base, IN_FLIGHT);
}

PLAN_FN void plan_store(const struct plan_fold *f, uint64_t k, union unit u)
{
	uint32_t n = plan_unit_has(f, k);

	ROLLED
	for (uint32_t i = 0; i < f->ndst; i++)
		place_here(f->dst[i] + 16 * k, u, n);
}

#endif
