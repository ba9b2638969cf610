/* SPDX-License-Identifier: MIT */
/*
 * Queues of copy engines that a comm's kernels feed (include/spmt_device/sdma.h), one a peer whose heap the engine reaches: of their own, so
 * that the host's moves and kernels never share a ring. Made with the first view, where SPMT_SDMA=queues asks for them; a peer without
 * one, for which there is a line in the log, is put to as by any other call.
 */
#ifndef SPMT_QUEUES_H
#define SPMT_QUEUES_H

#include "spmt/comm/comm.h"

/* By the comm's thread; again: nothing. */
void queues_open(spmt_comm *comm);
/* Once no kernel of the comm runs any more, before its links go. What an engine has not begun is dropped. */
void queues_close(spmt_comm *comm);
/* For kernels, by rank; NULL: there is none. */
struct spmtd_sdma *queues_device(const spmt_comm *comm);
/* What pe's engine has been told of by now: a position; 0 without a queue. */
uint64_t queues_told(const spmt_comm *comm, int pe);
/* Whether it is done: 1 yes (also without a queue), 0 not yet, or a code with a sentence. */
int queues_query(spmt_comm *comm, int pe, uint64_t told);

#endif
