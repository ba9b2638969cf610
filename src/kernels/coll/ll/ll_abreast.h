/* SPDX-License-Identifier: MIT */
/*
 * Units that are folded in brief among more than two ranks: each of a unit's threads waits for one rank's, so for all of them at once, and puts
 * it down for the one that folds them. Between two there is one to wait for. On CPUs, whose blocks are one thread, there are no more in brief.
 */
#ifndef SPMT_KERNELS_LL_ABREAST_H
#define SPMT_KERNELS_LL_ABREAST_H

#include "ll_brief.h"

#if defined(__AMDGCN__) || defined(__NVPTX__)

static __attribute__((address_space(3), loader_uninitialized,
	aligned(16))) struct spmtd_unit_ ll_abreast[COLL_LL_THREADS];

LL_FN int ll_are_abreast(const struct coll *c)
{
	return c->view->npes > 2;
}

LL_FN void ll_abreast_put(union unit u)
{
	ll_abreast[spmtd_tid_()] = u.raw;
}

/* That of the nth of the other ranks, for the thread that has the first one's; behind a meeting of the block. */
LL_FN union unit ll_abreast_take(const struct coll *c, uint32_t nth)
{
	union unit u;

	u.raw = ll_abreast[nth * c->share->units + spmtd_tid_()];
	return u;
}

#else

LL_FN int ll_are_abreast(const struct coll *c)
{
	(void)c;
	return 0;
}

LL_FN void ll_abreast_put(union unit u)
{
	(void)u;
}

LL_FN union unit ll_abreast_take(const struct coll *c, uint32_t nth)
{
	union unit u = { .words = { 0, 0 } };

	(void)c;
	(void)nth;
	return u;
}

#endif

/* pe's of those that the caller folds. The others are counted from this rank on. */
LL_FN union unit ll_abreast_of(const struct coll *c, const struct ll_brief *b, int pe)
{
	int nth = pe - c->view->pe - 1;

	if (nth < 0)
		nth += c->view->npes;
	return pe == c->view->pe ? b->own : ll_abreast_take(c, (uint32_t)nth);
}

#endif
