/* SPDX-License-Identifier: MIT */
/*
 * Each rank stores what it gives to the peers' dst: stores keep links busier than loads, and what goes to all is loaded from its own memory alone.
 * The blocks of a rank do not wait for each other: each meets the peers' blocks of its number before it stores, and after. A peer that has come
 * with one block has come; what its other blocks store is not this one's to wait for.
 */
#include "coll.h"

COLL_FN int coll_give(struct coll *c)
{
	const struct coll_moves *m = &c->args->moves;
	uint64_t from = m->dst_blocks ? (uint64_t)(uint32_t)c->view->pe * c->bytes : 0;
	int pe = m->to;

	for (int i = 0; i < m->tos; i++) {
		uint64_t src = c->args->src, dst = area_inbox(c->view, pe)->dst + from;

		if (m->src_blocks)
			src += (uint64_t)(uint32_t)pe * c->bytes;
		if (dst != src)
			spmtd_bulk_raw_(dst, src, c->bytes, kernel_lane(), kernel_lanes());
		pe = pe + 1 < c->view->npes ? pe + 1 : 0;
	}
	return 0;
}

#if defined(__AMDGCN__) || defined(__NVPTX__)

KERNEL_BODY run_give(const struct kernel_collective_args *args)
{
	struct coll c;
	int rc;

	coll_enter(&c, args);
	c.tells = COLL_TELLS;
	kernel_behind(0);
	coll_set(&c);
	if (!coll_open(&c))
		return;
	rc = coll_block_meets(&c);
	if (!rc)
		rc = coll_give(&c);
	coll_block_parts(&c, rc);
}
KERNEL_TAKING(give, struct kernel_collective_args)

#elif !defined(COLL_ONE_UNIT)

static void give_on_host(const void *args)
{
	kernel_collective.host(args);
}

KERNEL_EARLY_ON_HOST(give, give_on_host, struct kernel_collective_args, true)

#endif
