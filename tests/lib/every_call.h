/* SPDX-License-Identifier: MIT */
/*
 * One program text for every layout of ranks in processes: each call's results are compared with what
 * they have to be, to the last byte, so that they are the same in all layouts and on all backends.
 */
#ifndef TESTS_EVERY_CALL_H
#define TESTS_EVERY_CALL_H

#include <stdbool.h>

#include "ranks.h"
#include "src/kernels/coll/table.h"

struct every_call {
	const char *layout; /* as of struct processes; NULL: the comm is a part of a world */
	const spmt_uid *uid;
	const int *devices; /* by rank; NULL: the rank's position in its process */
	bool less;	    /* where a call takes milliseconds */
};

/* Where the ranks are, and how each reaches the others. */
int every_call_places(spmt_comm *comm, const struct every_call *b);
/* The heap, RMA, atomics, signals, waits, barriers, collectives, registered buffers. */
int every_call_right(spmt_comm *comm, const struct every_call *b);

/* Of these alone, collectives of at most so many elements; */
int every_call_collectives(spmt_comm *comm, size_t most);
/* and buffers registered inside the heap, and in memory of the device outside of it. */
int every_call_registered(spmt_comm *comm, const struct every_call *b);

/* All ranks tell each other a number, which has to be the same; told: as many symmetric words as ranks. */
int every_call_same(spmt_comm *comm, uint64_t *told, uint64_t value);

/* One collective of 64-bit integers, on the comm's own stream: of sums, from or to the last rank, to `to`; in place with src alone. */
int every_call_collective(spmt_comm *comm, enum kernel_collective_kind c, uint64_t *dst,
	const uint64_t *src, size_t count, const int *to);

/* What rank gives as element i in tests of collectives; and what element i of rank me's dst has to be then: of sums, from and to
   the last rank, which goes to the rank below it in a permutation, the first one's nowhere. */
uint64_t every_call_given(int rank, uint64_t i);
uint64_t every_call_collected(enum kernel_collective_kind c, int me, int n, size_t count, size_t i);

#endif
