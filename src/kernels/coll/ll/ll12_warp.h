/* SPDX-License-Identifier: MIT */
/* The parts of a quad (ll12_quad.h) that threads have, and threads that go on together: a warp's on GPUs; elsewhere each is alone. */
#ifndef SPMT_KERNELS_LL12_WARP_H
#define SPMT_KERNELS_LL12_WARP_H

#include "ll_units.h"
#include "src/kernels/coll/quads.h"

/* Parts of a quad, and what a part has. */
#if defined(__NVPTX__)
#define QUAD_PARTS QUAD
#define PART_UNITS 1
#define PART_PIECES 1
#else
#define QUAD_PARTS 1
#define PART_UNITS QUAD_UNITS
#define PART_PIECES QUAD
#endif

/* The i-th unit of part t; of a part that has none a number that no block has. */
LL_FN uint32_t part_unit(uint32_t t, uint32_t i)
{
#if defined(__NVPTX__)
	(void)i;
	return t % QUAD < QUAD_UNITS ? t / QUAD * QUAD_UNITS + t % QUAD : UINT32_MAX;
#else
	return t * QUAD_UNITS + i;
#endif
}

#if defined(__NVPTX__)

LL_FN uint32_t warp_lane(void)
{
	return spmtd_tid_() % QUADS_WARP;
}

/* Not 0 in all threads of a warp if it is in any. */
LL_FN int warp_any(int x)
{
	return __nvvm_vote_any_sync(0xffffffffu, x != 0);
}

/* What the thread of this number in the caller's four has, the same for all. All threads of the warp are here, whatever they have. */
LL_FN uint32_t quad_take(uint32_t x, int from)
{
	return (uint32_t)__nvvm_shfl_sync_idx_i32(0xffffffffu, (int)x, from, 0x1c1f);
}

#else

LL_FN uint32_t warp_lane(void)
{
	return 0;
}

LL_FN int warp_any(int x)
{
	return x != 0;
}

#endif

#endif
