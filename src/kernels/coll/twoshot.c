/* SPDX-License-Identifier: MIT */
/*
 * Each rank folds a share of all ranks' src and stores it to every dst, as `reduce` does: of a reduce_scatter its own block, of an
 * all_reduce or reduce an equal part of the one block. But a thread has loads from all ranks under way at once, the next rank's first,
 * and the blocks of a rank do not wait for each other: each meets the peers' blocks of its number before and after. The operands
 * are folded in the order of ranks nevertheless. In place is fine: a unit is read by one thread of all ranks', which then writes it.
 *
 * Units of 16 bytes are counted from an aligned address in rank 0's src on, so that there may be a short one at either end. Where
 * the others' src are aligned alike they are loaded as a whole.
 */
#include "coll.h"
#include "part.h"
#include "src/kernels/fold/factor.h"
#include "src/kernels/fold/in_flight.h"
#include "twoshot_fold.h"

_Static_assert(COLL_BLOCKS_RANKS == IN_FLIGHT, "a load from each");

/* What a rank has to do, seen from one thread. */
struct twoshot {
	const struct area_inbox *inboxes;
	int pe, npes;
	int first,
		everyone; /* who gets the result: so many ranks from `first` on; 0: `dst` alone */
	uint64_t from;	  /* where in each src the block begins */
	uint64_t dst, factors, bytes;
	uint32_t head;	      /* bytes that the first unit lacks at its beginning */
	uint64_t start, end;  /* this rank's units */
	uint64_t whole, rest; /* from `whole` to `rest` units are loaded as such */
	int op, second;
	int straight; /* these are summed, and stored as such */
};

/* Where in the block unit k lies, and how much of it there is. */
LL_FN uint64_t unit_at(const struct twoshot *t, uint64_t k)
{
	return k ? 16 * k - t->head : 0;
}

LL_FN uint32_t unit_has(const struct twoshot *t, uint64_t k)
{
	uint64_t at = unit_at(t, k), end = 16 * (k + 1) - t->head;

	return (uint32_t)((end < t->bytes ? end : t->bytes) - at);
}

LL_FN uint64_t src_of(const struct twoshot *t, int pe)
{
	return t->inboxes[pe].src + t->from;
}

LL_FN void find_units(const struct coll *c, struct twoshot *t)
{
	uint64_t units = (t->head + t->bytes + 15) / 16;
	struct coll_part_units part = { 0, units };
	int alike = 1;

	if (!c->args->moves.src_blocks)
		part = coll_part_units(&c->args->share, t->pe, t->npes, units);
	t->start = part.start;
	t->end = part.end;
	for (int i = 0; i < t->npes; i++)
		alike &= (src_of(t, i) & 15) == t->head;
	t->whole = t->head && !t->start ? 1 : t->start;
	t->rest = t->end == units ? (t->head + t->bytes) / 16 : t->end;
	if (!alike || t->rest < t->whole)
		t->whole = t->rest = t->start;
}

/* Where the nth of those who get the result has it; *pe: that one, then the next. */
LL_FN uint64_t dst_of(const struct twoshot *t, int *pe)
{
	uint64_t to = t->everyone ? t->inboxes[*pe].dst : t->dst;

	*pe = *pe + 1 < t->npes ? *pe + 1 : 0;
	return to;
}

LL_FN int getters(const struct twoshot *t)
{
	return t->everyone ? t->everyone : 1;
}

/* Of the types that have it. */
LL_FN int is_straight(const struct twoshot *t, enum fold_loop which)
{
	int pe = t->first, odd = which >= FOLD_f64 || t->factors || t->npes > IN_FLIGHT;

	odd |= t->op != SPMT_OP_SUM && t->op != SPMT_OP_AVG;
	for (int i = 0; i < getters(t); i++)
		odd |= (int)(dst_of(t, &pe) - t->head) & 15;
	return !odd;
}

LL_FN struct twoshot twoshot_of(const struct coll *c, enum fold_loop which)
{
	const struct coll_moves *m = &c->args->moves;
	struct twoshot t;

	t.inboxes = area_inbox(c->view, 0);
	t.pe = c->view->pe;
	t.npes = c->view->npes;
	t.first = m->to;
	t.everyone = m->src_blocks ? 0 : m->tos;
	t.from = m->src_blocks ? (uint64_t)(uint32_t)t.pe * c->bytes : 0;
	t.dst = c->args->dst;
	t.factors = factors_here(c->args, c->epoch);
	t.bytes = c->bytes;
	t.head = (uint32_t)(src_of(&t, 0) & 15);
	t.op = c->args->op;
	t.second = second_type(c->args->type);
	find_units(c, &t);
	t.straight = is_straight(&t, which);
	return t;
}

/* Of so few ranks at the least, as struct way has it. With two units of each of four ranks AMD's kernels have as many registers as they can keep:
   a third way to load has those of f8 and of means put some into memory. */
#if defined(__AMDGCN__)
#define LEAST_RANKS 2
#else
#define LEAST_RANKS 1
#endif

LL_FN int ranks_at_once(int npes)
{
	return npes > 4 ? IN_FLIGHT_LOG : npes > 2 ? 2 : LEAST_RANKS;
}

/* A thread's way through its rank's units: those that are whole, then the others. */
struct way {
	uint64_t i, k;
	int part;  /* it has come to the others */
	int ranks; /* 1 to IN_FLIGHT_LOG: what is in flight is of 1 << ranks ranks */
};

LL_FN void other_units(struct way *w)
{
	w->part = 1;
	w->i = kernel_lane();
	w->ranks = IN_FLIGHT_LOG;
}

/* 0: there are no more. */
LL_FN int next_unit(const struct twoshot *t, struct way *w)
{
	const uint64_t lanes = kernel_lanes();

	if (!w->part && t->whole + w->i >= t->rest)
		other_units(w);
	w->k = (w->part ? t->start : t->whole) + w->i;
	w->i += lanes << (IN_FLIGHT_LOG - w->ranks);
	if (w->part && w->k >= t->whole)
		w->k += t->rest - t->whole;
	return w->k < t->end;
}

/* ---- loads and stores --------------------------------------------------------------------------- */

/* Of rank base + i, if it is one of those behind this rank, or one of the others: as `behind` says. */
LL_FN void load_one(const struct twoshot *t, struct in_flight *f, const struct way *w, int base,
	int i, int ranks, int behind)
{
	uint64_t lanes = kernel_lanes(), k = w->k, a;

	if (base + i >= t->npes || (base + i > t->pe) != behind)
		return;
	a = src_of(t, base + i) + 16 * k - t->head;
	UNROLLED
	for (int at = i; at < IN_FLIGHT; at += ranks) {
		if (at == i || k < t->rest)
			f->x[at] = fetch_whole(a);
		k += lanes;
		a += 16 * lanes;
	}
}

/* ranks: a constant, so that what is loaded stays in registers. */
LL_FN void load_all(
	const struct twoshot *t, struct in_flight *f, const struct way *w, int base, int ranks)
{
	UNROLLED
	for (int i = 0; i < ranks; i++)
		load_one(t, f, w, base, i, ranks, 1);
	UNROLLED
	for (int i = 0; i < ranks; i++)
		load_one(t, f, w, base, i, ranks, 0);
}

LL_FN union unit load_part(const struct twoshot *t, int pe, uint64_t k)
{
	return gather_here(src_of(t, pe) + unit_at(t, k), unit_has(t, k));
}

LL_FN void load_next(const struct twoshot *t, struct in_flight *f, const struct way *w, int base)
{
	if (w->part)
		return;
	if (LEAST_RANKS == 1 && w->ranks == 1)
		load_all(t, f, w, base, 2);
	else if (w->ranks == 2)
		load_all(t, f, w, base, 4);
	else
		load_all(t, f, w, base, IN_FLIGHT);
}

/* The nth of those in flight, which need not be there. */
LL_FN void store_unit(const struct twoshot *t, const struct way *w, int nth, union unit u)
{
	uint64_t k = w->k + (uint64_t)(uint32_t)nth * kernel_lanes();
	uint64_t at = unit_at(t, k);
	int pe = t->first;

	if (!w->part && k >= t->rest)
		return;
	for (int i = 0; i < getters(t); i++)
		place_here(dst_of(t, &pe) + at, u, unit_has(t, k));
}

LL_FN void store_straight(const struct twoshot *t, uint64_t k, union unit u)
{
	uint64_t at = 16 * k - t->head;
	int pe = t->first;

	if (k >= t->rest)
		return;
	for (int i = 0; i < getters(t); i++)
		spmtd_gstore16b_(dst_of(t, &pe) + at, u.raw);
}

/* ---- folds -------------------------------------------------------------------------------------- */

LL_FN struct twoshot_step step_of(const struct twoshot *t, int pe)
{
	struct twoshot_step s = { pe, t->op, t->second, t->factors != 0, 0 };

	if (t->factors)
		s.bits = piece_data(slot_peek(t->factors + PIECE_IN_SLOT * (uint64_t)(uint32_t)pe));
	return s;
}

/* All that is summed straight, of `ranks`, a constant: each unit in flight has code of its own. One for any was a twentieth of large calls. */
#define DEFINE_STRAIGHT(name, acc, begin, step, end_of, hold)                                   \
	LL_FN void straight_of_##name(const struct twoshot *t, int ranks)                       \
	{                                                                                       \
		const uint64_t lanes = kernel_lanes();                                          \
		struct way w = { 0, t->whole + kernel_lane(), 0, 0 };                           \
		struct in_flight f;                                                             \
                                                                                                \
		__builtin_memset(&f, 0, sizeof(f));                                             \
		for (; w.k < t->rest; w.k += lanes * (uint32_t)(IN_FLIGHT / ranks)) {           \
			load_all(t, &f, &w, 0, ranks);                                          \
			UNROLLED                                                                \
			for (int nth = 0; nth < IN_FLIGHT / ranks; nth++) {                     \
				acc a;                                                          \
                                                                                                \
				__builtin_memset(&a, 0, sizeof(a));                             \
				UNROLLED                                                        \
				for (int pe = 0; pe < ranks; pe++)                              \
					if (pe < t->npes)                                       \
						a = hold(twoshot_step_##name(a,                 \
							packed(f.x[nth * ranks + pe]),          \
							(struct twoshot_step){ pe, SPMT_OP_SUM, \
								t->second, 0, 0 }));            \
				store_straight(t, w.k + (uint32_t)nth * lanes,                  \
					end_of(a, t->op, t->npes, t->second));                  \
			}                                                                       \
		}                                                                               \
	}                                                                                       \
	LL_FN void straight_##name(const struct twoshot *t)                                     \
	{                                                                                       \
		int ranks = ranks_at_once(t->npes);                                             \
                                                                                                \
		if (LEAST_RANKS == 1 && ranks == 1)                                             \
			straight_of_##name(t, 2);                                               \
		else if (ranks == 2)                                                            \
			straight_of_##name(t, 4);                                               \
		else                                                                            \
			straight_of_##name(t, IN_FLIGHT);                                       \
	}
LL_LOOPS_OF_INTEGERS(DEFINE_STRAIGHT)
LL_LOOPS_OF_MODELS(DEFINE_STRAIGHT)
#define DEFINE_NEVER_STRAIGHT(name, acc, begin, step, end_of, hold) \
	LL_FN void straight_##name(const struct twoshot *t)         \
	{                                                           \
		(void)t;                                            \
	}
LL_LOOPS_OF_DOUBLES(DEFINE_NEVER_STRAIGHT)
LL_LOOPS_OTHER(DEFINE_NEVER_STRAIGHT)

/* Others have one step, and one store, for all: a kernel is small. */
#define DEFINE_TWOSHOT(name, acc, begin, step, end_of, hold)                                   \
	LL_FN void twoshot_##name(const struct twoshot *t)                                     \
	{                                                                                      \
		struct way w = { kernel_lane(), 0, 0, ranks_at_once(t->npes) };                \
		struct in_flight f;                                                            \
		acc a;                                                                         \
                                                                                               \
		__builtin_memset(&f, 0, sizeof(f));                                            \
		__builtin_memset(&a, 0, sizeof(a));                                            \
		if (t->straight) {                                                             \
			straight_##name(t);                                                    \
			other_units(&w);                                                       \
		}                                                                              \
		while (next_unit(t, &w))                                                       \
			for (int base = 0; base < t->npes; base += 1 << w.ranks) {             \
				load_next(t, &f, &w, base);                                    \
				ROLLED                                                         \
				for (int i = 0; i < IN_FLIGHT; i++) {                          \
					int pe = base + (i & ((1 << w.ranks) - 1));            \
					union unit x = next_of(&f);                            \
                                                                                               \
					if (pe >= t->npes)                                     \
						continue;                                      \
					if (w.part)                                            \
						x = load_part(t, pe, w.k);                     \
					a = hold(twoshot_step_##name(                          \
						a, packed(x), step_of(t, pe)));                \
					if (pe + 1 == t->npes)                                 \
						store_unit(t, &w, i >> w.ranks,                \
							end_of(a, t->op, t->npes, t->second)); \
				}                                                              \
			}                                                                      \
	}
LL_LOOPS(DEFINE_TWOSHOT)

LL_FN void twoshot_run(const struct coll *c, enum fold_loop which)
{
	struct twoshot t;

	if (!c->bytes)
		return;
	t = twoshot_of(c, which);
	switch (which) {
#define X(name, acc, begin, step, end, hold) \
	case FOLD_##name:                    \
		twoshot_##name(&t);          \
		break;
		LL_LOOPS(X)
#undef X
	default:
		break;
	}
}

/* ---- kernels ------------------------------------------------------------------------------------ */

#if defined(__AMDGCN__) || defined(__NVPTX__)

LL_FN void twoshot_kernel(const struct kernel_collective_args *args, enum fold_loop which)
{
	struct coll c;
	int rc;

	coll_enter(&c, args);
	c.tells = COLL_TELLS;
	kernel_behind(0);
	coll_set(&c);
	if (!coll_open(&c))
		return;
	rc = coll_block_meets(&c);
	if (!rc)
		twoshot_run(&c, which);
	coll_block_parts(&c, rc);
}

#define X(name)                                                                   \
	KERNEL_BODY run_twoshot_##name(const struct kernel_collective_args *args) \
	{                                                                         \
		twoshot_kernel(args, FOLD_##name);                                \
	}                                                                         \
	KERNEL_TAKING(twoshot_##name, struct kernel_collective_args)
COLL_FOLD_KERNELS(X)
#undef X

#else

COLL_FN int coll_twoshot(struct coll *c)
{
	twoshot_run(c, fold_loop_for(c->args));
	return 0;
}

#if !defined(COLL_ONE_UNIT)

static void twoshot_on_host(const void *args)
{
	kernel_collective.host(args);
}

#define X(name) \
	KERNEL_EARLY_ON_HOST(twoshot_##name, twoshot_on_host, struct kernel_collective_args, true)
COLL_FOLD_KERNELS(X)
#undef X

const struct kernel *twoshot_kernel_for(const struct kernel_collective_args *args)
{
	static const struct kernel *const kernels[] = {
#define X(name) [FOLD_##name] = &kernel_twoshot_##name,
		COLL_FOLD_KERNELS(X)
#undef X
	};

	return kernels[fold_loop_for(args)];
}

#endif
#endif
