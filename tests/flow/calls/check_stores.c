/* SPDX-License-Identifier: MIT */
/*
 * SPMT_CHECK: what is stored where no call looks, what is left at the end, and what is said of it; and that nobody looks unasked.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "heap/check.h"
#include "tests/lib/processes.h"

/* ---- stores that no call makes -------------------------------------------------------------------------------------------- */

/* As a kernel would, where nothing looks at addresses. Stand-ins that do not hide device memory let the CPU write there. */
static bool pokes(void)
{
	const char *blind = getenv("SPMT_FAKE_BLIND");

	return on_host() || (blind && !strcmp(blind, "0"));
}

#define NEEDS_POKES()                                                                 \
	do {                                                                          \
		if (!pokes())                                                         \
			cr_skip_test("the CPU does not reach this backend's memory"); \
	} while (0)

__attribute__((no_sanitize("address"))) static void poke(char *at, size_t n)
{
	volatile char *p = at;

	for (size_t i = 0; i < n; i++)
		p[i] = 'x';
}

enum { ODD = 1, BLOCK = 48 };

/* 4 bytes behind a block of rank 1: every rank learns it from spmt_free, once, and the heap is whole. */
static int overwritten(spmt_comm *comm, void *arg)
{
	char *block, *again;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 100, (void **)&again));
	REQUIRE_OK(spmt_malloc(comm, BLOCK, (void **)&block));
	if (spmt_rank(comm) == ODD)
		poke(block + BLOCK + 5, 4);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_CODE(spmt_free(comm, block), -EFAULT);
	REQUIRE_SAYS(
		"spmt_free: rank 1: what lies behind the block of 48 bytes (spmt_malloc no. 2) was overwritten: 4 bytes, the first 5 past its end");
	REQUIRE_OK(spmt_status(comm));
	REQUIRE_CODE(spmt_free(comm, block), -EINVAL); /* it has been freed */
	REQUIRE_OK(spmt_free(comm, again));
	REQUIRE_OK(spmt_malloc(comm, BLOCK, (void **)&again));
	return spmt_free(comm, again);
}

Test(check_stores, overwritten)
{
	NEEDS_POKES();
	CHECKED_OK(overwritten);
}

/* A freed block is kept until so many others have been freed, and looked at then. */
static int written_after_free(spmt_comm *comm, void *arg)
{
	char *block, *other;
	int code = 0, n = 0;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, BLOCK, (void **)&block));
	REQUIRE_OK(spmt_free(comm, block));
	if (spmt_rank(comm) == ODD)
		poke(block + 8, 1);
	for (; !code && n <= CHECK_KEPT; n++) {
		REQUIRE_OK(spmt_malloc(comm, 64, (void **)&other));
		REQUIRE(other != block);
		code = spmt_free(comm, other);
	}
	REQUIRE_EQ(code, -EFAULT);
	REQUIRE_EQ(n, CHECK_KEPT);
	REQUIRE_SAYS(
		"spmt_free: rank 1: the block of 48 bytes (spmt_malloc no. 1) was written to after it had been freed (spmt_free no. 1): 1 bytes, the first at 8");
	REQUIRE_OK(spmt_malloc(comm, BLOCK, (void **)&other));
	REQUIRE(other == block); /* its turn to be used again */
	return spmt_free(comm, other);
}

Test(check_stores, written_after_free)
{
	NEEDS_POKES();
	CHECKED_OK(written_after_free);
}

/* ---- the end ---------------------------------------------------------------------------------------------------------------- */

/* Which words come with the finalize of each rank. */
struct ends {
	spmt_uid uid;
	int (*fn)(spmt_comm *comm);
	const char *says; /* of rank 1; NULL: 0 */
	bool split;
};

static int one_end(int rank, void *arg)
{
	struct ends *e = arg;
	struct spmt_attr attr = ranks_attr(rank, 3, &e->uid);
	spmt_comm *comm, *part = NULL;
	int code;

	REQUIRE_OK(spmt_init(&attr, &comm));
	if (e->split)
		REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	TRY(e->fn(part ? part : comm));
	code = spmt_finalize(comm);
	if (rank != ODD || !e->says)
		return ranks_code("spmt_finalize(comm)", code, 0);
	REQUIRE_EQ(code, -EFAULT);
	REQUIRE_SAYS(e->says);
	return 0;
}

static void ends(struct ends *e)
{
	processes_check();
	cr_assert_eq(spmt_uid_create(&e->uid), 0);
	RANKS_OK(ranks_threads(3, one_end, e));
}

static int poke_behind(spmt_comm *comm)
{
	char *block;

	REQUIRE_OK(spmt_malloc(comm, 64, (void **)&block));
	if (spmt_rank(comm) == ODD)
		poke(block + 64 + CHECK_ZONE - 1, 1);
	return 0;
}

static int poke_freed(spmt_comm *comm)
{
	char *block;

	REQUIRE_OK(spmt_malloc(comm, 64, (void **)&block));
	REQUIRE_OK(spmt_free(comm, block));
	if (spmt_rank(comm) == ODD)
		poke(block + 63, 1);
	return 0;
}

static void looks_at_the_end(bool split)
{
	struct ends e = { .fn = poke_behind,
		.says = "spmt_finalize: rank 1: what lies behind the block of 64 bytes (spmt_malloc no. 1) was overwritten: 1 bytes, the first 63 past its end",
		.split = split };

	ends(&e);
	e.fn = poke_freed;
	e.says =
		"spmt_finalize: rank 1: the block of 64 bytes (spmt_malloc no. 1) was written to after it had been freed (spmt_free no. 1): 1 bytes, the first at 63";
	ends(&e);
}

Test(check_stores, looks_at_the_end)
{
	NEEDS_POKES();
	looks_at_the_end(false);
}

Test(check_stores, looks_at_the_end_of_a_part)
{
	NEEDS_POKES();
	looks_at_the_end(true);
}

/* ---- what is said on stderr ---------------------------------------------------------------------------------------------------- */

static char said[8192];

/* What fn has the library write to stderr. Each test is a process of its own. */
static const char *stderr_of(struct ends *e)
{
	char path[] = "/tmp/spmt-check-XXXXXX";
	int fd = mkstemp(path), saved = dup(STDERR_FILENO);
	ssize_t n;

	cr_assert(fd >= 0 && saved >= 0);
	unlink(path);
	cr_assert_geq(dup2(fd, STDERR_FILENO), 0);
	cr_assert_eq(spmt_uid_create(&e->uid), 0);
	RANKS_OK(ranks_threads(3, one_end, e));
	cr_assert_geq(dup2(saved, STDERR_FILENO), 0);
	n = pread(fd, said, sizeof(said) - 1, 0);
	cr_assert_geq(n, 0);
	said[n] = '\0';
	close(fd);
	close(saved);
	return said;
}

static int leave_three(spmt_comm *comm)
{
	spmt_mem *mem;
	void *ptr[4];

	for (int i = 0; i < 4; i++)
		REQUIRE_OK(spmt_calloc(comm, (size_t)i + 1, 100, &ptr[i]));
	REQUIRE_OK(spmt_free(comm, ptr[1]));
	return spmt_register(comm, ptr[0], 10, &mem);
}

static const char left_blocks
	[] = "spmt: check: spmt_finalize: blocks that were never freed, on each of 3 ranks: 3, of 800 bytes in all: 100 bytes (spmt_calloc no. 1), 300 bytes (spmt_calloc no. 3), 400 bytes (spmt_calloc no. 4)\n",
	left_buffers[] =
		"spmt: check: spmt_finalize: buffers that were never deregistered: 1; the first: 10 bytes on rank 0 (spmt_register no. 1)\n";

static void expect_left(const char *text)
{
	cr_expect(strstr(text, left_blocks) && strstr(text, left_buffers), "%s", text);
	cr_expect_eq(strlen(text), strlen(left_blocks) + strlen(left_buffers), "%s", text);
}

Test(check_stores, left_at_the_end)
{
	struct ends e = { .fn = leave_three };

	processes_check();
	expect_left(stderr_of(&e));
	e.split = true;
	expect_left(stderr_of(&e));
}

static int leave_many(spmt_comm *comm)
{
	void *ptr;

	for (int i = 0; i < 20; i++)
		REQUIRE_OK(spmt_malloc(comm, 1, &ptr));
	return 0;
}

Test(check_stores, many_left_at_the_end)
{
	struct ends e = { .fn = leave_many };

	processes_check();
	stderr_of(&e);
	cr_expect(strstr(said, ": 20, of 20 bytes in all: 1 bytes (spmt_malloc no. 1), "), "%s",
		said);
	cr_expect(strstr(said, "1 bytes (spmt_malloc no. 8) and 12 more\n"), "%s", said);
}

static int does_right(spmt_comm *comm)
{
	int rank = spmt_rank(comm), right = (rank + 1) % spmt_nranks(comm);
	spmt_mem *mem;
	uint64_t *words;

	for (int i = 0; i < 3 * CHECK_KEPT; i++) {
		REQUIRE_OK(spmt_calloc(comm, 5, sizeof(*words), (void **)&words));
		REQUIRE_OK(spmt_register(comm, words, 5 * sizeof(*words), &mem));
		TRY(sym_fill(comm, words, 3 * sizeof(*words), (uint64_t)rank + 1));
		REQUIRE_OK(spmt_put_signal(
			comm, words + 3, words, 8, words + 4, 1, SPMT_SIGNAL_SET, right));
		REQUIRE_OK(spmt_signal_wait(comm, words + 4, SPMT_CMP_EQ, 1, NULL));
		REQUIRE_OK(spmt_all_reduce(
			comm, words + 3, words + 3, 1, SPMT_TYPE_U64, SPMT_OP_MAX, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_deregister(comm, mem));
		REQUIRE_OK(spmt_free(comm, words));
	}
	return 0;
}

static int puts_beyond(spmt_comm *comm)
{
	char *block, local[64] = "";

	REQUIRE_OK(spmt_malloc(comm, BLOCK, (void **)&block));
	REQUIRE_CODE(spmt_put(comm, block, local, sizeof(local), 0), -EINVAL);
	return spmt_free(comm, block);
}

/* A right program is told nothing; a wrong one, whatever it does with codes. */
Test(check_stores, says_what_it_finds_and_nothing_else)
{
	struct ends e = { .fn = does_right };

	processes_check();
	cr_expect_str_eq(stderr_of(&e), "");
	e.split = true;
	cr_expect_str_eq(stderr_of(&e), "");
	e.fn = puts_beyond;
	stderr_of(&e);
	for (int rank = 0; rank < 3; rank++) {
		char line[64];

		snprintf(line, sizeof(line), "spmt: check: spmt_put: rank %d: dst ", rank);
		cr_expect(strstr(said, line), "%s", said);
	}
	cr_expect(strstr(said, "goes 16 bytes past the end of the block of 48 bytes"), "%s", said);
}

/* ---- off, and not everywhere --------------------------------------------------------------------------------------------------- */

static int not_looked_at(spmt_comm *comm)
{
	char *block, *other, local[64] = "";

	REQUIRE_OK(spmt_malloc(comm, 64, (void **)&other));
	REQUIRE_OK(spmt_malloc(comm, BLOCK, (void **)&block));
	REQUIRE(block == other + 64);
	REQUIRE_OK(spmt_put(comm, block, local, sizeof(local), 0));
	return spmt_free(comm, other);
}

Test(check_stores, off)
{
	struct ends e = { .fn = not_looked_at };

	setenv("SPMT_CHECK", "0", 1);
	cr_expect_str_eq(stderr_of(&e), "");
}

/* Only a library that was built with AddressSanitizer looks unasked; and it says nothing unasked. */
Test(check_stores, unasked)
{
	struct ends e = { .fn = SANITIZED ? leave_three : not_looked_at };

	unsetenv("SPMT_CHECK");
	cr_expect_str_eq(stderr_of(&e), "");
	e.fn = puts_beyond;
	if (SANITIZED)
		cr_expect_str_eq(stderr_of(&e), "");
}

/* ---- under AddressSanitizer ------------------------------------------------------------------------------------------------------- */

int asan_poisoned(const volatile void *at) __asm__("__asan_address_is_poisoned")
	__attribute__((weak));

static int poisoned(spmt_comm *comm, void *arg)
{
	char *block, *inside, *last;
	spmt_comm *part;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 64, (void **)&last));
	REQUIRE_OK(spmt_malloc(comm, 52, (void **)&block));
	for (int i = -8; i < 52 + CHECK_ZONE; i++)
		REQUIRE_EQ(asan_poisoned(block + i), i < 0 || i >= 52);
	REQUIRE_OK(spmt_free(comm, block));
	for (int i = 0; i < 52; i++)
		REQUIRE(asan_poisoned(block + i));
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	REQUIRE_OK(spmt_malloc(part, 3 << 20, (void **)&inside));
	last = inside + (3 << 20) - 1;
	REQUIRE(!asan_poisoned(inside) && !asan_poisoned(last) && asan_poisoned(last + 1));
	REQUIRE_OK(spmt_finalize(part));
	REQUIRE(asan_poisoned(inside) && asan_poisoned(last));
	return 0;
}

/* What follows at these addresses is not the heap's. */
static int unpoisoned(spmt_comm *comm, void *arg)
{
	_Atomic(char *) *at = arg;
	char *block;

	REQUIRE_OK(spmt_malloc(comm, 52, (void **)&block));
	atomic_store(&at[spmt_rank(comm)], block);
	return 0;
}

Test(check_stores, poisoned)
{
	_Atomic(char *) at[2];

	NEEDS_HOST("no other memory is poisoned");
	if (!asan_poisoned)
		cr_skip_test("not built with AddressSanitizer");
	processes_check();
	RANKS_OK(ranks_run(2, NULL, poisoned, NULL));
	RANKS_OK(ranks_run(2, NULL, unpoisoned, at));
	for (int rank = 0; rank < 2; rank++)
		for (int i = -8; i < 200; i++)
			cr_assert_not(asan_poisoned(atomic_load(&at[rank]) + i));
}
