/* SPDX-License-Identifier: MIT */
/* A uid through the user's own all-gather, struct spmt_bootstrap. What comes back is not trusted. */
#ifndef SPMT_BOOTSTRAP_USER_H
#define SPMT_BOOTSTRAP_USER_H

#include "launch.h"

#define CARD_MAGIC 0x647261632d6d7073ull /* "spm-card" */
#define CARD_VERSION 1u

/* What each process sends to the others. */
struct card {
	uint64_t magic;
	uint32_t version;
	int32_t process, processes, nranks;
	int32_t code; /* negative: this process gives up, and why */
	uint32_t zero;
	unsigned char host[16];
	spmt_uid uid; /* of process 0 */
	char why[200];
};
_Static_assert(sizeof(struct card) <= 1024, "what spmt.h promises");

/* The struct that `rank` was given, checked: -EINVAL. */
int user_check(const struct spmt_bootstrap *given, int rank, struct spmt_bootstrap *user);

/* Calls all_gather once. nranks is equal in all processes, or SPMT_ERR_MISMATCH in all. */
int user_spread(
	const struct spmt_bootstrap *user, int nranks, struct uid *uid, struct job_info *launch);

/* The cards of all processes, of which `mine` is one: the uid, and how many processes of this node come
   before this one. Pure. */
int user_read(const struct card *mine, const struct card *all, struct uid *uid, int *local);

#endif
