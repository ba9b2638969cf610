/* SPDX-License-Identifier: MIT */
/*
 * The threads that work off streams. A worker is made when work is pushed to a stream that has none, and stays with it; it
 * sleeps on a futex while there is nothing to do.
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

#define STACK ((size_t)256 << 10)

void host_sleep_on(_Atomic uint32_t *word, uint32_t seen, int64_t ns)
{
	struct timespec ts = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, ns < 0 ? NULL : &ts, NULL, 0);
}

void host_wake_all(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* The next op, or NULL once the stream has ended and the queue is empty. */
static struct host_op *next_op(struct host_stream *s, bool *joined)
{
	struct host_op *op;

	pthread_mutex_lock(&s->lock);
	while (!s->head && !s->closing) {
		uint32_t seen = atomic_load(&s->wakes);

		s->idle = true;
		pthread_mutex_unlock(&s->lock);
		host_sleep_on(&s->wakes, seen, -1);
		pthread_mutex_lock(&s->lock);
		s->idle = false;
	}
	op = s->head;
	if (op) {
		s->head = op->next;
		if (!s->head)
			s->tail = &s->head;
	}
	*joined = s->joined;
	pthread_mutex_unlock(&s->lock);
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
	tsan_release(&s->done);
	atomic_store(&s->done, ticket);
	atomic_fetch_add(&s->wake, 1);
	if (atomic_load(&s->waiters))
		host_wake_all(&s->wake);
}

static void *stream_worker(void *arg)
{
	struct host_stream *s = arg;
	struct host_op *op;
	bool joined;
	char name[16];

	snprintf(name, sizeof(name), "spmt-host-%d", s->dev);
	pthread_setname_np(pthread_self(), name);
	host_bind(s->dev);
	host_serve(s);
	while ((op = next_op(s, &joined)))
		run_op(s, op);
	if (!joined)
		host_stream_put(s);
	return NULL;
}

int host_worker_start(struct host_stream *s)
{
	pthread_attr_t attr;
	int err;

	if (fault_here(FAULT_THREAD))
		return -fault_errno(FAULT_THREAD);
	err = pthread_attr_init(&attr);
	if (err)
		return -err;
	err = pthread_attr_setstacksize(&attr, STACK);
	if (!err)
		err = process_thread(&s->thread, &attr, stream_worker, s);
	pthread_attr_destroy(&attr);
	s->threaded = !err;
	return -err;
}
