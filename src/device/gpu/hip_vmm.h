/* SPDX-License-Identifier: MIT */
/* What gpu/hip_vmm.c does for gpu/hip_memory.c. */
#ifndef SPMT_DEVICE_HIP_VMM_H
#define SPMT_DEVICE_HIP_VMM_H

#include "hip_state.h"

/* Each takes vmm_lock round the runtime's call. */
int hip_vmm_check(const struct hip_bound *b, const char *what); /* -ENOTSUP with a sentence */
hip_result hip_range_reserve(struct hip_state *state, size_t size, size_t align, void **base);
hip_result hip_range_free(struct hip_state *state, void *base, size_t size);
/* Maps and gives access to the bound device and n peers; a failure leaves nothing mapped. */
int hip_range_map(const struct hip_bound *b, void *at, size_t size, hip_memory memory,
	const int *peers, int n);
hip_result hip_range_unmap(const struct hip_bound *b, void *at, size_t size);
hip_result hip_memory_release(const struct hip_bound *b, hip_memory memory);
/* Unmaps and releases what a record says. */
int hip_range_undo(const struct hip_bound *b, const struct vendor_range *range);
static inline hip_memory hip_memory_of(const struct vendor_range *range)
{
	return (hip_memory)(uintptr_t)range->handle;
}

#endif
