/* SPDX-License-Identifier: MIT */
/* Why a world, or a comm split from it, is broken. Processes tell each other in the memory that they share, which is fast, and over
   the rendezvous, which holds where one of them has overwritten that memory. */
#ifndef SPMT_BROKEN_H
#define SPMT_BROKEN_H

#include "comm.h"

/*
 * Whether what control stands for is broken, and why. Where the memory has been overwritten, waits up to most_ns for what this process
 * hears; then that is the cause, and with most_ns > 0 it breaks the world for all.
 */
bool world_cause(
	struct world *world, struct control *control, int64_t most_ns, struct cause *cause);
/* 0, or its code, with `what` and the original sentence recorded. */
int world_broken(struct world *world, struct control *control, const char *what, int64_t most_ns);
/* As world_broken, for one that has all the time it takes to hear of a death. Kernels of this rank end, too, if the comm
   was broken in another process. */
int comm_broken(const spmt_comm *comm, const char *what);
/* What this rank has found in the shared memory cannot be, whether that says that it is broken or not. Never 0. */
int comm_spoiled(const spmt_comm *comm, const char *what);
/* The cause, for a rank, whose comm is broken. */
void comm_cause(const spmt_comm *comm, struct cause *cause);

#endif
