/* SPDX-License-Identifier: MIT */
/* Collectives by movers (far.h), for the files that implement them: how ranks meet in a round. */
#ifndef SPMT_FAR_STATE_H
#define SPMT_FAR_STATE_H

#include "far.h"

/* What a peer has told of its round, by parity; only it writes there. */
struct far_word {
	struct far_hello {
		uint64_t key, more;   /* more: its data does not end with this round */
		uint64_t gives, gets; /* with spans: all of its counts, folded */
	} hello;
	uint64_t round;
};

/* A comm's: movers of its own, as those of the links are the user's thread's. */
struct far {
	struct link *links;
	uint64_t round;
	int64_t begin; /* of this call */
	int *leaders;  /* the first rank of each node */
	int nodes, mine;
};

/* Where `at`, counted from the stage, lies at the link's peer: the stage is at the same place in every rank's area. */
uint64_t far_there(const spmt_comm *comm, const struct link *link, int64_t at);
/* What `writer` has told this rank of the round, or of one with its parity. */
const struct far_word *far_told(const spmt_comm *comm, uint64_t round, int writer);
/* Tells pe that this rank has come to the round. */
int far_greet(spmt_comm *comm, int pe, const struct far_hello *hello);
/* Until pe has told. A deadline breaks the comm, and names who has not come. The wait is shown until waits_hide(comm, c). */
int far_await(spmt_comm *comm, const struct far_call *c, int pe);
/* Breaks the comm: key[0] is what pe has told, key[1] what this rank has. */
int far_mismatch(spmt_comm *comm, const struct far_call *c, int pe, const uint64_t key[2]);
/* The round of a call with FAR_BARRIER. */
int far_barrier(spmt_comm *comm, const struct far_call *c);
void far_leaders(const spmt_comm *comm, struct far *far);

#endif
