/* SPDX-License-Identifier: MIT */
/* Plans made at random: right ones, and what is planted in them. */
#ifndef TESTS_PLANS_H
#define TESTS_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spmt_plan.h"

enum { PLANS_RANKS = 4, PLANS_BLOCKS = 3, PLANS_CHUNKS = 6 };

/* What a plan has beside what is right. */
enum plans_fault {
	PLANS_RIGHT,
	PLANS_DEADLOCK, /* two ranks wait for each other's signals first */
	PLANS_RACE,	/* a chunk is written while another block touches it */
	PLANS_UNSIGNALLED,
	PLANS_UNAWAITED,
	PLANS_FAULTS
};
/* What spmt_plan_check says of it; NULL: nothing. */
const char *plans_says(enum plans_fault fault);

/* Of 1 to `ranks` ranks, PLANS_RANKS at most (2 and more with a fault), equal for equal arguments: `phases` of operations that do not touch
   what another writes, all ranks meeting between them. 0, or a call's code. */
int plans_random(uint64_t seed, int ranks, int phases, enum plans_fault fault, spmt_plan **plan);

/* Simulates a plan on inputs that are made of `seed`, the blocks in an order of `order`. out: of all ranks one after the other, `bytes` each. */
int plans_simulate(const spmt_plan *plan, enum spmt_type type, enum spmt_op op, size_t chunk,
	uint64_t order, unsigned char *out);
/* An element of a rank's input, small enough for no sum to be rounded. */
void plans_input(enum spmt_type type, int rank, size_t count, void *in);
/* Of the output of a rank, in bytes. */
size_t plans_output(const spmt_plan *plan, enum spmt_type type, size_t chunk);

#endif
