/* SPDX-License-Identifier: MIT */
/* What both versions of the device header are asked to do. */
#ifndef TESTS_GPU_HEADERS_CALLS_H
#define TESTS_GPU_HEADERS_CALLS_H

#include <stddef.h>
#include <stdint.h>

/* A kernel's argument. The view is bytes, as the two versions may differ in it. */
struct job {
	uint64_t view[32];
	char *dst, *src;     /* of this rank; dst is symmetric */
	uint64_t size, room; /* bytes of a call, at src */
	uint64_t *sig;
	uint32_t rounds;
	int *code;    /* of a call that failed */
	uint64_t *ns; /* of all rounds */
};

enum call {
	SYNC,
	SYNC_WARP,
	SYNC_BLOCK,
	BARRIER,
	BARRIER_WARP,
	BARRIER_BLOCK,
	PING,
	PING_BLOCK,
	PUT,
	PUT_WARP,
	PUT_BLOCK,
	PUTS_BLOCK, /* back to back, one quiet */
	GET_WARP,
	GET_BLOCK,
	CALLS
};

typedef void kernel_fn(struct job);
extern kernel_fn *const calls_of_old[CALLS], *const calls_of_new[CALLS];

#endif
