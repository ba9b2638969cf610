/* SPDX-License-Identifier: MIT */
/* Eight ranks at once on the data path: data before signals, exact atomics, barriers that let nobody through early. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/machines.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { RANKS = 8, WORDS = 32 };

/* ---- data, then the signal --------------------------------------------------------------------------------------------------- */

/* Round a ring: each sends the round's number in every word, and must find the same in all that it got. */
static int ring(spmt_comm *comm, void *arg)
{
	int next = (spmt_rank(comm) + 1) % spmt_nranks(comm),
	    last = (spmt_rank(comm) + spmt_nranks(comm) - 1) % spmt_nranks(comm);
	uint64_t *words, *sig, send[WORDS], got[WORDS];
	size_t rounds = test_count(4000, 125000); /* 10^6 messages */

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, WORDS, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*sig), (void **)&sig));
	for (uint64_t i = 1; i <= rounds; i++) {
		size_t n = (i % WORDS + 1) * sizeof(*send);

		for (int k = 0; k < WORDS; k++)
			send[k] = i;
		if (i % 3 == 0) {
			REQUIRE_OK(spmt_put(comm, words, send, n, next));
			REQUIRE_OK(spmt_fence(comm));
			REQUIRE_OK(spmt_signal(comm, sig, i, SPMT_SIGNAL_SET, next));
		} else if (i % 3 == 1) {
			REQUIRE_OK(spmt_put_signal(
				comm, words, send, n, sig, i, SPMT_SIGNAL_SET, next));
		} else {
			REQUIRE_OK(spmt_put_signal_nbi(
				comm, words, send, n, sig, 1, SPMT_SIGNAL_ADD, next));
			REQUIRE_OK(spmt_quiet(comm));
		}
		REQUIRE_OK(spmt_signal_wait(comm, sig, SPMT_CMP_GE, i, NULL));
		REQUIRE_OK(spmt_copy_out(comm, got, words, n));
		for (size_t k = 0; k < n / sizeof(*got); k++)
			REQUIRE_EQ(got[k], i);
		/* The one before may overwrite the words now. */
		REQUIRE_OK(spmt_signal(comm, sig + 1, 1, SPMT_SIGNAL_ADD, last));
		REQUIRE_OK(spmt_signal_wait(comm, sig + 1, SPMT_CMP_GE, i, NULL));
	}
	return 0;
}

/* ---- atomics -------------------------------------------------------------------------------------------------------------------- */

static int counters(spmt_comm *comm, void *arg)
{
	uint64_t *words, one = 1, old, last[RANKS] = { 0 }, rounds = test_count(40000, 400000);
	int rank = spmt_rank(comm), n = spmt_nranks(comm);

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*words), (void **)&words));
	for (uint64_t i = 0; i < rounds; i++) {
		int pe = (int)((i + (uint64_t)rank) % (uint64_t)n);

		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, words, &one, NULL, &old, pe));
		REQUIRE(i < (uint64_t)n || old > last[pe]);
		last[pe] = old;
		REQUIRE_OK(spmt_signal(comm, words + 1, 3, SPMT_SIGNAL_ADD, pe));
	}
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check_u64(comm, words, rounds));
	TRY(sym_check_u64(comm, words + 1, 3 * rounds));
	return spmt_barrier(comm);
}

/* A lock of compare-and-swap round a plain word, moved by put and get. */
static int locked(spmt_comm *comm, void *arg)
{
	uint64_t *words, zero = 0, mine = (uint64_t)spmt_rank(comm) + 1, old, value,
			 rounds = test_count(300, 5000);

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*words), (void **)&words));
	for (uint64_t i = 0; i < rounds; i++) {
		do
			REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_COMPARE_SWAP, SPMT_TYPE_U64, words,
				&mine, &zero, &old, 0));
		while (old && (sleep_ms(0), true));
		REQUIRE_OK(spmt_get(comm, &value, words + 1, sizeof(value), 0));
		value++;
		REQUIRE_OK(spmt_put(comm, words + 1, &value, sizeof(value), 0));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_SWAP, SPMT_TYPE_U64, words, &zero, NULL, &old, 0));
		REQUIRE_EQ(old, mine);
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0)
		TRY(sym_check_u64(comm, words + 1, rounds * (uint64_t)spmt_nranks(comm)));
	return spmt_barrier(comm);
}

/* ---- barriers --------------------------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t arrived; /* on this machine */

/* Plain words of the peers are read right behind the barrier, and written right before the next. */
static int barriers(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), n = spmt_nranks(comm), here = machine_here() < 0 ? n : n / 2;
	uint64_t *word, rounds = test_count(4000, 100000), seen;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	for (uint64_t i = 1; i <= rounds; i++) {
		atomic_fetch_add(&arrived, 1);
		REQUIRE_OK(spmt_copy_in(comm, word, &i, sizeof(i)));
		REQUIRE_OK(i % 2 ? spmt_barrier(comm) : spmt_sync(comm));
		REQUIRE(atomic_load(&arrived) >= i * (uint64_t)here);
		REQUIRE_OK(spmt_get(comm, &seen, word, sizeof(seen), (rank + (int)(i % 7)) % n));
		REQUIRE_EQ(seen, i);
		REQUIRE_OK(spmt_sync(comm));
	}
	return 0;
}

struct piece {
	char *at;
	size_t size;
	uint64_t
		born; /* when it was allocated; it holds the pattern that the rank before put there then */
};

/* Behind a barrier, so that all puts have come. */
static int piece_free(spmt_comm *comm, struct piece *piece)
{
	uint64_t n = (uint64_t)spmt_nranks(comm), before = ((uint64_t)spmt_rank(comm) + n - 1) % n;

	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check(comm, piece->at, piece->size, piece->born * n + before + 1));
	REQUIRE_OK(spmt_free(comm, piece->at));
	piece->at = NULL;
	return 0;
}

/* Blocks come and go among others that are in use, which nobody else writes to. */
static int heap_work(spmt_comm *comm, void *arg)
{
	uint64_t state = 99, n = (uint64_t)spmt_nranks(comm), me = (uint64_t)spmt_rank(comm);
	struct piece pieces[16] = { { NULL } };
	static _Thread_local char send[5000];

	(void)arg;
	for (size_t i = 0; i < test_count(2000, 40000); i++) {
		size_t k = random_next(&state) % 16, size = 1 + random_next(&state) % 5000;

		if (pieces[k].at) {
			TRY(piece_free(comm, &pieces[k]));
			continue;
		}
		REQUIRE_OK(spmt_malloc(comm, size, (void **)&pieces[k].at));
		pieces[k].size = size;
		pieces[k].born = i;
		pattern_fill(send, size, i * n + me + 1);
		REQUIRE_OK(spmt_put_nbi(comm, pieces[k].at, send, size, (int)((me + 1) % n)));
		REQUIRE_OK(spmt_quiet(comm));
	}
	for (int k = 0; k < 16; k++)
		if (pieces[k].at)
			TRY(piece_free(comm, &pieces[k]));
	return 0;
}

static int collectives(spmt_comm *comm, void *arg)
{
	uint64_t *words, want = 0, n = (uint64_t)spmt_nranks(comm);

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 64, sizeof(*words), (void **)&words));
	for (uint64_t i = 0; i < test_count(300, 5000); i++) {
		uint64_t mine = i * ((uint64_t)spmt_rank(comm) + 1);

		want = i * n * (n + 1) / 2;
		REQUIRE_OK(spmt_copy_in(comm, words, &mine, sizeof(mine)));
		REQUIRE_OK(spmt_all_reduce(
			comm, words + 1, words, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_all_gather(comm, words + 8, words + 1, 1, SPMT_TYPE_U64, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		for (uint64_t k = 0; k < n; k++)
			TRY(sym_check_u64(comm, words + 8 + k, want));
	}
	return 0;
}

int main(void)
{
	static const struct {
		const char *name;
		int (*fn)(spmt_comm *, void *);
	} cases[] = { { "data before signals", ring }, { "exact counters", counters },
		{ "a lock", locked }, { "barriers", barriers }, { "malloc and free", heap_work },
		{ "collectives", collectives } };
	size_t n = sizeof(cases) / sizeof(cases[0]);
	int failed = 0;

	printf("1..%zu\n", n);
	for (size_t i = 0; i < n; i++)
		failed |= tap_report(
			(int)i + 1, ranks_run(RANKS, NULL, cases[i].fn, NULL), "%s", cases[i].name);
	return failed;
}
