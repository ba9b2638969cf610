/* SPDX-License-Identifier: MIT */
/* What the suites on jobs share: a job of a stand-in launcher. */
#ifndef TESTS_PMIX_JOB_H
#define TESTS_PMIX_JOB_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake_pmix.h"
#include "tests/lib/processes.h"
#include "tests/lib/world_works.h"

struct job {
	struct processes p;
	struct fake_pmix *fake;
	int64_t timeout_ms;
	int nranks;	     /* attr.nranks; 0: the job's, and rank */
	int arg;	     /* of the test */
	_Atomic int *shared; /* what all processes see */
};

enum { LAUNCH_SHORT_MS = SANITIZED ? 2000 : 1000, LAUNCH_LONG_MS = SANITIZED ? 60000 : 20000 };

static inline struct spmt_attr job_attr(const struct job *job, int rank)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.backend = "host";
	attr.heap_size = 4u << 20;
	attr.timeout_ms = job->timeout_ms;
	attr.nranks = job->nranks;
	attr.rank = job->nranks ? rank : 0;
	return attr;
}

#ifdef FAKES /* the folder of the stand-ins */
static inline void job_make(struct job *job, const char *layout, int processes)
{
	pthread_mutexattr_t attr;
	char at[32];

	*job = (struct job){ .p.layout = layout, .timeout_ms = LAUNCH_LONG_MS };
	job->fake = processes_shared(sizeof(*job->fake));
	job->shared = processes_shared(4096);
	if (!job->fake || !job->shared)
		abort();
	job->fake->processes = processes;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&job->fake->lock, &attr);
	snprintf(at, sizeof(at), "%llx", (unsigned long long)(uintptr_t)job->fake);
	setenv("FAKE_PMIX", at, 1);
	setenv("SPMT_PMIX_LIB", FAKES "/fake-pmix.so", 1);
	setenv("PMIX_NAMESPACE", "job", 1);
}
#endif

/* What the launcher would have set for this process, by the first of its ranks. */
static inline int launched_as(const struct job *job, int rank)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int process = processes_of(job->p.layout, rank);
	char text[16];

	pthread_mutex_lock(&lock);
	if (!getenv("PMIX_RANK")) {
		snprintf(text, sizeof(text), "%d", process);
		setenv("PMIX_RANK", text, 1);
	}
	pthread_mutex_unlock(&lock);
	return process;
}

static inline int init_refuses(const struct job *job, int rank, int code, const char *says)
{
	struct spmt_attr attr = job_attr(job, rank);
	spmt_comm *comm;

	launched_as(job, rank);
	REQUIRE_CODE(spmt_init(&attr, &comm), code);
	REQUIRE_SAYS(says);
	return 0;
}

#endif
