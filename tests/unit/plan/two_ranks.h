/* SPDX-License-Identifier: MIT */
/* Plans of a few operations, for tests of the checker. */
#ifndef TESTS_UNIT_PLAN_TWO_RANKS_H
#define TESTS_UNIT_PLAN_TWO_RANKS_H

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "spmt_plan.h"

/* Two ranks, one block each, six chunks. */
static inline spmt_plan *empty_plan(void)
{
	spmt_plan *plan = NULL;

	cr_assert_eq(
		spmt_plan_create(&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					 .name = "p",
					 .collective = "c",
					 .nranks = 2,
					 .input_chunks = 6,
					 .output_chunks = 6,
					 .scratch_chunks = 6 },
			&plan),
		0);
	return plan;
}

static inline void finds(spmt_plan *plan, const char *words)
{
	int rc = spmt_plan_check(plan);

	cr_assert_eq(rc, words ? -EINVAL : 0, "%d: %s", rc, spmt_last_error());
	cr_assert(!words || strstr(spmt_last_error(), words), "%s", spmt_last_error());
	spmt_plan_destroy(plan);
}

static inline void add_part_to(spmt_plan *plan, int rank, int block, enum spmt_plan_kind kind,
	struct spmt_plan_chunk src, struct spmt_plan_chunk dst, int slice, int slices)
{
	struct spmt_plan_op op = spmt_plan_op_(kind);

	op.nsrc = op.ndst = 1;
	op.src[0] = src;
	op.dst[0] = dst;
	op.slice = slice;
	op.slices = slices;
	cr_assert_eq(spmt_plan_add(plan, rank, block, &op), 0, "%s", spmt_last_error());
}

static inline void add_part(spmt_plan *plan, int rank, enum spmt_plan_kind kind,
	struct spmt_plan_chunk src, struct spmt_plan_chunk dst, int slice, int slices)
{
	add_part_to(plan, rank, 0, kind, src, dst, slice, slices);
}

#endif
