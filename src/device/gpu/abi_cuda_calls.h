/* SPDX-License-Identifier: MIT */
/* The calls of libcuda.so.1 that the cuda backend makes; checked as abi_cuda.h is. */
#ifndef SPMT_ABI_CUDA_CALLS_H
#define SPMT_ABI_CUDA_CALLS_H

#include "abi_cuda.h"

/* X(field, symbol, parameters); all return cu_result. Where a name has versions, the one that
   cuda.h calls now. */
#define CUDA_REQUIRED(X)                                                                          \
	X(Init, cuInit, (unsigned int flags))                                                     \
	X(GetErrorName, cuGetErrorName, (cu_result error, const char **text))                     \
	X(GetErrorString, cuGetErrorString, (cu_result error, const char **text))                 \
	X(DeviceGetCount, cuDeviceGetCount, (int *count))                                         \
	X(DeviceGet, cuDeviceGet, (cu_device * device, int ordinal))                              \
	X(DeviceGetName, cuDeviceGetName, (char *name, int size, cu_device device))               \
	X(DeviceGetUuid, cuDeviceGetUuid_v2, (cu_uuid * uuid, cu_device device))                  \
	X(DeviceGetPCIBusId, cuDeviceGetPCIBusId, (char *id, int size, cu_device device))         \
	X(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t * bytes, cu_device device))                \
	X(DeviceGetAttribute, cuDeviceGetAttribute,                                               \
		(int *value, cu_attribute what, cu_device device))                                \
	X(DeviceCanAccessPeer, cuDeviceCanAccessPeer, (int *can, cu_device from, cu_device to))   \
	X(DeviceGetP2PAttribute, cuDeviceGetP2PAttribute,                                         \
		(int *value, cu_p2p_attribute what, cu_device from, cu_device to))                \
	X(PrimaryRetain, cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device))      \
	X(PrimaryRelease, cuDevicePrimaryCtxRelease_v2, (cu_device device))                       \
	X(CtxPush, cuCtxPushCurrent_v2, (cu_context context))                                     \
	X(CtxPop, cuCtxPopCurrent_v2, (cu_context * context))                                     \
	X(CtxGetCurrent, cuCtxGetCurrent, (cu_context * context))                                 \
	X(CtxGetDevice, cuCtxGetDevice, (cu_device * device))                                     \
	X(CtxEnablePeerAccess, cuCtxEnablePeerAccess, (cu_context peer, unsigned int flags))      \
	X(MemAlloc, cuMemAlloc_v2, (cu_pointer * ptr, size_t size))                               \
	X(MemFree, cuMemFree_v2, (cu_pointer ptr))                                                \
	X(MemGetAddressRange, cuMemGetAddressRange_v2,                                            \
		(cu_pointer * base, size_t * size, cu_pointer ptr))                               \
	X(MemHostAlloc, cuMemHostAlloc, (void **ptr, size_t size, unsigned int flags))            \
	X(MemFreeHost, cuMemFreeHost, (void *ptr))                                                \
	X(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2,                                  \
		(cu_pointer * device, void *host, unsigned int flags))                            \
	X(StreamCreate, cuStreamCreate, (cu_stream * stream, unsigned int flags))                 \
	X(StreamDestroy, cuStreamDestroy_v2, (cu_stream stream))                                  \
	X(StreamQuery, cuStreamQuery, (cu_stream stream))                                         \
	X(StreamWaitEvent, cuStreamWaitEvent,                                                     \
		(cu_stream stream, cu_event event, unsigned int flags))                           \
	X(StreamIsCapturing, cuStreamIsCapturing, (cu_stream stream, cu_capture_status * status)) \
	X(EventCreate, cuEventCreate, (cu_event * event, unsigned int flags))                     \
	X(EventDestroy, cuEventDestroy_v2, (cu_event event))                                      \
	X(EventRecord, cuEventRecord, (cu_event event, cu_stream stream))                         \
	X(EventQuery, cuEventQuery, (cu_event event))                                             \
	X(MemcpyAsync, cuMemcpyAsync,                                                             \
		(cu_pointer dst, cu_pointer src, size_t n, cu_stream stream))                     \
	X(MemsetD8Async, cuMemsetD8Async,                                                         \
		(cu_pointer dst, unsigned char byte, size_t n, cu_stream stream))                 \
	X(LaunchHostFunc, cuLaunchHostFunc, (cu_stream stream, cu_host_fn fn, void *arg))         \
	X(ModuleLoadData, cuModuleLoadData, (cu_module * module, const void *image))              \
	X(ModuleUnload, cuModuleUnload, (cu_module module))                                       \
	X(ModuleGetFunction, cuModuleGetFunction,                                                 \
		(cu_function * function, cu_module module, const char *name))                     \
	X(LaunchKernel, cuLaunchKernel,                                                           \
		(cu_function function, unsigned int gx, unsigned int gy, unsigned int gz,         \
			unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,   \
			cu_stream stream, void **params, void **extra))                           \
	X(IpcGetMemHandle, cuIpcGetMemHandle, (cu_ipc_handle * handle, cu_pointer ptr))           \
	X(IpcOpenMemHandle, cuIpcOpenMemHandle_v2,                                                \
		(cu_pointer * ptr, cu_ipc_handle handle, unsigned int flags))                     \
	X(IpcCloseMemHandle, cuIpcCloseMemHandle, (cu_pointer ptr))

#define CUDA_OPTIONAL(X)                                                                         \
	X(FuncLoad, cuFuncLoad, (cu_function function))                                          \
	X(LaunchKernelEx, cuLaunchKernelEx,                                                      \
		(const cu_launch *launch, cu_function function, void **params, void **extra))    \
	X(StreamGetId, cuStreamGetId, (cu_stream stream, unsigned long long *id))                \
	X(StreamPriorities, cuCtxGetStreamPriorityRange, (int *least, int *greatest))            \
	X(StreamCreateFirst, cuStreamCreateWithPriority,                                         \
		(cu_stream * stream, unsigned int flags, int priority))                          \
	X(StreamWriteValue, cuStreamWriteValue64_v2,                                             \
		(cu_stream stream, cu_pointer word, cu_word value, unsigned int flags))          \
	X(StreamWaitValue, cuStreamWaitValue64_v2,                                               \
		(cu_stream stream, cu_pointer word, cu_word value, unsigned int flags))          \
	X(PointerGetAttribute, cuPointerGetAttribute,                                            \
		(void *data, cu_pointer_attribute what, cu_pointer ptr))                         \
	X(CaptureMode, cuThreadExchangeStreamCaptureMode, (cu_capture_mode * mode))              \
	X(MemAllocAsync, cuMemAllocAsync, (cu_pointer * ptr, size_t size, cu_stream stream))     \
	X(MemFreeAsync, cuMemFreeAsync, (cu_pointer ptr, cu_stream stream))                      \
	X(MemGranularity, cuMemGetAllocationGranularity,                                         \
		(size_t * bytes, const cu_memory_prop *prop, cu_granularity which))              \
	X(MemAddressReserve, cuMemAddressReserve,                                                \
		(cu_pointer * ptr, size_t size, size_t align, cu_pointer at,                     \
			unsigned long long flags))                                               \
	X(MemAddressFree, cuMemAddressFree, (cu_pointer ptr, size_t size))                       \
	X(MemCreate, cuMemCreate,                                                                \
		(cu_memory * memory, size_t size, const cu_memory_prop *prop,                    \
			unsigned long long flags))                                               \
	X(MemRelease, cuMemRelease, (cu_memory memory))                                          \
	X(MemMap, cuMemMap,                                                                      \
		(cu_pointer ptr, size_t size, size_t offset, cu_memory memory,                   \
			unsigned long long flags))                                               \
	X(MemUnmap, cuMemUnmap, (cu_pointer ptr, size_t size))                                   \
	X(MemSetAccess, cuMemSetAccess,                                                          \
		(cu_pointer ptr, size_t size, const cu_memory_access *access, size_t n))         \
	X(MemRetain, cuMemRetainAllocationHandle, (cu_memory * memory, void *ptr))               \
	X(MemRangeHandle, cuMemGetHandleForAddressRange,                                         \
		(void *handle, cu_pointer ptr, size_t size, cu_range_type type,                  \
			unsigned long long flags))                                               \
	X(MemExport, cuMemExportToShareableHandle,                                               \
		(void *handle, cu_memory memory, cu_handle_type type, unsigned long long flags)) \
	X(MemImport, cuMemImportFromShareableHandle,                                             \
		(cu_memory * memory, void *handle, cu_handle_type type))                         \
	X(MulticastGranularity, cuMulticastGetGranularity,                                       \
		(size_t * bytes, const cu_multicast_prop *prop, cu_multicast_granularity which)) \
	X(MulticastCreate, cuMulticastCreate, (cu_memory * team, const cu_multicast_prop *prop)) \
	X(MulticastAddDevice, cuMulticastAddDevice, (cu_memory team, cu_device device))          \
	X(MulticastBindMem, cuMulticastBindMem,                                                  \
		(cu_memory team, size_t at, cu_memory memory, size_t offset, size_t size,        \
			unsigned long long flags))                                               \
	X(MulticastUnbind, cuMulticastUnbind,                                                    \
		(cu_memory team, cu_device device, size_t at, size_t size))

struct cuda_api {
#define X(field, symbol, args) cu_result(*field) args;
	CUDA_REQUIRED(X)
	CUDA_OPTIONAL(X)
#undef X
};

#endif
