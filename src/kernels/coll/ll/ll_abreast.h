/* SPDX-License-Identifier: MIT */
/*
 * Units that are folded in brief among more than two ranks: each of a unit's threads waits for one rank's, so for all of them at once, and puts it
 * where the block's threads find it, one of which folds them once the block has agreed. Between two there is one to wait for.
 */
#ifndef SPMT_KERNELS_LL_ABREAST_H
#define SPMT_KERNELS_LL_ABREAST_H

#include "ll_brief.h"
#include "ll_loops.h"

/* A unit of each thread of a block. Blocks of one thread are never given such a call. */
#if defined(__AMDGCN__) || defined(__NVPTX__)
static __attribute__((address_space(3), loader_uninitialized,
	aligned(16))) struct spmtd_unit_ ll_abreast[COLL_LL_THREADS];
#elif !defined(ll_abreast)
static _Thread_local struct spmtd_unit_ ll_abreast[1];
#endif

/* 0: all of the block's threads have put theirs. */
LL_FN int ll_abreast_come(const struct coll *c, struct ll_waits *w, const struct ll_brief *b)
{
	if (b->from >= 0)
		ll_abreast[spmtd_tid_()] = ll_brief_arrives(c, w, b).raw;
	return ll_first_agreed(c, w);
}

/* pe's, of those that the caller folds. The others' threads are counted from this rank on, as ll_brief_find has them. */
LL_FN union unit ll_abreast_of(const struct coll *c, const struct ll_brief *b, int pe)
{
	int nth = pe - c->view->pe - 1;
	union unit u = b->own;

	if (nth < 0)
		nth += c->view->npes;
	if (pe != c->view->pe)
		u.raw = ll_abreast[(uint32_t)nth * c->share->units + spmtd_tid_()];
	return u;
}

#define DEFINE_LL_ABREAST(name, acc, begin, step, end, hold)                                     \
	LL_FN int ll_abreast_##name(                                                             \
		const struct coll *c, struct ll_waits *w, const struct ll_brief *b)              \
	{                                                                                        \
		int npes = c->view->npes, op = c->args->op, second = second_type(c->args->type); \
		int rc = ll_abreast_come(c, w, b);                                               \
		acc a;                                                                           \
                                                                                                 \
		if (rc || !b->folds)                                                             \
			return rc;                                                               \
		__builtin_memset(&a, 0, sizeof(a));                                              \
		LL_ROLLED                                                                        \
		for (int pe = 0; pe < npes; pe++) {                                              \
			union unit x = packed(ll_abreast_of(c, b, pe));                          \
                                                                                                 \
			a = hold(pe ? step(a, x, op, second) : begin(x, second));                \
		}                                                                                \
		ll_brief_store(c, c->args->dst + 16 * (uint64_t)b->k, end(a, op, npes, second)); \
		return 0;                                                                        \
	}
LL_LOOPS(DEFINE_LL_ABREAST)

#endif
