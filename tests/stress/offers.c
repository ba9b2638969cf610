/* SPDX-License-Identifier: MIT */
/* Ranks that register and look up by themselves, at once and in no order: whoever finds a buffer finds it whole. */
#include <stdatomic.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { RANKS = 4, KEYS = 3 };

static int found_or_not(spmt_comm *comm, int pe, uint64_t key)
{
	spmt_mem *mem;
	size_t size;
	int rc = spmt_mem_lookup(comm, pe, key, &mem);

	if (rc == -ENOENT)
		return 0;
	REQUIRE_OK(rc);
	/* 0: its rank has taken it back since. It may do so between two questions, so one is asked. */
	size = spmt_mem_size(mem, pe);
	REQUIRE(size == 0 || size == 8 * (key + 1));
	REQUIRE_OK(spmt_deregister(comm, mem));
	return 0;
}

static int come_and_go(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm);
	uint64_t words[KEYS];
	spmt_mem *own[KEYS] = { NULL };

	(void)arg;
	for (int i = 0; i < (int)test_count(300, 20000); i++) {
		uint64_t key = (uint64_t)i % KEYS;

		if (own[key])
			REQUIRE_OK(spmt_deregister(comm, own[key]));
		REQUIRE_OK(spmt_register_local(comm, key, words, 8 * (key + 1), &own[key]));
		for (int pe = 0; pe < RANKS; pe++)
			if (pe != rank)
				TRY(found_or_not(comm, pe, (key + (uint64_t)pe) % KEYS));
	}
	return 0;
}

static int churn(void)
{
	int rc = ranks_run(RANKS, NULL, come_and_go, NULL);

	return rc ? ranks_fail("%s", ranks_message()) : 0;
}

/* What a rank stores after it has looked up is there for the owner when they have met. */
static int stores(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), next = (rank + 1) % RANKS;
	uint64_t word = 0;
	spmt_mem *own, *mem;

	(void)arg;
	for (uint64_t i = 1; i <= (uint64_t)test_count(100, 5000); i++) {
		REQUIRE_OK(spmt_register_local(comm, i, &word, 8, &own));
		REQUIRE_OK(spmt_barrier(comm));
		REQUIRE_OK(spmt_mem_lookup(comm, next, i, &mem));
		REQUIRE_OK(spmt_mem_put(comm, mem, 0, &i, 8, next));
		REQUIRE_OK(spmt_barrier(comm));
		REQUIRE_EQ(word, i);
		REQUIRE_OK(spmt_deregister(comm, mem));
		REQUIRE_OK(spmt_deregister(comm, own));
	}
	return 0;
}

static int behind_barriers(void)
{
	int rc = ranks_run(RANKS, NULL, stores, NULL);

	return rc ? ranks_fail("%s", ranks_message()) : 0;
}

int main(void)
{
	static const struct test_case cases[] = { { "buffers that come and go", churn },
		{ "stores behind barriers", behind_barriers } };

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
