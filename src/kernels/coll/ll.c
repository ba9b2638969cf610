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
#include "ll_units.h"
#include "src/kernels/fold/slot_unit.h"

enum ll_kernel {
#define X(name) LL_##name,
	COLL_LL_KERNELS(X)
#undef X
};

/* ---- what goes -------------------------------------------------------------------------------- */

/* What this rank gives to itself goes through no slot; it is the first that it gives to, and that gives to it. */
LL_FN int ll_self(const struct coll *c, int first, int ranks)
{
	return ranks && first == c->view->pe;
}

LL_FN void ll_send_unit(const struct coll *c, uint64_t slot, uint64_t k, union unit x,
	const struct slot_flags *flags)
{
	const uint32_t group = unit_group(c->args->room);

	piece_send(unit_even(slot, k, group), 0, x.words[0], flags->lo);
	piece_send(unit_odd(slot, k, group), 0, x.words[1], flags->hi);
}

/* To one rank, where there are many. */
LL_FN void ll_send_to(const struct coll *c, int pe, const struct slot_flags *flags)
{
	const uint32_t threads = spmtd_threads_();
	uint64_t slot = coll_slot(c, area_there(c->view, pe), c->view->pe), from;
	uint32_t n = ll_units(c, &from), k;
	uint64_t src = ll_src(c, pe) + 16 * from;
	uint32_t whole = ll_whole(c, src, from, n);

	for (k = spmtd_tid_(); k < whole; k += LL_MANY * threads) {
		union unit x[LL_MANY];

		LL_EACH(LL_MANY)
		{
			if (k + i * threads < whole)
				x[i].raw = spmtd_gload16b_(src + 16 * (uint64_t)(k + i * threads));
		}
		LL_EACH(LL_MANY)
		{
			if (k + i * threads < whole)
				ll_send_unit(c, slot, from + k + i * threads, x[i], flags);
		}
	}
	LL_ROLLED
	for (k = whole + spmtd_tid_(); k < n; k += threads)
		ll_send_unit(c, slot, from + k, ll_fetch(c, (struct ll_at){ pe, from + k }), flags);
}

LL_FN void ll_send_few(const struct coll *c, int first, int ranks, const struct slot_flags *flags)
{
	struct ll_walk w = ll_walk_of(c, first, ranks);
	union unit x[LL_FEW];
	struct ll_at at[LL_FEW];

	if (!w.n)
		return;
	do {
		LL_EACH(LL_FEW)
		{
			at[i] = ll_next(c, &w);
			if (at[i].pe >= 0)
				x[i] = ll_fetch(c, at[i]);
		}
		LL_EACH(LL_FEW)
		{
			if (at[i].pe >= 0)
				ll_send_unit(c,
					coll_slot(c, area_there(c->view, at[i].pe), c->view->pe),
					at[i].unit, x[i], flags);
		}
	} while (at[LL_FEW - 1].pe >= 0);
}

/* The nth rank from `first` on. */
LL_FN int ll_rank(const struct coll *c, int first, int nth)
{
	int pe = first + nth;

	return pe < c->view->npes ? pe : pe - c->view->npes;
}

LL_FN void ll_send(const struct coll *c, const struct slot_flags *flags)
{
	const struct coll_moves *m = &c->args->moves;
	int self = ll_self(c, m->to, m->tos);

	if (!ll_are_many(c)) {
		ll_send_few(c, m->to + self, m->tos - self, flags);
		return;
	}
	LL_ROLLED
	for (int nth = self; nth < m->tos; nth++)
		ll_send_to(c, ll_rank(c, m->to, nth), flags);
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

/* Of the unit k in `slot`, which is pe's and has been s. Of no meaning once w->rc is set, as it is where pe calls something else, or where waits
   end. */
LL_FN union unit ll_arrives(const struct coll *c, struct ll_waits *w, int pe, uint64_t slot,
	uint64_t k, struct slot_unit s)
{
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

LL_FN uint64_t ll_dst(const struct coll *c, int pe)
{
	return c->args->dst + (c->args->moves.dst_blocks ? (uint64_t)(uint32_t)pe * c->bytes : 0);
}

LL_FN void ll_place(const struct coll *c, struct ll_at at, union unit u)
{
	uint64_t to = ll_dst(c, at.pe) + 16 * at.unit;
	uint32_t n = ll_bytes(c, at.unit);

#if defined(__AMDGCN__) || defined(__NVPTX__)
	if (n == 8 && to % 8 == 0) {
		spmtd_gstore64_(to, u.words[0]);
		return;
	}
	if (n == 4 && to % 4 == 0) {
		spmtd_gstore32_(to, (uint32_t)u.words[0]);
		return;
	}
	if (n < 16 || (to & 15)) {
		scatter_here(to, u, n);
		return;
	}
#endif
	place(to, u, n);
}

LL_FN uint64_t ll_slot(const struct coll *c, int pe)
{
	return coll_slot(c, spmtd_at_(c->view->own), pe);
}

/* By all of a block's threads behind all that they send. */
LL_FN void ll_own(const struct coll *c)
{
	const uint32_t threads = spmtd_threads_();
	const int pe = c->view->pe;
	uint64_t from, src = ll_src(c, pe), dst = ll_dst(c, pe);
	uint32_t n = ll_units(c, &from), k;
	uint32_t whole = ll_whole(c, (src | dst) + 16 * from, from, n);

	if (src == dst)
		return;
	for (k = spmtd_tid_(); k < whole; k += LL_MANY * threads) {
		union unit x[LL_MANY];

		LL_EACH(LL_MANY)
		{
			if (k + i * threads < whole)
				x[i].raw = spmtd_gload16b_(src + 16 * (from + k + i * threads));
		}
		LL_EACH(LL_MANY)
		{
			if (k + i * threads < whole)
				spmtd_gstore16b_(dst + 16 * (from + k + i * threads), x[i].raw);
		}
	}
	LL_ROLLED
	for (k = whole + spmtd_tid_(); k < n; k += threads) {
		struct ll_at at = { pe, from + k };

		ll_place(c, at, ll_fetch(c, at));
	}
}

/* From one rank, where there are many. */
LL_FN void ll_unpack_from(const struct coll *c, struct ll_waits *w, int pe)
{
	const uint32_t threads = spmtd_threads_(), group = unit_group(c->args->room);
	uint64_t slot = ll_slot(c, pe), from;
	uint32_t n = ll_units(c, &from), k;
	uint64_t dst = ll_dst(c, pe) + 16 * from;
	uint32_t whole = ll_whole(c, dst, from, n);

	for (k = spmtd_tid_(); k < whole && !w->rc; k += LL_MANY * threads) {
		struct slot_unit s[LL_MANY];

		LL_EACH(LL_MANY)
		{
			if (k + i * threads < whole)
				s[i] = slot_unit_peek(slot, from + k + i * threads, group);
		}
		LL_EACH(LL_MANY)
		{
			uint32_t at = k + i * threads;
			union unit u;

			if (at >= whole)
				continue;
			u = ll_arrives(c, w, pe, slot, from + at, s[i]);
			if (!w->rc)
				spmtd_gstore16b_(dst + 16 * (uint64_t)at, u.raw);
		}
	}
	LL_ROLLED
	for (k = whole + spmtd_tid_(); k < n && !w->rc; k += threads) {
		union unit u =
			ll_arrives(c, w, pe, slot, from + k, slot_unit_peek(slot, from + k, group));

		if (!w->rc)
			ll_place(c, (struct ll_at){ pe, from + k }, u);
	}
}

/* A thread's next units, where there are few: they come before it is known what others call, and are stored when it is. */
struct ll_few {
	struct ll_walk walk;
	struct ll_at at[LL_FEW];
	union unit u[LL_FEW];
};

LL_FN void ll_few_come(const struct coll *c, struct ll_waits *w, struct ll_few *f)
{
	struct slot_unit s[LL_FEW];

	LL_EACH(LL_FEW)
	{
		f->at[i] = ll_next(c, &f->walk);
		if (f->at[i].pe >= 0)
			s[i] = slot_unit_peek(
				ll_slot(c, f->at[i].pe), f->at[i].unit, unit_group(c->args->room));
	}
	LL_EACH(LL_FEW)
	{
		if (f->at[i].pe >= 0)
			f->u[i] = ll_arrives(
				c, w, f->at[i].pe, ll_slot(c, f->at[i].pe), f->at[i].unit, s[i]);
	}
}

LL_FN void ll_few_stay(const struct coll *c, struct ll_waits *w, struct ll_few *f)
{
	while (!w->rc && f->at[0].pe >= 0) {
		LL_EACH(LL_FEW)
		{
			if (f->at[i].pe >= 0)
				ll_place(c, f->at[i], f->u[i]);
		}
		ll_few_come(c, w, f);
	}
}

/* A rank's share of a unit of the block's, in the order in which a thread folds them. */
struct ll_item {
	uint32_t k;
	int pe;
	uint64_t slot;
};

LL_FN void ll_after(const struct coll *c, struct ll_item *at)
{
	const uint64_t each = 2 * (uint64_t)c->args->room;

	at->slot += each;
	if (++at->pe < c->view->npes)
		return;
	at->slot -= each * (uint32_t)at->pe;
	at->pe = 0;
	at->k += spmtd_threads_();
}

/* What this rank has itself is words, not what lies in a slot. */
LL_FN struct slot_unit ll_look(const struct coll *c, uint64_t from, const struct ll_item *at)
{
	struct slot_unit s;
	union unit u;

	if (at->pe != c->view->pe)
		return slot_unit_peek(at->slot, from + at->k, unit_group(c->args->room));
	u = ll_fetch(c, (struct ll_at){ at->pe, from + at->k });
	s.lo.a = u.words[0];
	s.lo.b = 0;
	s.hi.a = u.words[1];
	s.hi.b = 0;
	return s;
}

LL_FN union unit ll_taken(const struct coll *c, struct ll_waits *w, uint64_t from,
	const struct ll_item *at, struct slot_unit s)
{
	union unit u = { .words = { s.lo.a, s.hi.a } };

	return at->pe == c->view->pe ? u : ll_arrives(c, w, at->pe, at->slot, from + at->k, s);
}

/* The block's share. What is folded next is loaded before. */
#define DEFINE_LL_LOOP(name, acc, begin, step, end, hold)                                        \
	LL_FN void ll_loop_##name(const struct coll *c, struct ll_waits *w)                      \
	{                                                                                        \
		int npes = c->view->npes, op = c->args->op, second = second_type(c->args->type); \
		struct ll_item at = { spmtd_tid_(), 0, ll_slot(c, 0) }, next = at;               \
		struct slot_unit s[LL_FOLDED], one;                                              \
		uint64_t from;                                                                   \
		uint32_t n = ll_units(c, &from);                                                 \
		acc a;                                                                           \
                                                                                                 \
		__builtin_memset(&a, 0, sizeof(a));                                              \
		LL_EACH(LL_FOLDED)                                                               \
		{                                                                                \
			if (next.k < n)                                                          \
				s[i] = ll_look(c, from, &next);                                  \
			ll_after(c, &next);                                                      \
		}                                                                                \
		LL_ROLLED                                                                        \
		while (at.k < n && !w->rc) {                                                     \
			union unit x;                                                            \
                                                                                                 \
			one = s[0];                                                              \
			LL_EACH(LL_FOLDED - 1)                                                   \
			s[i] = s[i + 1];                                                         \
			if (next.k < n)                                                          \
				s[LL_FOLDED - 1] = ll_look(c, from, &next);                      \
			ll_after(c, &next);                                                      \
			x = packed(ll_taken(c, w, from, &at, one));                              \
			a = at.pe ? step(a, x, op, second) : begin(x, second);                   \
			a = hold(a);                                                             \
			if (at.pe + 1 == npes && !w->rc)                                         \
				ll_place(c, (struct ll_at){ 0, from + at.k },                    \
					end(a, op, npes, second));                               \
			ll_after(c, &at);                                                        \
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

/* Nothing is stored before all are known to call the same. Where they differ, data that is waited for does not come, and all have still to
   be heard. */
LL_FN int ll_copy(const struct coll *c, struct ll_waits *w)
{
	const struct coll_moves *m = &c->args->moves;
	const int many = ll_are_many(c), self = ll_self(c, m->from, m->froms);
	struct ll_few f;
	int rc;

	f.walk = ll_walk_of(c, m->from + self, c->bytes ? m->froms - self : 0);
	f.at[0].pe = -1;
	if (!many)
		ll_few_come(c, w, &f);
	if (!w->rc || w->rc == SPMTD_MISMATCH)
		await_keys(c, w);
	rc = ll_agreed(c, w);
	if (rc)
		return rc;
	if (self && c->bytes)
		ll_own(c);
	if (!many)
		ll_few_stay(c, w, &f);
	LL_ROLLED
	for (int nth = self; many && nth < m->froms; nth++)
		ll_unpack_from(c, w, ll_rank(c, m->from, nth));
	return ll_agreed(c, w);
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
