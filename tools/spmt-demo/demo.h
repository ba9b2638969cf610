/* SPDX-License-Identifier: MIT */
/* Private to spmt-demo: what its ranks, threads of this process, share. */
#ifndef SPMT_DEMO_H
#define SPMT_DEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spmt.h"

enum {
	DEMO_BLOCK = 1 << 16,	  /* bytes that go round the ring, per hop */
	DEMO_SUM = 1 << 16,	  /* elements of the all-reduce */
	DEMO_LARGEST = 16u << 20, /* bytes, of the bandwidth table */
	DEMO_MATRIX = 16	  /* ranks up to which the whole route matrix is shown */
};

struct demo {
	int nranks;
	struct spmt_route *routes; /* nranks * nranks */
	char wrong
		[512]; /* what the first rank that saw wrong data has to say; written under `said` */
	int said;
};

struct demo_rank {
	struct demo *demo;
	spmt_comm *comm;
	int rank, nranks, left, right;
	unsigned char *a, *b; /* symmetric, DEMO_LARGEST bytes each */
	uint64_t *signal;     /* symmetric, one for each step that uses one */
	void *host;	      /* DEMO_LARGEST bytes of ordinary memory */
};

enum demo_signal { SIGNAL_RING, SIGNAL_KERNEL, SIGNAL_PINGPONG, SIGNAL_COUNT };
enum { DEMO_SIGNAL_STRIDE = 8 }; /* words, so that no two share a cache line */

/* Each step is called by all ranks. 0, or a negative code: the library's with its sentence, or -EILSEQ after demo_wrong(). */
int demo_wrong(struct demo_rank *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int demo_ring(struct demo_rank *r);
int demo_all_reduce(struct demo_rank *r);
int demo_barrier(struct demo_rank *r);
int demo_kernel(struct demo_rank *r);
int demo_table(struct demo_rank *r);

static inline uint64_t *demo_signal(struct demo_rank *r, enum demo_signal which)
{
	return r->signal + (size_t)which * DEMO_SIGNAL_STRIDE;
}

#endif
