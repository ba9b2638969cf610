/* SPDX-License-Identifier: MIT */
/* Each rank loads from the peers' src what is for it. */
#include "coll.h"

COLL_FN int coll_direct(struct coll *c)
{
	const struct coll_moves *m = &c->args->moves;
	uint64_t from = m->src_blocks ? (uint64_t)(uint32_t)c->view->pe * c->bytes : 0;
	int pe = m->from;

	for (int i = 0; i < m->froms; i++) {
		uint64_t src = area_inbox(c->view, pe)->src + from, dst = c->args->dst;

		if (m->dst_blocks)
			dst += (uint64_t)(uint32_t)pe * c->bytes;
		if (dst != src)
			spmtd_bulk_raw_(dst, src, c->bytes, kernel_lane(), kernel_lanes());
		pe = pe + 1 < c->view->npes ? pe + 1 : 0;
	}
	return 0;
}
