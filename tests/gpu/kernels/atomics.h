/* SPDX-License-Identifier: MIT */
/* What the kernel of atomics.c takes. */
#ifndef TESTS_GPU_ATOMICS_H
#define TESTS_GPU_ATOMICS_H

#include "kernels.h"

/* ---- atomics: all threads of all ranks on the words of one ----------------------------------- */

enum atomic_form {
	ATOMIC_ADD,
	ATOMIC_INC,
	ATOMIC_FETCH_ADD,
	ATOMIC_FETCH_INC,
	ATOMIC_SWAP,
	ATOMIC_CAS,
	ATOMIC_SET,
	ATOMIC_BITS, /* and or xor and their fetching forms, integers only */
	ATOMIC_FORMS
};

/* Operation k of this rank is its `first + k`th of all; `results` gets the old value as bits. */
struct atomics_args {
	struct spmt_view view;
	uint64_t target, results, outcome;
	uint64_t first;
	uint32_t threads, each; /* of this rank; operations a thread */
	int32_t pe, type, form;
};

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
extern const struct test_kernel test_atomics;
#endif

#endif
