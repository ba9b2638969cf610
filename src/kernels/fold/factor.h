/* SPDX-License-Identifier: MIT */
/* Where the factors of pre-multiplied sums lie, and how they get there: as pieces whose flags are alike. */
#ifndef SPMT_KERNELS_FACTOR_H
#define SPMT_KERNELS_FACTOR_H

#include "slot.h"
#include "src/kernels/kernels.h"

_Static_assert(2 * PIECE_IN_SLOT <= AREA_LINE, "the factors of both parities fit");

static inline struct piece_flags flags_alike(uint32_t flag)
{
	struct piece_flags f = { flag, flag };

	return f;
}

/* The factors of pre-multiplied sums in the library area at `own`: a piece of each rank, of two sets by the parity of the epoch. */
static inline uint64_t factors_at(uint64_t own, int npes, uint64_t epoch)
{
	return spmtd_at_(area_inbox_at(own, npes, npes)) +
		(epoch & 1) * (uint64_t)(uint32_t)npes * PIECE_IN_SLOT;
}

/* coll_greet brings them: all are here when coll_meet has returned 0, but by slots, where they are waited for. 0: the call has none. */
static inline uint64_t factors_here(const struct kernel_collective_args *args, uint64_t epoch)
{
	const struct spmt_view *v = &args->view;

	return args->op == COLL_PREMUL ? factors_at(spmtd_at_(v->own), v->npes, epoch) : 0;
}

/* It is aligned to its type. */
static inline uint64_t factor_bits(const struct coll_factor *f)
{
	if (!f->at)
		return f->bits;
	return f->bits == 8    ? *(const uint64_t *)spmtd_to_(f->at)
		: f->bits == 4 ? *(const uint32_t *)spmtd_to_(f->at)
		: f->bits == 2 ? *(const uint16_t *)spmtd_to_(f->at)
			       : *(const uint8_t *)spmtd_to_(f->at);
}

#endif
