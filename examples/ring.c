#include <spmt.h>
#include <stdio.h>

/* word[0] goes to the right neighbour's word[1]; its word[2] is the signal that says so. */
static int ring(spmt_comm *comm, void *out)
{
	int rank = spmt_rank(comm), n = spmt_nranks(comm), right = (rank + 1) % n;
	void *ptr = NULL;
	int rc = spmt_calloc(comm, 3, sizeof(uint64_t), &ptr);
	uint64_t *word = ptr, value = 100 + (uint64_t)rank;

	if (rc || (rc = spmt_copy_in(comm, &word[0], &value, sizeof(value))))
		return rc;
	rc = spmt_put_signal(comm, &word[1], &word[0], 8, &word[2], 1, SPMT_SIGNAL_SET, right);
	if (!rc)
		rc = spmt_signal_wait(comm, &word[2], SPMT_CMP_EQ, 1, NULL);
	if (!rc)
		rc = spmt_copy_out(comm, &value, &word[1], sizeof(value));
	if (!rc)
		fprintf(out, "rank %d of %d received %d\n", rank, n, (int)value);
	return rc ? rc : spmt_free(comm, ptr);
}

int main(void)
{
	if (spmt_run(8, NULL, ring, stdout) == 0)
		return 0;
	fprintf(stderr, "ring: %s\n", spmt_last_error());
	return 1;
}
