/* SPDX-License-Identifier: MIT */
/*
 * Low latency: one phase, and no meeting. Each rank pushes its data into slots, as units whose flags
 * have the epoch and the call's key, and takes what comes. What it calls goes along as a hello, which
 * a rank looks at when it waits long, to tell that another calls something else. Where what it stores first does not
 * wait for units of all, it waits for all hellos too, since nothing is moved where a call differs. Either way it has
 * heard from all when it is through, so the set of slots that it fills in the next epoch but one is free.
 */
#include "ll_abreast.h"
#include "src/kernels/coll/coll.h"

enum ll_kernel {
#define X(name) LL_##name,
	COLL_LL_KERNELS(X)
#undef X
		LL_KERNELS
};

/* Each has kernels of its own, as one with the code of the other took a microsecond more: units in loops, calls in brief, folds in brief among more
   than two. */
enum ll_form { LL_MANY_UNITS, LL_BRIEF, LL_ABREAST };

/* ---- what comes ------------------------------------------------------------------------------- */

/* At least one, of blocks that have none of n units. */
LL_FN uint32_t ll_turns(uint32_t n)
{
	uint32_t threads = spmtd_threads_();

	return n > threads ? (n + threads - 1) / threads : 1;
}

LL_FN uint64_t ll_dst(const struct coll *c, int pe)
{
	return c->args->dst + (c->args->moves.dst_blocks ? (uint64_t)(uint32_t)pe * c->bytes : 0);
}

LL_FN void ll_place(const struct coll *c, struct ll_at at, union unit u)
{
	uint64_t to = ll_dst(c, at.pe) + 16 * at.unit;
	uint32_t n = ll_bytes(c, at.unit);

#if defined(UNITS_ALIGNED)
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
	const uint32_t threads = spmtd_threads_();
	uint64_t slot = ll_slot(c, pe), from;
	uint32_t n = ll_units(c, &from), k;
	uint64_t dst = ll_dst(c, pe) + 16 * from;
	uint32_t whole = ll_whole(c, dst, from, n);

	for (k = spmtd_tid_(); k < whole && !w->rc; k += LL_MANY * threads) {
		struct slot_unit s[LL_MANY];

		LL_EACH(LL_MANY)
		{
			if (k + i * threads < whole)
				s[i] = slot_unit_peek(
					ll_unit_place(c, slot, from + k + i * threads));
		}
		LL_EACH(LL_MANY)
		{
			uint32_t at = k + i * threads;
			union unit u;

			if (at >= whole)
				continue;
			u = ll_arrives(c, w, pe, ll_unit_place(c, slot, from + at), s[i]);
			if (!w->rc)
				spmtd_gstore16b_(dst + 16 * (uint64_t)at, u.raw);
		}
	}
	LL_ROLLED
	for (k = whole + spmtd_tid_(); k < n && !w->rc; k += threads) {
		struct unit_place at = ll_unit_place(c, slot, from + k);
		union unit u = ll_arrives(c, w, pe, at, slot_unit_peek(at));

		if (!w->rc)
			ll_place(c, (struct ll_at){ pe, from + k }, u);
	}
}

/* What this rank has itself is words, not what lies in a slot. */
LL_FN struct slot_unit ll_look(const struct coll *c, uint64_t slot, struct ll_at at)
{
	struct slot_unit s;
	union unit u;

	if (at.pe != c->view->pe)
		return slot_unit_peek(ll_unit_place(c, slot, at.unit));
	u = ll_fetch(c, at);
	s.lo.a = u.words[0];
	s.lo.b = 0;
	s.hi.a = u.words[1];
	s.hi.b = 0;
	return s;
}

LL_FN union unit ll_taken(const struct coll *c, struct ll_waits *w, uint64_t slot, struct ll_at at,
	struct slot_unit s)
{
	union unit u = { .words = { s.lo.a, s.hi.a } };

	if (at.pe == c->view->pe)
		return u;
	return ll_arrives(c, w, at.pe, ll_unit_place(c, slot, at.unit), s);
}

/* They come before it is known what others call, and are stored when it is. */
LL_FN void ll_few_come(const struct coll *c, struct ll_waits *w, struct ll_few *f)
{
	struct slot_unit s[LL_FEW];

	LL_EACH(LL_FEW)
	{
		f->at[i] = ll_next(c, &f->walk);
		if (f->at[i].pe >= 0)
			s[i] = ll_look(c, ll_slot(c, f->at[i].pe), f->at[i]);
	}
	LL_EACH(LL_FEW)
	{
		if (f->at[i].pe >= 0)
			f->u[i] = ll_taken(c, w, ll_slot(c, f->at[i].pe), f->at[i], s[i]);
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

LL_FN struct ll_at ll_item_at(const struct ll_item *at, uint64_t from)
{
	struct ll_at of = { at->pe, from + at->k };

	return of;
}

/* Threads have as many turns, in each of which all that have a unit left fold one. What is folded next is loaded before. */
#define DEFINE_LL_LOOP(name, acc, begin, step, end, hold)                                        \
	LL_FN int ll_loop_##name(const struct coll *c, struct ll_waits *w)                       \
	{                                                                                        \
		int npes = c->view->npes, op = c->args->op, second = second_type(c->args->type); \
		struct ll_item at = { spmtd_tid_(), 0, ll_slot(c, 0) }, next = at;               \
		struct slot_unit s[LL_FOLDED], one;                                              \
		union unit u = { .words = { 0, 0 } };                                            \
		uint64_t from;                                                                   \
		uint32_t n = ll_units(c, &from), turns = ll_turns(n);                            \
		int rc = 0;                                                                      \
		acc a;                                                                           \
                                                                                                 \
		__builtin_memset(&a, 0, sizeof(a));                                              \
		LL_EACH(LL_FOLDED)                                                               \
		{                                                                                \
			if (next.k < n)                                                          \
				s[i] = ll_look(c, next.slot, ll_item_at(&next, from));           \
			ll_after(c, &next);                                                      \
		}                                                                                \
		LL_ROLLED                                                                        \
		for (uint32_t turn = 0; turn < turns && !rc; turn++) {                           \
			uint32_t k = at.k;                                                       \
                                                                                                 \
			LL_ROLLED                                                                \
			while (at.k == k && k < n && !w->rc) {                                   \
				union unit x;                                                    \
                                                                                                 \
				one = s[0];                                                      \
				LL_EACH(LL_FOLDED - 1)                                           \
				s[i] = s[i + 1];                                                 \
				if (next.k < n)                                                  \
					s[LL_FOLDED - 1] =                                       \
						ll_look(c, next.slot, ll_item_at(&next, from));  \
				ll_after(c, &next);                                              \
				x = packed(ll_taken(c, w, at.slot, ll_item_at(&at, from), one)); \
				a = at.pe ? step(a, x, op, second) : begin(x, second);           \
				a = hold(a);                                                     \
				ll_after(c, &at);                                                \
			}                                                                        \
			if (k < n && !w->rc)                                                     \
				u = end(a, op, npes, second);                                    \
			if (turn == 0)                                                           \
				rc = ll_first_agreed(c, w);                                      \
			if (k < n && !w->rc && !rc)                                              \
				ll_place(c, (struct ll_at){ c->view->pe, from + k }, u);         \
		}                                                                                \
		return turns > 1 && !rc ? ll_agreed(c, w) : rc;                                  \
	}
LL_LOOPS(DEFINE_LL_LOOP)

/* The same of one unit at the most. */
#define DEFINE_LL_BRIEF(name, acc, begin, step, end, hold)                                        \
	LL_FN int ll_brief_##name(                                                                \
		const struct coll *c, struct ll_waits *w, const struct ll_brief *b)               \
	{                                                                                         \
		int npes = c->view->npes, op = c->args->op, second = second_type(c->args->type);  \
		uint64_t slot = ll_slot(c, 0), each = 2 * (uint64_t)c->args->room;                \
		struct slot_unit next, one;                                                       \
		acc a;                                                                            \
		int rc;                                                                           \
                                                                                                  \
		__builtin_memset(&a, 0, sizeof(a));                                               \
		if (b->folds)                                                                     \
			next = ll_brief_look(c, b, slot, 0);                                      \
		LL_ROLLED                                                                         \
		for (int pe = 0; pe < npes && b->folds && !w->rc; pe++, slot += each) {           \
			union unit x = b->own;                                                    \
                                                                                                  \
			one = next;                                                               \
			if (pe + 1 < npes)                                                        \
				next = ll_brief_look(c, b, slot + each, pe + 1);                  \
			if (pe != c->view->pe)                                                    \
				x = ll_arrives(c, w, pe, ll_brief_place(b, slot), one);           \
			x = packed(x);                                                            \
			a = pe ? step(a, x, op, second) : begin(x, second);                       \
			a = hold(a);                                                              \
		}                                                                                 \
		rc = ll_first_agreed(c, w);                                                       \
		if (b->folds && !rc)                                                              \
			ll_brief_store(                                                           \
				c, c->args->dst + 16 * (uint64_t)b->k, end(a, op, npes, second)); \
		return rc;                                                                        \
	}
LL_LOOPS(DEFINE_LL_BRIEF)

LL_FN int ll_fold_units(const struct coll *c, struct ll_waits *w, const struct ll_brief *b,
	enum ll_kernel which, enum ll_form form)
{
	int rc = 0;

	switch (which) {
#define X(name, acc, begin, step, end, hold)                            \
	case LL_##name:                                                 \
		rc = form == LL_ABREAST	   ? ll_abreast_##name(c, w, b) \
			: form == LL_BRIEF ? ll_brief_##name(c, w, b)   \
					   : ll_loop_##name(c, w);      \
		break;
		LL_LOOPS(X)
#undef X
	case LL_copy:
	default:
		break;
	}
	return rc;
}

/*
 * Each unit is stored once it has come from all ranks, so that who is through has heard from all. In place that is where others of
 * the block's threads send from, which are done with it before the first. Where calls differ all have still to be heard, or a rank
 * could be two epochs ahead of another.
 */
LL_FN int ll_fold(const struct coll *c, struct ll_waits *w, const struct ll_brief *b,
	enum ll_kernel which, enum ll_form form)
{
	int rc = SPMTD_MISMATCH;

	if (c->bytes && c->args->moves.froms)
		rc = ll_fold_units(c, w, b, which, form);
	if (rc != SPMTD_MISMATCH)
		return rc;
	await_keys(c, w, 0);
	return ll_first_agreed(c, w);
}

/* Nothing is stored before all are known to call the same. Where they differ, data that is waited for does not come, and all have still to
   be heard. */
LL_FN int ll_copy(const struct coll *c, struct ll_waits *w)
{
	const struct coll_moves *m = &c->args->moves;
	const int many = ll_are_many(c), self = many && ll_self(c, m->from, m->froms);
	struct ll_few f;
	int rc;

	f.walk = ll_walk_of(c, m->from, c->bytes ? m->froms : 0);
	f.at[0].pe = -1;
	if (!many)
		ll_few_come(c, w, &f);
	if (!w->rc || w->rc == SPMTD_MISMATCH)
		await_keys(c, w, 0);
	rc = ll_first_agreed(c, w);
	if (rc)
		return rc;
	if (self)
		ll_own(c);
	if (!many)
		ll_few_stay(c, w, &f);
	LL_ROLLED
	for (int nth = self; many && nth < m->froms; nth++)
		ll_unpack_from(c, w, ll_rank(c, m->from, nth));
	return ll_agreed(c, w);
}

/* A block that has units has one of each other rank's, whose flags have what that one calls. */
LL_FN int ll_brief_hears(const struct coll *c)
{
	const struct coll_moves *m = &c->args->moves;

	return m->froms - ll_self(c, m->from, m->froms) == c->view->npes - 1;
}

/* The same of one unit from another rank, and one of this one's own, at the most. Who has heard from all by then does not wait for what they
   call, unless some call differs. */
LL_FN int ll_brief_copy(const struct coll *c, struct ll_waits *w, const struct ll_brief *b)
{
	const int heard = ll_brief_hears(c);
	union unit u;
	int rc = SPMTD_MISMATCH;

	if (b->from >= 0)
		u = ll_brief_arrives(c, w, b);
	if (heard)
		rc = ll_first_agreed(c, w);
	if (rc == SPMTD_MISMATCH) {
		if (!w->rc || w->rc == SPMTD_MISMATCH)
			await_keys(c, w, 0);
		rc = ll_first_agreed(c, w);
	}
	if (rc)
		return rc;
	if (b->from >= 0)
		ll_brief_store(c, ll_dst(c, b->from) + 16 * (uint64_t)b->k, u);
	if (b->keeps)
		ll_brief_store(c, ll_dst(c, c->view->pe) + 16 * (uint64_t)b->k, b->own);
	return 0;
}

/* What a thread sends first, loaded while it is found out which epoch this is. */
struct ll_first {
	struct ll_few few;
	struct ll_brief brief;
};

LL_FN void ll_begin(const struct coll *c, struct ll_first *first, enum ll_form form)
{
	if (form != LL_MANY_UNITS)
		ll_brief_begin(c, &first->brief);
	else
		ll_send_begin(c, &first->few);
}

/* What this rank has for the others. */
LL_FN void ll_give(const struct coll *c, struct ll_first *first, const struct slot_flags *flags,
	enum ll_form form)
{
	if (form != LL_MANY_UNITS) {
		ll_brief_send(c, &first->brief, flags);
		return;
	}
	if (c->bytes)
		ll_send(c, &first->few, flags);
	if (kernel_block() == 0)
		ll_hello(c, ll_teller());
}

/* What they have for it. */
LL_FN int ll_take(const struct coll *c, const struct ll_first *first,
	const struct slot_flags *flags, enum ll_kernel which, enum ll_form form)
{
	struct ll_waits w;
	int rc;

	w.flags = *flags;
	w.rc = 0;
	spmtd_wait_begin_(&w.w);
	if (which != LL_copy)
		rc = ll_fold(c, &w, &first->brief, which, form);
	else
		rc = form == LL_BRIEF ? ll_brief_copy(c, &w, &first->brief) : ll_copy(c, &w);
	spmtd_wait_rest_(c->view, &w.w);
	return rc;
}

/* ---- kernels ----------------------------------------------------------------------------------- */

#if defined(__AMDGCN__) || defined(__NVPTX__)

LL_FN void ll_kernel(
	const struct kernel_collective_args *args, enum ll_kernel which, enum ll_form form)
{
	struct slot_flags flags;
	struct ll_first first;
	struct coll c;

	coll_enter(&c, args);
	c.tells = COLL_TELLS && form == LL_MANY_UNITS;
	if (form != LL_MANY_UNITS) {
		ll_brief_find(&c, &first.brief);
		kernel_behind(args->alone);
	}
	coll_set(&c);
	ll_begin(&c, &first, form);
	if (!coll_open(&c))
		return;
	flags = slot_flags(c.epoch, args->key);
	if (!c.refused)
		ll_give(&c, &first, &flags, form);
	coll_slots_begin(&c);
	coll_slots_end(&c, c.refused ? SPMTD_ABORTED : ll_take(&c, &first, &flags, which, form));
}

#define LL_KERNEL(name, which, form)                                      \
	KERNEL_BODY run_##name(const struct kernel_collective_args *args) \
	{                                                                 \
		ll_kernel(args, LL_##which, form);                        \
	}                                                                 \
	KERNEL_TAKING(name, struct kernel_collective_args)

#else

static enum ll_kernel ll_kernel_for(const struct kernel_collective_args *args)
{
	return args->moves.folds ? (enum ll_kernel)((int)LL_u8 + (int)fold_loop_for(args))
				 : LL_copy;
}

static enum ll_form ll_form_for(const struct kernel_collective_args *args, uint32_t brief)
{
	if (!brief)
		return LL_MANY_UNITS;
	return args->moves.folds && args->view.npes > 2 ? LL_ABREAST : LL_BRIEF;
}

int coll_ll(struct coll *c)
{
	const struct slot_flags flags = slot_flags(c->epoch, c->args->key);
	enum ll_form form = ll_form_for(c->args, c->brief);
	struct ll_first first;

	if (form != LL_MANY_UNITS)
		ll_brief_find(c, &first.brief);
	ll_begin(c, &first, form);
	ll_give(c, &first, &flags, form);
	return ll_take(c, &first, &flags, ll_kernel_for(c->args), form);
}

#if !defined(COLL_ONE_UNIT)

static void ll_on_host(const void *args)
{
	kernel_collective.host(args);
}

const struct kernel *kernel_of_collective(const struct kernel_collective_args *args)
{
	static const struct kernel *const of_ll[][LL_KERNELS] = {
#define X(name)                                         \
	[LL_MANY_UNITS][LL_##name] = &kernel_ll_##name, \
	[LL_BRIEF][LL_##name] = &kernel_ll_brief_##name,
		COLL_LL_KERNELS(X)
#undef X
#define X(name) [LL_ABREAST][LL_##name] = &kernel_ll_abreast_##name,
			COLL_FOLD_KERNELS(X)
#undef X
	};

	if (args->algorithm == COLL_ROW_give)
		return &kernel_give;
	if (args->algorithm == COLL_ROW_ll12)
		return ll12_kernel_of(args);
	if (args->algorithm == COLL_ROW_push2)
		return push2_kernel_for(args);
	if (args->algorithm == COLL_ROW_twoshot)
		return twoshot_kernel_for(args);
	if (args->algorithm == COLL_ROW_ll)
		return of_ll[ll_form_for(args, args->brief)][ll_kernel_for(args)];
	return &kernel_collective;
}

#define LL_KERNEL(name, which, form) \
	KERNEL_EARLY_ON_HOST(        \
		name, ll_on_host, struct kernel_collective_args, (form) != LL_MANY_UNITS)

#endif
#endif

#if defined(LL_KERNEL)
#define X(name)                                   \
	LL_KERNEL(ll_##name, name, LL_MANY_UNITS) \
	LL_KERNEL(ll_brief_##name, name, LL_BRIEF)
COLL_LL_KERNELS(X)
#undef X
#define X(name) LL_KERNEL(ll_abreast_##name, name, LL_ABREAST)
COLL_FOLD_KERNELS(X)
#undef X
#endif
