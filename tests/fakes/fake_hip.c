/* SPDX-License-Identifier: MIT */
/* A libamdhip64 over host memory: devices, the thread's device and last error, memory. */
#include "fake_hip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static THREAD int device;
static THREAD hip_result last;
static THREAD hip_capture_mode mode;

/*
 * The real one's calls for ranges fail where two threads make them at once; so do these. Who makes one stays a while
 * with SPMT_FAKE_LINGER=1, so that another would come.
 */
static int inside, overlaps;

static bool alone(void)
{
	const char *text = getenv("SPMT_FAKE_LINGER");

	if (__atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST))
		__atomic_fetch_add(&overlaps, 1, __ATOMIC_SEQ_CST);
	if (text && atoi(text))
		usleep(100);
	return !fake_overlaps();
}

static void goes(const bool *entered)
{
	(void)entered;
	__atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST);
}

int fake_overlaps(void)
{
	return __atomic_load_n(&overlaps, __ATOMIC_SEQ_CST);
}

#define CALL_ALONE(name)                                              \
	CALL(name);                                                   \
	__attribute__((cleanup(goes))) const bool entered_ = alone(); \
	do {                                                          \
		if (!entered_)                                        \
			return fake_hip_end(FAKE_HIP_OVERLAP);        \
	} while (0)

int fake_hip_current(void)
{
	return device;
}

bool fake_hip_good(int dev)
{
	return dev >= 0 && dev < fake_devices();
}

hip_result fake_hip_begin(const char *name)
{
	int armed = fake_call(name);

	if (armed)
		return armed;
	return fake_same_process() ? HIP_OK : HIP_NOT_INITIALIZED;
}

/* Up to 6 the last call's result, from 7 on the last failure, which "not ready" is none of. */
hip_result fake_hip_end(hip_result result)
{
	if (FAKE_HIP_MAJOR < 7 || (result != HIP_OK && result != HIP_NOT_READY))
		last = result;
	return result;
}

hip_result hipGetLastError(void)
{
	hip_result was = last;

	last = HIP_OK;
	return was;
}

hip_result hipPeekAtLastError(void)
{
	return last;
}

const char *hipGetErrorName(hip_result error)
{
	return error == HIP_NO_MEMORY ? "hipErrorOutOfMemory" : error ? "hipError" : "hipSuccess";
}

const char *hipGetErrorString(hip_result error)
{
	return error ? "said by the stand-in" : "no error";
}

/* Version 5 says 101 where there is no device, 6 says 100. */
hip_result hipInit(unsigned int flags)
{
	CALL("hipInit");
	if (!fake_devices())
		return fake_hip_end(FAKE_HIP_MAJOR < 6 ? HIP_INVALID_DEVICE : HIP_NO_DEVICE);
	GIVE(!flags, HIP_INVALID_VALUE);
}

hip_result hipRuntimeGetVersion(int *version)
{
	CALL("hipRuntimeGetVersion");
	*version = FAKE_HIP_VERSION;
	GIVE(true, HIP_OK);
}

hip_result hipGetDeviceCount(int *count)
{
	CALL("hipGetDeviceCount");
	*count = fake_devices();
	GIVE(*count, HIP_NO_DEVICE);
}

hip_result hipGetDevice(int *out)
{
	CALL("hipGetDevice");
	if (out)
		*out = device;
	GIVE(out, HIP_INVALID_VALUE);
}

hip_result hipSetDevice(int dev)
{
	CALL("hipSetDevice");
	if (fake_hip_good(dev))
		device = dev;
	GIVE(fake_hip_good(dev), HIP_INVALID_DEVICE);
}

hip_result hipDeviceGetName(char *name, int size, int dev)
{
	CALL("hipDeviceGetName");
	snprintf(name, (size_t)size, "stand-in %d", dev);
	GIVE(true, HIP_OK);
}

hip_result hipDeviceGetUuid(hip_uuid *uuid, int dev)
{
	CALL("hipDeviceGetUuid");
	memset(uuid, 0x60 + dev, sizeof(*uuid));
	if (getenv("SPMT_FAKE_NO_UUIDS"))
		strncpy((char *)uuid, "XX", sizeof(*uuid));
	GIVE(true, HIP_OK);
}

hip_result hipDeviceGetPCIBusId(char *id, int size, int dev)
{
	CALL("hipDeviceGetPCIBusId");
	snprintf(id, (size_t)size, "0000:%02X:00.0", 0xFA + dev);
	GIVE(true, HIP_OK);
}

hip_result hipDeviceTotalMem(size_t *bytes, int dev)
{
	CALL("hipDeviceTotalMem");
	*bytes = ((size_t)8 << 30) + (size_t)dev;
	GIVE(true, HIP_OK);
}

hip_result hipDeviceGetAttribute(int *value, hip_attribute what, int dev)
{
	CALL("hipDeviceGetAttribute");
	if (!fake_hip_good(dev))
		return fake_hip_end(HIP_INVALID_DEVICE);
	switch (what) {
	case HIP_ATTR_UNITS:
		*value = 304;
		break;
	case HIP_ATTR_VMM:
		if (FAKE_HIP_MAJOR < 6)
			return fake_hip_end(HIP_INVALID_VALUE);
		*value = !fake_lacks(dev, "vmm");
		break;
	case HIP_ATTR_WORDS:
		*value = !fake_lacks(dev, "words");
		break;
	default:
		return fake_hip_end(HIP_INVALID_VALUE);
	}
	GIVE(true, HIP_OK);
}

static hip_result fill_props(char *props, size_t at, int dev)
{
	if (!fake_hip_good(dev))
		return HIP_INVALID_DEVICE;
	snprintf(props + at, 256, "gfx942:sramecc+:xnack-");
	return HIP_OK;
}

hip_result hipGetDeviceProperties(hip_props *props, int dev)
{
	CALL("hipGetDeviceProperties");
	return fake_hip_end(fill_props(props, HIP_ARCH_AT_OLD, dev));
}

#if FAKE_HIP_MAJOR >= 6
hip_result hipGetDevicePropertiesR0600(hip_props *props, int dev)
{
	CALL("hipGetDevicePropertiesR0600");
	return fake_hip_end(fill_props(props, HIP_ARCH_AT_R0600, dev));
}
#endif

hip_result hipThreadExchangeStreamCaptureMode(hip_capture_mode *other)
{
	hip_capture_mode was = mode;

	CALL("hipThreadExchangeStreamCaptureMode");
	mode = *other;
	*other = was;
	GIVE(true, HIP_OK);
}

/* ---- peers */

static bool may_reach(int from, int to)
{
	const char *lone = getenv("SPMT_FAKE_NOPEER");

	return from != to && !(lone && (atoi(lone) == from || atoi(lone) == to));
}

hip_result hipDeviceCanAccessPeer(int *can, int from, int to)
{
	CALL("hipDeviceCanAccessPeer");
	*can = may_reach(from, to);
	GIVE(true, HIP_OK);
}

hip_result hipDeviceGetP2PAttribute(int *value, hip_p2p_attribute what, int from, int to)
{
	CALL("hipDeviceGetP2PAttribute");
	*value = may_reach(from, to) && !(what == HIP_P2P_ATOMICS && getenv("SPMT_FAKE_NOATOMICS"));
	GIVE(from != to && (what == HIP_P2P_ACCESS || what == HIP_P2P_ATOMICS), HIP_INVALID_VALUE);
}

hip_result hipDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	CALL("hipDeviceEnablePeerAccess");
	if (flags || !fake_hip_good(peer))
		return fake_hip_end(HIP_INVALID_VALUE);
	if (!may_reach(device, peer))
		return fake_hip_end(HIP_PEER_UNSUPPORTED);
	if (fake_peer_enabled(device, peer))
		return fake_hip_end(HIP_PEER_ENABLED);
	fake_peer_enable(device, peer);
	GIVE(true, HIP_OK);
}

/* ---- memory */

hip_result hipMalloc(void **ptr, size_t size)
{
	CALL("hipMalloc");
	if (fake_capturing() && mode != HIP_CAPTURE_RELAXED)
		return fake_hip_end(
			900); /* hipErrorStreamCaptureUnsupported, and the capture is broken */
	GIVE(fake_block_new(device, size, FAKE_DEVICE, ptr), HIP_NO_MEMORY);
}

/* Uncached, 3, came after 5.2. */
hip_result hipExtMallocWithFlags(void **ptr, size_t size, unsigned int flags)
{
	CALL("hipExtMallocWithFlags");
	if (flags > 4 || (FAKE_HIP_MAJOR < 6 && flags > 2))
		return fake_hip_end(HIP_INVALID_VALUE);
	GIVE(fake_block_new(device, size, FAKE_DEVICE, ptr), HIP_NO_MEMORY);
}

hip_result hipFree(void *ptr)
{
	CALL("hipFree");
	fake_drain(device);
	GIVE(!ptr || fake_block_free(ptr, FAKE_DEVICE), HIP_INVALID_VALUE);
}

hip_result hipMemGetAddressRange(void **base, size_t *size, void *ptr)
{
	struct fake_block block;

	CALL("hipMemGetAddressRange");
	if (!fake_block_find(ptr, &block))
		return fake_hip_end(HIP_NOT_FOUND);
	*base = block.base;
	*size = block.size;
	GIVE(true, HIP_OK);
}

#if FAKE_HIP_VERSION >= 70000000
hip_result hipMemGetHandleForAddressRange(
	void *handle, void *ptr, size_t size, int type, unsigned long long flags)
{
	int fd;

	CALL("hipMemGetHandleForAddressRange");
	if (type != HIP_DMABUF_FD || flags || fake_lacks(device, "dmabuf"))
		return fake_hip_end(HIP_NOT_SUPPORTED);
	fd = fake_dmabuf(ptr, size);
	memcpy(handle, &fd, sizeof(fd));
	GIVE(fd >= 0, HIP_INVALID_VALUE);
}
#endif

hip_result hipPointerGetAttribute(void *data, hip_pointer_attribute what, void *ptr)
{
	struct fake_block block;

	CALL("hipPointerGetAttribute");
	if (!fake_block_find(ptr, &block))
		return fake_hip_end(HIP_INVALID_VALUE);
	if (what == HIP_BUFFER_ID)
		memcpy(data, &block.number, sizeof(block.number));
	else if (what == HIP_DEVICE_ORDINAL)
		memcpy(data, &block.dev, sizeof(block.dev));
	else
		return fake_hip_end(HIP_INVALID_VALUE);
	GIVE(true, HIP_OK);
}

/* Of the application. */
hip_result hipDeviceReset(void);
hip_result hipDeviceReset(void)
{
	CALL("hipDeviceReset");
	fake_reset(device);
	GIVE(true, HIP_OK);
}

hip_result hipHostMalloc(void **ptr, size_t size, unsigned int flags)
{
	CALL("hipHostMalloc");
	if (flags & ~(7u | (unsigned)HIP_HOST_COHERENT))
		return fake_hip_end(HIP_INVALID_VALUE);
	GIVE(fake_block_new(device, size, FAKE_HOST, ptr), HIP_NO_MEMORY);
}

hip_result hipHostFree(void *ptr)
{
	CALL("hipHostFree");
	fake_drain(device);
	GIVE(fake_block_free(ptr, FAKE_HOST), HIP_INVALID_VALUE);
}

hip_result hipHostGetDevicePointer(void **seen, void *host, unsigned int flags)
{
	CALL("hipHostGetDevicePointer");
	*seen = host;
	GIVE(!flags, HIP_INVALID_VALUE);
}

hip_result hipIpcGetMemHandle(hip_ipc_handle *handle, void *ptr)
{
	struct fake_ipc name;

	CALL("hipIpcGetMemHandle");
	if (!fake_ipc_name(ptr, &name))
		return fake_hip_end(HIP_INVALID_VALUE);
	memset(handle, 0, sizeof(*handle));
	memcpy(handle, &name, sizeof(name));
	GIVE(true, HIP_OK);
}

/* The flag that asks for lazy peer access is 0 up to version 5 and 1 from 6 on; the other value
   is refused. */
hip_result hipIpcOpenMemHandle(void **ptr, hip_ipc_handle handle, unsigned int flags)
{
	struct fake_ipc name;

	CALL("hipIpcOpenMemHandle");
	if (flags != (FAKE_HIP_MAJOR >= 6))
		return fake_hip_end(HIP_INVALID_VALUE);
	memcpy(&name, &handle, sizeof(name));
	GIVE(fake_ipc_open(&name, device, ptr), HIP_INVALID_CONTEXT);
}

hip_result hipIpcCloseMemHandle(void *ptr)
{
	CALL("hipIpcCloseMemHandle");
	GIVE(fake_block_free(ptr, FAKE_IMPORT), HIP_INVALID_VALUE);
}

/* ---- ranges backed on demand: in 5.2 the calls are there and do nothing, from 6 on they work */

/* Uncached memory from 7.2 on. */
static bool good_prop(const hip_memory_prop *prop)
{
	if (prop->type != HIP_PINNED && (FAKE_HIP_MAJOR < 7 || prop->type != HIP_MEMORY_UNCACHED))
		return false;
	return prop->location.type == HIP_ON_DEVICE && fake_hip_good(prop->location.id);
}

hip_result hipMemGetAllocationGranularity(
	size_t *bytes, const hip_memory_prop *prop, hip_granularity_kind which)
{
	(void)which;
	CALL("hipMemGetAllocationGranularity");
	*bytes = FAKE_GRANULARITY;
	GIVE(FAKE_HIP_MAJOR < 6 || fake_hip_good(prop->location.id), HIP_INVALID_VALUE);
}

hip_result hipMemAddressReserve(
	void **ptr, size_t size, size_t align, void *where, unsigned long long flags)
{
	CALL_ALONE("hipMemAddressReserve");
	if (FAKE_HIP_MAJOR < 6) {
		*ptr = NULL;
		return fake_hip_end(HIP_OK);
	}
	/* Never aligned to more than the granularity, as the runtime passes no alignment on. */
	align = align > 2 * FAKE_GRANULARITY ? align : 2 * FAKE_GRANULARITY;
	GIVE(!flags && !where && fake_reserve_behind(size, align, FAKE_GRANULARITY, ptr),
		HIP_INVALID_VALUE);
}

hip_result hipMemAddressFree(void *ptr, size_t size)
{
	CALL_ALONE("hipMemAddressFree");
	GIVE(fake_unreserve(ptr, size), HIP_INVALID_VALUE);
}

hip_result hipMemCreate(
	hip_memory *memory, size_t size, const hip_memory_prop *prop, unsigned long long flags)
{
	struct fake_physical *p;

	CALL_ALONE("hipMemCreate");
	if (FAKE_HIP_MAJOR < 6)
		return fake_hip_end(HIP_NOT_SUPPORTED);
	if (flags || !good_prop(prop))
		return fake_hip_end(HIP_INVALID_VALUE);
	if (!fake_physical_new(prop->location.id, size, prop->handle_type == HIP_FD, &p))
		return fake_hip_end(HIP_NO_MEMORY);
	*memory = p;
	GIVE(true, HIP_OK);
}

hip_result hipMemRelease(hip_memory memory)
{
	CALL_ALONE("hipMemRelease");
	fake_physical_release(memory);
	GIVE(true, HIP_OK);
}

hip_result hipMemMap(
	void *ptr, size_t size, size_t offset, hip_memory memory, unsigned long long flags)
{
	CALL_ALONE("hipMemMap");
	GIVE(!flags && !offset && fake_map(ptr, size, memory), HIP_INVALID_VALUE);
}

hip_result hipMemUnmap(void *ptr, size_t size)
{
	CALL_ALONE("hipMemUnmap");
	fake_drain(device);
	GIVE(fake_unmap(ptr, size), HIP_INVALID_VALUE);
}

hip_result hipMemSetAccess(void *ptr, size_t size, const hip_memory_access *access, size_t n)
{
	struct fake_block block = { .dev = -1 };
	unsigned devices = 0;
	size_t i;

	CALL_ALONE("hipMemSetAccess");
	fake_block_find(ptr, &block);
	for (i = 0; i < n; i++) {
		if (access[i].flags != HIP_READ_WRITE || !fake_hip_good(access[i].location.id))
			return fake_hip_end(HIP_INVALID_VALUE);
		if (block.dev >= 0 && block.dev != access[i].location.id &&
			!may_reach(access[i].location.id, block.dev))
			return fake_hip_end(HIP_INVALID_DEVICE);
		devices |= 1u << access[i].location.id;
	}
	GIVE(fake_access(ptr, size, devices), HIP_INVALID_VALUE);
}

hip_result hipMemExportToShareableHandle(
	void *handle, hip_memory memory, hip_handle_type type, unsigned long long flags)
{
	const struct fake_physical *p = memory;
	int fd;

	CALL_ALONE("hipMemExportToShareableHandle");
	if (flags || type != HIP_FD || !p->shareable)
		return fake_hip_end(HIP_INVALID_VALUE);
	fd = dup(p->fd);
	memcpy(handle, &fd, sizeof(fd));
	GIVE(fd >= 0, HIP_NO_MEMORY);
}

/* The descriptor's address up to 7.0, the descriptor from 7.1 on. */
hip_result hipMemImportFromShareableHandle(hip_memory *memory, void *handle, hip_handle_type type)
{
	struct fake_physical *p;
	int fd = (int)(intptr_t)handle;

	CALL_ALONE("hipMemImportFromShareableHandle");
	if (FAKE_HIP_VERSION < HIP_VERSION_OF(7, 1) && handle)
		memcpy(&fd, handle, sizeof(fd));
	if (type != HIP_FD || !fake_physical_import(fd, &p))
		return fake_hip_end(HIP_INVALID_VALUE);
	*memory = p;
	GIVE(true, HIP_OK);
}
