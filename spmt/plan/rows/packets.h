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
	bool is;		  /* else the plan is none of these */
	int rank;
	uint32_t chunks, slices; /* of each step; a block has a slice */
	struct row_packets_place {
		uint32_t rank, space, index; /* as struct plan_step_place */
	} place[PLAN_PACKETS_PLACES];
};

/* table: of plan_table, the rank's. */
void row_packets_find(const struct plan_layout *layout, const void *table, int blocks, int rank,
	struct row_packets *p);
/* Packets of each step that a block has in a call, the most; 0: the call is to run as any other plan. */
uint64_t row_packets_in(const struct row_packets *p, const struct plan_given *g);
/* peers: the comm's, with the library areas in which the plan lies at one place. threads: of a block. */
void row_packets_fill(const struct row_packets *p, const struct plan_given *g,
	const struct spmtd_peer *peers, unsigned threads, struct plan_packets *packets);

/* Has args run so, in a grid of as many blocks; false: as any other plan. args->row is there. Not of one whose input is copied first. */
bool row_packets_run(const spmt_comm *comm, const struct row_packets *p,
	struct kernel_plan_packets_args *args, struct kernel_grid *grid);

#endif
