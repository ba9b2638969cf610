/* SPDX-License-Identifier: MIT */
/*
 * The tests' own kernels: C over spmt_device.h, compiled into device images and, for the host
 * backend, as plain functions. Each takes one struct by value on GPUs, a pointer to a copy on the
 * host, and is right for any grid and block, 1 x 1 included.
 */
#ifndef TESTS_GPU_KERNELS_H
#define TESTS_GPU_KERNELS_H

#include "../../../src/kernels/entry.h"
#include "tests/lib/typed_calls.h"
#if !defined(__AMDGCN__) && !defined(__NVPTX__)
#include "src/kernels/images.h"
#endif

struct device_image;
struct test_kernel {
	const char *name;
	void (*host)(void *args);
	const struct device_image *images; /* of the file it is in */
	const size_t *image_count;
};

#if defined(__AMDGCN__) || defined(__NVPTX__)
#define TEST_KERNEL(name)                                       \
	KERNEL_ENTRY void test_##name(struct name##_args args); \
	KERNEL_ENTRY void test_##name(struct name##_args args)  \
	{                                                       \
		run_##name(&args);                              \
	}
#else
#define TEST_KERNEL(name)                                                                      \
	static void name##_on_host(void *args)                                                 \
	{                                                                                      \
		run_##name((const struct name##_args *)args);                                  \
	}                                                                                      \
	/* the build gives each file's images names of their own */                            \
	const struct test_kernel test_##name = { "test_" #name, name##_on_host, device_images, \
		&device_image_count };
#endif

/* Who makes one call. */
enum scope { BY_THREAD, BY_WARP, BY_BLOCK, SCOPES };

#define X(name, T) TYPE_OF_##name,
enum type_of { TYPES(X) TYPES_OF };
#undef X

/* ---- what a kernel found --------------------------------------------------------------------- */

struct outcome {
	uint64_t errors; /* 0: all is well; the rest tells of the first */
	int64_t code;	 /* what a call returned */
	uint64_t round, seen, expected;
};

static inline void outcome_add(
	uint64_t at, int code, uint64_t round, uint64_t seen, uint64_t expected)
{
	struct outcome *o = (struct outcome *)spmtd_to_(at);

	if (spmtd_add64_(spmtd_at_(&o->errors), 1))
		return;
	spmtd_poke64_(spmtd_at_(&o->code), (uint64_t)(int64_t)code);
	spmtd_poke64_(spmtd_at_(&o->round), round);
	spmtd_poke64_(spmtd_at_(&o->seen), seen);
	spmtd_poke64_(spmtd_at_(&o->expected), expected);
}

/* ---- workers --------------------------------------------------------------------------------- */

/* The calling thread's scope among its like in the grid. Blocks are whole warps where warps
   work. */
static inline uint32_t worker(int scope)
{
	if (scope == BY_BLOCK)
		return kernel_block();
	return scope == BY_WARP ? kernel_lane() / spmtd_lanes_(SPMTD_WARP_) : kernel_lane();
}

static inline uint32_t workers(int scope)
{
	if (scope == BY_BLOCK)
		return kernel_blocks();
	return scope == BY_WARP ? kernel_lanes() / spmtd_lanes_(SPMTD_WARP_) : kernel_lanes();
}

#endif
