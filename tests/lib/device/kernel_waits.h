/* SPDX-License-Identifier: MIT */
/* How kernels that are C functions wait where no comm of the host backend waits for them: until the view's stop word, or its deadline. */
#ifndef TESTS_KERNEL_WAITS_H
#define TESTS_KERNEL_WAITS_H

#include <sched.h>
#include <time.h>

#include "include/spmt_device.h"

static inline int64_t kernel_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int kernel_pause(const struct spmt_view *v, struct spmtd_pause *p)
{
	struct timespec slice = { .tv_nsec = 20000 };

	if (v->stop && __atomic_load_n(v->stop, __ATOMIC_ACQUIRE))
		return SPMTD_ABORTED;
	if (!p->n++)
		p->begin = kernel_clock_ns();
	if (v->timeout_ns && kernel_clock_ns() - p->begin > (int64_t)v->timeout_ns)
		return SPMTD_TIMEOUT;
	if (p->n < 16)
		sched_yield();
	else
		nanosleep(&slice, NULL);
	return 0;
}

static inline void kernel_resume(const struct spmt_view *v, struct spmtd_pause *p)
{
	(void)v;
	p->n = 0;
}

static inline void kernel_wake(const struct spmt_view *v, int32_t pe)
{
	(void)v;
	(void)pe;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#endif
