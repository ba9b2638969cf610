/* SPDX-License-Identifier: MIT */
/* Of one block that all ranks fold, which part is whose: for the kernel that folds it, and for the host, which may have it copied. */
#ifndef SPMT_KERNELS_COLL_PART_H
#define SPMT_KERNELS_COLL_PART_H

#include "src/kernels/kernels.h"

/* Units of 16 bytes, from `start` to `end`. */
struct coll_part_units {
	uint64_t start, end;
};

/* units: of the block, which may be more than those that were shared, as a short one at the beginning makes: what is over is the last rank's. */
static inline __attribute__((always_inline)) struct coll_part_units coll_part_units(
	const struct coll_share *share, int pe, int npes, uint64_t units)
{
	uint64_t n = (uint64_t)(uint32_t)pe, each = share->each, over = share->over;
	struct coll_part_units u = { n * each + (n < over ? n : over), units };

	if (pe < npes - 1)
		u.end = u.start + each + (n < over);
	return u;
}

#endif
