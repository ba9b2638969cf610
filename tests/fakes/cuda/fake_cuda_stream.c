/* SPDX-License-Identifier: MIT */
/* A libcuda.so.1 over host memory: streams, events, images and launches. */
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

/* NULL: not a stream of the current context. */
static struct fake_stream *stream_of(cu_stream handle)
{
	int dev = fake_cuda_current();
	uintptr_t number = (uintptr_t)handle;

	if (number <= 2)
		return fake_stream_default(dev, number == 2 ? 2 : 1);
	return fake_stream_valid(handle) && fake_stream_dev(handle) == dev ? handle : NULL;
}

/* Copies and events a stream with a handle takes in any context, where launches want its own. */
static struct fake_stream *queue_of(cu_stream handle)
{
	if ((uintptr_t)handle <= 2)
		return stream_of(handle);
	return fake_stream_valid(handle) ? handle : NULL;
}

static bool event_of(cu_event event, cu_stream stream)
{
	return fake_event_valid(event) && queue_of(stream) &&
		fake_event_dev(event) == fake_stream_dev(queue_of(stream));
}

/* What a stream with a handle is asked about itself it answers without any. */
static cu_result asked(cu_stream handle, struct fake_stream **s)
{
	if ((uintptr_t)handle <= 2 && fake_cuda_current() < 0)
		return CU_INVALID_CONTEXT;
	*s = queue_of(handle);
	return *s ? CU_OK : CU_INVALID_HANDLE;
}

cu_result cuStreamCreate(cu_stream *stream, unsigned int flags)
{
	struct fake_stream *s;

	CHECK_CONTEXT("cuStreamCreate");
	if (flags > 1)
		return CU_INVALID_VALUE;
	if (!fake_stream_new(fake_cuda_current(), &s))
		return CU_NO_MEMORY;
	*stream = s;
	return CU_OK;
}

cu_result cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CHECK_CONTEXT("cuCtxGetStreamPriorityRange");
	*least = 0;
	*greatest = -5;
	return CU_OK;
}

cu_result cuStreamCreateWithPriority(cu_stream *stream, unsigned int flags, int priority)
{
	return priority > 0 || priority < -5 ? CU_INVALID_VALUE : cuStreamCreate(stream, flags);
}

static cu_result word(
	const char *name, cu_stream stream, cu_pointer at, cu_word value, unsigned flags)
{
	CHECK_CONTEXT(name);
	if (flags || (uintptr_t)at % 8)
		return CU_INVALID_VALUE;
	if (fake_capturing())
		return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
	if (!stream_of(stream))
		return CU_INVALID_HANDLE;
	return fake_word(stream_of(stream), at, value, !strcmp(name, "cuStreamWaitValue64"))
		? CU_OK
		: CU_INVALID_VALUE;
}

cu_result cuStreamWriteValue64_v2(
	cu_stream stream, cu_pointer at, cu_word value, unsigned int flags)
{
	return word("cuStreamWriteValue64", stream, at, value, flags);
}

cu_result cuStreamWaitValue64_v2(cu_stream stream, cu_pointer at, cu_word value, unsigned int flags)
{
	return word("cuStreamWaitValue64", stream, at, value, flags);
}

cu_result cuStreamDestroy_v2(cu_stream stream)
{
	CHECK_CONTEXT("cuStreamDestroy");
	if (!stream_of(stream) || (uintptr_t)stream <= 2)
		return CU_INVALID_HANDLE;
	fake_stream_end(stream);
	return CU_OK;
}

cu_result cuStreamQuery(cu_stream stream)
{
	struct fake_stream *s;

	CHECK_CONTEXT("cuStreamQuery");
	s = stream_of(stream);
	if (!s)
		return CU_INVALID_HANDLE;
	if (fake_cuda_prohibits())
		return 900;
	return fake_stream_idle(s) ? CU_OK : CU_NOT_READY;
}

cu_result cuStreamGetId(cu_stream stream, unsigned long long *id)
{
	struct fake_stream *s;
	cu_result r;

	CHECK("cuStreamGetId");
	r = asked(stream, &s);
	if (r == CU_OK)
		*id = fake_stream_id(s);
	return r;
}

cu_result cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned int flags)
{
	CHECK_CONTEXT("cuStreamWaitEvent");
	if (flags || !queue_of(stream) || !fake_event_valid(event))
		return CU_INVALID_HANDLE;
	if (fake_event_isolated(event))
		return 905; /* CUDA_ERROR_STREAM_CAPTURE_ISOLATION */
	return fake_wait_event(queue_of(stream), event) ? CU_OK : CU_NO_MEMORY;
}

cu_result cuStreamIsCapturing(cu_stream stream, cu_capture_status *status)
{
	struct fake_stream *s;
	cu_result r;

	CHECK("cuStreamIsCapturing");
	r = asked(stream, &s);
	if (r == CU_OK)
		*status = fake_capturing();
	return r;
}

cu_result cuEventCreate(cu_event *event, unsigned int flags)
{
	CHECK_CONTEXT("cuEventCreate");
	if (flags & ~7u)
		return CU_INVALID_VALUE;
	*event = fake_event_new(fake_cuda_current());
	return CU_OK;
}

cu_result cuEventDestroy_v2(cu_event event)
{
	CHECK_CONTEXT("cuEventDestroy");
	if (!fake_event_valid(event))
		return CU_INVALID_HANDLE;
	fake_event_end(event);
	return CU_OK;
}

cu_result cuEventRecord(cu_event event, cu_stream stream)
{
	CHECK_CONTEXT("cuEventRecord");
	if (!event_of(event, stream))
		return CU_INVALID_HANDLE;
	return fake_record(event, queue_of(stream)) ? CU_OK : CU_NO_MEMORY;
}

cu_result cuEventQuery(cu_event event)
{
	CHECK_CONTEXT("cuEventQuery");
	if (!fake_event_valid(event))
		return CU_INVALID_HANDLE;
	if (fake_cuda_prohibits())
		return 900;
	return fake_event_done(event) ? CU_OK : CU_NOT_READY;
}

/* ---- work */

/* Overlap is undefined for the driver; here it is refused, so that nobody relies on it. */
cu_result cuMemcpyAsync(cu_pointer dst, cu_pointer src, size_t n, cu_stream stream)
{
	struct fake_stream *s;

	CHECK_CONTEXT("cuMemcpyAsync");
	s = queue_of(stream);
	if (!s)
		return CU_INVALID_HANDLE;
	if (dst != src &&
		(dst > src ? (char *)dst - (char *)src : (char *)src - (char *)dst) < (ptrdiff_t)n)
		return CU_INVALID_VALUE;
	return fake_copy(s, dst, src, n) ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemsetD8Async(cu_pointer dst, unsigned char byte, size_t n, cu_stream stream)
{
	struct fake_stream *s;

	CHECK_CONTEXT("cuMemsetD8Async");
	s = stream_of(stream);
	if (!s)
		return CU_INVALID_HANDLE;
	return fake_set(s, dst, byte, n) ? CU_OK : CU_INVALID_VALUE;
}

/* Freed in stream order, by the stream. */
static void free_block(void *ptr)
{
	fake_block_free(ptr, FAKE_DEVICE);
}

static void run_fn(struct fake_op *op)
{
	op->fn(op->arg);
}

cu_result cuMemAllocAsync(cu_pointer *ptr, size_t size, cu_stream stream)
{
	void *p;

	CHECK_CONTEXT("cuMemAllocAsync");
	if (!stream_of(stream))
		return CU_INVALID_HANDLE;
	if (fake_cuda_prohibits())
		return 900;
	if (!fake_block_new(fake_cuda_current(), size, FAKE_DEVICE, &p))
		return CU_NO_MEMORY;
	*ptr = p;
	return CU_OK;
}

cu_result cuMemFreeAsync(cu_pointer ptr, cu_stream stream)
{
	struct fake_op op = { .run = run_fn, .fn = free_block, .arg = ptr };

	CHECK_CONTEXT("cuMemFreeAsync");
	return stream_of(stream) && fake_stream_push(stream_of(stream), &op) ? CU_OK
									     : CU_INVALID_HANDLE;
}

cu_result cuLaunchHostFunc(cu_stream stream, cu_host_fn fn, void *arg)
{
	struct fake_op op = { .run = run_fn, .fn = fn, .arg = arg };

	CHECK_CONTEXT("cuLaunchHostFunc");
	return stream_of(stream) && fake_stream_push(stream_of(stream), &op) ? CU_OK
									     : CU_INVALID_HANDLE;
}

/* ---- images */

/* Takes a cubin as it is, and PTX for sm_90 and below, as a device of that kind does. */
cu_result cuModuleLoadData(cu_module *module, const void *image)
{
	struct fake_module *m;
	const char *target;

	CHECK_CONTEXT("cuModuleLoadData");
	if (memcmp(image, "\177ELF", 4)) {
		target = strstr(image, ".target sm_");
		if (!target || atoi(target + strlen(".target sm_")) > 90)
			return 218; /* CUDA_ERROR_INVALID_PTX */
	}
	m = fake_module_new(fake_cuda_current());
	if (!m)
		return CU_NO_MEMORY;
	*module = m;
	return CU_OK;
}

cu_result cuModuleUnload(cu_module module)
{
	CHECK_CONTEXT("cuModuleUnload");
	fake_module_end(module);
	return CU_OK;
}

cu_result cuModuleGetFunction(cu_function *function, cu_module module, const char *name)
{
	void (*host)(const void *args) = fake_kernel_find(name);

	CHECK_CONTEXT("cuModuleGetFunction");
	(void)module;
	if (!host)
		return CU_NOT_FOUND;
	memcpy(function, &host, sizeof(host));
	return CU_OK;
}

cu_result cuFuncLoad(cu_function function)
{
	CHECK_CONTEXT("cuFuncLoad");
	return function ? CU_OK : CU_INVALID_HANDLE;
}

static cu_result launch_as(
	const cu_launch *launch, cu_function function, void **params, void **extra)
{
	const unsigned *grid = launch->grid, *block = launch->block;
	struct fake_stream *stream = stream_of(launch->stream);
	size_t size;

	if (!grid[0] || grid[1] != 1 || grid[2] != 1 || !block[0] || block[0] > 1024 ||
		block[1] != 1 || block[2] != 1 || launch->shared || params || !extra)
		return CU_INVALID_VALUE;
	if (extra[0] != CU_LAUNCH_BUFFER || extra[2] != CU_LAUNCH_SIZE || extra[4] != CU_LAUNCH_END)
		return CU_INVALID_VALUE;
	memcpy(&size, extra[3], sizeof(size));
	if (size > FAKE_ARGS || !stream)
		return CU_INVALID_HANDLE;
	return fake_launch(stream, function, extra[1], size) ? CU_OK : CU_NO_MEMORY;
}

cu_result cuLaunchKernelEx(
	const cu_launch *launch, cu_function function, void **params, void **extra)
{
	int on = 0;

	CHECK_CONTEXT("cuLaunchKernelEx");
	if (launch->count != 1 || launch->attributes[0].id != CU_LAUNCH_EARLY)
		return CU_INVALID_VALUE;
	memcpy(&on, launch->attributes[0].value, sizeof(on));
	return on == 1 ? launch_as(launch, function, params, extra) : CU_INVALID_VALUE;
}

/* long because the driver's parameters are many */
cu_result cuLaunchKernel(cu_function function, unsigned int gx, unsigned int gy, unsigned int gz,
	unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared, cu_stream stream,
	void **params, void **extra)
{
	const cu_launch launch = {
		.grid = { gx, gy, gz }, .block = { bx, by, bz }, .shared = shared, .stream = stream
	};

	CHECK_CONTEXT("cuLaunchKernel");
	return launch_as(&launch, function, params, extra);
}
