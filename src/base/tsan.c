/* SPDX-License-Identifier: MIT */
#include "tsan.h"

#include <stdatomic.h>

static _Atomic bool elsewhere;

void tsan_acquired(const volatile void *word)
{
	__tsan_acquire((void *)(uintptr_t)word);
	if (atomic_load_explicit(&elsewhere, memory_order_relaxed))
		__tsan_acquire((void *)(uintptr_t)&elsewhere);
}

void tsan_released(const volatile void *word)
{
	__tsan_release((void *)(uintptr_t)word);
	if (atomic_load_explicit(&elsewhere, memory_order_relaxed))
		__tsan_release((void *)(uintptr_t)&elsewhere);
}

void tsan_elsewhere(void)
{
	atomic_store_explicit(&elsewhere, true, memory_order_relaxed);
}
