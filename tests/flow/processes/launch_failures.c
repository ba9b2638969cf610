/* SPDX-License-Identifier: MIT */
/*
 * What a server, a library or a process of a launcher's job can do wrong, on a stand-in for libpmix: a sentence that says
 * which, and nobody waits beyond the deadline.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/fakes/pmix_job.h"

enum { SHORT_MS = LAUNCH_SHORT_MS, LONG_MS = LAUNCH_LONG_MS, VICTIM = 2 };

/* ---- libraries that are none ------------------------------------------------------------------------------------- */

static int no_library(int rank, void *arg)
{
	struct job *job = arg;

	for (int i = 0; i < 3; i++)
		TRY(init_refuses(job, rank, job->arg, "SPMT_PMIX_LIB"));
	return 0;
}

static void library_is_none(const char *path, int code)
{
	struct job job;

	job_make(&job, "0|1", 2);
	job.arg = code;
	setenv("SPMT_PMIX_LIB", path, 1);
	RANKS_OK(processes_run(&job.p, no_library, &job));
}

Test(launch_failures, libpmix_is_not_there)
{
	library_is_none("/nonexistent/libpmix.so.2", -ENOENT);
}

Test(launch_failures, libpmix_is_a_fifo)
{
	char path[64];
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
	library_is_none(path, -ENOENT);
}

Test(launch_failures, libpmix_is_another_library)
{
	library_is_none("libm.so.6", SPMT_ERR_UNSUPPORTED);
}

Test(launch_failures, no_launcher)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_comm *comm;

	unsetenv("PMIX_NAMESPACE");
	unsetenv("PMIX_RANK");
	cr_assert_eq(spmt_init(&attr, &comm), -EINVAL);
	cr_assert(strstr(spmt_last_error(), "mpirun"), "%s", spmt_last_error());
}

/* ---- calls that fail, hang or lie -------------------------------------------------------------------------------- */

static const char *const call_names[FAKE_CALLS] = { "PMIx_Init", "PMIx_Finalize", "PMIx_Put",
	"PMIx_Commit", "PMIx_Fence", "PMIx_Get", "PMIx_Get" };

/* The victim of a call that gives an error hears which; nobody waits beyond the deadline. */
static int call_fails(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank);
	int64_t begin = calm_ns();
	spmt_comm *comm;
	int code, process = launched_as(job, rank);

	code = spmt_init(&attr, &comm);
	REQUIRE(code < 0);
	REQUIRE(ms_since(begin) < 3 * SHORT_MS + 1000);
	if (!(job->fake->whom >> process & 1)) {
		REQUIRE_EQ(code, SPMT_ERR_TIMEOUT);
	} else if (job->arg == FAKE_GET_JOB) {
		REQUIRE_EQ(code, -EPROTO);
	} else {
		REQUIRE_EQ(code, -EIO);
		REQUIRE_SAYS(call_names[job->arg]);
		REQUIRE_SAYS("A-FAKE-FAILURE");
	}
	return 0;
}

static void one_call(int call, int victim, bool hang, int (*fn)(int rank, void *arg))
{
	struct job job;

	job_make(&job, "0|1|2", 3);
	job.timeout_ms = SHORT_MS;
	job.arg = call;
	job.fake->whom = 1u << victim;
	if (hang)
		atomic_store(&job.fake->hang[call], 1);
	else
		job.fake->status[call] = -1;
	cr_assert_eq(processes_run(&job.p, fn, &job), 0, "%s in process %d: %s", call_names[call],
		victim, ranks_message());
}

Test(launch_failures, calls_fail, .timeout = 120)
{
	for (int call = 0; call < FAKE_CALLS; call++)
		if (call != FAKE_FINALIZE)
			one_call(call, call == FAKE_PUT ? 0 : VICTIM, false, call_fails);
}

static int call_hangs(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank);
	spmt_comm *comm;
	int process = launched_as(job, rank);

	for (int i = 0; i < 2; i++) {
		int64_t begin = calm_ns();

		REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_TIMEOUT);
		REQUIRE(ms_since(begin) < 3 * SHORT_MS + 1000);
		if (job->fake->whom >> process & 1)
			REQUIRE_SAYS(call_names[job->arg]);
	}
	return 0;
}

Test(launch_failures, calls_hang, .timeout = 120)
{
	for (int call = 0; call < FAKE_CALLS; call++)
		if (call != FAKE_FINALIZE)
			one_call(call, call == FAKE_PUT ? 0 : VICTIM, true, call_hangs);
}

static int server_lies(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank);
	int64_t begin = calm_ns();
	spmt_comm *comm;
	int code, process = launched_as(job, rank);

	code = spmt_init(&attr, &comm);
	REQUIRE(ms_since(begin) < 3 * SHORT_MS + 1000);
	if (process != VICTIM)
		REQUIRE_EQ(code, SPMT_ERR_TIMEOUT);
	else
		REQUIRE_EQ(code, job->fake->lie >= FAKE_FLIPPED ? -EINVAL : -EPROTO);
	if (process == VICTIM)
		REQUIRE_SAYS("server");
	else
		REQUIRE_SAYS("missing");
	return 0;
}

Test(launch_failures, values_are_not_trusted, .timeout = 120)
{
	for (int lie = FAKE_HONEST + 1; lie < FAKE_LIES; lie++) {
		struct job job;

		job_make(&job, "0|1|2", 3);
		job.timeout_ms = SHORT_MS;
		job.fake->whom = 1u << VICTIM;
		job.fake->lie = (enum fake_pmix_lie)lie;
		cr_assert_eq(processes_run(&job.p, server_lies, &job), 0, "lie %d: %s", lie,
			ranks_message());
	}
}

static int wrong_size(int rank, void *arg)
{
	return init_refuses(arg, rank, -EPROTO, "says rank");
}

Test(launch_failures, sizes_are_not_trusted)
{
	static const uint32_t sizes[] = { UINT32_MAX, 1u << 31, (1u << 24) + 1 };

	for (int i = 0; i < 3; i++) {
		struct job job;

		job_make(&job, "0|1", 2);
		job.fake->job_size = sizes[i];
		RANKS_OK(processes_run(&job.p, wrong_size, &job));
	}
}

/* ---- processes that die or come late ----------------------------------------------------------------------------- */

static int dies_before(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank);
	int64_t begin = calm_ns();
	spmt_comm *comm;

	if (launched_as(job, rank) == VICTIM)
		raise(SIGKILL);
	REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("PMIx_Fence");
	REQUIRE(ms_since(begin) < 3 * SHORT_MS + 1000);
	return 0;
}

Test(launch_failures, a_process_dies_before_the_fence)
{
	struct job job;

	for (int ignore = 0; ignore < 2; ignore++) {
		job_make(&job, "0|1|2", 3);
		job.timeout_ms = SHORT_MS;
		job.p.killed = 1u << VICTIM;
		atomic_store(&job.fake->ignore_timeout, ignore);
		RANKS_OK(processes_run(&job.p, dies_before, &job));
	}
}

/* The others give up, and are there again when it comes. */
static int comes_late(int rank, void *arg)
{
	struct job *job = arg;
	struct spmt_attr attr = job_attr(job, rank);
	spmt_comm *comm;

	if (launched_as(job, rank) == VICTIM) {
		sleep_ms(4 * SHORT_MS);
	} else {
		REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_TIMEOUT);
		REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_TIMEOUT);
	}
	attr.timeout_ms = LONG_MS;
	TRY(world_once(&attr));
	return world_once(&attr);
}

Test(launch_failures, a_process_comes_late, .timeout = 120)
{
	struct job job;

	for (int ignore = 0; ignore < 2; ignore++) {
		job_make(&job, "0|1|2", 3);
		job.timeout_ms = SHORT_MS;
		atomic_store(&job.fake->ignore_timeout, ignore);
		RANKS_OK(processes_run(&job.p, comes_late, &job));
	}
}
