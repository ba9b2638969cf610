/* SPDX-License-Identifier: MIT */
/*
 * Work that is queued in streams. Addresses are checked twice: when the work is queued, so that
 * the call can fail, and when it runs, because an access to memory freed in between would kill
 * the process; then the stream fails instead.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "include/spmt_device/types.h"
#include "queue.h"
#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/status.h"
#include "src/base/tsan.h"
#include "stream.h"

#define WORD_YIELDS 16 /* looks at a word before its stream sleeps */
#define WORD_NAP 20000 /* ns; growing to .. */
#define WORD_NAP_MOST 1000000

struct host_event {
	struct host_event *next; /* in the pool */
	int dev;
	_Atomic bool live;
	pthread_mutex_t lock;	    /* guards the rest */
	struct host_stream *stream; /* NULL: never recorded */
	uint64_t ticket;
};

/* Takes over op, also on failure. */
static int push_op(struct host_op *op, const char *name)
{
	int rc = host_stream_push(op, name, NULL);

	if (rc)
		mem_free(op);
	return rc;
}

/* A new op for the stream; every call below begins with it. NULL: *rc has the reason, with a
   sentence. */
static struct host_op *begin(int dev, device_stream handle, const char *name,
	int (*run)(const struct host_op *op), size_t extra, int *rc)
{
	struct host_stream *s = host_stream_find(dev, handle, name, rc);
	struct host_op *op;

	if (!s)
		return NULL;
	if (fault_here(FAULT_DEVICE)) {
		*rc = fail_errno(fault_errno(FAULT_DEVICE), "host: %s on device %d", name, dev);
		return NULL;
	}
	op = host_op_new(s, run, extra);
	if (!op)
		*rc = fail(-ENOMEM, "host: %s on device %d: no memory to queue it", name, dev);
	return op;
}

/* ---- copy and fill */

typedef uint16_t __attribute__((may_alias)) word16;
typedef uint32_t __attribute__((may_alias)) word32;
typedef uint64_t __attribute__((may_alias)) word64;

static uint64_t load_word(const void *src, size_t n)
{
	uint64_t value = 0;

	if ((uintptr_t)src % n) {
		memcpy(&value, src, n);
		return value;
	}
	switch (n) {
	case 1:
		return __atomic_load_n((const uint8_t *)src, __ATOMIC_ACQUIRE);
	case 2:
		return __atomic_load_n((const word16 *)src, __ATOMIC_ACQUIRE);
	case 4:
		return __atomic_load_n((const word32 *)src, __ATOMIC_ACQUIRE);
	default:
		return __atomic_load_n((const word64 *)src, __ATOMIC_ACQUIRE);
	}
}

static void store_word(void *dst, size_t n, uint64_t value)
{
	if ((uintptr_t)dst % n) {
		memcpy(dst, &value, n);
		return;
	}
	switch (n) {
	case 1:
		__atomic_store_n((uint8_t *)dst, (uint8_t)value, __ATOMIC_RELEASE);
		break;
	case 2:
		__atomic_store_n((word16 *)dst, (uint16_t)value, __ATOMIC_RELEASE);
		break;
	case 4:
		__atomic_store_n((word32 *)dst, (uint32_t)value, __ATOMIC_RELEASE);
		break;
	default:
		__atomic_store_n((word64 *)dst, value, __ATOMIC_RELEASE);
	}
}

static void move_aligned(void *dst, const void *src, size_t n)
{
	uint64_t value = load_word(src, n);

	tsan_acquire(src);
	tsan_release(dst);
	store_word(dst, n, value);
}

/* An aligned word is copied by one access, so that a copy may write a flag that somebody polls. */
void host_move(void *dst, const void *src, size_t n)
{
	if (n <= 8 && is_power_of_two(n))
		move_aligned(dst, src, n);
	else
		memmove(dst, src, n);
}

static int run_copy_op(const struct host_op *op)
{
	size_t n = op->move.n;

	if (op->move.stop && __atomic_load_n(op->move.stop, __ATOMIC_ACQUIRE))
		return 0;
	if (op->move.dst_device && !host_still(op->dev, op->move.dst, n))
		return -EFAULT;
	if (op->move.src_device && !host_still(op->dev, op->move.src, n))
		return -EFAULT;
	host_move(op->move.dst, op->move.src, n);
	return 0;
}

static int run_fill(const struct host_op *op)
{
	if (op->move.dst_device && !host_still(op->dev, op->move.dst, op->move.n))
		return -EFAULT;
	memset(op->move.dst, op->move.byte, op->move.n);
	return 0;
}

int host_copy_unless(
	int dev, void *dst, const void *src, size_t n, device_stream handle, const uint32_t *stop)
{
	int rc;
	struct host_op *op = begin(dev, handle, "copy", run_copy_op, 0, &rc);

	if (!op)
		return rc;
	op->until = HOST_ENDS;
	op->move.dst = dst;
	op->move.src = src;
	op->move.stop = stop;
	op->move.n = n;
	rc = host_reach(dev, dst, n, "copy", &op->move.dst_device);
	if (!rc)
		rc = host_reach(dev, src, n, "copy", &op->move.src_device);
	if (rc || !n) {
		mem_free(op);
		return rc;
	}
	return push_op(op, "copy");
}

int host_queue_copy(int dev, void *dst, const void *src, size_t n, device_stream handle)
{
	return host_copy_unless(dev, dst, src, n, handle, NULL);
}

int host_queue_fill(int dev, void *dst, int byte, size_t n, device_stream handle)
{
	int rc;
	struct host_op *op = begin(dev, handle, "fill", run_fill, 0, &rc);

	if (!op)
		return rc;
	op->until = HOST_ENDS;
	op->move.dst = dst;
	op->move.byte = byte;
	op->move.n = n;
	rc = host_reach(dev, dst, n, "fill", &op->move.dst_device);
	if (rc || !n) {
		mem_free(op);
		return rc;
	}
	return push_op(op, "fill");
}

/* ---- host functions and kernels */

static int run_call(const struct host_op *op)
{
	op->call.fn(op->call.arg);
	return 0;
}

int host_queue_call(int dev, device_stream handle, void (*fn)(void *arg), void *arg)
{
	struct host_op *op;
	int rc;

	if (!fn)
		return fail(-EINVAL, "host: call on device %d: fn is NULL", dev);
	op = begin(dev, handle, "call", run_call, 0, &rc);
	if (!op)
		return rc;
	op->always = op->once = true; /* who queued it counts on being called, once */
	op->call.fn = fn;
	op->call.arg = arg;
	return push_op(op, "call");
}

/* ---- words */

static int run_word_write(const struct host_op *op)
{
	tsan_release(op->word.at);
	__atomic_store_n(op->word.at, op->word.value, __ATOMIC_RELEASE);
	return 0;
}

/* Whoever stores wakes nobody: it may be the CPU. */
static int run_word_wait(const struct host_op *op)
{
	struct timespec ts = { .tv_nsec = WORD_NAP };

	for (int i = 0;
		(int64_t)(__atomic_load_n(op->word.at, __ATOMIC_ACQUIRE) - op->word.value) < 0;
		i++) {
		if (i < WORD_YIELDS) {
			sched_yield();
			continue;
		}
		clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
		ts.tv_nsec = MIN_OF(ts.tv_nsec + WORD_NAP, WORD_NAP_MOST);
	}
	tsan_acquire(op->word.at);
	return 0;
}

static int queue_word(int dev, device_stream handle, void *word, uint64_t value, const char *name,
	int (*run)(const struct host_op *op))
{
	struct host_op *op;
	int rc;

	if (!word || (uintptr_t)word % sizeof(uint64_t))
		return fail(
			-EINVAL, "host: %s on device %d: %p is no aligned word", name, dev, word);
	op = begin(dev, handle, name, run, 0, &rc);
	if (!op)
		return rc;
	op->once = true;
	op->word.at = word;
	op->word.value = value;
	return push_op(op, name);
}

int host_word_write(int dev, device_stream handle, void *word, uint64_t value)
{
	return queue_word(dev, handle, word, value, "word_write", run_word_write);
}

int host_word_wait(int dev, device_stream handle, void *word, uint64_t value)
{
	return queue_word(dev, handle, word, value, "word_wait", run_word_wait);
}

static int run_kernel(const struct host_op *op)
{
	op->kernel(op->args);
	return 0;
}

/* The library's own kernels wait as long as the view says that they begin with. */
static int64_t kernel_bound(const struct kernel *k, const void *args)
{
	const struct spmt_view *view = args;

	if (!k->bounded || !k->viewed)
		return k->bounded;
	return view->timeout_ns ? (int64_t)MIN_OF(view->timeout_ns, (uint64_t)INT64_MAX)
				: INT64_MAX;
}

int host_queue_launch(int dev, device_stream handle, const struct kernel *k, unsigned grid,
	unsigned block, const void *args, size_t size)
{
	struct host_op *op;
	size_t end;
	int rc;

	if (!k || !k->host)
		return fail(-EINVAL, "host: launch on device %d: %s has no host function", dev,
			k ? k->name : "a NULL kernel");
	if (!grid || !block || (size && !args))
		return fail(-EINVAL,
			"host: launch of %s on device %d: grid %u, block %u, args %p of %zu bytes",
			k->name, dev, grid, block, args, size);
	op = begin(dev, handle, "launch", run_kernel, size, &rc);
	if (!op)
		return rc;
	op->kernel = k->host;
	if (size)
		memcpy(op->args, args, size);
	op->bound = kernel_bound(k, op->args);
	if (k->bounded && k->viewed)
		op->until = ((const struct spmt_view *)(const void *)op->args)->stop;
	end = k->given && k->given < size ? k->given : size;
	rc = end > k->viewed ? host_reach_args(dev, op->args + k->viewed, end - k->viewed) : 0;
	if (rc) {
		mem_free(op);
		return rc;
	}
	return push_op(op, "launch");
}

/* ---- the runtime's own forms */

int host_copy(int dev, void *dst, const void *src, size_t n, device_stream s)
{
	return host_raise(host_queue_copy(dev, dst, src, n, s));
}

int host_fill(int dev, void *dst, int byte, size_t n, device_stream s)
{
	return host_raise(host_queue_fill(dev, dst, byte, n, s));
}

int host_launch(int dev, device_stream s, const struct kernel *k, unsigned grid, unsigned block,
	const void *args, size_t size)
{
	return host_raise(host_queue_launch(dev, s, k, grid, block, args, size));
}

/* ---- events: a stream and a ticket of it, so that recording queues nothing */

/* NULL: *rc has why, with a sentence. */
static struct host_event *event_find(device_event handle, const char *op, int *rc)
{
	struct host_state *st = host_state();
	struct host_event *e = handle;

	if (st && host_pool_holds(&st->events, e, sizeof(*e)) && atomic_load(&e->live))
		return e;
	*rc = fail(-EINVAL, "host: %s: %p is not a live event", op, handle);
	return NULL;
}

/* For ops that name the event's own device. */
static struct host_event *event_of(int dev, device_event handle, const char *op, int *rc)
{
	struct host_event *e;

	*rc = host_check(dev, op);
	if (*rc)
		return NULL;
	e = event_find(handle, op, rc);
	if (!e || e->dev == dev)
		return e;
	*rc = fail(
		-EINVAL, "host: %s on device %d: the event is one of device %d", op, dev, e->dev);
	return NULL;
}

int host_event_create(int dev, device_event *out)
{
	struct host_state *st = host_state();
	struct host_event *e;
	int rc = host_check(dev, "event_create");

	if (rc)
		return rc;
	if (fault_here(FAULT_DEVICE))
		return fail_errno(
			fault_errno(FAULT_DEVICE), "host: event_create on device %d", dev);
	pthread_mutex_lock(&st->lock);
	e = host_pool_get(&st->events, sizeof(*e));
	pthread_mutex_unlock(&st->lock);
	if (!e)
		return fail(-ENOMEM, "host: event_create on device %d: no memory", dev);
	pthread_mutex_lock(&e->lock);
	e->dev = dev;
	e->stream = NULL;
	e->ticket = 0;
	atomic_store(&e->live, true);
	pthread_mutex_unlock(&e->lock);
	*out = e;
	return 0;
}

int host_event_destroy(int dev, device_event handle)
{
	struct host_state *st = host_state();
	int rc;
	struct host_event *e = event_of(dev, handle, "event_destroy", &rc);

	if (!e)
		return rc;
	if (!atomic_exchange(&e->live, false))
		return fail(-EINVAL, "host: event_destroy on device %d: %p was destroyed before",
			dev, handle);
	pthread_mutex_lock(&st->lock);
	host_pool_put(&st->events, e);
	pthread_mutex_unlock(&st->lock);
	return 0;
}

int host_event_record(int dev, device_event handle, device_stream stream)
{
	struct host_stream *s;
	int rc;
	struct host_event *e = event_of(dev, handle, "event_record", &rc);

	if (!e)
		return rc;
	s = host_stream_find(dev, stream, "event_record", &rc);
	if (!s)
		return rc;
	if (fault_here(FAULT_DEVICE))
		return fail_errno(
			fault_errno(FAULT_DEVICE), "host: event_record on device %d", dev);
	pthread_mutex_lock(&e->lock);
	e->stream = s;
	e->ticket = atomic_load(&s->queued);
	pthread_mutex_unlock(&e->lock);
	return 0;
}

static void event_read(struct host_event *e, struct host_stream **s, uint64_t *ticket)
{
	pthread_mutex_lock(&e->lock);
	*s = e->stream;
	*ticket = e->ticket;
	pthread_mutex_unlock(&e->lock);
}

int host_event_query(int dev, device_event handle)
{
	struct host_stream *s;
	uint64_t ticket;
	int rc;
	struct host_event *e = event_of(dev, handle, "event_query", &rc);

	if (!e)
		return rc;
	event_read(e, &s, &ticket);
	rc = s ? host_stream_served(s, ticket) : 1;
	return rc < 0 ? fail(rc, "host: event_query on device %d: the stream had failed", dev) : rc;
}

int host_event_sync(int dev, device_event handle, int64_t timeout_ns, const uint32_t *stop)
{
	struct host_stream *s;
	uint64_t ticket;
	int rc;
	struct host_event *e = event_of(dev, handle, "event_sync", &rc);

	if (!e)
		return rc;
	event_read(e, &s, &ticket);
	rc = s ? host_stream_await(s, ticket, timeout_ns, stop) : 0;
	if (rc || !s)
		return rc;
	rc = host_stream_served(s, ticket);
	return rc < 0 ? host_stream_failed(dev, rc) : 0;
}

/* What is being run, or next; with neither the last one is just ending. */
static bool stream_ends(struct host_stream *s, uint64_t ticket, const uint32_t *stop)
{
	const void *until = NULL;

	pthread_mutex_lock(&s->lock);
	if (atomic_load(&s->done) < ticket) {
		until = atomic_load(&s->at);
		if (!until && s->head)
			until = s->head->until;
		else if (!until)
			until = HOST_ENDS;
	}
	pthread_mutex_unlock(&s->lock);
	return until && (until == HOST_ENDS || until == stop);
}

bool host_ends(int dev, device_stream stream, device_event event, const uint32_t *stop)
{
	struct host_stream *s;
	struct host_event *e;
	uint64_t ticket;
	int rc;

	if (event) {
		e = event_of(dev, event, "event_sync", &rc);
		if (!e)
			return false;
		event_read(e, &s, &ticket);
	} else {
		s = host_stream_find(dev, stream, "stream_sync", &rc);
		ticket = s ? atomic_load(&s->queued) : 0;
	}
	return s && stream_ends(s, ticket, stop);
}

/* Work that waits for failed work must not run either: it would look as if the work had been
   done. */
static int run_after(const struct host_op *op)
{
	int rc = host_stream_await(op->after.stream, op->after.ticket, -1, NULL);

	if (!rc)
		rc = host_stream_served(op->after.stream, op->after.ticket);
	return MIN_OF(rc, 0);
}

int host_stream_wait_event(int dev, device_stream stream, device_event handle)
{
	struct host_stream *after;
	struct host_event *e;
	struct host_op *op;
	uint64_t ticket;
	int rc = 0;

	e = event_find(handle, "stream_wait_event", &rc);
	if (!e)
		return rc;
	op = begin(dev, stream, "stream_wait_event", run_after, 0, &rc);
	if (!op)
		return rc;
	event_read(e, &after, &ticket);
	if (!after || after == op->stream || host_stream_served(after, ticket) == 1) {
		mem_free(op);
		return 0;
	}
	op->once = true;
	op->after.stream = after;
	op->after.ticket = ticket;
	return push_op(op, "stream_wait_event");
}
