/* SPDX-License-Identifier: MIT */
/* Compiling is the test: abi_hip.h says of libamdhip64 what hip_runtime_api.h says. */
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>

#define ABI_HIP_VENDOR_TYPES
typedef hipError_t hip_result;
typedef hipDeviceAttribute_t hip_attribute;
typedef hipDeviceP2PAttr hip_p2p_attribute;
typedef hipMemAllocationHandleType hip_handle_type;
typedef hipMemAllocationGranularity_flags hip_granularity_kind;
typedef hipStreamCaptureStatus hip_capture_status;
typedef hipStreamCaptureMode hip_capture_mode;
typedef hipPointer_attribute hip_pointer_attribute;
typedef hipMemcpyKind hip_copy_kind;
typedef hipMemGenericAllocationHandle_t hip_memory;
typedef hipModule_t hip_module;
typedef hipFunction_t hip_function;
typedef hipStream_t hip_stream;
typedef hipEvent_t hip_event;
typedef hipHostFn_t hip_host_fn;
typedef hipStreamCallback_t hip_callback;
typedef hipUUID hip_uuid;
typedef hipIpcMemHandle_t hip_ipc_handle;
typedef hipMemLocation hip_location;
typedef hipMemAllocationProp hip_memory_prop;
typedef hipMemAccessDesc hip_memory_access;
typedef hipDeviceProp_t hip_props;

#include "src/device/gpu/abi_hip_calls.h"

#define X(ours, theirs, value) _Static_assert((long long)(theirs) == (value), #theirs);
HIP_VALUES(X)
#undef X

#define X(field, symbol, args)                                                                 \
	_Static_assert(__builtin_types_compatible_p(                                           \
			       __typeof__(((struct hip_api *)0)->field), __typeof__(&symbol)), \
		#symbol);
HIP_REQUIRED(X)
HIP_OPTIONAL(X)
HIP_TEXTS(X)
#undef X

/* What abi_hip.h declares for builds without the header. */
#define SAME_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
SAME_SIZE(hipError_t, sizeof(int));
SAME_SIZE(hipDevice_t, sizeof(int));
SAME_SIZE(hipDeviceAttribute_t, sizeof(int));
SAME_SIZE(hipDeviceP2PAttr, sizeof(int));
SAME_SIZE(hipMemAllocationHandleType, sizeof(int));
SAME_SIZE(hipMemAllocationGranularity_flags, sizeof(int));
SAME_SIZE(hipStreamCaptureStatus, sizeof(int));
SAME_SIZE(hipStreamCaptureMode, sizeof(int));
SAME_SIZE(hipMemcpyKind, sizeof(int));
SAME_SIZE(hipDeviceptr_t, sizeof(void *));
SAME_SIZE(hipMemGenericAllocationHandle_t, sizeof(void *));
SAME_SIZE(hipUUID, 16);
SAME_SIZE(hipIpcMemHandle_t, 64);
SAME_SIZE(hipMemLocation, sizeof(struct gpu_location));
SAME_SIZE(hipMemAllocationProp, sizeof(struct gpu_memory_prop));
SAME_SIZE(hipMemAccessDesc, sizeof(struct gpu_memory_access));
_Static_assert(offsetof(hipMemLocation, id) == offsetof(struct gpu_location, id), "location.id");
_Static_assert(offsetof(hipMemAccessDesc, flags) == offsetof(struct gpu_memory_access, flags),
	"access.flags");
_Static_assert(sizeof(hipDeviceProp_t) <= HIP_PROPS_SIZE, "props");

#if HIP_VERSION_MAJOR >= 6
#undef hipGetDeviceProperties
_Static_assert(offsetof(hipDeviceProp_t, gcnArchName) == HIP_ARCH_AT_R0600, "gcnArchName");
#else
_Static_assert(offsetof(hipDeviceProp_t, gcnArchName) == HIP_ARCH_AT_OLD, "gcnArchName");
#endif

/* Ranges backed on demand are used from 6.2 on. */
#if HIP_VERSION_MAJOR > 6 || (HIP_VERSION_MAJOR == 6 && HIP_VERSION_MINOR >= 2)
_Static_assert(hipDeviceAttributeVirtualMemoryManagementSupported == HIP_ATTR_VMM, "attribute");
_Static_assert(hipDeviceMallocUncached == HIP_UNCACHED, "uncached");
_Static_assert(offsetof(hipMemAllocationProp, type) == offsetof(struct gpu_memory_prop, type),
	"prop.type");
_Static_assert(offsetof(hipMemAllocationProp, requestedHandleType) ==
		offsetof(struct gpu_memory_prop, handle_type),
	"prop.requestedHandleType");
_Static_assert(
	offsetof(hipMemAllocationProp, location) == offsetof(struct gpu_memory_prop, location),
	"prop.location");
_Static_assert(offsetof(hipMemAllocationProp, win32HandleMetaData) ==
		offsetof(struct gpu_memory_prop, win32),
	"prop.win32HandleMetaData");
_Static_assert(
	offsetof(hipMemAllocationProp, allocFlags) == offsetof(struct gpu_memory_prop, flags),
	"prop.allocFlags");
#endif

#if HIP_VERSION_MAJOR >= 7
_Static_assert((int)hipMemRangeHandleTypeDmaBufFd == HIP_DMABUF_FD, "dma-buf");
_Static_assert(sizeof(hipMemRangeHandleType) == sizeof(int), "hipMemRangeHandleType");
static hipError_t (*const range_handle)(void *, hipDeviceptr_t, size_t, hipMemRangeHandleType,
	unsigned long long) __attribute__((unused)) = hipMemGetHandleForAddressRange;
#endif
