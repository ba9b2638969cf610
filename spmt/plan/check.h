/* SPDX-License-Identifier: MIT */
/* What the checker has found out on its way through a plan. */
#ifndef SPMT_PLAN_CHECK_H
#define SPMT_PLAN_CHECK_H

#include "walk.h"

#define PLAN_CHECK "spmt_plan_check"
#define CHECK_LOOKS (1ull << 28) /* at packets that are sent on */
#define CHECK_WORK (1u << 16)	 /* a millisecond or so: then the limit is asked */

/* One operation that was done. */
struct check_step {
	int thread;
	size_t nth;
	/* By thread: how many of its operations are before this one; its own counts itself. What they have written is seen; and, one and the
	   same in a plan without packets, what they have read is over; through: likewise, for who has all that it sends as packets. */
	uint32_t *clock, *over, *through;
};

/* How many of a thread's operations have read what they read before one of the step's packets is sent. */
static inline uint32_t check_had_read(const struct check_step *s, int thread)
{
	return s->over[thread] - (thread == s->thread);
}

/* A chunk that it reads or writes. */
struct check_touch {
	size_t step;
	struct spmt_plan_chunk chunk; /* merged */
	struct walk_range range;
	int slices;
	bool packets, writes;
	/* behind it, once they are sorted: the next that writes; the next of another thread, or of an earlier step */
	size_t writer, other;
};

struct check {
	struct plan_walk walk;
	const struct walk_case *given; /* NULL: chunks of any size */
	struct check_step *steps;
	size_t nsteps;
	uint32_t *clocks, *overs, *throughs;
	struct check_touch *touches;
	size_t ntouches, touches_room;
	const struct check_touch
		*packets; /* the first of them that is of packets; they are the last */
	uint64_t looked;  /* at packets, to see where they have come */
	/* Where packets of some bytes have come, so far: of chunks up to `end`, which lie `shift` further on there. */
	struct check_places {
		struct check_place {
			int rank;
			uint64_t end, shift;
		} * at;
		size_t n, room;
	} places;
	bool no_memory; /* for these: what was found out is none */
	const struct plan_limit *limit;
	uint64_t work;	/* since it was asked */
	int stopped;	/* what it said */
	uint64_t joins; /* of what their writers had read */
	/* By count of the walk, in one list: the step of each signal or release, in order. */
	struct check_list {
		size_t *steps, n, room;
	} * channels, *semaphores;
	size_t indices; /* as of the walk, also where that could not be opened again */
	struct check_list
		*arrived; /* [rank][barrier]: the steps of this round, joined when all have come */
	uint32_t *now, *now_over; /* by thread: its clocks */
	uint32_t *least;	  /* one clock */
};

/* Is a before b? over: what it reads. */
static inline bool check_before(
	const struct check *c, const struct check_touch *a, const struct check_touch *b, bool over)
{
	const struct check_step *x = &c->steps[a->step], *y = &c->steps[b->step];

	return (over ? y->over : y->clock)[x->thread] >= x->clock[x->thread];
}

/* Asks the limit. */
bool check_asks(struct check *c);
/* After so much work, words of clocks or comparisons: false: the limit ends the check, as c->stopped says. */
static inline bool check_goes_on(struct check *c, uint64_t work)
{
	c->work += work;
	return c->work < CHECK_WORK ? !c->stopped : check_asks(c);
}

/* Packets are not followed further, and what is found out from here on is no verdict. */
static inline bool check_ended(const struct check *c)
{
	return c->stopped || c->no_memory || c->looked >= CHECK_LOOKS;
}

/* -ENOMEM and its sentence. */
int check_no_memory(const struct check *c);
/* Some threads cannot go on (stuck.c). */
int check_stuck(struct check *c);
/* The same way again, for chunks of a size of this case: the clocks of the steps, which are the same ones. */
int check_again(struct check *c, const struct walk_case *given);
/* a only reads, and b stores: do packets say that a has read by then (sent.c)? Not to be asked again once the check has ended. */
bool check_packets_before(
	struct check *c, const struct check_touch *a, const struct check_touch *b);
/* Two touches that nothing orders (races.c). */
int check_races(struct check *c);

#endif
