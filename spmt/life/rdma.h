/* SPDX-License-Identifier: MIT */
/* A rank's side of map `rdma`: whether it is wanted, and opening it. What is opened ends with the slot. */
#ifndef SPMT_LIFE_RDMA_H
#define SPMT_LIFE_RDMA_H

#include "spmt/comm/comm.h"

struct env;

/* Whether this process may have the map at all; if not, me says why. */
bool rdma_likely(struct rank_info *me);
/* Once the ranks have gathered: whether some peer of this rank would be reached by it. */
bool rdma_wanted(const spmt_comm *comm, const struct env *env);
/* Once the heap is open: its NIC gets to know the heap if that is wanted. Where it cannot, the rank's info says why, and routes do. */
void rdma_open(spmt_comm *comm, const struct env *env);

#endif
