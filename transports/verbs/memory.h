/* SPDX-License-Identifier: MIT */
/* Memory that a port knows: heaps, registered buffers, and chunks through which other memory bounces. */
#ifndef SPMT_VERBS_MEMORY_H
#define SPMT_VERBS_MEMORY_H

#include "nic.h"

/* Peers may write to it, read it, and have atomics done there. */
struct region {
	struct region *next;
	char *base;
	size_t size;
	struct verbs_mr *mr;
};

/* Of the port's own memory. */
int memory_open(struct nic *nic);
void memory_close(struct nic *nic);

/* Registers. Not under the lock; likewise region_drop, after which no key of it works. */
int region_add(struct nic *nic, void *base, size_t size, struct region **out);
void region_drop(struct nic *nic, struct region *region);
/* Under the lock. One that holds all n bytes; NULL: none. key: of this one only. */
const struct region *region_of(const struct nic *nic, const void *at, size_t n);
const struct region *region_keyed(const struct nic *nic, uint32_t key, uint64_t at, size_t n);

/* A chunk, and its way back; -1: none is free. Under the lock. */
int chunk_take(struct nic *nic);
void chunk_give(struct nic *nic, int chunk);
static inline char *chunk_at(const struct nic *nic, int chunk)
{
	return nic->chunks + (size_t)chunk * NIC_CHUNK;
}

#endif
