/* SPDX-License-Identifier: MIT */
/*
 * Process memory. A fault sweep can refuse every request (FAULT_ALLOC). NULL means -ENOMEM; the
 * caller, who knows what it was for, writes the sentence. Free with mem_free, which takes NULL.
 */
#ifndef SPMT_MEM_H
#define SPMT_MEM_H

#include <stddef.h>

/* Not zeroed. */
void *mem_alloc(size_t size);
/* Zeroed; NULL as well when n * size wraps. */
void *mem_calloc(size_t n, size_t size);
/* Zeroed, the address a multiple of `align` (a power of two, at least sizeof(void *)). */
void *mem_aligned(size_t align, size_t size);
char *mem_strdup(const char *text);
void mem_free(void *ptr);

#endif
