/* SPDX-License-Identifier: MIT */
/*
 * Ranks that meet by messages alone, as ranks of several nodes will: a row of meetings beside that of shared memory. A thread of the
 * test, the hub, has a connection to every rank of every comm, also from processes that are forked later; it passes on what each rank
 * brings, and decides. Each process then has control blocks of its own, and none is shared.
 *
 * A program linked with -Wl,--wrap=spmt_init has all its worlds meet so, unchanged.
 */
#ifndef TESTS_MESSAGES_H
#define TESTS_MESSAGES_H

#include "spmt/control/meeting.h"

extern const struct meeting_ops meeting_messages;

#endif
