/* SPDX-License-Identifier: MIT */
/* What programs written from the documents alone found, where ThreadSanitizer can look: the ends of worlds. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { RANKS = 4 };

/* ---- a name that is used again ------------------------------------------------------------------ */

/* Whoever leaves first is back before the last has left. */
static int again_and_again(int rank, void *arg)
{
	size_t rounds = test_count(200, 1000);

	for (size_t i = 0; i < rounds; i++) {
		struct spmt_attr attr = ranks_attr(rank, RANKS, arg);
		spmt_comm *comm;

		REQUIRE_OK(spmt_init(&attr, &comm));
		REQUIRE(spmt_comm_by_rank(arg, rank) == comm);
		REQUIRE_OK(spmt_finalize(comm));
	}
	return 0;
}

static int same_name(void)
{
	spmt_uid uid;

	REQUIRE_OK(spmt_uid_create(&uid));
	return ranks_threads(RANKS, again_and_again, &uid);
}

/* ---- questions beside finalize ------------------------------------------------------------------ */

struct asked {
	_Atomic(spmt_comm *) comm;
	_Atomic bool over;
};

static int ask(struct asked *a)
{
	struct spmt_stats stats = { .size = sizeof(stats) };
	struct spmt_route route = { .size = sizeof(route) };

	while (!atomic_load(&a->over)) {
		spmt_comm *comm = atomic_load(&a->comm);

		if (!comm)
			continue;
		spmt_status(comm);
		spmt_stats(comm, -1, &stats);
		spmt_route(comm, 0, &route);
		spmt_ptr(comm, &stats, 0);
		spmt_set_timeout(comm, 1000);
		if (spmt_rank(comm) > 0 || spmt_nranks(comm) > 1)
			return ranks_fail("another comm's rank");
		SPMT_GUARD(comm);
	}
	return 0;
}

static int come_and_go(struct asked *a)
{
	size_t rounds = test_count(500, 5000);

	for (size_t i = 0; i < rounds; i++) {
		struct spmt_attr attr = ranks_attr(0, 1, NULL);
		spmt_comm *comm;

		REQUIRE_OK(spmt_init(&attr, &comm));
		atomic_store(&a->comm, comm);
		REQUIRE_OK(spmt_finalize(comm));
	}
	return 0;
}

static int ask_or_go(int index, void *arg)
{
	struct asked *a = arg;
	int code = 0;

	if (index == 0)
		return ask(a);
	code = come_and_go(a);
	atomic_store(&a->over, true);
	return code;
}

static int beside_finalize(void)
{
	struct asked a = { .comm = NULL };

	return ranks_threads(2, ask_or_go, &a);
}

/* ---- work that a broken world leaves in its streams ----------------------------------------------- */

static void sleep_kernel(void *args)
{
	sleep_ms(*(const int *)args);
}

/* Behind the kernel's sleep: a copy, a look at the peer's sleepers, a kernel with a table of peers. */
static int break_with_work(spmt_comm *comm)
{
	static const uint64_t one = 1;
	uint64_t *words;
	int ms = 20, next = (spmt_rank(comm) + 1) % RANKS;

	REQUIRE_OK(spmt_calloc(comm, 8, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_host_launch(comm, NULL, sleep_kernel, &ms, sizeof(ms)));
	REQUIRE_OK(spmt_put_on_stream(comm, words, &one, sizeof(one), next, NULL));
	REQUIRE_OK(spmt_signal_on_stream(comm, words + 1, 1, SPMT_SIGNAL_ADD, next, NULL));
	REQUIRE_OK(spmt_sync(comm));
	if (spmt_rank(comm) == 0)
		REQUIRE_OK(spmt_abort(comm, -5));
	REQUIRE_CODE(spmt_signal_wait(comm, words + 2, SPMT_CMP_EQ, 1, NULL), -5);
	REQUIRE_CODE(spmt_status(comm), -5);
	return 0;
}

static int one_rank(int rank, void *arg)
{
	struct spmt_attr attr = ranks_attr(rank, RANKS, arg);
	spmt_comm *comm;
	int code;

	REQUIRE_OK(spmt_init(&attr, &comm));
	code = break_with_work(comm);
	REQUIRE_OK(spmt_finalize(comm));
	return code;
}

static int work_left(void)
{
	size_t rounds = test_count(10, 50);

	for (size_t i = 0; i < rounds; i++) {
		spmt_uid uid;

		REQUIRE_OK(spmt_uid_create(&uid));
		TRY(ranks_threads(RANKS, one_rank, &uid));
	}
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = { { "a name that is used again", same_name },
		{ "questions beside finalize", beside_finalize },
		{ "work that a broken world leaves", work_left } };

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
