/* SPDX-License-Identifier: MIT */
/* The calls of libamdhip64 that the hip backend makes; checked as abi_hip.h is. A field has
   CUDA's name where CUDA has the call. */
#ifndef SPMT_ABI_HIP_CALLS_H
#define SPMT_ABI_HIP_CALLS_H

#include "abi_hip.h"

/* X(field, symbol, parameters); all return hip_result but the two that give text. */
#define HIP_REQUIRED(X)                                                                            \
	X(Init, hipInit, (unsigned int flags))                                                     \
	X(RuntimeGetVersion, hipRuntimeGetVersion, (int *version))                                 \
	X(GetLastError, hipGetLastError, (void))                                                   \
	X(PeekAtLastError, hipPeekAtLastError, (void))                                             \
	X(DeviceGetCount, hipGetDeviceCount, (int *count))                                         \
	X(GetDevice, hipGetDevice, (int *device))                                                  \
	X(SetDevice, hipSetDevice, (int device))                                                   \
	X(DeviceGetName, hipDeviceGetName, (char *name, int size, int device))                     \
	X(DeviceGetPCIBusId, hipDeviceGetPCIBusId, (char *id, int size, int device))               \
	X(DeviceTotalMem, hipDeviceTotalMem, (size_t * bytes, int device))                         \
	X(DeviceGetAttribute, hipDeviceGetAttribute, (int *value, hip_attribute what, int device)) \
	X(DeviceCanAccessPeer, hipDeviceCanAccessPeer, (int *can, int from, int to))               \
	X(DeviceGetP2PAttribute, hipDeviceGetP2PAttribute,                                         \
		(int *value, hip_p2p_attribute what, int from, int to))                            \
	X(DeviceEnablePeerAccess, hipDeviceEnablePeerAccess, (int peer, unsigned int flags))       \
	X(MemAlloc, hipMalloc, (void **ptr, size_t size))                                          \
	X(ExtMallocWithFlags, hipExtMallocWithFlags,                                               \
		(void **ptr, size_t size, unsigned int flags))                                     \
	X(MemFree, hipFree, (void *ptr))                                                           \
	X(MemGetAddressRange, hipMemGetAddressRange, (void **base, size_t *size, void *ptr))       \
	X(MemHostAlloc, hipHostMalloc, (void **ptr, size_t size, unsigned int flags))              \
	X(MemFreeHost, hipHostFree, (void *ptr))                                                   \
	X(MemHostGetDevicePointer, hipHostGetDevicePointer,                                        \
		(void **device, void *host, unsigned int flags))                                   \
	X(StreamCreate, hipStreamCreateWithFlags, (hip_stream * stream, unsigned int flags))       \
	X(StreamDestroy, hipStreamDestroy, (hip_stream stream))                                    \
	X(StreamQuery, hipStreamQuery, (hip_stream stream))                                        \
	X(StreamWaitEvent, hipStreamWaitEvent,                                                     \
		(hip_stream stream, hip_event event, unsigned int flags))                          \
	X(StreamIsCapturing, hipStreamIsCapturing,                                                 \
		(hip_stream stream, hip_capture_status * status))                                  \
	X(StreamAddCallback, hipStreamAddCallback,                                                 \
		(hip_stream stream, hip_callback fn, void *arg, unsigned int flags))               \
	X(EventCreate, hipEventCreateWithFlags, (hip_event * event, unsigned int flags))           \
	X(EventDestroy, hipEventDestroy, (hip_event event))                                        \
	X(EventRecord, hipEventRecord, (hip_event event, hip_stream stream))                       \
	X(EventQuery, hipEventQuery, (hip_event event))                                            \
	X(MemcpyAsync, hipMemcpyAsync,                                                             \
		(void *dst, const void *src, size_t n, hip_copy_kind kind, hip_stream stream))     \
	X(MemsetAsync, hipMemsetAsync, (void *dst, int byte, size_t n, hip_stream stream))         \
	X(ModuleLoadData, hipModuleLoadData, (hip_module * module, const void *image))             \
	X(ModuleUnload, hipModuleUnload, (hip_module module))                                      \
	X(ModuleGetFunction, hipModuleGetFunction,                                                 \
		(hip_function * function, hip_module module, const char *name))                    \
	X(LaunchKernel, hipModuleLaunchKernel,                                                     \
		(hip_function function, unsigned int gx, unsigned int gy, unsigned int gz,         \
			unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,    \
			hip_stream stream, void **params, void **extra))                           \
	X(IpcGetMemHandle, hipIpcGetMemHandle, (hip_ipc_handle * handle, void *ptr))               \
	X(IpcOpenMemHandle, hipIpcOpenMemHandle,                                                   \
		(void **ptr, hip_ipc_handle handle, unsigned int flags))                           \
	X(IpcCloseMemHandle, hipIpcCloseMemHandle, (void *ptr))

#define HIP_OPTIONAL(X)                                                                            \
	X(DeviceGetUuid, hipDeviceGetUuid, (hip_uuid * uuid, int device))                          \
	X(LaunchHostFunc, hipLaunchHostFunc, (hip_stream stream, hip_host_fn fn, void *arg))       \
	X(StreamPriorities, hipDeviceGetStreamPriorityRange, (int *least, int *greatest))          \
	X(StreamCreateFirst, hipStreamCreateWithPriority,                                          \
		(hip_stream * stream, unsigned int flags, int priority))                           \
	X(StreamWriteValue, hipStreamWriteValue64,                                                 \
		(hip_stream stream, void *word, uint64_t value, unsigned int flags))               \
	X(StreamWaitValue, hipStreamWaitValue64,                                                   \
		(hip_stream stream, void *word, uint64_t value, unsigned int flags,                \
			uint64_t mask))                                                            \
	X(CaptureMode, hipThreadExchangeStreamCaptureMode, (hip_capture_mode * mode))              \
	X(PointerGetAttribute, hipPointerGetAttribute,                                             \
		(void *data, hip_pointer_attribute what, void *ptr))                               \
	X(MemAllocAsync, hipMallocAsync, (void **ptr, size_t size, hip_stream stream))             \
	X(MemFreeAsync, hipFreeAsync, (void *ptr, hip_stream stream))                              \
	X(MemGranularity, hipMemGetAllocationGranularity,                                          \
		(size_t * bytes, const hip_memory_prop *prop, hip_granularity_kind which))         \
	X(MemAddressReserve, hipMemAddressReserve,                                                 \
		(void **ptr, size_t size, size_t align, void *at, unsigned long long flags))       \
	X(MemAddressFree, hipMemAddressFree, (void *ptr, size_t size))                             \
	X(MemCreate, hipMemCreate,                                                                 \
		(hip_memory * memory, size_t size, const hip_memory_prop *prop,                    \
			unsigned long long flags))                                                 \
	X(MemRelease, hipMemRelease, (hip_memory memory))                                          \
	X(MemMap, hipMemMap,                                                                       \
		(void *ptr, size_t size, size_t offset, hip_memory memory,                         \
			unsigned long long flags))                                                 \
	X(MemUnmap, hipMemUnmap, (void *ptr, size_t size))                                         \
	X(MemSetAccess, hipMemSetAccess,                                                           \
		(void *ptr, size_t size, const hip_memory_access *access, size_t n))               \
	X(MemExport, hipMemExportToShareableHandle,                                                \
		(void *handle, hip_memory memory, hip_handle_type type, unsigned long long flags)) \
	X(MemImport, hipMemImportFromShareableHandle,                                              \
		(hip_memory * memory, void *handle, hip_handle_type type))

/* Younger than some of the headers. */
#define HIP_YOUNG(X)                                      \
	X(MemRangeHandle, hipMemGetHandleForAddressRange, \
		(void *handle, void *ptr, size_t size, int type, unsigned long long flags))

/* Which of the two a header declares depends on its version. */
#define HIP_PROPS(X)                                                         \
	X(GetProps, hipGetDeviceProperties, (hip_props * props, int device)) \
	X(GetPropsR0600, hipGetDevicePropertiesR0600, (hip_props * props, int device))

/* Not hip_result. */
#define HIP_TEXTS(X)                                         \
	X(GetErrorName, hipGetErrorName, (hip_result error)) \
	X(GetErrorString, hipGetErrorString, (hip_result error))

struct hip_api {
#define X(field, symbol, args) hip_result(*field) args;
	HIP_REQUIRED(X)
	HIP_OPTIONAL(X)
	HIP_YOUNG(X)
	HIP_PROPS(X)
#undef X
#define X(field, symbol, args) const char *(*field)args;
	HIP_TEXTS(X)
#undef X
};

#endif
