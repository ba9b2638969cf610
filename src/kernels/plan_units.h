/* SPDX-License-Identifier: MIT */
/* The units of a plan's folds: how a block's threads go through them, and how they are loaded and stored. */
#ifndef SPMT_KERNELS_PLAN_UNITS_H
#define SPMT_KERNELS_PLAN_UNITS_H

#include "fold/in_flight.h"
#include "plan_run.h"

/* Of packets all sources and destinations behind the first of each: a unit is one, of 8 bytes. */
struct plan_fold {
	const struct spmt_view *v;
	const uint64_t *dst, *src; /* addresses */
	uint32_t ndst, nsrc;
	int packets;
	uint32_t flag;
	uint64_t n;	       /* bytes of each */
	uint64_t whole, units; /* so many are loaded as such, and how many there are in all */
	int straight;	       /* these are summed, and stored as such */
	int op, second;
	struct spmtd_waiter_ wait;
	int rc; /* that ended it, in this thread */
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
	int terms = f->nsrc > 4 || f->packets ? IN_FLIGHT_LOG : f->nsrc > 2 ? 2 : PLAN_TERMS_LEAST;

	return (struct plan_way){ 0, spmtd_tid_(), 0, terms };
}

PLAN_FN void plan_way_others(const struct plan_fold *f, struct plan_way *w)
{
	w->part = 1;
	w->terms = IN_FLIGHT_LOG;
	w->next = f->whole + spmtd_tid_();
}

/* 0: there are no more. */
PLAN_FN int plan_way_on(const struct plan_fold *f, struct plan_way *w)
{
	if (!w->part && w->next >= f->whole)
		plan_way_others(f, w);
	w->k = w->next;
	w->next += (uint64_t)spmtd_threads_() << (IN_FLIGHT_LOG - w->terms);
	return w->k < f->units;
}

PLAN_FN uint32_t plan_unit(int packets)
{
	return packets ? 8 : 16;
}

PLAN_FN uint32_t plan_unit_has(const struct plan_fold *f, uint64_t k, int packets)
{
	uint64_t left = f->n - plan_unit(packets) * k;

	return left < plan_unit(packets) ? (uint32_t)left : plan_unit(packets);
}

PLAN_FN union unit plan_peek(const struct plan_fold *f, uint32_t term, uint64_t k)
{
	union unit u;

	u.raw = spmtd_packet_peek_(f->src[term] + 16 * k, 8);
	return u;
}

PLAN_FN union unit plan_load_part(const struct plan_fold *f, uint32_t term, uint64_t k, int packets)
{
	if (packets && term)
		return plan_peek(f, term, k);
	return gather_here(f->src[term] + plan_unit(packets) * k, plan_unit_has(f, k, packets));
}

/* terms, packets: constants, so that what is loaded stays in registers. */
PLAN_FN void plan_load_of(const struct plan_fold *f, struct in_flight *x, const struct plan_way *w,
	uint32_t base, uint32_t terms, int packets)
{
	UNROLLED
	for (uint32_t i = 0; i < terms; i++) {
		uint64_t k = w->k;

		if (base + i >= f->nsrc || (packets && !(base + i)))
			continue;
		UNROLLED
		for (uint32_t at = i; at < IN_FLIGHT; at += terms) {
			if (k < f->whole && packets)
				x->x[at] = plan_peek(f, base + i, k);
			else if (k < f->whole)
				x->x[at] = fetch_whole(f->src[base + i] + 16 * k);
			k += spmtd_threads_();
		}
	}
}

PLAN_FN void plan_load(const struct plan_fold *f, struct in_flight *x, const struct plan_way *w,
	uint32_t base, int packets)
{
	if (!packets && PLAN_TERMS_LEAST == 1 && w->terms == 1)
		plan_load_of(f, x, w, base, 2, packets);
	else if (!packets && w->terms == 2)
		plan_load_of(f, x, w, base, 4, packets);
	else
		plan_load_of(f, x, w, base, IN_FLIGHT, packets);
}

/* Until a packet has come of which u is what was there. What is plain is loaded already, the own term beside packets yet to be. */
PLAN_FN union unit plan_arrived(struct plan_fold *f, uint32_t term, uint64_t k, union unit u)
{
	if (!term)
		return gather_here(f->src[0] + 8 * k, 8);
	while (!f->rc && !spmtd_packet_came_(u.raw, f->flag)) {
		uint64_t at = f->src[term] + 16 * k;

		f->rc = spmtd_wait_check_(f->v, &f->wait);
		if (f->rc)
			spmtd_record_(f->v, f->rc, SPMTD_WHAT_WAIT, -1, at, f->flag, u.raw.a >> 32);
		else
			u = plan_peek(f, term, k);
	}
	u.words[0] = spmtd_packet_data_(u.raw);
	u.words[1] = 0;
	return u;
}

#endif
