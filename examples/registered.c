/* SPDX-License-Identifier: MIT */
/*
 * Buffers that are not in the symmetric heap, a framework's tensors say: each rank registers its own, of whatever size, and the
 * others read it where it is. On a GPU it would be memory of hipMalloc or cuMemAlloc.
 */
#include <errno.h>
#include <spmt.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, MOST = 1000 * RANKS };

/* Rank 0 gets every rank's buffer; its sum goes to *sum. */
static int add_up(spmt_comm *comm, spmt_mem *mem, double *sum)
{
	int rc = 0;

	*sum = 0;
	for (int pe = 0; pe < spmt_nranks(comm) && !rc; pe++) {
		double part[MOST];
		size_t size = spmt_mem_size(mem, pe);

		if (size > sizeof(part))
			return -E2BIG;
		rc = spmt_mem_get(comm, part, mem, 0, size, pe);
		for (size_t i = 0; i < size / sizeof(part[0]) && !rc; i++)
			*sum += part[i];
	}
	return rc;
}

static int with_buffer(spmt_comm *comm, double *buffer, size_t count, FILE *out)
{
	double sum = 0;
	spmt_mem *mem = NULL;
	int rc = spmt_register(comm, buffer, count * sizeof(*buffer), &mem);

	if (rc)
		return rc;
	if (spmt_rank(comm) == 0) {
		rc = add_up(comm, mem, &sum);
		if (!rc)
			fprintf(out, "the buffers of %d ranks add up to %g\n", spmt_nranks(comm),
				sum);
	}
	/* Nobody may free a buffer that a peer still reads; deregister is collective and waits for all. */
	if (!rc)
		rc = spmt_deregister(comm, mem);
	return rc;
}

static int rank_main(spmt_comm *comm, void *out)
{
	int rank = spmt_rank(comm), rc;
	size_t count = 1000 * ((size_t)rank + 1);
	double *buffer = malloc(count * sizeof(*buffer));

	if (!buffer)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		buffer[i] = rank + 1;
	rc = with_buffer(comm, buffer, count, out);
	free(buffer);
	return rc;
}

int main(void)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.backend = "host"; /* whose devices reach what malloc gives */
	if (spmt_run(RANKS, &attr, rank_main, stdout) == 0)
		return 0;
	fprintf(stderr, "registered: %s\n", spmt_last_error());
	return 1;
}
