/* SPDX-License-Identifier: MIT */
/*
 * For a user's program under ThreadSanitizer. It sees the program's accesses, and of this
 * library, which is not built with it, only those that go through libc (memcpy, pthreads). These
 * functions tell it what the library orders by words of its own. In a process without
 * ThreadSanitizer each of them is one branch. Two sides name one address: what was done before
 * the release happened before what follows the acquire.
 */
#ifndef SPMT_TSAN_H
#define SPMT_TSAN_H

#include "base.h"

extern void __tsan_acquire(void *word) __attribute__((weak));
extern void __tsan_release(void *word) __attribute__((weak));

/* The slow halves. */
void tsan_acquired(const volatile void *word) __attribute__((cold));
void tsan_released(const volatile void *word) __attribute__((cold));

/* Call once the program has ranks in other processes. ThreadSanitizer does not see those, and
   what orders two threads of this process may have happened there. So from then on every release
   precedes every later acquire. */
void tsan_elsewhere(void);

/* A library that is built with ThreadSanitizer does not need this. */
#define TSAN_OUTSIDE(function) (!SANITIZE_THREAD && UNLIKELY((function) != NULL))

/* After a load that sees what another thread has stored. */
static inline void tsan_acquire(const volatile void *word)
{
	if (TSAN_OUTSIDE(__tsan_acquire))
		tsan_acquired(word);
}

/* Before the store. */
static inline void tsan_release(const volatile void *word)
{
	if (TSAN_OUTSIDE(__tsan_release))
		tsan_released(word);
}

#endif
