/* SPDX-License-Identifier: MIT */
/* A row of a test's table: who makes calls, how many, with how much. */
#ifndef TESTS_GPU_LOAD_H
#define TESTS_GPU_LOAD_H

#include "gpu.h"
#include "kernels/kernels.h"

struct load {
	enum scope scope;
	unsigned grid, block;
	uint64_t words, rounds, fewer; /* on GPUs; on the host backend */
};

static const char *const scope_names[SCOPES] = { "thread", "warp", "block" };

static inline unsigned workers_of(const struct load *l)
{
	if (gpu_host())
		return 1;
	if (l->scope == BY_BLOCK)
		return l->grid;
	return l->grid * (l->scope == BY_WARP ? (l->block + 31) / 32 : l->block);
}

#endif
