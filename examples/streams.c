/* SPDX-License-Identifier: MIT */
/*
 * Work in a stream: a kernel, a sum over all ranks, a message to the neighbour, each queued behind the one before. The host waits
 * once, at the end. On a GPU the stream is the vendor's (hipStream_t, CUstream) and the kernel is launched as usual.
 */
#include <spmt.h>
#include <stdio.h>

enum { RANKS = 4, COUNT = 1000 };

/* Symmetric. */
struct shared {
	float gradient[COUNT], sum[COUNT], came[COUNT];
	uint64_t arrived;
};

struct fill {
	float *to, value;
};

static void fill_kernel(void *args)
{
	const struct fill *fill = args;

	for (int i = 0; i < COUNT; i++)
		fill->to[i] = fill->value;
}

/* Returns when all is queued, not when it is done. */
static int queue(spmt_comm *comm, struct shared *s, spmt_stream stream)
{
	int rank = spmt_rank(comm), right = (rank + 1) % spmt_nranks(comm);
	struct fill fill = { s->gradient, (float)(rank + 1) };
	int rc = spmt_host_launch(comm, stream, fill_kernel, &fill, sizeof(fill));

	if (!rc)
		rc = spmt_all_reduce(
			comm, s->sum, s->gradient, COUNT, SPMT_TYPE_F32, SPMT_OP_SUM, stream);
	if (!rc)
		rc = spmt_put_signal_on_stream(comm, s->came, s->sum, sizeof(s->sum), &s->arrived,
			1, SPMT_SIGNAL_SET, right, stream);
	if (!rc)
		rc = spmt_signal_wait_on_stream(comm, &s->arrived, SPMT_CMP_EQ, 1, stream);
	return rc;
}

static int train(spmt_comm *comm, void *out)
{
	void *shared = NULL;
	spmt_stream stream = NULL;
	float last = 0;
	int rc = spmt_calloc(comm, 1, sizeof(struct shared), &shared);
	struct shared *s = shared;

	if (rc || (rc = spmt_host_stream_create(comm, &stream)))
		return rc;
	rc = queue(comm, s, stream);
	if (!rc)
		rc = spmt_quiet(comm); /* waits for all of it, and tells what failed on the way */
	if (!rc)
		rc = spmt_copy_out(comm, &last, &s->came[COUNT - 1], sizeof(last));
	if (!rc)
		fprintf(out, "rank %d: the sum of its left neighbour is %g\n", spmt_rank(comm),
			(double)last);
	if (rc) {
		spmt_host_stream_destroy(stream); /* the first failure is what counts */
		return rc;
	}
	rc = spmt_host_stream_destroy(stream);
	return rc ? rc : spmt_free(comm, s);
}

int main(void)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.backend = "host"; /* whose streams and kernels these are */
	if (spmt_run(RANKS, &attr, train, stdout) == 0)
		return 0;
	fprintf(stderr, "streams: %s\n", spmt_last_error());
	return 1;
}
