/* SPDX-License-Identifier: MIT */
/* In which contexts the cuda backend queues copies and events, over the stand-in for libcuda. */
#include "standin.h"

#include <errno.h>

#include "src/device/gpu/abi_cuda_calls.h"

#define B (&backend_cuda)

static struct {
	struct standin s;
	int (*depth)(void);
	void *(*context_of)(int dev);
	cu_result (*push)(cu_context context);
} drv;

TestSuite(cuda_queues, .timeout = 60);

/* Two devices; of the first one 256 bytes, a stream and an event. */
static char *start(device_stream *s, device_event *e)
{
	void *p = NULL;

	standin_load(&drv.s, B, "SPMT_CUDA_LIB", FAKES "/fake-cuda.so");
	standin_symbol(&drv.s, "fake_context_depth", &drv.depth);
	standin_symbol(&drv.s, "fake_context_of", &drv.context_of);
	standin_symbol(&drv.s, "cuCtxPushCurrent_v2", &drv.push);
	cr_assert(!B->open(0) && !B->open(1) && !B->stream_create(0, s));
	cr_assert_eq(B->event_create(0, e), 0);
	cr_assert_eq(B->alloc(0, 256, DEVICE_MEMORY_PLAIN, &p), 0);
	return p;
}

/* Where a context is current, whichever that is, no other is put before it. */
static void queue_calmly(
	const char *call, int calls, int result, char *p, device_stream s, device_event e)
{
	drv.s.fail(call, result != 0, result);
	cr_expect_eq(B->copy(0, p + 128, p, 8, s), 0, "%s", status_sentence());
	cr_expect_eq(B->event_record(0, e, s), 0, "%s", status_sentence());
	cr_expect_eq(B->stream_wait_event(0, s, e), 0, "%s", status_sentence());
	cr_expect_eq(drv.s.calls(), calls, "%s: %d calls", call, drv.s.calls());
}

/* What only queues leaves the thread's capture mode alone, in whatever context it is called; what a capture elsewhere would end by does not. */
Test(cuda_queues, calm_calls)
{
	device_stream s;
	device_event e;
	char *p = start(&s, &e);

	drv.s.set_capturing(true);
	for (int deep = 0; deep < 2; deep++) {
		queue_calmly("cuCtxPushCurrent", deep ? 0 : 3, 0, p, s, e);
		queue_calmly("cuCtxGetCurrent", deep ? 0 : 3, 0, p, s, e);
		queue_calmly("cuThreadExchangeStreamCaptureMode", deep ? 0 : 6, 0, p, s, e);
		cr_expect_geq(B->event_query(0, e), 0, "%s", status_sentence());
		cr_expect_geq(B->stream_query(0, s), 0, "%s", status_sentence());
		cr_expect_eq(B->copy(0, p + 8, p, 100, s), 0, "%s", status_sentence());
		cr_expect_eq(B->copy(0, p + 128, p, 8, DEVICE_STREAM_LEGACY), 0);
		cr_expect_eq(drv.s.calls(), deep ? 8 : 14);
		drv.push(drv.context_of(1));
	}
	cr_expect_eq(drv.depth(), 2);
}

/* Whatever another context says to them, the device's own is asked before they fail, with the words for that. */
Test(cuda_queues, what_fails_elsewhere)
{
	static const char *const calls[] = { "cuMemcpyAsync", "cuEventRecord",
		"cuStreamWaitEvent" };
	const char *text;
	device_stream s;
	device_event e;
	char *p = start(&s, &e);

	drv.push(drv.context_of(1));
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		queue_calmly(calls[i], 1, 0, p, s, e);
		queue_calmly(calls[i], 2, CU_INVALID_VALUE, p, s, e);
		queue_calmly(calls[i], 2, 709 /* CUDA_ERROR_CONTEXT_IS_DESTROYED */, p, s, e);
	}
	drv.s.fail("cuMemcpyAsync", 0, 0);
	cr_expect_eq(B->copy(0, p + 8, p, 100, s), 0, "%s", status_sentence());
	cr_expect_eq(drv.s.calls(), 13, "of 8 bytes: %d copies", drv.s.calls());
	cr_expect_eq(B->copy(0, p + 128, p, 8, p), -EINVAL, "p is no stream");
	text = status_sentence();
	cr_expect(strstr(text, "copy of 8 bytes") && strstr(text, "device 0"), "%s", text);
	cr_expect_eq(drv.depth(), 1);
	drv.s.fail("cuCtxPushCurrent", 1, 999);
	cr_expect_lt(B->copy(0, p + 128, p, 8, p), 0);
	cr_expect_eq(drv.depth(), 1);
}
