/* SPDX-License-Identifier: MIT */
#include "walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/status.h"

/* ---- opening ---------------------------------------------------------------------------------- */

static void walk_threads(struct plan_walk *w)
{
	struct walk_thread *t = w->threads;

	for (int r = 0; r < w->plan->attr.nranks; r++)
		for (int b = 0; b < w->plan->ranks[r].nblocks; b++)
			*t++ = (struct walk_thread){
				.rank = r, .block = b, .list = &w->plan->ranks[r].blocks[b]
			};
}

/* Notes the parts of packets that the operation writes, or, without `cuts`, counts them. */
static size_t op_cuts(const struct spmt_plan_op *op, struct walk_cut *cuts)
{
	size_t n = 0;

	for (int i = 0; i < op->ndst && op->slices > 1; i++) {
		if (plan_dst_place(op, i) != PLAN_PACKETS)
			continue;
		if (cuts)
			cuts[n] = (struct walk_cut){ .rank = op->dst[i].rank,
				.slice = op->slice,
				.slices = op->slices,
				.index = op->dst[i].index,
				.count = op->dst[i].count };
		n++;
	}
	return n;
}

static size_t plan_cuts(const struct spmt_plan *plan, struct walk_cut *cuts)
{
	size_t n = 0;

	for (int r = 0; r < plan->attr.nranks; r++)
		for (int b = 0; b < plan->ranks[r].nblocks; b++)
			for (size_t i = 0; i < plan->ranks[r].blocks[b].n; i++)
				n += op_cuts(
					&plan->ranks[r].blocks[b].ops[i], cuts ? cuts + n : NULL);
	return n;
}

/* By chunks and cut; those of one cut by part. */
static int cut_order(const struct walk_cut *a, const struct walk_cut *b, bool parts)
{
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	if (a->index != b->index)
		return a->index < b->index ? -1 : 1;
	if (a->count != b->count)
		return a->count < b->count ? -1 : 1;
	if (a->slices != b->slices)
		return a->slices < b->slices ? -1 : 1;
	return parts ? (a->slice > b->slice) - (a->slice < b->slice) : 0;
}

static int part_order(const void *x, const void *y)
{
	return cut_order(x, y, true);
}

static bool walk_cuts(struct plan_walk *w)
{
	size_t all = plan_cuts(w->plan, NULL), n = 0;
	struct walk_cut *cuts = w->cuts = all ? mem_calloc(all, sizeof(*cuts)) : NULL;

	if (!all)
		return true;
	if (!cuts)
		return false;
	(void)plan_cuts(w->plan, cuts);
	qsort(cuts, all, sizeof(*cuts), part_order);
	for (size_t i = 0; i < all; i++) {
		if (n && !cut_order(&cuts[n - 1], &cuts[i], true))
			continue;
		cuts[i].first =
			n && !cut_order(&cuts[n - 1], &cuts[i], false) ? cuts[n - 1].first : n;
		cuts[n++] = cuts[i];
	}
	w->ncuts = n;
	return true;
}

int walk_open(struct plan_walk *w, const struct spmt_plan *plan, const char *what)
{
	size_t n = (size_t)plan->attr.nranks, indices = plan_indices(plan, false),
	       counts = n * n * indices, barriers = n * indices,
	       semaphores = n * SPMT_PLAN_SEMAPHORES;

	*w = (struct plan_walk){ .plan = plan, .indices = indices };
	for (size_t r = 0; r < n; r++)
		w->nthreads += plan->ranks[r].nblocks;
	w->threads = mem_calloc((size_t)MAX_OF(w->nthreads, 1), sizeof(*w->threads));
	w->channels = mem_calloc(counts, sizeof(*w->channels));
	w->semaphores = mem_calloc(semaphores, sizeof(*w->semaphores));
	w->barriers = mem_calloc(barriers, sizeof(*w->barriers));
	w->packets = mem_calloc(n, sizeof(*w->packets));
	if (!w->threads || !w->channels || !w->semaphores || !w->barriers || !w->packets ||
		!walk_cuts(w)) {
		walk_close(w);
		return fail_call(-ENOMEM, what, "plan %s: no memory to look at it", plan->name);
	}
	for (size_t i = 0; i < counts; i++)
		w->channels[i].giver = w->channels[i].taker = -1;
	for (size_t i = 0; i < semaphores; i++)
		w->semaphores[i].giver = w->semaphores[i].taker = -1;
	for (size_t i = 0; i < barriers; i++)
		w->barriers[i].round = 1;
	walk_threads(w);
	return 0;
}

void walk_close(struct plan_walk *w)
{
	for (int r = 0; w->packets && r < w->plan->attr.nranks; r++) {
		mem_free(w->packets[r].ranges);
		mem_free(w->packets[r].known);
	}
	mem_free(w->cuts);
	mem_free(w->packets);
	mem_free(w->barriers);
	mem_free(w->semaphores);
	mem_free(w->channels);
	mem_free(w->threads);
	*w = (struct plan_walk){ .plan = NULL };
}

struct walk_count *walk_channel(const struct plan_walk *w, int rank, int peer, int index)
{
	size_t n = (size_t)w->plan->attr.nranks;

	return &w->channels[((size_t)rank * n + (size_t)peer) * w->indices + (size_t)index];
}

struct walk_count *walk_counted(const struct plan_walk *w, int rank, const struct spmt_plan_op *op)
{
	if (plan_signals(op))
		return walk_channel(w, op->peer, rank, op->index);
	if (plan_waits(op))
		return walk_channel(w, rank, op->peer, op->index);
	if (plan_counts(op))
		return &w->semaphores[(size_t)rank * SPMT_PLAN_SEMAPHORES + (size_t)op->index];
	return NULL;
}

/* ---- packets ---------------------------------------------------------------------------------- */

struct walk_range walk_range_of(const struct spmt_plan_op *op, const struct spmt_plan_chunk *c)
{
	uint64_t from = (uint64_t)c->index * WALK_UNIT, n = (uint64_t)c->count * WALK_UNIT;
	uint64_t slices = (uint64_t)MAX_OF(op->slices, 1), slice = (uint64_t)op->slice;

	return (struct walk_range){ .from = from + n * slice / slices,
		.to = from + n * (slice + 1) / slices,
		.all_from = from,
		.all_to = from + n,
		.part = { op->slice, op->slices > 1 ? op->slices : 0, c->count } };
}

static bool cut_alike(const struct walk_range *a, const struct walk_range *b)
{
	return a->part.slices && a->part.slices == b->part.slices && a->all_from == b->all_from &&
		a->all_to == b->all_to;
}

bool walk_feeds(const struct walk_range *written, const struct walk_range *read)
{
	if (cut_alike(written, read))
		return written->from == read->from;
	return written->all_from < read->all_to && read->all_from < written->all_to;
}

/* Where parts that are first begin, or where two that are whole meet. */
static bool always_orders(const struct walk_range *written, const struct walk_range *read)
{
	uint64_t at = written->part.slices ? written->all_from
		: read->part.slices	   ? read->all_from
					   : MAX_OF(written->all_from, read->all_from);

	if (written->part.slice || read->part.slice)
		return false;
	if (written->part.slices && read->part.slices)
		return written->all_from == read->all_from;
	return written->all_from <= at && at < written->all_to && read->all_from <= at &&
		at < read->all_to;
}

bool walk_part_follows(const struct walk_part *a, const struct walk_part *b)
{
	return (uint64_t)a->slice * b->chunks <= (uint64_t)b->slice * a->chunks;
}

static bool has_bytes(const struct walk_range *r, const struct walk_case *given)
{
	return walk_part_follows(&r->part, &given->a) || walk_part_follows(&r->part, &given->b);
}

bool walk_has_bytes(const struct walk_range *r, const struct walk_case *given)
{
	return !r->part.slice || (given && has_bytes(r, given));
}

static bool covers(const struct walk_range *whole, const struct walk_range *r)
{
	return !whole->part.slices && whole->all_from <= r->all_from && r->all_to <= whole->all_to;
}

/* It has the bytes that both parts of the case have, counted from its first chunk. */
static bool shares(const struct walk_range *r, const struct walk_case *given)
{
	const struct walk_part *p = &r->part, *a = &given->a, *b = &given->b;

	return given->same && p->chunks == a->chunks &&
		((p->slices == a->slices && p->slice == a->slice) ||
			(p->slices == b->slices && p->slice == b->slice));
}

bool walk_shares(const struct walk_range *written, const struct walk_range *read,
	const struct walk_case *given)
{
	return given && written->all_from == read->all_from && shares(written, given) &&
		shares(read, given);
}

bool walk_orders(const struct walk_range *written, const struct walk_range *read,
	const struct walk_case *given)
{
	if (always_orders(written, read))
		return true;
	if (!given)
		return false;
	if (cut_alike(written, read))
		return written->part.slice == read->part.slice && has_bytes(read, given);
	if (covers(written, read))
		return has_bytes(read, given);
	if (covers(read, written))
		return has_bytes(written, given);
	return walk_shares(written, read, given);
}

bool walk_takes_all(const struct walk_range *written, const struct walk_range *read)
{
	if (cut_alike(written, read))
		return written->part.slice == read->part.slice;
	return covers(read, written);
}

/* NULL: no operation writes such a part. */
static struct walk_cut *cut_of(const struct plan_walk *w, int rank, const struct walk_range *r)
{
	struct walk_cut key = { .rank = rank,
		.slice = r->part.slice,
		.slices = r->part.slices,
		.index = (uint32_t)(r->all_from / WALK_UNIT),
		.count = r->part.chunks };

	return w->ncuts ? bsearch(&key, w->cuts, w->ncuts, sizeof(key), part_order) : NULL;
}

/* The first chunk from `at` on that has not all its packets. The next one who looks goes half as far. */
static uint32_t known_until(uint32_t *known, uint32_t at)
{
	while (known[at]) {
		known[at] += known[at + known[at]];
		at += known[at];
	}
	return at;
}

/* Those chunks have all their packets. */
static bool packets_complete(
	const struct plan_walk *w, struct walk_packets *p, const struct walk_range *r)
{
	uint32_t from = (uint32_t)(r->all_from / WALK_UNIT), to = from + r->part.chunks;

	if (!p->known)
		p->known = mem_calloc(w->plan->attr.scratch_chunks + (size_t)1, sizeof(*p->known));
	for (uint32_t at = from; p->known && (at = known_until(p->known, at)) < to;)
		p->known[at] = 1;
	return p->known != NULL;
}

static bool packets_add(struct walk_packets *p, const struct walk_range *range)
{
	if (p->n == p->room) {
		size_t room = p->room ? 2 * p->room : 16;
		struct walk_range *more = mem_calloc(room, sizeof(*more));

		if (!more)
			return false;
		if (p->n)
			memcpy(more, p->ranges, p->n * sizeof(*more));
		mem_free(p->ranges);
		p->ranges = more;
		p->room = room;
	}
	p->ranges[p->n++] = *range;
	return true;
}

static bool packets_note(const struct plan_walk *w, int rank, const struct walk_range *range)
{
	struct walk_packets *p = &w->packets[rank];
	struct walk_cut *cut = range->part.slices ? cut_of(w, rank, range) : NULL;
	bool all = !range->part.slices;

	if (cut && !cut->written) {
		cut->written = true;
		all = ++w->cuts[cut->first].parts == cut->slices;
	}
	return packets_add(p, range) && (!all || packets_complete(w, p, range));
}

bool walk_has_packets(const struct plan_walk *w, int rank, struct walk_range range)
{
	const struct walk_packets *p = &w->packets[rank];
	const struct walk_cut *cut = range.part.slices ? cut_of(w, rank, &range) : NULL;
	uint32_t from = (uint32_t)(range.all_from / WALK_UNIT);

	if (cut && cut->written)
		return true;
	return p->known && known_until(p->known, from) >= from + range.part.chunks;
}

/* ---- going on --------------------------------------------------------------------------------- */

static bool barrier_ready(struct plan_walk *w, struct walk_thread *t, const struct spmt_plan_op *op)
{
	struct walk_barrier *b = &w->barriers[(size_t)t->rank * w->indices + (size_t)op->index];

	if (!t->round) {
		t->round = b->round;
		if (++b->came == (uint32_t)op->blocks) {
			b->came = 0;
			b->round++;
		}
	}
	return b->round != t->round;
}

bool walk_ready(struct plan_walk *w, struct walk_thread *t)
{
	const struct spmt_plan_op *op = walk_op(t);
	const struct walk_count *c = walk_counted(w, t->rank, op);

	if (plan_waits(op))
		return c->given > c->taken;
	if (op->kind == SPMT_PLAN_ACQUIRE)
		return c->given + (size_t)op->initial > c->taken;
	if (op->kind == SPMT_PLAN_BARRIER)
		return barrier_ready(w, t, op);
	for (int i = 0; i < op->nsrc; i++)
		if (plan_src_place(op, i) == PLAN_PACKETS &&
			!walk_has_packets(w, t->rank, walk_range_of(op, &op->src[i])))
			return false;
	return true;
}

bool walk_done(struct plan_walk *w, struct walk_thread *t, size_t by)
{
	const struct spmt_plan_op *op = walk_op(t);
	struct walk_count *c = walk_counted(w, t->rank, op);
	bool noted = true;

	if (c && (plan_waits(op) || op->kind == SPMT_PLAN_ACQUIRE))
		c->taken++;
	else if (c)
		c->given++;
	t->round = 0;
	for (int i = 0; i < op->ndst; i++)
		if (plan_dst_place(op, i) == PLAN_PACKETS) {
			struct walk_range range = walk_range_of(op, &op->dst[i]);

			range.by = by;
			noted &= packets_note(w, op->dst[i].rank, &range);
		}
	t->next++;
	return noted;
}
