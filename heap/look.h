/* SPDX-License-Identifier: MIT */
/* A heap whose blocks are looked at (heap->check is not NULL): what they are, and what becomes of those that are freed. Any
   thread. */
#ifndef SPMT_LOOK_H
#define SPMT_LOOK_H

#include "heap.h"

/* All ranks have agreed on this block: `made` is its number among its owner's. */
void heap_named(struct heap *heap, uint64_t offset, const char *maker, uint64_t made);

/* Frees a block, but keeps it for a while unless it is too long; `freed` is its number among those that its owner frees. */
int heap_keep(struct heap *heap, uint64_t offset, uint64_t freed);
/* Which kept one has to go before a block of `span` bytes can be kept; false: none, or it will not be kept. heap_leave: the
   one at this offset goes; false: it is none. Nobody else frees it now: the caller has to. */
bool heap_kept_over(struct heap *heap, uint64_t span, struct heap_block *oldest);
bool heap_leave(struct heap *heap, uint64_t offset);

/* The last block that begins at or below an offset, the first at or above, kept ones included; false: none. */
bool heap_block_below(struct heap *heap, uint64_t offset, struct heap_block *block);
bool heap_block_from(struct heap *heap, uint64_t offset, struct heap_block *block);

#endif
