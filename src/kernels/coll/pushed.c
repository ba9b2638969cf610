/* SPDX-License-Identifier: MIT */
/*
 * Each rank pushes its data with its hello, into slots of which there are two sets, for even and
 * odd epochs, and all meet once. A rank that has come to the epoch after next has heard from all in
 * the next: all are through with this one, and its set is free.
 */
#include "coll.h"
#include "src/kernels/fold/factor.h"
#include "src/kernels/fold/fold.h"
#include "src/kernels/fold/slot.h"
#include "words.h"

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

static inline struct sweep sweep_of(const struct coll *c, int first, int ranks)
{
	uint64_t pieces = (c->bytes + PIECE - 1) / PIECE;
	uint64_t each = 2 * (uint64_t)c->share->units;
	struct sweep s = { kernel_block() * each, 0, first, ranks };

	if (s.from < pieces)
		s.n = pieces - s.from < each ? pieces - s.from : each;
	return s;
}

static inline struct sweep targets(const struct coll *c)
{
	return sweep_of(c, c->args->moves.to, c->args->moves.tos);
}

static inline struct sweep sources(const struct coll *c)
{
	return sweep_of(c, c->args->moves.from, c->args->moves.froms);
}

static inline uint32_t bytes_of(const struct coll *c, uint64_t piece)
{
	uint64_t left = c->bytes - PIECE * piece;

	return left < PIECE ? (uint32_t)left : PIECE;
}

static inline void coll_push(const struct coll *c)
{
	const struct spmt_view *v = c->view;
	struct slot_flags flags = slot_flags(c->epoch, c->args->key);
	struct sweep s = targets(c);
	int parts = c->args->moves.src_blocks, pe;
	uint64_t p;

	for (uint64_t i = spmtd_tid_(); sweep_at(c, &s, i, &p, &pe); i += spmtd_threads_()) {
		uint64_t own = area_there(v, pe);
		uint64_t from = c->args->src + (parts ? (uint64_t)(uint32_t)pe * c->bytes : 0);

		piece_send(coll_slot(c, own, v->pe), p,
			piece_fetch(from + PIECE * p, bytes_of(c, p)), slot_flags_of(&flags, p));
	}
}

static inline int await_piece(
	const struct coll *c, struct spmtd_waiter_ *w, uint64_t slot, uint64_t p, int pe)
{
	struct slot_flags flags = slot_flags(c->epoch, c->args->key);
	uint64_t a = slot + PIECE_IN_SLOT * p;
	int rc;

	while (!piece_is_whole(slot_peek(a), slot_flags_of(&flags, p))) {
		rc = coll_patience(c->view, w);
		if (!rc)
			continue;
		kernel_record(c->view, c->args->report, rc, SPMTD_WHAT_COLLECTIVE, pe, a,
			c->args->key, spmtd_peek64_(a));
		return rc;
	}
	return 0;
}

static inline __attribute__((always_inline)) SPMTD_MEETS int await_data(const struct coll *c)
{
	struct sweep s = sources(c);
	struct spmtd_waiter_ w;
	uint64_t p;
	int rc = 0, pe;

	spmtd_wait_begin_(&w);
	for (uint64_t i = spmtd_tid_(); !rc && sweep_at(c, &s, i, &p, &pe); i += spmtd_threads_())
		rc = await_piece(c, &w, coll_slot(c, spmtd_at_(c->view->own), pe), p, pe);
	spmtd_wait_end_(c->view, &w);
	return coll_agrees(rc);
}

/* The hello may have overtaken them. */
static inline SPMTD_MEETS int await_factors(const struct coll *c)
{
	const struct spmt_view *v = c->view;
	struct spmtd_waiter_ w;
	uint64_t at = factors_here(c->args, c->epoch);
	int rc = 0;

	spmtd_wait_begin_(&w);
	for (int pe = (int)spmtd_tid_(); pe < v->npes && !rc; pe += (int)spmtd_threads_()) {
		while (!rc &&
			!piece_is_whole(slot_peek(at + PIECE_IN_SLOT * (uint64_t)(uint32_t)pe),
				flags_alike(area_flag(c->epoch))))
			rc = coll_patience(v, &w);
		if (rc)
			kernel_record(v, c->args->report, rc, SPMTD_WHAT_COLLECTIVE, pe,
				at + PIECE_IN_SLOT * (uint64_t)(uint32_t)pe, c->args->key, 0);
	}
	spmtd_wait_end_(v, &w);
	return coll_agrees(rc);
}

/* The block's share of what has arrived. */
static inline void fold_arrived(const struct coll *c)
{
	struct sweep s = sources(c);
	struct fold r;

	if (!s.n || !s.ranks)
		return;
	r.slots = coll_slot(c, spmtd_at_(c->view->own), 0) + PIECE_IN_SLOT * s.from;
	r.slot = 2 * (uint64_t)c->args->room;
	r.npes = c->view->npes;
	r.everyone = 0;
	r.to = 0;
	r.bytes = c->bytes - PIECE * s.from < PIECE * s.n ? c->bytes - PIECE * s.from : PIECE * s.n;
	r.dst = c->args->dst + PIECE * s.from;
	r.factors = factors_here(c->args, c->epoch);
	r.lane = spmtd_tid_();
	r.lanes = spmtd_threads_();
	fold_run(&r, c->args->type, c->args->op);
}

/* The block's share of what has arrived, to dst. */
static inline __attribute__((always_inline)) void unpack(const struct coll *c)
{
	struct sweep s = sources(c);
	int places = c->args->moves.dst_blocks, pe;
	uint64_t p;

	for (uint64_t i = spmtd_tid_(); sweep_at(c, &s, i, &p, &pe); i += spmtd_threads_()) {
		uint64_t to = c->args->dst + (places ? (uint64_t)(uint32_t)pe * c->bytes : 0);

		piece_place(to + PIECE * p,
			piece_data(slot_peek(
				coll_slot(c, spmtd_at_(c->view->own), pe) + PIECE_IN_SLOT * p)),
			bytes_of(c, p));
	}
}

COLL_FN int coll_pushed(struct coll *c)
{
	int rc;

	if (c->bytes)
		coll_push(c);
	if (kernel_block() == 0)
		coll_greet(c, 0);
	rc = coll_meet(c);
	if (!rc && c->bytes)
		rc = await_data(c);
	if (!rc && c->args->op == COLL_PREMUL)
		rc = await_factors(c);
	if (rc || !c->bytes)
		return rc;
	if (c->args->moves.folds)
		fold_arrived(c);
	else
		unpack(c);
	return 0;
}
