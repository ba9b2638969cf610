/* SPDX-License-Identifier: MIT */
#ifndef SPMT_SYNC_H
#define SPMT_SYNC_H

#include "spmt/comm/record.h"

int quiet_slow(spmt_comm *comm, const char *what);
/* NBI work of all links; the first failure. */
int movers_quiet(spmt_comm *comm, const char *what);

/* quiet without entering: 0 or the first failure since the last one. */
static inline int quiet_all(spmt_comm *comm, const char *what)
{
	return LIKELY(!comm->pending && !comm->streamed && !comm->fifo && !comm->queues &&
		       !kernel_left(comm))
		? 0
		: quiet_slow(comm, what);
}

/* spmt_calloc and spmt_free (symmetric.c) on a comm that the caller has claimed. */
int symmetric_calloc(spmt_comm *comm, size_t count, size_t size, void **ptr);
int symmetric_free(spmt_comm *comm, void *ptr);

#endif
