/* SPDX-License-Identifier: MIT */
/* Worlds that come and go side by side, while other threads look ranks up, abort and ask. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { TEAMS = 3, MEMBERS = 3, LOOKERS = 2 };

static struct {
	spmt_uid uids[TEAMS][2]; /* the one in use and the next, by parity of the round */
	pthread_mutex_t lock;	 /* guards uids */
	_Atomic bool over;
	_Atomic int left; /* team members at work */
	pthread_barrier_t start[TEAMS];
} all;

static spmt_uid uid_of(int team, int round)
{
	spmt_uid uid;

	pthread_mutex_lock(&all.lock);
	uid = all.uids[team][round % 2];
	pthread_mutex_unlock(&all.lock);
	return uid;
}

static int uid_renew(int team, int round)
{
	spmt_uid uid;

	REQUIRE_OK(spmt_uid_create(&uid));
	pthread_mutex_lock(&all.lock);
	all.uids[team][round % 2] = uid;
	pthread_mutex_unlock(&all.lock);
	return 0;
}

/* A world that breaks: who is late finds it so in any call, and all find the code of one of the aborts. */
static int broken_world(spmt_comm *comm, int rank)
{
	void *block;
	int code = spmt_malloc(comm, 64, &block);

	if (!code)
		code = spmt_abort(comm, -70 - rank);
	REQUIRE(code == 0 || (code <= -70 && code > -70 - MEMBERS));
	code = spmt_barrier(comm);
	REQUIRE(code <= -70 && code > -70 - MEMBERS);
	REQUIRE_EQ(spmt_status(comm), code);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

static int one_world(int team, int rank, int round)
{
	spmt_uid uid = uid_of(team, round);
	struct spmt_attr attr = ranks_attr(rank, MEMBERS, &uid);
	uint64_t *word, value = (uint64_t)(team * 1000 + round);
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE(spmt_comm_by_rank(&uid, rank) == comm);
	if (round % 5 == 4)
		return broken_world(comm, rank);
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_put(comm, word, &value, sizeof(value), (rank + 1) % MEMBERS));
	REQUIRE_OK(spmt_sync(comm));
	/* All are there, and stay until the barrier: who is looked up is the one that was asked for. */
	for (int r = 0; r < MEMBERS; r++) {
		spmt_comm *other = spmt_comm_by_rank(&uid, r);

		REQUIRE(other && spmt_rank(other) == r && spmt_nranks(other) == MEMBERS);
		REQUIRE(spmt_comm_by_device(&uid, spmt_device(other)) == other);
	}
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check_u64(comm, word, value));
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

static int member(int team, int rank)
{
	int rounds = (int)test_count(160, 2000), code = 0;

	for (int round = 0; round < rounds; round++) {
		pthread_barrier_wait(&all.start[team]);
		if (rank == 0 && !code)
			code = uid_renew(team, round + 1);
		if (!code)
			code = one_world(team, rank, round);
	}
	atomic_fetch_sub(&all.left, 1);
	return code;
}

/* Lookups of ranks that may be there, coming, going or gone: a comm or NULL, and whatever it answers is an answer. */
static int looker(void)
{
	long found = 0, looks = 0;

	for (; atomic_load(&all.left) > 0; looks++)
		for (int team = 0; team < TEAMS; team++)
			for (int k = 0; k < 2 * MEMBERS; k++) {
				spmt_uid uid = uid_of(team, k);
				spmt_comm *comm = k % 3 ? spmt_comm_by_rank(&uid, k / 2)
							: spmt_comm_by_device(&uid, k / 2);

				found += comm != NULL;
			}
	/* On a busy machine the teams may be done before it has looked twice. */
	return found || looks < 1000 ? 0 : ranks_fail("no rank was found in %ld looks", looks);
}

static int churn_main(int index, void *arg)
{
	(void)arg;
	return index < TEAMS * MEMBERS ? member(index / MEMBERS, index % MEMBERS) : looker();
}

static int churn(void)
{
	pthread_mutex_init(&all.lock, NULL);
	atomic_store(&all.left, TEAMS * MEMBERS);
	for (int team = 0; team < TEAMS; team++) {
		pthread_barrier_init(&all.start[team], NULL, MEMBERS);
		if (spmt_uid_create(&all.uids[team][0]) || spmt_uid_create(&all.uids[team][1]))
			return ranks_fail("%s", spmt_last_error());
	}
	return ranks_threads(TEAMS * MEMBERS + LOOKERS, churn_main, NULL);
}

/* ---- questions beside any call ------------------------------------------------------------------------------------------------------ */

static _Atomic(spmt_comm *) asked;
static _Atomic bool answered;

static void *ask(void *arg)
{
	struct spmt_route route = { .size = sizeof(route) };
	struct spmt_stats stats = { .size = sizeof(stats) };
	spmt_comm *comm;
	long wrong = 0;

	while (!atomic_load(&answered)) {
		comm = atomic_load(&asked);
		if (!comm)
			continue;
		wrong += spmt_status(comm) != 0;
		wrong += spmt_rank(comm) != 0 || spmt_nranks(comm) != 2 || spmt_device(comm) != 0;
		wrong += spmt_route(comm, 1, &route) != 0 || spmt_stats(comm, -1, &stats) != 0;
		wrong += spmt_set_timeout(comm, 20000) != 0;
		sleep_ms(1);
	}
	*(long *)arg = wrong;
	return NULL;
}

static int answer(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm);
	long wrong = 0;
	uint64_t *word;
	pthread_t thread;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	if (rank == 0) {
		atomic_store(&asked, comm);
		REQUIRE_EQ(pthread_create(&thread, NULL, ask, &wrong), 0);
	}
	for (uint64_t i = 1; i < test_count(8000, 80000); i++) {
		REQUIRE_OK(spmt_signal(comm, word, 1, SPMT_SIGNAL_ADD, 1 - rank));
		REQUIRE_OK(spmt_signal_wait(comm, word, SPMT_CMP_GE, i, NULL));
	}
	if (rank == 0) {
		atomic_store(&answered, true);
		pthread_join(thread, NULL);
		REQUIRE_EQ(wrong, 0);
	}
	return spmt_barrier(comm);
}

static int questions(void)
{
	return ranks_run(2, NULL, answer, NULL);
}

/* ---- failing inits beside good ones ---------------------------------------------------------------------------------------------------- */

static int doomed_main(int index, void *arg)
{
	struct spmt_attr attr = ranks_attr(index % 2, 2, (const spmt_uid *)arg + index / 2);
	spmt_comm *comm;
	int code;

	if (index == 1)
		attr.heap_size *= 2;
	code = spmt_init(&attr, &comm);
	if (index < 2) {
		REQUIRE_CODE(code, SPMT_ERR_MISMATCH);
		return 0;
	}
	REQUIRE_CODE(code, 0);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

static int doomed(void)
{
	for (size_t i = 0; i < test_count(100, 1000); i++) {
		spmt_uid uids[2];
		int code;

		if (spmt_uid_create(&uids[0]) || spmt_uid_create(&uids[1]))
			return ranks_fail("%s", spmt_last_error());
		code = ranks_threads(4, doomed_main, uids);
		if (code)
			return code;
	}
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = { { "worlds come and go", churn },
		{ "questions beside calls", questions }, { "failing and good inits", doomed } };

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
