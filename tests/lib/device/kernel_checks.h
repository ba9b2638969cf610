/* SPDX-License-Identifier: MIT */
/* For kernels of the tests that are C functions. They run on threads of the runtime, where no test may end: each has a `struct args *a`,
   whose `int *line` says to the test where it went wrong. */
#ifndef TESTS_KERNEL_CHECKS_H
#define TESTS_KERNEL_CHECKS_H

#include <stdint.h>

#define CHECK(cond)                          \
	do {                                 \
		if (!(cond)) {               \
			*a->line = __LINE__; \
			return;              \
		}                            \
	} while (0)

/* Word i of what PE pe sends in a round: none is alike. */
static inline uint64_t word_of(uint64_t round, int pe, int i)
{
	return round * 1000000 + (uint64_t)pe * 1000 + (uint64_t)i;
}

#endif
