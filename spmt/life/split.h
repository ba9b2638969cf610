/* SPDX-License-Identifier: MIT */
/* Comms split from a comm: their place in the tree, and their end. */
#ifndef SPMT_SPLIT_H
#define SPMT_SPLIT_H

#include "include/spmt.h"

/* Gives back what a split comm has of its rank's slot and of its world, however far it got. What
   peers may still write to, because it is broken, stays taken until the world ends. */
void split_leave(spmt_comm *comm);

/* The comm's place among those of its parent, in this rank. */
void tree_add(spmt_comm *comm);
void tree_remove(spmt_comm *comm);

#endif
