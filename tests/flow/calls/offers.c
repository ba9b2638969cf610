/* SPDX-License-Identifier: MIT */
/* Buffers that a rank registers by itself and others look up: who sees them, when, and what calls on them say when they are gone. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "spmt_device.h"
#include "tests/lib/processes.h"
#include "tests/lib/ranks.h"

enum { RANKS = 4, KEY = 77, WORDS = 64 };

/* Of the rank's own memory, or of the heap, which a device reaches on every backend. */
static int words_of(spmt_comm *comm, uint64_t **words)
{
	void *p;

	REQUIRE_OK(spmt_calloc(comm, WORDS, sizeof(**words), &p));
	*words = p;
	return 0;
}

/* ---- data ----------------------------------------------------------------------------------------------------- */

static int moves(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), next = (rank + 1) % RANKS, last = (rank + RANKS - 1) % RANKS;
	size_t size = 8 * (8 + (size_t)rank), theirs = 8 * (8 + (size_t)next);
	uint64_t *words, value[4], seen[4];
	spmt_mem *own, *mem;

	(void)arg;
	TRY(words_of(comm, &words));
	REQUIRE_OK(spmt_register_local(comm, KEY, words, size, &own));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_mem_lookup(comm, next, KEY, &mem));
	for (int pe = 0; pe < RANKS; pe++) {
		REQUIRE_EQ(spmt_mem_size(mem, pe), pe == next ? theirs : 0);
		REQUIRE_EQ(spmt_mem_size(own, pe), pe == rank ? size : 0);
	}
	REQUIRE(spmt_mem_ptr(own, rank) == words);
	REQUIRE(spmt_mem_ptr(mem, next) && !spmt_mem_ptr(mem, rank));
	for (int i = 0; i < 4; i++)
		value[i] = (uint64_t)(100 * rank + i);
	REQUIRE_OK(spmt_mem_put(comm, mem, theirs - 32, &value[0], 8, next));
	REQUIRE_OK(spmt_mem_put_nbi(comm, mem, theirs - 24, &value[1], 8, next));
	REQUIRE_OK(spmt_copy_in(comm, words + 32, &value[2], 16));
	REQUIRE_OK(spmt_mem_put_on_stream(comm, mem, theirs - 16, words + 32, 16, next, NULL));
	REQUIRE_OK(spmt_barrier(comm)); /* completes them */
	REQUIRE_OK(spmt_mem_get(comm, &seen[0], own, size - 32, 8, rank));
	REQUIRE_OK(spmt_mem_get_nbi(comm, &seen[1], own, size - 24, 8, rank));
	REQUIRE_OK(spmt_mem_get_on_stream(comm, words + 40, own, size - 16, 16, rank, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_copy_out(comm, &seen[2], words + 40, 16));
	for (int i = 0; i < 4; i++)
		REQUIRE_EQ(seen[i], 100 * last + i);
	REQUIRE_CODE(spmt_mem_put(comm, mem, theirs - 7, value, 8, next), -EINVAL);
	REQUIRE_CODE(spmt_mem_put(comm, mem, 0, value, 8, rank), -EINVAL);
	REQUIRE_OK(spmt_deregister(comm, mem));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_deregister(comm, own));
	REQUIRE_CODE(spmt_deregister(comm, own), -EBADF);
	return 0;
}

Test(offers, ranks_put_and_get)
{
	NEEDS_DEVICES(RANKS);
	RANKS_OK(ranks_run(RANKS, NULL, moves, NULL));
}

/* Kernels have the one rank's part, too. */
static int views(spmt_comm *comm, void *arg)
{
	struct spmt_mem_view view = { .size = sizeof(view) };
	int rank = spmt_rank(comm), next = !rank;
	uint64_t words[2] = { 40 + (uint64_t)rank, 0 };
	spmt_mem *own, *mem;

	(void)arg;
	REQUIRE_OK(spmt_register_local(comm, KEY, words, sizeof(words), &own));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_mem_lookup(comm, next, KEY, &mem));
	REQUIRE_OK(spmt_mem_view_get(comm, mem, &view));
	REQUIRE_EQ(*(uint64_t *)spmtd_mem_ptr(&view, next), 40 + (uint64_t)next);
	REQUIRE_OK(spmt_barrier(comm));
	return 0; /* both handles end with the comm */
}

Test(offers, kernels_see_them)
{
	NEEDS_HOST("a kernel that is called");
	RANKS_OK(ranks_run(2, NULL, views, NULL));
}

/* ---- alone ---------------------------------------------------------------------------------------------------- */

/* One thread has all ranks, so that whoever waited for another would wait for ever. */
Test(offers, nobody_waits)
{
	struct spmt_attr attrs[2] = { SPMT_ATTR_INIT, SPMT_ATTR_INIT };
	uint64_t word = 0, value = 5;
	spmt_mem *own, *mem, *again, *none = NULL;
	spmt_comm *comms[2];

	NEEDS_HOST("memory of the test's stack");
	for (int i = 0; i < 2; i++) {
		attrs[i].rank = i;
		attrs[i].nranks = 2;
		attrs[i].heap_size = 1 << 20;
	}
	cr_assert_eq(spmt_init_all(2, attrs, comms), 0, "%s", spmt_last_error());
	cr_assert_eq(spmt_mem_lookup(comms[0], 1, KEY, &none), -ENOENT);
	cr_assert(strstr(spmt_last_error(), "rank 0: rank 1 has no buffer under key 77 now"));
	cr_assert_eq(spmt_register_local(comms[1], KEY, &word, 8, &own), 0);
	cr_assert_eq(spmt_register_local(comms[1], KEY, &word, 8, &none), -EEXIST);
	cr_assert_eq(spmt_mem_lookup(comms[0], 1, KEY + 1, &none), -ENOENT);
	cr_assert_eq(spmt_mem_lookup(comms[0], 0, KEY, &none), -ENOENT);
	cr_assert_null(none);
	cr_assert_eq(spmt_mem_lookup(comms[0], 1, KEY, &mem), 0, "%s", spmt_last_error());
	cr_assert_eq(spmt_mem_lookup(comms[1], 1, KEY, &again), 0); /* its own */
	cr_assert_eq(spmt_mem_put(comms[0], mem, 0, &value, 8, 1), 0);
	cr_assert_eq(word, 5);
	/* It goes: handles say so, but can be given back. */
	cr_assert_eq(spmt_deregister(comms[0], own), -EINVAL, "another comm's");
	cr_assert_eq(spmt_deregister(comms[1], own), 0);
	cr_assert_eq(spmt_deregister(comms[1], own), -EBADF);
	cr_assert_eq(spmt_status(comms[1]), 0);
	cr_assert_eq(spmt_mem_put(comms[0], mem, 0, &value, 8, 1), -EBADF);
	cr_assert(strstr(spmt_last_error(), "rank 1 has deregistered it"));
	cr_assert_eq(spmt_mem_get(comms[1], &value, again, 0, 8, 1), -EBADF);
	cr_assert_null(spmt_mem_ptr(mem, 1));
	cr_assert_eq(spmt_mem_size(mem, 1), 0);
	cr_assert_eq(spmt_mem_lookup(comms[0], 1, KEY, &none), -ENOENT);
	cr_assert_eq(spmt_deregister(comms[0], mem), 0);
	/* The key is free; what is left ends with the comms. */
	cr_assert_eq(spmt_register_local(comms[1], KEY, NULL, 0, &own), 0);
	cr_assert_eq(spmt_mem_lookup(comms[0], 1, KEY, &mem), 0);
	cr_assert_eq(spmt_mem_size(mem, 1), 0);
	cr_assert_eq(spmt_finalize_all(2, comms), 0);
}

/* ---- refused --------------------------------------------------------------------------------------------------- */

static int wrong(spmt_comm *comm, void *arg)
{
	uint64_t word;
	spmt_comm *part;
	spmt_mem *mem = NULL, *own;

	(void)arg;
	REQUIRE_CODE(spmt_register_local(comm, KEY, NULL, 8, &mem), -EINVAL);
	REQUIRE_SAYS("spmt_register_local");
	REQUIRE_CODE(spmt_register_local(comm, KEY, &word, 8, NULL), -EINVAL);
	REQUIRE_CODE(spmt_register_local(comm, KEY, &word, SIZE_MAX, &mem), -EINVAL);
	REQUIRE_CODE(spmt_register_local(NULL, KEY, &word, 8, &mem), -EINVAL);
	REQUIRE_CODE(spmt_mem_lookup(comm, 2, KEY, &mem), -EINVAL);
	REQUIRE_CODE(spmt_mem_lookup(comm, -1, KEY, &mem), -EINVAL);
	REQUIRE_CODE(spmt_mem_lookup(comm, 0, KEY, NULL), -EINVAL);
	REQUIRE(!mem);
	/* Of another comm of the rank. */
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	REQUIRE_OK(spmt_register_local(part, KEY, NULL, 0, &own));
	REQUIRE_CODE(spmt_mem_lookup(comm, spmt_rank(comm), KEY, &mem), -ENOENT);
	REQUIRE_CODE(spmt_deregister(comm, own), -EINVAL);
	REQUIRE_OK(spmt_finalize(part));
	REQUIRE_CODE(spmt_deregister(comm, own), -EBADF);
	return 0;
}

Test(offers, wrong_arguments)
{
	NEEDS_DEVICES(2);
	RANKS_OK(ranks_run(2, NULL, wrong, NULL));
}

/* A broken world has no lookups, and ends with what is registered. */
static int broken(spmt_comm *comm, void *arg)
{
	spmt_mem *own, *mem;

	(void)arg;
	REQUIRE_OK(spmt_register_local(comm, KEY, NULL, 0, &own));
	REQUIRE_OK(spmt_barrier(comm));
	spmt_abort(comm, -5);
	REQUIRE_CODE(spmt_mem_lookup(comm, 0, KEY, &mem), -5);
	REQUIRE_CODE(spmt_register_local(comm, KEY + 1, NULL, 0, &mem), -5);
	REQUIRE_CODE(spmt_deregister(comm, own), -5);
	spmt_finalize(comm);
	return 0;
}

static int broken_main(int rank, void *arg)
{
	struct spmt_attr attr = ranks_attr(rank, 2, arg);
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	return broken(comm, NULL);
}

Test(offers, a_broken_world)
{
	spmt_uid uid;

	NEEDS_DEVICES(2);
	cr_assert_eq(spmt_uid_create(&uid), 0);
	RANKS_OK(ranks_threads(2, broken_main, &uid));
}

/* ---- under SPMT_CHECK --------------------------------------------------------------------------------------------- */

/* What a rank has looked up of its own keeps no block. */
static int withdrawn(spmt_comm *comm, void *arg)
{
	uint64_t *words;
	spmt_mem *own, *mem;

	(void)arg;
	TRY(words_of(comm, &words));
	REQUIRE_OK(spmt_register_local(comm, KEY, words, 8, &own));
	REQUIRE_OK(spmt_mem_lookup(comm, spmt_rank(comm), KEY, &mem));
	REQUIRE_CODE(spmt_free(comm, words), -EINVAL);
	REQUIRE_SAYS("still registered");
	REQUIRE_OK(spmt_deregister(comm, own));
	REQUIRE_OK(spmt_free(comm, words));
	return spmt_deregister(comm, mem);
}

Test(offers, a_block_that_is_offered_no_more)
{
	NEEDS_DEVICES(2);
	setenv("SPMT_CHECK", "1", 1);
	RANKS_OK(ranks_run(2, NULL, withdrawn, NULL));
}

/* ---- processes -------------------------------------------------------------------------------------------------- */

static int apart(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), beside = rank ^ 1, far = rank ^ 2;
	uint64_t *words;
	spmt_mem *own, *mem;

	(void)arg;
	TRY(words_of(comm, &words));
	REQUIRE_OK(spmt_register_local(comm, KEY, words, 8, &own));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_mem_lookup(comm, beside, KEY, &mem));
	REQUIRE_OK(spmt_mem_put(comm, mem, 0, &(uint64_t){ 9 }, 8, beside));
	REQUIRE_CODE(spmt_mem_lookup(comm, far, KEY, &mem), SPMT_ERR_UNSUPPORTED);
	REQUIRE_SAYS("is in another process");
	return spmt_barrier(comm);
}

Test(offers, ranks_of_another_process)
{
	struct processes p = { .layout = "0,1|2,3" };

	NEEDS_LAYOUT(p.layout);
	RANKS_OK(processes_world(&p, apart, NULL));
}
