/* SPDX-License-Identifier: MIT */
/* A plan among the rows, and which calls it takes. */
#ifndef SPMT_PLAN_ROW_FIT_H
#define SPMT_PLAN_ROW_FIT_H

#include "packets.h"
#include "spmt/collective/collective.h"
#include "spmt/plan/run.h"

/*
 * Packets have two sets, and scratch too where that helps and fits: in a row's memory, which begins as in its layout, the bytes from the first set to the
 * second; 0: there is only one. With all before them they take `end` bytes.
 */
struct row_sets {
	uint64_t other_packets, other_scratch, end;
};
struct row_sets row_sets(const struct plan_layout *layout, bool two_of_scratch);

/* A plan with its memory, which all ranks have at the same place. */
struct coll_plan {
	struct spmt_plan_open open;
	enum kernel_collective_kind kind;
	char name[64];
	bool either;	    /* it runs in place and not; the plan is then one that is not */
	bool writes;	    /* into its input, too */
	uint32_t parts;	    /* chunks of a call's count */
	char *own;	    /* the comm's library area */
	uint64_t at, spare; /* offsets there: its memory, a copy of the input */
	struct row_sets sets;
	uint64_t most; /* bytes of the input */
	void *table;   /* of this rank */
	struct row_packets packets;
};

/* Of a plan for this comm, whose kind p has, and whether it runs in place and not: how large a call it takes, its table, and where its memory lies, from
   *size on, which goes on behind it. Equal on all ranks with equal plans, but the table. 0, or a code and a sentence. */
int row_make(spmt_comm *comm, const spmt_plan *plan, struct coll_plan *p, uint64_t *size);

/* Bytes of the input, and of how many elements a call's count has to be a multiple. */
uint64_t row_input_bytes(const struct coll_plan *p, const struct coll_planned *c);
size_t row_grain(const struct coll_plan *p, const struct coll_planned *c);

/* Why a plan of this kind does not take a call. Asked at each call of each plan before the one that does, so no sentence is made of it. */
enum row_misfit {
	ROW_FITS,
	ROW_FAR,
	ROW_TYPE,
	ROW_OP,
	ROW_BYTES,
	ROW_COUNT,
	ROW_STAGE,
};

enum row_misfit row_misfit(
	const spmt_comm *comm, const struct coll_plan *p, const struct coll_planned *c);
void row_misfit_words(const spmt_comm *comm, const struct coll_plan *p,
	const struct coll_planned *c, char *why, size_t room);

#endif
