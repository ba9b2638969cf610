/* SPDX-License-Identifier: MIT */
/*
 * A stand-in for libpmix.so.2 and the launcher behind it. The job is a struct in memory that its processes share,
 * made by the test before it forks them; FAKE_PMIX is its address, PMIX_RANK the process's number.
 */
#ifndef TESTS_FAKE_PMIX_H
#define TESTS_FAKE_PMIX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum fake_pmix_call {
	FAKE_INIT,
	FAKE_FINALIZE,
	FAKE_PUT,
	FAKE_COMMIT,
	FAKE_FENCE,
	FAKE_GET_JOB, /* the job's size, the local rank */
	FAKE_GET,     /* what a process has put */
	FAKE_CALLS
};

enum fake_pmix_lie {
	FAKE_HONEST,
	FAKE_NO_VALUE, /* success, and no value */
	FAKE_SHORTER,  /* bytes, too few */
	FAKE_LONGER,   /* too many */
	FAKE_NO_BYTES, /* as many as there should be, at NULL */
	FAKE_OTHER_TYPE,
	FAKE_FLIPPED, /* one bit of them */
	FAKE_ZEROS,
	FAKE_LIES
};

enum { FAKE_PROCESSES = 8 };

struct fake_pmix {
	int processes, nodes; /* 0 nodes: 1. Process p is on node p % nodes */
	const char *version;  /* NULL: of 4.2 */
	/* what goes wrong, and in which processes (a bit each) */
	unsigned whom;
	int status[FAKE_CALLS];	      /* not 0: what the call returns */
	_Atomic int hang[FAKE_CALLS]; /* not 0: until it is 0 again */
	enum fake_pmix_lie lie;
	uint32_t job_size; /* not 0: what is said of it */
	_Atomic int no_local_rank, ignore_timeout;
	/* what has happened */
	_Atomic int calls[FAKE_CALLS], inits[FAKE_PROCESSES], finals[FAKE_PROCESSES];
	/* the server */
	pthread_mutex_t lock;
	unsigned char put[256], committed[256];
	uint64_t put_size, committed_size;
	int at_fence;
	uint64_t fences;
};

#endif
