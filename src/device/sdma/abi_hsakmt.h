/* SPDX-License-Identifier: MIT */
/*
 * What sdma/kmt.c knows of libhsakmt, AMD's library over the driver of compute, declared here so that building needs no ROCm.
 * tests/abi/abi_hsakmt.c compares every line with hsakmt.h where that is installed; it defines the types as the header's own first.
 * Properties of nodes are not asked for: their structs differ from version to version, and the driver tells the same in sysfs.
 */
#ifndef SPMT_ABI_HSAKMT_H
#define SPMT_ABI_HSAKMT_H

#include <stddef.h>
#include <stdint.h>

/* X(ours, the header's, value) */
#define KMT_VALUES(X)                                                  \
	X(KMT_OK, HSAKMT_STATUS_SUCCESS, 0)                            \
	X(KMT_ALREADY_OPENED, HSAKMT_STATUS_KERNEL_ALREADY_OPENED, 22) \
	X(KMT_QUEUE_SDMA, HSA_QUEUE_SDMA, 2)                           \
	X(KMT_QUEUE_SDMA_XGMI, HSA_QUEUE_SDMA_XGMI, 5)                 \
	X(KMT_PRIORITY_MOST, HSA_QUEUE_PRIORITY_MAXIMUM, 3)            \
	X(KMT_LINK_XGMI, HSA_IOLINK_TYPE_XGMI, 11)

enum {
#define X(ours, theirs, value) ours = value,
	KMT_VALUES(X)
#undef X
		KMT_QUEUE_SDMA_ENGINE = 6 /* with hsaKmtCreateQueueExt, which older versions lack */
};

/* Bits of HsaMemFlags. */
#define KMT_MEMORY_HOST (1u << 6)
#define KMT_MEMORY_EXECUTE (1u << 12)
#define KMT_MEMORY_ANYWHERE (1u << 16) /* on any NUMA node */

#ifndef ABI_HSAKMT_VENDOR_TYPES
typedef uint32_t HSAKMT_STATUS, HSA_QUEUE_TYPE;
typedef int64_t HSA_QUEUE_PRIORITY; /* an enum with values of both signs beyond 31 bits */
typedef uint64_t HSA_QUEUEID;
typedef struct HsaEvent HsaEvent;
typedef struct {
	uint32_t Value;
} HsaMemFlags;
typedef struct {
	uint32_t NumNodes, PlatformOem, PlatformId, PlatformRev;
} HsaSystemProperties;
/* Positions of an SDMA queue are 64-bit since SDMA 4. */
typedef struct {
	HSA_QUEUEID QueueId;
	uint64_t *Queue_DoorBell_aql, *Queue_write_ptr_aql, *Queue_read_ptr_aql;
	volatile int64_t *ErrorReason;
} HsaQueueResource;
#endif

#define KMT_CALLS(X)                                                                           \
	X(open, hsaKmtOpenKFD, HSAKMT_STATUS, (void))                                          \
	X(acquire, hsaKmtAcquireSystemProperties, HSAKMT_STATUS, (HsaSystemProperties *))      \
	X(alloc, hsaKmtAllocMemory, HSAKMT_STATUS, (uint32_t, uint64_t, HsaMemFlags, void **)) \
	X(free, hsaKmtFreeMemory, HSAKMT_STATUS, (void *, uint64_t))                           \
	X(map, hsaKmtMapMemoryToGPU, HSAKMT_STATUS, (void *, uint64_t, uint64_t *))            \
	X(unmap, hsaKmtUnmapMemoryToGPU, HSAKMT_STATUS, (void *))                              \
	X(create, hsaKmtCreateQueue, HSAKMT_STATUS,                                            \
		(uint32_t, HSA_QUEUE_TYPE, uint32_t, HSA_QUEUE_PRIORITY, void *, uint64_t,     \
			HsaEvent *, HsaQueueResource *))                                       \
	X(destroy, hsaKmtDestroyQueue, HSAKMT_STATUS, (HSA_QUEUEID))

/* May be NULL. */
typedef HSAKMT_STATUS (*kmt_create_on)(uint32_t, HSA_QUEUE_TYPE, uint32_t, HSA_QUEUE_PRIORITY,
	uint32_t, void *, uint64_t, HsaEvent *, HsaQueueResource *);

struct kmt_api {
#define X(field, symbol, result, args) result(*field) args;
	KMT_CALLS(X)
#undef X
	kmt_create_on create_on;
};

#endif
