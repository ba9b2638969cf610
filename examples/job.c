/* SPDX-License-Identifier: MIT */
/* A rank a process, as many as the launcher starts: mpirun -n 4 ./job. Rank and nranks are its. */
#include <spmt.h>
#include <stdio.h>

/* Each rank adds its number to rank 0's sum. */
static int add_up(spmt_comm *comm, uint64_t *sum)
{
	uint64_t mine = (uint64_t)spmt_rank(comm), total;
	int rc = spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, sum, &mine, NULL, NULL, 0);

	if (!rc)
		rc = spmt_barrier(comm);
	if (!rc)
		rc = spmt_get(comm, &total, sum, sizeof(total), 0);
	if (!rc)
		printf("rank %d of %d on device %d: the ranks add up to %llu\n", spmt_rank(comm),
			spmt_nranks(comm), spmt_device(comm), (unsigned long long)total);
	return rc;
}

int main(void)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_comm *comm = NULL;
	void *sum;
	int rc = spmt_init(&attr, &comm);

	if (!rc)
		rc = spmt_calloc(comm, 1, sizeof(uint64_t), &sum);
	if (!rc)
		rc = add_up(comm, sum);
	if (rc)
		fprintf(stderr, "job: %s\n", spmt_last_error());
	if (comm && spmt_finalize(comm) && !rc)
		rc = 1;
	return rc ? 1 : 0;
}
