/* SPDX-License-Identifier: MIT */
/* The wake counter of a rank that sleeps on words of its memory. */
#ifndef SPMT_WAKE_H
#define SPMT_WAKE_H

#include <stdatomic.h>

#include "src/base/base.h"

/* To sleep on words of a rank's memory, a waiter counts itself among the sleepers, looks once
   more, and sleeps until `wakes` changes. A rank has one counter, in its world: whoever stores
   does not know through which comm the rank waits. */
struct wake_counter {
	_Alignas(CACHE_LINE) _Atomic uint32_t sleepers;
	_Atomic uint32_t wakes;
};

/* Wakes all sleepers. The caller has looked for them after its store. */
void wake_sleepers(struct wake_counter *counter);

/* Orders a store before the look for sleepers. */
static inline void wake_fence(void)
{
#if defined(__x86_64__)
	/* As strong as mfence, which clang 14 takes for the fence below, and cheaper. */
	__asm__ volatile("lock; orq $0, (%%rsp)" : : : "memory", "cc");
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Behind what orders it. */
static inline void wake_those_asleep(struct wake_counter *counter)
{
#if defined(__SANITIZE_THREAD__)
	uint32_t sleepers = atomic_fetch_add(&counter->sleepers, 0);
#else
	uint32_t sleepers = atomic_load_explicit(&counter->sleepers, memory_order_relaxed);
#endif

	if (UNLIKELY(sleepers))
		wake_sleepers(counter);
}

/* Called after a store to a rank's memory: wakes its sleepers, if there are any. One fence, one
   load. */
static inline void wake_stored(struct wake_counter *counter)
{
#if !defined(__SANITIZE_THREAD__)
	wake_fence();
#endif
	wake_those_asleep(counter);
}

/* The same after an atomic operation that reads and writes, which on x86 is that fence. */
static inline void wake_updated(struct wake_counter *counter)
{
#if defined(__x86_64__)
	atomic_signal_fence(memory_order_seq_cst);
	wake_those_asleep(counter);
#else
	wake_stored(counter);
#endif
}

#endif
