/* SPDX-License-Identifier: MIT */
/*
 * What SPMT_CHECK looks for in a heap whose blocks are looked at: accesses beyond a block, or to one that was freed; red zones
 * and freed blocks that were written to; what is left at the end. What is found is logged (LOG_CHECK) as well. Only where
 * comm_checked().
 */
#ifndef SPMT_MISUSE_H
#define SPMT_MISUSE_H

#include "heap/look.h"
#include "spmt/comm/comm.h"

static inline bool comm_checked(const spmt_comm *comm)
{
	return comm->heap->check;
}

/* [ptr, ptr + n) lies in this rank's heap: 0 if it lies in one live block. Else -EINVAL with a sentence. */
int misuse_range(const spmt_comm *comm, const char *what, const char *name, const void *ptr,
	uint64_t n) __attribute__((cold));
/* Checks that a block begins at ptr, in this rank's heap: 0, or -EINVAL with a sentence. */
int misuse_free(const spmt_comm *comm, const void *ptr);

/* Writes the red zone of a new block. */
int misuse_fence(spmt_comm *comm, const char *what, uint64_t offset);
/*
 * All ranks free the block at this offset: looks at its red zone, and at those that were freed long ago. -EFAULT with a sentence:
 * written to. Goes on in any case. The block is kept for a while, or free.
 */
int misuse_freed(spmt_comm *comm, uint64_t offset);

/* All ranks have come to the end: looks at what comm and those split from it have, and names what is left. 0, or the first
   -EFAULT. */
int misuse_left(spmt_comm *root);

#endif
