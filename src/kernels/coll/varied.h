/* SPDX-License-Identifier: MIT */
/* What a rank calls, and where it has what, as each peer sees it: with a count for each pair, that differs. */
#ifndef SPMT_KERNELS_VARIED_H
#define SPMT_KERNELS_VARIED_H

#include "coll.h"

/* Which span has what goes to pe, and what comes from it; NULL: none of this launch. */
static inline const struct coll_span *coll_span(const struct coll *c, int ahead)
{
	int i = ahead - c->v->first;

	if (i < 0)
		i += c->view->npes;
	return i < c->v->spans ? &c->v->span[i] : 0;
}

static inline int coll_ahead(const struct coll *c, int from, int to)
{
	return to - from + (to < from ? c->view->npes : 0);
}

static inline uint64_t coll_key_to(const struct coll *c, int pe)
{
	const struct coll_span *s = c->v ? coll_span(c, coll_ahead(c, c->view->pe, pe)) : 0;

	return c->args->key | (s ? s->src_count : 0);
}

static inline uint64_t coll_key_of(const struct coll *c, int pe)
{
	const struct coll_span *s = c->v ? coll_span(c, coll_ahead(c, pe, c->view->pe)) : 0;

	return c->args->key | (s ? s->dst_count : 0);
}

/* Where pe finds what is for it. */
static inline uint64_t coll_src_for(const struct coll *c, int pe)
{
	const struct coll_span *s = c->v ? coll_span(c, coll_ahead(c, c->view->pe, pe)) : 0;

	if (!s)
		return c->args->src;
	if (!c->v->stage)
		return c->args->src + s->src_at * c->v->size;
	return c->v->stage +
		(c->args->moves.src_blocks ? (uint64_t)(s - c->v->span) * c->v->room : 0);
}

#endif
