/* SPDX-License-Identifier: MIT */
/*
 * ThreadSanitizer in a program of the user's: it sees the program's accesses, and of this library's, which is not built with it,
 * those that go through libc (memcpy, pthreads). What the library orders by words of its own it is told here. Without it in the
 * process its functions are not there, and each call is a branch. Two sides name one address: what was done before the release
 * happened before what follows the acquire.
 */
#ifndef SPMT_TSAN_H
#define SPMT_TSAN_H

#include "base.h"

extern void __tsan_acquire(void *word) __attribute__((weak));
extern void __tsan_release(void *word) __attribute__((weak));

/* The slow halves. */
void tsan_acquired(const volatile void *word) __attribute__((cold));
void tsan_released(const volatile void *word) __attribute__((cold));

/* From here on the program has ranks in other processes, where ThreadSanitizer does not look: what orders two threads of this one
   may have happened there. So every release is taken to precede every later acquire. */
void tsan_elsewhere(void);

/* A library that is built with it needs none of this. */
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
