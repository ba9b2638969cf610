/* SPDX-License-Identifier: MIT */
/*
 * A plan gone through, operation by operation, as its waits allow: what the checker and the simulator share. A thread here is a block of
 * a rank. Signals, releases and packets are counted; whoever waits goes on when what it waits for is there.
 */
#ifndef SPMT_PLAN_WALK_H
#define SPMT_PLAN_WALK_H

#include "plan.h"

struct walk_thread {
	int rank, block;
	const struct plan_list *list;
	size_t next; /* operations done */
	uint32_t
		round; /* its arrivals at the barrier that it stands at have this number; 0: it has not arrived there */
};

/* Counts of one channel end, or semaphore. */
struct walk_count {
	size_t given, taken;
	int giver, taker; /* thread, -1: none yet, -2: several */
};

struct walk_barrier {
	uint32_t came, round; /* round: of those that have not all come, from 1 on */
};

/*
 * Packets of one rank that were written: intervals of chunks, in parts of WALK_UNIT. Where a part of chunks begins is a matter of their
 * size when they run, as parts are cut at lines: only parts of the same chunks, cut alike, are known to be the same bytes.
 */
enum { WALK_UNIT = 1 << 20 };
/* Part `slice` of `slices` of so many chunks; slices 0: the whole. It has some bytes where these have more than `slice` lines of 128. */
struct walk_part {
	int slice, slices;
	uint32_t chunks;
};
struct walk_range {
	uint64_t from, to;	   /* as if parts were cut evenly */
	uint64_t all_from, all_to; /* of all parts together */
	struct walk_part part;
	size_t by; /* any number of the writer's: the operation's, for the checker */
};
struct walk_packets {
	struct walk_range *ranges; /* in the order of their writing */
	size_t n, room;
	uint32_t *known; /* by chunk: from it on so many have all their packets; NULL: none has */
};
/* A part of packets that some operation writes. */
struct walk_cut {
	int rank, slice, slices;
	uint32_t index, count;
	bool written;
	size_t first; /* of the same chunks, cut alike */
	int parts;    /* of those, in the first: how many were written */
};

struct plan_walk {
	const struct spmt_plan *plan;
	struct walk_thread *threads;
	int nthreads;
	size_t indices;		       /* of channels to a peer, and of barriers */
	struct walk_count *channels;   /* [rank][peer][index]: of what peer signals to rank */
	struct walk_count *semaphores; /* [rank][index] */
	struct walk_barrier *barriers; /* likewise */
	struct walk_packets *packets;  /* [rank] */
	struct walk_cut *cuts;	       /* each once, sorted */
	size_t ncuts;
};

/* 0, or -ENOMEM and a sentence that begins with `what`; close takes one that failed to open. */
int walk_open(struct plan_walk *w, const struct spmt_plan *plan, const char *what);
void walk_close(struct plan_walk *w);

struct walk_count *walk_channel(const struct plan_walk *w, int rank, int peer, int index);
/* What the operation gives to or takes from; NULL: neither. */
struct walk_count *walk_counted(const struct plan_walk *w, int rank, const struct spmt_plan_op *op);

static inline const struct spmt_plan_op *walk_op(const struct walk_thread *t)
{
	return t->next < t->list->n ? &t->list->ops[t->next] : NULL;
}

/* Can the thread's next operation be done? A thread that stands at a barrier arrives by being asked. */
bool walk_ready(struct plan_walk *w, struct walk_thread *t);
/* It is done: counts it. `by`: for the packets that it writes. False: there was no memory. */
bool walk_done(struct plan_walk *w, struct walk_thread *t, size_t by);

/* The part of its chunks that an operation touches. */
struct walk_range walk_range_of(const struct spmt_plan_op *op, const struct spmt_plan_chunk *c);
/* What is known of the chunks' size: it is one at which these two parts have bytes; if `same`, some of the same, of the same chunks. */
struct walk_case {
	struct walk_part a, b;
	bool same;
};
/* Whether who reads a range of packets finds some of the other in it, at all sizes of that case; NULL: of any, at which all parts but the
   first may be empty. */
bool walk_orders(const struct walk_range *written, const struct walk_range *read,
	const struct walk_case *given);
/* Whether the range has bytes at all sizes of that case; NULL: of any. */
bool walk_has_bytes(const struct walk_range *r, const struct walk_case *given);
/* Whether both have, at the same place of as many chunks, the bytes that the two parts of the case share. */
bool walk_shares(const struct walk_range *written, const struct walk_range *read,
	const struct walk_case *given);
/* Whether who reads a range of packets waits for all of the other, at all sizes. */
bool walk_takes_all(const struct walk_range *written, const struct walk_range *read);
/* Whether a has bytes wherever b has. */
bool walk_part_follows(const struct walk_part *a, const struct walk_part *b);
/* Whether some of the other may be in it. */
bool walk_feeds(const struct walk_range *written, const struct walk_range *read);
/* Whether the packets of rank that lie there have been written, all of them; where they were cut otherwise, with all parts that may have some. */
bool walk_has_packets(const struct plan_walk *w, int rank, struct walk_range range);

#endif
