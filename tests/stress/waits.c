/* SPDX-License-Identifier: MIT */
/* Sleepers and wakers in every mix: no wake-up is lost, none waits for the deadline, aborts reach everybody. */
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { RANKS = 6 };

/* A token goes round by ever another kind of store; everybody else sleeps. */
static int token(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), n = spmt_nranks(comm), next = (rank + 1) % n;
	uint64_t *word, rounds = test_count(1200, 40000);

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	for (uint64_t i = 1; i <= rounds; i++) {
		uint64_t value = i;
		int code;

		if (rank || i > 1)
			REQUIRE_OK(
				spmt_signal_wait(comm, word, SPMT_CMP_GE, rank ? i : i - 1, NULL));
		switch (i % 6) {
		case 0:
			code = spmt_put(comm, word, &value, sizeof(value), next);
			break;
		case 1:
			code = spmt_signal(comm, word, value, SPMT_SIGNAL_SET, next);
			break;
		case 2:
			code = spmt_atomic(
				comm, SPMT_AMO_SET, SPMT_TYPE_U64, word, &value, NULL, NULL, next);
			break;
		case 3:
			code = spmt_put_signal(comm, NULL, NULL, 0, word, 1, SPMT_SIGNAL_ADD, next);
			break;
		case 4:
			code = spmt_signal_on_stream(
				comm, word, value, SPMT_SIGNAL_SET, next, NULL);
			break;
		default:
			code = spmt_iput(comm, word, &value, 1, 1, 1, sizeof(value), next);
		}
		REQUIRE_CODE(code, 0);
	}
	return spmt_barrier(comm);
}

/* All forms of waiting on a table that all others fill. */
static int tables(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), n = spmt_nranks(comm), status[RANKS] = { 0 };
	uint64_t *words, rounds = test_count(400, 10000);

	(void)arg;
	status[rank] = 1;
	REQUIRE_OK(spmt_calloc(comm, RANKS, sizeof(*words), (void **)&words));
	for (uint64_t i = 1; i <= rounds; i++) {
		size_t index, list[RANKS], found;

		for (int pe = 0; pe < n; pe++)
			if (pe != rank)
				REQUIRE_OK(spmt_signal(comm, words + rank, i, SPMT_SIGNAL_SET, pe));
		REQUIRE_OK(spmt_wait_until_any(
			comm, SPMT_TYPE_U64, words, (size_t)n, status, SPMT_CMP_GE, &i, &index));
		REQUIRE(index < (size_t)n && index != (size_t)rank);
		REQUIRE_OK(spmt_wait_until_some(comm, SPMT_TYPE_U64, words, (size_t)n, status,
			SPMT_CMP_GE, &i, list, &found));
		REQUIRE(found >= 1 && found < (size_t)n);
		REQUIRE_OK(spmt_wait_until_all(
			comm, SPMT_TYPE_U64, words, (size_t)n, status, SPMT_CMP_GE, &i));
	}
	return spmt_barrier(comm);
}

static _Atomic uint64_t all_misses;

/* Short deadlines beside signals that arrive about then: each wait ends one way or the other, not before its deadline, and the count
   is kept. In two rounds of three a neighbour sleeps longer, so that there are misses. */
static int near_misses(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), next = (rank + 1) % spmt_nranks(comm);
	uint64_t *word, rounds = test_count(160, 4000), misses = 0;
	int64_t begin;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	begin = now_ns();
	for (uint64_t i = 1; i <= rounds; i++) {
		int code;

		sleep_ms((int)(i + (uint64_t)rank) % 3 * 2);
		REQUIRE_OK(spmt_signal(comm, word, 1, SPMT_SIGNAL_ADD, next));
		REQUIRE_OK(spmt_set_timeout(comm, 1));
		while ((code = spmt_signal_wait(comm, word, SPMT_CMP_GE, i, NULL)) ==
			SPMT_ERR_TIMEOUT)
			misses++;
		REQUIRE_OK(spmt_set_timeout(comm, 0));
		REQUIRE_CODE(code, 0);
	}
	REQUIRE((int64_t)misses * 900000 <= now_ns() - begin);
	atomic_fetch_add(&all_misses, misses);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE(atomic_load(&all_misses) > 0); /* who lags behind its neighbour has none */
	return 0;
}

/* One rank aborts while the others are on their way into all kinds of waits. */
static int aborted(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), by = *(int *)arg % spmt_nranks(comm), code = 0;
	uint64_t *word;
	void *block;

	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_set_timeout(comm, -1));
	if (rank == by) {
		sleep_ms(*(int *)arg % 4);
		return spmt_abort(comm, -70);
	}
	while (!code)
		switch ((rank + *(int *)arg) % 4) {
		case 0:
			code = spmt_barrier(comm);
			break;
		case 1:
			code = spmt_signal_wait(comm, word, SPMT_CMP_EQ, 1, NULL);
			break;
		case 2:
			code = spmt_malloc(comm, 8, &block);
			break;
		default:
			code = spmt_signal_wait_on_stream(comm, word, SPMT_CMP_EQ, 1, NULL);
			code = code ? code : spmt_quiet(comm);
		}
	REQUIRE_EQ(code, -70);
	return 0;
}

static int aborts(void)
{
	for (int i = 0; i < (int)test_count(48, 400); i++) {
		int code = ranks_run(RANKS, NULL, aborted, &i);

		if (code)
			return code;
	}
	return 0;
}

static int tokens(void)
{
	return ranks_run(RANKS, NULL, token, NULL);
}

static int all_forms(void)
{
	return ranks_run(RANKS, NULL, tables, NULL);
}

static int misses(void)
{
	return ranks_run(RANKS, NULL, near_misses, NULL);
}

int main(void)
{
	static const struct test_case cases[] = { { "a token by every store", tokens },
		{ "any, some, all", all_forms }, { "deadlines that nearly fit", misses },
		{ "aborts", aborts } };

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
