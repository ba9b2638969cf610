/* SPDX-License-Identifier: MIT */
/*
 * What is launched before what is ahead of it in its stream has ended, over the stand-in for libcuda: collectives in brief and those of rows with kernels of their own, and
 * barriers, by images that wait by themselves, where the driver can. Never on GPUs.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "src/kernels/images.h"
#include "tests/fakes/control.h"
#include "tests/lib/ranks.h"

enum {
	RANKS = 2,
	CALLS = 3,
	MANY = (64 << 10) + 4,
	SOME = 260 << 10,
	HALF = 2 << 20,
	MOST = 3 << 20
};

static int (*made)(const char *name);
static void (*fails)(const char *name, int nth, int result);

static bool images_wait(void)
{
	for (size_t i = 0; i < device_image_count; i++)
		if (!strcmp(device_images[i].arch, "sm_90"))
			return true;
	return false;
}

static void open_driver(void)
{
	void *library = dlopen(FAKES "/fake-cuda.so", RTLD_NOW | RTLD_LOCAL), *address;

	cr_assert_not_null(library, "%s", dlerror());
	address = dlsym(library, "fake_made");
	cr_assert_not_null(address);
	memcpy(&made, &address, sizeof(address));
	address = dlsym(library, "fake_fail");
	cr_assert_not_null(address);
	memcpy(&fails, &address, sizeof(address));
	setenv("SPMT_BACKEND", "cuda", 1);
	setenv("SPMT_CUDA_LIB", FAKES "/fake-cuda.so", 1);
	setenv("SPMT_FAKE_DEVICES", "2", 1);
	setenv("SPMT_TEST_DEVICES", "2", 1);
}

/* CALLS sums of so many bytes. */
static int sums(spmt_comm *comm, void *arg)
{
	size_t words = *(size_t *)arg / 4;
	uint32_t *x;
	void *p;

	REQUIRE_OK(spmt_calloc(comm, 1, MOST, &p));
	x = p;
	for (size_t i = 0; i < words; i++)
		x[i] = (uint32_t)i + (uint32_t)spmt_rank(comm);
	REQUIRE_OK(spmt_barrier(comm));
	for (int i = 0; i < CALLS; i++)
		REQUIRE_OK(spmt_all_reduce(comm, x, x, words, SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	for (size_t i = 0; i < words; i++)
		REQUIRE(x[i] == (uint32_t)(2 * i + 1) << (CALLS - 1));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_free(comm, p));
	return 0;
}

static int launched_early(size_t bytes)
{
	int before = made("cuLaunchKernelEx");

	RANKS_OK(ranks_run(RANKS, NULL, sums, &bytes));
	return made("cuLaunchKernelEx") - before;
}

TestSuite(early, .timeout = 60);

Test(early, calls_in_brief_and_of_ll12)
{
	open_driver();
	cr_expect_eq(launched_early(8), images_wait() ? RANKS * CALLS : 0);
	cr_expect_eq(launched_early(4096), images_wait() ? RANKS * CALLS : 0);
	cr_expect_eq(launched_early(12), 0, "no unit and no word");
	cr_expect_eq(launched_early(MANY), 0, "its last unit is a word");
	cr_expect_eq(launched_early(SOME), images_wait() ? RANKS * CALLS : 0, "row ll12");
}

/* The environment is read once, so each row has a process. */
static void by_row(const char *row, size_t bytes)
{
	open_driver();
	setenv("SPMT_COLL", row, 1);
	cr_expect_eq(launched_early(bytes), images_wait() ? RANKS * CALLS : 0);
}

Test(early, row_twoshot)
{
	by_row("twoshot", SOME);
}

Test(early, row_push2)
{
	by_row("push2", SOME);
}

/* Of the stand-in's 132 units half are left to others, and SPMT_COLL_BLOCKS says how many a collective may take. */
Test(early, none_of_more_than_half_of_the_units)
{
	open_driver();
	cr_expect_eq(launched_early(MOST), 0);
}

/* What half of the units do as fast has no more. */
Test(early, those_that_half_of_the_units_do)
{
	open_driver();
	cr_expect_eq(launched_early(HALF), images_wait() ? RANKS * CALLS : 0);
}

Test(early, sums_all_of_which_is_under_way_at_once)
{
	by_row("push2", MOST);
}

Test(early, of_as_many_blocks_as_are_wanted)
{
	open_driver();
	setenv("SPMT_COLL_BLOCKS", "66", 1);
	cr_expect_eq(launched_early(MOST), images_wait() ? RANKS * CALLS : 0);
}

Test(early, of_a_block_more)
{
	open_driver();
	setenv("SPMT_COLL_BLOCKS", "67", 1);
	cr_expect_eq(launched_early(MOST), 0);
}

static int barriers(spmt_comm *comm, void *arg)
{
	(void)arg;
	for (int i = 0; i < CALLS; i++)
		REQUIRE_OK(spmt_barrier_on_stream(comm, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	return 0;
}

Test(early, barriers_on_streams)
{
	int before;

	open_driver();
	before = made("cuLaunchKernelEx");
	RANKS_OK(ranks_run(RANKS, NULL, barriers, NULL));
	cr_expect_eq(made("cuLaunchKernelEx") - before, images_wait() ? RANKS * CALLS : 0);
}

/* As where GPUs are shared, say: the same calls, and no failure. */
Test(early, a_driver_that_refuses)
{
	static const int refusals[] = { 801,
		1 }; /* CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE */

	open_driver();
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		int before = made("cuLaunchKernel");

		fails("cuLaunchKernelEx", -1, refusals[i]);
		launched_early(8);
		cr_expect_geq(made("cuLaunchKernel") - before, RANKS * CALLS);
	}
}
