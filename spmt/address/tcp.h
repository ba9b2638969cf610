/* SPDX-License-Identifier: MIT */
/* Listening for processes of other nodes, and calling them. */
#ifndef SPMT_ADDRESS_TCP_H
#define SPMT_ADDRESS_TCP_H

#include "place.h"

/* Whether an address of this node can be bound at once: an IPv6 one is tentative at first. */
bool tcp_can_have(const struct place_address *address);
/*
 * Listens at each address of the place, this node's, at the first of its ports that is free; one with none, or that cannot be had, is
 * left out unless it is the last. A port is the hub's as long as its socket exists; none is probed and released. fds: -1 where there is
 * no listener. A failure has a sentence.
 */
int tcp_listen(const struct uid_place *place, uint16_t port, int fds[PLACE_ADDRESSES]);
/* The same at one port, the same at all addresses, that the system chooses. A failure has a sentence. */
int tcp_listen_anywhere(const struct uid_place *place, uint16_t *port, int fds[PLACE_ADDRESSES]);
/* Begins to call. *out: the connection, or an error, negative: there is none to be had at this address now. A failure, with a sentence: this
   process is short of something. */
int tcp_call(const struct place_address *address, uint16_t port, int *out);

#endif
