/* SPDX-License-Identifier: MIT */
/* Compiling is the test: abi_cuda.h says of libcuda what cuda.h says. */
#include <cuda.h>

#define ABI_CUDA_VENDOR_TYPES
typedef CUresult cu_result;
typedef CUdevice cu_device;
typedef CUdevice_attribute cu_attribute;
typedef CUdevice_P2PAttribute cu_p2p_attribute;
typedef CUmemAllocationHandleType cu_handle_type;
typedef CUmemAllocationGranularity_flags cu_granularity;
typedef CUmulticastGranularity_flags cu_multicast_granularity;
typedef CUmulticastObjectProp cu_multicast_prop;
typedef CUlaunchConfig cu_launch;
typedef CUmemRangeHandleType cu_range_type;
typedef CUstreamCaptureStatus cu_capture_status;
typedef CUstreamCaptureMode cu_capture_mode;
typedef CUpointer_attribute cu_pointer_attribute;
typedef CUdeviceptr cu_pointer;
typedef CUmemGenericAllocationHandle cu_memory;
typedef CUcontext cu_context;
typedef CUmodule cu_module;
typedef CUfunction cu_function;
typedef CUstream cu_stream;
typedef CUevent cu_event;
typedef cuuint64_t cu_word;
typedef CUhostFn cu_host_fn;
typedef CUuuid cu_uuid;
typedef CUipcMemHandle cu_ipc_handle;
typedef CUmemLocation cu_location;
typedef CUmemAllocationProp cu_memory_prop;
typedef CUmemAccessDesc cu_memory_access;

#include "src/device/gpu/abi_cuda_calls.h"

#define X(ours, theirs, value) _Static_assert((long long)(theirs) == (value), #theirs);
CUDA_VALUES(X)
#undef X

#define X(field, symbol, args)                                                                  \
	_Static_assert(__builtin_types_compatible_p(                                            \
			       __typeof__(((struct cuda_api *)0)->field), __typeof__(&symbol)), \
		#symbol);
CUDA_REQUIRED(X)
CUDA_OPTIONAL(X)
#undef X

/* What abi_cuda.h declares for builds without cuda.h. */
#define SAME_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
SAME_SIZE(CUresult, sizeof(int));
SAME_SIZE(CUdevice, sizeof(int));
SAME_SIZE(CUdevice_attribute, sizeof(int));
SAME_SIZE(CUdevice_P2PAttribute, sizeof(int));
SAME_SIZE(CUmemAllocationHandleType, sizeof(int));
SAME_SIZE(CUmemAllocationGranularity_flags, sizeof(int));
SAME_SIZE(CUmulticastGranularity_flags, sizeof(int));
SAME_SIZE(CUmulticastObjectProp, sizeof(struct cuda_multicast_prop));
SAME_SIZE(CUlaunchConfig, sizeof(struct cuda_launch));
SAME_SIZE(CUlaunchAttribute, sizeof(struct cuda_launch_attribute));
SAME_SIZE(CUmemRangeHandleType, sizeof(int));
SAME_SIZE(CUstreamCaptureStatus, sizeof(int));
SAME_SIZE(CUstreamCaptureMode, sizeof(int));
SAME_SIZE(CUpointer_attribute, sizeof(int));
SAME_SIZE(CUdeviceptr, sizeof(void *));
SAME_SIZE(CUmemGenericAllocationHandle, sizeof(void *));
SAME_SIZE(CUcontext, sizeof(void *));
SAME_SIZE(CUstream, sizeof(void *));
SAME_SIZE(CUuuid, 16);
SAME_SIZE(CUipcMemHandle, 64);
SAME_SIZE(CUmemLocation, sizeof(struct gpu_location));
SAME_SIZE(CUmemAllocationProp, sizeof(struct gpu_memory_prop));
SAME_SIZE(CUmemAccessDesc, sizeof(struct gpu_memory_access));
_Static_assert(offsetof(CUmemLocation, id) == offsetof(struct gpu_location, id), "location.id");
_Static_assert(offsetof(CUmemAllocationProp, requestedHandleTypes) ==
		offsetof(struct gpu_memory_prop, handle_type),
	"prop.requestedHandleTypes");
_Static_assert(
	offsetof(CUmemAllocationProp, location) == offsetof(struct gpu_memory_prop, location),
	"prop.location");
_Static_assert(offsetof(CUmemAllocationProp, win32HandleMetaData) ==
		offsetof(struct gpu_memory_prop, win32),
	"prop.win32HandleMetaData");
_Static_assert(offsetof(CUmemAllocationProp, allocFlags) == offsetof(struct gpu_memory_prop, flags),
	"prop.allocFlags");
_Static_assert(offsetof(CUmemAccessDesc, flags) == offsetof(struct gpu_memory_access, flags),
	"access.flags");
_Static_assert(offsetof(CUmulticastObjectProp, numDevices) ==
		offsetof(struct cuda_multicast_prop, devices),
	"prop.numDevices");
_Static_assert(offsetof(CUmulticastObjectProp, size) == offsetof(struct cuda_multicast_prop, size),
	"prop.size");
_Static_assert(offsetof(CUmulticastObjectProp, handleTypes) ==
		offsetof(struct cuda_multicast_prop, handle_types),
	"prop.handleTypes");
_Static_assert(
	offsetof(CUmulticastObjectProp, flags) == offsetof(struct cuda_multicast_prop, flags),
	"prop.flags");
_Static_assert(offsetof(CUlaunchConfig, blockDimX) == offsetof(struct cuda_launch, block) &&
		offsetof(CUlaunchConfig, sharedMemBytes) == offsetof(struct cuda_launch, shared) &&
		offsetof(CUlaunchConfig, hStream) == offsetof(struct cuda_launch, stream) &&
		offsetof(CUlaunchConfig, attrs) == offsetof(struct cuda_launch, attributes) &&
		offsetof(CUlaunchConfig, numAttrs) == offsetof(struct cuda_launch, count) &&
		offsetof(CUlaunchAttribute, value) == offsetof(struct cuda_launch_attribute, value),
	"launch");
#ifndef __clang__ /* which takes no pointer for a constant */
_Static_assert((unsigned long)CU_STREAM_LEGACY == 1 && (unsigned long)CU_STREAM_PER_THREAD == 2,
	"streams");
#endif
_Static_assert(CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT == 1 &&
		CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT == 2 && CU_LAUNCH_PARAM_END_AS_INT == 0,
	"launch parameters");
