/* SPDX-License-Identifier: MIT */
#include "mem.h"

#include <stdlib.h>
#include <string.h>

#include "fault.h"

/* The product is checked here, because AddressSanitizer's calloc ends the process where it wraps. */
void *mem_calloc(size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes) || fault_here(FAULT_ALLOC))
		return NULL;
	return calloc(1, bytes);
}

void *mem_alloc(size_t size)
{
	return fault_here(FAULT_ALLOC) ? NULL : malloc(size);
}

void *mem_aligned(size_t align, size_t size)
{
	void *ptr = NULL;

	if (fault_here(FAULT_ALLOC) || posix_memalign(&ptr, align, size))
		return NULL;
	return memset(ptr, 0, size);
}

char *mem_strdup(const char *text)
{
	return fault_here(FAULT_ALLOC) ? NULL : strdup(text);
}

void mem_free(void *ptr)
{
	free(ptr);
}
