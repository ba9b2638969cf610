/* SPDX-License-Identifier: MIT */
/*
 * Worlds of a launcher's job, on the stand-in for libpmix: ranks of a process come for them side by side, for the next while
 * others are still in the last, for one while another is alive, and with a rank that fails. ThreadSanitizer sees what happens
 * inside of a process.
 */
#include "tests/fakes/pmix_job.h"
#include "tests/lib/tap.h"

enum { RANKS = 6, ALIVE = 3 };

/* The next world of the job, the same one for all: its ranks are those that it has to have. */
static int next_world(const struct spmt_attr *attr, spmt_comm **comm)
{
	REQUIRE_OK(spmt_init(attr, comm));
	REQUIRE_EQ(spmt_rank(*comm), attr->rank);
	REQUIRE_EQ(spmt_nranks(*comm), attr->nranks);
	return 0;
}

/* ---- one after the other ------------------------------------------------------------------------------------------- */

/* The first rank of each process is in every third world alone: the others come to the next before it. */
static int in_a_row(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank), small;
	int process = launched_as(job, rank);
	spmt_comm *comm;

	small = attr;
	small.nranks = job->fake->processes;
	small.rank = process;
	for (size_t i = 0; i < test_count(60, 1000); i++) {
		TRY(next_world(&attr, &comm));
		TRY(world_works(comm));
		REQUIRE_OK(spmt_finalize(comm));
		if (i % 3)
			continue;
		/* all of a process have to have come to the last world before one goes on to the next */
		if (processes_position(job->p.layout, rank) == 0) {
			TRY(next_world(&small, &comm));
			TRY(world_works(comm));
			REQUIRE_OK(spmt_finalize(comm));
			atomic_fetch_add(&job->shared[process], 1);
		}
		while (atomic_load(&job->shared[process]) <= (int)i / 3)
			sleep_ms(1);
	}
	return 0;
}

/* ---- several alive ------------------------------------------------------------------------------------------------- */

static int at_once(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank);
	spmt_comm *alive[ALIVE] = { NULL };

	launched_as(job, rank);
	for (size_t i = 0; i < test_count(60, 1000); i++) {
		spmt_comm **place = &alive[i % ALIVE];

		if (*place)
			REQUIRE_OK(spmt_finalize(*place));
		*place = NULL;
		TRY(next_world(&attr, place));
		for (int k = 0; k < ALIVE; k++)
			if (alive[k])
				TRY(world_works(alive[k]));
	}
	for (int k = 0; k < ALIVE; k++)
		REQUIRE_OK(spmt_finalize(alive[k]));
	return 0;
}

/* ---- one rank fails ------------------------------------------------------------------------------------------------- */

/* Ways to fail: before the world is known to whom it belongs, and after. */
static void spoil(struct spmt_attr *attr, size_t how)
{
	if (how == 0)
		attr->device = -7;
	else if (how == 1)
		attr->rank = RANKS + 3;
	else
		attr->backend = "abacus";
}

static void all_here(struct job *job, _Atomic int *count, int turn)
{
	atomic_fetch_add(count, 1);
	while (atomic_load(count) < turn * job->nranks && !atomic_load(&job->shared[9]))
		sleep_ms(1);
}

static int one_fails(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank), odd;
	spmt_comm *comm = NULL;

	launched_as(job, rank);
	for (size_t i = 0; i < test_count(12, 120); i++) {
		bool mine = i % RANKS == (size_t)rank;
		int code;

		odd = attr;
		if (mine)
			spoil(&odd, i % 3);
		/* A failure is told for a moment to those who come: who comes later misses somebody. */
		odd.timeout_ms = LAUNCH_SHORT_MS;
		all_here(job, &job->shared[10], 2 * (int)i + 1);
		code = spmt_init(&odd, &comm);
		if (code >= 0 || (mine && code == SPMT_ERR_TIMEOUT))
			atomic_store(&job->shared[9], 1);
		REQUIRE(code < 0 && (!mine || code != SPMT_ERR_TIMEOUT));
		REQUIRE(*spmt_last_error());
		all_here(job, &job->shared[10], 2 * (int)i + 2);
		TRY(next_world(&attr, &comm));
		TRY(world_works(comm));
		REQUIRE_OK(spmt_finalize(comm));
	}
	return 0;
}

/* ---- the launcher is slow -------------------------------------------------------------------------------------------- */

/* Some give up while the library asks, the others wait for it; then it answers, and all come again. */
static int server_is_slow(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank), hasty;
	int process = launched_as(job, rank);
	spmt_comm *comm;

	hasty = attr;
	hasty.timeout_ms = 20 + 10 * rank;
	for (int i = 0; i < 5; i++) {
		REQUIRE_CODE(spmt_init(&hasty, &comm), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("the launcher's PMIx server is silent");
	}
	all_here(job, &job->shared[10], 1);
	if (rank == process * RANKS / 2)
		atomic_store(&job->fake->hang[FAKE_INIT], 0);
	for (int i = 0; i < 3; i++)
		TRY(world_once(&attr));
	return 0;
}

/* ---------------------------------------------------------------------------------------------------------------------- */

static int run(int (*fn)(int rank, void *arg))
{
	struct job job;

	job_make(&job, "0,1,2|3,4,5", 2);
	job.nranks = RANKS;
	job.p.seconds = 100;
	if (fn == server_is_slow) {
		job.fake->whom = 3;
		atomic_store(&job.fake->hang[FAKE_INIT], 1);
	}
	return processes_run(&job.p, fn, &job);
}

static int rows(void)
{
	return run(in_a_row);
}

static int side_by_side(void)
{
	return run(at_once);
}

static int failures(void)
{
	return run(one_fails);
}

static int slowness(void)
{
	return run(server_is_slow);
}

int main(void)
{
	static const struct test_case cases[] = { { "one after the other", rows },
		{ "several alive", side_by_side }, { "one rank fails", failures },
		{ "a slow server", slowness } };

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
