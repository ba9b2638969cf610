/* SPDX-License-Identifier: MIT */
/*
 * SPMT_SOCKET_IFNAME: which addresses of this node a uid carries. A list of words, each the name of an interface, or what names
 * begin with, or a subnet; "=" before the list: names in full; "^": all interfaces but these and the loopback.
 */
#ifndef SPMT_ADDRESS_INTERFACES_H
#define SPMT_ADDRESS_INTERFACES_H

#include <ifaddrs.h>

#include "place.h"

/*
 * In the order of the words, of each interface named its first IPv4 address, or IPv6 where it has none of that; then the IPv6
 * addresses of those that have both. -EINVAL: a word is none; -ENODEV: nothing fits, and the sentence says what there is. `usable`
 * has the last word on an address; NULL: all are. Pure.
 */
int interfaces_choose(const char *words, const struct ifaddrs *list,
	bool (*usable)(const struct place_address *address), struct uid_place *place);

/* The same of this node's. */
int interfaces_find(const char *what, const char *words, struct uid_place *place);

/* Those of a place's addresses that the list has, in their order. Pure. */
void interfaces_keep(
	const struct ifaddrs *list, const struct uid_place *place, struct uid_place *here);
/* The same of this node's, each of which need not be to be had at once. A failure has a sentence. */
int interfaces_here(const struct uid_place *place, struct uid_place *here);

#endif
