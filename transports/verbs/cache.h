/* SPDX-License-Identifier: MIT */
/*
 * Large buffers of moves that nobody has registered. A port registers them on first use and keeps that for the next, in order of use, up
 * to so many bytes. What is kept holds the pages that were there then: where a program has given the memory back and got other pages at
 * the same addresses, a device would move the old ones. So an entry is found only where each of its pages is seen to be the same
 * one still, or where the user has promised so (SPMT_RDMA_CACHE). In all other cases moves bounce.
 */
#ifndef SPMT_VERBS_CACHE_H
#define SPMT_VERBS_CACHE_H

#include "memory.h"

struct cached;

struct cache {
	struct cache *next; /* guarded by the state's caches_lock */
	struct nic *nic;
	int pagemap; /* says which pages there are; -1: entries are trusted */
	size_t page, from;
	pthread_mutex_t lock;	  /* guards all below; nothing else is taken under it */
	struct cached *entries;	  /* the last used first */
	struct cached *dismissed; /* to be given back */
	size_t bytes, most;
	int count;
};

/* Fails for want of memory alone: a port without it has none. */
int cache_open(struct nic *nic);
/* Nothing is in flight. */
void cache_close(struct nic *nic);

static inline bool cache_wants(const struct nic *nic, size_t n)
{
	return nic->cache && n >= nic->cache->from;
}

/* Not under the port's lock. What knows all n bytes, held until it is let go; NULL: it is registered anyway, or cannot be. makes: it
   may be registered now, for which a device may be called. */
struct cached *cache_hold(
	struct nic *nic, struct stage *stage, const void *at, size_t n, bool makes);
struct region *cached_region(struct cached *cached);
/* Once more, for work in flight. NULL is nothing; likewise cache_let_go. */
void cache_keep(struct cached *cached);
void cache_let_go(struct cached *cached);
/* What is known by way of a device is found no more. */
void cache_forget(struct nic *nic, const struct stage *stage);
/* Of all ports: gives back what is not in use, and keeps less from now on. False: there was nothing. */
bool caches_shed(void);

#endif
