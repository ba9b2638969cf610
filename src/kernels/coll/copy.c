/* SPDX-License-Identifier: MIT */
/*
 * As direct, by the host's copy queues: one thread posts what is to be copied, and waits until it is. Meanwhile the kernel is one block that
 * rests, and other kernels have the device.
 */
#include "coll.h"

/* By one thread. Whatever has become of the collective, the engines have let go of the buffers when it returns. */
static inline void await_engines(const struct coll *c)
{
	const struct spmtd_fifo *f = (const struct spmtd_fifo *)spmtd_to_(c->args->fifo);
	uint64_t posted = spmtd_peek64_(spmtd_at_(&f->own->posted));
	struct spmtd_waiter_ w;
	int enough = 0;

	spmtd_wait_begin_(&w);
	while (!enough && (int64_t)(spmtd_look64_(f->taken) - posted) < 0)
		enough = coll_pause_broken(c->view, -1, &w);
}

static inline SPMTD_MEETS int copy_post(
	const struct coll *c, int kind, int pe, uint64_t dst, uint64_t src)
{
	return spmtd_post_(c->args->fifo, c->view->timeout_ns, spmtd_post_head_(kind, pe, 0), src,
		dst, c->bytes, kind == SPMTD_FAR_COPIED);
}

static inline SPMTD_MEETS int copy_post_all(const struct coll *c)
{
	const struct coll_moves *m = &c->args->moves;
	uint64_t from = m->src_blocks ? (uint64_t)(uint32_t)c->view->pe * c->bytes : 0;
	int pe = m->from, rc = 0;

	for (int i = 0; i < m->froms && !rc; i++) {
		uint64_t src = area_inbox(c->view, pe)->src + from, dst = c->args->dst;

		if (m->dst_blocks)
			dst += (uint64_t)(uint32_t)pe * c->bytes;
		if (dst != src)
			rc = copy_post(c, SPMTD_FAR_COPY, pe, dst, src);
		pe = pe + 1 < c->view->npes ? pe + 1 : 0;
	}
	return rc ? rc : copy_post(c, SPMTD_FAR_COPIED, c->view->pe, 0, 0);
}

COLL_FN int coll_copy(struct coll *c)
{
	int rc = 0;

	if (kernel_lane() == 0 && c->bytes && c->args->moves.froms) {
		rc = copy_post_all(c);
		if (rc)
			await_engines(c);
	}
	return coll_agrees(rc);
}
