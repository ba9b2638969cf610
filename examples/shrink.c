/* SPDX-License-Identifier: MIT */
/* Four processes, a rank each. One dies; the others learn of it, agree on a world of three and go on there. */
#include <spmt.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, VICTIM = 1 };

static int join(const spmt_uid *uid, int rank, int nranks, spmt_comm **comm)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.uid = uid;
	attr.rank = rank;
	attr.nranks = nranks;
	attr.device = rank;
	return spmt_init(&attr, comm);
}

/* Meets the others until one of them is gone. */
static int work(spmt_comm *comm)
{
	int rc;

	while (!(rc = spmt_barrier(comm)))
		if (spmt_rank(comm) == VICTIM)
			_exit(0); /* without a word */
	return rc;
}

/* Whoever lives calls this. All get the same uid, and their numbers in the old order. */
static int go_on(spmt_comm *broken, spmt_comm **comm)
{
	spmt_uid next;
	int rank, nranks, rc = spmt_shrink(broken, &next, &rank, &nranks);

	spmt_finalize(broken); /* whatever it returns, the comm is gone */
	return rc ? rc : join(&next, rank, nranks, comm);
}

static int rank_main(const spmt_uid *uid, int rank)
{
	spmt_comm *comm = NULL;
	int rc = join(uid, rank, RANKS, &comm);

	if (rc || (rc = work(comm)) != SPMT_ERR_PEER_DEAD)
		return rc;
	fprintf(stderr, "rank %d: %s\n", rank, spmt_last_error());
	if ((rc = go_on(comm, &comm)) || (rc = spmt_barrier(comm)))
		return rc;
	printf("rank %d of %d is now rank %d of %d\n", rank, RANKS, spmt_rank(comm),
		spmt_nranks(comm));
	return spmt_finalize(comm);
}

int main(void)
{
	spmt_uid uid;
	int status, failed = 0, rc = spmt_uid_create(&uid);

	for (int rank = 0; rank < RANKS && !rc; rank++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("shrink: fork");
			failed = 1; /* the ranks that are there miss the others at their deadline */
		}
		if (pid != 0)
			continue;
		rc = rank_main(&uid, rank);
		if (rc)
			fprintf(stderr, "shrink: rank %d: %s\n", rank, spmt_last_error());
		fflush(stdout);
		_exit(rc ? 1 : 0);
	}
	if (rc)
		fprintf(stderr, "shrink: %s\n", spmt_last_error());
	while (wait(&status) > 0)
		failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	return rc || failed ? 1 : 0;
}
