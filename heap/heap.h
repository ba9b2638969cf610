/* SPDX-License-Identifier: MIT */
/*
 * One rank's symmetric heap: a user range and the library's own range (signals, scratch) behind it.
 *
 *	base                      base + size            base + size + own_size
 *	| user: arena offsets     | own: fixed layout    |
 *	  committed up to `committed` (all of it in static mode)
 *
 * Two modes, one contract. static: one allocation. vmm: a slice of a range reserved for all ranks
 * of the process (struct heap_range), backed on demand, never moved. base is a multiple of HEAP_ALIGN.
 *
 * Threads: heap_holds from any thread at any time; what takes and gives blocks from any thread,
 * under the heap's lock; everything else from one thread at a time.
 */
#ifndef SPMT_HEAP_H
#define SPMT_HEAP_H

#include <pthread.h>
#include <stdatomic.h>

#include "arena.h"
#include "check.h"
#include "src/device/device.h"

#define HEAP_ALIGN (8ull << 20) /* largest alignment a user may ask for */
#define HEAP_ROUND (2ull << 20) /* sizes are rounded up to this */
#define CHECK_ROOM HEAP_ROUND	/* more than a heap needs where blocks are not looked at */
#define HEAP_LIMIT (1ull << 46) /* more than any device has; keeps all sums far from wrapping */

/* The range all ranks of a process share: rank r's heap lies at base + r * stride. Owned by the world, shared by heaps. */
struct heap_range {
	const struct backend *backend;
	char *base;
	uint64_t stride; /* power of two, at least user + own size */
	int slices;
};
/* SPMT_ERR_UNSUPPORTED: the backend has no vmm, the whole would be above 512 GiB, or the reservation is refused: use tables of bases. */
int heap_range_open(
	const struct backend *backend, int slices, uint64_t slice_size, struct heap_range *range);
void heap_range_close(struct heap_range *range); /* zeroed or closed before: fine */

struct heap_chunk {
	uint64_t offset, length; /* from base */
};

struct heap {
	const struct backend *backend;
	int dev;
	char *base;
	uint64_t size;		    /* user limit, multiple of HEAP_ROUND */
	const char *knob;	    /* of the configuration */
	_Atomic uint64_t committed; /* user bytes that may be touched; only rises */
	_Atomic uint64_t clear;	    /* the same, but 0 where blocks are looked at */
	char *own;		    /* base + size */
	uint64_t own_size;
	pthread_mutex_t lock; /* guards the arenas, chunks and step; zeroed is unlocked */
	struct arena *arena;
	struct arena *own_arena;  /* of the own part, offsets from `own` */
	struct heap_check *check; /* NULL: blocks are not looked at */
	/* Parts that were committed on their own, oldest first: in vmm mode the own part (if any), then user parts; in
	   static mode one for all. Only grows; export.c names them one by one. */
	struct heap_chunk *chunks;
	int nchunks;
	/* private to heap.c */
	const struct heap_range *range; /* NULL: static */
	void *block;			/* static: what alloc() gave */
	bool retire;   /* set before heap_close: other processes may still use the memory */
	uint64_t step; /* vmm: the next commit, at least */
	int *peers;
	int npeers;
};

struct heap_config {
	const struct backend *backend;
	int dev;
	uint64_t size;	   /* user bytes; rounded up to HEAP_ROUND */
	uint64_t own_size; /* of the fixed layout; zeroed */
	uint64_t own_room; /* behind it, for heap_own_alloc; the sum is rounded up to HEAP_ROUND */
	const struct heap_range *range; /* NULL: static mode */
	bool whole;			/* vmm: all of it in one piece, at once */
	bool check; /* look at blocks (check.h): size is CHECK_ROOM above what the user may have */
	int slice;  /* this rank's place in range */
	const int *peers; /* devices of the process that may reach this memory (copied) */
	int npeers;
	const char *knob; /* what the user sets the size by, for sentences; NULL: SPMT_HEAP_SIZE */
};

/* *heap is the caller's; heap_close takes it zeroed, half-open or closed. */
int heap_open(const struct heap_config *config, struct heap *heap);
void heap_close(struct heap *heap);

/* A block of the arena, backed by memory. alignment: power of two up to HEAP_ALIGN. -ENOMEM, -EINVAL with a sentence. */
int heap_alloc(struct heap *heap, uint64_t size, uint64_t align, uint64_t *offset);
int heap_take(struct heap *heap, const struct arena_want *want, uint64_t *offset);
int heap_free(struct heap *heap, uint64_t offset);
/* 0, or -EINVAL without a sentence: no block begins there. */
int heap_owner(struct heap *heap, uint64_t offset, uint64_t *owner);
void heap_free_owned(struct heap *heap, uint64_t owner); /* all blocks of an owner */

/* A block for the library itself: of the own part while there is room, else of the user's. Not cleared. Offsets are from base;
   never symmetric. */
#define HEAP_LIBRARY UINT64_MAX /* owner of those in the user's part */
int heap_own_alloc(struct heap *heap, uint64_t size, uint64_t *offset);
void heap_own_free(struct heap *heap, uint64_t offset);

static inline uint64_t heap_offset(const struct heap *heap, const void *ptr)
{
	return (uint64_t)((uintptr_t)ptr - (uintptr_t)heap->base);
}

/* True if [ptr, ptr + n) lies in the committed user range; n == 0 asks for ptr alone, one past the end included. Wrap-safe. */
bool heap_holds(const struct heap *heap, const void *ptr, uint64_t n);
/* The bounds check of every call: the same, but always false where blocks are looked at, which asks for a closer look. */
static inline bool heap_clear(const struct heap *heap, const void *ptr, uint64_t n)
{
	uint64_t off = heap_offset(heap, ptr);
	uint64_t end = atomic_load_explicit(&heap->clear, memory_order_relaxed);

	return off <= end && n <= end - off;
}

#endif
