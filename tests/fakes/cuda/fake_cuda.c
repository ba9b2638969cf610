/* SPDX-License-Identifier: MIT */
/*
 * A libcuda.so.1 over host memory: contexts and each thread's stack of them, then what needs one.
 * Stricter than the driver where the driver forgives: a launch in a stream of another context, a copy to
 * a peer without access and an unbalanced pop are errors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "fake_cuda.h"

int fake_context_depth(void);
void *fake_context_of(int dev);

#define STACK 16

struct context {
	int dev, retains;
	bool dead; /* reset, and not retained since */
};

static struct context contexts[FAKE_DEVICES]; /* under fake_lock */
static THREAD struct context *stack[STACK];
static THREAD int depth;
static THREAD cu_capture_mode mode;

static bool alive(const struct context *c)
{
	return c && c->retains && !c->dead;
}

int fake_context_depth(void)
{
	return depth;
}

void *fake_context_of(int dev)
{
	return &contexts[dev];
}

static int current(void)
{
	return stack[depth - 1]->dev;
}

/* CUDA_VISIBLE_DEVICES as a list of numbers: the i-th that a process sees is this one; -1: it sees no more. */
static int visible(int i)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	char *end;
	long dev;

	if (!list)
		return i < fake_devices() ? i : -1;
	for (;; list = end + 1) {
		dev = strtol(list, &end, 10);
		if (end == list || dev < 0 || dev >= fake_devices())
			return -1;
		if (!i--)
			return (int)dev;
		if (*end != ',')
			return -1;
	}
}

static int visible_count(void)
{
	int n = 0;

	while (n < FAKE_DEVICES && visible(n) >= 0)
		n++;
	return n;
}

static bool good(int dev)
{
	return dev >= 0 && dev < visible_count();
}

/* ---- the driver and its devices */

cu_result cuInit(unsigned int flags)
{
	if (fake_call("cuInit"))
		return CU_NO_DEVICE;
	if (!fake_same_process())
		return CU_NOT_INITIALIZED;
	return flags ? CU_INVALID_VALUE : visible_count() ? CU_OK : CU_NO_DEVICE;
}

cu_result cuGetErrorName(cu_result error, const char **text)
{
	*text = error == CU_NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
		: error		      ? "CUDA_ERROR"
				      : "CUDA_SUCCESS";
	return CU_OK;
}

cu_result cuGetErrorString(cu_result error, const char **text)
{
	*text = error ? "said by the stand-in" : "no error";
	return CU_OK;
}

cu_result cuDeviceGetCount(int *count)
{
	CHECK("cuDeviceGetCount");
	*count = visible_count();
	return CU_OK;
}

cu_result cuDeviceGet(cu_device *device, int ordinal)
{
	CHECK("cuDeviceGet");
	if (!good(ordinal))
		return CU_INVALID_DEVICE;
	*device = ordinal;
	return CU_OK;
}

cu_result cuDeviceGetName(char *name, int size, cu_device device)
{
	CHECK("cuDeviceGetName");
	snprintf(name, (size_t)size, "stand-in %d", device);
	return CU_OK;
}

cu_result cuDeviceGetUuid_v2(cu_uuid *uuid, cu_device device)
{
	CHECK("cuDeviceGetUuid");
	memset(uuid, 0x40 + visible(device), sizeof(*uuid));
	return CU_OK;
}

cu_result cuDeviceGetPCIBusId(char *id, int size, cu_device device)
{
	CHECK("cuDeviceGetPCIBusId");
	snprintf(id, (size_t)size, "0000:%02X:00.0", 0xFA00 / 256 + visible(device));
	return CU_OK;
}

cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device)
{
	CHECK("cuDeviceTotalMem");
	*bytes = ((size_t)8 << 30) + (size_t)device;
	return CU_OK;
}

cu_result cuDeviceGetAttribute(int *value, cu_attribute what, cu_device device)
{
	CHECK("cuDeviceGetAttribute");
	if (!good(device))
		return CU_INVALID_DEVICE;
	switch (what) {
	case CU_ATTR_UNITS:
		*value = 132;
		return CU_OK;
	case CU_ATTR_MAJOR:
		*value = 9;
		return CU_OK;
	case CU_ATTR_MINOR:
		*value = 0;
		return CU_OK;
	case CU_ATTR_VMM:
	case CU_ATTR_FD:
		*value = !fake_lacks(visible(device), "vmm");
		return CU_OK;
	case CU_ATTR_WORDS:
		*value = !fake_lacks(visible(device), "words");
		return CU_OK;
	case CU_ATTR_MULTICAST:
		*value = !fake_lacks(visible(device), "multicast");
		return CU_OK;
	default:
		return CU_INVALID_VALUE;
	}
}

/* SPMT_FAKE_NOPEER=2: nobody reaches device 2, nor it anybody. */
static bool may_reach(int from, int to)
{
	const char *lone = getenv("SPMT_FAKE_NOPEER");

	return from != to && !(lone && (atoi(lone) == from || atoi(lone) == to));
}

cu_result cuDeviceCanAccessPeer(int *can, cu_device from, cu_device to)
{
	CHECK("cuDeviceCanAccessPeer");
	*can = may_reach(from, to);
	return CU_OK;
}

cu_result cuDeviceGetP2PAttribute(int *value, cu_p2p_attribute what, cu_device from, cu_device to)
{
	CHECK("cuDeviceGetP2PAttribute");
	if (from == to || (what != CU_P2P_ACCESS && what != CU_P2P_ATOMICS))
		return CU_INVALID_VALUE;
	*value = may_reach(from, to);
	if (what == CU_P2P_ATOMICS && getenv("SPMT_FAKE_NOATOMICS"))
		*value = 0;
	return CU_OK;
}

/* ---- contexts */

cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device)
{
	CHECK("cuDevicePrimaryCtxRetain");
	pthread_mutex_lock(&fake_lock);
	contexts[device].dev = device;
	contexts[device].dead = false;
	contexts[device].retains++;
	fake_count.contexts++;
	pthread_mutex_unlock(&fake_lock);
	*context = &contexts[device];
	return CU_OK;
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device device)
{
	CHECK("cuDevicePrimaryCtxRelease");
	if (!contexts[device].retains)
		return CU_INVALID_CONTEXT;
	if (contexts[device].retains == 1)
		fake_drain(device);
	pthread_mutex_lock(&fake_lock);
	contexts[device].retains--;
	fake_count.contexts--;
	pthread_mutex_unlock(&fake_lock);
	return CU_OK;
}

/* Of the application: the context is gone for all who hold it, though it stays retained. */
cu_result cuDevicePrimaryCtxReset_v2(cu_device device);
cu_result cuDevicePrimaryCtxReset_v2(cu_device device)
{
	CHECK("cuDevicePrimaryCtxReset");
	fake_reset(device);
	pthread_mutex_lock(&fake_lock);
	contexts[device].dead = true;
	pthread_mutex_unlock(&fake_lock);
	return CU_OK;
}

cu_result cuCtxPushCurrent_v2(cu_context context)
{
	CHECK("cuCtxPushCurrent");
	if (!context || depth == STACK)
		return CU_INVALID_CONTEXT;
	stack[depth++] = context;
	return CU_OK;
}

cu_result cuCtxPopCurrent_v2(cu_context *context)
{
	CHECK("cuCtxPopCurrent");
	if (!depth) {
		fprintf(stderr, "stand-in libcuda: a context popped that was not pushed\n");
		abort();
	}
	*context = stack[--depth];
	return CU_OK;
}

cu_result cuCtxGetCurrent(cu_context *context)
{
	CHECK("cuCtxGetCurrent");
	*context = depth ? stack[depth - 1] : NULL;
	return CU_OK;
}

cu_result cuCtxGetDevice(cu_device *device)
{
	CHECK_CONTEXT("cuCtxGetDevice");
	*device = current();
	return CU_OK;
}

/* Of the application. */
cu_result cuCtxSetCurrent(cu_context context);
cu_result cuCtxSetCurrent(cu_context context)
{
	CHECK("cuCtxSetCurrent");
	if (depth)
		depth--;
	if (context)
		stack[depth++] = context;
	return CU_OK;
}

cu_result cuCtxEnablePeerAccess(cu_context peer, unsigned int flags)
{
	const struct context *p = peer;

	CHECK_CONTEXT("cuCtxEnablePeerAccess");
	if (flags || !alive(p))
		return CU_INVALID_VALUE;
	if (!may_reach(current(), p->dev))
		return CU_PEER_UNSUPPORTED;
	if (fake_peer_enabled(current(), p->dev))
		return CU_PEER_ENABLED;
	fake_peer_enable(current(), p->dev);
	return CU_OK;
}

cu_result cuThreadExchangeStreamCaptureMode(cu_capture_mode *other)
{
	cu_capture_mode was = mode;

	CHECK("cuThreadExchangeStreamCaptureMode");
	mode = *other;
	*other = was;
	return CU_OK;
}

bool fake_cuda_prohibits(void)
{
	return fake_capturing() && mode != CU_CAPTURE_RELAXED;
}

/* ---- memory */

cu_result cuMemAlloc_v2(cu_pointer *ptr, size_t size)
{
	void *p;

	CHECK_CONTEXT("cuMemAlloc");
	if (fake_cuda_prohibits())
		return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the capture is broken */
	if (!fake_block_new(current(), size, FAKE_DEVICE, &p))
		return CU_NO_MEMORY;
	*ptr = p;
	return CU_OK;
}

cu_result cuMemFree_v2(cu_pointer ptr)
{
	CHECK_CONTEXT("cuMemFree");
	fake_drain(current());
	return fake_block_free(ptr, FAKE_DEVICE) ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemGetAddressRange_v2(cu_pointer *base, size_t *size, cu_pointer ptr)
{
	struct fake_block block;

	CHECK_CONTEXT("cuMemGetAddressRange");
	if (!fake_block_find(ptr, &block))
		return CU_NOT_FOUND;
	*base = block.base;
	*size = block.size;
	return CU_OK;
}

cu_result cuMemGetHandleForAddressRange(
	void *handle, cu_pointer ptr, size_t size, cu_range_type type, unsigned long long flags)
{
	int fd;

	CHECK_CONTEXT("cuMemGetHandleForAddressRange");
	if (type != CU_DMABUF_FD || flags || fake_lacks(current(), "dmabuf"))
		return CU_NOT_SUPPORTED;
	fd = fake_dmabuf(ptr, size);
	memcpy(handle, &fd, sizeof(fd));
	return fd < 0 ? CU_INVALID_VALUE : CU_OK;
}

cu_result cuPointerGetAttribute(void *data, cu_pointer_attribute what, cu_pointer ptr)
{
	struct fake_block block;

	CHECK("cuPointerGetAttribute");
	if (what != CU_BUFFER_ID || !fake_block_find(ptr, &block))
		return CU_INVALID_VALUE;
	memcpy(data, &block.number, sizeof(block.number));
	return CU_OK;
}

cu_result cuMemHostAlloc(void **ptr, size_t size, unsigned int flags)
{
	CHECK_CONTEXT("cuMemHostAlloc");
	if (flags & ~7u)
		return CU_INVALID_VALUE;
	return fake_block_new(current(), size, FAKE_HOST, ptr) ? CU_OK : CU_NO_MEMORY;
}

cu_result cuMemFreeHost(void *ptr)
{
	CHECK_CONTEXT("cuMemFreeHost");
	fake_drain(current());
	return fake_block_free(ptr, FAKE_HOST) ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemHostGetDevicePointer_v2(cu_pointer *device, void *host, unsigned int flags)
{
	CHECK_CONTEXT("cuMemHostGetDevicePointer");
	if (flags)
		return CU_INVALID_VALUE;
	*device = host;
	return CU_OK;
}

cu_result cuIpcGetMemHandle(cu_ipc_handle *handle, cu_pointer ptr)
{
	struct fake_ipc name;

	CHECK_CONTEXT("cuIpcGetMemHandle");
	if (!fake_ipc_name(ptr, &name))
		return CU_INVALID_VALUE;
	memset(handle, 0, sizeof(*handle));
	memcpy(handle, &name, sizeof(name));
	return CU_OK;
}

cu_result cuIpcOpenMemHandle_v2(cu_pointer *ptr, cu_ipc_handle handle, unsigned int flags)
{
	struct fake_ipc name;
	void *p;

	CHECK_CONTEXT("cuIpcOpenMemHandle");
	if (flags != CU_IPC_LAZY_PEER)
		return CU_INVALID_VALUE;
	memcpy(&name, &handle, sizeof(name));
	if (!fake_ipc_open(&name, current(), &p))
		return CU_INVALID_CONTEXT;
	*ptr = p;
	return CU_OK;
}

cu_result cuIpcCloseMemHandle(cu_pointer ptr)
{
	CHECK_CONTEXT("cuIpcCloseMemHandle");
	return fake_block_free(ptr, FAKE_IMPORT) ? CU_OK : CU_INVALID_VALUE;
}

/* ---- ranges backed on demand */

cu_result cuMemGetAllocationGranularity(
	size_t *bytes, const cu_memory_prop *prop, cu_granularity which)
{
	(void)which;
	CHECK("cuMemGetAllocationGranularity");
	if (prop->type != CU_PINNED || prop->location.type != CU_ON_DEVICE ||
		!good(prop->location.id))
		return CU_INVALID_VALUE;
	*bytes = FAKE_GRANULARITY;
	return CU_OK;
}

cu_result cuMemAddressReserve(
	cu_pointer *ptr, size_t size, size_t align, cu_pointer where, unsigned long long flags)
{
	void *p;

	CHECK("cuMemAddressReserve");
	if (flags || where || !fake_reserve(size, align, &p))
		return CU_INVALID_VALUE;
	*ptr = p;
	return CU_OK;
}

cu_result cuMemAddressFree(cu_pointer ptr, size_t size)
{
	CHECK("cuMemAddressFree");
	return fake_unreserve(ptr, size) ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemCreate(
	cu_memory *memory, size_t size, const cu_memory_prop *prop, unsigned long long flags)
{
	struct fake_physical *p;

	CHECK("cuMemCreate");
	if (flags || prop->type != CU_PINNED || prop->location.type != CU_ON_DEVICE ||
		!good(prop->location.id))
		return CU_INVALID_VALUE;
	if (!fake_physical_new(prop->location.id, size, prop->handle_type == CU_FD, &p))
		return CU_NO_MEMORY;
	*memory = p;
	return CU_OK;
}

cu_result cuMemRelease(cu_memory memory)
{
	CHECK("cuMemRelease");
	fake_physical_release(memory);
	return CU_OK;
}

cu_result cuMemMap(
	cu_pointer ptr, size_t size, size_t offset, cu_memory memory, unsigned long long flags)
{
	CHECK("cuMemMap");
	return !flags && !offset && fake_map(ptr, size, memory) ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemUnmap(cu_pointer ptr, size_t size)
{
	CHECK("cuMemUnmap");
	if (depth)
		fake_settle(current());
	return fake_unmap(ptr, size) ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemSetAccess(cu_pointer ptr, size_t size, const cu_memory_access *access, size_t n)
{
	struct fake_block block = { .dev = -1 };
	unsigned devices = 0;
	size_t i;

	CHECK("cuMemSetAccess");
	fake_block_find(ptr, &block);
	for (i = 0; i < n; i++) {
		if (access[i].flags != CU_READ_WRITE || !good(access[i].location.id))
			return CU_INVALID_VALUE;
		if (block.dev >= 0 && block.dev != access[i].location.id &&
			!may_reach(access[i].location.id, block.dev))
			return CU_INVALID_DEVICE;
		devices |= 1u << access[i].location.id;
	}
	return fake_access(ptr, size, devices) ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemExportToShareableHandle(
	void *handle, cu_memory memory, cu_handle_type type, unsigned long long flags)
{
	const struct fake_physical *p = memory;
	int fd;

	CHECK("cuMemExportToShareableHandle");
	if (flags || type != CU_FD || !p->shareable)
		return CU_INVALID_VALUE;
	fd = dup(p->fd);
	memcpy(handle, &fd, sizeof(fd));
	return fd < 0 ? 304 : CU_OK; /* CUDA_ERROR_OPERATING_SYSTEM, as driver 580 on an H200 */
}

cu_result cuMemRetainAllocationHandle(cu_memory *memory, void *ptr)
{
	struct fake_block block;

	CHECK("cuMemRetainAllocationHandle");
	if (!fake_block_find(ptr, &block) || block.kind != FAKE_MAPPED)
		return CU_INVALID_VALUE;
	fake_physical_retain(block.memory);
	*memory = block.memory;
	return CU_OK;
}

cu_result cuMemImportFromShareableHandle(cu_memory *memory, void *handle, cu_handle_type type)
{
	struct fake_physical *p;

	CHECK("cuMemImportFromShareableHandle");
	if (type != CU_FD || !fake_physical_import((int)(intptr_t)handle, &p))
		return CU_INVALID_VALUE;
	*memory = p;
	return CU_OK;
}

/* ---- streams, in fake_cuda_stream.c, ask here */

int fake_cuda_current(void)
{
	return depth && alive(stack[depth - 1]) ? current() : -1;
}
