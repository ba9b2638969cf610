/* SPDX-License-Identifier: MIT */
/* What a spmt_uid holds. The bytes are little-endian on every machine that we run on, so a uid
   may travel as it is. */
#ifndef SPMT_UID_H
#define SPMT_UID_H

#include "include/spmt.h"
#include "spmt/address/place.h"
#include "src/base/base.h"

#define UID_MAGIC 0x6469752d746d7073ull /* "spmt-uid" */
#define UID_VERSION 1u
#define UID_PORTS 8
#define UID_PORT_LEAST 20000 /* below those that systems hand out by themselves */
#define UID_PORT_COUNT 12000

struct uid {
	uint64_t magic;
	uint32_t version;
	uint32_t check;		  /* over everything behind it */
	uint64_t id[2];		  /* names the world, never zero */
	unsigned char secret[32]; /* proves that its bearer was invited */
	/* Where a process of another node finds the world; family 0: nowhere, one node alone. */
	uint16_t family; /* AF_INET, AF_INET6 */
	uint16_t port;	 /* the first of UID_PORTS that may be in use */
	uint32_t scope;	 /* of an AF_INET6 link-local address */
	unsigned char address[16];
	unsigned char zero[40];
};
_Static_assert(sizeof(struct uid) == sizeof(spmt_uid), "a uid fills its bytes");

/* spmt_uid_create; a sentence begins with `what`. */
int uid_create(const char *what, spmt_uid *uid);

/* Moves a uid to another place. */
void uid_move(struct uid *uid, const struct uid_place *place);

/* The i-th port to try, below UID_PORTS; the same sequence for all who have the uid. Pure. */
uint16_t uid_port(const struct uid *uid, int i);

/* The uid decoded; -EINVAL with a sentence that begins with `what`. Pure. */
int uid_read(const char *what, const spmt_uid *bytes, struct uid *uid);

/* Derives a uid from `from` and a message: all who share `from` get the same. `from` cannot be
   computed back. Pure. */
void uid_derive(const struct uid *from, const void *message, size_t size, struct uid *uid);

#endif
