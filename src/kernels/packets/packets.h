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

/* What a thread has of a step in a round; and its packets, as they lie there. */
struct packets_data {
	union unit u[PLAN_PACKETS_EACH];
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
	int full; /* it has all, and these are wide, aligned, and none is short */
	uint64_t plain, packed;
	/* of the first round */
	struct packets_lead {
		uint64_t from, there;
		struct packets_data x;
	} lead[PACKETS_LEADS];
	struct packets_step step; /* the first behind the leads, */
	struct packets_data own;  /* and what is plain of it */
};

/* Where a block's share begins. */
PLAN_FN uint64_t packets_from(const struct plan_packets *p, uint32_t block)
{
	uint64_t lines = (uint64_t)p->lines * block + (block < p->more ? block : p->more);

	return lines * SPMTD_SHARE_LINE_ < p->bytes ? lines * SPMTD_SHARE_LINE_ : p->bytes;
}

PLAN_FN void packets_share(struct packets *t, uint32_t block)
{
	t->from = packets_from(t->plan, block);
	t->words = (uint32_t)(packets_from(t->plan, block + 1) - t->from) / 4;
	t->n = plan_packets_of(t->words, t->size);
}

/* Of plain data. */
PLAN_FN uint64_t packets_plain(const struct packets *t, uint32_t place)
{
	return t->plan->at[place] + t->plain;
}

/* Of packets, in even epochs. */
PLAN_FN uint64_t packets_even(const struct packets *t, uint32_t place)
{
	return t->plan->at[place] + t->packed;
}

/* The first word of the thread's i-th packet, among the block's. */
PLAN_FN uint32_t packets_first(const struct packets *t, uint32_t i)
{
	uint32_t k = t->k + i * spmtd_threads_();

	return t->size == PLAN_PACKETS_WIDE ? plan_packets_first(k) : 2 * k;
}

/* Words of it. */
PLAN_FN uint32_t packets_words(const struct packets *t, uint32_t i)
{
	uint32_t k = t->k + i * spmtd_threads_();

	return t->size == PLAN_PACKETS_WIDE ? plan_packets_words(k, t->words) : 2;
}

PLAN_FN void packets_round(struct packets *t, uint32_t round)
{
	const uint32_t threads = spmtd_threads_();
	const uint32_t k = spmtd_tid_() + t->each * threads * round;
	const uint32_t left = k < t->n ? t->n - k : 0;

	t->k = k;
	t->has = 0;
	LL_EACH(PLAN_PACKETS_EACH)
	t->has += i < t->each && left > i * threads;
	t->full = t->size == PLAN_PACKETS_WIDE && !t->odd && packets_words(t, t->each - 1) == 3;
	t->plain = t->from + 4 * (uint64_t)packets_first(t, 0);
	t->packed = 2 * t->from + 16 * (uint64_t)k;
}

/* full: as the thread is, where that is known. */
PLAN_FN int packets_has(const struct packets *t, uint32_t i, int full)
{
	return i < t->each && (full || i < t->has);
}

/* One behind the last: any. */
PLAN_FN struct packets_step packets_step_of(const struct packets *t, uint32_t nth)
{
	const struct plan_packets_step *s = &t->plan->step[nth];
	struct packets_step x = { s->kind, s->ndst, s->n, s->first, s->meets, 0, 0, 0 };
	uint32_t src = x.first + x.ndst;

	x.own = packets_plain(t, src);
	x.term = packets_even(t, x.kind == PLAN_STEP_FOLD_PACKETS ? src + 1 : src);
	x.to = packets_plain(t, x.first);
	return x;
}

#endif
