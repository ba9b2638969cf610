/* SPDX-License-Identifier: MIT */
/* A stream is a queue and a thread that works it off. Handles are looked up before they are
   believed; that of a destroyed stream is the next one's, as drivers do it. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LARGE_SET = 1 << 20 };

struct queue {
	bool ended;
	int busy; /* queued or running */
	struct fake_op *first, **last;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
};

struct fake_stream {
	struct fake_stream *next;
	int dev;
	uint64_t id;
	struct queue *queue; /* outlives the handle until it is empty */
};

struct fake_event {
	struct fake_event *next;
	int dev, refs; /* refs: the handle, and queued work */
	uint64_t recorded, done;
	bool captured; /* recorded during a capture */
};

/* Under fake_lock. */
static struct {
	struct fake_stream *streams, *defaults[FAKE_DEVICES][2], *spare;
	uint64_t made;
	struct fake_event *events;
	int drains[FAKE_DEVICES];
} all;

static void nap(void)
{
	struct timespec ts = { .tv_nsec = 50000 };

	nanosleep(&ts, NULL);
}

static void *work(void *arg)
{
	struct queue *q = arg;
	struct fake_op *op;

	pthread_mutex_lock(&q->lock);
	for (;;) {
		while (!q->first && !q->ended)
			pthread_cond_wait(&q->wake, &q->lock);
		op = q->first;
		if (!op)
			break;
		q->first = op->next;
		if (!q->first)
			q->last = &q->first;
		pthread_mutex_unlock(&q->lock);
		op->run(op);
		free(op);
		pthread_mutex_lock(&q->lock);
		q->busy--;
	}
	pthread_mutex_unlock(&q->lock);
	free(q);
	return NULL;
}

static struct queue *make_queue(void)
{
	struct queue *q = calloc(1, sizeof(*q));

	if (!q)
		abort();
	q->last = &q->first;
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->wake, NULL);
	if (pthread_create(&q->thread, NULL, work, q)) {
		free(q);
		return NULL;
	}
	pthread_detach(q->thread);
	return q;
}

/* Under fake_lock. */
static struct fake_stream *make_stream(int dev)
{
	struct queue *q = make_queue();
	struct fake_stream *s = all.spare;

	if (!q)
		return NULL;
	if (s)
		all.spare = s->next;
	else
		s = calloc(1, sizeof(*s));
	if (!s)
		abort();
	*s = (struct fake_stream){ .dev = dev, .id = ++all.made, .queue = q };
	return s;
}

bool fake_stream_new(int dev, struct fake_stream **out)
{
	struct fake_stream *s;

	pthread_mutex_lock(&fake_lock);
	s = make_stream(dev);
	if (s) {
		s->next = all.streams;
		all.streams = s;
		fake_count.streams++;
	}
	pthread_mutex_unlock(&fake_lock);
	if (s)
		*out = s;
	return s != NULL;
}

struct fake_stream *fake_stream_default(int dev, int which)
{
	struct fake_stream **at = &all.defaults[dev][which - 1];

	pthread_mutex_lock(&fake_lock);
	if (!*at)
		*at = make_stream(dev);
	pthread_mutex_unlock(&fake_lock);
	return *at;
}

bool fake_stream_valid(const struct fake_stream *s)
{
	const struct fake_stream *at;

	pthread_mutex_lock(&fake_lock);
	for (at = all.streams; at && at != s; at = at->next)
		;
	pthread_mutex_unlock(&fake_lock);
	return at != NULL;
}

void fake_stream_end(struct fake_stream *s)
{
	struct queue *q = s->queue;
	struct fake_stream **at;

	pthread_mutex_lock(&fake_lock);
	for (at = &all.streams; *at != s; at = &(*at)->next)
		;
	*at = s->next;
	s->next = all.spare;
	all.spare = s;
	fake_count.streams--;
	pthread_mutex_unlock(&fake_lock);
	pthread_mutex_lock(&q->lock);
	q->ended = true;
	pthread_cond_signal(&q->wake);
	pthread_mutex_unlock(&q->lock);
}

int fake_stream_dev(const struct fake_stream *s)
{
	return s->dev;
}

uint64_t fake_stream_id(const struct fake_stream *s)
{
	return s->id;
}

bool fake_stream_idle(struct fake_stream *s)
{
	struct queue *q = s->queue;
	bool idle;

	pthread_mutex_lock(&q->lock);
	idle = !q->busy;
	pthread_mutex_unlock(&q->lock);
	return idle;
}

static bool device_idle(int dev)
{
	struct fake_stream *s, *own[2] = { all.defaults[dev][0], all.defaults[dev][1] };
	bool idle = true;

	for (s = all.streams; s; s = s->next)
		idle = idle && (s->dev != dev || fake_stream_idle(s));
	return idle && (!own[0] || fake_stream_idle(own[0])) &&
		(!own[1] || fake_stream_idle(own[1]));
}

static void wait_idle(int dev, int naps)
{
	bool idle = false;
	int i;

	for (i = 0; i < naps && !idle; i++) {
		pthread_mutex_lock(&fake_lock);
		idle = device_idle(dev);
		pthread_mutex_unlock(&fake_lock);
		if (!idle)
			nap();
	}
}

void fake_settle(int dev)
{
	wait_idle(dev, 400);
}

void fake_drain(int dev)
{
	__atomic_fetch_add(&all.drains[dev], 1, __ATOMIC_SEQ_CST);
	wait_idle(dev, 200000);
	__atomic_fetch_sub(&all.drains[dev], 1, __ATOMIC_SEQ_CST);
}

bool fake_stream_push(struct fake_stream *s, const struct fake_op *op)
{
	struct fake_op *copy = malloc(sizeof(*copy));
	struct queue *q;

	if (!copy)
		return false;
	*copy = *op;
	copy->next = NULL;
	while (__atomic_load_n(&all.drains[s->dev], __ATOMIC_SEQ_CST))
		nap();
	q = s->queue;
	pthread_mutex_lock(&q->lock);
	*q->last = copy;
	q->last = &copy->next;
	q->busy++;
	pthread_cond_signal(&q->wake);
	pthread_mutex_unlock(&q->lock);
	return true;
}

/* ---- events */

struct fake_event *fake_event_new(int dev)
{
	struct fake_event *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	e->dev = dev;
	e->refs = 1;
	pthread_mutex_lock(&fake_lock);
	e->next = all.events;
	all.events = e;
	fake_count.events++;
	pthread_mutex_unlock(&fake_lock);
	return e;
}

bool fake_event_valid(const struct fake_event *e)
{
	const struct fake_event *at;

	pthread_mutex_lock(&fake_lock);
	for (at = all.events; at && at != e; at = at->next)
		;
	pthread_mutex_unlock(&fake_lock);
	return at != NULL;
}

static void drop_event(struct fake_event *e)
{
	bool last;

	pthread_mutex_lock(&fake_lock);
	last = !--e->refs;
	pthread_mutex_unlock(&fake_lock);
	if (last)
		free(e);
}

void fake_event_end(struct fake_event *e)
{
	struct fake_event **at;

	pthread_mutex_lock(&fake_lock);
	for (at = &all.events; *at != e; at = &(*at)->next)
		;
	*at = e->next;
	fake_count.events--;
	pthread_mutex_unlock(&fake_lock);
	drop_event(e);
}

bool fake_event_isolated(const struct fake_event *e)
{
	return fake_capturing() && !e->captured;
}

int fake_event_dev(const struct fake_event *e)
{
	return e->dev;
}

bool fake_event_done(struct fake_event *e)
{
	bool done;

	pthread_mutex_lock(&fake_lock);
	done = e->done >= e->recorded;
	pthread_mutex_unlock(&fake_lock);
	return done;
}

static void run_record(struct fake_op *op)
{
	pthread_mutex_lock(&fake_lock);
	if (op->event->done < op->value)
		op->event->done = op->value;
	pthread_mutex_unlock(&fake_lock);
	drop_event(op->event);
}

static void run_wait_event(struct fake_op *op)
{
	bool done = false;

	while (!done) {
		pthread_mutex_lock(&fake_lock);
		done = op->event->done >= op->value;
		pthread_mutex_unlock(&fake_lock);
		if (!done)
			nap();
	}
	drop_event(op->event);
}

static bool push_event(struct fake_stream *s, struct fake_event *e, bool record)
{
	struct fake_op op = { .run = record ? run_record : run_wait_event, .event = e };

	pthread_mutex_lock(&fake_lock);
	e->refs++;
	e->recorded += record;
	if (record)
		e->captured = fake_capturing();
	op.value = e->recorded;
	pthread_mutex_unlock(&fake_lock);
	return fake_stream_push(s, &op);
}

bool fake_record(struct fake_event *e, struct fake_stream *s)
{
	return push_event(s, e, true);
}

bool fake_wait_event(struct fake_stream *s, struct fake_event *e)
{
	return push_event(s, e, false);
}

/* ---- work */

/* A copy engine moves aligned words whole, and a word may be somebody's flag; memmove moves two bytes one after the other. */
static void copy_words(void *dst, const void *src, size_t n)
{
	bool aligned = !(((uintptr_t)dst | (uintptr_t)src) % n);

	if (n == 2 && aligned)
		__atomic_store_n((uint16_t *)dst,
			__atomic_load_n((const uint16_t *)src, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
	else if (n == 4 && aligned)
		__atomic_store_n((uint32_t *)dst,
			__atomic_load_n((const uint32_t *)src, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
	else if (n == 8 && aligned)
		__atomic_store_n((uint64_t *)dst,
			__atomic_load_n((const uint64_t *)src, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
	else
		memmove(dst, src, n);
}

static void run_copy(struct fake_op *op)
{
	fake_work_at(true, op->dst, op->n);
	fake_work_at(true, op->src, op->n);
	if (op->n)
		copy_words(op->dst, op->src, op->n);
	fake_work_at(false, op->src, op->n);
	fake_work_at(false, op->dst, op->n);
}

/* Zeroes of whole pages cost no memory until somebody writes there: worlds zero tens of megabytes that most tests never touch. */
static void clear_pages(char *at, size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), head = -(uintptr_t)at & (page - 1);
	size_t whole = n > head ? (n - head) & ~(page - 1) : 0;

	if (whole < LARGE_SET || madvise(at + head, whole, MADV_REMOVE)) {
		memset(at, 0, n);
		return;
	}
	memset(at, 0, head);
	memset(at + head + whole, 0, n - head - whole);
}

static void run_set(struct fake_op *op)
{
	fake_work_at(true, op->dst, op->n);
	if (op->byte)
		memset(op->dst, op->byte, op->n);
	else
		clear_pages(op->dst, op->n);
	fake_work_at(false, op->dst, op->n);
}

bool fake_copy(struct fake_stream *s, void *dst, const void *src, size_t n)
{
	struct fake_op op = { .run = run_copy, .dst = dst, .src = src, .n = n };

	return fake_reaches(s->dev, dst, n) && fake_reaches(s->dev, src, n) &&
		fake_stream_push(s, &op);
}

bool fake_set(struct fake_stream *s, void *dst, int byte, size_t n)
{
	struct fake_op op = { .run = run_set, .dst = dst, .byte = byte, .n = n };

	return fake_reaches(s->dev, dst, n) && fake_stream_push(s, &op);
}

static void run_word_write(struct fake_op *op)
{
	__atomic_store_n((uint64_t *)op->dst, op->value, __ATOMIC_RELEASE);
}

static void run_word_wait(struct fake_op *op)
{
	while ((int64_t)(__atomic_load_n((uint64_t *)op->dst, __ATOMIC_ACQUIRE) - op->value) < 0)
		nap();
}

bool fake_word(struct fake_stream *s, void *word, uint64_t value, bool wait)
{
	struct fake_op op = {
		.run = wait ? run_word_wait : run_word_write, .dst = word, .value = value
	};

	return fake_reaches(s->dev, word, sizeof(uint64_t)) && fake_stream_push(s, &op);
}

/* ---- the end of all */

static struct fake_stream *stream_on(int dev)
{
	struct fake_stream *s;

	pthread_mutex_lock(&fake_lock);
	for (s = all.streams; s && s->dev != dev; s = s->next)
		;
	pthread_mutex_unlock(&fake_lock);
	return s;
}

static struct fake_event *event_on(int dev)
{
	struct fake_event *e;

	pthread_mutex_lock(&fake_lock);
	for (e = all.events; e && e->dev != dev; e = e->next)
		;
	pthread_mutex_unlock(&fake_lock);
	return e;
}

void fake_streams_end(int dev)
{
	struct fake_stream *s;
	struct fake_event *e;

	while ((s = stream_on(dev)))
		fake_stream_end(s);
	while ((e = event_on(dev)))
		fake_event_end(e);
}
