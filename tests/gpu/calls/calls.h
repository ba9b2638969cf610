/* SPDX-License-Identifier: MIT */
/*
 * One of each call of spmt.h that acts on a comm or a registered buffer, what it does checked by value; and calls that
 * have to fail. tests/abi/calls.sh looks that none is left out. All ranks of the comm make them together.
 */
#ifndef TESTS_GPU_CALLS_H
#define TESTS_GPU_CALLS_H

#include "tests/gpu/gpu.h"

enum { CALLS_LARGE = 3 << 20 }; /* bytes, of which copy engines move some */

struct calls {
	struct rank *r;
	/* Asked after every call, where it is given: 0, or a failure that is recorded. */
	int (*after)(void *state, const char *call);
	void *state;

	spmt_stream
		streams[2]; /* one of the test's own, which is not r->stream; NULL: the comm's */
	unsigned char *
		block; /* symmetric, CALLS_LARGE each: what is sent, where it arrives, where gets put it */
	uint64_t *words; /* symmetric, zero at first */
	void *outside;	 /* of the device, not symmetric */
	spmt_mem *mem;	 /* registered there */
	uint64_t turn;	 /* of moves: no two have the same bytes */
};

/* Memory and the stream, as a user makes them; nothing of that is made anew in calls_all, since streams of which there are
   more than queues of the hardware wait for each other. */
int calls_open(struct calls *c);
int calls_all(struct calls *c, uint64_t seed);
int calls_wrong(struct calls *c);
int calls_close(struct calls *c);

/* A part of calls_all. */
int calls_together(struct calls *c);
/* The seed of what this rank sends in this turn. */
uint64_t calls_pattern(const struct calls *c, int pe);
/* Until all is done that was put into the stream. */
int calls_settle(struct calls *c, spmt_stream s);
/* After a call that gave `code`: that it had to, and what `after` says. */
int calls_gave(const struct calls *c, const char *call, int code, int want);

/* In functions that have a struct calls *c. */
#define GIVES(want, call) RANKS_TRY_(calls_gave(c, #call, (call), (want)))
#define CALL(call) GIVES(0, call)
#define TRUE(cond) RANKS_TRY_(calls_gave(c, #cond, (cond) ? 0 : RANKS_FAILED, 0))

#endif
