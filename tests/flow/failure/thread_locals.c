/* SPDX-License-Identifier: MIT */
/* A program whose thread-local variables are larger than the stacks of the library's own threads, in which a C library has both. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/ranks.h"

enum { RANKS = 2, BYTES = 1 << 20 };

static _Thread_local volatile char large[3 << 20];

static int exchange(spmt_comm *comm)
{
	int rank = spmt_rank(comm);
	unsigned char *buffer;
	void *p;

	large[0] = 1;
	REQUIRE_OK(spmt_calloc(comm, 2, BYTES, &p));
	buffer = p;
	memset(buffer, 1 + rank, BYTES);
	REQUIRE_OK(spmt_put_on_stream(comm, buffer + BYTES, buffer, BYTES, !rank, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_barrier(comm));
	for (size_t i = 0; i < BYTES; i++)
		REQUIRE_EQ(buffer[BYTES + i], 1 + !rank);
	return spmt_finalize(comm);
}

/* On the process's first thread: tests' others have small stacks, too. */
static int process_main(int rank, const spmt_uid *uid)
{
	struct spmt_attr attr = ranks_attr(rank, RANKS, uid);
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	return exchange(comm);
}

static void two_processes(void)
{
	pid_t pid[RANKS];
	spmt_uid uid;

	cr_assert_eq(spmt_uid_create(&uid), 0);
	for (int rank = 0; rank < RANKS; rank++) {
		pid[rank] = fork();
		cr_assert_geq(pid[rank], 0);
		if (!pid[rank]) {
			int rc = process_main(rank, &uid);

			if (rc)
				fprintf(stderr, "%s\n", spmt_last_error());
			_exit(rc != 0);
		}
	}
	for (int rank = 0; rank < RANKS; rank++) {
		int status = -1;

		cr_assert_eq(waitpid(pid[rank], &status, 0), pid[rank]);
		cr_expect_eq(status, 0, "rank %d: %x", rank, (unsigned)status);
	}
}

Test(thread_locals, between_processes)
{
	NEEDS_DEVICES(RANKS);
	two_processes();
}

Test(thread_locals, by_engines)
{
	NEEDS_DEVICES(RANKS);
	setenv("SPMT_MOVES", "sdma", 1);
	setenv("SPMT_SDMA", "queues", 1);
	two_processes();
}
