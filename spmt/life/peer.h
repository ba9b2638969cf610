/* SPDX-License-Identifier: MIT */
/* One link a peer: made in init, undone in finalize. */
#ifndef SPMT_PEER_H
#define SPMT_PEER_H

#include "include/spmt.h"
#include "spmt/comm/meet.h"

int peers_link(spmt_comm *comm);
/* Each rank publishes where it sees each peer's heap; after a meeting each collects. */
int peers_publish(spmt_comm *comm);
int peers_collect(spmt_comm *comm);
/* For a comm split from another: it shares the parent's maps and has its own movers. areas: by
   rank, where its library area begins in the heap. */
int peers_share(spmt_comm *comm, const uint64_t *areas, const int *parent_ranks);
/* Each rank brings to a meeting the first peer that its kernels do not reach; after it, held on `met`, where comm's ranks have these
   numbers (NULL: the same), all know one such. From then on nodes meet by notes, where they can. */
void peers_reach(spmt_comm *comm, struct meet_record *record);
void peers_reached(spmt_comm *comm, const spmt_comm *met, const int *numbers);
void peers_unlink(spmt_comm *comm); /* takes half-made ones */

#endif
