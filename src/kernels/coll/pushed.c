/* SPDX-License-Identifier: MIT */
/*
 * Small collectives. They meet once: each rank pushes its data with its hello, into slots of which there are two sets,
 * for even and odd epochs. Who has come to the epoch after next has heard from all in the next, so
 * all are through with this one, and its set is free.
 */
#include "coll.h"
#include "fold.h"
#include "slot.h"

/* The slot that `writer` fills at the rank with this library area. */
static inline uint64_t slot_of(const struct coll *c, uint64_t own, int writer)
{
	uint64_t npes = (uint64_t)c->view->npes, nth = (c->epoch & 1) * npes + (uint64_t)writer;

	return area_slots(own, c->view->npes) + nth * 2 * c->args->room;
}

/* A block's share of every rank's data, in pieces: an equal range of whole units. */
struct sweep {
	uint64_t from, n;
	int first, ranks; /* from `first` on, round */
};

/* The i-th of these pieces: which, and of which rank. 0: there are no more. */
static inline int sweep_at(
	const struct coll *c, const struct sweep *s, uint64_t i, uint64_t *piece, int *pe)
{
	uint32_t n = (uint32_t)s->n, nth = n ? (uint32_t)i / n : (uint32_t)s->ranks;

	if (nth >= (uint32_t)s->ranks)
		return 0;
	*piece = s->from + (uint32_t)i % n;
	*pe = s->first + (int)nth;
	if (*pe >= c->view->npes)
		*pe -= c->view->npes;
	return 1;
}

static inline struct sweep sweep_all(const struct coll *c)
{
	uint64_t pieces = (c->bytes + PIECE - 1) / PIECE;
	uint64_t each = (pieces + 2 * kernel_blocks() - 1) / (2 * kernel_blocks()) * 2;
	struct sweep s = { kernel_block() * each, 0, c->view->pe, c->view->npes };

	if (s.from < pieces)
		s.n = pieces - s.from < each ? pieces - s.from : each;
	return s;
}

static inline struct sweep targets(const struct coll *c)
{
	struct sweep s = sweep_all(c);

	if (c->args->kind == COLL_BROADCAST && c->args->root != c->view->pe)
		s.ranks = 0;
	if (c->args->kind == COLL_PERMUTE) {
		s.first = c->args->to;
		s.ranks = c->args->to >= 0;
	}
	return s;
}

static inline struct sweep sources(const struct coll *c)
{
	struct sweep s = sweep_all(c);

	if (c->args->kind == COLL_BROADCAST || c->args->kind == COLL_PERMUTE) {
		s.first = c->args->root;
		s.ranks = c->args->root >= 0;
	}
	return s;
}

static inline uint32_t bytes_of(const struct coll *c, uint64_t piece)
{
	uint64_t left = c->bytes - PIECE * piece;

	return left < PIECE ? (uint32_t)left : PIECE;
}

static inline void coll_push(const struct coll *c)
{
	const struct spmt_view *v = c->view;
	struct sweep s = targets(c);
	int parts = c->args->kind == COLL_ALL_TO_ALL || c->args->kind == COLL_REDUCE_SCATTER, pe;
	uint64_t p;

	for (uint64_t i = spmtd_tid_(); sweep_at(c, &s, i, &p, &pe); i += spmtd_threads_()) {
		uint64_t own = area_there(v, pe);
		uint64_t from = c->args->src + (parts ? (uint64_t)(uint32_t)pe * c->bytes : 0);

		piece_send(slot_of(c, own, v->pe), p, piece_fetch(from + PIECE * p, bytes_of(c, p)),
			area_flag(c->epoch));
	}
}

static inline int await_piece(
	const struct coll *c, struct spmtd_waiter_ *w, uint64_t slot, uint64_t p, int pe)
{
	uint64_t a = slot + PIECE_IN_SLOT * p;
	int rc;

	while (!piece_is_here(slot, p, area_flag(c->epoch))) {
		rc = coll_patience(c, w);
		if (!rc)
			continue;
		kernel_record(c->view, c->args->told, rc, SPMTD_WHAT_COLLECTIVE, pe, a, c->epoch,
			spmtd_peek64_(a));
		return rc;
	}
	return 0;
}

static inline int await_data(const struct coll *c)
{
	struct sweep s = sources(c);
	struct spmtd_waiter_ w;
	uint64_t p;
	int rc = 0, pe;

	spmtd_wait_begin_(&w);
	for (uint64_t i = spmtd_tid_(); !rc && sweep_at(c, &s, i, &p, &pe); i += spmtd_threads_())
		rc = await_piece(c, &w, slot_of(c, spmtd_at_(c->view->own), pe), p, pe);
	spmtd_wait_end_(c->view, &w);
	return coll_agrees(rc);
}

/* The block's share of what has arrived. */
static inline void reduce_arrived(const struct coll *c)
{
	struct sweep s = sweep_all(c);
	struct fold r;

	if (!s.n)
		return;
	r.slots = slot_of(c, spmtd_at_(c->view->own), 0) + PIECE_IN_SLOT * s.from;
	r.slot = 2 * (uint64_t)c->args->room;
	r.npes = c->view->npes;
	r.everyone = 0;
	r.to = 0;
	r.bytes = c->bytes - PIECE * s.from < PIECE * s.n ? c->bytes - PIECE * s.from : PIECE * s.n;
	r.dst = c->args->dst + PIECE * s.from;
	r.lane = spmtd_tid_();
	r.lanes = spmtd_threads_();
	fold_run(&r, c->args->type, c->args->op);
}

/* The block's share of what has arrived, to dst. */
static inline void unpack(const struct coll *c)
{
	struct sweep s = sources(c);
	int places = c->args->kind == COLL_ALL_GATHER || c->args->kind == COLL_ALL_TO_ALL, pe;
	uint64_t p;

	for (uint64_t i = spmtd_tid_(); sweep_at(c, &s, i, &p, &pe); i += spmtd_threads_()) {
		uint64_t to = c->args->dst + (places ? (uint64_t)(uint32_t)pe * c->bytes : 0);

		piece_place(to + PIECE * p,
			piece_arrived(slot_of(c, spmtd_at_(c->view->own), pe), p), bytes_of(c, p));
	}
}

/* Flags come again after 2^31 epochs, and a slot's end may not have been written since: before this rank's
   hello nobody writes to the other set. */
COLL_FN void coll_clear_other_set(const struct coll *c)
{
	uint64_t set = (uint64_t)c->view->npes * 2 * c->args->room;
	uint64_t at = area_slots(spmtd_at_(c->view->own), c->view->npes) + (~c->epoch & 1) * set;

	for (uint64_t i = spmtd_tid_(); i < set / 8; i += spmtd_threads_())
		spmtd_poke64_(at + 8 * i, 0);
	spmtd_gather_(SPMTD_BLOCK_);
	spmtd_order_(); /* by each, so that all hellos come after it */
}

static inline int collect_small(const struct coll *c)
{
	int rc;

	if (c->bytes)
		coll_push(c);
	if (kernel_block() == 0)
		coll_greet(c, 0);
	rc = coll_meet(c);
	if (!rc && c->bytes)
		rc = await_data(c);
	if (rc || !c->bytes)
		return rc;
	if (c->args->kind == COLL_REDUCE_SCATTER || c->args->kind == COLL_ALL_REDUCE)
		reduce_arrived(c);
	else
		unpack(c);
	return 0;
}

/* By one thread of each block: is it the last? Where one has failed its word comes before its count. */
static inline int count_small(const struct coll *c, int rc)
{
	uint64_t ended = spmtd_at_(&area_of(c->view)->grid[GRID_ENDED]);
	int last;

	if (rc)
		coll_ended_badly(c, rc);
	if (kernel_blocks() == 1) {
		spmtd_poke64_(ended, c->before + 1);
		return 1;
	}
	if (rc)
		spmtd_order_();
	last = spmtd_add64_(ended, 1) + 1 == c->before + kernel_blocks();
	if (last)
		spmtd_order_();
	return last;
}

COLL_FN void coll_run_small(const struct coll *c)
{
	int rc = c->refused ? SPMTD_ABORTED : collect_small(c), how;

	if (spmtd_tid_() != 0 || !count_small(c, rc))
		return;
	how = coll_ended_how(c->view, c->epoch);
	if (how >= ENDED_ABORTED) {
		coll_note_missing(c, 0, 1);
		broken_raise(c->view, ended_code(how));
		broken_leave_marks(c->view, ended_code(how), 0, 1);
	} else if (how) {
		kernel_ended(c->view, SPMTD_MISMATCH);
	}
	coll_end_epoch(c);
}
