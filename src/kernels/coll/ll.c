/* SPDX-License-Identifier: MIT */
/*
 * Low latency: one phase, and no meeting. Each rank pushes its data into slots, as units whose flags
 * have the epoch and the call's key, and takes what comes. What it calls goes along as a hello, which
 * a rank looks at when it waits long, to tell that another calls something else. Where a rank does not fold
 * what comes from all, it waits for all hellos too, since nothing is moved where a call differs. Either way it has
 * heard from all when it is through, so the set of slots that it fills in the next epoch but one is free.
 */
#include "arrive.h"
#include "fold.h"

/* As COLL_FN, for functions of this file. */
#define LL_FN static inline __attribute__((always_inline))

#define LL_AHEAD 2 /* units that a thread has in flight */

#if defined(__AMDGCN__) || defined(__NVPTX__)
#define LL_EACH _Pragma("unroll") for (int i = 0; i < LL_AHEAD; i++)
#else
#define LL_EACH for (int i = 0; i < LL_AHEAD; i++)
#endif

/* ---- a thread's units ------------------------------------------------------------------------- */

/* A block's share of the data of `ranks` ranks from `first` on, in the order of its threads. */
struct ll_walk {
	uint32_t nth, k; /* of the ranks; of the block's units */
	uint32_t n;	 /* the block's units that there are */
	uint64_t from;
	int first, ranks;
};

LL_FN struct ll_walk ll_walk_of(const struct coll *c, int first, int ranks)
{
	const struct coll_share *s = c->share;
	uint64_t units = (c->bytes + 15) / 16;
	struct ll_walk w = { 0, spmtd_tid_(), 0, kernel_block() * (uint64_t)s->units, first,
		ranks };

	if (w.from < units)
		w.n = units - w.from < s->units ? (uint32_t)(units - w.from) : s->units;
	if (w.k >= s->units) {
		w.nth = (uint32_t)((uint64_t)w.k * s->scale >> 20);
		w.k -= w.nth * s->units;
	}
	return w;
}

LL_FN void ll_step(const struct coll *c, struct ll_walk *w)
{
	const struct coll_share *s = c->share;

	w->nth += s->rows;
	w->k += s->rest;
	if (w->k >= s->units) {
		w->k -= s->units;
		w->nth++;
	}
}

struct ll_at {
	int pe; /* -1: there are no more */
	uint64_t unit;
};

LL_FN struct ll_at ll_next(const struct coll *c, struct ll_walk *w)
{
	struct ll_at at = { -1, 0 };

	while (w->nth < (uint32_t)w->ranks && w->k >= w->n)
		ll_step(c, w);
	if (w->nth >= (uint32_t)w->ranks)
		return at;
	at.pe = w->first + (int)w->nth;
	if (at.pe >= c->view->npes)
		at.pe -= c->view->npes;
	at.unit = w->from + w->k;
	ll_step(c, w);
	return at;
}

LL_FN uint32_t ll_bytes(const struct coll *c, uint64_t unit)
{
	uint64_t left = c->bytes - 16 * unit;

	return left < 16 ? (uint32_t)left : 16;
}

/* ---- what goes -------------------------------------------------------------------------------- */

LL_FN union unit ll_fetch(const struct coll *c, struct ll_at at)
{
	uint64_t step = c->args->moves.src_blocks ? c->bytes : 0;
	uint64_t a = c->args->src + (uint64_t)(uint32_t)at.pe * step + 16 * at.unit;
	uint32_t n = ll_bytes(c, at.unit);

#if defined(__AMDGCN__) || defined(__NVPTX__)
	if (n == 8 && a % 8 == 0) {
		union unit u = { .words = { spmtd_gload64_(a), 0 } };

		return u;
	}
#endif
	return fetch(a, n);
}

LL_FN void ll_send(const struct coll *c)
{
	const struct spmt_view *v = c->view;
	struct slot_flags flags = slot_flags(c->epoch, c->args->key);
	struct ll_walk w = ll_walk_of(c, c->args->moves.to, c->args->moves.tos);
	union unit x[LL_AHEAD];
	struct ll_at at[LL_AHEAD];

	if (!w.n)
		return;
	do {
		LL_EACH
		{
			at[i] = ll_next(c, &w);
			if (at[i].pe >= 0)
				x[i] = ll_fetch(c, at[i]);
		}
		LL_EACH
		{
			uint64_t slot;

			if (at[i].pe < 0)
				continue;
			slot = coll_slot(c, area_there(v, at[i].pe), v->pe);
			piece_send(slot, 2 * at[i].unit, x[i].words[0], flags.lo);
			piece_send(slot, 2 * at[i].unit + 1, x[i].words[1], flags.hi);
		}
	} while (at[LL_AHEAD - 1].pe >= 0);
}

/* The threads that have the least of the data. */
LL_FN int ll_teller(void)
{
	return (int)(spmtd_threads_() - 1 - spmtd_tid_());
}

/* In one packet. */
LL_FN void ll_hello(const struct coll *c)
{
	const struct spmt_view *v = c->view;
	uint64_t flag = (uint64_t)area_flag(c->epoch) << 32, key = c->args->key;
	struct spmtd_unit_ u = { flag | (uint32_t)key, flag | key >> 32 };

	for (int pe = ll_teller(); pe < v->npes; pe += (int)spmtd_threads_()) {
		slot_poke(spmtd_at_(area_outbox(v, pe)->hello[c->epoch & 1]), u);
		spmtd_wake_(v, pe);
	}
}

/* ---- what comes ------------------------------------------------------------------------------- */

LL_FN int ll_differs(const struct arrivals *a, int pe)
{
	uint64_t key;

	return coll_hello(&a->view, a->epoch, pe, &key) && key != a->key;
}

COLL_RARE struct slot_unit coll_arrives(struct arrivals *a, uint64_t slot, uint64_t k, int pe)
{
	struct slot_unit s = { { 0, 0 }, { 0, 0 } };

	while (!a->rc) {
		s = slot_unit_peek(slot, k);
		if (slot_unit_is_whole(&s, &a->flags))
			break;
		a->rc = coll_patience(&a->view, &a->w);
		if (!a->rc && a->w.polls % COLL_LOOK_EVERY == 0 && ll_differs(a, pe))
			a->rc = SPMTD_MISMATCH;
		a->pe = pe;
		a->at = slot + 2 * PIECE_IN_SLOT * k;
		a->seen = s.lo.a;
	}
	return s;
}

/* The code of all threads' waits; each tells of its own. */
LL_FN int ll_ended(const struct coll *c, const struct arrivals *a)
{
	if (a->rc == SPMTD_MISMATCH)
		coll_record_mismatch(c, a->pe);
	else if (a->rc)
		kernel_record(c->view, c->args->report, a->rc, SPMTD_WHAT_COLLECTIVE, a->pe, a->at,
			a->epoch, a->seen);
	return coll_agrees(a->rc);
}

LL_FN int await_key(const struct coll *c, struct arrivals *a, int pe)
{
	uint64_t key;
	int rc = 0;

	while (!rc && !coll_hello(c->view, c->epoch, pe, &key))
		rc = coll_patience(c->view, &a->w);
	if (rc)
		kernel_record(c->view, c->args->report, rc, SPMTD_WHAT_COLLECTIVE, pe,
			spmtd_at_(area_inbox(c->view, pe)->hello[c->epoch & 1]), c->epoch, 0);
	else if (key != c->args->key)
		rc = SPMTD_MISMATCH;
	if (rc == SPMTD_MISMATCH)
		coll_record_mismatch(c, pe);
	return rc;
}

/* All have come, and call the same; or all have, and some other. */
LL_FN int await_keys(const struct coll *c, struct arrivals *a)
{
	int rc = c->stopped ? SPMTD_ABORTED : 0, differs = 0;

	for (int pe = ll_teller(); pe < c->view->npes && !rc; pe += (int)spmtd_threads_()) {
		rc = pe == c->view->pe ? 0 : await_key(c, a, pe);
		if (rc == SPMTD_MISMATCH) {
			differs = rc;
			rc = 0;
		}
	}
	return coll_agrees(rc ? rc : differs);
}

LL_FN void ll_place(const struct coll *c, struct ll_at at, union unit u)
{
	uint64_t to = c->args->dst + 16 * at.unit;
	uint32_t n = ll_bytes(c, at.unit);

	if (c->args->moves.dst_blocks)
		to += (uint64_t)(uint32_t)at.pe * c->bytes;
#if defined(__AMDGCN__) || defined(__NVPTX__)
	if (n == 8 && to % 8 == 0) {
		spmtd_gstore64_(to, u.words[0]);
		return;
	}
#endif
	place(to, u, n);
}

/* The first units are under way while hellos are waited for. */
LL_FN int ll_unpack(const struct coll *c, struct arrivals *a)
{
	struct ll_walk w = ll_walk_of(c, c->args->moves.from, c->args->moves.froms);
	uint64_t own = spmtd_at_(c->view->own);
	struct slot_unit s[LL_AHEAD];
	struct ll_at at[LL_AHEAD];
	int met = 0, rc;

	if (!w.n)
		w.ranks = 0;
	do {
		LL_EACH
		{
			at[i] = ll_next(c, &w);
			if (at[i].pe >= 0)
				s[i] = slot_unit_peek(coll_slot(c, own, at[i].pe), at[i].unit);
		}
		rc = met ? 0 : await_keys(c, a);
		if (rc)
			return rc;
		met = 1;
		LL_EACH
		{
			union unit u;

			if (at[i].pe < 0)
				continue;
			u = unit_arrives(
				a, coll_slot(c, own, at[i].pe), at[i].unit, at[i].pe, &s[i]);
			if (!a->rc)
				ll_place(c, at[i], u);
		}
	} while (at[LL_AHEAD - 1].pe >= 0 && !a->rc);
	return ll_ended(c, a);
}

/*
 * Each unit is stored once it has come from all ranks, so that who is through has heard from all. In place that is where others of
 * the block's threads send from, which are done with it first. Where calls differ all have still to be heard, or a rank
 * could be two epochs ahead of another.
 */
LL_FN int ll_fold(const struct coll *c, struct arrivals *a)
{
	struct ll_walk w = ll_walk_of(c, 0, 0);
	uint64_t bytes = c->bytes - 16 * w.from;
	struct fold r;
	int rc;

	if (spmtd_any_block_(c->stopped))
		return SPMTD_ABORTED;
	if (w.n) {
		r.inboxes = 0;
		r.first = 0;
		r.from = 0;
		r.arrivals = a;
		r.slots = coll_slot(c, spmtd_at_(c->view->own), 0) + 2 * PIECE_IN_SLOT * w.from;
		r.slot = 2 * (uint64_t)c->args->room;
		r.npes = c->view->npes;
		r.everyone = 0;
		r.to = 0;
		r.bytes = bytes < 16 * (uint64_t)w.n ? bytes : 16 * (uint64_t)w.n;
		r.dst = c->args->dst + 16 * w.from;
		r.lane = spmtd_tid_();
		r.lanes = spmtd_threads_();
		fold_run(&r, c->args->type, c->args->op);
	}
	rc = ll_ended(c, a);
	return rc == SPMTD_MISMATCH ? await_keys(c, a) : rc;
}

COLL_FN int coll_ll(const struct coll *c)
{
	struct arrivals a;
	int rc;

	arrivals_begin(c, &a);
	if (c->bytes)
		ll_send(c);
	if (kernel_block() == 0)
		ll_hello(c);
	rc = c->bytes && c->args->moves.folds && c->args->moves.froms ? ll_fold(c, &a)
								      : ll_unpack(c, &a);
	spmtd_wait_rest_(c->view, &a.w);
	return rc;
}
