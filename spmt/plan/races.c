/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "src/base/mem.h"
#include "src/base/status.h"

#define RACE_CASES 1024
#define RACE_WORK (1ull << 33)	/* more than all pairs of CHECK_TOUCHES touches */
#define RACE_LOOKS (1ull << 28) /* at packets that are sent on */
#define RACE_WAY 1024		/* operations on the way of a packet that are followed */

static bool step_before(
	const struct check *c, const struct check_touch *a, const struct check_touch *b, bool over)
{
	const struct check_step *x = &c->steps[a->step], *y = &c->steps[b->step];

	return (over ? y->over : y->clock)[x->thread] >= x->clock[x->thread];
}

/* Parts of one range are known to the byte; of two that are cut differently, not. */
static bool touches_meet(const struct check_touch *a, const struct check_touch *b)
{
	uint64_t unit = WALK_UNIT;

	if (a->slices <= 1 && b->slices <= 1)
		return a->range.from < b->range.to && b->range.from < a->range.to;
	if (a->slices == b->slices && a->chunk.index == b->chunk.index &&
		a->chunk.count == b->chunk.count)
		return a->range.from == b->range.from;
	return a->chunk.index * unit < (b->chunk.index + b->chunk.count) * unit &&
		b->chunk.index * unit < (a->chunk.index + a->chunk.count) * unit;
}

/* ---- packets ------------------------------------------------------------------------------------ */

static const struct check_touch *packets_of(const struct check *c, int rank)
{
	const struct check_touch *from = c->packets, *to = c->touches + c->ntouches;

	while (from < to) {
		const struct check_touch *middle = from + (to - from) / 2;

		if (middle->chunk.rank < rank)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static const struct spmt_plan_op *op_of(const struct check *c, const struct check_touch *t)
{
	const struct check_step *s = &c->steps[t->step];

	return &c->walk.threads[s->thread].list->ops[s->nth];
}

/* What b's operation takes comes packet by packet, and each one says that its own bytes have been read, and no others. */
static bool is_taken(const struct check *c, const struct check_touch *r, uint64_t shift,
	const struct check_touch *b)
{
	if (r->step == b->step)
		return r->range.all_from - b->range.all_from == shift;
	return step_before(c, r, b, true);
}

/* A part of chunks in which the bytes are that are looked for; slices 0: none. */
struct race_part {
	uint64_t from, to; /* the chunks */
	int slice, slices;
};

/* Packets on their way: those of some bytes in the chunks from `at` of their rank on, up to `end`. They lie `shift` behind what they are made
   of, where the parts lie: of who makes packets of these bytes, of who stores there, and the last one that was followed. */
struct race_packets {
	int rank;
	uint64_t at, end, shift;
	struct race_part parts[3];
};

static struct race_part race_part_of(const struct check_touch *t, uint64_t shift)
{
	return (struct race_part){ t->range.all_from - shift, t->range.all_to - shift,
		t->range.part.slice, t->range.part.slices };
}

static bool cut_like(const struct race_part *a, const struct race_part *b)
{
	return a->slices == b->slices && a->from == b->from && a->to == b->to;
}

/* Whether r reads them. Where parts begin is known of none that is cut otherwise. */
enum race_reads { READS_NONE, READS_SOME, READS_ALL };
static enum race_reads race_reads(const struct race_packets *p, const struct check_touch *r)
{
	struct race_part own = race_part_of(r, p->shift);

	if (r->writes || p->at < r->range.all_from || p->at >= r->range.all_to)
		return READS_NONE;
	for (size_t i = 0; own.slices && i < ARRAY_SIZE(p->parts); i++)
		if (cut_like(&p->parts[i], &own))
			return p->parts[i].slice == own.slice ? READS_ALL : READS_NONE;
	return own.slices ? READS_SOME : READS_ALL;
}

static uint64_t known_up_to(
	struct check *c, const struct race_packets *p, const struct check_touch *b, unsigned depth);

/* Up to where by r, which reads them: they are taken, or what they are sent on as is. */
static uint64_t known_by(struct check *c, const struct race_packets *p, const struct check_touch *r,
	const struct check_touch *b, unsigned depth)
{
	const struct spmt_plan_op *op = op_of(c, r);
	uint64_t known = p->at, end = MIN_OF(p->end, r->range.all_to);

	if (is_taken(c, r, p->shift, b))
		return end;
	for (int i = 0; i < op->ndst && depth && c->looked < RACE_LOOKS; i++) {
		uint64_t move = walk_range_of(op, &op->dst[i]).all_from - r->range.all_from;
		struct race_packets there = *p;

		if (plan_dst_place(op, i) != PLAN_PACKETS)
			continue;
		there.rank = op->dst[i].rank;
		there.at += move;
		there.end = end + move;
		there.shift += move;
		known = MAX_OF(known, known_up_to(c, &there, b, depth - 1) - move);
	}
	return known;
}

/* By all parts of how the first one is cut, as any may read them. */
static uint64_t known_by_parts(struct check *c, const struct race_packets *p,
	const struct check_touch *first, const struct check_touch *b, unsigned depth)
{
	const struct check_touch *end = c->touches + c->ntouches;
	struct race_part part = race_part_of(first, p->shift);
	uint64_t known = MIN_OF(p->end, first->range.all_to);

	for (int slice = 0; slice < part.slices && known > p->at; slice++) {
		uint64_t best = p->at;

		for (const struct check_touch *r = packets_of(c, p->rank); r < end &&
			r->chunk.rank == p->rank && best < known && c->looked < RACE_LOOKS;
			r++) {
			struct race_part own = race_part_of(r, p->shift);
			struct race_packets within = *p;

			c->looked++;
			if (r->writes || own.slice != slice || !cut_like(&own, &part))
				continue;
			within.parts[2] = own;
			best = MAX_OF(best, known_by(c, &within, r, b, depth));
		}
		known = MIN_OF(known, best);
	}
	return known;
}

/* Up to where they are known to have come when b stores, the first of them by one way. */
static uint64_t known_up_to(
	struct check *c, const struct race_packets *p, const struct check_touch *b, unsigned depth)
{
	const struct check_touch *end = c->touches + c->ntouches;
	uint64_t known = p->at, by;

	for (const struct check_touch *r = packets_of(c, p->rank);
		r < end && r->chunk.rank == p->rank && known < p->end; r++) {
		enum race_reads reads = race_reads(p, r);

		c->looked++;
		if (reads == READS_NONE || (reads == READS_SOME && r->range.part.slice))
			continue;
		by = reads == READS_ALL ? known_by(c, p, r, b, depth)
					: known_by_parts(c, p, r, b, depth);
		known = MAX_OF(known, by);
	}
	return known;
}

/* a reads what its operation sends as packets, and b stores something there: have those come? */
static bool sent_before(struct check *c, const struct check_touch *a, const struct check_touch *b)
{
	const struct spmt_plan_op *op = op_of(c, a);
	uint64_t from = MAX_OF(a->range.all_from, b->range.all_from),
		 to = MIN_OF(a->range.all_to, b->range.all_to);

	for (int i = 0; i < op->ndst; i++) {
		uint64_t shift = walk_range_of(op, &op->dst[i]).all_from - a->range.all_from,
			 at = from, before;
		struct race_packets p = { .rank = op->dst[i].rank,
			.end = to + shift,
			.shift = shift,
			.parts = { race_part_of(a, 0), race_part_of(b, 0) } };

		if (plan_dst_place(op, i) != PLAN_PACKETS)
			continue;
		do {
			before = p.at = at + shift;
			at = known_up_to(c, &p, b, RACE_WAY) - shift;
		} while (at + shift > before && at < to);
		if (at >= to)
			return true;
	}
	return false;
}

/* b stores what comes as packets, each behind the packet of its own place: whoever wrote that one had read what a reads. */
static bool told_before(struct check *c, const struct check_touch *a, const struct check_touch *b)
{
	const struct check_step *x = &c->steps[a->step], *y = &c->steps[b->step];
	const struct walk_packets *p = &c->walk.packets[c->walk.threads[y->thread].rank];
	const struct spmt_plan_op *op = op_of(c, b);

	for (int i = 0; i < op->nsrc; i++) {
		struct walk_range r = walk_range_of(op, &op->src[i]);
		uint64_t shift = r.all_from - b->range.all_from;
		bool any = false, all = true, had;

		for (size_t k = 0; plan_src_place(op, i) == PLAN_PACKETS && k < p->n; k++) {
			const struct walk_range *w = &p->ranges[k];

			c->looked++;
			if (!walk_feeds(w, &r) || w->all_from >= a->range.all_to + shift ||
				w->all_to <= a->range.all_from + shift)
				continue;
			any = true;
			had = check_had_read(&c->steps[w->by], x->thread) >= x->clock[x->thread];
			if (had && walk_shares(w, &r, c->given))
				return true;
			all &= had;
		}
		if (any && all)
			return true;
	}
	return false;
}

static bool touch_before(struct check *c, const struct check_touch *a, const struct check_touch *b)
{
	if (a->writes)
		return step_before(c, a, b, false);
	return step_before(c, a, b, true) ||
		(b->writes && (told_before(c, a, b) || sent_before(c, a, b)));
}

/* ---- two touches -------------------------------------------------------------------------------- */

static int fail_race(
	const struct check *c, const struct check_touch *a, const struct check_touch *b)
{
	const struct check_step *sa = &c->steps[a->step], *sb = &c->steps[b->step];
	const struct walk_thread *ta = &c->walk.threads[sa->thread],
				 *tb = &c->walk.threads[sb->thread];
	char words_a[PLAN_WORDS], words_b[PLAN_WORDS];

	plan_words(c->walk.plan, ta->rank, ta->block, sa->nth, words_a);
	plan_words(c->walk.plan, tb->rank, tb->block, sb->nth, words_b);
	return fail_call(-EINVAL, PLAN_CHECK,
		a->packets
			? "plan %s: packets are written twice in a run: %s and %s"
			: "plan %s: race: %s and %s touch the same chunk of rank %d, and nothing orders them",
		c->walk.plan->name, words_a, words_b, a->chunk.rank);
}

/* Of packets the readers wait by themselves, and a second writer is always wrong: its readers could take the first's. */
static bool touches_clash(struct check *c, const struct check_touch *a, const struct check_touch *b)
{
	if (a->packets)
		return a->writes && b->writes && touches_meet(a, b);
	if (!a->writes && !b->writes)
		return false;
	return c->steps[a->step].thread != c->steps[b->step].thread && touches_meet(a, b) &&
		!touch_before(c, a, b) && !touch_before(c, b, a);
}

static int touch_order(const void *x, const void *y)
{
	const struct check_touch *a = x, *b = y;

	if (a->packets != b->packets)
		return a->packets ? 1 : -1;
	if (a->chunk.rank != b->chunk.rank)
		return a->chunk.rank < b->chunk.rank ? -1 : 1;
	if (a->chunk.buffer != b->chunk.buffer)
		return a->chunk.buffer < b->chunk.buffer ? -1 : 1;
	if (a->chunk.index != b->chunk.index)
		return a->chunk.index < b->chunk.index ? -1 : 1;
	return a->step < b->step ? -1 : a->step > b->step;
}

static bool same_memory(const struct check_touch *a, const struct check_touch *b)
{
	return a->packets == b->packets && a->chunk.rank == b->chunk.rank &&
		a->chunk.buffer == b->chunk.buffer;
}

/* ---- sizes of chunks ---------------------------------------------------------------------------- */

/* A race that only chunks of some size have is one if at these nothing orders it. */
static struct walk_case race_case(const struct check_touch *a, const struct check_touch *b)
{
	const struct walk_part *x = &a->range.part, *y = &b->range.part;
	bool same = a->range.all_from == b->range.all_from && x->chunks == y->chunks;

	if (same && x->slices != y->slices)
		return (struct walk_case){ *x, *y, true };
	if (walk_part_follows(x, y))
		x = y;
	return (struct walk_case){ *x, *x, false };
}

static bool same_part(const struct walk_part *a, const struct walk_part *b)
{
	return a->slice == b->slice && a->slices == b->slices && a->chunks == b->chunks;
}

static bool same_case(const struct walk_case *a, const struct walk_case *b)
{
	return a->same == b->same && same_part(&a->a, &b->a) && same_part(&a->b, &b->b);
}

struct race_cases {
	struct walk_case *cases;
	size_t n, room;
	uint64_t pairs; /* that were looked at */
};

static int fail_many(const struct check *c)
{
	return fail_call(-E2BIG, PLAN_CHECK,
		"plan %s: its operations are cut into parts in too many ways to look at",
		c->walk.plan->name);
}

/* Going through the plan again for each of them takes as long as the first time. */
static int cases_fit(const struct check *c, const struct race_cases *all)
{
	const struct spmt_plan *plan = c->walk.plan;
	uint64_t n = (uint64_t)(uint32_t)plan->attr.nranks;
	uint64_t each = all->pairs + 4 * n * n * c->indices +
		plan->ops * (uint64_t)(uint32_t)c->walk.nthreads +
		(plan_has_packets(plan) ? n * plan->attr.scratch_chunks : 0);

	return all->n <= RACE_WORK / MAX_OF(each, 1u) ? 0 : fail_many(c);
}

static int case_note(const struct check *c, struct race_cases *all, const struct walk_case *one)
{
	for (size_t i = 0; i < all->n; i++)
		if (same_case(&all->cases[i], one))
			return 0;
	if (all->n == RACE_CASES)
		return fail_many(c);
	if (all->n == all->room) {
		size_t room = all->room ? 2 * all->room : 16;
		struct walk_case *more = mem_calloc(room, sizeof(*more));

		if (!more)
			return fail_call(-ENOMEM, PLAN_CHECK, "plan %s: no memory to look at it",
				c->walk.plan->name);
		if (all->n)
			memcpy(more, all->cases, all->n * sizeof(*more));
		mem_free(all->cases);
		all->cases = more;
		all->room = room;
	}
	all->cases[all->n++] = *one;
	return 0;
}

/* ---- pairs -------------------------------------------------------------------------------------- */

static int pair_check(struct check *c, const struct check_touch *a, const struct check_touch *b,
	struct race_cases *cases)
{
	struct walk_case given;

	bool clash = touches_clash(c, a, b);

	if (c->looked >= RACE_LOOKS)
		return fail_call(-E2BIG, PLAN_CHECK,
			"plan %s: its packets are sent on in too many ways to look at",
			c->walk.plan->name);
	if (!clash)
		return 0;
	given = race_case(a, b);
	if (c->given && !same_case(&given, c->given))
		return 0;
	if (a->packets || c->given || (!given.a.slice && !given.b.slice))
		return fail_race(c, a, b);
	return case_note(c, cases, &given);
}

/* Which one behind b may clash with a; b itself, if it may. Two that only read do not, nor do two of one thread, of packets two unless both
   write. What is before b is before all that b's thread does later. */
static const struct check_touch *clash_next(
	const struct check *c, const struct check_touch *a, const struct check_touch *b)
{
	bool writes = b->writes || (a->writes && !a->packets);

	if (!writes)
		return c->touches + b->writer;
	if (a->packets)
		return b;
	if (c->steps[a->step].thread == c->steps[b->step].thread ||
		(c->touches + b->other > b + 1 && step_before(c, a, b, !a->writes)))
		return c->touches + b->other;
	return b;
}

static int pairs_between(struct check *c, const struct check_touch *from,
	const struct check_touch *to, struct race_cases *cases)
{
	const struct check_touch *next;
	int rc = 0;

	for (const struct check_touch *a = from; !rc && a < to; a++) {
		if (a->packets && !a->writes)
			continue;
		for (const struct check_touch *b = a + 1; !rc && b < to && same_memory(a, b) &&
			b->chunk.index < a->chunk.index + a->chunk.count;
			b = next) {
			next = clash_next(c, a, b);
			cases->pairs++;
			if (next == b) {
				rc = pair_check(c, a, b, cases);
				next++;
			}
		}
	}
	return rc;
}

/* Packets first: where two operations write one, ways of packets may go round for ever. */
static int pairs_check(struct check *c, struct race_cases *cases)
{
	int rc = pairs_between(c, c->packets, c->touches + c->ntouches, cases);

	return rc ? rc : pairs_between(c, c->touches, c->packets, cases);
}

static void touches_sort(struct check *c)
{
	size_t n = c->ntouches;

	qsort(c->touches, n, sizeof(*c->touches), touch_order);
	for (size_t i = n; i--;) {
		struct check_touch *t = &c->touches[i], *next = t + 1;
		bool last = i + 1 == n;

		t->writer = last || next->writes ? i + 1 : next->writer;
		t->other = last || next->step < t->step ||
				c->steps[next->step].thread != c->steps[t->step].thread
			? i + 1
			: next->other;
	}
}

int check_races(struct check *c)
{
	struct race_cases cases = { .n = 0 };
	int rc;

	if (!c->ntouches)
		return 0;
	touches_sort(c);
	c->packets = c->touches;
	while (c->packets < c->touches + c->ntouches && !c->packets->packets)
		c->packets++;
	rc = pairs_check(c, &cases);
	if (!rc)
		rc = cases_fit(c, &cases);
	for (size_t i = 0; !rc && i < cases.n; i++) {
		rc = check_again(c, &cases.cases[i]);
		if (!rc)
			rc = pairs_check(c, &cases);
	}
	mem_free(cases.cases);
	return rc;
}
