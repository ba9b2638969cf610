/* SPDX-License-Identifier: MIT */
/* NVIDIA: streams, events and what runs in them. The default streams' values are the driver's
   own. */
#include <errno.h>
#include <string.h>

#include "cuda_state.h"
#include "src/base/process.h"
#include "src/base/status.h"

int cuda_stream_create(int dev, device_stream *s)
{
	struct cuda_bound b;
	cu_stream stream;
	int rc = cuda_bind_for(&b, dev, FAULT_DEVICE, "stream_create");

	if (rc < 0)
		return rc;
	rc = cuda_done(&b, b.api->StreamCreate(&stream, CU_NON_BLOCKING), "stream_create");
	if (!rc)
		*s = stream;
	return rc;
}

int cuda_stream_destroy(int dev, device_stream s)
{
	struct cuda_bound b;
	int rc;

	if (!s || s == DEVICE_STREAM_LEGACY || s == DEVICE_STREAM_PER_THREAD)
		return fail(-EINVAL, "cuda: stream_destroy: %p is no stream of stream_create", s);
	rc = cuda_bind(&b, dev, "stream_destroy");
	return rc < 0 ? rc : cuda_done(&b, b.api->StreamDestroy(s), "stream_destroy");
}

static int cuda_answer(cu_result r, int dev, const char *what)
{
	if (r == CU_OK)
		return 1;
	if (r == CU_NOT_READY)
		return 0;
	return cuda_fail(r, "%s on device %d", what, dev);
}

struct cuda_polled {
	struct cuda_bound bound;
	device_stream stream;
};

static int cuda_poll_stream(void *ctx)
{
	const struct cuda_polled *p = ctx;

	return cuda_answer(p->bound.api->StreamQuery(p->stream), p->bound.dev, "work in a stream");
}

static int cuda_poll_begin(struct cuda_polled *p, int dev, device_stream s, const char *what)
{
	if (!s)
		return fail(-EINVAL, "cuda: %s: no stream given on device %d", what, dev);
	p->stream = s;
	return cuda_bind(&p->bound, dev, what);
}

int cuda_stream_query(int dev, device_stream s)
{
	struct cuda_polled p;
	int rc = cuda_poll_begin(&p, dev, s, "stream_query");

	if (rc < 0)
		return rc;
	rc = cuda_poll_stream(&p);
	cuda_unbind(&p.bound);
	return rc;
}

int cuda_stream_sync(int dev, device_stream s, int64_t timeout_ns, const uint32_t *stop)
{
	struct cuda_polled p;
	int rc = cuda_poll_begin(&p, dev, s, "stream_sync");

	if (rc < 0)
		return rc;
	rc = vendor_wait(cuda_poll_stream, &p, timeout_ns, stop);
	cuda_unbind(&p.bound);
	return rc;
}

/* A stream of the application's or ours says of itself what it is, in whatever context: binding one costs more than the question.
   The default streams are the current context's. */
static bool cuda_speaks(device_stream s)
{
	return (uintptr_t)s > (uintptr_t)DEVICE_STREAM_PER_THREAD;
}

/* From 12.0 on. */
uint64_t cuda_stream_id(int dev, device_stream s)
{
	const struct cuda_api *api = &cuda_state()->api;
	unsigned long long id = 0;
	struct cuda_bound b;
	cu_result r;

	if (cuda_speaks(s) && api->StreamGetId) {
		UNCANCELLED;
		r = api->StreamGetId(s, &id);
		if (r != CU_INVALID_CONTEXT)
			return r == CU_OK ? id : 0;
	}
	if (!s || cuda_bind(&b, dev, "stream_id") < 0)
		return 0;
	if (!b.api->StreamGetId || b.api->StreamGetId(s, &id) != CU_OK)
		id = 0;
	cuda_unbind(&b);
	return id;
}

int cuda_zero(const struct cuda_bound *bound, cu_pointer ptr, size_t size)
{
	struct cuda_polled p = { *bound, bound->device->kept.stream };
	cu_result r = bound->api->MemsetD8Async(ptr, 0, size, p.stream);

	if (r != CU_OK)
		return cuda_fail(r, "zeroing %zu bytes of device %d", size, bound->dev);
	return vendor_wait(cuda_poll_stream, &p, -1, NULL);
}

int cuda_event_create(int dev, device_event *e)
{
	struct cuda_bound b;
	cu_event event;
	int rc = cuda_bind_for(&b, dev, FAULT_DEVICE, "event_create");

	if (rc < 0)
		return rc;
	rc = cuda_done(&b, b.api->EventCreate(&event, CU_NO_TIMING), "event_create");
	if (!rc)
		*e = event;
	return rc;
}

int cuda_event_destroy(int dev, device_event e)
{
	struct cuda_bound b;
	int rc = cuda_bind(&b, dev, "event_destroy");

	return rc < 0 ? rc : cuda_done(&b, b.api->EventDestroy(e), "event_destroy");
}

int cuda_event_record(int dev, device_event e, device_stream s)
{
	struct cuda_bound b;
	int rc = cuda_bind_stream(&b, dev, s, "event_record");

	return rc < 0 ? rc : cuda_done(&b, b.api->EventRecord(e, s), "event_record");
}

struct cuda_polled_event {
	struct cuda_bound bound;
	device_event event;
};

static int cuda_poll_event(void *ctx)
{
	const struct cuda_polled_event *p = ctx;

	return cuda_answer(
		p->bound.api->EventQuery(p->event), p->bound.dev, "work before an event");
}

int cuda_event_query(int dev, device_event e)
{
	struct cuda_polled_event p = { .event = e };
	int rc = cuda_bind(&p.bound, dev, "event_query");

	if (rc < 0)
		return rc;
	rc = cuda_poll_event(&p);
	cuda_unbind(&p.bound);
	return rc;
}

int cuda_event_sync(int dev, device_event e, int64_t timeout_ns, const uint32_t *stop)
{
	struct cuda_polled_event p = { .event = e };
	int rc = cuda_bind(&p.bound, dev, "event_sync");

	if (rc < 0)
		return rc;
	rc = vendor_wait(cuda_poll_event, &p, timeout_ns, stop);
	cuda_unbind(&p.bound);
	return rc;
}

int cuda_stream_wait_event(int dev, device_stream s, device_event e)
{
	struct cuda_bound b;
	int rc = cuda_bind_stream(&b, dev, s, "stream_wait_event");

	return rc < 0 ? rc : cuda_done(&b, b.api->StreamWaitEvent(s, e, 0), "stream_wait_event");
}

/* ---- copies */

static int cuda_copy_piece(void *ctx, void *dst, const void *src, size_t n)
{
	const struct cuda_polled *p = ctx;
	cu_result r = p->bound.api->MemcpyAsync((uintptr_t)dst, (uintptr_t)src, n, p->stream);

	if (LIKELY(r == CU_OK))
		return 0;
	return cuda_fail(
		r, "copy of %zu bytes from %p to %p on device %d", n, src, dst, p->bound.dev);
}

/* By way of memory that lives in the stream: the driver leaves overlapping copies undefined. */
static int cuda_copy_twice(struct cuda_polled *p, void *dst, const void *src, size_t n)
{
	const struct cuda_api *api = p->bound.api;
	cu_pointer by;
	cu_result r;
	int rc;

	if (!api->MemAllocAsync || !api->MemFreeAsync)
		return fail(-ENOTSUP,
			"cuda: copy: this driver cannot copy %zu bytes to %p, %p overlaps", n, dst,
			src);
	r = api->MemAllocAsync(&by, n, p->stream);
	if (r != CU_OK)
		return cuda_fail(r, "copy of %zu bytes that overlap: a buffer on device %d", n,
			p->bound.dev);
	rc = cuda_copy_piece(p, (void *)(uintptr_t)by, src, n);
	if (!rc)
		rc = cuda_copy_piece(p, dst, (void *)(uintptr_t)by, n);
	api->MemFreeAsync(by, p->stream);
	return rc;
}

int cuda_copy(int dev, void *dst, const void *src, size_t n, device_stream s)
{
	struct cuda_polled p = { .stream = s };
	int rc;

	if (!n)
		return 0;
	rc = cuda_bind_stream(&p.bound, dev, s, "copy");
	if (rc < 0)
		return rc;
	if (LIKELY(!vendor_overlaps(dst, src, n)))
		rc = cuda_copy_piece(&p, dst, src, n);
	else
		rc = vendor_overlap(dst, src, n, cuda_copy_piece, &p);
	if (rc == -E2BIG)
		rc = cuda_copy_twice(&p, dst, src, n);
	cuda_unbind(&p.bound);
	return rc;
}

int cuda_fill(int dev, void *dst, int byte, size_t n, device_stream s)
{
	struct cuda_bound b;
	int rc;

	if (!n)
		return 0;
	rc = cuda_bind_stream(&b, dev, s, "fill");
	if (rc < 0)
		return rc;
	return cuda_done(
		&b, b.api->MemsetD8Async((uintptr_t)dst, (unsigned char)byte, n, s), "fill");
}

int cuda_call(int dev, device_stream s, void (*fn)(void *arg), void *arg)
{
	struct cuda_bound b;
	int rc = cuda_bind_stream(&b, dev, s, "call");

	return rc < 0 ? rc : cuda_done(&b, b.api->LaunchHostFunc(s, fn, arg), "call");
}

int cuda_launch(int dev, device_stream s, const struct kernel *k, unsigned grid, unsigned block,
	const void *args, size_t size)
{
	void *extra[] = { CU_LAUNCH_BUFFER, NULL, CU_LAUNCH_SIZE, &size, CU_LAUNCH_END };
	struct cuda_bound b;
	cu_function function;
	cu_result r;
	int rc = cuda_bind_stream(&b, dev, s, "launch");

	if (rc < 0)
		return rc;
	function = vendor_kernel(&b.device->kept.kernels, k, "cuda", b.device->kept.arch, &rc);
	if (!function) {
		cuda_unbind(&b);
		return rc;
	}
	memcpy(&extra[1], &args, sizeof(args)); /* the driver's table has no const */
	r = b.api->LaunchKernel(function, grid, 1, 1, block, 1, 1, 0, s, NULL, extra);
	cuda_unbind(&b);
	if (LIKELY(r == CU_OK))
		return 0;
	return cuda_fail(r, "launch of '%s', %u x %u, on device %d", k->name, grid, block, dev);
}

bool cuda_capturing(int dev, device_stream s)
{
	cu_capture_status status = CU_CAPTURE_NONE;
	struct cuda_bound b;
	cu_result r;

	if (cuda_speaks(s)) {
		UNCANCELLED;
		r = cuda_state()->api.StreamIsCapturing(s, &status);
		if (r != CU_INVALID_CONTEXT)
			return r == CU_OK && status != CU_CAPTURE_NONE;
	}
	if (!s || cuda_bind(&b, dev, "capturing") < 0)
		return false;
	r = b.api->StreamIsCapturing(s, &status);
	cuda_unbind(&b);
	return r == CU_OK && status != CU_CAPTURE_NONE;
}
