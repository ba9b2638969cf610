/* SPDX-License-Identifier: MIT */
/* What the kernels of waits.c take. */
#ifndef TESTS_GPU_WAITS_H
#define TESTS_GPU_WAITS_H

#include "kernels.h"

/* ---- waits ----------------------------------------------------------------------------------- */

/* words: 6 of the type, one a compare. Puts what makes all six hold to pe, waits by every form,
   asks by every test. */
struct waits_args {
	struct spmt_view view;
	uint64_t words, outcome;
	int32_t pe, type;
};
/* What the six compare with, hold before, and hold after; the type's own when converted. Signed
   ones are below zero, too. */
static inline int waits_shift(int type)
{
	return type == TYPE_OF_uint8 || type == TYPE_OF_uint16 || type == TYPE_OF_uint32 ||
			type == TYPE_OF_uint64
		? 0
		: -6;
}
static inline int waits_before(int cmp, int type)
{
	return (cmp == SPMT_CMP_LT || cmp == SPMT_CMP_LE ? 9 : 1) + waits_shift(type);
}
static inline int waits_after(int type)
{
	return 5 + waits_shift(type);
}
static inline int waits_with(int cmp, int type)
{
	int with = 5;

	if (cmp == SPMT_CMP_NE)
		with = 1;
	else if (cmp == SPMT_CMP_GT)
		with = 3;
	else if (cmp == SPMT_CMP_LT)
		with = 7;
	return with + waits_shift(type);
}

/* One wait whose end is not sure; its code goes to code. */
enum hold_form {
	HOLD_SIGNAL,
	HOLD_WORD,
	HOLD_ANY,
	HOLD_SOME,
	HOLD_ALL,
	HOLD_SYNC,
	HOLD_BARRIER,
	HOLD_HALVES,
	HOLD_SECOND_HALF,
	HOLD_FORMS
};
struct hold_args {
	struct spmt_view view;
	uint64_t word, value, code; /* 4 words; code: one int64 */
	int32_t scope, form;
};

/* ---- what the view and a registered buffer of 4 KiB say --------------------------------------- */

/* Two words at `word`, with which `mem` begins: 0x7700 + the rank they are of. */
struct asks_args {
	struct spmt_view view;
	struct spmt_mem_view mem;
	uint64_t word, outcome;
	int32_t pe, npes;
};

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
extern const struct test_kernel test_waits, test_hold, test_asks;
#endif

#endif
