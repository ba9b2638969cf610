/* SPDX-License-Identifier: MIT */
/*
 * What is known of a heap's user part where blocks are looked at (SPMT_CHECK): the exact size of each, by whom and as which
 * one it was made, and which were freed last: those are kept for a while, so that a late access finds them. A red zone lies
 * behind each block. A program under AddressSanitizer may touch live blocks alone: the rest is poisoned.
 *
 * Not thread-safe: the heap serialises. Equal calls in equal order leave equal blocks on every rank.
 */
#ifndef SPMT_HEAP_CHECK_H
#define SPMT_HEAP_CHECK_H

#include "src/base/base.h"

#define CHECK_ZONE 64		    /* bytes behind a block, at least; at most 63 more */
#define CHECK_KEPT 64		    /* freed blocks that are kept, at most */
#define CHECK_KEPT_SHARE 8	    /* and this part of the heap, at most */
#define CHECK_POISON (256ull << 10) /* of what was never taken, so much is poisoned ahead */

struct heap_block {
	uint64_t offset, size; /* as it was asked for */
	uint64_t span;	       /* as the arena gave it: the red zone is the rest */
	uint64_t owner;
	const char *maker;    /* the call that made it; NULL: the ranks have not agreed on it */
	uint64_t made, freed; /* as the n-th of its owner; 0: not yet */
	bool leaving;	      /* who looks at it once more, frees it */
};

struct heap_check {
	struct heap_block *blocks; /* by offset */
	size_t n, room;
	uint64_t kept[CHECK_KEPT]; /* offsets, a ring */
	unsigned first, nkept;
	uint64_t kept_bytes, kept_most;
	uint64_t zones;	   /* bytes of live blocks' red zones */
	char *base;	   /* set when there is one, before the first block */
	bool poisons;	   /* base is memory of the CPU's */
	uint64_t poisoned; /* up to here what is no live block is poisoned */
};

struct heap_check *check_create(uint64_t size, bool poisons);
void check_destroy(struct heap_check *check); /* NULL is fine; nothing stays poisoned */

/* So that the next check_add cannot fail. -ENOMEM. */
int check_reserve(struct heap_check *check);
/* end: of what may be touched. */
void check_add(struct heap_check *check, const struct heap_block *block, uint64_t end);
/* Live or kept. Nothing where none begins. */
void check_remove(struct heap_check *check, uint64_t offset);

/* The last block that begins at or below an offset, and the first at or above; NULL: none does. */
struct heap_block *check_below(const struct heap_check *check, uint64_t offset);
struct heap_block *check_from(const struct heap_check *check, uint64_t offset);

/* Whether blocks as long as this are kept at all; and the one that has to go first; NULL: there is room. */
bool check_keeps(const struct heap_check *check, uint64_t span);
struct heap_block *check_oldest(const struct heap_check *check, uint64_t span);
/* A kept block is no longer anybody's but the caller's, who will remove it. */
void check_leave(struct heap_check *check, struct heap_block *block);
/* The block is the freed-th that its owner frees; check_keeps and check_oldest have let it in. */
void check_keep(struct heap_check *check, struct heap_block *block, uint64_t freed);

/* The library's own memory in the user part is no block, but may be touched. */
void check_own(struct heap_check *check, uint64_t offset, uint64_t size, uint64_t end);
void check_own_end(struct heap_check *check, uint64_t offset, uint64_t size);

#endif
