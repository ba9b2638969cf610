/* SPDX-License-Identifier: MIT */
/*
 * Objects whose addresses users keep: pooled, never unmapped, so that a call on a dead one is an
 * error and not a crash. They lie in pages that a forked child sees as zeros. The first member of
 * an object is its `struct object`.
 */
#ifndef SPMT_OBJECT_H
#define SPMT_OBJECT_H

#include <pthread.h>
#include <stdatomic.h>

#include "src/base/base.h"

/* 0: this process is a forked child, or there never was an object; LANE: live, a comm with few calls; CHECKED: the same two, and calls
   look closer; MEM: live, a registered buffer. Numbers that other memory hardly begins with. */
enum {
	OBJECT_FREE = 0x53e7b1a1,
	OBJECT_BUSY,
	OBJECT_MEM,
	OBJECT_LIVE,
	OBJECT_LANE,
	OBJECT_CHECKED,
	OBJECT_LANE_CHECKED
};

/* What for: constant while an object is live. */
struct object_looks {
	bool alone;	/* calls come one at a time */
	bool trace;	/* each is noted */
	int rank;	/* of the world */
	int of, nranks; /* of the comm */
};

struct object {
	_Atomic uint32_t state;
	_Atomic uint32_t visitors; /* calls under way that may run beside finalize */
	/* A comm: the one call that has claimed it. NULL: none has, and it is live, or kept for work that outlives it. */
	const char *_Atomic inside;
	struct object *next;	 /* while free */
	_Atomic uintptr_t owner; /* a thread that has it, in this call; exclusive.h */
	const char *_Atomic owner_call;
	_Atomic bool local;	   /* a buffer: its rank's alone, as long as it was one */
	struct object_looks looks; /* where the state is CHECKED */
};

/* Zeroed is empty. The lock guards the list, never held across anything else. */
struct object_pool {
	pthread_mutex_t lock;
	struct object *free;
};

/* An object of `size` bytes in state OBJECT_BUSY, all but its head zeroed; NULL: no memory. */
void *object_take(struct object_pool *pool, size_t size);
void object_give(struct object_pool *pool, void *object);

static inline bool object_is_live(const struct object *p)
{
	return atomic_load_explicit(&p->state, memory_order_acquire) == OBJECT_LIVE;
}

/* Live, in whichever way. */
static inline bool object_is_open(const struct object *p)
{
	return atomic_load_explicit(&p->state, memory_order_acquire) - OBJECT_LIVE <=
		(uint32_t)(OBJECT_LANE_CHECKED - OBJECT_LIVE);
}

/* Of one that is not open any more: some call has not left it. */
static inline bool object_is_visited(struct object *p)
{
	return atomic_fetch_add(&p->visitors, 0) != 0;
}

/* NULL: claimed, until `inside` is NULL again; else the call that has claimed it. */
static inline const char *object_claim(struct object *p, const char *call)
{
	const char *other = NULL;

	atomic_compare_exchange_strong_explicit(
		&p->inside, &other, call, memory_order_acquire, memory_order_relaxed);
	return other;
}

/* Nor is it where this address never was an object's. */
static inline bool object_is_checked(const struct object *p)
{
	return atomic_load_explicit(&p->state, memory_order_relaxed) - OBJECT_CHECKED < 2u;
}

#endif
