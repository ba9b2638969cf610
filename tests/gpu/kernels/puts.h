/* SPDX-License-Identifier: MIT */
/* What the kernel of puts.c takes. */
#ifndef TESTS_GPU_PUTS_H
#define TESTS_GPU_PUTS_H

#include "kernels.h"

/* The blocks put [src, src + size) to pe's dst, an equal share each, `rounds` times; 0: until the
   world is broken. on_mem: dst is an offset in the buffer. */
struct puts_args {
	struct spmt_view view;
	struct spmt_mem_view mem;
	uint64_t dst, src, size, rounds;
	int32_t pe, on_mem;
};

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
extern const struct test_kernel test_puts;
#endif

#endif
