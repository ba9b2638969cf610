/* SPDX-License-Identifier: MIT */
/*
 * One test that runs on two machines at once, each with a share of every world's ranks (tests/vm/two.sh). SPMT_TEST_MACHINE says which
 * machine this is, 0 or 1; SPMT_TEST_FOLDER is where both may write. Both run the same tests in the same order, and stop at the first
 * that fails. What a test keeps in its own memory, the ranks of one machine share.
 */
#ifndef TESTS_MACHINES_H
#define TESTS_MACHINES_H

#include <stdbool.h>

#include "spmt.h"

enum { MACHINES_SLOW = 8 }; /* so much more time a watchdog gives them */

/* -1: there is one machine. */
int machine_here(void);
/* Whether the i-th of ranks or processes is this machine's: they take turns, so that neighbours are apart. */
bool is_of_this_machine(int i);
/* n uids, on both machines the same: made by machine 0, and taken by 1 when they are there. 0: yes. Every call is for other uids; calls of
   a machine come one at a time. */
int machines_uids(spmt_uid *uids, int n);

#endif
