/* SPDX-License-Identifier: MIT */
/* Streams, events, images and launches, over libcuda. */
#include "hip_on_cuda.h"

#include <stdlib.h>

/* This side's legacy stream is 0, the other's 1 (its 0 means the same); each thread's own is 2
   on both. */
cu_stream over_stream(hip_stream stream)
{
	return stream ? stream : (cu_stream)1;
}

hip_result hipStreamCreateWithFlags(hip_stream *stream, unsigned int flags)
{
	IN_CONTEXT(StreamCreate(stream, flags));
}

hip_result hipStreamDestroy(hip_stream stream)
{
	IN_CONTEXT(StreamDestroy(stream));
}

hip_result hipStreamQuery(hip_stream stream)
{
	IN_CONTEXT(StreamQuery(over_stream(stream)));
}

hip_result hipStreamWaitEvent(hip_stream stream, hip_event event, unsigned int flags)
{
	IN_CONTEXT(StreamWaitEvent(over_stream(stream), event, flags));
}

hip_result hipStreamIsCapturing(hip_stream stream, hip_capture_status *status)
{
	IN_CONTEXT(StreamIsCapturing(over_stream(stream), status));
}

hip_result hipEventCreateWithFlags(hip_event *event, unsigned int flags)
{
	IN_CONTEXT(EventCreate(event, flags));
}

hip_result hipEventDestroy(hip_event event)
{
	IN_CONTEXT(EventDestroy(event));
}

hip_result hipEventRecord(hip_event event, hip_stream stream)
{
	IN_CONTEXT(EventRecord(event, over_stream(stream)));
}

hip_result hipEventQuery(hip_event event)
{
	IN_CONTEXT(EventQuery(event));
}

hip_result hipMemcpyAsync(
	void *dst, const void *src, size_t n, hip_copy_kind kind, hip_stream stream)
{
	(void)kind;
	IN_CONTEXT(MemcpyAsync(dst, (void *)(uintptr_t)src, n, over_stream(stream)));
}

hip_result hipMemsetAsync(void *dst, int byte, size_t n, hip_stream stream)
{
	IN_CONTEXT(MemsetD8Async(dst, (unsigned char)byte, n, over_stream(stream)));
}

hip_result hipMallocAsync(void **ptr, size_t size, hip_stream stream)
{
	IN_CONTEXT(MemAllocAsync(ptr, size, over_stream(stream)));
}

hip_result hipFreeAsync(void *ptr, hip_stream stream)
{
	IN_CONTEXT(MemFreeAsync(ptr, over_stream(stream)));
}

hip_result hipLaunchHostFunc(hip_stream stream, hip_host_fn fn, void *arg)
{
	IN_CONTEXT(LaunchHostFunc(over_stream(stream), fn, arg));
}

struct callback {
	hip_stream stream;
	hip_callback fn;
	void *arg;
};

static void run_callback(void *arg)
{
	struct callback *c = arg;

	c->fn(c->stream, HIP_OK, c->arg);
	free(c);
}

hip_result hipStreamAddCallback(hip_stream stream, hip_callback fn, void *arg, unsigned int flags)
{
	struct callback *c = malloc(sizeof(*c));
	hip_result r;

	(void)flags;
	if (!c)
		return over_end(CU_NO_MEMORY);
	*c = (struct callback){ stream, fn, arg };
	r = hipLaunchHostFunc(stream, run_callback, c);
	if (r != HIP_OK)
		free(c);
	return r;
}

hip_result hipModuleLoadData(hip_module *module, const void *image)
{
	IN_CONTEXT(ModuleLoadData(module, image));
}

hip_result hipModuleUnload(hip_module module)
{
	IN_CONTEXT(ModuleUnload(module));
}

hip_result hipModuleGetFunction(hip_function *function, hip_module module, const char *name)
{
	cu_result r = over_enter();

	if (r != CU_OK)
		return over_end(r);
	r = over_driver()->ModuleGetFunction(function, module, name);
	/* this runtime has no later loading of single kernels */
	if (r == CU_OK && over_driver()->FuncLoad)
		r = over_driver()->FuncLoad(*function);
	return over_leave(r);
}

hip_result hipModuleLaunchKernel(hip_function function, unsigned int gx, unsigned int gy,
	unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
	hip_stream stream, void **params, void **extra)
{
	void *cuda[] = { CU_LAUNCH_BUFFER, extra[1], CU_LAUNCH_SIZE, extra[3], CU_LAUNCH_END };

	if (extra[0] != HIP_LAUNCH_BUFFER || extra[2] != HIP_LAUNCH_SIZE ||
		extra[4] != HIP_LAUNCH_END)
		return over_end(CU_INVALID_VALUE);
	IN_CONTEXT(LaunchKernel(
		function, gx, gy, gz, bx, by, bz, shared, over_stream(stream), params, cuda));
}
