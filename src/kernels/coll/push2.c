/* SPDX-License-Identifier: MIT */
/*
 * Sums and means in two phases of stores, for links that stores keep busier than loads: each rank stores to every other one what that one
 * folds, into a stage of that one's library area, and each sum to every dst. Between them nobody meets: block n of a rank works with the
 * peers' blocks of its number, a piece after the other, and tells by a word that only rises which of its pieces have come. As each tells of
 * a piece after it has folded the last but one before it, a stage of four pieces is never written too early. The operands are folded in the
 * order of ranks. In place is fine: a sum goes where all have sent on what was there.
 *
 * The first two pieces are sent before the ranks have met. Who folded from the stage has parted since; and each place has one writer, a block of
 * one rank, whose kernels follow each other. Where the others have as many blocks, and rank 0's src is aligned, these pieces are cut as all cut
 * them; else nobody takes them, and they are sent again as others.
 *
 * Units of 16 bytes are counted from an aligned address in rank 0's src on, so that there may be a short one at either end. Those that are
 * whole, and aligned in memory here, are loaded and stored as such.
 */
#include "coll.h"
#include "part.h"
#include "src/kernels/fold/in_flight.h"
#include "src/kernels/fold/slot.h"
#include "twoshot_fold.h"
#include "words.h"

_Static_assert(COLL_BLOCKS_RANKS == IN_FLIGHT, "a unit of each");

/* Whether pieces are sent before all have met. AMD's kernels for blocks of more threads have no registers for that. */
#if defined(__AMDGCN__)
#define PUSH2_EARLY 0
#else
#define PUSH2_EARLY 1
#endif

/* What a rank does, seen from one thread. */
struct push2 {
	const struct coll *c;
	const struct area_inbox *inboxes;
	uint64_t src, dst;
	uint64_t stage; /* of any library area */
	int pe, npes;
	int alone;	   /* of what each folds it has the sums itself */
	int block, blocks; /* of those that all ranks have */
	uint32_t piece;	   /* units */
	uint32_t head;	   /* rank 0's src % 16 */
	int alike;	   /* it is 0, and all have as many blocks */
};

/* What one rank folds: where it begins in each src, and its units from there. */
struct push2_part {
	uint64_t from, head; /* head: bytes that the first unit lacks at its beginning */
	struct coll_part_units units;
};

LL_FN struct push2_part push2_part_of(const struct push2 *p, int pe)
{
	const struct coll *c = p->c;
	struct push2_part part = { p->alone ? (uint64_t)(uint32_t)pe * c->bytes : 0, 0, { 0, 0 } };

	part.head = ((PUSH2_EARLY ? p->head : p->inboxes[0].src) + part.from) & 15;
	part.units.end = (part.head + c->bytes + 15) / 16;
	if (!p->alone)
		part.units = coll_part_units(&c->args->share, pe, p->npes, part.units.end);
	return part;
}

/* Units of a piece: from `first` to `last`; from `whole` to `rest` they are loaded and stored as such. */
struct push2_units {
	uint64_t first, last, whole, rest;
};

/* at: units before the piece, of those that are the rank's. */
LL_FN struct push2_units push2_units_of(
	const struct push2 *p, const struct push2_part *part, uint64_t at, int aligned)
{
	struct push2_units u;
	uint64_t end = (part->head + p->c->bytes) / 16;

	u.first = part->units.start + at;
	u.last = u.first + p->piece;
	if (u.last > part->units.end)
		u.last = part->units.end;
	if (u.first > u.last)
		u.first = u.last;
	u.whole = part->head && !u.first ? 1 : u.first;
	u.rest = u.last < end ? u.last : end;
	if (!aligned || u.rest < u.whole)
		u.whole = u.rest = u.first;
	return u;
}

/* The i-th of those that are not whole; not below `last`: there are no more. */
LL_FN uint64_t other_unit(const struct push2_units *u, uint64_t i)
{
	uint64_t k = u->first + i;

	return k < u->whole ? k : k + (u->rest - u->whole);
}

/* Where in the part's block unit k lies, and how much of it there is. */
LL_FN uint64_t part_at(const struct push2_part *part, uint64_t k)
{
	return k ? 16 * k - part->head : 0;
}

LL_FN uint32_t part_has(const struct push2 *p, const struct push2_part *part, uint64_t k)
{
	uint64_t end = 16 * (k + 1) - part->head;

	return (uint32_t)((end < p->c->bytes ? end : p->c->bytes) - part_at(part, k));
}

/* ---- the stage ---------------------------------------------------------------------------------- */

/* By which `writer` tells the rank with this library area that it has stored pieces for this block. */
LL_FN uint64_t told_at(const struct push2 *p, uint64_t own, int writer)
{
	return own + p->stage + sizeof(uint64_t) * (uint64_t)(writer * (int)AREA_BLOCKS + p->block);
}

LL_FN uint64_t told(const struct push2 *p, uint64_t nth)
{
	return p->c->epoch << PUSH2_EPOCH | (nth + 1);
}

/* The nth piece, of `writer`, for rank pe with this library area. */
LL_FN uint64_t piece_at(const struct push2 *p, uint64_t own, int pe, int writer, uint64_t nth)
{
	int before = (int)(nth % PUSH2_PIECES) + p->block * PUSH2_PIECES;
	int place = writer < pe ? writer : writer - 1;

	return told_at(p, own, p->npes) - sizeof(uint64_t) * (uint64_t)p->block +
		(uint64_t)(before * (p->npes - 1) + place) * 16 * p->piece;
}

/* ---- to the others ------------------------------------------------------------------------------- */

LL_FN void push_part(const struct push2 *p, int pe, uint64_t at, uint64_t nth)
{
	const uint32_t lane = spmtd_tid_(), lanes = spmtd_threads_();
	struct push2_part part = push2_part_of(p, pe);
	uint64_t src = p->src + part.from;
	struct push2_units u = push2_units_of(p, &part, at, (src & 15) == part.head);
	uint64_t to = piece_at(p, area_there(p->c->view, pe), pe, p->pe, nth) - 16 * u.first;
	uint64_t from = src - part.head;

	for (uint64_t k = u.whole + lane; k < u.rest; k += PUSH2_AT_ONCE * lanes) {
		union unit x[PUSH2_AT_ONCE];

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
		/* gcc does not see that what is stored was loaded */
		__builtin_memset(x, 0, sizeof(x));
#endif
		UNROLLED
		for (uint32_t i = 0; i < PUSH2_AT_ONCE; i++)
			if (k + i * lanes < u.rest)
				x[i] = fetch_whole(from + 16 * (k + i * lanes));
		UNROLLED
		for (uint32_t i = 0; i < PUSH2_AT_ONCE; i++)
			if (k + i * lanes < u.rest)
				spmtd_gstore16b_(to + 16 * (k + i * lanes), x[i].raw);
	}
	for (uint64_t i = lane, k; (k = other_unit(&u, i)) < u.last; i += lanes)
		spmtd_gstore16b_(to + 16 * k,
			gather_here(src + part_at(&part, k), part_has(p, &part, k)).raw);
}

/* The nth piece for every other rank, the next one first. */
LL_FN void push_piece(const struct push2 *p, uint64_t at, uint64_t nth)
{
	const struct spmt_view *v = p->c->view;
	int pe = p->pe;

	ROLLED
	for (int i = 1; i < p->npes; i++) {
		pe = pe + 1 < p->npes ? pe + 1 : 0;
		push_part(p, pe, at, nth);
	}
	spmtd_meet_settled_(SPMTD_BLOCK_);
	for (pe = (int)spmtd_tid_(); pe < p->npes; pe += (int)spmtd_threads_()) {
		if (pe == p->pe)
			continue;
		spmtd_release_set_(told_at(p, area_there(v, pe), p->pe), told(p, nth));
		spmtd_wake_(v, pe);
	}
}

LL_FN int await_told(const struct push2 *p, struct spmtd_waiter_ *w, int pe, uint64_t nth)
{
	const struct coll *c = p->c;
	uint64_t a = told_at(p, spmtd_at_(c->view->own), pe), seen;
	int rc = 0;

	for (;;) {
		seen = spmtd_look64_(a);
		if (seen - told(p, nth) < 1ull << PUSH2_EPOCH) /* and not of another epoch */
			return 0;
		rc = coll_patience(c->view, w);
		if (rc) {
			kernel_record_here(c->view, c->args->report, rc, SPMTD_WHAT_COLLECTIVE, pe,
				a, c->args->key, seen);
			return rc;
		}
	}
}

/* All others' nth pieces. */
LL_FN int await_piece_of_all(const struct push2 *p, uint64_t nth)
{
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	for (int pe = (int)spmtd_tid_(); pe < p->npes && !rc; pe += (int)spmtd_threads_())
		if (pe != p->pe)
			rc = await_told(p, &w, pe, nth);
	spmtd_wait_end_(p->c->view, &w);
	return coll_agrees(rc);
}

/* ---- folds --------------------------------------------------------------------------------------- */

/* Where the sums go: to so many ranks, this one first. */
LL_FN int getters_of(const struct push2 *p)
{
	return p->alone ? 1 : p->npes;
}

LL_FN uint64_t next_dst(const struct push2 *p, int *pe)
{
	uint64_t to = p->alone ? p->dst : p->inboxes[*pe].dst;

	*pe = *pe + 1 < p->npes ? *pe + 1 : 0;
	return to;
}

struct push2_fold {
	const struct push2 *p;
	struct push2_part part;
	struct push2_units u;
	uint64_t src, nth;
	int second; /* of the two types that share a loop */
};

/* Where the units of writer pe are, whose numbers are from 0 on, and further by 16 bytes each. */
LL_FN uint64_t stage_of(const struct push2_fold *f, int pe)
{
	const struct push2 *p = f->p;

	return piece_at(p, spmtd_at_(p->c->view->own), p->pe, pe, f->nth) - 16 * f->u.first;
}

LL_FN struct push2_fold fold_of(const struct push2 *p, uint64_t at, uint64_t nth)
{
	struct push2_fold f = { .p = p, .part = push2_part_of(p, p->pe), .nth = nth };
	int odd, pe = p->pe;

	f.src = p->src + f.part.from;
	f.second = second_type(p->c->args->type);
	odd = (int)(f.src ^ f.part.head) & 15;
	for (int i = 0; i < getters_of(p); i++)
		odd |= (int)(next_dst(p, &pe) - f.part.head) & 15;
	f.u = push2_units_of(p, &f.part, at, !odd);
	return f;
}

/* Of the ranks from `base` on; `ranks` and what is done with them is constant, so that what is loaded stays in registers. */
LL_FN void load_folded(const struct push2_fold *f, struct in_flight *in, uint64_t k, int base,
	int ranks, int units)
{
	const uint32_t lanes = spmtd_threads_();
	const struct push2 *p = f->p;
	uint64_t first = stage_of(f, p->pe ? 0 : 1), own = f->src - f->part.head;

	UNROLLED
	for (int r = 0; r < ranks; r++) {
		int pe = base + r, place = pe < p->pe ? pe : pe - 1;
		uint64_t from =
			pe == p->pe ? own : first + 16 * (uint64_t)(p->piece * (uint32_t)place);

		if (pe >= p->npes)
			continue;
		UNROLLED
		for (int i = 0; i < units; i++)
			if (k + (uint32_t)i * lanes < f->u.rest)
				in->x[i * ranks + r].raw =
					slot_peek(from + 16 * (k + (uint32_t)i * lanes));
	}
}

LL_FN void store_sum(const struct push2_fold *f, uint64_t k, union unit u)
{
	uint64_t at = 16 * k - f->part.head;
	int pe = f->p->pe;

	if (k >= f->u.rest)
		return;
	for (int i = 0; i < getters_of(f->p); i++)
		spmtd_gstore16b_(next_dst(f->p, &pe) + at, u.raw);
}

LL_FN void store_other(const struct push2_fold *f, uint64_t k, union unit u)
{
	uint64_t at = part_at(&f->part, k);
	int pe = f->p->pe;

	for (int i = 0; i < getters_of(f->p); i++)
		place_here(next_dst(f->p, &pe) + at, u, part_has(f->p, &f->part, k));
}

LL_FN union unit load_other(const struct push2_fold *f, uint64_t k, int pe)
{
	union unit u;

	if (pe != f->p->pe) {
		u.raw = slot_peek(stage_of(f, pe) + 16 * k);
		return u;
	}
	return gather_here(f->src + part_at(&f->part, k), part_has(f->p, &f->part, k));
}

/* A mean of two, four or eight is a sum times what a float has exactly. */
#define PUSH2_SCALE_NONE(a, factor) ((void)(factor))
#define PUSH2_SCALE_f32(a, factor) ((a).f32 = (a).f32 * (factor))
#define PUSH2_SCALE_f64(a, factor) ((a).f64 = (a).f64 * (double)(factor))
#define PUSH2_SCALE_f16(a, factor) ((a).lo = (a).lo * (factor), (a).hi = (a).hi * (factor))
#define PUSH2_SCALE_bf16(a, factor) PUSH2_SCALE_f16(a, factor)
#define PUSH2_SCALE_u8(a, factor) PUSH2_SCALE_NONE(a, factor)
#define PUSH2_SCALE_u16(a, factor) PUSH2_SCALE_NONE(a, factor)
#define PUSH2_SCALE_u32(a, factor) PUSH2_SCALE_NONE(a, factor)
#define PUSH2_SCALE_u64(a, factor) PUSH2_SCALE_NONE(a, factor)

LL_FN float push2_factor(const struct push2 *p)
{
	if (p->c->args->op != SPMT_OP_AVG)
		return 1;
	return p->npes == 2 ? 0.5f : p->npes == 4 ? 0.25f : 0.125f;
}

/* AMD's kernels are for blocks of more threads, with fewer registers each. */
#if defined(__AMDGCN__)
#define PUSH2_UNITS(n) ((n) / 2)
#else
#define PUSH2_UNITS(n) (n)
#endif

/* Of `ranks` at a time, `units` of each, constants; each unit in flight has code of its own. once: there are no more ranks. What is folded in
   wide form has fewer, for which there are registers. */
#define DEFINE_PUSH2(name, acc, begin, step, end_of, hold)                                        \
	LL_FN void push2_sums_##name(const struct push2_fold *f, int ranks, int units, int once)  \
	{                                                                                         \
		const uint32_t lanes = spmtd_threads_();                                          \
		const int npes = f->p->npes;                                                      \
		const float factor = push2_factor(f->p);                                          \
		struct in_flight in;                                                              \
		acc a[IN_FLIGHT / 2];                                                             \
                                                                                                  \
		__builtin_memset(&in, 0, sizeof(in));                                             \
		__builtin_memset(a, 0, sizeof(a));                                                \
		for (uint64_t k = f->u.whole + spmtd_tid_(); k < f->u.rest;                       \
			k += lanes * (uint32_t)units) {                                           \
			ROLLED                                                                    \
			for (int base = 0; base < (once ? 1 : npes); base += ranks) {             \
				load_folded(f, &in, k, base, ranks, units);                       \
				UNROLLED                                                          \
				for (int i = 0; i < ranks * units; i++)                           \
					if (base + i % ranks < npes)                              \
						a[i / ranks] = hold(twoshot_step_##name(          \
							a[i / ranks], packed(in.x[i]),            \
							(struct twoshot_step){ base + i % ranks,  \
								SPMT_OP_SUM, f->second, 0, 0 })); \
			}                                                                         \
			UNROLLED                                                                  \
			for (int i = 0; i < units; i++) {                                         \
				PUSH2_SCALE_##name(a[i], factor);                                 \
				store_sum(f, k + (uint32_t)i * lanes,                             \
					end_of(a[i], SPMT_OP_SUM, npes, f->second));              \
			}                                                                         \
		}                                                                                 \
	}                                                                                         \
	LL_FN void push2_others_##name(const struct push2_fold *f)                                \
	{                                                                                         \
		const int npes = f->p->npes;                                                      \
		const float factor = push2_factor(f->p);                                          \
                                                                                                  \
		for (uint64_t i = spmtd_tid_(), k; (k = other_unit(&f->u, i)) < f->u.last;        \
			i += spmtd_threads_()) {                                                  \
			acc a;                                                                    \
                                                                                                  \
			__builtin_memset(&a, 0, sizeof(a));                                       \
			ROLLED                                                                    \
			for (int pe = 0; pe < npes; pe++)                                         \
				a = hold(twoshot_step_##name(a, packed(load_other(f, k, pe)),     \
					(struct twoshot_step){                                    \
						pe, SPMT_OP_SUM, f->second, 0, 0 }));             \
			PUSH2_SCALE_##name(a, factor);                                            \
			store_other(f, k, end_of(a, SPMT_OP_SUM, npes, f->second));               \
		}                                                                                 \
	}                                                                                         \
	LL_FN void push2_fold_##name(const struct push2_fold *f)                                  \
	{                                                                                         \
		if (f->p->npes <= 2)                                                              \
			push2_sums_##name(f, 2, PUSH2_UNITS(sizeof(acc) > 16 ? 2 : 4), 1);        \
		else if (f->p->npes <= 4)                                                         \
			push2_sums_##name(f, 4, PUSH2_UNITS(2), 1);                               \
		else                                                                              \
			push2_sums_##name(f, 4, 1, 0);                                            \
		push2_others_##name(f);                                                           \
	}
LL_LOOPS_OF_PLANS(DEFINE_PUSH2)

LL_FN void fold_piece(const struct push2 *p, enum fold_loop which, uint64_t at, uint64_t nth)
{
	struct push2_fold f = fold_of(p, at, nth);

	switch (which) {
#define X(name, acc, begin, step, end, hold) \
	case FOLD_##name:                    \
		push2_fold_##name(&f);       \
		break;
		LL_LOOPS_OF_PLANS(X)
#undef X
	default:
		break;
	}
}

/* ---- all ----------------------------------------------------------------------------------------- */

/* Grids may differ: the hellos tell of how many blocks each is, and where rank 0 has its src. Before all have met: as if all were alike. */
LL_FN struct push2 push2_of(const struct coll *c)
{
	struct push2 p = { .c = c,
		.inboxes = area_inbox(c->view, 0),
		.src = c->args->src,
		.dst = c->args->dst,
		.stage = c->args->places.stage,
		.pe = c->view->pe,
		.npes = c->view->npes,
		.alone = c->args->moves.src_blocks,
		.block = (int)kernel_block(),
		.blocks = (int)kernel_blocks(),
		.piece = c->args->places.piece };

	if (PUSH2_EARLY && !c->met)
		return p;
	p.head = (uint32_t)p.inboxes[0].src & 15;
	p.alike = !p.head;
	for (int pe = 0; pe < p.npes; pe++) {
		int blocks = (int)coll_words_of(c, pe);

		p.alike &= blocks == (int)kernel_blocks();
		if (blocks < p.blocks)
			p.blocks = blocks;
	}
	return p;
}

/* Units that the rank with most of them folds, or one or two more. */
LL_FN uint64_t most_units(const struct coll *c)
{
	if (!c->bytes)
		return 0;
	return c->args->moves.src_blocks ? c->bytes / 16 + 2 : c->args->share.each + 2;
}

/* What a piece needs is worked out for each: kept from one to the next it would take more registers than there are. */
LL_FN void push2_forget(struct push2 *p)
{
#if defined(__NVPTX__)
	__asm__ volatile(""
			 : "+r"(p->pe), "+r"(p->npes), "+r"(p->alone), "+r"(p->block),
			 "+r"(p->piece), "+r"(p->head), "+l"(p->src), "+l"(p->dst), "+l"(p->stage));
#else
	(void)p;
#endif
}

/* Of this block; two pieces are on their way before the first is waited for. */
enum { PUSH2_AHEAD = 2 };

/* Of pieces that nobody takes what is loaded may be a sum by then, which another rank has stored in place. */
#if !defined(__AMDGCN__) && !defined(__NVPTX__) && SANITIZE_THREAD
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#define PUSH2_LOADS_OF_ANY(which) AnnotateIgnoreReads##which(__FILE__, __LINE__)
#else
#define PUSH2_LOADS_OF_ANY(which) ((void)0)
#endif

/* first: pieces that nobody takes. */
LL_FN int push2_run(struct coll *c, enum fold_loop which)
{
	struct push2 p = push2_of(c);
	uint64_t most = most_units(c), stride, at, first = 0, ahead = 0, nth = 0;
	int rc = 0;

	if (c->met && (!most || p.block >= p.blocks))
		return 0;
	do {
		push2_forget(&p);
		stride = (uint64_t)(uint32_t)p.blocks * p.piece;
		at = (uint64_t)(uint32_t)p.block * p.piece;
		if (PUSH2_EARLY && !c->met)
			PUSH2_LOADS_OF_ANY(Begin);
		for (; ahead < nth + PUSH2_AHEAD && (ahead - first) * stride < most; ahead++)
			push_piece(&p, at + (ahead - first) * stride, ahead);
		if (PUSH2_EARLY && !c->met) {
			PUSH2_LOADS_OF_ANY(End);
			rc = coll_block_met(c);
			if (rc || !most)
				return rc;
			p = push2_of(c);
			if (p.block >= p.blocks)
				return 0;
			if (!p.alike) {
				first = ahead = nth = PUSH2_AHEAD;
				continue;
			}
		}
		rc = await_piece_of_all(&p, nth);
		push2_forget(&p);
		if (!rc)
			fold_piece(&p, which, at + (nth - first) * stride, nth);
		nth++;
	} while (!rc && (nth - first) * stride < most);
	return rc;
}

/* ---- kernels ------------------------------------------------------------------------------------- */

#if defined(__AMDGCN__) || defined(__NVPTX__)

LL_FN void push2_kernel(const struct kernel_collective_args *args, enum fold_loop which)
{
	struct coll c;
	int rc;

	coll_enter(&c, args);
	c.tells = COLL_TELLS;
	kernel_behind(0);
	coll_set(&c);
	if (!coll_open(&c))
		return;
	rc = PUSH2_EARLY ? coll_block_greets(&c) : coll_block_meets(&c);
	if (!rc)
		rc = push2_run(&c, which);
	coll_block_parts(&c, rc);
}

#define X(name)                                                                 \
	KERNEL_BODY run_push2_##name(const struct kernel_collective_args *args) \
	{                                                                       \
		push2_kernel(args, FOLD_##name);                                \
	}                                                                       \
	KERNEL_TAKING(push2_##name, struct kernel_collective_args)
COLL_PUSH2_KERNELS(X)
#undef X

#else

COLL_FN int coll_push2(struct coll *c)
{
	return push2_run(c, fold_loop_for(c->args));
}

#if !defined(COLL_ONE_UNIT)

static void push2_on_host(const void *args)
{
	kernel_collective.host(args);
}

#define X(name) \
	KERNEL_EARLY_ON_HOST(push2_##name, push2_on_host, struct kernel_collective_args, true)
COLL_PUSH2_KERNELS(X)
#undef X

const struct kernel *push2_kernel_for(const struct kernel_collective_args *args)
{
	static const struct kernel *const kernels[] = {
#define X(name) [FOLD_##name] = &kernel_push2_##name,
		COLL_PUSH2_KERNELS(X)
#undef X
	};

	return kernels[fold_loop_for(args)];
}

#endif
#endif
