/* SPDX-License-Identifier: MIT */
/* Where a world is found over TCP: a few addresses of one node, and a row of ports at each. Plain data, which uids carry. */
#ifndef SPMT_ADDRESS_PLACE_H
#define SPMT_ADDRESS_PLACE_H

#include <netinet/in.h>

#include "src/base/base.h"

#define PLACE_ADDRESSES 3
#define PLACE_PORTS 8
#define PLACE_PORT_LEAST 20000 /* below those that systems hand out by themselves */
#define PLACE_PORT_COUNT 12000

struct place_address {
	uint16_t family, zero;	 /* AF_INET, AF_INET6; 0: none, nor behind it */
	unsigned char bytes[16]; /* of IPv4 the first four, zeros behind */
};
_Static_assert(sizeof(struct place_address) == 20, "three fit a uid");

/* In the order in which they are tried. */
struct uid_place {
	struct place_address at[PLACE_ADDRESSES];
};

union place_name {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* Known families, none behind a gap, and no address that only one link knows. Pure, like all of these. */
bool place_is_sound(const struct uid_place *place);
int place_count(const struct uid_place *place);
bool place_has(const struct uid_place *place, const struct place_address *address);
void place_add(struct uid_place *place, const struct place_address *address);
/* "10.1.0.1, fd00::1" */
#define PLACE_TEXT (PLACE_ADDRESSES * (INET6_ADDRSTRLEN + 2))
void place_text(const struct uid_place *place, char text[PLACE_TEXT]);
/* The i-th port to try, below PLACE_PORTS, where the first is `first`. */
uint16_t place_port(uint16_t first, int i);

/* fe80::/10: means nothing without the interface, which is another on each node. */
bool address_is_local(const struct place_address *address);
/* For bind and connect; returns its size. */
socklen_t address_name(const struct place_address *address, uint16_t port, union place_name *name);
/* The address of a name; family 0: it is of another kind. */
void address_of(const struct sockaddr *any, struct place_address *address);
void address_text(const struct place_address *address, char text[INET6_ADDRSTRLEN]);

#endif
