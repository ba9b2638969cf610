/* SPDX-License-Identifier: MIT */
/* A collective as its caller has passed it, and what is wrong with that. */
#ifndef SPMT_COLLECTIVE_CALL_H
#define SPMT_COLLECTIVE_CALL_H

#include "collective.h"
#include "src/kernels/kernels.h"

struct coll_call {
	const char *what;
	enum kernel_collective_kind kind;
	void *dst;
	const void *src;
	size_t count;
	enum spmt_type type;
	int op; /* as the caller passed it; then enum spmt_op or COLL_PREMUL */
	int root;
	const int *table; /* of a permute; what follows is made by coll_run: */
	int target;	  /* of a permute, who gets this rank's src */
	uint64_t to;	  /* of a permute: its table, folded */
	bool unread;	  /* this rank's src is */
	bool unwritten;	  /* this rank's dst is */
	struct coll_moves moves;
	uint64_t src_blocks, dst_blocks; /* of count elements */
	int row;
	struct coll_factor factor;    /* of COLL_PREMUL */
	const struct coll_plan *plan; /* instead of a row */
};

/* -EINVAL and a sentence, or as ranges of memory are refused; by then c->moves and both counts of blocks are known. */
int coll_check(const spmt_comm *comm, const struct coll_call *c);
/* Before that: -EINVAL and a sentence if c->root is no rank. */
int coll_root(const spmt_comm *comm, const struct coll_call *c);

#endif
