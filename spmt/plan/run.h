/* SPDX-License-Identifier: MIT */
/* A plan on a comm: what its runs share, by spmt_plan_run and as a row of the collectives. */
#ifndef SPMT_PLAN_RUN_H
#define SPMT_PLAN_RUN_H

#include "lower.h"
#include "spmt/comm/comm.h"

/* Of this rank. The plan may change or go meanwhile. */
struct spmt_plan_open {
	struct spmt_plan_attr attr; /* without its words */
	struct plan_layout layout;
	uint64_t key, number; /* number: from 1, by order of begin, the same on all ranks */
	size_t max_bytes;
	char *at; /* at the same offset from the heap's base on all ranks */
	int blocks;
	bool packets, scatters;	     /* scatters: in place, the input is the larger buffer */
	struct spmt_plan_open *next; /* in comm->opens */
};

struct plan_call {
	const struct spmt_plan_open *open;
	void *dst;
	const void *src;
	size_t count;
	enum spmt_type type;
	enum spmt_op op;
	uint64_t chunk; /* bytes */
};

/* All but `at`; either: called in place and not. -ENOMEM: it wraps the address space. */
int plan_open_on(spmt_comm *comm, const spmt_plan *plan, bool either, size_t max_bytes,
	struct spmt_plan_open *open);
void plan_opens_drop(spmt_comm *comm); /* what has not ended at finalize */
/* The input where it lies in place, as the plan says. */
uintptr_t plan_in_place_at(const struct plan_call *c, int rank);
/* What a kernel is given. */
struct plan_given plan_given(const spmt_comm *comm, const struct plan_call *c);

#endif
