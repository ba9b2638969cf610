/* SPDX-License-Identifier: MIT */
/*
 * Worlds of a launcher's job, on a stand-in for libpmix: ranks, devices, many worlds, arguments that do not fit, and the
 * end of a process. tests/flow/processes/mpirun.sh does it with a launcher.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fakes/pmix_job.h"

enum { LONG_MS = LAUNCH_LONG_MS, VICTIM = 2 };

/* Processes here end by exit, in the middle of threads, to see what the library does then: a look for leaks at that
   moment finds the other threads' stacks. */
const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
	return "detect_leaks=0";
}

/* ---- worlds that come about ------------------------------------------------------------------------------------- */

static int rank_a_process(int rank, void *arg)
{
	struct job *job = arg;
	int process = launched_as(job, rank), nodes = job->fake->nodes;
	struct spmt_attr attr = job_attr(job, rank);
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_EQ(spmt_rank(comm), process);
	REQUIRE_EQ(spmt_nranks(comm), job->fake->processes);
	REQUIRE_EQ(spmt_device(comm), job->arg >= 0 ? job->arg : process / (nodes ? nodes : 1));
	TRY(world_works(comm));
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

Test(launch, rank_and_nranks_are_the_launchers)
{
	struct job job;

	job_make(&job, "0|1|2|3", 4);
	job.arg = -1;
	RANKS_OK(processes_run(&job.p, rank_a_process, &job));
	cr_expect_eq(atomic_load(&job.fake->calls[FAKE_INIT]), 4);
	cr_expect_eq(atomic_load(&job.fake->calls[FAKE_FENCE]), 4);
}

Test(launch, one_process)
{
	struct job job;

	job_make(&job, "0", 1);
	job.arg = -1;
	RANKS_OK(processes_run(&job.p, rank_a_process, &job));
}

Test(launch, devices_begin_anew_on_each_node)
{
	struct job job;

	job_make(&job, "0|1|2|3|4|5", 6);
	job.arg = -1;
	job.fake->nodes = 2;
	RANKS_OK(processes_run(&job.p, rank_a_process, &job));
}

/* A launcher that binds a GPU to each process: all see one, and it is theirs. */
Test(launch, the_only_device_is_the_processes_own)
{
	struct job job;

	job_make(&job, "0|1|2", 3);
	setenv("SPMT_HOST_DEVICES", "1", 1);
	RANKS_OK(processes_run(&job.p, rank_a_process, &job));
}

/* Without a word on nodes all count as first of theirs. */
Test(launch, no_local_rank)
{
	struct job job;

	job_make(&job, "0|1|2", 3);
	atomic_store(&job.fake->no_local_rank, 1);
	RANKS_OK(processes_run(&job.p, rank_a_process, &job));
}

static int no_wrap(int rank, void *arg)
{
	return init_refuses(arg, rank, -ENODEV, "number 2 of its node");
}

Test(launch, devices_do_not_wrap)
{
	struct job job;

	job_make(&job, "0|1|2", 3);
	setenv("SPMT_HOST_DEVICES", "2", 1);
	RANKS_OK(processes_run(&job.p, no_wrap, &job));
}

static int ranks_share(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank);

	launched_as(job, rank);
	return worlds_in_a_row(&attr, rank, job->arg);
}

Test(launch, several_ranks_a_process, .timeout = 120)
{
	struct job job;

	job_make(&job, "0,1|2,3|4,5", 3);
	job.nranks = 6;
	job.arg = 20;
	RANKS_OK(processes_run(&job.p, ranks_share, &job));
	cr_expect_eq(atomic_load(&job.fake->calls[FAKE_INIT]), 3);
	cr_expect_eq(atomic_load(&job.fake->calls[FAKE_FENCE]), 3);
}

Test(launch, a_hundred_worlds, .timeout = 120)
{
	struct job job;

	job_make(&job, "0|1|2", 3);
	job.nranks = 3;
	job.arg = 100;
	RANKS_OK(processes_run(&job.p, ranks_share, &job));
	cr_expect_eq(atomic_load(&job.fake->calls[FAKE_INIT]), 3);
	cr_expect_eq(atomic_load(&job.fake->calls[FAKE_FENCE]), 3);
}

/* Two ranks of a process are in some worlds, one in others: in the same order in both processes. */
static int sizes_change(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank);

	int process = launched_as(job, rank);
	_Atomic int *small = &job->shared[process];

	for (int i = 0; i < 4; i++) {
		TRY(world_once(&attr));
		while (rank % 2 && atomic_load(small) <= i)
			sleep_ms(1);
		if (rank % 2)
			continue;
		attr.nranks = 2;
		attr.rank = process;
		TRY(world_once(&attr));
		attr = job_attr(job, rank);
		atomic_fetch_add(small, 1);
	}
	return 0;
}

Test(launch, worlds_of_other_sizes)
{
	struct job job;

	job_make(&job, "0,1|2,3", 2);
	job.nranks = 4;
	RANKS_OK(processes_run(&job.p, sizes_change, &job));
}

static int versions(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank);
	spmt_comm *comm;

	launched_as(job, rank);
	if (!job->arg)
		return world_once(&attr);
	REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_UNSUPPORTED);
	REQUIRE_SAYS(job->fake->version);
	REQUIRE_SAYS("SPMT_PMIX_LIB");
	return 0;
}

Test(launch, versions_of_libpmix)
{
	static const char *const names[] = { "OpenPMIx 3.2.5, repo rev: v3",
		"OpenPMIx 5.0.1 (PMIx Standard: 5.0)", "6.0", "a version nobody can read",
		"OpenPMIx 2.1.4", "PMIx 1.2" };

	for (int i = 0; i < 6; i++) {
		struct job job;

		job_make(&job, "0|1", 2);
		job.fake->version = names[i];
		job.arg = i >= 4;
		RANKS_OK(processes_run(&job.p, versions, &job));
	}
}

/* ---- what does not ask the launcher ------------------------------------------------------------------------------ */

static int nothing(spmt_comm *comm, void *arg)
{
	(void)arg;
	return world_works(comm);
}

static int leave_one(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_finalize(comm);
}

static int not_asked(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank), both[2];
	spmt_comm *comms[2];

	launched_as(job, rank);
	attr.nranks = 1;
	attr.rank = 0;
	TRY(world_once(&attr));
	REQUIRE_OK(spmt_run(2, &attr, nothing, NULL));
	attr.nranks = 2;
	for (int i = 0; i < 2; i++) {
		both[i] = attr;
		both[i].rank = i;
	}
	REQUIRE_OK(spmt_init_all(2, both, comms));
	REQUIRE_OK(spmt_each(2, comms, nothing, NULL));
	REQUIRE_OK(spmt_each(2, comms, leave_one, NULL));
	attr.uid = &job->p.uid[0];
	attr.rank = rank;
	return world_once(&attr);
}

Test(launch, only_who_has_no_uid_asks)
{
	struct job job;

	job_make(&job, "0|1", 2);
	RANKS_OK(processes_run(&job.p, not_asked, &job));
	cr_expect_eq(atomic_load(&job.fake->calls[FAKE_INIT]), 0);
}

static int all_at_once(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr both[2];
	spmt_comm *comms[2];
	int process = launched_as(job, rank);

	for (int i = 0; i < 2; i++)
		both[i] = job_attr(job, 2 * process + i);
	REQUIRE_OK(spmt_init_all(2, both, comms));
	REQUIRE_EQ(spmt_nranks(comms[1]), 4);
	REQUIRE_OK(spmt_each(2, comms, nothing, NULL));
	REQUIRE_OK(spmt_each(2, comms, leave_one, NULL));
	return 0;
}

Test(launch, init_all_in_a_job)
{
	struct job job;

	job_make(&job, "0|1", 2);
	job.nranks = 4;
	RANKS_OK(processes_run(&job.p, all_at_once, &job));
}

/* ---- arguments that do not fit ----------------------------------------------------------------------------------- */

/* A failure is told for a tenth of a second to those who come: all come at once. */
static void in_step(struct job *job, int turn)
{
	atomic_fetch_add(&job->shared[turn], 1);
	while (atomic_load(&job->shared[turn]) < job->fake->processes)
		sleep_ms(1);
}

static int misfits(int rank, void *arg)
{
	static const struct {
		int nranks, first, step;
		const char *word;
	} bad[] = { { 5, 0, 1, "multiple" }, { 2, 0, 0, "multiple" }, { 3, 2, -1, "has the ranks" },
		{ 6, 0, 1, "has the ranks" }, { 0, 1, 0, "nranks 0" }, { -3, 0, 1, "nranks" },
		{ 3, -1, 0, "rank" } };
	struct job *job = arg;
	int process = launched_as(job, rank);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct spmt_attr attr = job_attr(job, 0);
		spmt_comm *comm;
		int64_t begin;

		attr.nranks = bad[i].nranks;
		attr.rank = bad[i].first + bad[i].step * process;
		in_step(job, (int)i);
		begin = calm_ns();
		REQUIRE_CODE(spmt_init(&attr, &comm), -EINVAL);
		REQUIRE(ms_since(begin) < LONG_MS / 2);
		if (process == 2)
			REQUIRE_SAYS(bad[i].word);
	}
	return rank_a_process(rank, job);
}

/* All hear of one that passes what cannot be, and the next world comes about. */
Test(launch, misfits_are_told)
{
	struct job job;

	job_make(&job, "0|1|2", 3);
	job.arg = -1;
	RANKS_OK(processes_run(&job.p, misfits, &job));
}

static int one_misfit(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank);
	int64_t begin;
	spmt_comm *comm;
	int process = launched_as(job, rank);

	TRY(world_once(&attr));
	if (process == VICTIM) {
		attr.nranks = 5;
		sleep_ms(200); /* the others wait for it by then */
	}
	begin = calm_ns();
	REQUIRE_CODE(spmt_init(&attr, &comm), -EINVAL);
	REQUIRE_SAYS("multiple");
	REQUIRE(ms_since(begin) < LONG_MS / 2);
	return rank_a_process(rank, job);
}

Test(launch, a_misfit_is_heard_of)
{
	struct job job;

	job_make(&job, "0|1|2|3", 4);
	job.arg = -1;
	RANKS_OK(processes_run(&job.p, one_misfit, &job));
}

/* Until all n have come, or one has failed. */
static void all_of(int n, struct job *job, int turn)
{
	int64_t end = now_ns() + LONG_MS / 4 * (int64_t)1000000;

	atomic_fetch_add(&job->shared[turn], 1);
	while (atomic_load(&job->shared[turn]) < n && now_ns() < end)
		sleep_ms(1);
}

enum { OWN = 99 };

static const struct odd_call {
	int rank, nranks;  /* OWN: what is right */
	unsigned turns[4]; /* bit r: rank r passes it */
	const char *word;
} odd_calls[] = { { 9, OWN, { 1, 2, 4, 8 }, "has the ranks" },
	{ -1, OWN, { 1, 2, 4, 8 }, "has the ranks" }, { OWN, 5, { 1, 2, 4, 8 }, "multiple" },
	{ OWN, -1, { 1, 2, 4, 8 }, "nranks -1" }, { OWN, 40000, { 1, 2, 4, 8 }, "40000" },
	{ 1, 0, { 1, 2, 4, 8 }, "nranks 0" }, { OWN, 5, { 3, 12, 7, 15 }, "multiple" },
	{ OWN, 40000, { 3, 12, 7, 15 }, "40000" } };

static int some_are_odd(int rank, void *arg)
{
	struct job *job = arg;
	const struct odd_call *call = &odd_calls[job->arg];
	struct spmt_attr attr = job_attr(job, rank), odd;
	spmt_comm *comm;

	launched_as(job, rank);
	TRY(world_once(&attr));
	for (int i = 0; i < 4; i++) {
		int code;
		bool mine = call->turns[i] >> rank & 1;

		odd = attr;
		if (mine && call->rank != OWN)
			odd.rank = call->rank;
		if (mine && call->nranks != OWN)
			odd.nranks = call->nranks;
		all_of(4, job, 2 * i);
		sleep_ms(rank == i ? 5 * (i % 3)
				   : 5); /* before the other of its process, or after */
		code = spmt_init(&odd, &comm);
		/* where numbers of ranks differ, that may be heard of first */
		if (mine || call->nranks == OWN)
			REQUIRE_EQ(code, -EINVAL);
		else
			REQUIRE(code < 0);
		if (mine)
			REQUIRE_SAYS(call->word);
		all_of(4, job, 2 * i + 1);
		TRY(world_once(&attr));
	}
	return 0;
}

/* Their process has been to the world all the same: the next is the same one for all. */
Test(launch, ranks_that_fit_no_job, .timeout = 120)
{
	for (size_t i = 0; i < sizeof(odd_calls) / sizeof(odd_calls[0]); i++) {
		struct job job;

		job_make(&job, "0,1|2,3", 2);
		job.nranks = 4;
		job.arg = (int)i;
		job.timeout_ms = 2 * LAUNCH_SHORT_MS;
		cr_assert_eq(processes_run(&job.p, some_are_odd, &job), 0, "call %zu: %s", i,
			ranks_message());
	}
}

/* Rank 0 takes the world of four for the one of eight that comes after it. */
static int one_passes_more(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank), less = attr;
	int position = rank % 4, process = launched_as(job, rank);
	spmt_comm *comm;

	if (position < 2) {
		less.rank = 2 * process + position;
		less.nranks = rank ? 4 : 8;
		all_of(4, job, 0);
		sleep_ms(rank == 1 ? 20 : 0); /* rank 0 is to be the first */
		REQUIRE(spmt_init(&less, &comm) < 0);
	}
	all_of(8, job, 1);
	return world_once(&attr);
}

/* The others of its process in the world of eight were to complete the one that failed. */
Test(launch, a_rank_that_passes_more)
{
	struct job job;

	NEEDS_LAYOUT("0,1,2,3|4,5,6,7");
	job_make(&job, "0,1,2,3|4,5,6,7", 2);
	job.nranks = 8;
	job.timeout_ms = 4 * LAUNCH_SHORT_MS;
	RANKS_OK(processes_run(&job.p, one_passes_more, &job));
}

/* ---- the end of a process ---------------------------------------------------------------------------------------- */

static int ends(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank);

	launched_as(job, rank);
	if (job->arg)
		atomic_store(&job->fake->hang[FAKE_FINALIZE], job->arg);
	for (int i = 0; i < 3; i++)
		TRY(world_once(&attr));
	if (atomic_load(&job->fake->finals[launched_as(job, rank)]))
		return ranks_fail("finalized before its end");
	exit(0);
}

Test(launch, the_server_hears_of_the_end)
{
	struct job job;

	job_make(&job, "0|1", 2);
	RANKS_OK(processes_run(&job.p, ends, &job));
	for (int p = 0; p < 2; p++) {
		cr_expect_eq(atomic_load(&job.fake->inits[p]), 1);
		cr_expect_eq(atomic_load(&job.fake->finals[p]), 1);
	}
}

Test(launch, a_server_that_is_silent_at_the_end, .timeout = 60)
{
	int64_t begin = calm_ns();
	struct job job;

	job_make(&job, "0|1", 2);
	job.fake->whom = 3;
	job.arg = 1;
	RANKS_OK(processes_run(&job.p, ends, &job));
	cr_expect_lt(ms_since(begin), 15000);
}

static int forks(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank);
	int status, process = launched_as(job, rank);
	pid_t child;
	spmt_comm *comm;

	TRY(world_once(&attr));
	child = fork();
	if (!child)
		exit(spmt_init(&attr, &comm) == SPMT_ERR_FORKED &&
					strstr(spmt_last_error(), "forked")
				? 7
				: 8);
	REQUIRE_EQ(waitpid(child, &status, 0), child);
	REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	REQUIRE_EQ(atomic_load(&job->fake->finals[process]), 0);
	return world_once(&attr);
}

Test(launch, a_forked_child_is_no_part_of_the_job)
{
	struct job job;

	job_make(&job, "0|1", 2);
	RANKS_OK(processes_run(&job.p, forks, &job));
	cr_expect_eq(atomic_load(&job.fake->inits[0]), 1);
}
