/* SPDX-License-Identifier: MIT */
/* What the calls share beside entering: breaking, completing, and single steps of init and finalize. */
#ifndef SPMT_STEPS_H
#define SPMT_STEPS_H

#include "comm.h"

/* ---- failing ------------------------------------------------------------------------------- */

/* rc < 0: puts function and rank before the sentence of a lower layer, which knows neither. */
int comm_failed(const spmt_comm *comm, const char *what, int rc);

/* finalize.c: undoes a comm, however far it got, and before it those split from it. Peers are done
   with it, or it is broken. */
void comm_destroy(spmt_comm *comm);

#endif
