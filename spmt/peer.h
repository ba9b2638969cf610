/* SPDX-License-Identifier: MIT */
/* A link a peer: made in init, undone in finalize. */
#ifndef SPMT_PEER_H
#define SPMT_PEER_H

#include "../include/spmt.h"

int peers_link(spmt_comm *comm);
/* Each tells every peer where it sees the peer's heap; behind a meeting each hears. */
int peers_tell(spmt_comm *comm);
int peers_hear(spmt_comm *comm);
void peers_unlink(spmt_comm *comm); /* takes half-made ones */

#endif
