/* SPDX-License-Identifier: MIT */
#ifndef SPMT_FINALIZE_H
#define SPMT_FINALIZE_H

#include "spmt/comm/comm.h"

/* Undoes a comm, however far it got, and before it those split from it. Peers are done with it, or it is broken. */
void comm_destroy(spmt_comm *comm);
/* How long collectives in a broken world may take to end. */
#define COMM_BROKEN_NS 5000000000ll

extern const char comm_ending[]; /* whose claim a comm has to its end */
/* -EBUSY where spmt_finalize would be now: another thread is in a collective on the comm, or on one that was split from it. */
int comm_ends(spmt_comm *comm, const char *what);
/* -EBUSY: a registered stream of it, or of what was split from it, has earlier work and is being captured. */
int comm_held_back(spmt_comm *comm, const char *what);
/* Releases what was left because of unfinished work that has ended since. */
void comms_release(void);

#endif
