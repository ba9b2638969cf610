/* SPDX-License-Identifier: MIT */
/* What a spmt_uid holds. The bytes are little-endian on every machine that we run on, so a uid
   may travel as it is. */
#ifndef SPMT_UID_H
#define SPMT_UID_H

#include "include/spmt.h"
#include "spmt/address/place.h"
#include "src/base/base.h"

#define UID_MAGIC 0x6469752d746d7073ull /* "spmt-uid" */
#define UID_VERSION 2u

struct uid {
	uint64_t magic;
	uint32_t version;
	uint32_t check;		  /* over everything behind it */
	uint64_t id[2];		  /* names the world, never zero; [1]: where it was made */
	unsigned char secret[32]; /* proves that its bearer was invited */
	/* Where a process of another node finds the world. */
	uint16_t port, zero; /* the first of a row that may be in use */
	struct uid_place place;
};
_Static_assert(sizeof(struct uid) == sizeof(spmt_uid), "a uid fills its bytes");

/* Ranks of a world. Far more than the devices of any machine, and the tables still fit in memory. */
enum { RANKS_MOST = 1 << 15 };

/* spmt_uid_create; a sentence begins with `what`. */
int uid_create(const char *what, spmt_uid *uid);

/* Whether its world may be on several nodes. Pure. */
bool uid_travels(const struct uid *uid);

/* Whether this node made one with addresses, or one that it is derived from. False where nobody can tell, and once it has moved. */
bool uid_is_from_here(const struct uid *uid);

/* Moves a uid to another place; one without addresses: nowhere, its world is on one node. */
void uid_move(struct uid *uid, const struct uid_place *place);

/* The uid decoded; -EINVAL with a sentence that begins with `what`. Pure. */
int uid_read(const char *what, const spmt_uid *bytes, struct uid *uid);

/* Derives a uid from `from` and a message: all who share `from` get the same. `from` cannot be
   computed back. Pure. */
void uid_derive(const struct uid *from, const void *message, size_t size, struct uid *uid);

#endif
