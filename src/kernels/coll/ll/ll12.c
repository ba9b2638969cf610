/* SPDX-License-Identifier: MIT */
/*
 * What is too much for `ll`, which sends two bytes for each: data as quads (ll12_quad.h), four bytes for three, and no meeting. A flag has
 * the epoch alone, so what a call leaves in slots is its own, but nothing is stored to a buffer before the hellos of all have told
 * that they call the same. An all_reduce has two phases: each rank folds its part of what all have, in the order of ranks, and sends it on at once,
 * into the second half of its slots, whatever the others call. A rank is through when it has heard from all, as in `ll`.
 *
 * A thread has the same parts of each rank's data, so what it sends, it has loaded before it stores where that lies. Threads of a warp go on
 * together. Of a block of several warps the last one has no parts, but waits for the hellos meanwhile.
 *
 * What a call takes is mostly what a thread executes, for the first time: so units that are whole and aligned have kernels of their own, for as
 * many ranks at once as there are others between two or four, and what needs nothing of what is ahead in the stream is found before that has ended.
 */
#include "ll12_send.h"
#include "ll_loops.h"
#include "ll_wait.h"
#include "src/kernels/coll/coll.h"

enum ll12_kernel {
#define X(name) LL12_##name,
	COLL_LL12_KERNELS(X)
#undef X
		LL12_KERNELS
};

/* Of units some of which are short, or not aligned; of whole ones between two ranks, and among more. */
enum ll12_form { LL12_ODD, LL12_PAIR, LL12_ABREAST, LL12_FORMS };

LL_FN struct ll12_way ll12_way(enum ll12_form form)
{
	return (struct ll12_way){ form == LL12_ABREAST ? LL12_MANY : LL12_ONE, form == LL12_ODD };
}

/* ---- what comes ------------------------------------------------------------------------------------ */

/* What a thread waits for together: its part t of ranks from the nth one behind `first` on. */
struct ll12_wanted {
	uint32_t t;
	int first, nth, ranks, phase;
};

/* -1: there are no more, or it is this rank, or the thread has no part. */
LL_FN int ll12_wanted_pe(const struct ll12 *l, const struct ll12_wanted *x, int i)
{
	const int pe = ll_rank(l->c, x->first, x->nth + i);

	return x->nth + i < x->ranks && pe != l->c->view->pe && x->t < l->parts ? pe : -1;
}

LL_FN uint64_t ll12_here(const struct ll12 *l, int pe, uint32_t t, int phase)
{
	return l->here + l->set + (uint64_t)(uint32_t)pe * l->pitch +
		(phase ? l->c->args->room : 0) + (uint64_t)t * (16 * PART_PIECES);
}

/* One that does not come, and whether its rank calls something else; of a wait that has ended while all have come the first. */
LL_FN void ll12_misses(
	const struct ll12 *l, struct ll_waits *w, const struct ll12_wanted *x, int ranks)
{
	if (w->rc)
		w->pe = -1;
	LL_ROLLED
	for (int i = 0; i < ranks; i++) {
		const int pe = ll12_wanted_pe(l, x, i);
		struct quad_pieces p;
		uint64_t place;
		int whole;

		if (pe < 0)
			continue;
		place = ll12_here(l, pe, x->t, x->phase);
		p = part_peek(place);
		whole = part_is_whole(&p, l->flag);
		if (whole && (!w->rc || w->pe >= 0))
			continue;
		w->pe = pe;
		w->at = place;
		w->seen = p.at[0].b;
		if (whole)
			continue;
		if (!w->rc && ll_differs(l->c, pe))
			w->rc = SPMTD_MISMATCH;
		if (w->rc)
			return;
	}
}

/* Until all have come, or a wait of this warp has failed. */
LL_FN void ll12_await(struct ll12 *l, struct ll_waits *w, const struct ll12_wanted *x, int ranks,
	struct quad_pieces *p)
{
	uint64_t at[LL12_MANY + 1];
	int whole;

	UNROLLED
	for (int i = 0; i < ranks; i++) {
		const int pe = ll12_wanted_pe(l, x, i);

		at[i] = pe >= 0 ? kernel_now(ll12_here(l, pe, x->t, x->phase)) : 0;
	}
	do {
		whole = 1;
		UNROLLED
		for (int i = 0; i < ranks; i++) {
			if (at[i])
				p[i] = part_peek(at[i]);
		}
		UNROLLED
		for (int i = 0; i < ranks; i++) {
			if (at[i])
				whole &= part_is_whole(&p[i], l->flag);
		}
		if (LIKELY(whole))
			break;
		w->rc = coll_patience(l->c->view, &w->w);
		if (UNLIKELY(w->rc || COLL_LOOKS(w->w.polls)))
			ll12_misses(l, w, x, ranks);
	} while (!w->rc);
	l->gone = warp_any(w->rc);
}

/* Where they are stored. */
LL_FN void ll12_find_here(const struct ll12 *l, const struct ll12_wanted *x, struct ll12_way way,
	struct ll12_spot *to)
{
	UNROLLED
	for (int i = 0; i < way.many; i++) {
		const int pe = ll12_wanted_pe(l, x, i);

		to[i].n = 0;
		if (pe >= 0)
			to[i] = ll12_spot(l, ll12_dst(l, pe), pe, x->t);
	}
}

/* Waits for what all call, this rank too, of which one block alone may have seen that the comm is broken. */
LL_FN void ll12_hear(const struct coll *c, struct ll_waits *w)
{
	if (!coll_stopped(c))
		await_keys(c, w, 1);
}

/* From `ranks` ranks from `first` on. Where a block has not agreed yet, it does before the first is stored. What this rank gives to
   itself is among the first. */
LL_FN int ll12_take(
	struct ll12 *l, struct ll_waits *w, int first, int ranks, int phase, struct ll12_way way)
{
	const int me = l->c->view->pe, self = ll_self(l->c, first, ranks);
	const int keeps = self && !phase && ll12_src(l, me) != ll12_dst(l, me);
	int rc = 0, agreed = phase, nth = self, has;
	uint32_t base = l->base;

	do {
		const uint32_t t = base + warp_lane();
		struct ll12_wanted x = { t, first, nth, ranks, phase };
		struct quad_pieces p[LL12_MANY];
		struct ll12_spot to[LL12_MANY], own_to;
		struct quad_part own;

		has = base < l->parts && ranks && !l->gone;
		__builtin_memset(p, 0, sizeof(p));
		__builtin_memset(&own, 0, sizeof(own));
		own_to.n = 0;
		if (has && keeps && nth == self) {
			own = ll12_load(l, me, t, ll12_spot(l, ll12_src(l, me), me, t), way.odd);
			own_to = ll12_spot(l, ll12_dst(l, me), me, t);
		}
		ll12_find_here(l, &x, way, to);
		if (has)
			ll12_await(l, w, &x, way.many, p);
		if (!agreed) {
			if (!w->rc || w->rc == SPMTD_MISMATCH)
				ll12_hear(l->c, w);
			rc = ll_first_agreed(l->c, w);
		}
		agreed = 1;
		has = has && !rc && !l->gone;
		if (!has)
			break;
		ll12_store(l, me, t, own_to, &own, way.odd);
		UNROLLED
		for (int i = 0; i < way.many; i++) {
			struct quad_part y;

			if (nth + i >= ranks)
				break;
			y = part_data(&p[i]);
			ll12_store(l, ll_rank(l->c, first, nth + i), t, to[i], &y, way.odd);
		}
		nth += way.many;
		if (nth >= ranks) {
			nth = self;
			base += l->step;
		}
	} while (base < l->parts);
	return rc;
}

/* ---- folds ----------------------------------------------------------------------------------------- */

/* The sum of all ranks' parts t, in their order. */
#define DEFINE_LL12_FOLD(name, acc, begin, step, end_of, hold)                                     \
	LL_FN struct quad_part ll12_fold_##name(                                                   \
		struct ll12 *l, struct ll_waits *w, uint32_t t, struct ll12_way way)               \
	{                                                                                          \
		const int npes = l->c->view->npes, me = l->c->view->pe;                            \
		const int second = second_type(l->c->args->type);                                  \
		const struct quad_part own =                                                       \
			ll12_load(l, me, t, ll12_spot(l, ll12_src(l, me), me, t), way.odd);        \
		struct ll12_wanted x = { t, 0, 0, npes, 0 };                                       \
		struct quad_part sum;                                                              \
		acc a[PART_UNITS];                                                                 \
                                                                                                   \
		__builtin_memset(a, 0, sizeof(a));                                                 \
		LL_ROLLED                                                                          \
		for (; x.nth < npes && !l->gone; x.nth += way.many + 1) {                          \
			struct quad_pieces p[LL12_MANY + 1];                                       \
                                                                                                   \
			__builtin_memset(p, 0, sizeof(p));                                         \
			ll12_await(l, w, &x, way.many + 1, p);                                     \
			UNROLLED                                                                   \
			for (int n = 0; n < way.many + 1; n++) {                                   \
				struct quad_part y;                                                \
                                                                                                   \
				if (x.nth + n >= npes)                                             \
					break;                                                     \
				y = part_data(&p[n]);                                              \
				if (x.nth + n == me)                                               \
					y = own;                                                   \
				LL_EACH(PART_UNITS)                                                \
				{                                                                  \
					union unit u = packed(y.u[i]);                             \
                                                                                                   \
					a[i] = hold(x.nth + n ? step(a[i], u, SPMT_OP_SUM, second) \
							      : begin(u, second));                 \
				}                                                                  \
			}                                                                          \
		}                                                                                  \
		LL_EACH(PART_UNITS)                                                                \
		sum.u[i] = end_of(a[i], l->c->args->op, npes, second);                             \
		return sum;                                                                        \
	}
LL_LOOPS_OF_PLANS(DEFINE_LL12_FOLD)

LL_FN struct quad_part ll12_folded(
	struct ll12 *l, struct ll_waits *w, enum ll12_kernel which, uint32_t t, struct ll12_way way)
{
	struct quad_part sum;

	switch (which) {
#define X(name, acc, begin, step, end, hold)          \
	case LL12_##name:                             \
		sum = ll12_fold_##name(l, w, t, way); \
		break;
		LL_LOOPS_OF_PLANS(X)
#undef X
	case LL12_copy:
	default:
		__builtin_memset(&sum, 0, sizeof(sum));
		break;
	}
	return sum;
}

/* Before the first is stored all have called the same. */
LL_FN int ll12_fold_all(
	struct ll12 *l, struct ll_waits *w, enum ll12_kernel which, struct ll12_way way)
{
	const struct coll *c = l->c;
	uint32_t base = l->base;
	int rc = 0, agreed = 0, has;

	do {
		const uint32_t t = base + warp_lane();
		const int me = c->view->pe;
		const struct ll12_spot to = ll12_spot(l, ll12_dst(l, me), me, t);
		uint64_t there[LL12_MANY];
		struct quad_part x;

		has = c->args->moves.froms && base < l->parts && !l->gone;
		__builtin_memset(&x, 0, sizeof(x));
		if (l->relays)
			ll12_find_there(l, t, me, 1, c->view->npes, 1, way, there);
		if (has)
			x = ll12_folded(l, w, which, t, way);
		if (has && !l->gone && l->relays) {
			ll12_relay(l, t, way, there, &x);
			ll12_wake(l);
		}
		if (!agreed)
			rc = ll_first_agreed(c, w);
		agreed = 1;
		if (!has || rc || l->gone)
			break;
		ll12_store(l, me, t, to, &x, way.odd);
		base += l->step;
	} while (base < l->parts);
	return rc;
}

/* ---- all ------------------------------------------------------------------------------------------- */

/* What a thread has found out before it is known which epoch this is. */
struct ll12_first {
	struct ll12_batch batch;
	uint64_t hello[2];
};

/* Needs nothing of what is ahead in the stream. */
LL_FN void ll12_find(const struct ll12 *l, struct ll12_way way, struct ll12_first *first)
{
	const struct coll_moves *m = &l->c->args->moves;

	__builtin_memset(&first->batch, 0, sizeof(first->batch));
	if (l->base < l->parts)
		ll12_batch_find(
			l, l->base + warp_lane(), ll_self(l->c, m->to, m->tos), way, &first->batch);
	ll_hello_find(l->c, first->hello);
}

/* What is sent first, of whole units. */
LL_FN void ll12_load_first(const struct ll12 *l, struct ll12_way way, struct ll12_first *first)
{
	const struct coll_moves *m = &l->c->args->moves;

	if (!way.odd)
		ll12_batch_load(
			l, l->base + warp_lane(), ll_self(l->c, m->to, m->tos), way, &first->batch);
}

/* What this rank has for the others, and what it calls, once it is known that the comm is not broken. */
LL_FN void ll12_give(const struct ll12 *l, struct ll12_way way, struct ll12_first *first)
{
	ll12_send(l, way, &first->batch);
	ll12_wake(l);
	if (kernel_block() == 0 && !warp_any(coll_stopped(l->c)))
		ll_hello_found(l->c, first->hello);
}

/* What they have for it. */
LL_FN int ll12_get(struct ll12 *l, struct ll_waits *w, enum ll12_kernel which, struct ll12_way way)
{
	const struct coll *c = l->c;
	const struct coll_moves *m = &c->args->moves;
	int rc;

	if (which == LL12_copy)
		return ll12_take(l, w, m->from, m->froms, 0, way);
	ll12_hear(c, w);
	l->gone = warp_any(w->rc);
	rc = ll12_fold_all(l, w, which, way);
	if (rc || !l->relays)
		return rc;
	return ll12_take(l, w, c->view->pe, c->view->npes, 1, way);
}

LL_FN int ll12_run(
	const struct coll *c, struct ll12 *l, enum ll12_kernel which, struct ll12_way way)
{
	struct ll_waits w;
	int rc;

	w.rc = 0;
	w.pe = -1;
	w.at = w.seen = 0;
	spmtd_wait_begin_(&w.w);
	rc = ll12_get(l, &w, which, way);
	if (!rc)
		rc = ll_agreed(c, &w);
	spmtd_wait_rest_(c->view, &w.w);
	return rc;
}

/* ---- kernels --------------------------------------------------------------------------------------- */

#if defined(__NVPTX__)

LL_FN void ll12_kernel(
	const struct kernel_collective_args *args, enum ll12_kernel which, enum ll12_form form)
{
	const struct ll12_way way = ll12_way(form);
	struct ll12_first first;
	struct ll12 l;
	struct coll c;

	coll_enter(&c, args);
	c.tells = COLL_TELLS;
	l = ll12_of(&c);
	ll12_find(&l, way, &first);
	kernel_behind(args->alone);
	coll_set(&c);
	ll12_load_first(&l, way, &first);
	if (!coll_open(&c))
		return;
	ll12_begin(&l);
	if (!c.refused)
		ll12_give(&l, way, &first);
	coll_slots_begin(&c);
	coll_slots_end(&c, c.refused ? SPMTD_ABORTED : ll12_run(&c, &l, which, way));
}

#define LL12_KERNEL(name, which, form)                                    \
	KERNEL_BODY run_##name(const struct kernel_collective_args *args) \
	{                                                                 \
		ll12_kernel(args, LL12_##which, form);                    \
	}                                                                 \
	KERNEL_TAKING(name, struct kernel_collective_args)

#elif !defined(__AMDGCN__)

static enum ll12_kernel ll12_kernel_for(const struct kernel_collective_args *args)
{
	return args->moves.folds ? (enum ll12_kernel)((int)LL12_u8 + (int)fold_loop_for(args))
				 : LL12_copy;
}

static enum ll12_form ll12_form_for(const struct kernel_collective_args *args)
{
	if ((args->src | args->dst | args->bytes) & 15)
		return LL12_ODD;
	return args->view.npes > 2 ? LL12_ABREAST : LL12_PAIR;
}

/* A way that is a constant. */
static inline __attribute__((always_inline)) int ll12_row(
	const struct coll *c, enum ll12_kernel which, enum ll12_form form)
{
	const struct ll12_way way = ll12_way(form);
	struct ll12 l = ll12_of(c);
	struct ll12_first first;

	ll12_find(&l, way, &first);
	ll12_load_first(&l, way, &first);
	ll12_begin(&l);
	ll12_give(&l, way, &first);
	return ll12_run(c, &l, which, way);
}

COLL_FN int coll_ll12(struct coll *c)
{
	const enum ll12_kernel which = ll12_kernel_for(c->args);
	const enum ll12_form form = ll12_form_for(c->args);

	return form == LL12_ODD	    ? ll12_row(c, which, LL12_ODD)
		: form == LL12_PAIR ? ll12_row(c, which, LL12_PAIR)
				    : ll12_row(c, which, LL12_ABREAST);
}

#if !defined(COLL_ONE_UNIT)

static void ll12_on_host(const void *args)
{
	kernel_collective.host(args);
}

const struct kernel *ll12_kernel_of(const struct kernel_collective_args *args)
{
	static const struct kernel *const kernels[LL12_FORMS][LL12_KERNELS] = {
#define X(name)                                              \
	[LL12_ODD][LL12_##name] = &kernel_ll12_odd_##name,   \
	[LL12_PAIR][LL12_##name] = &kernel_ll12_pair_##name, \
	[LL12_ABREAST][LL12_##name] = &kernel_ll12_##name,
		COLL_LL12_KERNELS(X)
#undef X
	};

	return kernels[ll12_form_for(args)][ll12_kernel_for(args)];
}

#define LL12_KERNEL(name, which, form) \
	KERNEL_EARLY_ON_HOST(name, ll12_on_host, struct kernel_collective_args, true)

#endif
#endif

#if defined(LL12_KERNEL)
#define X(name)                                        \
	LL12_KERNEL(ll12_odd_##name, name, LL12_ODD)   \
	LL12_KERNEL(ll12_pair_##name, name, LL12_PAIR) \
	LL12_KERNEL(ll12_##name, name, LL12_ABREAST)
COLL_LL12_KERNELS(X)
#undef X
#endif
