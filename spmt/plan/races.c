/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "src/base/status.h"

static bool step_before(const struct check *c, size_t a, size_t b)
{
	const struct check_step *s = &c->steps[a];

	return c->steps[b].clock[s->thread] >= s->clock[s->thread];
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
static bool touches_clash(
	const struct check *c, const struct check_touch *a, const struct check_touch *b)
{
	if (a->packets)
		return a->writes && b->writes && touches_meet(a, b);
	if (!a->writes && !b->writes)
		return false;
	return c->steps[a->step].thread != c->steps[b->step].thread && touches_meet(a, b) &&
		!step_before(c, a->step, b->step) && !step_before(c, b->step, a->step);
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

int check_races(struct check *c)
{
	struct check_touch *all = c->touches;

	if (!c->ntouches)
		return 0;
	qsort(all, c->ntouches, sizeof(*all), touch_order);
	for (size_t i = 0; i < c->ntouches; i++)
		for (size_t k = i + 1; k < c->ntouches && same_memory(&all[i], &all[k]) &&
			all[k].chunk.index < all[i].chunk.index + all[i].chunk.count;
			k++)
			if (touches_clash(c, &all[i], &all[k]))
				return fail_race(c, &all[i], &all[k]);
	return 0;
}
