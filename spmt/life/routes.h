/* SPDX-License-Identifier: MIT */
/* Writing routes to a file. */
#ifndef SPMT_ROUTES_H
#define SPMT_ROUTES_H

#include "include/spmt.h"

/*
 * SPMT_ROUTES: once this rank's links stand and before the last meeting of init. The last rank of the process
 * to come writes the rows of all of them at once, so that rows of processes do not mix and all rows of a world stand
 * before those of a later one of the same uid. A file that cannot be written fails init.
 */
int routes_write(spmt_comm *comm);

#endif
