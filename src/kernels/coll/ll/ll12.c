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
 * What a call takes is mostly what a thread executes, for the first time: so where all units are whole and aligned that is little, and for as
 * many ranks at once as there are others between two or four.
 */
#include "ll12_blocks.h"
#include "ll_loops.h"
#include "ll_wait.h"
#include "src/kernels/coll/coll.h"

/* Ranks to which a thread sends at once, and from which it takes; a fold has this one's as well. */
#define LL12_ONE 1
#define LL12_MANY 3

enum ll12_kernel {
#define X(name) LL12_##name,
	COLL_LL12_KERNELS(X)
#undef X
};

/* ---- what goes ------------------------------------------------------------------------------------- */

/* Behind what this rank has sent to be folded, or to be taken, there is what it has folded. */
LL_FN uint64_t ll12_there(const struct ll12 *l, int pe, uint32_t t, int phase)
{
	return area_there(l->c->view, pe) + l->there + (phase ? l->c->args->room : 0) +
		(uint64_t)t * (16 * PART_PIECES);
}

/* A thread's part t, to the ranks from the nth one on to which this one sends. */
struct ll12_batch {
	struct quad_part x[LL12_MANY];
};

LL_FN void ll12_batch_load(
	const struct ll12 *l, uint32_t t, int nth, struct ll12_way way, struct ll12_batch *b)
{
	const struct coll_moves *m = &l->c->args->moves;

	UNROLLED
	for (int i = 0; i < way.many; i++) {
		if (nth + i < m->tos)
			b->x[i] = ll12_load(l, ll_rank(l->c, m->to, nth + i), t, way.odd);
	}
}

LL_FN void ll12_batch_send(
	const struct ll12 *l, uint32_t t, int nth, struct ll12_way way, const struct ll12_batch *b)
{
	const struct coll_moves *m = &l->c->args->moves;

	UNROLLED
	for (int i = 0; i < way.many; i++) {
		struct quad_pieces p;

		if (nth + i >= m->tos)
			break;
		p = part_pieces_of(&b->x[i], l->flag);
		if (t < l->parts)
			part_poke(ll12_there(l, ll_rank(l->c, m->to, nth + i), t, 0), &p);
	}
}

/* The first one is loaded before it is known which epoch this is. */
LL_FN void ll12_send(const struct ll12 *l, struct ll12_way way, struct ll12_batch *b)
{
	const struct coll_moves *m = &l->c->args->moves;
	const int self = ll_self(l->c, m->to, m->tos);
	uint32_t base = l->base;
	int nth = self, loaded = !way.odd;

	LL_ROLLED
	while (base < l->parts && nth < m->tos) {
		const uint32_t t = base + warp_lane();

		if (!loaded)
			ll12_batch_load(l, t, nth, way, b);
		loaded = 0;
		ll12_batch_send(l, t, nth, way, b);
		nth += way.many;
		if (nth >= m->tos) {
			nth = self;
			base += l->step;
		}
	}
}

/* What this rank has folded, to all others. */
LL_FN void ll12_relay(
	const struct ll12 *l, uint32_t t, struct ll12_way way, const struct quad_part *x)
{
	const struct quad_pieces p = part_pieces_of(x, l->flag);
	const struct coll *c = l->c;

	LL_ROLLED
	for (int first = 1; first < c->view->npes; first += way.many) {
		UNROLLED
		for (int i = 0; i < way.many; i++) {
			if (first + i >= c->view->npes)
				break;
			if (t < l->parts)
				part_poke(ll12_there(l, ll_rank(c, c->view->pe, first + i), t, 1),
					&p);
		}
	}
}

/* Who sleeps meanwhile looks again. */
LL_FN void ll12_wake(const struct ll12 *l)
{
	for (int nth = 1; nth < l->c->view->npes; nth++)
		spmtd_wake_(l->c->view, ll_rank(l->c, l->c->view->pe, nth));
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
	return l->here + (uint64_t)(uint32_t)pe * l->pitch + (phase ? l->c->args->room : 0) +
		(uint64_t)t * (16 * PART_PIECES);
}

/* One that does not come, and whether its rank calls something else. */
LL_FN void ll12_misses(
	const struct ll12 *l, struct ll_waits *w, const struct ll12_wanted *x, int ranks)
{
	LL_ROLLED
	for (int i = 0; i < ranks; i++) {
		const int pe = ll12_wanted_pe(l, x, i);
		struct quad_pieces p;
		uint64_t place;

		if (pe < 0)
			continue;
		place = ll12_here(l, pe, x->t, x->phase);
		p = part_peek(place);
		if (part_is_whole(&p, l->flag))
			continue;
		w->pe = pe;
		w->at = place;
		w->seen = p.at[0].b;
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
	int whole;

	do {
		whole = 1;
		UNROLLED
		for (int i = 0; i < ranks; i++) {
			if (ll12_wanted_pe(l, x, i) >= 0)
				p[i] = part_peek(
					ll12_here(l, ll12_wanted_pe(l, x, i), x->t, x->phase));
		}
		UNROLLED
		for (int i = 0; i < ranks; i++) {
			if (ll12_wanted_pe(l, x, i) >= 0)
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
		struct quad_part own;

		has = base < l->parts && ranks && !l->gone;
		__builtin_memset(p, 0, sizeof(p));
		__builtin_memset(&own, 0, sizeof(own));
		if (has && keeps && nth == self)
			own = ll12_load(l, me, t, way.odd);
		if (has)
			ll12_await(l, w, &x, way.many, p);
		if (!agreed)
			rc = ll_first_agreed(l->c, w);
		agreed = 1;
		has = has && !rc && !l->gone;
		if (!has)
			break;
		if (keeps && nth == self)
			ll12_store(l, me, t, &own, way.odd);
		UNROLLED
		for (int i = 0; i < way.many; i++) {
			struct quad_part y;

			if (nth + i >= ranks)
				break;
			y = part_data(&p[i]);
			if (ll12_wanted_pe(l, &x, i) >= 0)
				ll12_store(l, ll12_wanted_pe(l, &x, i), t, &y, way.odd);
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
		const struct quad_part own = ll12_load(l, me, t, way.odd);                         \
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
		struct quad_part x;

		has = c->args->moves.froms && base < l->parts && !l->gone;
		__builtin_memset(&x, 0, sizeof(x));
		if (has)
			x = ll12_folded(l, w, which, t, way);
		if (has && !l->gone && l->relays) {
			ll12_relay(l, t, way, &x);
			ll12_wake(l);
		}
		if (!agreed)
			rc = ll_first_agreed(c, w);
		agreed = 1;
		if (!has || rc || l->gone)
			break;
		ll12_store(l, c->view->pe, t, &x, way.odd);
		base += l->step;
	} while (base < l->parts);
	return rc;
}

/* ---- all ------------------------------------------------------------------------------------------- */

LL_FN int ll12_go(struct ll12 *l, struct ll_waits *w, struct ll12_batch *first,
	enum ll12_kernel which, struct ll12_way way)
{
	const struct coll *c = l->c;
	const struct coll_moves *m = &c->args->moves;
	int rc;

	ll12_send(l, way, first);
	ll12_wake(l);
	if (which == LL12_copy)
		return ll12_take(l, w, m->from, m->froms, 0, way);
	rc = ll12_fold_all(l, w, which, way);
	if (rc || !l->relays)
		return rc;
	return ll12_take(l, w, c->view->pe, c->view->npes, 1, way);
}

LL_FN int ll12_run(
	const struct coll *c, struct ll12 *l, struct ll12_batch *first, enum ll12_kernel which)
{
	struct ll_waits w;
	int rc;

	ll12_begin(l);
	spmtd_wait_begin_(&w.w);
	if (kernel_block() == 0 && warp_any(coll_stopped(c))) {
		w.rc = SPMTD_ABORTED;
		w.pe = -1;
	} else {
		/* once it is known that the comm is not broken: all blocks wait for this rank's, too */
		if (kernel_block() == 0)
			ll_hello(c, ll_teller());
		await_keys(c, &w, 1);
	}
	l->gone = warp_any(w.rc);
	if (UNLIKELY(l->odd))
		rc = ll12_go(l, &w, first, which, (struct ll12_way){ LL12_ONE, 1 });
	else if (c->view->npes <= LL12_ONE + 1)
		rc = ll12_go(l, &w, first, which, (struct ll12_way){ LL12_ONE, 0 });
	else
		rc = ll12_go(l, &w, first, which, (struct ll12_way){ LL12_MANY, 0 });
	if (!rc)
		rc = ll_agreed(c, &w);
	spmtd_wait_rest_(c->view, &w.w);
	return rc;
}

/* What is sent first, of whole units. */
LL_FN void ll12_first(const struct ll12 *l, struct ll12_batch *b)
{
	const struct coll_moves *m = &l->c->args->moves;

	__builtin_memset(b, 0, sizeof(*b));
	if (!l->odd && l->base < l->parts)
		ll12_batch_load(l, l->base + warp_lane(), ll_self(l->c, m->to, m->tos),
			(struct ll12_way){ LL12_MANY, 0 }, b);
}

/* ---- kernels --------------------------------------------------------------------------------------- */

#if defined(__NVPTX__)

LL_FN void ll12_kernel(const struct kernel_collective_args *args, enum ll12_kernel which)
{
	struct ll12_batch first;
	struct ll12 l;
	struct coll c;

	coll_enter(&c, args);
	c.tells = COLL_TELLS;
	kernel_behind(args->alone);
	coll_set(&c);
	l = ll12_of(&c);
	ll12_first(&l, &first);
	if (!coll_open(&c))
		return;
	coll_slots_begin(&c);
	coll_slots_end(&c, c.refused ? SPMTD_ABORTED : ll12_run(&c, &l, &first, which));
}

#define X(name)                                                                \
	KERNEL_BODY run_ll12_##name(const struct kernel_collective_args *args) \
	{                                                                      \
		ll12_kernel(args, LL12_##name);                                \
	}                                                                      \
	KERNEL_TAKING(ll12_##name, struct kernel_collective_args)
COLL_LL12_KERNELS(X)
#undef X

#elif !defined(__AMDGCN__)

static enum ll12_kernel ll12_kernel_for(const struct kernel_collective_args *args)
{
	return args->moves.folds ? (enum ll12_kernel)((int)LL12_u8 + (int)fold_loop_for(args))
				 : LL12_copy;
}

COLL_FN int coll_ll12(const struct coll *c)
{
	struct ll12 l = ll12_of(c);
	struct ll12_batch first;

	ll12_first(&l, &first);
	return ll12_run(c, &l, &first, ll12_kernel_for(c->args));
}

#if !defined(COLL_ONE_UNIT)

static void ll12_on_host(const void *args)
{
	kernel_collective.host(args);
}

#define X(name) KERNEL_EARLY_ON_HOST(ll12_##name, ll12_on_host, struct kernel_collective_args, true)
COLL_LL12_KERNELS(X)
#undef X

const struct kernel *ll12_kernel_of(const struct kernel_collective_args *args)
{
	static const struct kernel *const kernels[] = {
#define X(name) [LL12_##name] = &kernel_ll12_##name,
		COLL_LL12_KERNELS(X)
#undef X
	};

	return kernels[ll12_kernel_for(args)];
}

#endif
#endif
