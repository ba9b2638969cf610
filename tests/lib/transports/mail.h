/* SPDX-License-Identifier: MIT */
/*
 * A map and a mover that reach a peer by messages alone, as a NIC does: a program that links mail.c has them as `rdma` and `verbs`
 * (SPMT_MAPS=rdma, ranks as threads of one process). link->base is NULL: nobody loads from the peer or stores to it but the thread
 * that owns its memory, which serves the letters to it one after the other.
 *
 * put      BLOCKING copies small ones into the letter, and waits for large ones; NBI leaves src where it is until quiet.
 * get      BLOCKING waits, NBI does not.
 * signal   and an atomic that nobody asks the result of are in flight on return.
 * stream   the stream's own thread posts the letter, and waits for it.
 * fence    has nothing to do: letters of one link are served in order.
 * quiet    waits until all letters of the link are served, with its deadline and stop word.
 */
#ifndef TESTS_MAIL_H
#define TESTS_MAIL_H

#include "transports/transport.h"

/* From here to mail_release() no letter to the link's peer is served. */
void mail_hold(struct link *link);
void mail_release(struct link *link);
/* Letters of the link's first mover that are not served yet. */
uint64_t mail_left(const struct link *link);

#endif
