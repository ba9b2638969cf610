/* SPDX-License-Identifier: MIT */
/* What a spmt_uid holds. The bytes are little-endian on every machine that we run on, so a uid
   may travel as it is. */
#ifndef SPMT_UID_H
#define SPMT_UID_H

#include "../include/spmt.h"
#include "../src/base.h"

#define UID_MAGIC 0x6469752d746d7073ull /* "spmt-uid" */
#define UID_VERSION 1u

struct uid {
	uint64_t magic;
	uint32_t version;
	uint32_t check;		  /* over everything behind it */
	uint64_t id[2];		  /* names the world, never zero */
	unsigned char secret[32]; /* proves that its bearer was invited */
	unsigned char zero[64];
};
_Static_assert(sizeof(struct uid) == sizeof(spmt_uid), "a uid fills its bytes");

/* The uid decoded; -EINVAL with a sentence that begins with `what`. Pure. */
int uid_read(const char *what, const spmt_uid *bytes, struct uid *uid);

#endif
