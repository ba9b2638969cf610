/* SPDX-License-Identifier: MIT */
/* What waits leave to others: idle ranks take no CPU, ranks that outnumber CPUs take turns, and two on one CPU part. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "tests/lib/ranks.h"

static void many_devices(void)
{
	setenv("SPMT_HOST_DEVICES", "144", 1);
}

TestSuite(crowded, .init = many_devices);

/* ---- more ranks than CPUs ---------------------------------------------------------------------------------------------- */

struct idle {
	bool barrier;
	double cores;
};

static int idle(spmt_comm *comm, void *arg)
{
	struct idle *i = arg;
	uint64_t *word;

	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		int64_t wall, cpu;

		sleep_ms(100);
		wall = calm_ns();
		cpu = cpu_ns();
		sleep_ms(700);
		i->cores = (double)(cpu_ns() - cpu) / (double)(calm_ns() - wall);
		for (int pe = 1; !i->barrier && pe < spmt_nranks(comm); pe++)
			REQUIRE_OK(spmt_signal(comm, word, 1, SPMT_SIGNAL_SET, pe));
	} else if (!i->barrier) {
		REQUIRE_OK(spmt_signal_wait(comm, word, SPMT_CMP_EQ, 1, NULL));
	}
	return spmt_barrier(comm);
}

Test(crowded, sixty_three_idle_waiters)
{
	struct idle i = { .barrier = false };

	NEEDS_HOST("the CPU that a driver's waits take");
	RANKS_OK(ranks_run(64, NULL, idle, &i));
	cr_expect(SANITIZED || i.cores < 0.5, "waits for words took %.2f cores", i.cores);
	i.barrier = true;
	RANKS_OK(ranks_run(64, NULL, idle, &i));
	cr_expect(i.cores < (SANITIZED ? 1.0 : 0.5), "a barrier took %.2f cores", i.cores);
}

/* Again where others have the CPUs: all ranks see the same *best behind the barrier. */
static int thousand(spmt_comm *comm, void *arg)
{
	int64_t begin, *best = arg;

	for (int round = 0; round < 10; round++) {
		REQUIRE_OK(spmt_barrier(comm));
		if (*best < 1000000000)
			break;
		REQUIRE_OK(spmt_barrier(comm));
		begin = calm_ns();
		for (int i = 0; i < 1000; i++)
			REQUIRE_OK(spmt_barrier(comm));
		begin = calm_ns() - begin;
		if (spmt_rank(comm) == 0 && begin < *best)
			*best = begin;
	}
	return 0;
}

Test(crowded, a_thousand_barriers_of_64)
{
	int64_t best = INT64_MAX;

	RANKS_OK(ranks_run(64, NULL, thousand, &best));
	cr_expect(SANITIZED || best < 1000000000, "1,000 barriers took %.2f s", (double)best / 1e9);
}

/* ---- two ranks on one CPU where there are two ----------------------------------------------------------------------------- */

struct pair {
	cpu_set_t one; /* the first CPU of the process */
	bool words;    /* signals there and back; else barriers */
	double ns;     /* CPU time of a turn of both */
	_Atomic long sleeps;
};

enum { TURNS = 2000 };

static int turn(spmt_comm *comm, const struct pair *p, uint64_t *word, uint64_t i)
{
	int me = spmt_rank(comm);

	if (!p->words)
		return spmt_barrier(comm);
	if (me == 1)
		REQUIRE_OK(spmt_signal_wait(comm, word, SPMT_CMP_GE, i, NULL));
	REQUIRE_OK(spmt_signal(comm, word, i, SPMT_SIGNAL_SET, !me));
	if (me == 0)
		REQUIRE_OK(spmt_signal_wait(comm, word, SPMT_CMP_GE, i, NULL));
	return 0;
}

/* Yields are no sleeps. */
static long sleeps_of_thread(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static int turns(spmt_comm *comm, void *arg)
{
	struct pair *p = arg;
	uint64_t *word;
	int64_t cpu;
	long sleeps;

	REQUIRE(!pthread_setaffinity_np(pthread_self(), sizeof(p->one), &p->one));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(uint64_t), (void **)&word));
	REQUIRE_OK(spmt_barrier(comm));
	cpu = cpu_ns();
	sleeps = sleeps_of_thread();
	for (uint64_t i = 1; i <= TURNS; i++)
		TRY(turn(comm, p, word, i));
	atomic_fetch_add(&p->sleeps, sleeps_of_thread() - sleeps);
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0)
		p->ns = (double)(cpu_ns() - cpu) / (double)TURNS;
	return 0;
}

static void share_a_cpu(bool words)
{
	struct pair p = { .words = words };
	cpu_set_t all;
	size_t first = 0;

	NEEDS_HOST("the CPU that a driver's waits take");
	cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	if (CPU_COUNT(&all) < 2)
		cr_skip_test("needs 2 CPUs");
	while (!CPU_ISSET(first, &all))
		first++;
	CPU_SET(first, &p.one);
	RANKS_OK(ranks_run(2, NULL, turns, &p));
	/* Who spins for SPMT_SPIN_US, 20, before the other's turn takes that much. CPU time: others may have the CPU meanwhile. */
	cr_expect(SANITIZED || p.ns < 15e3, "%.1f us of CPU a turn", p.ns / 1e3);
	/* In some 10 ms, one each 2: a thread that wakes is given another CPU, where one is idle. */
	cr_expect_geq(p.sleeps, 1);
	cr_expect_leq(p.sleeps, TURNS / 4);
}

Test(crowded, who_shares_a_cpu_in_barriers_does_not_spin_on_it)
{
	share_a_cpu(false);
}

Test(crowded, who_shares_a_cpu_in_waits_does_not_spin_on_it)
{
	share_a_cpu(true);
}

/* In one process there is no limit but memory. */
static int crowd_here(spmt_comm *world, void *arg)
{
	static spmt_comm *parts[3][300];
	int me = spmt_rank(world);

	(void)arg;
	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i < 300; i++)
			REQUIRE_OK(spmt_split(world, 0, -me, &parts[me][i]));
		for (int i = 0; i < 300; i++)
			REQUIRE_OK(spmt_barrier(parts[me][i]));
		for (int i = 0; i < 300 && !turn; i++)
			REQUIRE_OK(spmt_finalize(parts[me][i]));
	}
	return 0;
}

Test(crowded, as_many_as_are_wanted_in_one_process)
{
	RANKS_OK(ranks_run(3, NULL, crowd_here, NULL));
}

/* The first ranks have looked for other processes when the last one comes. */
static int crowd_late(int index, void *uid)
{
	struct spmt_attr attr = ranks_attr(index, 3, uid);
	spmt_comm *comm;

	if (index == 2)
		sleep_ms(100);
	REQUIRE_OK(spmt_init(&attr, &comm));
	TRY(crowd_here(comm, NULL));
	return spmt_finalize(comm);
}

Test(crowded, as_many_where_one_came_late)
{
	spmt_uid uid;

	cr_assert_eq(spmt_uid_create(&uid), 0);
	RANKS_OK(ranks_threads(3, crowd_late, &uid));
}

enum { PARTS_IN_TURN = 200 };

/* Each has worked, and the next one's stream takes over who worked for it. */
static int parts_in_turn(spmt_comm *world, void *arg)
{
	static uint32_t sum[3];
	struct usage *before = arg;
	int me = spmt_rank(world);

	for (int i = 0; i < PARTS_IN_TURN; i++) {
		uint32_t one = 1;
		spmt_comm *part;

		REQUIRE_OK(spmt_split(world, 0, 0, &part));
		REQUIRE_OK(
			spmt_all_reduce(part, &sum[me], &one, 1, SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_quiet(part));
		REQUIRE_EQ(sum[me], 3);
		REQUIRE_OK(spmt_barrier(world));
		if (me == 0 && i == 0)
			*before = usage_now();
	}
	REQUIRE(me || usage_now().threads - before->threads < PARTS_IN_TURN / 2);
	return spmt_barrier(world);
}

Test(crowded, parts_that_work_in_turn_take_no_threads)
{
	struct usage before = { 0 };

	NEEDS_HOST("streams with threads");
	RANKS_OK(ranks_run(3, NULL, parts_in_turn, &before));
}
