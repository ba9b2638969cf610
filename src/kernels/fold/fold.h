/* SPDX-License-Identifier: MIT */
/*
 * Reducing the same range of every rank's src, as the inboxes name them. Each element is folded in
 * rank order, 0 first, so that a result depends on nothing but the operands.
 *
 * Of a pre-multiplied sum every element is multiplied by its rank's factor first, where it is folded: of halves and f8 in f32.
 *
 * Integers wrap, but for their mean. f16, bf16 and f8 are folded in f32 and rounded once, to nearest even, by integer code
 * that gives the same bits everywhere. min and max: a NaN on any rank gives NaN; -0 is below +0.
 * Every NaN result is the positive quiet NaN without payload.
 */
#ifndef SPMT_KERNELS_FOLD_H
#define SPMT_KERNELS_FOLD_H

#include "src/kernels/area.h"

struct fold {
	const struct area_inbox *inboxes; /* this rank's, posted and acquired */
	int npes, first;		  /* the peer whose dst is written first */
	int everyone; /* so many ranks' dst get the result, from `first` on; 0: `dst` alone */
	uint64_t from, to, bytes; /* offsets into src and dst; bytes are whole elements */
	uint64_t dst;
	uint64_t slots,
		slot; /* not 0: units lie there, `slot` bytes a rank (slot.h), not in any src */
	uint32_t lane, lanes; /* of the threads that share the work */
	uint64_t
		factors; /* of COLL_PREMUL: a piece (slot.h) of each rank, in the type of elements */
};

/* type: enum spmt_type, op: enum spmt_op or COLL_PREMUL, checked by the caller. */
void fold_run(const struct fold *r, int type, int op);

/* What it has of files of their own: the mean and the pre-multiplied sum of all types but f8, and f8 with all ops. */
void fold_mean(const struct fold *r, int type);
void fold_premul(const struct fold *r, int type);
void fold_f8(const struct fold *r, int type, int op);
/* On a CPU sums of other types, where all lies in src; 0: it is none of these. */
int fold_sum(const struct fold *r, int type);

#endif
