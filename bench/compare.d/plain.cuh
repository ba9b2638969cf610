/* SPDX-License-Identifier: MIT */
/* Plain allocations and peer access, of a thread a GPU. */
#ifndef COMPARE_PLAIN_CUH
#define COMPARE_PLAIN_CUH

#include "bench.cuh"

/* Each rank's lies at its shared->base, and in it the same at the same place. */
static void plain_memory(struct rank *r)
{
	char *base;

	for (int pe = 0; pe < r->npes; pe++)
		if (pe != r->pe)
			CHECK(cudaDeviceEnablePeerAccess(pe, 0));
	CHECK(cudaMalloc((void **)&base, 2 * (r->window + 65536) + WORDS_ALL * sizeof(uint64_t)));
	r->src = base;
	r->dst = base + r->window + 65536;
	r->words = (uint64_t *)(r->dst + r->window + 65536);
	r->shared->base[r->pe] = base;
	meet(r);
}

#endif
