/* SPDX-License-Identifier: MIT */
/* Comms split from a comm: their place in the tree, and their end. */
#ifndef SPMT_SPLIT_H
#define SPMT_SPLIT_H

#include "include/spmt.h"

/*
 * A comm and all that were split from it, each before the one that it was split from:
 *	for (c = split_first(root); c != root; c = split_next(c))
 * Without recursion, since trees may be deeper than a rank's stack. Nobody else is in a call on them.
 */
spmt_comm *split_first(spmt_comm *root);
spmt_comm *split_next(const spmt_comm *comm);

/* Gives back what a split comm has of its rank's slot and of its world, however far it got. What
   peers may still write to, because it is broken, stays taken until the world ends. */
void split_leave(spmt_comm *comm);

#endif
