/* SPDX-License-Identifier: MIT */
/*
 * An all_reduce of one's own as a plan: each rank folds one chunk of everybody's, and puts the sum to all. The plan is checked over all
 * ranks before it runs.
 */
#include <spmt_plan.h>
#include <stdio.h>

enum { RANKS = 4, WORDS = 1024 };

/* Inputs are only read, and each chunk of an output has one writer. */
static int add_rank(spmt_plan *plan, int rank)
{
	uint32_t own = (uint32_t)rank;
	struct spmt_plan_chunk terms[RANKS], sum = spmt_plan_output(rank, own, 1);
	int rc;

	for (int i = 0; i < RANKS; i++)
		terms[i] = spmt_plan_input((rank + i) % RANKS, own, 1);
	rc = spmt_plan_reduce(plan, rank, 0, sum, terms, RANKS);
	for (int i = 1; i < RANKS && !rc; i++) {
		int peer = (rank + i) % RANKS;

		rc = spmt_plan_put(plan, rank, 0, sum, spmt_plan_output(peer, own, 1));
		if (!rc)
			rc = spmt_plan_signal(plan, rank, 0, peer, 0);
	}
	for (int i = 1; i < RANKS && !rc; i++)
		rc = spmt_plan_wait(plan, rank, 0, (rank + i) % RANKS, 0);
	return rc;
}

static int make(spmt_plan **plan)
{
	struct spmt_plan_attr attr = {
		.size = sizeof(attr), .name = "own", .collective = "allreduce"
	};
	int rc;

	attr.nranks = RANKS;
	attr.input_chunks = attr.output_chunks = RANKS;
	rc = spmt_plan_create(&attr, plan);
	for (int rank = 0; rank < RANKS && !rc; rank++)
		rc = add_rank(*plan, rank);
	return rc ? rc : spmt_plan_check(*plan);
}

static int rank_main(spmt_comm *comm, void *arg)
{
	const spmt_plan *plan = (const spmt_plan *)arg;
	int rank = spmt_rank(comm), wrong = 0, rc;
	float host[WORDS];
	void *in, *out;
	spmt_plan_open *open;

	for (int i = 0; i < WORDS; i++)
		host[i] = (float)(rank + i);
	if ((rc = spmt_malloc(comm, sizeof(host), &in)) ||
		(rc = spmt_malloc(comm, sizeof(host), &out)) ||
		(rc = spmt_copy_in(comm, in, host, sizeof(host))) ||
		(rc = spmt_plan_begin(comm, plan, sizeof(host), &open)))
		return rc;
	if ((rc = spmt_plan_run(comm, open, out, in, WORDS, SPMT_TYPE_F32, SPMT_OP_SUM, NULL)) ||
		(rc = spmt_quiet(comm)) || (rc = spmt_copy_out(comm, host, out, sizeof(host))) ||
		(rc = spmt_plan_end(comm, open)))
		return rc;
	for (int i = 0; i < WORDS; i++)
		wrong += host[i] < (float)(6 + 4 * i) || host[i] > (float)(6 + 4 * i);
	printf("rank %d of %d: %d sums, %d wrong\n", rank, RANKS, WORDS, wrong);
	if ((rc = spmt_free(comm, out)))
		return rc;
	return spmt_free(comm, in);
}

int main(void)
{
	spmt_plan *plan = NULL;
	int rc = make(&plan);

	if (!rc)
		rc = spmt_run(RANKS, NULL, rank_main, plan);
	if (rc)
		fprintf(stderr, "plan: %s\n", spmt_last_error());
	spmt_plan_destroy(plan);
	return rc ? 1 : 0;
}
