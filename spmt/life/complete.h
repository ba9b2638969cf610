/* SPDX-License-Identifier: MIT */
#ifndef SPMT_COMPLETE_H
#define SPMT_COMPLETE_H

#include "include/spmt.h"

/* Calls the functions that the comm's streams have not come to, and waits until all have returned. */
void completions_end(spmt_comm *comm);

#endif
