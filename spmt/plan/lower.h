/* SPDX-License-Identifier: MIT */
/* A plan's operations as steps of the executor (src/kernels/kernels.h), and where everything lies. */
#ifndef SPMT_PLAN_LOWER_H
#define SPMT_PLAN_LOWER_H

#include "plan.h"
#include "src/kernels/kernels.h"

/* Of all ranks: offsets in the symmetric memory, and what a chunk may have. */
struct plan_layout {
	uint64_t steps, places, words, scratch, packets, size;
	uint64_t max_chunk;  /* bytes */
	uint32_t indices;    /* of channels and barriers that are named, one more; */
	uint32_t semaphores; /* likewise */
	uint32_t widest;     /* chunks that a block moves at once, the most */
	bool either;	     /* its input and output may be one buffer, or two */
	bool apart;	     /* no rank touches another's memory but by packets and signals */
	bool leads;	     /* some block begins with what it stores into another rank's scratch */
	bool closed; /* who does, signals it behind that: each signal is waited for in the run */
};

/* max_bytes: of the input, or the output where there is none. -ENOMEM: it wraps the address space. */
int plan_lay_out(
	const struct spmt_plan *plan, bool either, size_t max_bytes, struct plan_layout *layout);
/* This rank's table, layout->words bytes; NULL: no memory. mem_free frees it. */
void *plan_table(const struct spmt_plan *plan, const struct plan_layout *layout, int rank);

#endif
