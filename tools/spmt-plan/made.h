/* SPDX-License-Identifier: MIT */
/* The library's collectives as plans, and what they do to the inputs of all ranks. */
#ifndef SPMT_PLAN_MADE_H
#define SPMT_PLAN_MADE_H

#include "spmt_plan.h"

/*
 * allreduce: each rank folds a chunk of everybody's and stores it to all, in place. allreduce-push: likewise, of what each has stored to its
 * scratch before. allreduce-packets: by packets, each rank folding all. allreduce-twoshot: by packets, each rank folding a chunk. reducescatter: each rank folds a chunk of all inputs. allgather,
 * alltoall: each rank puts to all others.
 * 0; -EINVAL and a sentence in spmt_last_error, or -ENOENT: there is none of this name.
 */
int made_plan(const char *name, int nranks, spmt_plan **plan);
/* The same with so many blocks a rank, each of which has a part of every operation. */
int made_plan_of(const char *name, int nranks, int blocks, spmt_plan **plan);
extern const char made_names[]; /* for the help */

/* Whether rank's output is what the plan's collective makes of inputs whose element i on rank r is made_input(r, i), of sums of u32; -1:
   it is no collective that is known here, or its buffers are not. elements: of the input. */
uint32_t made_input(int rank, size_t i);
int made_right(const struct spmt_plan_attr *attr, int rank, size_t elements, const uint32_t *out);

#endif
