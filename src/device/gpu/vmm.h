/* SPDX-License-Identifier: MIT */
/* Ranges backed on demand: what vmm.c does for share.c, which maps what other processes name. */
#ifndef SPMT_GPU_VMM_H
#define SPMT_GPU_VMM_H

#include "bind.h"

/* Each takes vmm_lock round the vendor's call, where it has to. */
/* 0, or SPMT_ERR_UNSUPPORTED with a sentence. */
int gpu_vmm_check(const struct gpu_bound *b, bool shared, const char *what);
enum gpu_vmm gpu_vmm(const struct gpu_bound *b);
int gpu_range_reserve(const struct gpu_bound *b, size_t size, size_t align, void **base);
int gpu_range_free(const struct gpu_bound *b, void *base, size_t size);
/* Maps and gives access to the bound device and n peers; a failure leaves nothing mapped. */
int gpu_range_map(
	const struct gpu_bound *b, const struct vendor_range *range, const int *peers, int n);
int gpu_range_unmap(const struct gpu_bound *b, const struct vendor_range *range);
int gpu_memory_release(const struct gpu_bound *b, void *memory);
/* Unmaps and releases what a record says. */
int gpu_range_undo(const struct gpu_bound *b, const struct vendor_range *range);
int gpu_memory_export(const struct gpu_bound *b, void *memory, int *fd);
int gpu_memory_import(const struct gpu_bound *b, int fd, void **memory);

static inline void *gpu_memory_of(const struct vendor_range *range)
{
	return (void *)(uintptr_t)range->handle;
}

/* What a commit asks memory for; also whether a vendor has it is asked with this. */
struct gpu_memory_prop gpu_memory_prop(const struct gpu_bound *b, bool shared);

#endif
