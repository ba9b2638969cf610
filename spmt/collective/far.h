/* SPDX-License-Identifier: MIT */
/*
 * Collectives where kernels do not reach every peer (comm->far): by the movers, from the stream's own thread. Each rank puts what it
 * gives into a slot of every rank that gets it, and tells all that it has come; there are two sets of slots, so that one such round
 * a part is enough. Right for every kind and size; all ranks send to all, whatever node they are on. A barrier goes by the nodes: their ranks
 * come to the first of them, those meet in log2(nodes) steps, and let their ranks go.
 */
#ifndef SPMT_FAR_H
#define SPMT_FAR_H

#include "spmt/comm/comm.h"
#include "src/kernels/coll/table.h"

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
	uint64_t key; /* equal on all ranks (coll_key.h), or FAR_BARRIER */
	struct coll_moves moves;
	enum kernel_collective_kind kind; /* with spans: of the keys, one a pair */
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
