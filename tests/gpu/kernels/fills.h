/* SPDX-License-Identifier: MIT */
/* What the kernel of fills.c takes. */
#ifndef TESTS_GPU_FILLS_H
#define TESTS_GPU_FILLS_H

#include "kernels.h"

/* Each block stores 1 to its word at `run`, and keeps all its threads until the word at `end` is not 0. */
struct fills_args {
	uint64_t run, end; /* 64-bit words: one a block, one */
};

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
extern const struct test_kernel test_fills;
#endif

#endif
