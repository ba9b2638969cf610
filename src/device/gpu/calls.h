/* SPDX-License-Identifier: MIT */
/* The calls that HIP and CUDA have alike, with HIP's types, and the numbers that are the same in
   both. cuda.c does not compile where one of CUDA's is another. */
#ifndef SPMT_GPU_CALLS_H
#define SPMT_GPU_CALLS_H

#include "abi_hip_calls.h"

#define GPU_CALLS(X)               \
	X(Init)                    \
	X(DeviceGetCount)          \
	X(DeviceGetName)           \
	X(DeviceGetUuid)           \
	X(DeviceGetPCIBusId)       \
	X(DeviceTotalMem)          \
	X(DeviceGetAttribute)      \
	X(DeviceCanAccessPeer)     \
	X(DeviceGetP2PAttribute)   \
	X(MemAlloc)                \
	X(MemFree)                 \
	X(MemGetAddressRange)      \
	X(MemHostAlloc)            \
	X(MemFreeHost)             \
	X(MemHostGetDevicePointer) \
	X(StreamCreate)            \
	X(StreamDestroy)           \
	X(StreamPriorities)        \
	X(StreamCreateFirst)       \
	X(StreamQuery)             \
	X(StreamWaitEvent)         \
	X(StreamIsCapturing)       \
	X(EventCreate)             \
	X(EventDestroy)            \
	X(EventRecord)             \
	X(EventQuery)              \
	X(ModuleLoadData)          \
	X(ModuleUnload)            \
	X(ModuleGetFunction)       \
	X(LaunchKernel)            \
	X(IpcGetMemHandle)         \
	X(IpcOpenMemHandle)        \
	X(IpcCloseMemHandle)       \
	X(PointerGetAttribute)     \
	X(CaptureMode)             \
	X(MemAllocAsync)           \
	X(MemFreeAsync)            \
	X(MemGranularity)          \
	X(MemAddressReserve)       \
	X(MemAddressFree)          \
	X(MemCreate)               \
	X(MemRelease)              \
	X(MemMap)                  \
	X(MemUnmap)                \
	X(MemSetAccess)            \
	X(MemExport)               \
	X(MemImport)

struct gpu_calls {
#define X(field) __typeof__(((struct hip_api *)0)->field) field;
	GPU_CALLS(X)
#undef X
	/* a type of its own in each header */
	int (*MemRangeHandle)(
		void *handle, void *ptr, size_t size, int type, unsigned long long flags);
	/* NULL on AMD */
	int (*FuncLoad)(void *function);
	int (*StreamGetId)(void *stream, unsigned long long *id);
	int (*MemRetain)(void **memory, void *ptr);
};

#define GPU_VALUES(X)          \
	X(OK)                  \
	X(INVALID_VALUE)       \
	X(NO_MEMORY)           \
	X(NOT_INITIALIZED)     \
	X(NO_DEVICE)           \
	X(INVALID_DEVICE)      \
	X(INVALID_CONTEXT)     \
	X(PEER_UNSUPPORTED)    \
	X(INVALID_HANDLE)      \
	X(NOT_FOUND)           \
	X(NOT_READY)           \
	X(PEER_ENABLED)        \
	X(NOT_SUPPORTED)       \
	X(NON_BLOCKING)        \
	X(NO_TIMING)           \
	X(BUFFER_ID)           \
	X(ON_DEVICE)           \
	X(FD)                  \
	X(DMABUF_FD)           \
	X(READ_WRITE)          \
	X(GRANULARITY_MINIMUM) \
	X(CAPTURE_RELAXED)     \
	X(CAPTURE_NONE)

enum {
#define X(name) GPU_##name = HIP_##name,
	GPU_VALUES(X)
#undef X
	/* results that CUDA alone has */
	GPU_TOO_MANY_PEERS = 711,
	GPU_NOT_PERMITTED = 800,
};
#define GPU_LAUNCH_BUFFER HIP_LAUNCH_BUFFER
#define GPU_LAUNCH_SIZE HIP_LAUNCH_SIZE

#endif
