/* SPDX-License-Identifier: MIT */
/* The thread's device and last error, and memory, over libcuda. */
#include "hip_on_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 64

static struct {
	pthread_mutex_t lock;
	bool tried, loaded;
	struct cuda_api api;
	/* For tests that ask it; the library does not. */
	cu_result (*memory_info)(size_t *unused, size_t *total);
	cu_context context[DEVICES]; /* retained for good */
} over = { .lock = PTHREAD_MUTEX_INITIALIZER };
static THREAD int device;
static THREAD hip_result last;

static void load(void)
{
	const char *name = getenv("SPMT_CUDA_LIB");
	void *library = dlopen(name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	void *address;

	if (!library)
		return;
#define X(field, symbol, args)             \
	address = dlsym(library, #symbol); \
	memcpy(&over.api.field, &address, sizeof(address));
	CUDA_REQUIRED(X)
	CUDA_OPTIONAL(X)
#undef X
	address = dlsym(library, "cuMemGetInfo_v2");
	memcpy(&over.memory_info, &address, sizeof(address));
	over.loaded = over.api.Init && over.api.Init(0) == CU_OK;
}

const struct cuda_api *over_driver(void)
{
	pthread_mutex_lock(&over.lock);
	if (!over.tried)
		load();
	over.tried = true;
	pthread_mutex_unlock(&over.lock);
	return over.loaded ? &over.api : NULL;
}

int over_device(void)
{
	return device;
}

hip_result over_end(cu_result result)
{
	if (result != CU_OK && result != CU_NOT_READY)
		last = result;
	return result;
}

static cu_result context_of(int dev, cu_context *context)
{
	const struct cuda_api *api = over_driver();
	cu_result r = CU_OK;
	cu_device d;

	if (!api)
		return CU_NO_DEVICE;
	if (dev < 0 || dev >= DEVICES)
		return CU_INVALID_DEVICE;
	pthread_mutex_lock(&over.lock);
	if (!over.context[dev]) {
		r = api->DeviceGet(&d, dev);
		if (r == CU_OK)
			r = api->PrimaryRetain(&over.context[dev], d);
	}
	*context = over.context[dev];
	pthread_mutex_unlock(&over.lock);
	return r;
}

cu_result over_enter(void)
{
	cu_context context;
	cu_result r = context_of(device, &context);

	return r == CU_OK ? over_driver()->CtxPush(context) : r;
}

hip_result over_leave(cu_result result)
{
	cu_context context;

	over_driver()->CtxPop(&context);
	return over_end(result);
}

static int count(void)
{
	int n = 0;

	if (over_driver())
		over_driver()->DeviceGetCount(&n);
	return n;
}

hip_result hipInit(unsigned int flags)
{
	(void)flags;
	return over_end(over_driver() ? CU_OK : CU_NO_DEVICE);
}

hip_result hipRuntimeGetVersion(int *version)
{
	*version = HIP_VERSION_OF(7, 2);
	return HIP_OK;
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
	const char *text = NULL;

	if (over_driver())
		over_driver()->GetErrorName(error, &text);
	return text ? text : "hipErrorUnknown";
}

const char *hipGetErrorString(hip_result error)
{
	const char *text = NULL;

	if (over_driver())
		over_driver()->GetErrorString(error, &text);
	return text ? text : "unknown error";
}

hip_result hipGetDeviceCount(int *n)
{
	*n = count();
	return over_end(*n ? CU_OK : CU_NO_DEVICE);
}

hip_result hipGetDevice(int *out)
{
	if (!out)
		return over_end(CU_INVALID_VALUE);
	*out = device;
	return HIP_OK;
}

hip_result hipSetDevice(int dev)
{
	if (dev < 0 || dev >= count())
		return over_end(CU_INVALID_DEVICE);
	device = dev;
	return HIP_OK;
}

/* The driver's handle of an ordinal. */
static cu_device handle(int dev)
{
	cu_device d = -1;

	if (over_driver())
		over_driver()->DeviceGet(&d, dev);
	return d;
}

hip_result hipDeviceGetName(char *name, int size, int dev)
{
	return over_end(over_driver()->DeviceGetName(name, size, handle(dev)));
}

hip_result hipDeviceGetPCIBusId(char *id, int size, int dev)
{
	return over_end(over_driver()->DeviceGetPCIBusId(id, size, handle(dev)));
}

hip_result hipDeviceGetUuid(hip_uuid *uuid, int dev)
{
	cu_uuid got;
	cu_result r = over_driver()->DeviceGetUuid(&got, handle(dev));

	memcpy(uuid, &got, sizeof(got));
	return over_end(r);
}

hip_result hipDeviceTotalMem(size_t *bytes, int dev)
{
	return over_end(over_driver()->DeviceTotalMem(bytes, handle(dev)));
}

hip_result hipDeviceGetAttribute(int *value, hip_attribute what, int dev)
{
	static const int pairs[][2] = { { HIP_ATTR_UNITS, CU_ATTR_UNITS },
		{ HIP_ATTR_VMM, CU_ATTR_VMM } };
	size_t i;

	for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		if (pairs[i][0] == what)
			return over_end(
				over_driver()->DeviceGetAttribute(value, pairs[i][1], handle(dev)));
	}
	return over_end(CU_INVALID_VALUE);
}

/* An architecture of the other vendor, so that its images are found. */
hip_result hipGetDevicePropertiesR0600(hip_props *props, int dev)
{
	int major = 0, minor = 0;
	cu_result r = over_driver()->DeviceGetAttribute(&major, CU_ATTR_MAJOR, handle(dev));

	if (r == CU_OK)
		r = over_driver()->DeviceGetAttribute(&minor, CU_ATTR_MINOR, handle(dev));
	if (r == CU_OK)
		snprintf((char *)props + HIP_ARCH_AT_R0600, 256, "sm_%d%d", major, minor);
	return over_end(r);
}

hip_result hipGetDeviceProperties(hip_props *props, int dev)
{
	(void)props;
	(void)dev;
	return over_end(CU_NOT_SUPPORTED); /* the backend asks for the newer one where it is */
}

hip_result hipThreadExchangeStreamCaptureMode(hip_capture_mode *mode)
{
	return over_end(over_driver()->CaptureMode(mode));
}

hip_result hipDeviceCanAccessPeer(int *can, int from, int to)
{
	return over_end(over_driver()->DeviceCanAccessPeer(can, handle(from), handle(to)));
}

hip_result hipDeviceGetP2PAttribute(int *value, hip_p2p_attribute what, int from, int to)
{
	int cuda = what == HIP_P2P_ATOMICS ? CU_P2P_ATOMICS : CU_P2P_ACCESS;

	return over_end(
		over_driver()->DeviceGetP2PAttribute(value, cuda, handle(from), handle(to)));
}

hip_result hipDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	cu_context context;
	cu_result r = context_of(peer, &context);

	if (r != CU_OK)
		return over_end(r);
	IN_CONTEXT(CtxEnablePeerAccess(context, flags));
}

/* ---- memory */

hip_result hipMalloc(void **ptr, size_t size)
{
	IN_CONTEXT(MemAlloc(ptr, size));
}

hip_result hipExtMallocWithFlags(void **ptr, size_t size, unsigned int flags)
{
	(void)flags;
	return hipMalloc(ptr, size);
}

hip_result hipFree(void *ptr)
{
	IN_CONTEXT(MemFree(ptr));
}

hip_result hipMemGetAddressRange(void **base, size_t *size, void *ptr)
{
	IN_CONTEXT(MemGetAddressRange(base, size, ptr));
}

hip_result hipMemGetInfo(size_t *unused, size_t *total);
hip_result hipMemGetInfo(size_t *unused, size_t *total)
{
	cu_result r = over_enter();

	if (r == CU_OK)
		return over_leave(
			over.memory_info ? over.memory_info(unused, total) : CU_NOT_SUPPORTED);
	return over_end(r);
}

hip_result hipHostMalloc(void **ptr, size_t size, unsigned int flags)
{
	IN_CONTEXT(MemHostAlloc(ptr, size, flags & (CU_HOST_PORTABLE | CU_HOST_MAPPED)));
}

hip_result hipHostFree(void *ptr)
{
	IN_CONTEXT(MemFreeHost(ptr));
}

hip_result hipHostGetDevicePointer(void **seen, void *host, unsigned int flags)
{
	IN_CONTEXT(MemHostGetDevicePointer(seen, host, flags));
}

hip_result hipIpcGetMemHandle(hip_ipc_handle *out, void *ptr)
{
	IN_CONTEXT(IpcGetMemHandle(out, ptr));
}

hip_result hipIpcOpenMemHandle(void **ptr, hip_ipc_handle in, unsigned int flags)
{
	cu_ipc_handle h;

	memcpy(&h, &in, sizeof(h));
	IN_CONTEXT(IpcOpenMemHandle(ptr, h, flags));
}

hip_result hipIpcCloseMemHandle(void *ptr)
{
	IN_CONTEXT(IpcCloseMemHandle(ptr));
}

static cu_memory_prop prop_of(const hip_memory_prop *in)
{
	cu_memory_prop prop;

	memset(&prop, 0, sizeof(prop));
	prop.type = CU_PINNED;
	prop.handle_type = in->handle_type;
	prop.location.type = in->location.type;
	prop.location.id = handle(in->location.id);
	return prop;
}

hip_result hipMemGetAllocationGranularity(
	size_t *bytes, const hip_memory_prop *in, hip_granularity_kind which)
{
	cu_memory_prop prop = prop_of(in);

	return over_end(over_driver()->MemGranularity(bytes, &prop, which));
}

hip_result hipMemAddressReserve(
	void **ptr, size_t size, size_t align, void *at, unsigned long long flags)
{
	return over_end(over_driver()->MemAddressReserve(ptr, size, align, at, flags));
}

hip_result hipMemAddressFree(void *ptr, size_t size)
{
	return over_end(over_driver()->MemAddressFree(ptr, size));
}

hip_result hipMemCreate(
	hip_memory *memory, size_t size, const hip_memory_prop *in, unsigned long long flags)
{
	cu_memory_prop prop = prop_of(in);

	return over_end(over_driver()->MemCreate(memory, size, &prop, flags));
}

hip_result hipMemRelease(hip_memory memory)
{
	return over_end(over_driver()->MemRelease(memory));
}

hip_result hipMemMap(
	void *ptr, size_t size, size_t offset, hip_memory memory, unsigned long long flags)
{
	return over_end(over_driver()->MemMap(ptr, size, offset, memory, flags));
}

hip_result hipMemUnmap(void *ptr, size_t size)
{
	return over_end(over_driver()->MemUnmap(ptr, size));
}

hip_result hipMemSetAccess(void *ptr, size_t size, const hip_memory_access *access, size_t n)
{
	cu_memory_access list[DEVICES];
	size_t i;

	if (n > DEVICES)
		return over_end(CU_INVALID_VALUE);
	for (i = 0; i < n; i++) {
		list[i].location.type = access[i].location.type;
		list[i].location.id = handle(access[i].location.id);
		list[i].flags = access[i].flags;
	}
	return over_end(over_driver()->MemSetAccess(ptr, size, list, n));
}

hip_result hipMemExportToShareableHandle(
	void *out, hip_memory memory, hip_handle_type type, unsigned long long flags)
{
	return over_end(over_driver()->MemExport(out, memory, type, flags));
}

hip_result hipMemImportFromShareableHandle(hip_memory *memory, void *in, hip_handle_type type)
{
	return over_end(over_driver()->MemImport(memory, in, type));
}
