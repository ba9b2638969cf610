/* SPDX-License-Identifier: MIT */
/*
 * Objects whose addresses users keep: pooled, never unmapped, so that a call on a dead one is an
 * error and not a crash. They lie in pages that a forked child sees as zeros. The first member of
 * an object is its `struct pooled`.
 */
#ifndef SPMT_POOL_H
#define SPMT_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "src/base/base.h"

enum {
	POOLED_FREE = 1,
	POOLED_BUSY = 2,
	POOLED_LIVE = 3,
	POOLED_CHECKED = 4
}; /* 0: this process is a forked child; CHECKED: live, and calls look closer */

struct pooled {
	_Atomic uint32_t state;
	_Atomic uint32_t visitors; /* calls under way that may run beside finalize */
	struct pooled *next;	   /* while free */
};

/* Zeroed is empty. The lock guards the list, never held across anything else. */
struct pool {
	pthread_mutex_t lock;
	struct pooled *free;
};

/* An object of `size` bytes in state POOLED_BUSY, all but its head zeroed; NULL: no memory. */
void *pool_take(struct pool *pool, size_t size);
void pool_give(struct pool *pool, void *object);

static inline bool pooled_is_live(const struct pooled *p)
{
	return atomic_load_explicit(&p->state, memory_order_acquire) == POOLED_LIVE;
}

#endif
