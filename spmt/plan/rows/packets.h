/* SPDX-License-Identifier: MIT */
/* Rows that are plans of packets alone, of which all blocks of a rank do the same (src/kernels/plan_packets.c). */
#ifndef SPMT_PLAN_PACKETS_H
#define SPMT_PLAN_PACKETS_H

#include "spmt/comm/table.h"
#include "spmt/plan/lower.h"
#include "src/kernels/plan_row.h"

/* What a rank's blocks do, once for all calls. */
struct row_packets {
	struct plan_packets made; /* but for what a call says, the shares and places */
	bool is;		  /* else the plan is none of these, or not on all ranks */
	int rank;
	uint32_t chunks, slices; /* of each step; a block has a slice */
	struct row_packets_place {
		uint32_t rank, space, index; /* as struct plan_step_place */
	} place[PLAN_PACKETS_PLACES];
};

/* Of what blocks of this rank do, and those of all others; table: of plan_table, the rank's. 0, or -ENOMEM. */
int row_packets_find(const spmt_plan *plan, const struct plan_layout *layout, const void *table,
	int rank, struct row_packets *p);
/* How a call's packets are, the same on all ranks. threads: of a block, the most; whole: 16 bytes arrive at once; element: bytes of what is folded,
   1: nothing is. */
struct plan_packets_way row_packets_way(const struct row_packets *p, const struct plan_given *g,
	unsigned threads, bool whole, size_t element);
/* This rank has its packets so by a kernel for them alone, else as any other plan. */
bool row_packets_fit(struct plan_packets_way way, const struct kernel_plan_row_args *row);
/* Of that kernel. threads: of a block. peers: the comm's, with the library areas in which the plan lies at one place. */
struct kernel_grid row_packets_grid(const spmt_comm *comm, const struct row_packets *p,
	const struct plan_given *g, struct plan_packets_way way);
void row_packets_fill(const struct row_packets *p, const struct plan_given *g,
	struct plan_packets_way way, const struct spmtd_peer *peers, unsigned threads,
	struct plan_packets *packets);

#endif
