/* SPDX-License-Identifier: MIT */
/* Streams, events and what runs in them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bind.h"
#include "include/spmt.h"
#include "ops.h"
#include "src/base/process.h"
#include "src/base/status.h"

static void *native_stream(const struct gpu_vendor *v, device_stream s)
{
	return s == DEVICE_STREAM_LEGACY ? v->legacy : s;
}

int gpu_stream_create(const struct gpu_vendor *v, int dev, device_stream *s)
{
	struct gpu_bound b;
	void *stream;
	int rc = gpu_bind_for(&b, v, dev, FAULT_DEVICE, "stream_create");

	if (rc < 0)
		return rc;
	rc = gpu_done(&b, b.calls->StreamCreate(&stream, GPU_NON_BLOCKING), "stream_create");
	if (!rc)
		*s = stream;
	return rc;
}

int gpu_stream_destroy(const struct gpu_vendor *v, int dev, device_stream s)
{
	struct gpu_bound b;
	int rc;

	if (!s || s == DEVICE_STREAM_LEGACY || s == DEVICE_STREAM_PER_THREAD)
		return fail(-EINVAL, "%s: stream_destroy: %p is no stream of stream_create",
			v->name, s);
	rc = gpu_bind(&b, v, dev, "stream_destroy");
	return rc < 0 ? rc : gpu_done(&b, b.calls->StreamDestroy(s), "stream_destroy");
}

static int poll_answer(const struct gpu_bound *b, int r, const char *what)
{
	if (r == GPU_OK)
		return 1;
	if (r == GPU_NOT_READY)
		return 0;
	return gpu_fail(b->vendor, r, "%s on device %d", what, b->dev);
}

/* A stream or an event, on its device. */
struct polled {
	struct gpu_bound bound;
	void *handle;
};

static int poll_stream(void *ctx)
{
	const struct polled *p = ctx;

	return poll_answer(&p->bound, p->bound.calls->StreamQuery(p->handle), "work in a stream");
}

static int poll_begin(
	struct polled *p, const struct gpu_vendor *v, int dev, device_stream s, const char *what)
{
	if (!s)
		return fail(-EINVAL, "%s: %s: no stream given on device %d", v->name, what, dev);
	p->handle = native_stream(v, s);
	return gpu_bind(&p->bound, v, dev, what);
}

int gpu_stream_query(const struct gpu_vendor *v, int dev, device_stream s)
{
	struct polled p;
	int rc = poll_begin(&p, v, dev, s, "stream_query");

	if (rc < 0)
		return rc;
	rc = poll_stream(&p);
	gpu_unbind(&p.bound);
	return rc;
}

int gpu_stream_sync(const struct gpu_vendor *v, int dev, device_stream s, int64_t timeout_ns,
	const uint32_t *stop)
{
	struct polled p;
	int rc = poll_begin(&p, v, dev, s, "stream_sync");

	if (rc < 0)
		return rc;
	rc = vendor_wait(poll_stream, &p, timeout_ns, stop);
	gpu_unbind(&p.bound);
	return rc;
}

/* To bind a context costs more than the question, as does an exchange of the thread's cancellation, whose points are calls of the system, of which a
   question makes none. */
uint64_t gpu_stream_id(const struct gpu_vendor *v, int dev, device_stream s)
{
	const struct gpu_calls *calls = &gpu_state(v)->calls;
	unsigned long long id = 0;
	struct gpu_bound b;
	int r;

	if (!s || !calls->StreamGetId)
		return 0;
	if (gpu_stream_speaks(v, s)) {
		r = calls->StreamGetId(s, &id);
		if (r != GPU_INVALID_CONTEXT)
			return r == GPU_OK ? id : 0;
	}
	if (gpu_bind(&b, v, dev, "stream_id") < 0)
		return 0;
	if (calls->StreamGetId(native_stream(v, s), &id) != GPU_OK)
		id = 0;
	gpu_unbind(&b);
	return id;
}

int gpu_zero(const struct gpu_bound *b, void *ptr, size_t size)
{
	struct polled p = { *b, b->device->kept.stream };
	int r = b->vendor->fill(b->state, ptr, 0, size, p.handle);

	if (r != GPU_OK)
		return gpu_fail(b->vendor, r, "zeroing %zu bytes of device %d", size, b->dev);
	return vendor_wait(poll_stream, &p, -1, NULL);
}

int gpu_event_create(const struct gpu_vendor *v, int dev, device_event *e)
{
	struct gpu_bound b;
	void *event;
	int rc = gpu_bind_for(&b, v, dev, FAULT_DEVICE, "event_create");

	if (rc < 0)
		return rc;
	rc = gpu_done(&b, b.calls->EventCreate(&event, GPU_NO_TIMING), "event_create");
	if (!rc)
		*e = event;
	return rc;
}

int gpu_event_destroy(const struct gpu_vendor *v, int dev, device_event e)
{
	struct gpu_bound b;
	int rc = gpu_bind(&b, v, dev, "event_destroy");

	return rc < 0 ? rc : gpu_done(&b, b.calls->EventDestroy(e), "event_destroy");
}

static bool record_unbound(const struct gpu_vendor *v, int dev, device_event e, device_stream s)
{
	const struct gpu_state *state = gpu_unbound(v, dev, s);

	if (state) {
		UNCANCELLED;
		return state->calls.EventRecord(e, s) == GPU_OK;
	}
	return false;
}

int gpu_event_record(const struct gpu_vendor *v, int dev, device_event e, device_stream s)
{
	struct gpu_bound b;
	int rc;

	if (LIKELY(record_unbound(v, dev, e, s)))
		return 0;
	rc = gpu_bind_stream(&b, v, dev, s, "event_record");
	return rc < 0 ? rc
		      : gpu_done(&b, b.calls->EventRecord(e, native_stream(v, s)), "event_record");
}

static int poll_event(void *ctx)
{
	const struct polled *p = ctx;

	return poll_answer(
		&p->bound, p->bound.calls->EventQuery(p->handle), "work before an event");
}

int gpu_event_query(const struct gpu_vendor *v, int dev, device_event e)
{
	struct polled p = { .handle = e };
	int rc = gpu_bind(&p.bound, v, dev, "event_query");

	if (rc < 0)
		return rc;
	rc = poll_event(&p);
	gpu_unbind(&p.bound);
	return rc;
}

int gpu_event_sync(const struct gpu_vendor *v, int dev, device_event e, int64_t timeout_ns,
	const uint32_t *stop)
{
	struct polled p = { .handle = e };
	int rc = gpu_bind(&p.bound, v, dev, "event_sync");

	if (rc < 0)
		return rc;
	rc = vendor_wait(poll_event, &p, timeout_ns, stop);
	gpu_unbind(&p.bound);
	return rc;
}

static bool wait_unbound(const struct gpu_vendor *v, int dev, device_stream s, device_event e)
{
	const struct gpu_state *state = gpu_unbound(v, dev, s);

	if (state) {
		UNCANCELLED;
		return state->calls.StreamWaitEvent(s, e, 0) == GPU_OK;
	}
	return false;
}

int gpu_stream_wait_event(const struct gpu_vendor *v, int dev, device_stream s, device_event e)
{
	struct gpu_bound b;
	int rc;

	if (LIKELY(wait_unbound(v, dev, s, e)))
		return 0;
	rc = gpu_bind_stream(&b, v, dev, s, "stream_wait_event");
	if (rc < 0)
		return rc;
	return gpu_done(
		&b, b.calls->StreamWaitEvent(native_stream(v, s), e, 0), "stream_wait_event");
}

/* ---- copies */

static int copy_piece(void *ctx, void *dst, const void *src, size_t n)
{
	const struct polled *p = ctx;
	const struct gpu_bound *b = &p->bound;
	int r = b->vendor->copy(b->state, dst, src, n, p->handle);

	if (LIKELY(r == GPU_OK))
		return 0;
	return gpu_fail(
		b->vendor, r, "copy of %zu bytes from %p to %p on device %d", n, src, dst, b->dev);
}

/* By way of memory that lives in the stream: the driver leaves overlapping copies undefined. */
static int copy_twice(struct polled *p, void *dst, const void *src, size_t n)
{
	const struct gpu_vendor *v = p->bound.vendor;
	const struct gpu_calls *calls = p->bound.calls;
	void *by;
	int r, rc;

	if (!calls->MemAllocAsync || !calls->MemFreeAsync)
		return fail(SPMT_ERR_UNSUPPORTED,
			"%s: copy: this %s cannot copy %zu bytes to %p, %p overlaps", v->name,
			v->kind, n, dst, src);
	r = calls->MemAllocAsync(&by, n, p->handle);
	if (r != GPU_OK)
		return gpu_fail(v, r, "copy of %zu bytes that overlap: a buffer on device %d", n,
			p->bound.dev);
	rc = copy_piece(p, by, src, n);
	if (!rc)
		rc = copy_piece(p, dst, by, n);
	calls->MemFreeAsync(by, p->handle);
	return rc;
}

static bool copy_unbound(
	const struct gpu_vendor *v, int dev, void *dst, const void *src, size_t n, device_stream s)
{
	const struct gpu_state *state = gpu_unbound(v, dev, s);

	if (state) {
		UNCANCELLED;
		return v->copy(state, dst, src, n, s) == GPU_OK;
	}
	return false;
}

int gpu_copy(
	const struct gpu_vendor *v, int dev, void *dst, const void *src, size_t n, device_stream s)
{
	const bool apart = LIKELY(!vendor_overlaps(dst, src, n));
	struct polled p;
	int rc;

	if (!n || (apart && LIKELY(copy_unbound(v, dev, dst, src, n, s))))
		return 0;
	p.handle = native_stream(v, s);
	rc = gpu_bind_stream(&p.bound, v, dev, s, "copy");
	if (rc < 0)
		return rc;
	if (apart)
		rc = copy_piece(&p, dst, src, n);
	else
		rc = vendor_overlap(dst, src, n, copy_piece, &p);
	if (rc == -E2BIG)
		rc = copy_twice(&p, dst, src, n);
	gpu_unbind(&p.bound);
	return rc;
}

/* ---- words */

int gpu_words_check(const struct gpu_vendor *v, int dev, char reason[DEVICE_REASON])
{
	struct gpu_bound b;
	int can = 0, r = GPU_NOT_SUPPORTED;

	if (!v->has_words(gpu_state(v))) {
		snprintf(reason, DEVICE_REASON,
			"this %s has no calls by which streams wait for words", v->kind);
		return SPMT_ERR_UNSUPPORTED;
	}
	KEEPS_SENTENCE;
	if (gpu_bind_closed(&b, v, dev, "words") >= 0) {
		r = b.calls->DeviceGetAttribute(&can, v->attr_words, b.device->handle);
		gpu_unbind(&b);
	}
	if (r == GPU_OK && can)
		return 0;
	snprintf(reason, DEVICE_REASON, "the streams of device %d wait for no words", dev);
	return SPMT_ERR_UNSUPPORTED;
}

/* Drivers keep streams of other priorities in other hardware queues. */
int gpu_words_stream(const struct gpu_vendor *v, int dev, device_stream *s)
{
	struct gpu_bound b;
	int least = 0, first = 0, r, rc = gpu_bind_for(&b, v, dev, FAULT_DEVICE, "stream_create");
	void *stream;

	if (rc < 0)
		return rc;
	if (b.calls->StreamPriorities && b.calls->StreamCreateFirst &&
		b.calls->StreamPriorities(&least, &first) == GPU_OK && first != least)
		r = b.calls->StreamCreateFirst(&stream, GPU_NON_BLOCKING, first);
	else
		r = b.calls->StreamCreate(&stream, GPU_NON_BLOCKING);
	rc = gpu_done(&b, r, "stream_create");
	if (!rc)
		*s = stream;
	return rc;
}

int gpu_word_write(const struct gpu_vendor *v, int dev, device_stream s, void *word, uint64_t value)
{
	struct gpu_bound b;
	int rc = gpu_bind_stream(&b, v, dev, s, "a stream's store to a word");

	if (rc < 0)
		return rc;
	return gpu_done(&b, v->word_write(b.state, native_stream(v, s), word, value),
		"a stream's store to a word");
}

int gpu_word_wait(const struct gpu_vendor *v, int dev, device_stream s, void *word, uint64_t value)
{
	struct gpu_bound b;
	int rc = gpu_bind_stream(&b, v, dev, s, "a stream's wait for a word");

	if (rc < 0)
		return rc;
	return gpu_done(&b, v->word_wait(b.state, native_stream(v, s), word, value),
		"a stream's wait for a word");
}

int gpu_fill(const struct gpu_vendor *v, int dev, void *dst, int byte, size_t n, device_stream s)
{
	struct gpu_bound b;
	int rc;

	if (!n)
		return 0;
	rc = gpu_bind_stream(&b, v, dev, s, "fill");
	if (rc < 0)
		return rc;
	return gpu_done(&b, v->fill(b.state, dst, byte, n, native_stream(v, s)), "fill");
}

int gpu_call(const struct gpu_vendor *v, int dev, device_stream s, void (*fn)(void *arg), void *arg)
{
	struct gpu_bound b;
	int rc = gpu_bind_stream(&b, v, dev, s, "call");

	if (rc < 0)
		return rc;
	return gpu_done(&b, v->call(b.state, native_stream(v, s), fn, arg), "call");
}

/*
 * What begins early keeps units of the GPU until what is ahead of it has ended, which may wait for a late rank; and that rank may wait for a
 * kernel of another stream here. So half of the units stay free for those.
 */
static bool goes_early(const struct gpu_bound *b, const struct kernel *k, unsigned grid)
{
	const struct gpu_vendor *v = b->device->vendor;

	return k->early && 2 * (uint64_t)grid <= (uint64_t)b->device->units && v->launches_early &&
		v->launches_early(b);
}

int gpu_launch(const struct gpu_vendor *v, int dev, device_stream s, const struct kernel *k,
	unsigned grid, unsigned block, const void *args, size_t size)
{
	void *extra[] = { GPU_LAUNCH_BUFFER, NULL, GPU_LAUNCH_SIZE, &size, v->launch_end };
	struct gpu_bound b;
	void *function;
	int r = GPU_NOT_SUPPORTED, rc = gpu_bind_stream(&b, v, dev, s, "launch");

	if (rc < 0)
		return rc;
	function = vendor_kernel(&b.device->kept.kernels, k, v->name, b.device->kept.arch, &rc);
	if (!function) {
		gpu_unbind(&b);
		return rc;
	}
	memcpy(&extra[1], &args, sizeof(args)); /* the driver's table has no const */
	if (goes_early(&b, k, grid))
		r = v->launch_early(&b, function, grid, block, native_stream(v, s), extra);
	if (r == GPU_NOT_SUPPORTED || r == GPU_INVALID_VALUE) /* here, or in this stream */
		r = b.calls->LaunchKernel(
			function, grid, 1, 1, block, 1, 1, 0, native_stream(v, s), NULL, extra);
	gpu_unbind(&b);
	if (LIKELY(r == GPU_OK))
		return 0;
	return gpu_fail(v, r, "launch of '%s', %u x %u, on device %d", k->name, grid, block, dev);
}

bool gpu_capturing(const struct gpu_vendor *v, int dev, device_stream s)
{
	int status = GPU_CAPTURE_NONE, r;
	struct gpu_bound b;

	if (gpu_stream_speaks(v, s)) {
		r = gpu_state(v)->calls.StreamIsCapturing(s, &status);
		if (r != GPU_INVALID_CONTEXT)
			return r == GPU_OK && status != GPU_CAPTURE_NONE;
	}
	if (!s || gpu_bind(&b, v, dev, "capturing") < 0)
		return false;
	r = b.calls->StreamIsCapturing(native_stream(v, s), &status);
	gpu_unbind(&b);
	return r == GPU_OK && status != GPU_CAPTURE_NONE;
}
