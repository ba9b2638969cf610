/* SPDX-License-Identifier: MIT */
/* A run of a plan, as the kernels see it that run one. */
#ifndef SPMT_KERNELS_PLAN_RUN_H
#define SPMT_KERNELS_PLAN_RUN_H

#include "../../include/spmt.h"
#include "coll/coll.h"

/* A unit's own; and what plan_row.c calls of plan.c, which on devices, and with COLL_ONE_UNIT, are one unit. */
#if defined(__AMDGCN__) || defined(__NVPTX__)
#define PLAN_FN static inline __attribute__((always_inline))
#define PLAN_CALL PLAN_FN
#elif defined(COLL_ONE_UNIT)
#define PLAN_FN static inline
#define PLAN_CALL PLAN_FN
#else
#define PLAN_FN static
#define PLAN_CALL
#endif

/* A block of threads has a list, each one its own; else one thread has all lists. On NVIDIA GPUs it is kept in shared memory: loads behind a
   fence find no cache near them. AMD's load what all threads of a wave ask for by units of their own, from caches for that. */
#if defined(__AMDGCN__) || defined(__NVPTX__)
#define PLAN_IN_BLOCKS 1
#endif
#if defined(__NVPTX__)
#define PLAN_KEPT 2048u /* words */
static __attribute__((address_space(3), loader_uninitialized)) uint32_t plan_kept[PLAN_KEPT];
#endif

struct plan_run {
	const struct plan_given *given;
	const struct spmt_view *v;
	uint64_t epoch;
	uint32_t flag;
	uint64_t packets;	  /* the set that this run has */
	uint64_t steps, places;	  /* of this block; on the host of all blocks */
	struct plan_first first;  /* and their numbers */
	uint64_t from, to, bytes; /* a copy of the input, as struct kernel_plan_row_args has it */
};

/* `epoch`: of this run, other than of those before; plan_find is yet to be called. */
PLAN_CALL struct plan_run plan_run_of(
	const struct plan_given *given, const struct spmt_view *v, uint64_t epoch);
/* Whether this block has a list, on the host whether any has; by the threads of those that have one, the following. */
PLAN_CALL int plan_has_list(const struct plan_given *g);
PLAN_CALL void plan_find(struct plan_run *r);
/* What need not wait until the ranks have met. */
PLAN_CALL void plan_early(const struct plan_run *r);
/* The rest. 0, or the code that ended it. */
PLAN_CALL int plan_go(const struct plan_run *r);

#endif
