/* SPDX-License-Identifier: MIT */
/* Handles that never were of a comm, or are of something else: they may be read, and no more, and every call says so. */
#include <criterion/criterion.h>
#include <stdint.h>

#include "tests/lib/ranks.h"

static const unsigned char nothing[4096] __attribute__((aligned(64))) = { 0x77, 0x77, 0x77, 0x77 };
static const unsigned char zeros[4096] __attribute__((aligned(64)));

static void refused_as_none(const void *what)
{
	spmt_comm *comm = (spmt_comm *)(uintptr_t)what, *lane;
	int64_t value;

	cr_expect_eq(spmt_status(comm), -EBADF);
	cr_expect_eq(spmt_rank(comm), -EBADF);
	cr_expect_null(spmt_backend(comm));
	cr_expect_eq(spmt_abort(comm, -5), -EBADF);
	cr_expect_eq(spmt_set_timeout(comm, 5), -EBADF);
	cr_expect_eq(spmt_query(comm, SPMT_CAP_VMM, &value), -EBADF);
	cr_expect_null(spmt_ptr(comm, &value, 0));
	cr_expect_eq(spmt_lane(comm, 1, &lane), -EBADF);
	cr_expect_eq(spmt_quiet(comm), -EBADF);
	cr_expect_eq(spmt_barrier(comm), -EBADF);
	cr_expect_eq(spmt_finalize(comm), -EBADF);
}

/* Zeros are what comms are in a forked child. */
Test(no_comm, what_never_was_a_comm_is_not_written_to)
{
	static const uint32_t small[3][16] __attribute__((aligned(64))) = { { 3 }, { 4 }, { 5 } };
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	spmt_comm *comm;

	refused_as_none(nothing);
	refused_as_none(zeros);
	cr_assert_eq(spmt_init(&attr, &comm), 0, "%s", spmt_last_error());
	refused_as_none(nothing);
	refused_as_none(zeros);
	for (int i = 0; i < 3; i++)
		refused_as_none(small[i]);
	cr_expect_eq(spmt_finalize(comm), 0);
	refused_as_none(zeros);
}

Test(no_comm, a_handle_of_the_other_kind)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	unsigned char bytes[64] = { 0 };
	spmt_comm *comm;
	spmt_mem *mem;

	cr_assert_eq(spmt_init(&attr, &comm), 0, "%s", spmt_last_error());
	cr_assert_eq(spmt_register(comm, bytes, sizeof(bytes), &mem), 0, "%s", spmt_last_error());
	refused_as_none(mem);
	cr_expect_eq(spmt_mem_put(comm, (spmt_mem *)(void *)comm, 0, bytes, 1, 0), -EBADF);
	cr_expect_eq(spmt_deregister(comm, (spmt_mem *)(void *)comm), -EBADF);
	cr_expect_null(spmt_mem_ptr((spmt_mem *)(void *)comm, 0));
	cr_expect_eq(spmt_mem_size((spmt_mem *)(void *)comm, 0), 0);
	cr_expect_eq(spmt_deregister(comm, mem), 0, "%s", spmt_last_error());
	cr_expect_eq(spmt_finalize(comm), 0);
}
