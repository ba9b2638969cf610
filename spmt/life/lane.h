/* SPDX-License-Identifier: MIT */
#ifndef SPMT_LIFE_LANE_H
#define SPMT_LIFE_LANE_H

#include "finalize.h"

/* On GPUs, and between processes, a lane's ranks meet in kernels, in a library area that every rank of the comm has from the start.
   Returns 0, or the bytes that all areas take after `before` bytes of the comm's own. Sets comm->nlanes. */
uint64_t lane_areas(spmt_comm *comm, uint64_t before);
/* On GPUs, the pinned memory of the signals of a world's lanes and those of its parts, before any kernel runs; and once the links are
   attached, the tables by which a comm's lanes reach peers. */
int lane_signals_open(spmt_comm *comm);
int lane_tables_open(spmt_comm *comm);
/* The last rank of a part has ended it. */
void lane_forget(const spmt_comm *comm);

/* Steps that have not ended by now fail, and functions are called, before this returns. */
void lane_settle(spmt_comm *comm);
/* Breaks the lane: the rank has ended it, with work of it still to come. Its key must not name what is left, which ends with its world. */
void lane_leave(spmt_comm *comm);
/* Gives the handle back, when it is settled and nobody is in a call on it. */
void lane_release(spmt_comm *comm);

#endif
