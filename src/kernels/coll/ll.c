/* SPDX-License-Identifier: MIT */
/*
 * Low latency: one phase, and no meeting. Each rank pushes its data into slots, as units whose flags
 * have the epoch and the call's key, and takes what comes. What it calls goes along as a hello, which
 * a rank looks at when it waits long, to tell that another calls something else. Where a rank does not fold
 * what comes from all, it waits for all hellos too, since nothing is moved where a call differs. Either way it has
 * heard from all when it is through, so the set of slots that it fills in the next epoch but one is free.
 */
#include "coll.h"
#include "ll_loops.h"
#include "src/kernels/fold/slot_unit.h"

#define LL_AHEAD 2 /* units that a thread has in flight */

#if defined(__AMDGCN__) || defined(__NVPTX__)
#define LL_EACH _Pragma("unroll") for (int i = 0; i < LL_AHEAD; i++)
#else
#define LL_EACH for (int i = 0; i < LL_AHEAD; i++)
#endif

enum ll_kernel {
#define X(name) LL_##name,
	COLL_LL_KERNELS(X)
#undef X
};

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
	if (n < 16 || (a & 15))
		return gather_here(a, n);
#endif
	return fetch(a, n);
}

LL_FN void ll_send(const struct coll *c, const struct slot_flags *flags)
{
	const struct spmt_view *v = c->view;
	const uint32_t group = unit_group(c->args->room);
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
			piece_send(unit_even(slot, at[i].unit, group), 0, x[i].words[0], flags->lo);
			piece_send(unit_odd(slot, at[i].unit, group), 0, x[i].words[1], flags->hi);
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

/* A thread's waits in one collective. Inlined where they are, as all of this: no address of it is taken, and it stays in registers. */
struct ll_waits {
	struct spmtd_waiter_ w;
	struct slot_flags flags;
	/* not 0: one has failed, for this rank's unit, which lies there; none is waited for any more */
	int rc, pe;
	uint64_t at, seen;
};

LL_FN int ll_differs(const struct coll *c, int pe)
{
	uint64_t key;

	return coll_hello(c->view, c->epoch, pe, &key) && key != c->args->key;
}

/* Of the unit k in pe's slot, which has been s. Of no meaning once w->rc is set, as it is where pe calls something else, or where waits
   end. */
LL_FN union unit ll_arrives(
	const struct coll *c, struct ll_waits *w, int pe, uint64_t k, struct slot_unit s)
{
	uint64_t slot = coll_slot(c, spmtd_at_(c->view->own), pe);

	while (!w->rc && !slot_unit_is_whole(&s, &w->flags)) {
		w->rc = coll_patience(c->view, &w->w);
		if (!w->rc && w->w.polls % COLL_LOOK_EVERY == 0 && ll_differs(c, pe))
			w->rc = SPMTD_MISMATCH;
		if (w->rc) {
			w->pe = pe;
			w->at = unit_even(slot, k, unit_group(c->args->room));
			w->seen = s.lo.a;
		}
		s = slot_unit_peek(slot, k, unit_group(c->args->room));
	}
	return slot_unit_data(&s);
}

/* Waits for what all others call; some thread of every block does for each. */
LL_FN void await_keys(const struct coll *c, struct ll_waits *w)
{
	int differs = -1;

	w->rc = c->stopped ? SPMTD_ABORTED : 0;
	w->pe = -1;
	w->seen = 0;
	for (int pe = ll_teller(); pe < c->view->npes && !w->rc; pe += (int)spmtd_threads_()) {
		uint64_t key = c->args->key;

		w->pe = pe;
		w->at = spmtd_at_(area_inbox(c->view, pe)->hello[c->epoch & 1]);
		while (pe != c->view->pe && !w->rc && !coll_hello(c->view, c->epoch, pe, &key))
			w->rc = coll_patience(c->view, &w->w);
		if (!w->rc && key != c->args->key && differs < 0)
			differs = pe;
	}
	if (w->rc || differs < 0)
		return;
	w->rc = SPMTD_MISMATCH;
	w->pe = differs;
}

/* The code of all threads' waits; each tells of its own. */
LL_FN int ll_agreed(const struct coll *c, struct ll_waits *w)
{
	uint64_t expected = c->epoch;

	if (w->rc == SPMTD_MISMATCH) {
		expected = c->args->key;
		w->at = spmtd_at_(area_inbox(c->view, w->pe)->hello[c->epoch & 1]);
		coll_hello(c->view, c->epoch, w->pe, &w->seen);
	}
	if (w->rc && w->pe >= 0)
		kernel_record_here(c->view, c->args->report, w->rc, SPMTD_WHAT_COLLECTIVE, w->pe,
			w->at, expected, w->seen);
	return coll_agrees(w->rc);
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
	if (n < 16 || (to & 15)) {
		scatter_here(to, u, n);
		return;
	}
#endif
	place(to, u, n);
}

/* A thread's first units, which are under way while hellos are waited for; then the next. */
struct ll_ahead {
	struct ll_walk walk;
	struct ll_at at[LL_AHEAD];
	struct slot_unit s[LL_AHEAD];
};

LL_FN void ll_look_ahead(const struct coll *c, struct ll_ahead *a)
{
	LL_EACH
	{
		a->at[i] = ll_next(c, &a->walk);
		if (a->at[i].pe >= 0)
			a->s[i] = slot_unit_peek(coll_slot(c, spmtd_at_(c->view->own), a->at[i].pe),
				a->at[i].unit, unit_group(c->args->room));
	}
}

LL_FN void ll_unpack(const struct coll *c, struct ll_waits *w, struct ll_ahead *a)
{
	while (!w->rc && a->at[0].pe >= 0) {
		LL_EACH
		{
			union unit u = { .words = { 0, 0 } };

			if (a->at[i].pe >= 0)
				u = ll_arrives(c, w, a->at[i].pe, a->at[i].unit, a->s[i]);
			if (a->at[i].pe >= 0 && !w->rc)
				ll_place(c, a->at[i], u);
		}
		ll_look_ahead(c, a);
	}
}

/* The block's share. The next rank's unit is loaded before the last one's is folded. */
#define DEFINE_LL_LOOP(name, acc, begin, step, end, hold)                                        \
	LL_FN void ll_loop_##name(const struct coll *c, struct ll_waits *w)                      \
	{                                                                                        \
		struct ll_walk walk = ll_walk_of(c, 0, 0);                                       \
		uint64_t own = spmtd_at_(c->view->own);                                          \
		int npes = c->view->npes, op = c->args->op, second = second_type(c->args->type); \
		const uint32_t group = unit_group(c->args->room);                                \
                                                                                                 \
		for (uint64_t i = spmtd_tid_(); i < walk.n && !w->rc; i += spmtd_threads_()) {   \
			struct ll_at at = { 0, walk.from + i };                                  \
			struct slot_unit s,                                                      \
				next = slot_unit_peek(coll_slot(c, own, 0), at.unit, group);     \
			union unit x;                                                            \
			acc a;                                                                   \
                                                                                                 \
			for (int pe = 0; pe < npes; pe++) {                                      \
				s = next;                                                        \
				if (pe + 1 < npes)                                               \
					next = slot_unit_peek(                                   \
						coll_slot(c, own, pe + 1), at.unit, group);      \
				x = packed(ll_arrives(c, w, pe, at.unit, s));                    \
				a = pe ? step(a, x, op, second) : begin(x, second);              \
				a = hold(a);                                                     \
			}                                                                        \
			if (!w->rc)                                                              \
				ll_place(c, at, end(a, op, npes, second));                       \
		}                                                                                \
	}
LL_LOOPS(DEFINE_LL_LOOP)

LL_FN void ll_fold_units(const struct coll *c, struct ll_waits *w, enum ll_kernel which)
{
	switch (which) {
#define X(name, acc, begin, step, end, hold) \
	case LL_##name:                      \
		ll_loop_##name(c, w);        \
		break;
		LL_LOOPS(X)
#undef X
	case LL_copy:
	default:
		break;
	}
}

/*
 * Each unit is stored once it has come from all ranks, so that who is through has heard from all. In place that is where others of
 * the block's threads send from, which are done with it first. Where calls differ all have still to be heard, or a rank
 * could be two epochs ahead of another.
 */
LL_FN int ll_fold(const struct coll *c, struct ll_waits *w, enum ll_kernel which)
{
	int heard = 0, rc;

	if (spmtd_any_block_(c->stopped))
		return SPMTD_ABORTED;
	heard = !c->bytes || !c->args->moves.froms;
	for (;;) {
		if (heard)
			await_keys(c, w);
		else
			ll_fold_units(c, w, which);
		rc = ll_agreed(c, w);
		if (heard || rc != SPMTD_MISMATCH)
			return rc;
		heard = 1;
	}
}

LL_FN int ll_copy(const struct coll *c, struct ll_waits *w)
{
	struct ll_ahead a = { .walk = ll_walk_of(c, c->args->moves.from, c->args->moves.froms) };
	int rc;

	if (!a.walk.n)
		a.walk.ranks = 0;
	ll_look_ahead(c, &a);
	for (int heard = 0;; heard = 1) {
		if (heard)
			ll_unpack(c, w, &a);
		else
			await_keys(c, w);
		rc = ll_agreed(c, w);
		if (heard || rc)
			return rc;
	}
}

LL_FN int ll_run(const struct coll *c, enum ll_kernel which)
{
	struct ll_waits w;
	int rc;

	w.flags = slot_flags(c->epoch, c->args->key);
	w.rc = 0;
	spmtd_wait_begin_(&w.w);
	if (c->bytes)
		ll_send(c, &w.flags);
	if (kernel_block() == 0)
		ll_hello(c);
	rc = which == LL_copy ? ll_copy(c, &w) : ll_fold(c, &w, which);
	spmtd_wait_rest_(c->view, &w.w);
	return rc;
}

/* ---- kernels ----------------------------------------------------------------------------------- */

#if defined(__AMDGCN__) || defined(__NVPTX__)

LL_FN void ll_kernel(const struct kernel_collective_args *args, enum ll_kernel which)
{
	struct coll c;

	if (!coll_open(&c, args))
		return;
	coll_slots_begin(&c);
	coll_slots_end(&c, c.refused ? SPMTD_ABORTED : ll_run(&c, which));
}

#define X(name)                                                              \
	KERNEL_BODY run_ll_##name(const struct kernel_collective_args *args) \
	{                                                                    \
		ll_kernel(args, LL_##name);                                  \
	}                                                                    \
	KERNEL_TAKING(ll_##name, struct kernel_collective_args)
COLL_LL_KERNELS(X)
#undef X

#else

static enum ll_kernel ll_kernel_for(const struct kernel_collective_args *args)
{
	return args->moves.folds ? (enum ll_kernel)((int)LL_u8 + (int)fold_loop_for(args))
				 : LL_copy;
}

int coll_ll(const struct coll *c)
{
	return ll_run(c, ll_kernel_for(c->args));
}

#if !defined(COLL_ONE_UNIT)

static void ll_on_host(const void *args)
{
	kernel_collective.host(args);
}

#define X(name)                                                                             \
	const struct kernel kernel_ll_##name = { "spmt_kernel_ll_" #name, ll_on_host, true, \
		sizeof(struct spmt_view) };
COLL_LL_KERNELS(X)
#undef X

const struct kernel *kernel_of_collective(const struct kernel_collective_args *args)
{
	static const struct kernel *const of_ll[] = {
#define X(name) [LL_##name] = &kernel_ll_##name,
		COLL_LL_KERNELS(X)
#undef X
	};

	if (args->algorithm == COLL_ROW_pull)
		return &kernel_pull;
	if (args->algorithm == COLL_ROW_twoshot)
		return twoshot_kernel_for(args);
	return args->algorithm == COLL_ROW_ll ? of_ll[ll_kernel_for(args)] : &kernel_collective;
}

#endif
#endif
