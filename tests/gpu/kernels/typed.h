/* SPDX-License-Identifier: MIT */
/* What the kernel of typed.c takes. */
#ifndef TESTS_GPU_TYPED_H
#define TESTS_GPU_TYPED_H

#include "kernels.h"

/* ---- typed: one call of each form for each type ---------------------------------------------- */

enum typed_form {
	TYPED_PUT,
	TYPED_PUT_NBI,
	TYPED_GET,
	TYPED_GET_NBI,
	TYPED_P,
	TYPED_G,
	TYPED_FORMS
};

/* count elements, from src to dst; the remote side is an offset in the buffer if on_mem. */
struct typed_args {
	struct spmt_view view;
	struct spmt_mem_view mem;
	uint64_t dst, src, count;
	int32_t pe, scope, form, on_mem, type;
};

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
extern const struct test_kernel test_typed;
#endif

#endif
