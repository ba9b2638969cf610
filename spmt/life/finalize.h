/* SPDX-License-Identifier: MIT */
#ifndef SPMT_FINALIZE_H
#define SPMT_FINALIZE_H

#include "spmt/comm/comm.h"

/* Undoes a comm, however far it got, and before it those split from it. Peers are done with it, or it is broken. */
void comm_destroy(spmt_comm *comm);
/* Releases what was left because of unfinished work that has ended since. */
void comms_release(void);

#endif
