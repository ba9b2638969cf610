/* SPDX-License-Identifier: MIT */
/*
 * What cuda.c knows of libcuda.so.1, declared here so that building needs no CUDA.
 * tests/abi/abi_cuda.c compares every line with cuda.h where that is installed; it defines the cu_
 * types as cuda.h's own before it includes this.
 */
#ifndef SPMT_ABI_CUDA_H
#define SPMT_ABI_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"

#ifndef ABI_CUDA_VENDOR_TYPES
typedef int cu_result;
typedef int cu_device;
typedef int cu_attribute;
typedef int cu_p2p_attribute;
typedef int cu_handle_type;
typedef int cu_granularity;
typedef int cu_multicast_granularity;
typedef int cu_range_type;
typedef int cu_capture_status;
typedef int cu_capture_mode;
typedef int cu_pointer_attribute;
/* Integers of a pointer's size in cuda.h, and passed as pointers are. */
typedef void *cu_pointer;
typedef void *cu_memory;
typedef void *cu_context;
typedef void *cu_module;
typedef void *cu_function;
typedef void *cu_stream;
typedef void *cu_event;
typedef uint64_t cu_word;
typedef void (*cu_host_fn)(void *arg);
typedef struct gpu_uuid cu_uuid;
typedef struct gpu_ipc_handle cu_ipc_handle;
typedef struct gpu_location cu_location;
typedef struct gpu_memory_prop cu_memory_prop;
typedef struct gpu_memory_access cu_memory_access;
typedef struct cuda_multicast_prop cu_multicast_prop;
typedef struct cuda_launch cu_launch;
#endif
/* A launch with attributes, each a number and up to 64 bytes, as so many words. */
struct cuda_launch_attribute {
	unsigned int id;
	uint64_t value[8];
};
struct cuda_launch {
	unsigned int grid[3], block[3], shared;
	void *stream;
	struct cuda_launch_attribute *attributes;
	unsigned int count;
};
/* What a multicast object is to be: of so many devices, and bytes of each. */
struct cuda_multicast_prop {
	unsigned int devices;
	size_t size;
	unsigned long long handle_types, flags;
};

/* X(ours, cuda.h's, value) */
#define CUDA_VALUES(X)                                                                      \
	X(CU_OK, CUDA_SUCCESS, 0)                                                           \
	X(CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE, 1)                                    \
	X(CU_NO_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, 2)                                        \
	X(CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED, 3)                                \
	X(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE, 100)                                          \
	X(CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE, 101)                                \
	X(CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT, 201)                              \
	X(CU_PEER_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217)                     \
	X(CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE, 400)                                \
	X(CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND, 500)                                          \
	X(CU_NOT_READY, CUDA_ERROR_NOT_READY, 600)                                          \
	X(CU_PEER_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                     \
	X(CU_TOO_MANY_PEERS, CUDA_ERROR_TOO_MANY_PEERS, 711)                                \
	X(CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED, 800)                                  \
	X(CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED, 801)                                  \
	X(CU_ATTR_UNITS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                      \
	X(CU_ATTR_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                  \
	X(CU_ATTR_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                  \
	X(CU_ATTR_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)        \
	X(CU_ATTR_WORDS, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122)            \
	X(CU_ATTR_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103) \
	X(CU_ATTR_MULTICAST, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 132)                  \
	X(CU_P2P_ACCESS, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 2)                       \
	X(CU_P2P_ATOMICS, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 3)               \
	X(CU_WAIT_GEQ, CU_STREAM_WAIT_VALUE_GEQ, 0)                                         \
	X(CU_WRITE_DEFAULT, CU_STREAM_WRITE_VALUE_DEFAULT, 0)                               \
	X(CU_NON_BLOCKING, CU_STREAM_NON_BLOCKING, 1)                                       \
	X(CU_NO_TIMING, CU_EVENT_DISABLE_TIMING, 2)                                         \
	X(CU_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID, 7)                                  \
	X(CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE, 1)                                    \
	X(CU_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP, 2)                                     \
	X(CU_IPC_LAZY_PEER, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                          \
	X(CU_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                      \
	X(CU_ON_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE, 1)                                     \
	X(CU_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                               \
	X(CU_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                             \
	X(CU_DMABUF_FD, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 1)                             \
	X(CU_MULTICAST_MINIMUM, CU_MULTICAST_GRANULARITY_MINIMUM, 0)                        \
	X(CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                      \
	X(CU_LAUNCH_EARLY, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6)        \
	X(CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED, 2)                            \
	X(CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE, 0)

enum {
#define X(ours, theirs, value) ours = value,
	CUDA_VALUES(X)
#undef X
};
/* Launch arguments as one buffer: the driver's numbers for `extra`. */
#define CU_LAUNCH_BUFFER ((void *)1)
#define CU_LAUNCH_SIZE ((void *)2)
#define CU_LAUNCH_END ((void *)0)

#endif
