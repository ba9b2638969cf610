/* SPDX-License-Identifier: MIT */
/*
 * The threads that work off streams. A stream has a worker of its own for as long as work is queued in it, so that none waits
 * for another's. One that has run dry keeps its worker, which sleeps on a futex, until another stream of the device wants
 * one: many streams that are used in turn cost no more threads than are busy at once.
 *
 * A thread that waits for work which nobody has begun does it itself, if it is the library's own: to hand it over and
 * back takes longer than a small collective. From then on the worker is not woken for such work, as the next is likely to be
 * waited for as well. Where it is not, the worker finds it at the end of a nap, and is woken again from then on.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/tsan.h"
#include "stream.h"

/* A kernel of the user's, unoptimised and under AddressSanitizer, takes 0.6 MiB. */
#define STACK ((size_t)2 << 20)
#define NAP_NS \
	2000000 /* after which a worker that nobody wakes looks whether its stream's work was left to it */

void host_sleep_on(_Atomic uint32_t *word, uint32_t seen, int64_t ns)
{
	struct timespec ts = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, ns < 0 ? NULL : &ts, NULL, 0);
}

void host_wake_all(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* On its thread's stack. `stream` is written under the lock of the stream that it leaves. */
struct host_worker {
	_Atomic(struct host_stream *) stream;
};

/* The stream that it serves, locked. */
static struct host_stream *worker_lock(struct host_worker *w)
{
	struct host_stream *s = atomic_load(&w->stream);

	pthread_mutex_lock(&s->lock);
	while (s->worker != w) {
		pthread_mutex_unlock(&s->lock);
		s = atomic_load(&w->stream);
		pthread_mutex_lock(&s->lock);
	}
	return s;
}

/* The first op, which whoever has asked runs. Under s->lock. */
static struct host_op *op_take(struct host_stream *s)
{
	struct host_op *op = s->head;

	if (op) {
		s->head = op->next;
		if (!s->head)
			s->tail = &s->head;
		atomic_store(&s->at, op->until ? op->until : HOST_STAYS);
	}
	return op;
}

/* Under s->lock, which is given back. A nap in which nothing was queued is the last. */
static void worker_sleep(struct host_stream *s)
{
	uint32_t seen = atomic_load(&s->wakes);
	bool relied = s->relied;

	s->idle = true;
	atomic_store(&s->relied, relied && s->slept != seen);
	s->slept = seen;
	atomic_store(&host_state()->devices[s->dev].spare, s);
	relied = s->relied;
	pthread_mutex_unlock(&s->lock);
	host_sleep_on(&s->wakes, seen, relied ? NAP_NS : -1);
}

/* The next op of *at, the stream that it serves now; NULL once that has ended and its queue is empty. */
static struct host_op *next_op(struct host_worker *w, struct host_stream **at, bool *joined)
{
	struct host_stream *s;
	struct host_op *op;

	for (s = worker_lock(w); s->helped || (!s->head && !s->closing); s = worker_lock(w))
		worker_sleep(s);
	s->idle = false;
	atomic_store(&s->relied, false);
	op = op_take(s);
	*joined = s->joined;
	pthread_mutex_unlock(&s->lock);
	*at = s;
	return op;
}

/* After a failure nothing more runs, as on a GPU whose context is lost, but what says that it does. */
static void run_op(struct host_stream *s, struct host_op *op)
{
	uint64_t ticket = atomic_load_explicit(&s->done, memory_order_relaxed) + 1;
	bool failed = atomic_load(&s->error);
	int rc = failed && !op->always ? 0 : op->run(op);

	mem_free(op);
	if (rc && !failed) {
		atomic_store(&s->failed, ticket);
		atomic_store(&s->error, rc);
	}
	atomic_store(&s->at, NULL);
	tsan_release(&s->done);
	atomic_store_explicit(&s->done, ticket, memory_order_release);
	atomic_fetch_add(&s->wake, 1); /* a fence between what is done and who waits */
	if (atomic_load(&s->waiters))
		host_wake_all(&s->wake);
}

/* What the function before may have done to its thread ends with it. */
static void worker_bind(struct host_stream *s)
{
	host_bind(s->dev);
	host_serve(s);
	(void)host_get_error();
}

static void *stream_worker(void *arg)
{
	struct host_stream *s = arg;
	struct host_worker w = { .stream = s };
	struct host_op *op;
	bool joined;
	char name[16];

	pthread_mutex_lock(&s->lock);
	s->worker = &w;
	snprintf(name, sizeof(name), "spmt-host-%d", s->dev);
	pthread_mutex_unlock(&s->lock);
	pthread_setname_np(pthread_self(), name);
	while ((op = next_op(&w, &s, &joined))) {
		worker_bind(s);
		run_op(s, op);
	}
	if (!joined)
		host_stream_put(s);
	return NULL;
}

/* ---- by those who wait ------------------------------------------------------------------------ */

/* The first op where it lies untouched and takes no longer than the caller has patience; else the worker is woken for what lies there.
   `back`: the one that was borrowed before has run. */
static struct host_op *op_borrow(struct host_stream *s, int64_t patience, bool back)
{
	struct host_op *op = NULL;
	bool left;

	pthread_mutex_lock(&s->lock);
	if (back)
		s->helped = false;
	left = s->idle && !s->helped && s->head;
	if (left && s->head->bound && s->head->bound <= patience) {
		op = op_take(s);
		s->helped = true;
		/* behind long work the worker may have had its last nap: it would not look by itself */
		if (!back && !atomic_load(&s->relied))
			atomic_store(&s->relied, true);
		left = false;
	} else if (back) {
		left |= s->closing;
	}
	if (left)
		host_stream_ring(s);
	pthread_mutex_unlock(&s->lock);
	if (left)
		host_wake_all(&s->wakes);
	return op;
}

void host_stream_rouse(struct host_stream *s)
{
	/* Taking the lock would be an order, too. */
	if (atomic_load(&s->relied))
		(void)op_borrow(s, 0, false);
}

/* The clock, which takes as long as a small kernel, is read if there is more than one op: the first is not counted. */
void host_stream_help(struct host_stream *s, uint64_t ticket, int64_t patience)
{
	UNCANCELLED;
	bool mine = !host_serving(), more = mine && atomic_load(&s->done) < ticket;
	int64_t end = 0;
	struct host_op *op;

	host_rely(s);
	op = op_borrow(s, more ? patience : 0, false);
	while (op) {
		struct device_saved saved = host_lend(s);

		run_op(s, op);
		host_take_back(&saved);
		more = atomic_load(&s->done) < ticket;
		if (more && patience < INT64_MAX) {
			int64_t now = process_now();

			end = end ? end : now + patience;
			patience = MAX_OF(end - now, 0);
		}
		op = op_borrow(s, more ? patience : 0, true);
	}
}

/* ---- threads ---------------------------------------------------------------------------------- */

/* Under the locks of both. Work that has been served may still be waking those who wait for it, which needs no stream. */
static bool worker_move(struct host_stream *from, struct host_stream *to)
{
	bool spare = from->dev == to->dev && atomic_load(&from->live) && from->worker &&
		!from->head && !from->helped &&
		atomic_load(&from->done) == atomic_load(&from->queued);

	if (!spare)
		return false;
	to->thread = from->thread;
	to->worker = from->worker;
	atomic_store(&to->threaded, true);
	atomic_store(&to->worker->stream, to);
	from->worker = NULL;
	from->idle = false;
	atomic_store(&from->relied, false);
	atomic_store(&from->threaded, false);
	host_stream_ring(from);
	host_wake_all(&from->wakes);
	return true;
}

/* Under to->lock; a stream that somebody else uses has no worker to spare. */
static bool worker_from(struct host_stream *from, struct host_stream *to)
{
	bool moved;

	if (from == to || !atomic_load(&from->threaded) || pthread_mutex_trylock(&from->lock))
		return false;
	moved = worker_move(from, to);
	pthread_mutex_unlock(&from->lock);
	return moved;
}

/* Most often the last to run dry has one. */
static bool worker_take(struct host_stream *to)
{
	struct host_state *st = host_state();
	struct host_stream *from = atomic_load(&st->devices[to->dev].spare);
	bool taken = from && worker_from(from, to);

	for (from = NULL; !taken && (from = host_pool_next(&st->streams, from, sizeof(*from)));)
		taken = worker_from(from, to);
	return taken;
}

int host_worker_start(struct host_stream *s)
{
	int err;

	if (worker_take(s))
		return 0;
	if (fault_here(FAULT_THREAD))
		return -fault_errno(FAULT_THREAD);
	err = process_thread(&s->thread, STACK, stream_worker, s);
	atomic_store(&s->threaded, !err);
	return -err;
}
