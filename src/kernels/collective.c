/* SPDX-License-Identifier: MIT */
/*
 * Collectives. Every rank posts what it was called with to all others and waits for all (each block
 * for itself); only then does anybody touch anybody's buffers. The last block of a rank to be
 * through with its part tells all others, and waits until all have told: after that no peer reads
 * src or writes dst. Blocks never wait for each other, so any grid is fine.
 */
#include "../../include/spmt.h"
#include "entry.h"
#include "reduce.h"

/* own->grid: how many blocks have ever come to the end, and how many had before this launch. */
enum { GRID_ENDED, GRID_BEFORE };

struct coll {
	const struct kernel_collective_args *args;
	const struct spmt_view *view;
	uint64_t epoch, before;
	uint64_t bytes; /* of args->count elements */
};

static inline uint64_t own_word(const uint64_t *word)
{
	return spmtd_peek64_(spmtd_at_(word));
}

static inline uint64_t type_bytes(int type)
{
	switch (type) {
	case SPMT_TYPE_I8:
	case SPMT_TYPE_U8:
		return 1;
	case SPMT_TYPE_I16:
	case SPMT_TYPE_U16:
	case SPMT_TYPE_F16:
	case SPMT_TYPE_BF16:
		return 2;
	case SPMT_TYPE_I64:
	case SPMT_TYPE_U64:
	case SPMT_TYPE_F64:
		return 8;
	default:
		return 4;
	}
}

/* One code for the block: an abort outdoes a timeout, that a mismatch. */
static inline int block_agrees(int rc)
{
	if (!spmtd_any_block_(rc))
		return 0;
	if (spmtd_any_block_(rc == SPMTD_ABORTED))
		return SPMTD_ABORTED;
	return spmtd_any_block_(rc == SPMTD_TIMEOUT) ? SPMTD_TIMEOUT : SPMTD_MISMATCH;
}

/* ---- meetings ------------------------------------------------------------------------------- */

/* By the threads of one block. */
static inline void post(const struct coll *c)
{
	const struct spmt_view *v = c->view;

	for (int pe = (int)spmtd_tid_(); pe < v->npes; pe += (int)spmtd_threads_()) {
		struct spmtd_inbox *box = spmtd_outbox_(v, pe);
		/* In another process the buffers, which lie in the heap then, have other
		   addresses. */
		uint64_t mine = v->stride ? 0 : v->peers[pe].mine;
		uint64_t shift = mine ? mine - v->base : 0;

		spmtd_poke64_(spmtd_at_(&box->src), c->args->src + shift);
		spmtd_poke64_(spmtd_at_(&box->dst), c->args->dst + shift);
		spmtd_poke64_(spmtd_at_(&box->key), c->args->key);
		spmtd_ring_set_(spmtd_at_(&box->posted), c->epoch);
		spmtd_wake_(v, pe);
	}
}

/* This rank's word that `pe` writes: posted, or done. */
static inline uint64_t word_of(const struct spmt_view *v, int pe, int done)
{
	const struct spmtd_inbox *box = spmtd_inbox_(v, pe);

	return spmtd_at_(done ? &box->done : &box->posted);
}

static inline int await_all(const struct coll *c, int done)
{
	const struct spmt_view *v = c->view;
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	for (int pe = (int)spmtd_tid_(); pe < v->npes && !rc; pe += (int)spmtd_threads_())
		rc = spmtd_await_(v, &w, SPMTD_KIND_W_, 64, word_of(v, pe, done), 0, c->epoch,
			SPMTD_WHAT_COLLECTIVE, pe);
	spmtd_wait_end_(v, &w);
	return rc;
}

/* All ranks see some key that is not their own, or none does. */
static inline int compare_keys(const struct coll *c)
{
	const struct spmt_view *v = c->view;

	for (int pe = (int)spmtd_tid_(); pe < v->npes; pe += (int)spmtd_threads_()) {
		uint64_t key = spmtd_at_(&spmtd_inbox_(v, pe)->key), seen = spmtd_peek64_(key);

		if (seen == c->args->key)
			continue;
		spmtd_record_(
			v, SPMTD_MISMATCH, SPMTD_WHAT_COLLECTIVE, pe, key, c->args->key, seen);
		return SPMTD_MISMATCH;
	}
	return 0;
}

static inline int meet(const struct coll *c)
{
	int rc;

	if (kernel_block() == 0)
		post(c);
	rc = await_all(c, 0);
	if (!rc)
		rc = compare_keys(c);
	return block_agrees(rc);
}

/* Is this block the last of its rank to get here? What the others have stored is then seen, and
   told with the next release. One block alone needs neither fence nor count: two microseconds. */
static inline int last_block(const struct coll *c)
{
	uint64_t ended = spmtd_at_(&c->view->own->grid[GRID_ENDED]);
	int last = 0;

	spmtd_gather_(SPMTD_BLOCK_);
	if (kernel_blocks() == 1) {
		if (spmtd_tid_() == 0)
			spmtd_poke64_(ended, c->before + 1);
		return 1;
	}
	if (spmtd_tid_() == 0) {
		spmtd_order_();
		last = spmtd_add64_(ended, 1) + 1 == c->before + kernel_blocks();
		spmtd_order_();
	}
	return spmtd_any_block_(last);
}

static inline void tell_done(const struct coll *c)
{
	const struct spmt_view *v = c->view;

	for (int pe = (int)spmtd_tid_(); pe < v->npes; pe += (int)spmtd_threads_()) {
		spmtd_ring_set_(spmtd_at_(&spmtd_outbox_(v, pe)->done), c->epoch);
		spmtd_wake_(v, pe);
	}
}

/* After a timeout or an abort the world is broken: the others are told, but not waited for. */
static inline void part(const struct coll *c, int rc)
{
	struct spmtd_own *own = c->view->own;

	if (spmtd_tid_() == 0)
		kernel_failed(c->view, rc);
	if (!last_block(c))
		return;
	tell_done(c);
	if (!rc || rc == SPMTD_MISMATCH)
		rc = block_agrees(await_all(c, 1));
	if (spmtd_tid_() != 0)
		return;
	kernel_failed(c->view, rc);
	spmtd_poke64_(spmtd_at_(&own->grid[GRID_BEFORE]), c->before + kernel_blocks());
	spmtd_poke64_(spmtd_at_(&own->coll_epoch), c->epoch);
}

/* ---- moving --------------------------------------------------------------------------------- */

/* n ranks' blocks from `from` on, rank `pe` first, to their places in dst or to its begin. */
static inline void pull(const struct coll *c, int pe, int n, uint64_t from, int places)
{
	for (int i = 0; i < n; i++) {
		uint64_t src = spmtd_inbox_(c->view, pe)->src + from, dst = c->args->dst;

		if (places)
			dst += (uint64_t)(uint32_t)pe * c->bytes;
		if (dst != src)
			spmtd_bulk_raw_(dst, src, c->bytes, kernel_lane(), kernel_lanes());
		pe = pe + 1 < c->view->npes ? pe + 1 : 0;
	}
}

/*
 * all_reduce: each rank makes an equal share of the result, in units of 16 bytes, for all. In place
 * is fine: a share is read by one rank only, before that rank writes it.
 */
static inline void share(const struct coll *c, struct reduce *r)
{
	uint64_t n = (uint64_t)c->view->npes, pe = (uint64_t)c->view->pe;
	uint64_t units = (c->bytes + 15) / 16, each = units / n, over = units % n;
	uint64_t bytes = 16 * (each + (pe < over));

	r->from = 16 * (pe * each + (pe < over ? pe : over));
	r->to = r->from;
	r->bytes = 0;
	if (r->from < c->bytes)
		r->bytes = bytes < c->bytes - r->from ? bytes : c->bytes - r->from;
}

static inline void reduce(const struct coll *c)
{
	struct reduce r;

	r.inboxes = spmtd_inbox_(c->view, 0);
	r.npes = c->view->npes;
	r.first = c->view->pe;
	r.everyone = c->args->kind == COLL_ALL_REDUCE;
	r.from = (uint64_t)c->view->pe * c->bytes;
	r.to = 0;
	r.bytes = c->bytes;
	r.dst = c->args->dst;
	r.lane = kernel_lane();
	r.lanes = kernel_lanes();
	if (r.everyone)
		share(c, &r);
	reduce_run(&r, c->args->type, c->args->op);
}

static inline void move(const struct coll *c)
{
	const struct kernel_collective_args *args = c->args;
	int kind = args->kind, pe = args->root, n = 1, places = 0;
	uint64_t from = 0;

	if (kind == COLL_REDUCE_SCATTER || kind == COLL_ALL_REDUCE) {
		reduce(c);
		return;
	}
	if (kind == COLL_ALL_GATHER || kind == COLL_ALL_TO_ALL) {
		pe = c->view->pe; /* this rank first: no two ranks begin with the same */
		n = c->view->npes;
		places = 1;
	}
	if (kind == COLL_ALL_TO_ALL)
		from = (uint64_t)c->view->pe * c->bytes;
	if (pe >= 0)
		pull(c, pe, n, from, places);
}

KERNEL_BODY run_collective(const struct kernel_collective_args *args)
{
	const struct spmt_view *v = &args->view;
	struct coll c;
	int rc;

	c.args = args;
	c.view = v;
	c.epoch = own_word(&v->own->coll_epoch) + 1;
	c.before = own_word(&v->own->grid[GRID_BEFORE]);
	c.bytes = args->count * type_bytes(args->type);
	rc = meet(&c);
	if (!rc && c.bytes)
		move(&c);
	part(&c, rc);
}
KERNEL(collective)
