/* SPDX-License-Identifier: MIT */
/*
 * Who is missing in a meeting between nodes once a deadline has passed. Of this node's ranks, those that have not come by then. Of the
 * others, their processes report a moment later, when all may have come; then the fault lies with a process that does not answer, say a
 * stopped one that leads its node's notes, or with those that came last. What is found lies in the rows, for all ranks of the node.
 */
#ifndef SPMT_MISSING_H
#define SPMT_MISSING_H

#include "spmt/control/meeting.h"

/* The deadline of a rank here has passed. */
void missing_here(const spmt_comm *comm);
/* A process, by its number in the world, has not answered. */
void missing_silent(const spmt_comm *comm, uint64_t epoch, int process);
/* Whether a rank of this node has only just come. */
bool missing_late(const spmt_comm *comm, int rank);
/* The row's operation. */
enum meet_standing missing_standing(const spmt_comm *comm, int rank);

#endif
