/* SPDX-License-Identifier: MIT */
/* What wakes a rank that sleeps on words of its memory. */
#ifndef SPMT_BELL_H
#define SPMT_BELL_H

#include <stdatomic.h>

#include "src/base/base.h"

/* Sleeping on words of a rank's memory: a waiter counts itself in, looks once more, and sleeps until
   it rings. A rank has one, in its world: who stores does not know through which comm it waits. */
struct bell {
	_Alignas(CACHE_LINE) _Atomic uint32_t sleepers;
	_Atomic uint32_t rings;
};

/* Wakes what sleeps on a rank's words. The caller's store is ordered before the look at the
   sleepers. */
void bell_ring(struct bell *bell);

/* A store to a rank's memory has been made: wake its sleepers if there are any. One fence, one
   load. */
static inline void bell_stored(struct bell *bell)
{
#if defined(__SANITIZE_THREAD__)
	uint32_t sleepers = atomic_fetch_add(&bell->sleepers, 0);
#else
	uint32_t sleepers;

#if defined(__x86_64__)
	/* As strong as mfence, which clang 14 takes for the fence below, and cheaper. */
	__asm__ volatile("lock; orq $0, (%%rsp)" : : : "memory", "cc");
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
	sleepers = atomic_load_explicit(&bell->sleepers, memory_order_relaxed);
#endif
	if (UNLIKELY(sleepers))
		bell_ring(bell);
}

#endif
