/* SPDX-License-Identifier: MIT */
/*
 * The checker. It goes through the plan once, in any order that the waits allow: since each channel end and semaphore has one block
 * that gives and one that takes, who waits for what does not depend on the order, and neither does whether all come through. What is
 * ordered is kept as vector clocks; two operations that touch the same chunk, one of them writing, have to be ordered. Packets are no fence:
 * they are there when they are read, so that their writer has read what it made these of, and all before its operation (the block has met in
 * between); but what it had stored elsewhere may come later than they do, and it may still read what it makes its other packets of.
 */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

/* Operations times blocks: the clocks' words. */
#define CHECK_MOST (48u << 20)
#define CHECK_TOUCHES (1u << 17)
#define CHECK_JOINS (1ull << 32) /* words of clocks of who writes packets, for who takes them */

int check_no_memory(const struct check *c)
{
	return fail_call(
		-ENOMEM, PLAN_CHECK, "plan %s: no memory to look at it", c->walk.plan->name);
}

/* ---- who waits for it ------------------------------------------------------------------------- */

int plan_goes_on(const struct spmt_plan *plan, const struct plan_limit *limit)
{
	if (!limit)
		return 0;
	if (__atomic_load_n(limit->stop, __ATOMIC_RELAXED))
		return fail(-ECANCELED, "the world is broken");
	if (process_now() < limit->until)
		return 0;
	return fail(SPMT_ERR_TIMEOUT,
		"plan %s: to check it, and to try it at all sizes, takes more time than the others wait: a higher SPMT_TIMEOUT_MS may be enough",
		plan->name);
}

bool check_asks(struct check *c)
{
	c->work = 0;
	if (!c->stopped)
		c->stopped = plan_goes_on(c->walk.plan, c->limit);
	return !c->stopped;
}

/* ---- opening ---------------------------------------------------------------------------------- */

static int check_open(struct check *c, const struct spmt_plan *plan, const struct plan_limit *limit)
{
	size_t n = (size_t)plan->attr.nranks, threads;
	int rc;

	*c = (struct check){ .limit = limit };
	rc = walk_open(&c->walk, plan, PLAN_CHECK);
	if (rc)
		return rc;
	threads = (size_t)MAX_OF(c->walk.nthreads, 1);
	if (plan->ops > CHECK_MOST / threads || threads > CHECK_MOST / threads)
		return fail_call(-E2BIG, PLAN_CHECK,
			"plan %s: %zu %s times %zu blocks of all ranks are %llu, too many to look at: at most %u",
			plan->name, MAX_OF(plan->ops, threads),
			plan->ops < threads ? "blocks" : "operations", threads,
			(unsigned long long)MAX_OF(plan->ops, threads) * threads, CHECK_MOST);
	c->steps = mem_calloc(MAX_OF(plan->ops, 1u), sizeof(*c->steps));
	c->clocks = mem_calloc(MAX_OF(plan->ops, 1u) * threads, sizeof(*c->clocks));
	c->now = mem_calloc(threads * threads, sizeof(*c->now));
	c->overs = c->throughs = c->clocks;
	c->now_over = c->now;
	if (plan_has_packets(plan)) {
		c->overs = mem_calloc(MAX_OF(plan->ops, 1u) * threads, sizeof(*c->overs));
		c->throughs = mem_calloc(MAX_OF(plan->ops, 1u) * threads, sizeof(*c->throughs));
		c->now_over = mem_calloc(threads * threads, sizeof(*c->now_over));
	}
	c->least = mem_calloc(threads, sizeof(*c->least));
	c->indices = c->walk.indices;
	c->channels = mem_calloc(n * n * c->indices, sizeof(*c->channels));
	c->semaphores = mem_calloc(n * SPMT_PLAN_SEMAPHORES, sizeof(*c->semaphores));
	c->arrived = mem_calloc(n * c->indices, sizeof(*c->arrived));
	return c->steps && c->clocks && c->now && c->overs && c->throughs && c->now_over &&
			c->least && c->channels && c->semaphores && c->arrived
		? 0
		: check_no_memory(c);
}

static void lists_close(struct check_list *lists, size_t n)
{
	for (size_t i = 0; lists && i < n; i++)
		mem_free(lists[i].steps);
	mem_free(lists);
}

static void check_close(struct check *c)
{
	size_t n = c->walk.plan ? (size_t)c->walk.plan->attr.nranks : 0;

	lists_close(c->channels, n * n * c->indices);
	lists_close(c->semaphores, n * SPMT_PLAN_SEMAPHORES);
	lists_close(c->arrived, n * c->indices);
	mem_free(c->places.at);
	mem_free(c->touches);
	if (c->now_over != c->now)
		mem_free(c->now_over);
	if (c->overs != c->clocks)
		mem_free(c->overs);
	if (c->throughs != c->clocks)
		mem_free(c->throughs);
	mem_free(c->least);
	mem_free(c->now);
	mem_free(c->clocks);
	mem_free(c->steps);
	walk_close(&c->walk);
}

static bool list_note(struct check_list *l, size_t step)
{
	if (l->n == l->room) {
		size_t room = l->room ? 2 * l->room : 8;
		size_t *more = mem_calloc(room, sizeof(*more));

		if (!more)
			return false;
		if (l->n)
			memcpy(more, l->steps, l->n * sizeof(*more));
		mem_free(l->steps);
		l->steps = more;
		l->room = room;
	}
	l->steps[l->n++] = step;
	return true;
}

/* ---- before anything runs ----------------------------------------------------------------------- */

/* The thread of its own, or another one. */
static bool check_alone(int *whose, int thread)
{
	int before = *whose;

	*whose = thread;
	return before == -1 || before == thread;
}

static int check_shared(const struct check *c, int thread, size_t nth)
{
	const struct walk_thread *t = &c->walk.threads[thread];
	const struct spmt_plan_op *op = &t->list->ops[nth];
	struct walk_count *n = walk_counted(&c->walk, t->rank, op);
	bool takes = plan_waits(op) || op->kind == SPMT_PLAN_ACQUIRE;
	int other = n ? (takes ? n->taker : n->giver) : -1;
	char words[PLAN_WORDS];

	if (!n || check_alone(takes ? &n->taker : &n->giver, thread))
		return 0;
	return fail_call(-EINVAL, PLAN_CHECK,
		"plan %s: %s: rank %d block %d does that, too, so that nobody knows whose it is: take another index",
		c->walk.plan->name, plan_words(c->walk.plan, t->rank, t->block, nth, words),
		t->rank, c->walk.threads[other].block);
}

/* All that name a barrier name the same number of blocks, and are so many. */
static int check_barrier(const struct check *c, int rank, int index)
{
	const struct plan_rank *r = &c->walk.plan->ranks[rank];
	int want = 0, blocks = 0;

	for (int b = 0; b < r->nblocks; b++) {
		bool uses = false;

		for (size_t i = 0; i < r->blocks[b].n; i++) {
			const struct spmt_plan_op *op = &r->blocks[b].ops[i];

			if (op->kind != SPMT_PLAN_BARRIER || op->index != index)
				continue;
			if (want && op->blocks != want)
				return fail_call(-EINVAL, PLAN_CHECK,
					"plan %s: rank %d: barrier %d is of %d blocks in one place, of %d in another",
					c->walk.plan->name, rank, index, want, op->blocks);
			want = op->blocks;
			uses = true;
		}
		blocks += uses;
	}
	if (blocks == want)
		return 0;
	return fail_call(-EINVAL, PLAN_CHECK,
		"plan %s: rank %d: barrier %d is of %d blocks, and %d have it", c->walk.plan->name,
		rank, index, want, blocks);
}

/* One count that all who acquire it begin with. */
static int check_begins(const struct check *c, int rank, const struct spmt_plan_op *op, int *begins)
{
	if (op->kind != SPMT_PLAN_ACQUIRE)
		return 0;
	if (begins[op->index] >= 0 && begins[op->index] != op->initial)
		return fail_call(-EINVAL, PLAN_CHECK,
			"plan %s: rank %d: semaphore %d begins with %d in one place, with %d in another",
			c->walk.plan->name, rank, op->index, begins[op->index], op->initial);
	begins[op->index] = op->initial;
	return 0;
}

static int check_named(struct check *c)
{
	int rc = 0, begins[SPMT_PLAN_SEMAPHORES];     /* -1: not named yet */
	bool barriers[SPMT_PLAN_INDICES] = { false }; /* looked at */

	for (int t = 0; !rc && t < c->walk.nthreads; t++) {
		const struct walk_thread *at = &c->walk.threads[t];

		if (!at->block) {
			memset(begins, 0xff, sizeof(begins));
			memset(barriers, 0, sizeof(barriers));
		}
		for (size_t i = 0; !rc && i < at->list->n; i++) {
			const struct spmt_plan_op *op = &at->list->ops[i];

			rc = check_shared(c, t, i);
			if (!rc)
				rc = check_begins(c, at->rank, op, begins);
			if (rc || op->kind != SPMT_PLAN_BARRIER || barriers[op->index])
				continue;
			barriers[op->index] = true;
			rc = check_barrier(c, at->rank, op->index);
			if (!rc && !check_goes_on(c, c->walk.plan->ops))
				rc = c->stopped;
		}
	}
	return rc;
}

/* ---- order ------------------------------------------------------------------------------------ */

static void clock_join(const struct check *c, uint32_t *mine, const uint32_t *theirs)
{
	for (int i = 0; i < c->walk.nthreads; i++)
		mine[i] = MAX_OF(mine[i], theirs[i]);
}

static uint32_t *clock_of(const struct check *c, uint32_t *now, size_t thread)
{
	return now + thread * (size_t)c->walk.nthreads;
}

static void step_join(const struct check *c, int thread, size_t step)
{
	clock_join(c, clock_of(c, c->now, (size_t)thread), c->steps[step].clock);
	clock_join(c, clock_of(c, c->now_over, (size_t)thread), c->steps[step].over);
}

static void barrier_join_one(const struct check *c, const struct check_list *l, uint32_t *now)
{
	uint32_t *first = clock_of(c, now, l->steps[0]);

	for (size_t i = 1; i < l->n; i++)
		clock_join(c, first, clock_of(c, now, l->steps[i]));
	for (size_t i = 1; i < l->n; i++)
		memcpy(clock_of(c, now, l->steps[i]), first,
			(size_t)c->walk.nthreads * sizeof(*now));
}

/* What all have done up to the barrier is before what any does behind it. */
static void barrier_join(struct check *c, int rank, int index)
{
	struct check_list *l = &c->arrived[(size_t)rank * c->indices + (size_t)index];

	barrier_join_one(c, l, c->now);
	barrier_join_one(c, l, c->now_over);
	l->n = 0;
}

/* How many there are to look at, for one who writes packets. One operation may take those of all, many times. */
static uint64_t writer_words(struct check *c)
{
	uint64_t words = (uint64_t)(uint32_t)c->walk.nthreads;

	c->work += words;
	return words;
}

/* What the writer of packets had read before it is over; what it makes them of is, too, if it is `through` with it. */
static void writer_join(const struct check *c, uint32_t *over, size_t by, bool through)
{
	const struct check_step *s = &c->steps[by];
	uint32_t *whose = &over[s->thread], own = MAX_OF(*whose, s->over[s->thread] - !through);

	clock_join(c, over, through ? s->through : s->over);
	*whose = own;
}

/* Each store and packet of an operation waits for the packets of its own place alone, whoever wrote these: of all writers it knows what each of
   them had read before. */
static void packets_least(
	struct check *c, uint32_t *over, const struct walk_packets *p, const struct walk_range *r)
{
	bool any = false;

	for (size_t k = 0; k < p->n && c->joins < CHECK_JOINS && check_goes_on(c, 1); k++) {
		const struct check_step *s = &c->steps[p->ranges[k].by];

		if (!walk_feeds(&p->ranges[k], r))
			continue;
		c->joins += writer_words(c);
		for (int i = 0; i < c->walk.nthreads; i++) {
			uint32_t had = check_had_read(s, i);

			c->least[i] = any ? MIN_OF(c->least[i], had) : had;
		}
		any = true;
	}
	if (any)
		clock_join(c, over, c->least);
}

static void packets_before(struct check *c, int thread, const struct spmt_plan_op *op)
{
	const struct walk_packets *p = &c->walk.packets[c->walk.threads[thread].rank];
	uint32_t *over = clock_of(c, c->now_over, (size_t)thread);

	for (int i = 0; i < op->nsrc; i++) {
		struct walk_range r = walk_range_of(op, &op->src[i]);

		if (plan_src_place(op, i) == PLAN_PACKETS && walk_has_bytes(&r, c->given))
			packets_least(c, over, p, &r);
	}
}

/* When it has all that it takes; of some operations these are all packets. */
static void packets_behind(struct check *c, int thread, const struct spmt_plan_op *op)
{
	const struct walk_packets *p = &c->walk.packets[c->walk.threads[thread].rank];
	uint32_t *over = clock_of(c, c->now_over, (size_t)thread);

	for (int i = 0; i < op->nsrc; i++) {
		struct walk_range r = walk_range_of(op, &op->src[i]);

		if (plan_src_place(op, i) != PLAN_PACKETS)
			continue;
		for (size_t k = 0; k < p->n && check_goes_on(c, 1); k++) {
			if (!walk_orders(&p->ranges[k], &r, c->given))
				continue;
			(void)writer_words(c);
			writer_join(c, over, p->ranges[k].by, walk_takes_all(&p->ranges[k], &r));
		}
	}
}

static struct check_list *list_of(const struct check *c, int rank, const struct spmt_plan_op *op)
{
	struct walk_count *n = walk_counted(&c->walk, rank, op);

	if (plan_counts(op))
		return &c->semaphores[n - c->walk.semaphores];
	return &c->channels[n - c->walk.channels];
}

static void order_before(struct check *c, int thread, const struct spmt_plan_op *op)
{
	struct walk_thread *t = &c->walk.threads[thread];
	struct walk_count *n = walk_counted(&c->walk, t->rank, op);
	size_t nth;

	packets_before(c, thread, op);
	if (!n || !(op->kind == SPMT_PLAN_WAIT || op->kind == SPMT_PLAN_ACQUIRE))
		return;
	nth = n->taken;
	if (op->kind == SPMT_PLAN_ACQUIRE) {
		if (nth < (size_t)op->initial)
			return;
		nth -= (size_t)op->initial;
	}
	const struct check_list *l = list_of(c, t->rank, op);
	const struct check_step *s = &c->steps[l->steps[nth]];

	if (c->walk.threads[s->thread].list->ops[s->nth].kind != SPMT_PLAN_SIGNAL_RELAXED)
		step_join(c, thread, l->steps[nth]);
}

static bool touch_note(struct check *c, const struct check_touch *touch)
{
	if (c->ntouches == c->touches_room) {
		size_t room = c->touches_room ? 2 * c->touches_room : 64;
		struct check_touch *more = mem_calloc(room, sizeof(*more));

		if (!more)
			return false;
		if (c->ntouches)
			memcpy(more, c->touches, c->ntouches * sizeof(*more));
		mem_free(c->touches);
		c->touches = more;
		c->touches_room = room;
	}
	c->touches[c->ntouches++] = *touch;
	return true;
}

static bool op_touches(struct check *c, size_t step, const struct spmt_plan_op *op)
{
	bool noted = true;

	for (int i = 0; i < op->nsrc + op->ndst; i++) {
		bool writes = i >= op->nsrc;
		int k = writes ? i - op->nsrc : i;
		struct check_touch touch = { .step = step,
			.slices = op->slices,
			.writes = writes,
			.packets = (writes ? plan_dst_place(op, k) : plan_src_place(op, k)) ==
				PLAN_PACKETS };

		touch.chunk = plan_merged(c->walk.plan, writes ? op->dst[k] : op->src[k]);
		touch.range = walk_range_of(op, &touch.chunk);
		noted &= touch_note(c, &touch);
	}
	return noted;
}

/* The thread's next operation, which is ready. What the limit cuts short is no verdict: it is asked again in the end. */
static int check_step(struct check *c, int thread)
{
	struct walk_thread *t = &c->walk.threads[thread];
	const struct spmt_plan_op *op = walk_op(t);
	size_t n = (size_t)c->walk.nthreads, step = c->nsteps++;
	uint32_t *now = clock_of(c, c->now, (size_t)thread);
	uint32_t *over = clock_of(c, c->now_over, (size_t)thread);
	struct check_step *s = &c->steps[step];
	bool well = true;

	order_before(c, thread, op);
	now[thread]++;
	over[thread] = now[thread];
	*s = (struct check_step){ thread, t->next, c->clocks + step * n, c->overs + step * n,
		c->throughs + step * n };
	memcpy(s->clock, now, n * sizeof(*now));
	memcpy(s->over, over, n * sizeof(*over));
	packets_behind(c, thread, op);
	memcpy(s->through, over, n * sizeof(*over));
	if (plan_signals(op) || op->kind == SPMT_PLAN_RELEASE)
		well &= list_note(list_of(c, t->rank, op), step);
	well &= (c->given || op_touches(c, step, op)) && walk_done(&c->walk, t, step);
	if (c->ntouches > CHECK_TOUCHES)
		return fail_call(-E2BIG, PLAN_CHECK,
			"plan %s: more than %u chunks are touched, too many to look at",
			c->walk.plan->name, CHECK_TOUCHES);
	if (c->joins >= CHECK_JOINS)
		return fail_call(-E2BIG, PLAN_CHECK,
			"plan %s: its packets are taken in too many parts to look at",
			c->walk.plan->name);
	if (!check_goes_on(c, n))
		return c->stopped;
	return well ? 0 : check_no_memory(c);
}

/* A thread that comes to a barrier stands there until it is the last; then all of them are joined. */
static bool check_ready(struct check *c, int thread, bool *well)
{
	struct walk_thread *t = &c->walk.threads[thread];
	const struct spmt_plan_op *op = walk_op(t);
	struct check_list *l;
	bool came = op->kind == SPMT_PLAN_BARRIER && !t->round, ready = walk_ready(&c->walk, t);

	if (!came)
		return ready;
	l = &c->arrived[(size_t)t->rank * c->indices + (size_t)op->index];
	*well &= list_note(l, (size_t)thread);
	if (*well && ready)
		barrier_join(c, t->rank, op->index);
	return ready;
}

static int check_order(struct check *c)
{
	bool further = true, well = true;
	int rc = 0;

	while (further && !rc) {
		further = false;
		for (int t = 0; t < c->walk.nthreads && !rc; t++)
			while (!rc && well && walk_op(&c->walk.threads[t]) &&
				check_ready(c, t, &well)) {
				rc = check_step(c, t);
				further = true;
			}
		if (!well)
			rc = check_no_memory(c);
	}
	return rc;
}

static void lists_empty(struct check_list *lists, size_t n)
{
	for (size_t i = 0; i < n; i++)
		lists[i].n = 0;
}

int check_again(struct check *c, const struct walk_case *given)
{
	const struct spmt_plan *plan = c->walk.plan;
	size_t n = (size_t)plan->attr.nranks, threads = (size_t)MAX_OF(c->walk.nthreads, 1);

	walk_close(&c->walk);
	if (walk_open(&c->walk, plan, PLAN_CHECK)) {
		c->walk.plan = plan; /* check_close asks how many ranks there are */
		return -ENOMEM;
	}
	lists_empty(c->channels, n * n * c->indices);
	lists_empty(c->semaphores, n * SPMT_PLAN_SEMAPHORES);
	memset(c->now, 0, threads * threads * sizeof(*c->now));
	memset(c->now_over, 0, threads * threads * sizeof(*c->now_over));
	c->nsteps = 0;
	c->given = given;
	return check_order(c);
}

/* ---- what is left ----------------------------------------------------------------------------- */

static int check_left(const struct check *c)
{
	for (int t = 0; t < c->walk.nthreads; t++) {
		const struct walk_thread *at = &c->walk.threads[t];

		for (size_t i = 0; i < at->list->n; i++) {
			const struct spmt_plan_op *op = &at->list->ops[i];
			const struct walk_count *n = walk_counted(&c->walk, at->rank, op);
			char words[PLAN_WORDS];

			if (!n || n->given == n->taken)
				continue;
			plan_words(c->walk.plan, at->rank, at->block, i, words);
			return fail_call(-EINVAL, PLAN_CHECK,
				plan_signals(op) || plan_waits(op)
					? "plan %s: %s: there are %zu signals and %zu waits: one that nobody waits for would be taken by the next run"
					: "plan %s: %s: there are %zu releases and %zu acquires: the next run would begin with another count",
				c->walk.plan->name, words, n->given, n->taken);
		}
	}
	return 0;
}

int plan_check(const struct spmt_plan *plan, const struct plan_limit *limit)
{
	struct check c;
	int rc = plan_goes_on(plan, limit);

	if (rc)
		return rc;
	rc = check_open(&c, plan, limit);
	if (!rc)
		rc = check_named(&c);
	if (!rc)
		rc = check_order(&c);
	if (!rc)
		rc = check_stuck(&c);
	if (!rc)
		rc = check_left(&c);
	if (!rc)
		rc = check_races(&c);
	check_close(&c);
	return rc;
}

int spmt_plan_check(const spmt_plan *plan)
{
	return plan ? plan_check(plan, NULL) : fail_call(-EINVAL, PLAN_CHECK, "plan is NULL");
}
