/* SPDX-License-Identifier: MIT */
/* How row `ll12` has units in slots, as the host has to know it: ll/ll12_quad.h. */
#ifndef SPMT_KERNELS_QUADS_H
#define SPMT_KERNELS_QUADS_H

#include <stdint.h>

/* A quad's units, and the pieces of 16 bytes that they lie in; threads that go on together. KERNELS_OF_GPUS: those of a test stand for a
   GPU's (tests/stress/kernels/coll_warps.c). */
#define QUAD_UNITS 3u
#define QUAD 4u
#if defined(KERNELS_OF_GPUS)
#define QUADS_WARP QUAD
#else
#define QUADS_WARP 32u
#endif

static inline uint64_t quads_of(uint64_t units)
{
	return (units + QUAD_UNITS - 1) / QUAD_UNITS;
}

/* Bytes that these take in a slot. */
static inline uint64_t quads_room(uint64_t units)
{
	return quads_of(units) * (16 * QUAD);
}

#endif
