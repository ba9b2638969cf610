/* SPDX-License-Identifier: MIT */
/*
 * Offsets in [0, size): pure arithmetic, no memory touched, no address known. Deterministic: equal
 * calls in equal order give equal offsets on every rank, which is what makes a heap symmetric.
 * Blocks go to the lowest offset where they fit. alloc and free are O(log n) in live blocks (above
 * an alignment of 8 MiB: plus the large gaps that were tried). Not thread-safe: the owner
 * serialises.
 */
#ifndef SPMT_ARENA_H
#define SPMT_ARENA_H

#include "src/base/base.h"

#define ARENA_ALIGN 64 /* least alignment, and the unit that sizes are rounded up to */

struct arena;

/* size: any, rounded down to ARENA_ALIGN. -ENOMEM. */
int arena_create(uint64_t size, struct arena **arena);
void arena_destroy(struct arena *arena); /* NULL is fine; live blocks are forgotten */

/*
 * A block of at least `size` bytes (size 0 takes ARENA_ALIGN) at a multiple of `align` (a power
 * of two). -EINVAL align; -ENOSPC no such gap; -ENOMEM no memory for the bookkeeping. On failure
 * the arena is as it was. Records no sentence: the caller knows what it was for.
 */
int arena_alloc(struct arena *arena, uint64_t size, uint64_t align, uint64_t *offset);

/* The same with two more parameters: the lowest offset allowed, and the owner of the block (0 for
   arena_alloc). */
struct arena_want {
	uint64_t size, align, from, owner;
};
int arena_take(struct arena *arena, const struct arena_want *want, uint64_t *offset);

/* Frees a block by its first offset; needs no memory. -EINVAL: none begins there. */
int arena_free(struct arena *arena, uint64_t offset);

/* Bytes of the block (its size, rounded up) that begins at offset, or -EINVAL. */
int arena_size(const struct arena *arena, uint64_t offset, uint64_t *size);
/* The owner of the block that begins at offset, or -EINVAL. */
int arena_owner(const struct arena *arena, uint64_t offset, uint64_t *owner);
/* The first live block at or above `from`: its offset and owner, or -ENOENT. O(log n). */
int arena_next(const struct arena *arena, uint64_t from, uint64_t *offset, uint64_t *owner);

uint64_t arena_used(const struct arena *arena);	  /* bytes in live blocks */
uint64_t arena_blocks(const struct arena *arena); /* live blocks */
uint64_t arena_high(const struct arena *arena);	  /* end of the last live block */

/* Checks every invariant (tests and fuzzing): 0, or -EIO with a sentence. O(n). */
int arena_check(const struct arena *arena);

#endif
