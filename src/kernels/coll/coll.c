/* SPDX-License-Identifier: MIT */
/*
 * Collectives. Every rank tells all others what it was called with and waits for all (each block
 * for itself); only then does anybody touch anybody's buffers. The last block of a rank to be
 * through with its part tells all others, and waits until all have told: after that no peer reads
 * src or writes dst. Blocks wait for the first one alone.
 */
#include "coll.h"
#include "fold.h"

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

/* ---- moving --------------------------------------------------------------------------------- */

/* n ranks' blocks from `from` on, rank `pe` first, to their places in dst or to its begin. */
static inline void coll_pull(const struct coll *c, int pe, int n, uint64_t from, int places)
{
	for (int i = 0; i < n; i++) {
		uint64_t src = area_inbox(c->view, pe)->src + from, dst = c->args->dst;

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
static inline void share(const struct coll *c, struct fold *r)
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
	struct fold r;

	r.inboxes = area_inbox(c->view, 0);
	r.npes = c->view->npes;
	r.first = c->view->pe;
	r.everyone = c->args->kind == COLL_ALL_REDUCE;
	r.slots = 0;
	r.from = (uint64_t)c->view->pe * c->bytes;
	r.to = 0;
	r.bytes = c->bytes;
	r.dst = c->args->dst;
	r.lane = kernel_lane();
	r.lanes = kernel_lanes();
	if (r.everyone)
		share(c, &r);
	fold_run(&r, c->args->type, c->args->op);
}

static inline void coll_move(const struct coll *c)
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
		coll_pull(c, pe, n, from, places);
}

/* ---- the end ---------------------------------------------------------------------------------- */

/* failed: this rank's share is not stored. */
static inline void tell_done(const struct coll *c, int failed)
{
	const struct spmt_view *v = c->view;

	for (int pe = (int)spmtd_tid_(); pe < v->npes; pe += (int)spmtd_threads_()) {
		spmtd_ring_set_(spmtd_at_(&area_outbox(v, pe)->done),
			c->epoch << 1 | (uint64_t)(failed != 0));
		spmtd_wake_(v, pe);
	}
}

static inline int await_done_of(const struct coll *c, struct spmtd_waiter_ *w, int pe)
{
	uint64_t a = spmtd_at_(&area_inbox(c->view, pe)->done), want = c->epoch << 1, seen;
	int rc = 0;

	for (;;) {
		seen = spmtd_look64_(a);
		if (seen == want)
			return 0;
		if (seen == (want | 1))
			rc = SPMTD_ABORTED;
		if (!rc)
			rc = coll_patience(c, w);
		if (rc) {
			kernel_record(c->view, c->args->told, rc, SPMTD_WHAT_COLLECTIVE, pe, a,
				c->epoch, seen);
			return rc;
		}
	}
}

static inline int await_done(const struct coll *c)
{
	const struct spmt_view *v = c->view;
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	for (int pe = (int)spmtd_tid_(); pe < v->npes && !rc; pe += (int)spmtd_threads_())
		rc = await_done_of(c, &w, pe);
	spmtd_wait_end_(v, &w);
	return coll_agrees(rc);
}

/* By the rank's last block. Where calls differ nothing was touched. */
static inline void part(const struct coll *c, int rc)
{
	int how;

	if (rc && spmtd_tid_() == 0)
		coll_ended_badly(c, rc);
	if (!coll_last_block(c))
		return;
	how = coll_ended_how(c->view, c->epoch);
	tell_done(c, how >= ENDED_ABORTED);
	if (how == ENDED_WELL) {
		rc = await_done(c);
		how = rc == SPMTD_TIMEOUT ? ENDED_TIMEOUT : rc ? ENDED_ABORTED : ENDED_WELL;
		if (how && spmtd_tid_() == 0)
			coll_ended_badly(c, rc);
	}
	if (how >= ENDED_ABORTED) {
		coll_note_missing(c, spmtd_tid_(), spmtd_threads_());
		spmtd_gather_(SPMTD_BLOCK_);
		if (spmtd_tid_() == 0)
			broken_raise(c->view, ended_code(how));
		spmtd_gather_(SPMTD_BLOCK_);
		broken_leave_marks(c->view, ended_code(how), spmtd_tid_(), spmtd_threads_());
		coll_take_back(c);
	} else if (how && spmtd_tid_() == 0) {
		kernel_ended(c->view, SPMTD_MISMATCH);
	}
	if (spmtd_tid_() == 0)
		coll_end_epoch(c);
}

static inline void run_large(struct coll *c)
{
	int rc = c->refused ? SPMTD_ABORTED : 0;

	if (!rc && kernel_block() == 0)
		coll_greet(c, 1);
	if (!rc)
		rc = coll_meet(c);
	c->met = !rc;
	rc = coll_take_all(c, rc);
	if (!rc)
		coll_move(c);
	part(c, rc);
}

/* The stop word lies across the bus, and what it says is wanted only when all have come. Of many blocks the first
   looks: reads of it come one after the other. */
static inline int glance(const struct spmt_view *v)
{
#if defined(__AMDGCN__) || defined(__NVPTX__)
	if (v->stop && spmtd_tid_() == spmtd_threads_() - 1)
		return (int)spmtd_peek32_(spmtd_at_(v->stop));
#else
	(void)v;
#endif
	return 0;
}

KERNEL_BODY run_collective(const struct kernel_collective_args *args)
{
	const struct spmt_view *v = &args->view;
	struct coll c;

	c.args = args;
	c.view = v;
	c.mark = broken(v);
	c.epoch = peek_word(&area_of(v)->coll_epoch) + 1;
	c.before = peek_word(&area_of(v)->grid[GRID_BEFORE]);
	c.bytes = args->count * type_bytes(args->type);
	c.met = 0;
	/* All ranks have seen the part before differ. */
	if (args->part && coll_ended_how(v, c.epoch - 1) == ENDED_DIFFERS)
		return;
	c.refused = spmtd_any_block_(c.mark != 0);
	c.stopped = kernel_block() == 0 ? glance(v) : 0;
	if (c.refused && kernel_lane() == 0)
		broken_refuse(v, args->told, SPMTD_WHAT_COLLECTIVE, c.mark);
	if (kernel_block() == 0 && c.epoch >> 31 && (c.epoch & 0x7fffffff) <= 1)
		coll_clear_other_set(&c);
	if (c.bytes <= args->room)
		coll_run_small(&c);
	else
		run_large(&c);
}
KERNEL(collective)

/* ---- stages ------------------------------------------------------------------------------------- */

KERNEL_BODY run_stage(const struct kernel_stage_args *args)
{
	const struct spmt_view *v = &args->view;

	if (kernel_refused(v) ||
		(args->behind && coll_ended_how(v, peek_word(&area_of(v)->coll_epoch))))
		return;
	for (uint64_t b = 0; b < args->blocks; b++)
		spmtd_bulk_raw_(args->dst + b * args->dst_step, args->src + b * args->src_step,
			args->bytes, kernel_lane(), kernel_lanes());
}
KERNEL(stage)
