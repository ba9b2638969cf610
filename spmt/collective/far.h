/* SPDX-License-Identifier: MIT */
/*
 * Collectives where kernels do not reach every peer (comm->far): by the movers, from the stream's own thread. What is moved goes
 * through the stages, of which each has two halves, in rounds: a rank that has ended one knows that all have come to it, so that
 * nobody reads any more what the round before had put into the other half.
 *
 * There are three kinds of rounds. By a tree (far_tree.c), for what is small: the ranks of a node put what they give to the first
 * of them, those meet in log2(nodes) steps, each of which passes on all that has come so far, and the others read it there. By a
 * ring (far_ring.c): what all get goes from each node to the next. From each to each (far.c): what each pair has of its own, or
 * each rank is to fold. Elements are folded in the order of ranks, by one rank that has them all.
 */
#ifndef SPMT_FAR_H
#define SPMT_FAR_H

#include "spmt/comm/comm.h"
#include "src/kernels/kernels.h"

#define FAR_BARRIER UINT64_MAX /* the key of a call that moves nothing */

/* What this rank gives a peer, and what it gets from it; in elements. */
struct far_span {
	uint64_t src_at, src_count, dst_at, dst_count;
};

struct far_call {
	const char *what; /* lives as long as the library */
	void *dst;
	const void *src;
	uint64_t count; /* elements of a block */
	uint64_t size;	/* of an element */
	int type, op;
	struct coll_factor factor; /* of COLL_PREMUL; in `bits` once it runs */
	uint64_t
		key; /* equal on all ranks (coll_key.h), or FAR_BARRIER; varied: there is one a pair instead */
	struct coll_moves moves;
	enum kernel_collective_kind kind;
	int root;
	bool varied;		/* no rank knows the counts of others */
	struct far_span *spans; /* by rank, from mem_calloc; NULL: as count and moves say */
};

/* Whether peers may be reached so, as far as is known before there are links; the same on all ranks. */
bool far_possible(const spmt_comm *comm);
/* Bytes in front of comm->stage, zeroed before anybody meets on it. */
uint64_t far_head(int nranks);
/* Queues it, behind a claim of the comm and in the order of its other collectives. Nothing is queued on failure. The spans become its
   own, on failure too. */
int far_queue(spmt_comm *comm, const struct far_call *call, device_stream stream);
/* What it keeps for the comm, whose streams have ended. */
void far_drop(spmt_comm *comm);

#endif
