/* SPDX-License-Identifier: MIT */
/* Trials of a plan at many sizes: the order of its operations is found once, and of each size there is one element for bytes that go the same way. */
#ifndef SPMT_PLAN_SIMULATE_H
#define SPMT_PLAN_SIMULATE_H

#include "plan.h"

/* What moves something, in an order that the waits allow, by `seed`. The plan stays as it is until that is closed. */
struct plan_order {
	const struct spmt_plan *plan;
	const struct spmt_plan_op **ops;
	size_t n;
};
/* 0, -ENOMEM, -EDEADLK, with a sentence; close takes one that failed to open. */
int plan_order_open(struct plan_order *o, const struct spmt_plan *plan, uint64_t seed);
void plan_order_close(struct plan_order *o);

/* Chunks of so many bytes, a multiple of PLAN_GRID_UNIT. No part of an operation begins between those that have one element, of `n` a chunk. */
enum { PLAN_GRID_UNIT = 8 };
struct plan_grid {
	size_t bytes;
	uint32_t *element; /* by unit: the one that begins there, if any does */
	size_t n;
};
/* 0, -ENOMEM with a sentence; close takes one that failed to open. */
int plan_grid_open(struct plan_grid *g, const struct plan_order *o, size_t bytes);
void plan_grid_close(struct plan_grid *g);

/* As spmt_plan_simulate, of a trial that is right: its count is that of elements. grid NULL: they are bytes of the plan's. -ENOMEM with a sentence. */
int plan_simulate(const struct plan_order *o, const struct plan_grid *grid,
	const struct spmt_plan_trial *trial);

#endif
