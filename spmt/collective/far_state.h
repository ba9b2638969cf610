/* SPDX-License-Identifier: MIT */
/* Collectives by movers (far.h), for the files that implement them. */
#ifndef SPMT_FAR_STATE_H
#define SPMT_FAR_STATE_H

#include "far.h"

/* What a peer has told of its round, by parity; only it writes there. */
struct far_word {
	struct far_hello {
		uint64_t key, more;   /* more: its data does not end with this round */
		uint64_t gives, gets; /* varied: all of its counts, folded */
		uint64_t factor;      /* of COLL_PREMUL */
	} hello;
	uint64_t round;
	uint64_t step; /* far_step_word: how far it has come in the round */
};

/* A comm's: movers of its own, as those of the links are the user's thread's. */
struct far {
	struct link *links;
	uint64_t *
		noted; /* by rank: the round that it was seen to have come to; a move that was cut short may land there later */
	uint64_t round;
	int64_t begin; /* of this call */
	/* Nodes are numbered in the order of their first ranks. Where all ranks are on one, each counts as one: none is nearer than
	   the others. */
	int nodes, mine;
	int rails;   /* ranks of the smallest node */
	int *node;   /* by rank */
	int *nth;    /* by rank: which of its node */
	int *before; /* by node, and one more: ranks of the nodes before it */
	int *places; /* the same of ranks whose number leaves 0 by that of the rails */
	int *ranks;  /* by node and nth: before[node] + nth; the first of each node is its leader */
};

/* ---- how ranks meet (far_meet.c) ----------------------------------------------------------------- */

/* The nodes of comm. far_drop is due after a failure. */
int far_nodes(const spmt_comm *comm, struct far *far);
/* The nth rank of a node; -1: it has not so many. */
int far_rank(const struct far *far, int node, int nth);
/* Where `at`, counted from the stage, lies at the link's peer: the stage is at the same place in every rank's area. */
uint64_t far_there(const spmt_comm *comm, const struct link *link, int64_t at);
/* From the stage: where the half of this round begins. */
int64_t far_half(const spmt_comm *comm);
/* n bytes to the same place of a peer's stage, at once if it is this rank. */
int far_put(spmt_comm *comm, int pe, int64_t at, const void *src, uint64_t n);
/* What `writer` has told this rank of the round, or of one with its parity. */
const struct far_word *far_told(const spmt_comm *comm, uint64_t round, int writer);
/* The next round begins: notes at this rank itself that it has come, for those who miss it. */
int far_begin_round(spmt_comm *comm, const struct far_hello *hello);
/* Tells pe that this rank has come to the round. */
int far_greet(spmt_comm *comm, int pe, const struct far_hello *hello);
/* .. that it has come so far in it, from 1 on. */
int far_greet_step(spmt_comm *comm, int pe, uint64_t step);
/* Until pe has told; step 0: that it has come. A deadline breaks the comm, and names who has not come. The wait is shown until
   waits_hide(comm, c). */
int far_await(spmt_comm *comm, const struct far_call *c, int pe, uint64_t step);
/* As far_await, and it has come with the key of this rank's call. */
int far_await_key(spmt_comm *comm, const struct far_call *c, int pe);
/* Breaks the comm: key[0] is what pe has told, key[1] what this rank has. */
int far_mismatch(spmt_comm *comm, const struct far_call *c, int pe, const uint64_t key[2]);

/* What a fold of all ranks' elements reads: a place for each rank, then a factor's piece for each. From mem_calloc; NULL: told. */
struct area_inbox *far_operands(const spmt_comm *comm);

/* ---- ways for data ------------------------------------------------------------------------------- */

/* What this rank gives pe, and gets from it. */
struct far_span far_span_of(const spmt_comm *comm, const struct far_call *c, int pe);
/* Whether a round of far_tree has room for all that c moves. */
bool far_tree_fits(const spmt_comm *comm, const struct far_call *c);
/* One round by way of the nodes (far_tree.c). meet: nothing is moved. */
int far_tree(spmt_comm *comm, const struct far_call *c, bool meet);
/* What each rank has for all others, as c's spans say: from every node to the next one, round and round (far_ring.c). All ranks have
   met in c, or in what came before. */
int far_ring(spmt_comm *comm, const struct far_call *c);

#endif
