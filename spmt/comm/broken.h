/* SPDX-License-Identifier: MIT */
/* Why a world, or a comm split from it, is broken. Processes report it in the memory that they
   share, which is fast, and over the rendezvous, which works even if one of them has overwritten
   that memory. */
#ifndef SPMT_BROKEN_H
#define SPMT_BROKEN_H

#include "comm.h"

/* How long collectives in a broken world may take to end. */
#define COMM_BROKEN_NS 5000000000ll

/*
 * Whether the comm of `control` is broken, and why. If the memory has been overwritten, waits up
 * to most_ns for a report of the rendezvous; if none comes, the overwriting is the cause, and
 * with most_ns > 0 it breaks the world for all.
 */
bool world_cause(
	struct world *world, struct control *control, int64_t most_ns, struct cause *cause);
/* 0, or its code, with `what` and the original sentence recorded. */
int world_broken(struct world *world, struct control *control, const char *what, int64_t most_ns);
/* As world_broken, with time enough for the report of a death. Also ends this rank's kernels if
   the comm was broken in another process. */
int comm_broken(const spmt_comm *comm, const char *what);
/* The shared memory holds an impossible value, so the comm is broken, whatever its state says.
   Never 0. */
int comm_spoiled(const spmt_comm *comm, const char *what);
/* A lane breaks with its comm, a part with its world: also if that break is known already, but whoever broke it, perhaps in another process,
   has not got to its lanes or parts yet, or did not know of this one. No-op on a world's comm. */
void comm_inherit(const spmt_comm *comm);
/* The same for the lanes of a comm, none of which is looked at. */
void comm_inherit_lanes(const spmt_comm *parent);
/* The lanes of a comm that has just been broken: of this process, and those that others alone have. */
void comm_break_lanes(const spmt_comm *comm, const struct cause *cause);
/* The cause, for a rank whose comm is broken. */
void comm_cause(const spmt_comm *comm, struct cause *cause);

#endif
