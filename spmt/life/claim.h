/* SPDX-License-Identifier: MIT */
/* A comm ends with its parts and lanes: all of them are claimed first (spmt/control/object.h), or none, so that as long as another thread
   is in the way calls on the others go on. */
#ifndef SPMT_LIFE_CLAIM_H
#define SPMT_LIFE_CLAIM_H

#include "spmt/comm/comm.h"

extern const char comm_ending[]; /* the call that has claimed what ends */

/* The comm stays, as who calls has visited it. -EBUSY: another thread is in a collective on one of the tree, or ends it; or a registered
   stream has work that is held back, so that nobody could tell when it has ended, and the stream may go then. */
int claim_tree(spmt_comm *root, const char *what);
/* Claims nothing, and looks at no work. */
int claim_look(spmt_comm *root, const char *what);
/* Of one that stays after all, or is kept for work that goes on until what it was split from ends. */
void claim_drop(spmt_comm *root);

#endif
