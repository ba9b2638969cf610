/* SPDX-License-Identifier: MIT */
/* A run of a plan, as the kernels see it that run one. */
#ifndef SPMT_KERNELS_PLAN_RUN_H
#define SPMT_KERNELS_PLAN_RUN_H

#include "../../include/spmt.h"
#include "coll/coll.h"

/* A unit's own; and what plan_row.c calls of plan.c, which on devices, and with COLL_ONE_UNIT, are one unit. */
#if defined(__AMDGCN__) || defined(__NVPTX__)
#define PLAN_FN static inline __attribute__((always_inline)) SPMTD_MEETS
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
#define PLAN_KEPT 1024u /* words of 8 bytes */
static __attribute__((address_space(3), loader_uninitialized)) uint64_t plan_kept[PLAN_KEPT];
#endif

/* What is not in the arguments, the same in all threads of a block. */
struct plan_now {
	uint64_t epoch, flag;
	uint64_t packets, scratch;    /* the sets that this run has */
	uint64_t steps, places;	      /* of this block; on the host of all blocks */
	struct plan_first first, end; /* and their numbers */
	uint64_t at;		  /* of a list that is kept: the addresses of its places; else 0 */
	uint64_t from, to, bytes; /* a copy of the input, as struct kernel_plan_row_args has it */
};
#if defined(__NVPTX__)
/* Beside what a fold has in flight there are no registers for it. */
static __attribute__((address_space(3), loader_uninitialized)) struct plan_now plan_running;
#endif

struct plan_run {
	const struct plan_given *given;
	const struct spmt_view *v;
	const struct plan_now *now;
};

/* By the threads of a block that has a list, on the host of a rank that has any; plan_ahead and plan_begin by all. What needs nothing of what is
   ahead in the stream is found as soon as the kernel has begun; then it is told which run this is, another than those before. */
PLAN_CALL int plan_has_list(const struct plan_given *g);
PLAN_CALL void plan_ahead(
	const struct plan_given *given, const struct spmt_view *v, struct plan_now *now);
PLAN_CALL struct plan_run plan_begin(const struct plan_given *given, const struct spmt_view *v,
	struct plan_now *now, uint64_t epoch);
/* What need not wait until the ranks have met; before the rest in any case. */
PLAN_CALL void plan_early(const struct plan_run *r);
/* The rest, when they have. 0, or the code that ended it. */
PLAN_CALL int plan_go(const struct plan_run *r);

#endif
