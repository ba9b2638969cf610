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

/* ---- sums of halves: as many threads on few elements ------------------------------------------ */

enum half_form { HALF_ADD, HALF_FETCH_ADD, HALF_PAIR_ADD, HALF_PAIR_FETCH_ADD, HALF_FORMS };
/* Of 4096 operations a rank each element takes 16: bf16 counts exactly up to 256, so for 16 ranks. */
enum { HALF_ELEMENTS = 256 };

/* Operation k of all adds 1 to element k % HALF_ELEMENTS; elements are `stride` halves apart, or pairs. `results` gets the old bits. */
struct halves_args {
	struct spmt_view view;
	uint64_t target, results;
	uint64_t first;
	uint32_t threads, each, stride;
	int32_t pe, form, bfloat16;
};

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
extern const struct test_kernel test_atomics, test_halves;
#endif

#endif
