/* SPDX-License-Identifier: MIT */
#include "order_model.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, CELL = 8, LOOKS = 40, ROUNDS = 2000 };

/* By thread: how far what it has done is behind. */
struct clocks {
	uint32_t of[ORDER_THREADS];
};

/* Who has stored it last, and when; 0: nobody. */
struct stamp {
	uint32_t thread, clock; /* thread: 1 + its number */
};

/* Of 8 bytes that are stored and loaded at once. */
struct cell {
	struct clocks given; /* what a thread that acquires it is behind */
	struct clocks shown; /* what had been done when it was stored */
	struct stamp stored;
	struct clocks loads;
};

struct line {
	struct stamp stored[LINE];
	struct clocks loads[LINE];
	struct cell *cells[LINE / CELL];
};

enum state { RUNS, MEETS, ENDS, LOOKS_AGAIN, DONE };

struct thread {
	struct order_who who;
	enum state state;
	pthread_cond_t turn;
	pthread_t id;
	struct clocks behind;  /* it may load what these have stored */
	struct clocks after;   /* they had done so much before what it does now */
	struct clocks fenced;  /* `behind`, at its last fence */
	struct clocks pending; /* what its next fence makes it be behind */
	int any;
	uint64_t version; /* of all words, when it looked at some */
	uint32_t looks;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t over;
	uint64_t memory;
	size_t bytes;
	struct line **lines;
	struct thread threads[ORDER_THREADS];
	uint64_t shared[ORDER_THREADS][ORDER_SHARED]; /* by the block's first thread */
	uint32_t n, running, rounds;
	uint64_t version, seed;
	int slow;
	void (*fn)(void *);
	void *arg;
	char wrong[400];
} model = { .lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER };

_Thread_local struct order_who order_self;
static _Thread_local struct thread *self;

/* ---- clocks ------------------------------------------------------------------------------------ */

static void join(struct clocks *a, const struct clocks *b)
{
	for (uint32_t i = 0; i < model.n; i++)
		if (a->of[i] < b->of[i])
			a->of[i] = b->of[i];
}

static uint32_t own(void)
{
	return (uint32_t)(self - model.threads);
}

/* What it does from here on is no part of what it has shown so far. */
static void tick(void)
{
	self->behind.of[own()]++;
	self->after.of[own()]++;
}

static void say(uint64_t a, const char *what, uint32_t other)
{
	const struct order_who *w = &self->who, *o = &model.threads[other].who;

	if (*model.wrong)
		return;
	snprintf(model.wrong, sizeof(model.wrong),
		"byte %llu: rank %u block %u thread %u %s by rank %u block %u thread %u",
		(unsigned long long)(a - model.memory), w->rank, w->block, w->tid, what, o->rank,
		o->block, o->tid);
}

static bool is_before(const struct stamp *s, const struct clocks *c)
{
	return !s->thread || c->of[s->thread - 1] >= s->clock;
}

/* ---- memory ------------------------------------------------------------------------------------ */

static struct line *line_of(uint64_t a)
{
	uint64_t at = a - model.memory;

	if (at >= model.bytes)
		return NULL;
	if (!model.lines[at / LINE])
		model.lines[at / LINE] = calloc(1, sizeof(struct line));
	if (!model.lines[at / LINE])
		abort();
	return model.lines[at / LINE];
}

static struct cell *cell_of(struct line *l, uint64_t a, bool make)
{
	struct cell **c = &l->cells[(a - model.memory) % LINE / CELL];

	if (!*c && make)
		*c = calloc(1, sizeof(**c));
	if (!*c && make)
		abort();
	return *c;
}

static void check_loads(uint64_t a, const struct clocks *loads)
{
	for (uint32_t i = 0; i < model.n; i++)
		if (loads->of[i] > self->after.of[i])
			say(a, "stores over what is still to be loaded", i);
}

/* One byte. */
static void note_load(uint64_t a, enum order_kind kind)
{
	struct line *l = line_of(a);
	struct cell *c = l ? cell_of(l, a, kind != ORDER_WEAK) : NULL;
	struct stamp *s = l ? &l->stored[(a - model.memory) % LINE] : NULL;

	if (!l)
		return;
	if (!is_before(s, &self->behind))
		say(a, "loads what may not be there yet, stored", s->thread - 1);
	if (kind == ORDER_WEAK && c && !is_before(&c->stored, &self->behind))
		say(a, "loads what may not be there yet, stored", c->stored.thread - 1);
	if (kind == ORDER_WEAK)
		l->loads[(a - model.memory) % LINE].of[own()] = self->after.of[own()];
	else
		c->loads.of[own()] = self->after.of[own()];
}

static void note_store(uint64_t a, enum order_kind kind)
{
	struct line *l = line_of(a);
	struct cell *c = l ? cell_of(l, a, kind != ORDER_WEAK) : NULL;
	struct stamp *s = l ? &l->stored[(a - model.memory) % LINE] : NULL, now;

	if (!l)
		return;
	now = (struct stamp){ own() + 1, self->behind.of[own()] };
	if (!is_before(s, &self->behind))
		say(a, "stores over what may come later, stored", s->thread - 1);
	check_loads(a, &l->loads[(a - model.memory) % LINE]);
	if (kind != ORDER_WEAK) {
		c->stored = now;
		return;
	}
	if (c && !is_before(&c->stored, &self->behind))
		say(a, "stores over what may come later, stored", c->stored.thread - 1);
	if (c)
		check_loads(a, &c->loads);
	*s = now;
}

static void shows(uint64_t a, enum order_kind kind, bool also)
{
	struct line *l = line_of(a);
	struct cell *c = l ? cell_of(l, a, true) : NULL;

	model.version++;
	if (!c)
		return;
	if (!also)
		memset(&c->given, 0, sizeof(c->given));
	if (!also)
		memset(&c->shown, 0, sizeof(c->shown));
	join(&c->given, kind == ORDER_SYNC ? &self->behind : &self->fenced);
	join(&c->shown, &self->after);
	tick();
}

static void sees(uint64_t a, enum order_kind kind)
{
	struct line *l = line_of(a);
	const struct cell *c = l ? cell_of(l, a, true) : NULL;

	if (!c)
		return;
	join(&self->after, &c->shown);
	join(kind == ORDER_SYNC ? &self->behind : &self->pending, &c->given);
}

/* ---- turns ------------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t n)
{
	model.seed ^= model.seed << 13;
	model.seed ^= model.seed >> 7;
	model.seed ^= model.seed << 17;
	return (uint32_t)(model.seed >> 20) % n;
}

static bool may_run(const struct thread *t)
{
	return t->state == RUNS || (t->state == LOOKS_AGAIN && t->version != model.version);
}

static bool wake_all(void)
{
	bool any = false;

	for (uint32_t i = 0; i < model.n; i++)
		if (model.threads[i].state == LOOKS_AGAIN) {
			model.threads[i].state = RUNS;
			any = true;
		}
	return any && ++model.rounds < ROUNDS;
}

/* Who is next, model.n: all are through. */
static uint32_t next_of(void)
{
	uint32_t first = draw(model.n), found = model.n;
	bool all = true;

	for (uint32_t i = 0; i < model.n; i++) {
		const struct thread *t = &model.threads[(first + i) % model.n];

		all &= t->state == DONE;
		if (!may_run(t))
			continue;
		found = (first + i) % model.n;
		if ((int)t->who.rank != model.slow || draw(16) == 0)
			return found;
	}
	if (found < model.n || all)
		return found;
	if (wake_all())
		return next_of();
	fprintf(stderr, "all threads wait for others\n%s\n", model.wrong);
	abort();
}

static void give_turn(void)
{
	model.running = next_of();
	if (model.running == model.n) {
		pthread_cond_signal(&model.over);
		return;
	}
	model.threads[model.running].state = RUNS;
	pthread_cond_signal(&model.threads[model.running].turn);
}

/* Others go on, until it is this one's turn. */
static void pass(enum state state)
{
	uint32_t me = own();

	self->state = state;
	give_turn();
	while (model.running != me)
		pthread_cond_wait(&self->turn, &model.lock);
}

/* Of a loop that waits: nothing has changed since it looked last. */
static void looks(void)
{
	if (self->version != model.version)
		self->looks = 0;
	self->version = model.version;
	if (++self->looks % LOOKS == 0)
		pass(LOOKS_AGAIN);
}

/* ---- what threads do --------------------------------------------------------------------------- */

void order_load(uint64_t a, void *x, size_t n, enum order_kind kind)
{
	if (kind != ORDER_WEAK)
		looks();
	if (draw(64) == 0)
		pass(RUNS);
	for (size_t i = 0; i < n; i++)
		note_load(a + i, kind);
	memcpy(x, (const void *)(uintptr_t)a, n);
	if (kind != ORDER_WEAK)
		sees(a, kind);
}

void order_store(uint64_t a, const void *x, size_t n, enum order_kind kind)
{
	if (draw(64) == 0)
		pass(RUNS);
	model.rounds = 0;
	for (size_t i = 0; i < n; i++)
		note_store(a + i, kind);
	memcpy((void *)(uintptr_t)a, x, n);
	if (kind != ORDER_WEAK)
		shows(a, kind, false);
}

static uint64_t changed(enum order_change change, uint64_t old, uint64_t x)
{
	switch (change) {
	case ORDER_ADD:
		return old + x;
	case ORDER_AND:
		return old & x;
	case ORDER_OR:
		return old | x;
	case ORDER_XOR:
		return old ^ x;
	default:
		return x;
	}
}

uint64_t order_atomic(uint64_t a, size_t n, enum order_change change, uint64_t x, uint64_t compare,
	enum order_kind kind)
{
	uint64_t old = 0, now;

	looks();
	for (size_t i = 0; i < n; i++)
		note_load(a + i, ORDER_RELAXED);
	memcpy(&old, (const void *)(uintptr_t)a, n);
	sees(a, ORDER_RELAXED);
	if (change == ORDER_CAS && old != compare)
		return old;
	model.rounds = 0;
	for (size_t i = 0; i < n; i++)
		note_store(a + i, ORDER_RELAXED);
	now = changed(change, old, x);
	memcpy((void *)(uintptr_t)a, &now, n);
	shows(a, kind, true);
	return old;
}

void order_fence(void)
{
	join(&self->behind, &self->pending);
	join(&self->after, &self->pending);
	self->fenced = self->behind;
	tick();
}

/* ---- meetings ---------------------------------------------------------------------------------- */

static bool together(const struct thread *t, enum state state)
{
	return t->who.rank == self->who.rank && t->state != DONE &&
		(state == ENDS || t->who.block == self->who.block);
}

/* The last one to come has all of them go on. A kernel that ends fences. */
static void meet(enum state state)
{
	struct clocks behind = { .of = { 0 } }, after = behind;
	int any = 0;

	self->state = state;
	for (uint32_t i = 0; i < model.n; i++) {
		struct thread *t = &model.threads[i];

		if (!together(t, state))
			continue;
		if (t->state != state) {
			pass(state);
			return;
		}
		any |= t->any;
		if (state == ENDS)
			join(&t->behind, &t->pending);
		join(&behind, &t->behind);
		join(&after, &t->after);
	}
	for (uint32_t i = 0; i < model.n; i++) {
		struct thread *t = &model.threads[i];

		if (!together(t, state))
			continue;
		t->state = RUNS;
		t->behind = behind;
		t->after = after;
		t->behind.of[i]++;
		t->after.of[i]++;
		t->any = any;
		if (state == ENDS)
			t->fenced = behind;
	}
	model.rounds = 0;
	pass(RUNS);
}

int order_meet(int x)
{
	self->any = x != 0;
	meet(MEETS);
	return self->any;
}

void order_kernel_ends(void)
{
	meet(ENDS);
}

/* ---- runs -------------------------------------------------------------------------------------- */

static void *begin(void *arg)
{
	self = arg;
	order_self = self->who;
	pthread_mutex_lock(&model.lock);
	while (model.running != own())
		pthread_cond_wait(&self->turn, &model.lock);
	model.fn(model.arg);
	self->state = DONE;
	model.rounds = 0;
	give_turn();
	pthread_mutex_unlock(&model.lock);
	return NULL;
}

static void make_thread(const struct order_grid *g, uint32_t rank, uint32_t block, uint32_t tid)
{
	struct thread *t = &model.threads[model.n];

	if (model.n == ORDER_THREADS)
		abort();
	*t = (struct thread){ .who = { rank, block, g->blocks[rank], tid, g->threads,
				      model.shared[model.n - tid] },
		.turn = PTHREAD_COND_INITIALIZER };
	t->behind.of[model.n] = t->after.of[model.n] = 1;
	model.n++;
}

void order_run(const struct order_grid *g, void (*fn)(void *arg), void *arg)
{
	model.n = model.rounds = 0;
	model.fn = fn;
	model.arg = arg;
	model.slow = g->slow;
	model.seed = g->seed * 0x9e3779b97f4a7c15u | 1;
	for (uint32_t r = 0; r < (uint32_t)g->ranks; r++)
		for (uint32_t b = 0; b < g->blocks[r]; b++)
			for (uint32_t i = 0; i < g->threads; i++)
				make_thread(g, r, b, i);
	pthread_mutex_lock(&model.lock);
	model.running = model.n;
	for (uint32_t i = 0; i < model.n; i++)
		if (pthread_create(&model.threads[i].id, NULL, begin, &model.threads[i]))
			abort();
	give_turn();
	while (model.running != model.n)
		pthread_cond_wait(&model.over, &model.lock);
	pthread_mutex_unlock(&model.lock);
	for (uint32_t i = 0; i < model.n; i++)
		pthread_join(model.threads[i].id, NULL);
}

void order_open(const void *memory, size_t bytes)
{
	model.memory = (uint64_t)(uintptr_t)memory;
	model.bytes = bytes;
	model.lines = calloc(bytes / LINE + 1, sizeof(*model.lines));
	model.version = 0;
	*model.wrong = 0;
	if (!model.lines)
		abort();
}

void order_close(void)
{
	for (size_t i = 0; i <= model.bytes / LINE; i++) {
		for (int k = 0; model.lines[i] && k < LINE / CELL; k++)
			free(model.lines[i]->cells[k]);
		free(model.lines[i]);
	}
	free(model.lines);
	model.lines = NULL;
}

const char *order_wrong(void)
{
	return *model.wrong ? model.wrong : NULL;
}
