/* SPDX-License-Identifier: MIT */
#ifndef SPMT_LIFE_LANE_H
#define SPMT_LIFE_LANE_H

#include "finalize.h"

/* spmt_finalize of a lane. */
int lane_finalize(spmt_comm *comm);
/* Steps that have not ended by now fail, and functions are called, before this returns. */
void lane_settle(spmt_comm *comm);
/* Gives the handle back, when it is settled and nobody is in a call on it. */
void lane_release(spmt_comm *comm);

#endif
