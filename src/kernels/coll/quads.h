/* SPDX-License-Identifier: MIT */
/* How row `ll12` has units in slots, as the host has to know it: ll/ll12_quad.h. */
#ifndef SPMT_KERNELS_QUADS_H
#define SPMT_KERNELS_QUADS_H

#include <stdint.h>

/* A quad's units, and the pieces of 16 bytes that they lie in; threads that go on together. */
#define QUAD_UNITS 3u
#define QUAD 4u
#define QUADS_WARP 32u

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
