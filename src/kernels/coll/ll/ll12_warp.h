/* SPDX-License-Identifier: MIT */
/* The parts of a quad (ll12_quad.h) that threads have, and threads that go on together: a warp's on GPUs; elsewhere each is alone. */
#ifndef SPMT_KERNELS_LL12_WARP_H
#define SPMT_KERNELS_LL12_WARP_H

#include "ll_units.h"
#include "src/kernels/coll/quads.h"

#if defined(__NVPTX__) || defined(KERNELS_OF_GPUS)
#define QUADS_SHARED 1
#else
#define QUADS_SHARED 0
#endif

/* Parts of a quad, and what a part has. */
#if QUADS_SHARED
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
#if QUADS_SHARED
	(void)i;
	return t % QUAD < QUAD_UNITS ? t / QUAD * QUAD_UNITS + t % QUAD : UINT32_MAX;
#else
	return t * QUAD_UNITS + i;
#endif
}

#if QUADS_SHARED

LL_FN uint32_t warp_lane(void)
{
	return spmtd_tid_() % QUADS_WARP;
}

#if defined(__NVPTX__)

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

#endif

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
