/* SPDX-License-Identifier: MIT */
/*
 * What SPMT_CHECK records of a heap's user part: the exact size of each block, which call made
 * it, and the blocks that were freed last, which are kept for a while so that a late access is
 * found. A red zone lies behind each block. A program under AddressSanitizer may touch live
 * blocks alone: the rest is poisoned.
 *
 * Not thread-safe: the heap serialises. Equal calls in equal order leave equal blocks on every
 * rank.
 */
#ifndef SPMT_HEAP_CHECK_H
#define SPMT_HEAP_CHECK_H

#include "src/base/base.h"

#define CHECK_ZONE 64		    /* bytes behind a block, at least; at most 63 more */
#define CHECK_KEPT 64		    /* freed blocks that are kept, at most */
#define CHECK_KEPT_SHARE 8	    /* and this part of the heap, at most */
#define CHECK_POISON (256ull << 10) /* bytes poisoned ahead of the last block */

struct heap_block {
	uint64_t offset, size; /* size that the caller asked for */
	uint64_t span;	       /* size that the arena gave: the rest is the red zone */
	uint64_t owner;
	const char *maker;    /* the call that made it; NULL: the ranks have not agreed yet */
	uint64_t made, freed; /* its number among its owner's blocks; 0: none yet */
	bool leaving;	      /* the caller checks it once more and frees it */
};

struct heap_check {
	struct heap_block *blocks; /* by offset */
	size_t n, room;
	uint64_t kept[CHECK_KEPT]; /* offsets, a ring */
	unsigned first, nkept;
	uint64_t kept_bytes, kept_most;
	uint64_t zones;	   /* bytes of live blocks' red zones */
	char *base;	   /* set before the first block */
	bool poisons;	   /* the CPU may access base */
	uint64_t poisoned; /* everything below that is no live block is poisoned */
};

struct heap_check *check_create(uint64_t size, bool poisons);
void check_destroy(struct heap_check *check); /* NULL is fine; nothing stays poisoned */

/* Makes room, so that the next check_add cannot fail. -ENOMEM. */
int check_reserve(struct heap_check *check);
/* end: of the memory that may be touched. */
void check_add(struct heap_check *check, const struct heap_block *block, uint64_t end);
/* A live or kept block. Does nothing where none begins. */
void check_remove(struct heap_check *check, uint64_t offset);

/* The last block that begins at or below an offset, and the first at or above it; NULL: none. */
struct heap_block *check_below(const struct heap_check *check, uint64_t offset);
struct heap_block *check_from(const struct heap_check *check, uint64_t offset);

/* Whether blocks of this length are kept at all; and the block that has to go first, NULL: there
   is room. */
bool check_keeps(const struct heap_check *check, uint64_t span);
struct heap_block *check_oldest(const struct heap_check *check, uint64_t span);
/* Hands a kept block over to the caller, who will remove it. */
void check_leave(struct heap_check *check, struct heap_block *block);
/* The block is the freed-th that its owner frees; check_keeps and check_oldest have let it in. */
void check_keep(struct heap_check *check, struct heap_block *block, uint64_t freed);

/* Memory that the library itself uses in the user part: no block, but it may be touched. */
void check_own(struct heap_check *check, uint64_t offset, uint64_t size, uint64_t end);
void check_own_end(struct heap_check *check, uint64_t offset, uint64_t size);

#endif
