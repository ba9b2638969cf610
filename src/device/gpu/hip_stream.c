/* SPDX-License-Identifier: MIT */
/* AMD: streams, events and what runs in them. */
#include <errno.h>
#include <string.h>

#include "hip_state.h"
#include "src/base/mem.h"
#include "src/base/status.h"

/* The runtime's legacy stream is NULL; its stream of each thread is 2, as ours. */
static hip_stream native(device_stream s)
{
	return s == DEVICE_STREAM_LEGACY ? NULL : s;
}

int hip_stream_create(int dev, device_stream *s)
{
	struct hip_bound b;
	hip_stream stream;
	int rc = hip_bind_for(&b, dev, FAULT_DEVICE, "stream_create");

	if (rc < 0)
		return rc;
	rc = hip_done(&b, b.api->StreamCreateWithFlags(&stream, HIP_NON_BLOCKING), "stream_create");
	if (!rc)
		*s = stream;
	return rc;
}

int hip_stream_destroy(int dev, device_stream s)
{
	struct hip_bound b;
	int rc;

	if (!s || s == DEVICE_STREAM_LEGACY || s == DEVICE_STREAM_PER_THREAD)
		return fail(-EINVAL, "hip: stream_destroy: %p is no stream of stream_create", s);
	rc = hip_bind(&b, dev, "stream_destroy");
	return rc < 0 ? rc : hip_done(&b, b.api->StreamDestroy(s), "stream_destroy");
}

static int hip_answer(hip_result r, int dev, const char *what)
{
	if (r == HIP_OK)
		return 1;
	if (r == HIP_NOT_READY)
		return 0;
	return hip_fail(r, "%s on device %d", what, dev);
}

struct hip_polled {
	struct hip_bound bound;
	device_stream stream;
};

static int hip_poll_stream(void *ctx)
{
	const struct hip_polled *p = ctx;

	return hip_answer(p->bound.api->StreamQuery(p->stream), p->bound.dev, "work in a stream");
}

static int hip_poll_begin(struct hip_polled *p, int dev, device_stream s, const char *what)
{
	if (!s)
		return fail(-EINVAL, "hip: %s: no stream given on device %d", what, dev);
	p->stream = native(s);
	return hip_bind(&p->bound, dev, what);
}

int hip_stream_query(int dev, device_stream s)
{
	struct hip_polled p;
	int rc = hip_poll_begin(&p, dev, s, "stream_query");

	if (rc < 0)
		return rc;
	rc = hip_poll_stream(&p);
	hip_unbind(&p.bound);
	return rc;
}

int hip_stream_sync(int dev, device_stream s, int64_t timeout_ns, const uint32_t *stop)
{
	struct hip_polled p;
	int rc = hip_poll_begin(&p, dev, s, "stream_sync");

	if (rc < 0)
		return rc;
	rc = vendor_wait(hip_poll_stream, &p, timeout_ns, stop);
	hip_unbind(&p.bound);
	return rc;
}

/* hipStreamGetId is of 7.1, and does not say that a number never comes again. */
uint64_t hip_stream_id(int dev, device_stream s)
{
	(void)dev;
	(void)s;
	return 0;
}

int hip_zero(const struct hip_bound *bound, void *ptr, size_t size)
{
	struct hip_polled p = { *bound, bound->device->kept.stream };
	hip_result r = bound->api->MemsetAsync(ptr, 0, size, p.stream);

	if (r != HIP_OK)
		return hip_fail(r, "zeroing %zu bytes of device %d", size, bound->dev);
	return vendor_wait(hip_poll_stream, &p, -1, NULL);
}

int hip_event_create(int dev, device_event *e)
{
	struct hip_bound b;
	hip_event event;
	int rc = hip_bind_for(&b, dev, FAULT_DEVICE, "event_create");

	if (rc < 0)
		return rc;
	rc = hip_done(&b, b.api->EventCreateWithFlags(&event, HIP_NO_TIMING), "event_create");
	if (!rc)
		*e = event;
	return rc;
}

int hip_event_destroy(int dev, device_event e)
{
	struct hip_bound b;
	int rc = hip_bind(&b, dev, "event_destroy");

	return rc < 0 ? rc : hip_done(&b, b.api->EventDestroy(e), "event_destroy");
}

int hip_event_record(int dev, device_event e, device_stream s)
{
	struct hip_bound b;
	int rc = hip_bind_stream(&b, dev, s, "event_record");

	return rc < 0 ? rc : hip_done(&b, b.api->EventRecord(e, native(s)), "event_record");
}

struct hip_polled_event {
	struct hip_bound bound;
	device_event event;
};

static int hip_poll_event(void *ctx)
{
	const struct hip_polled_event *p = ctx;

	return hip_answer(p->bound.api->EventQuery(p->event), p->bound.dev, "work before an event");
}

int hip_event_query(int dev, device_event e)
{
	struct hip_polled_event p = { .event = e };
	int rc = hip_bind(&p.bound, dev, "event_query");

	if (rc < 0)
		return rc;
	rc = hip_poll_event(&p);
	hip_unbind(&p.bound);
	return rc;
}

int hip_event_sync(int dev, device_event e, int64_t timeout_ns, const uint32_t *stop)
{
	struct hip_polled_event p = { .event = e };
	int rc = hip_bind(&p.bound, dev, "event_sync");

	if (rc < 0)
		return rc;
	rc = vendor_wait(hip_poll_event, &p, timeout_ns, stop);
	hip_unbind(&p.bound);
	return rc;
}

int hip_stream_wait_event(int dev, device_stream s, device_event e)
{
	struct hip_bound b;
	int rc = hip_bind_stream(&b, dev, s, "stream_wait_event");

	return rc < 0 ? rc
		      : hip_done(&b, b.api->StreamWaitEvent(native(s), e, 0), "stream_wait_event");
}

/* ---- copies */

static int hip_copy_piece(void *ctx, void *dst, const void *src, size_t n)
{
	const struct hip_polled *p = ctx;
	hip_result r = p->bound.api->MemcpyAsync(dst, src, n, HIP_COPY_ANY, p->stream);

	if (LIKELY(r == HIP_OK))
		return 0;
	return hip_fail(
		r, "copy of %zu bytes from %p to %p on device %d", n, src, dst, p->bound.dev);
}

/* By way of memory that lives in the stream: the runtime leaves overlapping copies undefined. */
static int hip_copy_twice(struct hip_polled *p, void *dst, const void *src, size_t n)
{
	const struct hip_api *api = p->bound.api;
	void *by;
	hip_result r;
	int rc;

	if (!api->MallocAsync || !api->FreeAsync)
		return fail(-ENOTSUP,
			"hip: copy: this runtime cannot copy %zu bytes to %p, %p overlaps", n, dst,
			src);
	r = api->MallocAsync(&by, n, p->stream);
	if (r != HIP_OK)
		return hip_fail(r, "copy of %zu bytes that overlap: a buffer on device %d", n,
			p->bound.dev);
	rc = hip_copy_piece(p, by, src, n);
	if (!rc)
		rc = hip_copy_piece(p, dst, by, n);
	api->FreeAsync(by, p->stream);
	return rc;
}

int hip_copy(int dev, void *dst, const void *src, size_t n, device_stream s)
{
	struct hip_polled p = { .stream = native(s) };
	int rc;

	if (!n)
		return 0;
	rc = hip_bind_stream(&p.bound, dev, s, "copy");
	if (rc < 0)
		return rc;
	if (LIKELY(!vendor_overlaps(dst, src, n)))
		rc = hip_copy_piece(&p, dst, src, n);
	else
		rc = vendor_overlap(dst, src, n, hip_copy_piece, &p);
	if (rc == -E2BIG)
		rc = hip_copy_twice(&p, dst, src, n);
	hip_unbind(&p.bound);
	return rc;
}

int hip_fill(int dev, void *dst, int byte, size_t n, device_stream s)
{
	struct hip_bound b;
	int rc;

	if (!n)
		return 0;
	rc = hip_bind_stream(&b, dev, s, "fill");
	if (rc < 0)
		return rc;
	return hip_done(&b, b.api->MemsetAsync(dst, (unsigned char)byte, n, native(s)), "fill");
}

/* For 5.2, which declares hipLaunchHostFunc and does not have it. */
struct callback {
	void (*fn)(void *arg);
	void *arg;
};

static void run_callback(hip_stream stream, hip_result status, void *arg)
{
	struct callback *c = arg;

	(void)stream;
	(void)status;
	c->fn(c->arg);
	mem_free(c);
}

static hip_result add_callback(
	const struct hip_api *api, hip_stream s, void (*fn)(void *arg), void *arg)
{
	struct callback *c = mem_calloc(1, sizeof(*c));
	hip_result r;

	if (!c)
		return (hip_result)HIP_NO_MEMORY;
	*c = (struct callback){ fn, arg };
	r = api->StreamAddCallback(s, run_callback, c, 0);
	if (r != HIP_OK)
		mem_free(c);
	return r;
}

int hip_call(int dev, device_stream s, void (*fn)(void *arg), void *arg)
{
	struct hip_bound b;
	hip_result r;
	int rc = hip_bind_stream(&b, dev, s, "call");

	if (rc < 0)
		return rc;
	if (b.api->LaunchHostFunc)
		r = b.api->LaunchHostFunc(native(s), fn, arg);
	else
		r = add_callback(b.api, native(s), fn, arg);
	return hip_done(&b, r, "call");
}

int hip_launch(int dev, device_stream s, const struct kernel *k, unsigned grid, unsigned block,
	const void *args, size_t size)
{
	void *extra[] = { HIP_LAUNCH_BUFFER, NULL, HIP_LAUNCH_SIZE, &size, HIP_LAUNCH_END };
	struct hip_bound b;
	hip_function function;
	hip_result r;
	int rc = hip_bind_stream(&b, dev, s, "launch");

	if (rc < 0)
		return rc;
	function = vendor_kernel(&b.device->kept.kernels, k, "hip", b.device->kept.arch, &rc);
	if (!function) {
		hip_unbind(&b);
		return rc;
	}
	memcpy(&extra[1], &args, sizeof(args)); /* the runtime's table has no const */
	r = b.api->ModuleLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, native(s), NULL, extra);
	hip_unbind(&b);
	if (LIKELY(r == HIP_OK))
		return 0;
	return hip_fail(r, "launch of '%s', %u x %u, on device %d", k->name, grid, block, dev);
}

bool hip_capturing(int dev, device_stream s)
{
	hip_capture_status status = HIP_CAPTURE_NONE;
	struct hip_bound b;
	hip_result r;

	if (!s || hip_bind(&b, dev, "capturing") < 0)
		return false;
	r = b.api->StreamIsCapturing(native(s), &status);
	hip_unbind(&b);
	return r == HIP_OK && status != HIP_CAPTURE_NONE;
}
