/* SPDX-License-Identifier: MIT */
#include "trace.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define TRACE_CHUNK (1u << 20) /* written at once */

struct trace_ring {
	struct trace_ring *next;
	pthread_mutex_t lock; /* guards the rest */
	int tid;	      /* whose it is; written under the state's lock, too */
	uint64_t first, end;  /* events so far: those from `first` on are not written */
	uint64_t lost;
	int nnamed; /* ranks that lost events were the first of */
	struct trace_event named[TRACE_NAMED];
	struct trace_event events[TRACE_EVENTS];
};

/* In pages that a forked child sees as zeros: it traces nothing until it has a world of its own. */
struct trace_state {
	pthread_mutex_t lock; /* guards the rest; before the rings' */
	_Atomic bool on;
	bool begun;	     /* the file holds something of this process */
	char path[PATH_MAX]; /* absolute: the program may go to another directory */
	int64_t timeout_ms;
	struct trace_ring *rings;
	int pid; /* constant while it is on */
};

static void *_Atomic trace_slot;

static _Thread_local struct {
	struct trace_ring *ring;
	int pid; /* whose it is: not a forked child's */
	const void *owner;
	struct trace_event event;
} trace_self;

static struct trace_state *trace_state(void)
{
	return atomic_load_explicit(&trace_slot, memory_order_acquire);
}

bool trace_is_on(void)
{
	struct trace_state *st = trace_state();

	return st && atomic_load_explicit(&st->on, memory_order_acquire);
}

/* Of waits that begin with those for st->lock: several ranks of the process wait together. */
static int64_t trace_deadline(int64_t begin, int64_t timeout_ms)
{
	return timeout_ms < 0 ? INT64_MAX : begin + timeout_ms * 1000000;
}

/* Under st->lock. */
static int trace_begin_file(
	struct trace_state *st, const char *path, bool first, int64_t end, const char **why)
{
	int rc = trace_file_begin(*st->path ? st->path : path, first && !st->begun, end, why);

	if (!rc && !*st->path && !realpath(path, st->path)) {
		rc = -errno;
		*why = strerror(errno);
		*st->path = 0;
	}
	return rc;
}

int trace_open(const char *path, int rank, int64_t timeout_ms)
{
	int64_t end = trace_deadline(process_now(), timeout_ms);
	struct trace_state *st;
	const char *why = NULL;
	int rc;

	if (!path)
		return 0;
	st = process_state(&trace_slot, sizeof(*st));
	if (!st)
		return fail_call(-ENOMEM, "spmt_init", "rank %d: no memory for SPMT_TRACE", rank);
	pthread_mutex_lock(&st->lock);
	rc = trace_begin_file(st, path, rank == 0, end, &why);
	if (!rc) {
		st->begun |= rank == 0;
		st->timeout_ms = timeout_ms;
		if (!trace_is_on())
			st->pid = (int)getpid();
		atomic_store_explicit(&st->on, true, memory_order_release);
	}
	pthread_mutex_unlock(&st->lock);
	return rc ? fail_call(rc, "spmt_init", "rank %d: SPMT_TRACE=%s: %s", rank, path, why) : 0;
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* A ring whose thread has ended serves the next one. Under st->lock. */
static struct trace_ring *ring_of_nobody(struct trace_state *st)
{
	struct trace_ring *r = st->rings;

	while (r && (!syscall(SYS_tgkill, st->pid, r->tid, 0) || errno != ESRCH))
		r = r->next;
	return r;
}

static struct trace_ring *ring_make(struct trace_state *st)
{
	int tid = (int)syscall(SYS_gettid);
	struct trace_ring *r;

	pthread_mutex_lock(&st->lock);
	r = ring_of_nobody(st);
	if (!r) {
		r = process_pages(sizeof(*r));
		if (r) {
			r->next = st->rings;
			st->rings = r;
		}
	}
	if (r) {
		pthread_mutex_lock(&r->lock);
		r->tid = tid;
		pthread_mutex_unlock(&r->lock);
	}
	pthread_mutex_unlock(&st->lock);
	return r;
}

/* This thread's; NULL: no memory. */
static struct trace_ring *ring_here(void)
{
	struct trace_state *st = trace_state();

	if (!trace_is_on())
		return NULL;
	if (LIKELY(trace_self.ring && trace_self.pid == st->pid))
		return trace_self.ring;
	trace_self.owner = NULL;
	trace_self.ring = ring_make(st);
	trace_self.pid = st->pid;
	return trace_self.ring;
}

/* Under r->lock. */
static void ring_lose(struct trace_ring *r)
{
	const struct trace_event *e = &r->events[r->first++ % TRACE_EVENTS];

	r->lost++;
	if (e->init && r->nnamed < TRACE_NAMED)
		r->named[r->nnamed++] = *e;
}

void trace_span(const struct trace_event *event)
{
	struct trace_ring *r = ring_here();

	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	if (r->end - r->first == TRACE_EVENTS)
		ring_lose(r);
	r->events[r->end % TRACE_EVENTS] = *event;
	r->events[r->end % TRACE_EVENTS].tid = r->tid;
	r->end++;
	pthread_mutex_unlock(&r->lock);
}

/* ---- calls ----------------------------------------------------------------------------------- */

bool trace_begin(const void *owner, const char *name, int rank, int of, int nranks)
{
	if (!ring_here() || trace_self.owner)
		return false;
	trace_self.owner = owner;
	trace_self.event = (struct trace_event){ .name = name,
		.begin = process_now(),
		.rank = rank,
		.of = of,
		.nranks = nranks,
		.peer = -1 };
	return true;
}

void trace_end(const void *owner)
{
	if (trace_self.owner != owner)
		return;
	trace_self.event.end = process_now();
	trace_self.owner = NULL;
	trace_span(&trace_self.event);
}

void trace_peer(int peer, uint64_t bytes)
{
	trace_self.event.peer = peer;
	trace_self.event.bytes += bytes;
}

void trace_route(const char *map, const char *mover)
{
	trace_self.event.map = map;
	trace_self.event.mover = mover;
}

void trace_algorithm(const char *algorithm)
{
	trace_self.event.algorithm = algorithm;
}

void trace_forget(void)
{
	trace_self.event.peer = -1;
	trace_self.event.bytes = 0;
	trace_route(NULL, NULL);
}

void trace_stream(const void *stream)
{
	trace_self.event.stream = stream;
}

/* ---- the file -------------------------------------------------------------------------------- */

static void add_word(struct text *t, const char *name, const char *word)
{
	if (word)
		text_add(t, ",\"%s\":\"%s\"", name, word);
}

/* Microseconds, as the format has them. */
static void add_time(struct text *t, const char *name, int64_t ns)
{
	text_add(t, ",\"%s\":%lld.%03d", name, (long long)(ns / 1000), (int)(ns % 1000));
}

static void add_event(struct text *t, const struct trace_event *e)
{
	text_add(t, "{\"name\":\"%s\",\"cat\":\"spmt\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d", e->name,
		e->rank, e->tid);
	add_time(t, "ts", e->begin);
	add_time(t, "dur", e->end - e->begin);
	text_add(t, ",\"args\":{\"rank\":%d,\"nranks\":%d", e->of, e->nranks);
	if (e->peer >= 0)
		text_add(t, ",\"peer\":%d", e->peer);
	if (e->peer >= 0 || e->bytes || e->algorithm)
		text_add(t, ",\"bytes\":%llu", (unsigned long long)e->bytes);
	add_word(t, "map", e->map);
	add_word(t, "mover", e->mover);
	add_word(t, "algorithm", e->algorithm);
	if (e->stream == TRACE_OWN)
		add_word(t, "stream", "own");
	else if (e->stream)
		text_add(t, ",\"stream\":\"%p\"", e->stream);
	text_add(t, "}}");
}

/* The rows of one rank have its name. */
static void add_rank(struct text *t, const struct trace_event *e)
{
	text_add(t,
		"{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d of %d\"}}",
		e->rank, e->of, e->nranks);
}

struct chunk {
	const char *path;
	int64_t end; /* of waits for other processes */
	char *bytes;
	size_t used;
	int rc;
	const char *why;
};

static void chunk_write(struct chunk *c)
{
	if (c->used && !c->rc)
		c->rc = trace_file_append(c->path, c->bytes, c->used, c->end, &c->why);
	c->used = 0;
}

static void chunk_add(struct chunk *c, const struct text *t)
{
	if (c->used + t->used + 2 > TRACE_CHUNK)
		chunk_write(c);
	if (c->used) {
		memcpy(c->bytes + c->used, ",\n", 2);
		c->used += 2;
	}
	memcpy(c->bytes + c->used, t->bytes, t->used);
	c->used += t->used;
}

static void trace_rank_write(struct chunk *c, const struct trace_event *e)
{
	struct text t = { .used = 0 };

	add_rank(&t, e);
	chunk_add(c, &t);
}

/* Where the first of those that are kept begins. */
static void trace_lost_write(struct chunk *c, const struct trace_ring *r)
{
	const struct trace_event *first = &r->events[r->first % TRACE_EVENTS];
	struct text t = { .used = 0 };

	text_add(&t,
		"{\"name\":\"%llu earlier calls are not kept\",\"cat\":\"spmt\",\"ph\":\"i\",\"s\":\"t\",\"pid\":%d,\"tid\":%d",
		(unsigned long long)r->lost, first->rank, r->tid);
	add_time(&t, "ts", first->begin);
	text_add(&t, "}");
	chunk_add(c, &t);
}

static void trace_ring_write(struct chunk *c, struct trace_ring *r)
{
	pthread_mutex_lock(&r->lock);
	for (; r->nnamed && !c->rc; r->nnamed--)
		trace_rank_write(c, &r->named[r->nnamed - 1]);
	if (r->lost && !c->rc) {
		trace_lost_write(c, r);
		r->lost = 0;
	}
	for (; r->first < r->end && !c->rc; r->first++) {
		const struct trace_event *e = &r->events[r->first % TRACE_EVENTS];
		struct text t = { .used = 0 };

		if (e->init)
			trace_rank_write(c, e);
		add_event(&t, e);
		chunk_add(c, &t);
	}
	pthread_mutex_unlock(&r->lock);
}

void trace_flush(void)
{
	struct trace_state *st = trace_state();
	struct chunk c = { .rc = 0 };
	int64_t begin = process_now();

	if (!trace_is_on())
		return;
	pthread_mutex_lock(&st->lock);
	c.path = st->path;
	c.end = trace_deadline(begin, st->timeout_ms);
	c.bytes = mem_calloc(1, TRACE_CHUNK);
	for (struct trace_ring *r = st->rings; r && c.bytes; r = r->next)
		trace_ring_write(&c, r);
	if (c.bytes)
		chunk_write(&c);
	st->begun = true;
	pthread_mutex_unlock(&st->lock);
	if (!c.bytes)
		log_line(LOG_ERROR, "SPMT_TRACE=%s: no memory to write it", c.path);
	else if (c.rc)
		log_line(LOG_ERROR, "SPMT_TRACE=%s: %s", c.path, c.why);
	mem_free(c.bytes);
}
