/* SPDX-License-Identifier: MIT */
/*
 * Each rank folds a share of all ranks' src: of a reduce_scatter its own block; of an all_reduce an
 * equal part of the one block, in units of 16 bytes, which it stores to every dst, of a reduce to the root's. In place is
 * fine: a share is read by one rank only, before that rank writes it.
 */
#include "coll.h"
#include "src/kernels/fold/factor.h"
#include "src/kernels/fold/fold.h"
#include "src/kernels/fold/slot.h"

static inline void share(const struct coll *c, struct fold *r)
{
	uint64_t pe = (uint64_t)c->view->pe, each = c->args->share.each, over = c->args->share.over;
	uint64_t bytes = 16 * (each + (pe < over));

	r->from = 16 * (pe * each + (pe < over ? pe : over));
	r->to = r->from;
	r->bytes = 0;
	if (r->from < c->bytes)
		r->bytes = bytes < c->bytes - r->from ? bytes : c->bytes - r->from;
}

COLL_FN int coll_reduce(struct coll *c)
{
	struct fold r;

	r.inboxes = area_inbox(c->view, 0);
	r.npes = c->view->npes;
	r.first = c->args->moves.to;
	r.everyone = c->args->moves.src_blocks ? 0 : c->args->moves.tos;
	r.slots = 0;
	r.from = (uint64_t)c->view->pe * c->bytes;
	r.to = 0;
	r.bytes = c->bytes;
	r.dst = c->args->dst;
	r.factors = factors_here(c->args, c->epoch);
	r.lane = kernel_lane();
	r.lanes = kernel_lanes();
	if (r.everyone)
		share(c, &r);
	fold_run(&r, c->args->type, c->args->op);
	return 0;
}
