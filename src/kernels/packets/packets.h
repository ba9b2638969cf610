/* SPDX-License-Identifier: MIT */
/*
 * A plan of packets alone (plan_packets.c): what a thread has of it, and where. Narrow packets hold 8 bytes each, at twice the offset that these have, as in
 * any plan. Of wide ones a warp has three lines together, each thread's packet its words of these, so that a warp loads and stores lines; they begin where
 * the block's narrow ones would (plan_row.h).
 */
#ifndef SPMT_KERNELS_PACKETS_H
#define SPMT_KERNELS_PACKETS_H

#include "src/kernels/coll/ll/ll_loops.h"
#include "src/kernels/coll/ll/ll_units.h"
#include "src/kernels/plan_row.h"
#include "src/kernels/plan_run.h"

/* So many of the steps that send what the rank has itself are loaded at once. */
enum { PACKETS_LEADS = 3 };

/* Looks of a wait one after the other, before it goes on to what else may end it. */
enum { PACKETS_POLLS = 8 };

enum packets_kernel {
#define X(name) PACKETS_##name,
	PLAN_PACKETS_KERNELS(X)
#undef X
};

/* A step, and where a thread's first packet of it is in even epochs: what is plain and sent or folded, what comes, and what is stored. */
struct packets_step {
	uint32_t kind, ndst, n, first, meets;
	uint64_t own, term, to;
};

/* A packet's data: of a narrow one `two`, of a wide one each word for itself, as to join them each load would have to be waited for. */
struct packets_words {
	uint64_t two;
	uint32_t w[3];
};

/* What a thread has of a step in a round; and its packets, as they lie there. */
struct packets_data {
	struct packets_words x[PLAN_PACKETS_EACH];
};
struct packets_seen {
	struct spmtd_unit_ at[PLAN_PACKETS_EACH];
};

/* A thread's part: of each step, in each round of its block's threads, the packet of its number and those as many threads further on. */
struct packets {
	const struct plan_packets *plan;
	int op, second; /* as folds have them */
	uint32_t leads, steps, rounds;
	uint32_t size, each; /* of packets, and how many in a round, the most: constants */
	uint64_t from;	     /* where in a place the block's data begins, */
	uint32_t words, n;   /* how much it is, of 4 bytes, and in how many packets */
	int odd;	     /* data is not aligned to words */
	uint32_t flag;
	uint64_t set;	   /* bytes to this epoch's packets, from those of even ones */
	uint64_t hello[2]; /* where this rank's call is told, in even epochs, and in odd ones */
	/* of this round: the first packet, how many, and where the first is */
	uint32_t k, has;
	uint32_t have[PLAN_PACKETS_EACH]; /* words of each wide one */
	uint64_t plain, packed;
	/* of the first round */
	struct packets_lead {
		uint64_t from, there;
		struct packets_data x;
	} lead[PACKETS_LEADS];
	struct packets_step step; /* the first behind the leads, */
	struct packets_data own;  /* and what is plain of it */
};

#endif
