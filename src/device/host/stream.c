/* SPDX-License-Identifier: MIT */
/* Streams: queues, each with a worker, so that a kernel which waits for another stream's kernel holds up nobody else. */
#include "stream.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "include/spmt.h"
#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/base/tsan.h"

#define YIELDS 16
#define SLICE 5000000 /* ns between two looks at a stop word, which wakes nobody */

/* ---- objects */

/* A failure may be asked for by ticket after its stream is gone. Streams that reuse the object
   continue the tickets. Only the last failed stream is remembered, which matters to programs that
   lose several in a row. */
static void failure_keep(struct host_stream *s)
{
	int error = atomic_load(&s->error);

	if (!error)
		return;
	atomic_store(&s->past_failed, atomic_load(&s->failed));
	atomic_store(&s->past_last, atomic_load(&s->queued));
	atomic_store(&s->past_error, error);
}

/* Under the state's lock, like every use of the pool. */
static struct host_stream *stream_get(struct host_state *st, int dev, const void *owner)
{
	struct host_stream *s = host_pool_get(&st->streams, sizeof(*s));

	if (!s)
		return NULL;
	pthread_mutex_lock(&s->lock);
	s->next = NULL;
	s->dev = dev;
	s->owner = owner;
	s->head = NULL;
	s->tail = &s->head;
	s->idle = s->closing = s->joined = s->helped = false;
	atomic_store(&s->relied, false);
	s->worker = NULL;
	atomic_store(&s->threaded, false);
	atomic_store(&s->capture, NULL);
	failure_keep(s);
	s->blame.code = 0;
	s->blame.told = false;
	atomic_store(&s->error, 0);
	atomic_store(&s->id, ++st->streams_made);
	atomic_store(&s->live, true);
	pthread_mutex_unlock(&s->lock);
	return s;
}

void host_stream_put(struct host_stream *s)
{
	struct host_state *st = host_state();

	pthread_mutex_lock(&st->lock);
	host_pool_put(&st->streams, s);
	pthread_mutex_unlock(&st->lock);
}

static int not_open(int dev, const char *op)
{
	return fail(-ENODEV, "host: %s: device %d is not open", op, dev);
}

/* A default stream of an open device, or NULL with a sentence. Per-thread ones are released when their thread ends. */
static struct host_stream *default_make(
	struct host_state *st, int dev, const void *owner, const char *op, int *rc)
{
	struct host_stream *s;
	int err = fault_here(FAULT_DEVICE) ? fault_errno(FAULT_DEVICE) : 0;

	if (!err && owner)
		err = -host_watch(st);
	s = err ? NULL : stream_get(st, dev, owner);
	if (!s) {
		*rc = fail_errno(
			err ? err : ENOMEM, "host: %s: no default stream on device %d", op, dev);
		return NULL;
	}
	if (owner) {
		s->next = st->devices[dev].own;
		st->devices[dev].own = s;
	} else {
		atomic_store(&st->devices[dev].legacy, s);
	}
	return s;
}

static struct host_stream *default_find(
	struct host_state *st, int dev, const void *owner, const char *op, int *rc)
{
	struct host_device *d = &st->devices[dev];
	struct host_stream *s;

	pthread_mutex_lock(&st->lock);
	for (s = owner ? d->own : atomic_load(&d->legacy); s && s->owner != owner;)
		s = s->next;
	if (!s && d->opens)
		s = default_make(st, dev, owner, op, rc);
	else if (!s)
		*rc = not_open(dev, op);
	pthread_mutex_unlock(&st->lock);
	return s;
}

struct host_stream *host_stream_find(int dev, device_stream handle, const char *op, int *rc)
{
	struct host_state *st = host_state();
	struct host_stream *s = handle;

	*rc = host_check(dev, op);
	if (*rc)
		return NULL;
	if (handle == DEVICE_STREAM_PER_THREAD)
		return default_find(st, dev, host_self(), op, rc);
	if (handle == DEVICE_STREAM_LEGACY) {
		s = atomic_load(&st->devices[dev].legacy);
		return s ? s : default_find(st, dev, NULL, op, rc);
	}
	if (!host_pool_holds(&st->streams, s, sizeof(*s)) || !atomic_load(&s->live))
		*rc = fail(
			-EINVAL, "host: %s on device %d: %p is not a live stream", op, dev, handle);
	else if (s->dev != dev)
		*rc = fail(-EINVAL, "host: %s on device %d: the stream is one of device %d", op,
			dev, s->dev);
	else
		return s;
	return NULL;
}

int host_stream_device(device_stream handle)
{
	struct host_state *st = host_state();
	struct host_stream *s = handle;

	if (!st || !host_pool_holds(&st->streams, s, sizeof(*s)) || !atomic_load(&s->live))
		return -1;
	return s->dev;
}

void host_stream_collect(
	struct host_state *st, int dev, const void *owner, struct host_stream **list)
{
	struct host_device *d = &st->devices[dev];
	struct host_stream **at = &d->own, *s;

	while ((s = *at)) {
		if (owner && s->owner != owner) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		s->next = *list;
		*list = s;
	}
	s = owner ? NULL : atomic_exchange(&d->legacy, NULL);
	if (s) {
		s->next = *list;
		*list = s;
	}
}

void host_stream_end_all(struct host_stream *list)
{
	while (list) {
		struct host_stream *s = list;

		list = s->next;
		host_stream_end(s);
	}
}

/* ---- work */

struct host_op *host_op_new(
	struct host_stream *s, int (*run)(const struct host_op *op), size_t extra)
{
	struct host_op *op;

	if (extra > SIZE_MAX / 2)
		return NULL;
	op = mem_alloc(sizeof(*op) + extra);
	if (op)
		*op = (struct host_op){ .dev = s->dev, .stream = s, .run = run, .extra = extra };
	return op;
}

void host_stream_ring(struct host_stream *s)
{
	uint32_t wakes = atomic_load_explicit(&s->wakes, memory_order_relaxed);

	atomic_store_explicit(&s->wakes, wakes + 1, memory_order_release);
}

/* Under s->lock. */
static int push_now(struct host_stream *s, struct host_op *op, uint64_t *ticket)
{
	int rc = s->threaded ? 0 : host_worker_start(s);
	uint64_t queued;

	if (rc)
		return rc;
	host_stream_absolve(s);
	op->next = NULL;
	*s->tail = op;
	s->tail = &op->next;
	queued = atomic_load_explicit(&s->queued, memory_order_relaxed) + 1;
	if (ticket)
		*ticket = queued;
	atomic_store_explicit(&s->queued, queued, memory_order_release);
	host_stream_ring(s);
	return 0;
}

static int push_failed(const struct host_op *op, const char *name, int rc)
{
	if (rc == -EINVAL)
		return fail(rc, "host: %s on device %d: the stream was destroyed", name, op->dev);
	if (rc == SPMT_ERR_UNSUPPORTED)
		return fail(SPMT_ERR_UNSUPPORTED,
			"host: %s on device %d: the stream is being captured, and this cannot be replayed",
			name, op->dev);
	return fail_errno(
		-rc, "host: %s on device %d: no worker thread for the stream", name, op->dev);
}

int host_stream_push(struct host_op *op, const char *name, uint64_t *ticket)
{
	struct host_stream *s = op->stream;
	struct host_graph *graph;
	bool idle = false, relied = false;
	int rc;

	pthread_mutex_lock(&s->lock);
	graph = atomic_load(&s->capture);
	if (!atomic_load(&s->live))
		rc = -EINVAL;
	else if (UNLIKELY(graph != NULL))
		rc = host_graph_keep(graph, op);
	else
		rc = push_now(s, op, ticket);
	if (!rc) {
		relied = s->idle && s->relied && op->bound;
		idle = s->idle && !relied;
	}
	pthread_mutex_unlock(&s->lock);
	if (idle)
		host_wake_all(&s->wakes);
	if (relied)
		host_rely(s);
	return LIKELY(!rc) ? 0 : push_failed(op, name, rc);
}

/* pthread_join() is a cancellation point, and no wait of the library is one. */
static void join(pthread_t thread)
{
	UNCANCELLED;

	pthread_join(thread, NULL);
}

int host_stream_end(struct host_stream *s)
{
	struct host_graph *graph;
	pthread_t thread;
	bool live, threaded, joined;

	pthread_mutex_lock(&s->lock);
	live = atomic_exchange(&s->live, false);
	graph = live ? atomic_exchange(&s->capture, NULL) : NULL;
	threaded = s->threaded;
	/* all served: the worker only has to see that it may go, which makes "no thread is left" true on return */
	joined = atomic_load(&s->done) == atomic_load(&s->queued);
	thread = s->thread;
	if (live) {
		s->closing = true;
		s->joined = joined;
		host_stream_ring(s);
		if (threaded && !joined)
			pthread_detach(thread);
		if (threaded)
			host_wake_all(&s->wakes);
	}
	pthread_mutex_unlock(&s->lock);
	host_graph_abandon(graph);
	if (!live)
		return -EINVAL;
	if (threaded && joined)
		join(thread);
	if (!threaded || joined)
		host_stream_put(s);
	return 0;
}

/* ---- blame */

void host_stream_blame(int code, const char *why)
{
	struct host_stream *s = host_serving();

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	if (!s->blame.code || s->blame.told) {
		s->blame.code = code;
		s->blame.told = false;
		snprintf(s->blame.why, sizeof(s->blame.why), "%s", why);
	}
	pthread_mutex_unlock(&s->lock);
}

int host_stream_blamed(int dev, device_stream handle)
{
	char why[HOST_WHY];
	struct host_stream *s;
	int rc = 0, code;

	s = host_stream_find(dev, handle, "stream_sync", &rc);
	if (!s)
		return rc;
	pthread_mutex_lock(&s->lock);
	code = s->blame.code;
	s->blame.told = code;
	memcpy(why, s->blame.why, sizeof(why));
	pthread_mutex_unlock(&s->lock);
	return code ? fail_with(code, why) : 0;
}

/* ---- waiting */

int host_stream_served(const struct host_stream *s, uint64_t ticket)
{
	int error;

	if (atomic_load(&s->done) < ticket)
		return 0;
	tsan_acquire(&s->done);
	error = atomic_load(&s->error);
	if (error && atomic_load(&s->failed) <= ticket)
		return error;
	error = atomic_load(&s->past_error);
	return error && atomic_load(&s->past_failed) <= ticket &&
			ticket <= atomic_load(&s->past_last)
		? error
		: 1;
}

static void stream_nap(struct host_stream *s, uint64_t ticket, int64_t ns)
{
	uint32_t seen;

	atomic_fetch_add(&s->waiters, 1);
	seen = atomic_load(&s->wake);
	if (atomic_load(&s->done) < ticket)
		host_sleep_on(&s->wake, seen, ns);
	atomic_fetch_sub(&s->waiters, 1);
}

int host_stream_await(
	struct host_stream *s, uint64_t ticket, int64_t timeout_ns, const uint32_t *stop)
{
	int64_t begin = 0, left = timeout_ns;
	int turn;

	for (turn = 0; atomic_load(&s->done) < ticket; turn++) {
		if (!turn && timeout_ns > 0)
			begin = process_now();
		if (stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE))
			return -ECANCELED;
		if (timeout_ns > 0)
			left = timeout_ns - (process_now() - begin);
		if (timeout_ns >= 0 && left <= 0)
			return -ETIMEDOUT;
		if (!turn) {
			host_rely(NULL);
			host_stream_rouse(s);
		} else if (turn < YIELDS) {
			sched_yield();
		} else if (stop && (left < 0 || left > SLICE)) {
			stream_nap(s, ticket, SLICE);
		} else {
			stream_nap(s, ticket, left);
		}
	}
	tsan_acquire(&s->done);
	return 0;
}

/* Another id is that of the next stream of this handle, which the last one's worker has left. */
bool host_stream_gone(device_stream handle, uint64_t id, int64_t deadline)
{
	struct host_state *st = host_state();
	struct host_stream *s = handle;

	if (!st || !host_pool_holds(&st->streams, s, sizeof(*s)))
		return false;
	if (atomic_load(&s->id) != id)
		return true;
	if (atomic_load(&s->live))
		return false;
	return !host_stream_await(s, atomic_load(&s->queued), process_left(deadline), NULL) ||
		atomic_load(&s->id) != id;
}

/* ---- the ops */

int host_stream_create(int dev, device_stream *s)
{
	struct host_state *st = host_state();
	struct host_stream *made = NULL;
	bool open;
	int rc = host_check(dev, "stream_create");

	if (rc)
		return rc;
	if (fault_here(FAULT_DEVICE))
		return fail_errno(
			fault_errno(FAULT_DEVICE), "host: stream_create on device %d", dev);
	pthread_mutex_lock(&st->lock);
	open = st->devices[dev].opens;
	if (open)
		made = stream_get(st, dev, NULL);
	pthread_mutex_unlock(&st->lock);
	if (!open)
		return not_open(dev, "stream_create");
	if (!made)
		return fail(-ENOMEM, "host: stream_create on device %d: no memory", dev);
	*s = made;
	return 0;
}

int host_stream_destroy(int dev, device_stream handle)
{
	struct host_stream *s;
	int rc;

	if (handle == DEVICE_STREAM_LEGACY || handle == DEVICE_STREAM_PER_THREAD)
		return fail(-EINVAL,
			"host: stream_destroy on device %d: a default stream is never destroyed",
			dev);
	s = host_stream_find(dev, handle, "stream_destroy", &rc);
	if (!s)
		return rc;
	rc = host_stream_end(s);
	if (rc)
		return fail(rc, "host: stream_destroy on device %d: %p was destroyed before", dev,
			handle);
	return 0;
}

int host_stream_failed(int dev, int code)
{
	return fail(code,
		"host: a stream of device %d failed: memory was freed while work on it was queued",
		dev);
}

/* What was captured does not run, so that there is nothing to wait for. */
static struct host_stream *stream_running(int dev, device_stream handle, const char *op, int *rc)
{
	struct host_stream *s = host_stream_find(dev, handle, op, rc);

	if (!s || !atomic_load(&s->capture))
		return s;
	*rc = fail(-EBUSY, "host: %s on device %d: the stream is being captured into a graph", op,
		dev);
	return NULL;
}

int host_stream_query(int dev, device_stream handle)
{
	int rc;
	struct host_stream *s = stream_running(dev, handle, "stream_query", &rc);

	if (!s)
		return rc;
	rc = host_stream_served(s, atomic_load(&s->queued));
	return rc < 0 ? host_stream_failed(dev, rc) : rc;
}

int host_stream_sync(int dev, device_stream handle, int64_t timeout_ns, const uint32_t *stop)
{
	uint64_t ticket;
	int rc;
	struct host_stream *s = stream_running(dev, handle, "stream_sync", &rc);

	if (!s)
		return rc;
	ticket = atomic_load(&s->queued);
	if (timeout_ns && !(stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE)))
		host_stream_help(s, ticket, host_patience_or(timeout_ns));
	rc = host_stream_await(s, ticket, timeout_ns, stop);
	if (rc)
		return rc;
	rc = host_stream_served(s, ticket);
	return rc < 0 ? host_stream_failed(dev, rc) : 0;
}

uint64_t host_stream_id(int dev, device_stream handle)
{
	int rc;
	struct host_stream *s;

	if (handle != DEVICE_STREAM_LEGACY && handle != DEVICE_STREAM_PER_THREAD &&
		host_stream_device(handle) != dev)
		return 0;
	s = host_stream_find(dev, handle, "stream_id", &rc);
	return s ? atomic_load(&s->id) : 0;
}
