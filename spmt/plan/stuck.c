/* SPDX-License-Identifier: MIT */
/* A plan that stands still: who waits for whom. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "src/base/mem.h"
#include "src/base/status.h"

/* Packets that the other lacks. */
static bool op_puts(const struct check *c, const struct spmt_plan_op *op,
	const struct walk_thread *to, const struct spmt_plan_op *what)
{
	for (int d = 0; d < op->ndst; d++) {
		struct walk_range from;

		if (op->dst[d].rank != to->rank || plan_dst_place(op, d) != PLAN_PACKETS)
			continue;
		from = walk_range_of(op, &op->dst[d]);
		for (int s = 0; s < what->nsrc; s++) {
			struct walk_range r = walk_range_of(what, &what->src[s]);

			if (plan_src_place(what, s) == PLAN_PACKETS && walk_feeds(&from, &r) &&
				!walk_has_packets(&c->walk, to->rank, r))
				return true;
		}
	}
	return false;
}

static bool op_gives(const struct check *c, const struct walk_thread *who,
	const struct spmt_plan_op *op, const struct walk_thread *to,
	const struct spmt_plan_op *what)
{
	if (what->kind == SPMT_PLAN_BARRIER)
		return who->rank == to->rank && op->kind == SPMT_PLAN_BARRIER &&
			op->index == what->index;
	if (walk_counted(&c->walk, to->rank, what))
		return (plan_signals(op) || op->kind == SPMT_PLAN_RELEASE) &&
			walk_counted(&c->walk, who->rank, op) ==
			walk_counted(&c->walk, to->rank, what);
	return op_puts(c, op, to, what);
}

/* A thread that has yet to do what this one waits for; -1: there is none. */
static int check_awaited(const struct check *c, int thread)
{
	const struct walk_thread *to = &c->walk.threads[thread];
	const struct spmt_plan_op *what = walk_op(to);

	for (int t = 0; t < c->walk.nthreads; t++) {
		const struct walk_thread *who = &c->walk.threads[t];
		size_t from = who->next;

		/* it stands there itself, and does what follows later */
		if (what->kind == SPMT_PLAN_BARRIER &&
			(t == thread ||
				(who->round && walk_op(who) &&
					op_gives(c, who, walk_op(who), to, what))))
			continue;
		for (size_t i = from; i < who->list->n; i++)
			if (op_gives(c, who, &who->list->ops[i], to, what))
				return t;
	}
	return -1;
}

static int fail_unmet(const struct check *c, int thread)
{
	const struct walk_thread *t = &c->walk.threads[thread];
	const struct spmt_plan_op *op = walk_op(t);
	char words[PLAN_WORDS];

	plan_words(c->walk.plan, t->rank, t->block, t->next, words);
	return fail_call(-EINVAL, PLAN_CHECK, "plan %s: %s waits for what nobody %s",
		c->walk.plan->name, words,
		plan_waits(op)				? "signals"
			: op->kind == SPMT_PLAN_ACQUIRE ? "releases"
			: op->kind == SPMT_PLAN_BARRIER ? "comes for"
							: "puts there");
}

static const char *stuck_words(const struct check *c, int thread, char words[PLAN_WORDS])
{
	const struct walk_thread *at = &c->walk.threads[thread];

	return plan_words(c->walk.plan, at->rank, at->block, at->next, words);
}

/* The first ones, as many as have room, and the last, which waits for the first. */
static int fail_cycle(const struct check *c, const int *awaited, int first)
{
	static const char waits[] = ", which waits for ";
	const char *name = c->walk.plan->name;
	struct text text = { .used = 0 };
	char words[PLAN_WORDS], end[PLAN_WORDS];
	int left = 0, last = first, t;
	size_t room;

	for (; awaited[last] != first; left++)
		last = awaited[last];
	stuck_words(c, last, end);
	/* the rest is the words between these */
	room = STATUS_SENTENCE - sizeof(PLAN_CHECK) - strlen(name) - strlen(end) - 100;
	for (t = first; t != last; t = awaited[t], left--) {
		stuck_words(c, t, words);
		if (t != first && text.used + strlen(words) + sizeof(waits) > room)
			break;
		text_add(&text, "%s%s", words, waits);
	}
	if (left)
		text_add(&text, "%d %s for ", left,
			left == 1 ? "other, which waits" : "others, which wait");
	return fail_call(-EINVAL, PLAN_CHECK, "plan %s: deadlock: %s%s%sthe first", name,
		text.bytes, end, waits);
}

/* From one that stands still to who it waits for, up to one that it has come by: that is in a cycle. */
static int stuck_from(struct check *c, int *awaited, int t)
{
	while (awaited[t] < 0) {
		int next = check_awaited(c, t);

		if (next < 0)
			return fail_unmet(c, t);
		if (!check_goes_on(c, c->walk.plan->ops))
			return c->stopped;
		awaited[t] = next;
		t = next;
	}
	return fail_cycle(c, awaited, t);
}

int check_stuck(struct check *c)
{
	int t = 0, *awaited; /* by thread */
	int rc;

	while (t < c->walk.nthreads && !walk_op(&c->walk.threads[t]))
		t++;
	if (t == c->walk.nthreads)
		return 0;
	awaited = mem_calloc((size_t)c->walk.nthreads, sizeof(*awaited));
	if (!awaited)
		return check_no_memory(c);
	memset(awaited, 0xff, (size_t)c->walk.nthreads * sizeof(*awaited)); /* -1 */
	rc = stuck_from(c, awaited, t);
	mem_free(awaited);
	return rc;
}
