/* SPDX-License-Identifier: MIT */
/* Which units of a call's data a thread of `ll` has to do with. */
#ifndef SPMT_KERNELS_LL_UNITS_H
#define SPMT_KERNELS_LL_UNITS_H

#include "ll_fold.h"
#include "src/kernels/coll/coll.h"

/* Units that a thread has in flight: where a block has many of each rank, few of all ranks', and of those that it folds. */
#define LL_MANY 4
#define LL_FEW 2
#if defined(__AMDGCN__)
#define LL_FOLDED 1 /* with two those of f8 and of means put registers into memory */
#else
#define LL_FOLDED 2
#endif

#if defined(__AMDGCN__) || defined(__NVPTX__)
#define LL_EACH(n) _Pragma("unroll") for (uint32_t i = 0; i < (n); i++)
#define LL_ROLLED _Pragma("nounroll")
#else
#define LL_EACH(n) for (uint32_t i = 0; i < (n); i++)
#define LL_ROLLED
#endif

/* A block's units of each rank: n from `from` on. */
LL_FN uint32_t ll_units(const struct coll *c, uint64_t *from)
{
	uint64_t units = (c->bytes + 15) / 16;

	*from = kernel_block() * (uint64_t)c->share->units;
	if (*from >= units)
		return 0;
	return units - *from < c->share->units ? (uint32_t)(units - *from) : c->share->units;
}

/* All threads have a unit of each rank. */
LL_FN int ll_are_many(const struct coll *c)
{
	return !c->share->rows;
}

/* How many of a block's n units lie whole and aligned from `at` on. */
LL_FN uint32_t ll_whole(const struct coll *c, uint64_t at, uint64_t from, uint32_t n)
{
#if defined(UNITS_ALIGNED)
	uint64_t whole = c->bytes / 16;

	if (at & 15)
		return 0;
	return whole < from + n ? (uint32_t)(whole - from) : n;
#else
	(void)c;
	(void)at;
	(void)from;
	(void)n;
	return 0;
#endif
}

/* The same of `ranks` ranks from `first` on, where they are few, in the order of its threads. */
struct ll_walk {
	uint32_t nth, k; /* of the ranks; of the block's units */
	uint32_t n;	 /* the block's units that there are */
	uint64_t from;
	int first, ranks;
};

LL_FN struct ll_walk ll_walk_of(const struct coll *c, int first, int ranks)
{
	const struct coll_share *s = c->share;
	struct ll_walk w = { 0, spmtd_tid_(), 0, 0, first, ranks };

	w.n = ll_units(c, &w.from);
	if (w.k >= s->units) {
		w.nth = (uint32_t)((uint64_t)w.k * s->scale >> 20);
		w.k -= w.nth * s->units;
	}
	return w;
}

LL_FN void ll_step(const struct coll *c, struct ll_walk *w)
{
	const struct coll_share *s = c->share;

	w->nth += s->rows;
	w->k += s->rest;
	if (w->k >= s->units) {
		w->k -= s->units;
		w->nth++;
	}
}

struct ll_at {
	int pe; /* -1: there are no more */
	uint64_t unit;
};

LL_FN struct ll_at ll_next(const struct coll *c, struct ll_walk *w)
{
	struct ll_at at = { -1, 0 };

	while (w->nth < (uint32_t)w->ranks && w->k >= w->n)
		ll_step(c, w);
	if (w->nth >= (uint32_t)w->ranks)
		return at;
	at.pe = w->first + (int)w->nth;
	if (at.pe >= c->view->npes)
		at.pe -= c->view->npes;
	at.unit = w->from + w->k;
	ll_step(c, w);
	return at;
}

LL_FN uint32_t ll_bytes(const struct coll *c, uint64_t unit)
{
	uint64_t left = c->bytes - 16 * unit;

	return left < 16 ? (uint32_t)left : 16;
}

LL_FN uint64_t ll_src(const struct coll *c, int pe)
{
	return c->args->src + (c->args->moves.src_blocks ? (uint64_t)(uint32_t)pe * c->bytes : 0);
}

LL_FN union unit ll_fetch(const struct coll *c, struct ll_at at)
{
	uint64_t a = ll_src(c, at.pe) + 16 * at.unit;
	uint32_t n = ll_bytes(c, at.unit);

#if defined(UNITS_ALIGNED)
	if ((n == 8 || n == 4) && a % n == 0) {
		union unit u = { .words = { n == 8 ? spmtd_gload64_(a) : spmtd_gload32_(a), 0 } };

		return u;
	}
	if (n < 16 || (a & 15))
		return gather_here(a, n);
#endif
	return fetch(a, n);
}

#endif
