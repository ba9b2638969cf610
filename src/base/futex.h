/* SPDX-License-Identifier: MIT */
/* Sleeping on a 32-bit word, in a process or between processes. See futex(2). */
#ifndef SPMT_FUTEX_H
#define SPMT_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base.h"

/* Sleeps until it is woken, the word differs, ns have passed (< 0: for ever) or a signal arrives.
   The caller looks at the word again in every case. Keeps errno. */
static inline void futex_sleep(const _Atomic uint32_t *word, uint32_t value, int64_t ns)
{
	struct timespec ts = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAIT, value, ns < 0 ? NULL : &ts, NULL, 0);
	errno = saved;
}

static inline void futex_wake_all(const _Atomic uint32_t *word)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
	errno = saved;
}

/* Call between two looks at a word that is about to change. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
