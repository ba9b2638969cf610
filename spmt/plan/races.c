/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "src/base/mem.h"
#include "src/base/status.h"

#define RACE_CASES 1024
#define RACE_WORK (1ull << 33) /* more than all pairs of CHECK_TOUCHES touches */

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

static bool touch_before(struct check *c, const struct check_touch *a, const struct check_touch *b)
{
	if (a->writes)
		return check_before(c, a, b, false);
	return check_before(c, a, b, true) || (b->writes && check_packets_before(c, a, b));
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
			return check_no_memory(c);
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

	if (c->no_memory)
		return check_no_memory(c);
	if (c->stopped)
		return c->stopped;
	if (c->looked >= CHECK_LOOKS)
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
		(c->touches + b->other > b + 1 && check_before(c, a, b, !a->writes)))
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
			if (!check_goes_on(c, 1))
				return c->stopped;
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
