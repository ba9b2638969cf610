/* SPDX-License-Identifier: MIT */
/*
 * For nodes.sh: a process of a world over nodes. nodes FILE NRANKS RANK..: a thread a rank; that of rank 0 writes the uid to FILE,
 * the others wait for it there. Each prints "RANK CODE SECONDS SENTENCE".
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spmt.h"
#include "uid_file.h"

enum { RANKS_MOST = 16, DEADLINE_MS = 60000 };

struct rank {
	pthread_t thread;
	const spmt_uid *uid;
	int rank, nranks;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *live(void *arg)
{
	const struct rank *r = arg;
	struct spmt_attr attr = SPMT_ATTR_INIT;
	double begin = now(), end;
	spmt_comm *comm;
	int rc;

	attr.rank = r->rank;
	attr.nranks = r->nranks;
	attr.uid = r->uid;
	attr.timeout_ms = DEADLINE_MS;
	rc = spmt_init(&attr, &comm);
	end = now();
	if (!rc)
		rc = spmt_barrier(comm);
	printf("%d %d %.0f %s\n", r->rank, rc, end - begin, rc ? spmt_last_error() : "");
	if (!rc)
		rc = spmt_finalize(comm);
	return NULL;
}

int main(int argc, char **argv)
{
	struct rank ranks[RANKS_MOST] = { 0 };
	int n = argc - 3, first = n > 0 ? atoi(argv[3]) : -1;
	spmt_uid uid;

	if (n < 1 || n > RANKS_MOST)
		return 2;
	if (first ? uid_from_file(argv[1], &uid) : uid_to_file(argv[1], &uid))
		return 3;
	for (int i = 0; i < n; i++) {
		ranks[i].uid = &uid;
		ranks[i].rank = atoi(argv[3 + i]);
		ranks[i].nranks = atoi(argv[2]);
		if (pthread_create(&ranks[i].thread, NULL, live, &ranks[i]))
			return 4;
	}
	for (int i = 0; i < n; i++)
		pthread_join(ranks[i].thread, NULL);
	return 0;
}
