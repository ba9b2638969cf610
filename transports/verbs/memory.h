/* SPDX-License-Identifier: MIT */
/* Memory that a port knows: heaps, registered buffers, and chunks through which other memory bounces. */
#ifndef SPMT_VERBS_MEMORY_H
#define SPMT_VERBS_MEMORY_H

#include "nic.h"

struct stage;

/* Peers may write to it, read it, and have atomics done there. */
struct region {
	struct region *next; /* this, uses and dropped: under the lock */
	char *base;
	size_t size;
	struct verbs_mr *mr; /* NULL: the port does not know it, and moves bounce */
	uint32_t key;	     /* for peers */
	enum rdma_memory memory;
	struct stage *stage;   /* by which it is reached; NULL: by the CPU */
	struct cached *cached; /* of which it is a part, which counts its uses; NULL: of none */
	uint32_t uses;	       /* work in flight by its key */
	bool dropped;	       /* goes with the last use */
	bool retires;	       /* and is kept for peers then */
	int64_t until;	       /* so long, of process_now(); this and next: under kept_lock then */
};

/* Of the port's own memory. */
int memory_open(struct nic *nic);
void memory_close(struct nic *nic);

/* NULL: errno says why. At a limit it gives up what caches hold, and tries again. */
struct verbs_mr *mr_make(struct nic *nic, void *base, size_t size, int access);

/* Chunks that peers who are told their key may write to and read; at: of process_pages. */
int chunks_open(struct nic *nic, size_t size, char **at, struct verbs_mr **mr);

/* With the port alone: the cause is in errno where r->mr stays NULL, and the sentence as it was. */
void region_know(struct nic *nic, struct region *r);
void region_unknow(struct nic *nic, struct region *r);
/* Registers, or, of a device's memory, finds that it cannot be. Not under the lock; likewise region_drop, after which none
   is found. Its keys work on until moves in flight by them have ended: other comms may have the buffer, too. */
int region_add(struct nic *nic, struct stage *stage, void *base, size_t size, struct region **out);
void region_drop(struct nic *nic, struct region *region);
/* The same, and for some seconds more peers may move bytes by its key: at most SPMT_RDMA_CACHE_SIZE bytes a port, or one that is larger, and no longer than there
   is room for other registrations. What is at its addresses from now on they do not reach. */
void region_retire(struct nic *nic, struct region *region);
/* Not under the lock: gives up what has been kept so long. Milliseconds until there is more of it; -1: there is none. */
int retired_free(struct nic *nic);
bool region_holds(const struct region *r, uint64_t at, size_t n);
/* Under the lock. One that the port knows and that holds all n bytes; NULL: none. keyed: any of this key. */
struct region *region_of(const struct nic *nic, const void *at, size_t n);
const struct region *region_keyed(const struct nic *nic, uint32_t key, uint64_t at, size_t n);

/* Under the lock: for work in flight. _slow: of one that a cache has, or that was dropped. */
void region_keep_slow(struct region *region);
void region_let_go_slow(struct nic *nic, struct region *region);
static inline void region_keep(struct region *region)
{
	if (region->cached)
		region_keep_slow(region);
	else
		region->uses++;
}
static inline void region_let_go(struct nic *nic, struct region *region)
{
	if (region->cached || region->dropped)
		region_let_go_slow(nic, region);
	else
		region->uses--;
}

/* A chunk, and its way back; -1: none is free. Under the lock. */
int chunk_take(struct nic *nic);
void chunk_give(struct nic *nic, int chunk);
static inline char *chunk_at(const struct nic *nic, int chunk)
{
	return nic->chunks + (size_t)chunk * NIC_CHUNK;
}

#endif
