/* SPDX-License-Identifier: MIT */
/* Where processes of other nodes find one of this. */
#ifndef SPMT_ADDRESS_PLACE_H
#define SPMT_ADDRESS_PLACE_H

#include <stdint.h>

/* Where a uid's world is found, without the port. */
struct uid_place {
	uint16_t family, zero; /* AF_INET, AF_INET6; 0: nowhere, one node alone */
	uint32_t scope;
	unsigned char address[16];
};

#endif
