/* SPDX-License-Identifier: MIT */
#ifndef SPMT_REGISTER_H
#define SPMT_REGISTER_H

#include "spmt/comm/comm.h"

void mems_drop(spmt_comm *comm);       /* what is still registered at finalize */
void mems_left(const spmt_comm *comm); /* names it, with SPMT_CHECK */
/* The number, from 1 on, of a buffer of this rank that lies in [ptr, ptr + n); 0: none does. */
uint64_t mems_within(const spmt_comm *comm, const void *ptr, uint64_t n);

#endif
