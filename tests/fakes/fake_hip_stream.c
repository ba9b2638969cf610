/* SPDX-License-Identifier: MIT */
/* A libamdhip64 over host memory: streams, events, images and launches. A stream is of use while
   its device is current. */
#include "fake_hip.h"

#include <stdlib.h>
#include <string.h>

/* NULL: not a stream of the current device. The legacy stream is 0, each thread's own is 2. */
static struct fake_stream *stream_of(hip_stream handle)
{
	if (!handle || (uintptr_t)handle == 2)
		return fake_stream_default(fake_hip_current(), handle ? 2 : 1);
	return fake_stream_valid(handle) && fake_stream_dev(handle) == fake_hip_current() ? handle
											  : NULL;
}

hip_result hipStreamCreateWithFlags(hip_stream *stream, unsigned int flags)
{
	struct fake_stream *s;

	CALL("hipStreamCreateWithFlags");
	if (flags > 1)
		return fake_hip_end(HIP_INVALID_VALUE);
	if (!fake_stream_new(fake_hip_current(), &s))
		return fake_hip_end(HIP_NO_MEMORY);
	*stream = s;
	GIVE(true, HIP_OK);
}

hip_result hipStreamWriteValue64(hip_stream stream, void *at, uint64_t value, unsigned int flags)
{
	CALL("hipStreamWriteValue64");
	GIVE(!flags && stream_of(stream) && fake_word(stream_of(stream), at, value, false),
		HIP_INVALID_VALUE);
}

hip_result hipStreamWaitValue64(
	hip_stream stream, void *at, uint64_t value, unsigned int flags, uint64_t mask)
{
	CALL("hipStreamWaitValue64");
	GIVE(!flags && mask == UINT64_MAX && stream_of(stream) &&
			fake_word(stream_of(stream), at, value, true),
		HIP_INVALID_VALUE);
}

hip_result hipStreamDestroy(hip_stream stream)
{
	CALL("hipStreamDestroy");
	if ((uintptr_t)stream <= 2 || !stream_of(stream))
		return fake_hip_end(HIP_INVALID_HANDLE);
	fake_stream_end(stream);
	GIVE(true, HIP_OK);
}

hip_result hipStreamQuery(hip_stream stream)
{
	struct fake_stream *s;

	CALL("hipStreamQuery");
	s = stream_of(stream);
	if (!s)
		return fake_hip_end(HIP_INVALID_HANDLE);
	GIVE(fake_stream_idle(s), HIP_NOT_READY);
}

hip_result hipStreamWaitEvent(hip_stream stream, hip_event event, unsigned int flags)
{
	CALL("hipStreamWaitEvent");
	if (fake_event_valid(event) && fake_event_isolated(event))
		return fake_hip_end(905); /* hipErrorStreamCaptureIsolation */
	GIVE(!flags && stream_of(stream) && fake_event_valid(event) &&
			fake_wait_event(stream_of(stream), event),
		HIP_INVALID_HANDLE);
}

hip_result hipStreamIsCapturing(hip_stream stream, hip_capture_status *status)
{
	CALL("hipStreamIsCapturing");
	*status = fake_capturing();
	GIVE(stream_of(stream), HIP_INVALID_HANDLE);
}

hip_result hipEventCreateWithFlags(hip_event *event, unsigned int flags)
{
	CALL("hipEventCreateWithFlags");
	if (flags & ~7u)
		return fake_hip_end(HIP_INVALID_VALUE);
	*event = fake_event_new(fake_hip_current());
	GIVE(true, HIP_OK);
}

hip_result hipEventDestroy(hip_event event)
{
	CALL("hipEventDestroy");
	if (!fake_event_valid(event))
		return fake_hip_end(HIP_INVALID_HANDLE);
	fake_event_end(event);
	GIVE(true, HIP_OK);
}

hip_result hipEventRecord(hip_event event, hip_stream stream)
{
	CALL("hipEventRecord");
	GIVE(fake_event_valid(event) && fake_event_dev(event) == fake_hip_current() &&
			stream_of(stream) && fake_record(event, stream_of(stream)),
		HIP_INVALID_HANDLE);
}

hip_result hipEventQuery(hip_event event)
{
	CALL("hipEventQuery");
	if (!fake_event_valid(event))
		return fake_hip_end(HIP_INVALID_HANDLE);
	GIVE(fake_event_done(event), HIP_NOT_READY);
}

/* ---- work */

hip_result hipMemcpyAsync(
	void *dst, const void *src, size_t n, hip_copy_kind kind, hip_stream stream)
{
	uintptr_t d = (uintptr_t)dst, s = (uintptr_t)src;

	CALL("hipMemcpyAsync");
	if (kind != HIP_COPY_ANY || !stream_of(stream) || (d != s && (d > s ? d - s : s - d) < n))
		return fake_hip_end(HIP_INVALID_VALUE);
	GIVE(fake_copy(stream_of(stream), dst, src, n), HIP_INVALID_VALUE);
}

hip_result hipMemsetAsync(void *dst, int byte, size_t n, hip_stream stream)
{
	CALL("hipMemsetAsync");
	GIVE(stream_of(stream) && fake_set(stream_of(stream), dst, byte, n), HIP_INVALID_VALUE);
}

static void free_block(void *ptr)
{
	fake_block_free(ptr, FAKE_DEVICE);
}

static void run_fn(struct fake_op *op)
{
	op->fn(op->arg);
}

static void run_status(struct fake_op *op)
{
	op->fn_status((void *)(uintptr_t)op->value, 0, op->arg);
}

hip_result hipMallocAsync(void **ptr, size_t size, hip_stream stream)
{
	CALL("hipMallocAsync");
	GIVE(stream_of(stream) && fake_block_new(fake_hip_current(), size, FAKE_DEVICE, ptr),
		HIP_NO_MEMORY);
}

hip_result hipFreeAsync(void *ptr, hip_stream stream)
{
	struct fake_op op = { .run = run_fn, .fn = free_block, .arg = ptr };

	CALL("hipFreeAsync");
	GIVE(stream_of(stream) && fake_stream_push(stream_of(stream), &op), HIP_INVALID_HANDLE);
}

#if FAKE_HIP_MAJOR >= 6 /* declared in 5.2's header, and not exported */
hip_result hipLaunchHostFunc(hip_stream stream, hip_host_fn fn, void *arg)
{
	struct fake_op op = { .run = run_fn, .fn = fn, .arg = arg };

	CALL("hipLaunchHostFunc");
	GIVE(stream_of(stream) && fake_stream_push(stream_of(stream), &op), HIP_INVALID_HANDLE);
}
#endif

hip_result hipStreamAddCallback(hip_stream stream, hip_callback fn, void *arg, unsigned int flags)
{
	struct fake_op op = {
		.run = run_status, .fn_status = fn, .arg = arg, .value = (uintptr_t)stream
	};

	CALL("hipStreamAddCallback");
	GIVE(!flags && stream_of(stream) && fake_stream_push(stream_of(stream), &op),
		HIP_INVALID_HANDLE);
}

/* ---- images */

/* A code object, little-endian ELF for gfx942 (0x4c in the flags), and nothing else. */
hip_result hipModuleLoadData(hip_module *module, const void *image)
{
	const unsigned char *elf = image;
	struct fake_module *m;

	CALL("hipModuleLoadData");
	if (memcmp(elf, "\177ELF", 4) || elf[48] != 0x4c)
		return fake_hip_end(200); /* hipErrorInvalidImage */
	m = fake_module_new(fake_hip_current());
	if (!m)
		return fake_hip_end(HIP_NO_MEMORY);
	*module = m;
	GIVE(true, HIP_OK);
}

hip_result hipModuleUnload(hip_module module)
{
	CALL("hipModuleUnload");
	fake_module_end(module);
	GIVE(true, HIP_OK);
}

hip_result hipModuleGetFunction(hip_function *function, hip_module module, const char *name)
{
	void (*host)(const void *args) = fake_kernel_find(name);

	CALL("hipModuleGetFunction");
	(void)module;
	if (host)
		memcpy(function, &host, sizeof(host));
	GIVE(host, HIP_NOT_FOUND);
}

hip_result hipModuleLaunchKernel(hip_function function, unsigned int gx, unsigned int gy,
	unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
	hip_stream stream, void **params, void **extra)
{
	size_t size;

	CALL("hipModuleLaunchKernel");
	if (!gx || gy != 1 || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1 || shared ||
		params || !extra)
		return fake_hip_end(HIP_INVALID_VALUE);
	if (extra[0] != HIP_LAUNCH_BUFFER || extra[2] != HIP_LAUNCH_SIZE ||
		extra[4] != HIP_LAUNCH_END)
		return fake_hip_end(HIP_INVALID_VALUE);
	memcpy(&size, extra[3], sizeof(size));
	if (size > FAKE_ARGS || !stream_of(stream))
		return fake_hip_end(HIP_INVALID_HANDLE);
	GIVE(fake_launch(stream_of(stream), function, extra[1], size), HIP_NO_MEMORY);
}
