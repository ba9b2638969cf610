/* SPDX-License-Identifier: MIT */
/* Listening for processes of other nodes, and calling them. */
#ifndef SPMT_ADDRESS_TCP_H
#define SPMT_ADDRESS_TCP_H

#include "place.h"

/* Whether the address is this node's, and can be had at once. */
bool tcp_is_here(const struct place_address *address);
/*
 * Listens at each address of the place, at the first of its ports that is free; one with none is left out unless it is the last. A port
 * is the hub's as long as its socket exists; none is probed and released. fds: -1 where there is no listener. -EADDRNOTAVAIL, without a
 * sentence: one of them is no address of this node, so the place is another's: nodes may have addresses in common.
 */
int tcp_listen(const struct uid_place *place, uint16_t port, int fds[PLACE_ADDRESSES]);
/* The same at one port, the same at all addresses, that the system chooses. A failure has a sentence. */
int tcp_listen_anywhere(const struct uid_place *place, uint16_t *port, int fds[PLACE_ADDRESSES]);
/* Begins to call. *out: the connection, or an error, negative: there is none to be had at this address now. A failure, with a sentence: this
   process is short of something. */
int tcp_call(const struct place_address *address, uint16_t port, int *out);

#endif
