/* SPDX-License-Identifier: MIT */
#include "lower.h"

#include <errno.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/status.h"

#define LAYOUT_LINE 128u
#define MEET_WINDOW 16u /* operations that are looked at for what has to be through */

/* What is written, or, where there are no tables yet, counted. */
struct lowering {
	const struct spmt_plan *plan;
	bool either;
	int rank;
	uint32_t indices, semaphores;
	struct plan_step *steps, counted;
	struct plan_step_place *places;
	uint32_t nsteps, nplaces;
	uint32_t widest; /* of all so far: chunks, or the part of them, that a step moves */
	bool reaches;	 /* some step touches another rank's memory, packets aside; */
	bool touched[SPMT_PLAN_RANKS]; /* this block that rank's since it has signalled it last, */
	bool silent;		       /* and some block at its end */
	bool told;		       /* it has touched what another rank tells */
	bool leads;		       /* some block does, as struct plan_layout has it */
};

/* ---- words ------------------------------------------------------------------------------------ */

/* Of each peer and channel two: what has arrived, what was taken; then as many a semaphore; then one a barrier. */
static uint32_t word_of_channel(const struct lowering *l, int peer, int index)
{
	return 2 * ((uint32_t)peer * l->indices + (uint32_t)index);
}

static uint32_t word_of_semaphore(const struct lowering *l, int index)
{
	return word_of_channel(l, l->plan->attr.nranks, 0) + 2 * (uint32_t)index;
}

static uint32_t word_of_barrier(const struct lowering *l, int index)
{
	return word_of_semaphore(l, (int)l->semaphores) + (uint32_t)index;
}

/* ---- steps ------------------------------------------------------------------------------------ */

static struct plan_step *lower_step(
	struct lowering *l, enum plan_step_kind kind, const struct spmt_plan_op *op)
{
	struct plan_step *s = l->steps ? &l->steps[l->nsteps] : &l->counted;

	l->nsteps++;
	*s = (struct plan_step){ .kind = kind,
		.places = l->nplaces,
		.chunks = op->nsrc ? op->src[0].count : 0,
		.slice = (uint32_t)op->slice,
		.slices = (uint32_t)MAX_OF(op->slices, 1),
		.peer = UINT32_MAX,
		.initial = (uint32_t)op->initial };
	l->widest = MAX_OF(l->widest, (s->chunks + s->slices - 1) / s->slices);
	return s;
}

static void lower_place(struct lowering *l, struct plan_step *s, uint32_t rank,
	enum plan_space space, uint32_t index)
{
	if (l->places)
		l->places[l->nplaces] =
			(struct plan_step_place){ rank, space, index, l->nsteps - 1 };
	if ((int)rank != l->rank && space != PLAN_SPACE_PACKETS)
		l->reaches = l->touched[rank] = true;
	l->told |= (int)rank != l->rank && space <= PLAN_SPACE_OUTPUT;
	l->nplaces++;
	s->n++;
}

static void lower_chunk(
	struct lowering *l, struct plan_step *s, struct spmt_plan_chunk c, bool packets)
{
	static const enum plan_space spaces[] = { PLAN_SPACE_INPUT, PLAN_SPACE_OUTPUT,
		PLAN_SPACE_SCRATCH };

	c = plan_merged(l->plan, c);
	lower_place(
		l, s, (uint32_t)c.rank, packets ? PLAN_SPACE_PACKETS : spaces[c.buffer], c.index);
}

static void lower_pair(struct lowering *l, enum plan_step_kind kind, const struct spmt_plan_op *op,
	const struct spmt_plan_chunk *dst, const struct spmt_plan_chunk *src)
{
	struct plan_step *s = lower_step(l, kind, op);

	s->ndst = 1;
	lower_chunk(l, s, *dst, kind == PLAN_STEP_PACK || kind == PLAN_STEP_FORWARD);
	lower_chunk(l, s, *src, kind == PLAN_STEP_UNPACK || kind == PLAN_STEP_FORWARD);
}

static void lower_reduce(struct lowering *l, const struct spmt_plan_op *op)
{
	bool packets = op->kind == SPMT_PLAN_REDUCE_PACKETS;
	struct plan_step *s = lower_step(l, packets ? PLAN_STEP_FOLD_PACKETS : PLAN_STEP_FOLD, op);

	s->ndst = (uint32_t)op->ndst;
	for (int i = 0; i < op->ndst; i++)
		lower_chunk(l, s, op->dst[i], plan_dst_place(op, i) == PLAN_PACKETS);
	for (int i = 0; i < op->nsrc; i++)
		lower_chunk(l, s, op->src[i], plan_src_place(op, i) == PLAN_PACKETS);
}

/* It waits for a word, by which others have told something. */
static bool lower_learns(const struct spmt_plan_op *op)
{
	return plan_waits(op) || op->kind == SPMT_PLAN_BARRIER || op->kind == SPMT_PLAN_ACQUIRE;
}

static void lower_waits(struct lowering *l, const struct spmt_plan_op *op)
{
	bool takes = plan_waits(op) || op->kind == SPMT_PLAN_ACQUIRE;
	struct plan_step *s = lower_step(l,
		op->kind == SPMT_PLAN_BARRIER ? PLAN_STEP_BARRIER
			: takes		      ? PLAN_STEP_WAIT
					      : PLAN_STEP_SIGNAL,
		op);

	s->relaxed = op->kind == SPMT_PLAN_SIGNAL_RELAXED || op->kind == SPMT_PLAN_WAIT_RELAXED;
	if (plan_waits(op) || plan_signals(op)) {
		s->initial = 0;
		s->peer = (uint32_t)op->peer;
		s->word = word_of_channel(l, plan_waits(op) ? op->peer : l->rank, op->index);
		if (op->kind == SPMT_PLAN_SIGNAL)
			l->touched[op->peer] = false;
	} else if (op->kind == SPMT_PLAN_BARRIER) {
		s->initial = (uint32_t)op->blocks;
		s->word = word_of_barrier(l, op->index);
	} else {
		s->peer = (uint32_t)l->rank;
		s->word = word_of_semaphore(l, op->index);
	}
}

static void lower_op(struct lowering *l, const struct spmt_plan_op *op)
{
	switch (op->kind) {
	case SPMT_PLAN_PUT:
	case SPMT_PLAN_GET:
	case SPMT_PLAN_COPY:
		lower_pair(l, PLAN_STEP_COPY, op, &op->dst[0], &op->src[0]);
		break;
	case SPMT_PLAN_PUT_PACKETS:
		lower_pair(l, PLAN_STEP_PACK, op, &op->dst[0], &op->src[0]);
		break;
	case SPMT_PLAN_UNPACK_PACKETS:
		lower_pair(l, PLAN_STEP_UNPACK, op, &op->dst[0], &op->src[0]);
		break;
	case SPMT_PLAN_SEND_PACKETS_ON:
		for (int i = 0; i < op->ndst; i++)
			lower_pair(l, PLAN_STEP_FORWARD, op, &op->dst[i], &op->src[0]);
		break;
	case SPMT_PLAN_REDUCE:
	case SPMT_PLAN_REDUCE_PACKETS:
		lower_reduce(l, op);
		break;
	default:
		lower_waits(l, op);
	}
}

/* ---- meetings of a block --------------------------------------------------------------------------- */

/* In one buffer all meets that meets in two. */
static bool meet_touches(
	const struct lowering *l, struct spmt_plan_chunk a, struct spmt_plan_chunk b)
{
	bool one = l->either || l->plan->attr.in_place;

	a = one ? plan_merged_in_place(l->plan, a) : a;
	b = one ? plan_merged_in_place(l->plan, b) : b;
	return a.rank == b.rank && a.buffer == b.buffer && a.index < b.index + b.count &&
		b.index < a.index + a.count;
}

/* a writes what b reads or writes. Packets are waited for by who reads them. */
static bool meet_clashes(
	const struct lowering *l, const struct spmt_plan_op *a, const struct spmt_plan_op *b)
{
	for (int d = 0; d < a->ndst; d++) {
		if (plan_dst_place(a, d) != PLAN_PLAIN)
			continue;
		for (int i = 0; i < b->nsrc; i++)
			if (plan_src_place(b, i) == PLAN_PLAIN &&
				meet_touches(l, a->dst[d], b->src[i]))
				return true;
		for (int i = 0; i < b->ndst; i++)
			if (plan_dst_place(b, i) == PLAN_PLAIN &&
				meet_touches(l, a->dst[d], b->dst[i]))
				return true;
	}
	return false;
}

static bool meet_tells(const struct spmt_plan_op *op)
{
	return plan_signals(op) || op->kind == SPMT_PLAN_RELEASE || op->kind == SPMT_PLAN_BARRIER;
}

/* They do as the operation begins, or ends, whatever is said here. */
static bool meet_begins(const struct spmt_plan_op *op)
{
	return op->kind == SPMT_PLAN_PUT_PACKETS || op->kind == SPMT_PLAN_UNPACK_PACKETS ||
		op->kind == SPMT_PLAN_SEND_PACKETS_ON;
}

static bool meet_ends(const struct spmt_plan_op *op)
{
	return meet_begins(op) || op->kind == SPMT_PLAN_REDUCE_PACKETS || lower_learns(op);
}

/* Each thread sends packets as it folds them, and who gets them may store over what the block has loaded before. */
static bool meet_sends(const struct spmt_plan_op *op)
{
	return op->kind == SPMT_PLAN_REDUCE_PACKETS && op->ndst > 1;
}

/* Whether the threads meet before operation i: each goes on by itself else. They have before `*from`, so that all from before it goes with the
   next signal. all: where no operation does by itself. */
static bool meet_before(
	const struct lowering *l, const struct plan_list *list, size_t i, size_t *from, bool all)
{
	const struct spmt_plan_op *op = &list->ops[i];
	bool meets = i - *from >= MEET_WINDOW, met = !all && meet_begins(op);

	for (size_t k = i; k-- > *from && !meets;) {
		const struct spmt_plan_op *before = &list->ops[k];

		met |= !all && meet_ends(before);
		meets = (plan_moves(before) && meet_tells(op)) ||
			(!met &&
				((plan_moves(before) && meet_sends(op)) ||
					meet_clashes(l, before, op) ||
					meet_clashes(l, op, before)));
		met |= !all && meet_begins(before);
	}
	if (meets)
		*from = i;
	return meets;
}

/* Of its own input or output, as plan_leads() has it (src/kernels/plan.c). */
static bool lower_leads(const struct spmt_plan_op *op)
{
	return op->kind == SPMT_PLAN_PUT && op->src[0].buffer != SPMT_PLAN_SCRATCH &&
		op->dst[0].buffer == SPMT_PLAN_SCRATCH;
}

static void lower_block(struct lowering *l, const struct plan_list *list)
{
	size_t from = 0, all_from = 0;

	l->told = false;
	l->leads |= list->n && lower_leads(&list->ops[0]);
	for (size_t i = 0; i < list->n; i++) {
		uint32_t first = l->nsteps, meets = 0;
		bool told = l->told;

		if (l->steps && meet_before(l, list, i, &from, false))
			meets |= PLAN_MEETS;
		if (l->steps && meet_before(l, list, i, &all_from, true))
			meets |= PLAN_MEETS_ALL;
		lower_op(l, &list->ops[i]);
		meets |= l->told && !told ? PLAN_MEETS_TOLD : 0;
		if (l->steps)
			l->steps[first].meets = meets;
	}
}

/* ---- a rank ------------------------------------------------------------------------------------- */

/* firsts: blocks + 1 of them, or NULL. */
static void lower_rank(struct lowering *l, int rank, struct plan_first *firsts)
{
	const struct plan_rank *r = &l->plan->ranks[rank];

	l->rank = rank;
	l->nsteps = l->nplaces = 0;
	for (int b = 0; b < r->nblocks; b++) {
		if (firsts)
			firsts[b] = (struct plan_first){ l->nsteps, l->nplaces };
		lower_block(l, &r->blocks[b]);
		for (int p = 0; p < l->plan->attr.nranks; p++) {
			l->silent |= l->touched[p];
			l->touched[p] = false;
		}
	}
	if (firsts)
		firsts[r->nblocks] = (struct plan_first){ l->nsteps, l->nplaces };
}

/* ---- layout ----------------------------------------------------------------------------------- */

/* Where the next part begins; false: beyond the address space. */
static bool lay(uint64_t *end, uint64_t *at, uint64_t n, uint64_t size)
{
	uint64_t bytes;

	*at = align_up(*end, LAYOUT_LINE);
	return !__builtin_mul_overflow(n, size, &bytes) &&
		!__builtin_add_overflow(*at, bytes, end) && *end <= UINT64_MAX / 4;
}

int plan_lay_out(
	const struct spmt_plan *plan, bool either, size_t max_bytes, struct plan_layout *layout)
{
	const struct spmt_plan_attr *a = &plan->attr;
	struct lowering l = { .plan = plan,
		.either = either,
		.indices = plan_indices(plan, false),
		.semaphores = plan_indices(plan, true) };
	uint32_t steps = 0, places = 0, words = word_of_barrier(&l, (int)l.indices);
	uint64_t end = ((uint64_t)plan->nblocks + 1) * sizeof(struct plan_first);
	bool packets = plan_has_packets(plan);
	struct plan_layout made = { .indices = l.indices,
		.semaphores = l.semaphores,
		.max_chunk = max_bytes / plan_parts(a),
		.either = either };

	for (int r = 0; r < a->nranks; r++) {
		lower_rank(&l, r, NULL);
		steps = MAX_OF(steps, l.nsteps);
		places = MAX_OF(places, l.nplaces);
	}
	if (!lay(&end, &made.steps, steps, sizeof(struct plan_step)) ||
		!lay(&end, &made.places, places, sizeof(struct plan_step_place)) ||
		!lay(&end, &made.words, 1, sizeof(struct plan_words) + (uint64_t)words * 8) ||
		!lay(&end, &made.scratch, a->scratch_chunks, made.max_chunk) ||
		!lay(&end, &made.packets, packets ? a->scratch_chunks * 2ull : 0, made.max_chunk))
		return fail_call(-ENOMEM, "spmt_plan_begin",
			"plan %s: %zu bytes and its scratch wrap the address space", plan->name,
			max_bytes);
	made.size = end;
	made.apart = !l.reaches;
	made.closed = !l.silent;
	made.leads = l.leads;
	made.widest = l.widest;
	*layout = made;
	return 0;
}

void *plan_table(const struct spmt_plan *plan, const struct plan_layout *layout, int rank)
{
	char *table = mem_calloc(1, layout->words);
	struct lowering l = { .plan = plan,
		.either = layout->either,
		.indices = layout->indices,
		.semaphores = layout->semaphores };

	if (!table)
		return NULL;
	l.steps = (struct plan_step *)(void *)(table + layout->steps);
	l.places = (struct plan_step_place *)(void *)(table + layout->places);
	lower_rank(&l, rank, (struct plan_first *)(void *)table);
	return table;
}
