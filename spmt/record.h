/* SPDX-License-Identifier: MIT */
#ifndef SPMT_RECORD_H
#define SPMT_RECORD_H

#include "../include/spmt.h"

/*
 * What a kernel of this rank has left behind when it failed: 0 or its code, in words, once. A
 * collective that timed out breaks the world, as one of the host does.
 */
int kernel_failure(spmt_comm *comm, const char *what);

#endif
