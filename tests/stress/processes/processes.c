/* SPDX-License-Identifier: MIT */
/*
 * Worlds of several processes under load. Each process is forked before it has a thread and is watched by itself: ThreadSanitizer
 * sees what happens inside of one, the data checked here is what passes between them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/every_call.h"
#include "tests/lib/processes.h"
#include "tests/lib/tap.h"

enum { BLOCK = 512, MOST = 8 };

/* Symmetric, one a rank. */
struct yard {
	uint64_t block[MOST][BLOCK]; /* by rank of who writes it */
	uint64_t flag[MOST], sum, credit[MOST];
};

/* Data of turn i by rank r. */
static uint64_t mark(int r, uint64_t i)
{
	return (uint64_t)(r + 1) << 32 | i;
}

/* Puts with signals round the ring, each answered before the next: what the signal announces is there, whole. */
static int deliver(spmt_comm *comm, struct yard *yard, uint64_t *own, uint64_t turn)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm), to = (me + 1) % n, from = (me + n - 1) % n;
	size_t words = 1 + turn * 37 % BLOCK;

	for (size_t w = 0; w < words; w++)
		own[w] = mark(me, turn);
	if (turn % 3 == 0)
		REQUIRE_OK(spmt_put_signal(comm, yard->block[me], own, words * sizeof(*own),
			&yard->flag[me], turn, SPMT_SIGNAL_SET, to));
	else if (turn % 3 == 1)
		REQUIRE_OK(spmt_put_signal_nbi(comm, yard->block[me], own, words * sizeof(*own),
			&yard->flag[me], turn, SPMT_SIGNAL_SET, to));
	else
		REQUIRE_OK(spmt_put_signal_on_stream(comm, yard->block[me], own,
			words * sizeof(*own), &yard->flag[me], turn, SPMT_SIGNAL_SET, to, NULL));
	REQUIRE_OK(spmt_signal_wait(comm, &yard->flag[from], SPMT_CMP_GE, turn, NULL));
	for (size_t w = 0; w < words; w++)
		TRY(sym_check_u64(comm, &yard->block[from][w], mark(from, turn)));
	REQUIRE_OK(spmt_quiet(comm)); /* own may be written again */
	REQUIRE_OK(spmt_signal(comm, &yard->credit[me], 1, SPMT_SIGNAL_ADD, from));
	REQUIRE_OK(spmt_signal_wait(comm, &yard->credit[to], SPMT_CMP_GE, turn, NULL));
	return 0;
}

/* All add to one word of the last rank; ends with the exact sum. */
static int add_up(spmt_comm *comm, struct yard *yard, uint64_t turns)
{
	int home = spmt_nranks(comm) - 1;
	uint64_t one = 1, sum = 0, all = turns * (uint64_t)spmt_nranks(comm);

	for (uint64_t i = 0; i < turns; i++)
		REQUIRE_OK(spmt_atomic(comm, i % 2 ? SPMT_AMO_ADD : SPMT_AMO_FETCH_ADD,
			SPMT_TYPE_U64, &yard->sum, &one, NULL, &sum, home));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_get(comm, &sum, &yard->sum, sizeof(sum), home));
	REQUIRE_EQ(sum, all);
	return 0;
}

static int reduce(spmt_comm *comm, uint64_t turns)
{
	int n = spmt_nranks(comm);

	for (uint64_t i = 0; i < turns; i++) {
		uint64_t mine = i + (uint64_t)spmt_rank(comm), sum = 0;

		REQUIRE_OK(spmt_all_reduce(comm, &sum, &mine, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_EQ(sum, (uint64_t)n * i + (uint64_t)(n * (n - 1) / 2));
		REQUIRE_OK(i % 2 ? spmt_barrier(comm) : spmt_sync(comm));
	}
	return 0;
}

static int storm(spmt_comm *comm, void *arg)
{
	uint64_t turns = test_count(300, 3000), own[BLOCK];
	struct yard *yard;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*yard), (void **)&yard));
	for (uint64_t turn = 1; turn <= turns; turn++)
		TRY(deliver(comm, yard, own, turn));
	TRY(add_up(comm, yard, 10 * turns));
	TRY(reduce(comm, turns / 10));
	REQUIRE_OK(spmt_free(comm, yard));
	return 0;
}

static int calls(spmt_comm *comm, void *arg)
{
	struct processes *p = arg;
	struct every_call b = {
		.layout = p->layout, .uid = &p->uid[processes_cycle()], .less = SANITIZED
	};

	TRY(every_call_places(comm, &b));
	return every_call_right(comm, &b);
}

/* A rank aborts while the others are on their way through anything. */
static int aborted(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm), code = 0;
	uint64_t *word;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*word), (void **)&word));
	for (uint64_t i = 0; !code; i++) {
		code = spmt_put(comm, word, &i, sizeof(i), (me + 1) % spmt_nranks(comm));
		if (!code)
			code = spmt_barrier(comm);
		if (!code && me == 1 && i == 50)
			code = spmt_abort(comm, -77);
	}
	REQUIRE_EQ(code, -77);
	return 0;
}

static int ends_by_abort(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, p->nranks, &p->uid[processes_cycle()]);
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	TRY(aborted(comm, NULL));
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

static int layout_storm(const char *layout)
{
	struct processes p = { .layout = layout, .cycles = 2, .seconds = 120 };

	return processes_world(&p, storm, NULL);
}

static int layout_calls(const char *layout)
{
	struct processes p = { .layout = layout, .seconds = 120 };

	return processes_world(&p, calls, &p);
}

static int layout_aborts(const char *layout)
{
	struct processes p = { .layout = layout, .cycles = 8, .seconds = 120 };

	p.slack = (struct usage){ .fds = 0, .threads = 0, .maps = 16, .rss_kib = 16384 };
	return processes_run(&p, ends_by_abort, &p);
}

int main(void)
{
	static const char *const layouts[] = { "0,1|2,3", "0|1|2|3" };
	static const struct {
		const char *name;
		int (*fn)(const char *layout);
	} cases[] = { { "puts, signals, atomics, collectives", layout_storm },
		{ "every call", layout_calls }, { "aborts", layout_aborts } };
	int n = 0, failed = 0;

	printf("1..%zu\n", 2 * sizeof(cases) / sizeof(cases[0]));
	fflush(stdout); /* before the first fork */
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (int l = 0; l < 2; l++)
			failed |= tap_report(++n, cases[i].fn(layouts[l]), "%s in %s",
				cases[i].name, layouts[l]);
	return failed;
}
