/* SPDX-License-Identifier: MIT */
/* What the kernels of copies.c take. */
#ifndef TESTS_GPU_COPIES_H
#define TESTS_GPU_COPIES_H

#include "kernels.h"

enum { GUARD = 64, SIDE = 18 };

/* ---- copies: many calls of one form, each with a misalignment and a slot of its own ---------- */

enum copy_form {
	PUT,
	PUT_NBI,
	GET,
	GET_NBI,
	PUT_SIGNAL,
	PUT_SIGNAL_NBI,
	COPY_FORMS, /* and the same on a registered buffer */
};

/*
 * Call c moves from src + its src shift to GUARD + its dst shift in slot c of dst. Sizes rise by
 * one every `each` calls. The remote side of the forms with mem is an offset in the buffer.
 */
struct copies_args {
	struct spmt_view view;
	struct spmt_mem_view mem;
	uint64_t dst, src, sig; /* a signal word a call: 1 is added */
	uint64_t size, slot;
	uint32_t calls, each, first; /* first: where in the row of pairs the first call is */
	int32_t pe, scope, form, on_mem;
};

/* SIDE * SIDE calls in a row: every pair of shifts. */
static inline uint32_t copies_pair(const struct copies_args *a, uint32_t call)
{
	return (a->first + call) % (SIDE * SIDE) * (2 * SIDE - 1) % (SIDE * SIDE);
}
static inline uint32_t copies_dst_shift(const struct copies_args *a, uint32_t call)
{
	return copies_pair(a, call) % SIDE;
}
static inline uint32_t copies_src_shift(const struct copies_args *a, uint32_t call)
{
	return copies_pair(a, call) / SIDE;
}

/* ---- locals: the local side on the stack and in the block's shared memory -------------------- */

/* Per size 1 .. 64: `get` from src to the stack (or shared memory), put from there to dst + 128
   * size. */
struct locals_args {
	struct spmt_view view;
	uint64_t dst, src;
	int32_t pe, shared;
};

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
extern const struct test_kernel test_copies, test_locals;
#endif

#endif
