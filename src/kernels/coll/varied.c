/* SPDX-License-Identifier: MIT */
/*
 * Collectives in which each pair of ranks has a count of its own: each rank loads from its peers what is for it, as in direct.c.
 * Within a process that is one round. Between processes each round moves what the stage has room for, an epoch of its own; how many
 * there are the ranks tell each other in the first, since none knows the others' counts.
 */
#include "varied.h"

static inline uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* What this round moves of `count` elements: where it begins, in bytes, and how much it is. */
static inline uint64_t round_part(const struct coll *c, uint64_t count, uint64_t *from)
{
	uint64_t bytes = count * c->v->size;

	*from = 0;
	if (!c->v->stage)
		return bytes;
	*from = c->round * c->v->room;
	return *from < bytes ? least(bytes - *from, c->v->room) : 0;
}

static inline uint64_t own_rounds(const struct coll *c)
{
	uint64_t most = 0;

	for (int i = 0; i < c->v->spans && c->v->stage; i++)
		if (c->v->span[i].src_count > most)
			most = c->v->span[i].src_count;
	return most ? (most * c->v->size + c->v->room - 1) / c->v->room : 1;
}

static inline void fill_stage(const struct coll *c)
{
	int spans = c->args->moves.src_blocks ? c->v->spans : 1;

	for (int i = 0; i < spans; i++) {
		const struct coll_span *s = &c->v->span[i];
		uint64_t from, bytes = round_part(c, s->src_count, &from);

		if (bytes)
			spmtd_bulk_raw_(c->v->stage + (uint64_t)(uint32_t)i * c->v->room,
				c->args->src + s->src_at * c->v->size + from, bytes, kernel_lane(),
				kernel_lanes());
	}
}

/* The first block, which greets for its rank, waits for the others, which run: there are never more than run at once. */
static inline SPMTD_MEETS int await_stage(const struct coll *c)
{
	uint64_t word = spmtd_at_(&area_of(c->view)->staged);
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_meet_settled_(SPMTD_BLOCK_);
	if (kernel_blocks() == 1)
		return 0;
	if (spmtd_tid_() == 0) {
		spmtd_order_();
		spmtd_add64_(word, 1);
	}
	if (kernel_block() != 0)
		return 0;
	spmtd_wait_begin_(&w);
	while (!rc && spmtd_tid_() == 0 && spmtd_look64_(word) != kernel_blocks())
		rc = coll_patience(c->view, &w);
	spmtd_wait_end_(c->view, &w);
	if (!rc && spmtd_tid_() == 0) {
		spmtd_poke64_(word, 0);
		spmtd_order_();
	}
	return coll_agrees(rc);
}

COLL_FN int coll_varied(struct coll *c)
{
	int n = c->view->npes, pe = c->view->pe - c->v->first;

	if (pe < 0)
		pe += n;
	for (int i = 0; c->round == 0 && c->v->stage && i < n; i++)
		if (area_inbox(c->view, i)->dst > c->rounds)
			c->rounds = area_inbox(c->view, i)->dst;
	for (int i = 0; i < c->v->spans; i++) {
		const struct coll_span *s = &c->v->span[i];
		uint64_t from, bytes = round_part(c, s->dst_count, &from);
		uint64_t src = area_inbox(c->view, pe)->src;
		uint64_t dst = c->args->dst + s->dst_at * c->v->size + from;

		if (bytes && dst != src)
			spmtd_bulk_raw_(dst, src, bytes, kernel_lane(), kernel_lanes());
		pe = pe > 0 ? pe - 1 : n - 1;
	}
	return 0;
}

/* The rank's last block ends it, at the latest when its deadline has passed. Not 0: well. */
static inline SPMTD_MEETS int await_end(const struct coll *c)
{
	const struct area *area = area_of(c->view);
	uint64_t epoch = spmtd_at_(&area->coll_epoch), before = spmtd_at_(&area->grid[GRID_BEFORE]);
	struct spmtd_waiter_ w;

	spmtd_wait_begin_(&w);
	while (spmtd_tid_() == 0 &&
		(spmtd_look64_(epoch) < c->epoch || spmtd_look64_(before) == c->before))
		coll_patience(c->view, &w);
	spmtd_wait_end_(c->view, &w);
	spmtd_meet_settled_(SPMTD_BLOCK_);
	return coll_ended_how(c->view, c->epoch) == ENDED_WELL;
}

KERNEL_BODY run_collective_v(const struct kernel_collective_v_args *args)
{
	struct coll c;

	c.rounds = 1;
	for (c.round = 0; c.round < c.rounds; c.round++) {
		coll_enter(&c, &args->same);
		coll_set(&c);
		if (!coll_open(&c))
			return;
		c.v = args;
		if (c.round == 0)
			c.rounds = own_rounds(&c);
		if (args->stage && !c.refused) {
			fill_stage(&c);
			c.refused = await_stage(&c) != 0;
		}
		coll_at_peers(&c, COLL_COUNTS_VARY);
		if (c.round + 1 < c.rounds && !await_end(&c))
			return;
	}
}
KERNEL(collective_v)
