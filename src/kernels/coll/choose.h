/* SPDX-License-Identifier: MIT */
/* Which row of the table a call takes, and what the host has to know of it: by way of table.h. */
#ifndef SPMT_KERNELS_COLL_CHOOSE_H
#define SPMT_KERNELS_COLL_CHOOSE_H

#include "table.h"

/* What the choice depends on: equal on all ranks, as must be the choice. */
struct coll_case {
	enum kernel_collective_kind kind;
	bool on_cpu;
	uint64_t bytes; /* of a block */
	uint32_t room;	/* of a slot */
	int wanted;	/* a row that is taken wherever it fits; -1: none */
	bool factors;	/* the op is COLL_PREMUL */
	bool whole;	/* 16 bytes are accessed at once, as row ll12 wants */
	bool meets; /* its ranks can have copy engines move without a kernel (spmt/collective/engine.h) .. */
	bool apart;   /* .. and each has a GPU of its own */
	bool sums;    /* what rows ll12 and push2 fold (coll_sums) .. */
	bool staged;  /* .. and there is a stage for push2 */
	bool engines; /* there is a fifo by which a kernel has copies made */
	int ranks;
};
int coll_choose(const struct coll_case *c);

/* -1: no row has this name. */
int coll_named(const char *name);

/* "ll12, ll, push2" */
void coll_names(char *text, size_t size);

/* Bytes that a slot has room for, where all slots of a rank may take `most`: of both sets, with a flag to every word. whole, wanted: as above. */
uint32_t coll_slot_room(int npes, uint64_t most, bool on_cpu, bool whole, int wanted);

/* Whether rows ll12 and push2 fold it; units of a piece of its stage, and bytes that a rank's stage takes for so many blocks. */
bool coll_sums(int type, int op, int npes);
uint32_t coll_piece(int npes);
uint64_t coll_stage_size(int npes, uint32_t blocks);

#endif
