/* SPDX-License-Identifier: MIT */
#ifndef SPMT_SPIN_H
#define SPMT_SPIN_H

#include "comm.h"

enum { SPIN_LOOKS = 32 }; /* from one call of spin_on to the next, with a cpu_relax() each */
/* false: this rank has spun for SPMT_SPIN_US. *begin: 0 at first. */
bool spin_on(spmt_comm *comm, int64_t *begin);
void spin_seen(spmt_comm *comm); /* this rank, on this CPU */

#endif
