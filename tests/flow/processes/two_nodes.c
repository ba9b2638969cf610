/* SPDX-License-Identifier: MIT */
/*
 * For two_nodes.sh: a process of a world over nodes, which reaches the others by parcels (tests/lib/transports/parcel.h), and for
 * tests/vm/two.sh by map rdma. two_nodes HOW
 * FILE NRANKS RANK..: a thread a rank; that of rank 0 writes the uid to FILE, the others wait for it there. Each prints
 * "RANK CODE MS SENTENCE"; MS: how long its last barrier took. HOW:
 *
 * once   calls of all kinds, then the end
 * loop   then barriers until one fails; "ready" is printed before
 * die    the same, until the last rank kills its process
 * shrink the same, and the others go on in a world of their own
 * lead   as shrink, but it is rank 0 that kills its process, by which nodes agree
 * part   as loop, and whoever is told of a death goes on with the others that live
 * late   the last rank does not come to the first barrier; rank 0 gives up on it soon, when all others are in it
 * puts   then puts to the rank that is half the world away until one fails, the last of which is what took MS
 * vanish the same, and whoever is told of a death then goes on with the others that live, at once
 * odd    the last rank passes another size to spmt_malloc
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spmt.h"
#include "spmt/comm/comm.h"
#include "src/base/process.h"
#include "uid_file.h"

enum { NODES_RANKS = 16, DEADLINE_MS = 60000, LATE_MS = 1500, DIES_AFTER = 20 };

struct rank {
	pthread_t thread;
	const char *how;
	const spmt_uid *uid;
	int rank, nranks;
	int64_t last_ns;
};

static int barrier(struct rank *r, spmt_comm *comm)
{
	int64_t begin = process_now();
	int rc = spmt_barrier(comm);

	r->last_ns = process_now() - begin;
	return rc;
}

static int moves(struct rank *r, spmt_comm *comm)
{
	uint64_t *words, *sum, mine = (uint64_t)r->rank + 1, one = 1;
	size_t n = (size_t)r->nranks;
	int rc = spmt_calloc(comm, n + 1, sizeof(*words), (void **)&words);

	if (!rc)
		rc = spmt_calloc(comm, n + 1, sizeof(*sum), (void **)&sum);
	for (int pe = 0; pe < r->nranks && !rc; pe++) {
		rc = spmt_put(comm, words + r->rank, &mine, sizeof(mine), pe);
		if (!rc)
			rc = spmt_atomic(
				comm, SPMT_AMO_ADD, SPMT_TYPE_U64, words + n, &one, NULL, NULL, pe);
	}
	if (!rc)
		rc = barrier(r, comm);
	for (size_t pe = 0; pe < n && !rc; pe++)
		if (words[pe] != pe + 1 || words[n] != n)
			return fprintf(stderr, "rank %d: a word is wrong\n", r->rank), 1;
	if (!rc)
		rc = spmt_all_reduce(comm, sum, words, n, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
	if (!rc)
		rc = spmt_quiet(comm);
	for (size_t pe = 0; pe < n && !rc; pe++)
		if (sum[pe] != n * (pe + 1))
			return fprintf(stderr, "rank %d: a sum is wrong\n", r->rank), 1;
	return rc;
}

/* Until all ranks of this node but the one that does not come are in the meeting that this rank is not in. */
static bool neighbours_have_come(const struct rank *r, spmt_comm *comm)
{
	for (int pe = 0; pe < r->nranks - 1; pe++)
		while (pe != r->rank && meet_is_near(comm, pe) &&
			atomic_load(&comm->control->rows[pe].arrived) <= comm->epoch) {
			if (spmt_status(comm))
				return false;
			usleep(1000);
		}
	return true;
}

static int misses(struct rank *r, spmt_comm *comm)
{
	uint64_t *there;
	int rc = spmt_calloc(comm, 1, sizeof(*there), (void **)&there);

	if (!rc && r->rank == r->nranks - 1) {
		if (neighbours_have_come(r, comm))
			rc = spmt_signal(comm, there, 1, SPMT_SIGNAL_SET, 0);
		while (!rc && !(rc = spmt_status(comm)))
			usleep(1000);
		return rc;
	}
	if (!rc && !r->rank)
		rc = spmt_signal_wait(comm, there, SPMT_CMP_GE, 1, NULL);
	if (!rc && !r->rank && neighbours_have_come(r, comm))
		rc = spmt_set_timeout(comm, LATE_MS);
	return rc ? rc : barrier(r, comm);
}

/* Between the two no rank hears of another by meetings. */
static int put_until_it_fails(struct rank *r, spmt_comm *comm)
{
	uint64_t *word, value = 0;
	int rc = spmt_calloc(comm, 1, sizeof(*word), (void **)&word);
	int pe = (r->rank + r->nranks / 2) % r->nranks;

	if (!rc)
		printf("ready %d\n", r->rank);
	while (!rc) {
		int64_t begin = process_now();

		value++;
		rc = spmt_put(comm, word, &value, sizeof(value), pe);
		if (!rc)
			rc = spmt_quiet(comm);
		r->last_ns = process_now() - begin;
	}
	return rc;
}

/* SPMT_TEST_LEAVES: with a child that has copies of what the process had open. */
static void dies(void)
{
	if (getenv("SPMT_TEST_LEAVES") && !fork()) {
		sleep(10);
		_exit(0);
	}
	kill(getpid(), SIGKILL);
}

static int acts(struct rank *r, spmt_comm *comm)
{
	bool last = r->rank == r->nranks - 1;
	void *block;
	int rc = moves(r, comm);

	if (!rc && !strcmp(r->how, "odd"))
		rc = spmt_malloc(comm, last ? 64 : 128, &block);
	if (!rc && !strcmp(r->how, "late"))
		rc = misses(r, comm);
	if (!rc && (!strcmp(r->how, "puts") || !strcmp(r->how, "vanish")))
		rc = put_until_it_fails(r, comm);
	if (!rc && (!strcmp(r->how, "loop") || !strcmp(r->how, "part")))
		printf("ready %d\n", r->rank);
	for (int i = 0; !rc && strcmp(r->how, "once") != 0; i++) {
		rc = barrier(r, comm);
		if (i == DIES_AFTER &&
			((last && (!strcmp(r->how, "die") || !strcmp(r->how, "shrink"))) ||
				(!r->rank && !strcmp(r->how, "lead"))))
			dies();
	}
	return rc;
}

static int join(const spmt_uid *uid, int rank, int nranks, spmt_comm **comm)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.rank = rank;
	attr.nranks = nranks;
	attr.uid = uid;
	attr.heap_size = 1 << 20;
	attr.timeout_ms = DEADLINE_MS;
	return spmt_init(&attr, comm);
}

/* The rank's code is that of its new world; "RANK on MINE of N" is printed before. */
static int goes_on(struct rank *r, spmt_comm **comm)
{
	int mine, n, rc, end;
	spmt_uid next;

	rc = spmt_shrink(*comm, &next, &mine, &n);
	if (rc)
		return rc;
	end = spmt_finalize(*comm);
	*comm = NULL;
	rc = end ? end : join(&next, mine, n, comm);
	if (rc)
		return rc;
	printf("%d on %d of %d\n", r->rank, mine, n);
	r->rank = mine;
	r->nranks = n;
	return moves(r, *comm);
}

static void *live(void *arg)
{
	struct rank *r = arg;
	int rank = r->rank, rc, end = 0;
	char why[700] = "";
	spmt_comm *comm;

	rc = join(r->uid, r->rank, r->nranks, &comm);
	if (rc) {
		printf("%d %d 0 %s\n", r->rank, rc, spmt_last_error());
		return NULL;
	}
	rc = acts(r, comm);
	if (rc == SPMT_ERR_PEER_DEAD &&
		(!strcmp(r->how, "shrink") || !strcmp(r->how, "part") || !strcmp(r->how, "lead") ||
			!strcmp(r->how, "vanish")))
		rc = goes_on(r, &comm);
	if (rc)
		snprintf(why, sizeof(why), "%s", spmt_last_error());
	if (comm)
		end = spmt_finalize(comm);
	printf("%d %d %lld %s\n", rank, rc ? rc : end, (long long)(r->last_ns / 1000000),
		rc	      ? why
			: end ? spmt_last_error()
			      : "");
	return NULL;
}

int main(int argc, char **argv)
{
	struct rank ranks[NODES_RANKS] = { 0 };
	int n = argc - 4, first = n > 0 ? atoi(argv[4]) : -1;
	spmt_uid uid;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (n < 1 || n > NODES_RANKS)
		return 2;
	if (first ? uid_from_file(argv[2], &uid) : uid_to_file(argv[2], &uid))
		return 3;
	for (int i = 0; i < n; i++) {
		ranks[i].how = argv[1];
		ranks[i].uid = &uid;
		ranks[i].rank = atoi(argv[4 + i]);
		ranks[i].nranks = atoi(argv[3]);
		if (pthread_create(&ranks[i].thread, NULL, live, &ranks[i]))
			return 4;
	}
	for (int i = 0; i < n; i++)
		pthread_join(ranks[i].thread, NULL);
	return 0;
}
