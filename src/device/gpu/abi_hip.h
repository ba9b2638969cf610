/* SPDX-License-Identifier: MIT */
/*
 * What hip.c knows of libamdhip64, versions 5 to 7, declared here so that building needs no
 * ROCm. tests/abi/abi_hip.c compares every line with hip_runtime_api.h where that is installed; it
 * defines the hip_ types as the header's own first.
 */
#ifndef SPMT_ABI_HIP_H
#define SPMT_ABI_HIP_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"

#ifndef ABI_HIP_VENDOR_TYPES
typedef int hip_result;
typedef int hip_attribute;
typedef int hip_p2p_attribute;
typedef int hip_handle_type;
typedef int hip_granularity_kind;
typedef int hip_capture_status;
typedef int hip_capture_mode;
typedef int hip_pointer_attribute;
typedef int hip_copy_kind;
typedef void *hip_memory;
typedef void *hip_module;
typedef void *hip_function;
typedef void *hip_stream;
typedef void *hip_event;
typedef void (*hip_host_fn)(void *arg);
typedef void (*hip_callback)(hip_stream stream, hip_result status, void *arg);
typedef struct gpu_uuid hip_uuid;
typedef struct gpu_ipc_handle hip_ipc_handle;
typedef struct gpu_location hip_location;
typedef struct gpu_memory_prop hip_memory_prop;
typedef struct gpu_memory_access hip_memory_access;
typedef void hip_props;
#endif

/* X(ours, the header's, value) */
#define HIP_VALUES(X)                                                     \
	X(HIP_OK, hipSuccess, 0)                                          \
	X(HIP_INVALID_VALUE, hipErrorInvalidValue, 1)                     \
	X(HIP_NO_MEMORY, hipErrorOutOfMemory, 2)                          \
	X(HIP_NOT_INITIALIZED, hipErrorNotInitialized, 3)                 \
	X(HIP_NO_DEVICE, hipErrorNoDevice, 100)                           \
	X(HIP_INVALID_DEVICE, hipErrorInvalidDevice, 101)                 \
	X(HIP_INVALID_CONTEXT, hipErrorInvalidContext, 201)               \
	X(HIP_PEER_UNSUPPORTED, hipErrorPeerAccessUnsupported, 217)       \
	X(HIP_INVALID_HANDLE, hipErrorInvalidHandle, 400)                 \
	X(HIP_NOT_FOUND, hipErrorNotFound, 500)                           \
	X(HIP_NOT_READY, hipErrorNotReady, 600)                           \
	X(HIP_PEER_ENABLED, hipErrorPeerAccessAlreadyEnabled, 704)        \
	X(HIP_NOT_SUPPORTED, hipErrorNotSupported, 801)                   \
	X(HIP_ATTR_UNITS, hipDeviceAttributeMultiprocessorCount, 63)      \
	X(HIP_ATTR_WORDS, hipDeviceAttributeCanUseStreamWaitValue, 10013) \
	X(HIP_P2P_ACCESS, hipDevP2PAttrAccessSupported, 1)                \
	X(HIP_P2P_ATOMICS, hipDevP2PAttrNativeAtomicSupported, 2)         \
	X(HIP_WAIT_GTE, hipStreamWaitValueGte, 0)                         \
	X(HIP_NON_BLOCKING, hipStreamNonBlocking, 1)                      \
	X(HIP_NO_TIMING, hipEventDisableTiming, 2)                        \
	X(HIP_BUFFER_ID, HIP_POINTER_ATTRIBUTE_BUFFER_ID, 7)              \
	X(HIP_DEVICE_ORDINAL, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)    \
	X(HIP_HOST_PORTABLE, hipHostMallocPortable, 1)                    \
	X(HIP_HOST_MAPPED, hipHostMallocMapped, 2)                        \
	X(HIP_HOST_COHERENT, hipHostMallocCoherent, 0x40000000)           \
	X(HIP_FINE_GRAINED, hipDeviceMallocFinegrained, 1)                \
	X(HIP_COPY_ANY, hipMemcpyDefault, 4)                              \
	X(HIP_PINNED, hipMemAllocationTypePinned, 1)                      \
	X(HIP_ON_DEVICE, hipMemLocationTypeDevice, 1)                     \
	X(HIP_FD, hipMemHandleTypePosixFileDescriptor, 1)                 \
	X(HIP_READ_WRITE, hipMemAccessFlagsProtReadWrite, 3)              \
	X(HIP_GRANULARITY_MINIMUM, hipMemAllocationGranularityMinimum, 0) \
	X(HIP_CAPTURE_RELAXED, hipStreamCaptureModeRelaxed, 2)            \
	X(HIP_CAPTURE_NONE, hipStreamCaptureStatusNone, 0)

enum {
#define X(ours, theirs, value) ours = value,
	HIP_VALUES(X)
#undef X
	/* younger than 5.2 */
	HIP_ATTR_VMM = 89,
	HIP_DMABUF_FD = 1,		  /* of hipMemGetHandleForAddressRange, 7.0 */
	HIP_UNCACHED = 3,		  /* of hipExtMallocWithFlags */
	HIP_MEMORY_UNCACHED = 0x40000000, /* of hipMemCreate */
};
/* Launch arguments as one buffer: the runtime's numbers for `extra`. */
#define HIP_LAUNCH_BUFFER ((void *)1)
#define HIP_LAUNCH_SIZE ((void *)2)
#define HIP_LAUNCH_END ((void *)3)

#define HIP_VERSION_OF(major, minor) ((major)*10000000 + (minor)*100000)
/* Where hipDeviceProp_t, of at most this size, has gcnArchName, by the symbol that fills it. */
#define HIP_PROPS_SIZE 4096
#define HIP_ARCH_AT_OLD 396
#define HIP_ARCH_AT_R0600 1160

#endif
