/* SPDX-License-Identifier: MIT */
/*
 * An all_reduce of one's own, in one kernel, through a channel to each peer: every rank adds up its share of all ranks' words where
 * they lie, and puts the sums to the others. The kernel is C for virtual devices; on GPUs add_up() is the body of a __global__ function.
 */
#include <errno.h>
#include <spmt_channel.h>
#include <stdio.h>

enum { RANKS = 4, WORDS = 1024, SHARE = WORDS / RANKS };
/* The buffer of a rank: its words, then the sums. */
enum { SUMS = WORDS * sizeof(float), BYTES = 2 * SUMS };

struct work {
	struct spmt_view view;
	struct spmt_channel peers[RANKS - 1];
	float *words; /* symmetric */
	int *code;
};

static int told_and_heard(const struct spmt_view *v, const struct spmt_channel *peers)
{
	int rc = 0;

	for (int i = 0; i < RANKS - 1; i++)
		spmtd_channel_signal_block(v, &peers[i], SPMTD_DATA_SYNC_BEFORE);
	for (int i = 0; i < RANKS - 1 && !rc; i++)
		rc = spmtd_channel_wait_block(v, &peers[i], SPMTD_DATA_SYNC_AFTER);
	return rc;
}

static int add_up(const struct work *w)
{
	const struct spmt_view *v = &w->view;
	size_t first = (size_t)v->pe * SHARE, at = SUMS + first * sizeof(float);
	uint64_t offsets[RANKS - 1];
	int rc = told_and_heard(v, w->peers); /* all words are there */

	if (rc)
		return rc;
	for (int i = 0; i < RANKS - 1; i++)
		offsets[i] = first * sizeof(float);
	spmtd_channel_float_sum_reduce_block(
		v, w->words + WORDS + first, w->words + first, w->peers, offsets, RANKS - 1, SHARE);
	for (int i = 0; i < RANKS - 1; i++)
		spmtd_channel_put_block(v, &w->peers[i], at, at, SHARE * sizeof(float));
	return told_and_heard(v, w->peers); /* all sums are there */
}

static void kernel(void *w)
{
	const struct work *work = (const struct work *)w;

	*work->code = add_up(work);
}

static int channels_to_all(spmt_comm *comm, const float *words, struct spmt_channel *peers)
{
	struct spmt_channel_attr attr = {
		.size = sizeof(attr), .remote = words, .remote_size = BYTES
	};
	int rc = 0, n = 0;

	for (attr.peer = 0; attr.peer < RANKS && !rc; attr.peer++) {
		if (attr.peer == spmt_rank(comm))
			continue;
		peers[n].size = sizeof(peers[n]);
		rc = spmt_channel_get(comm, &attr, &peers[n++]);
	}
	return rc;
}

static int rank_main(spmt_comm *comm, void *out)
{
	struct work w = { .view.size = sizeof(w.view) };
	int rank = spmt_rank(comm), code = 0, wrong = 0, rc;
	void *ptr;

	rc = spmt_malloc(comm, BYTES, &ptr);
	if (rc || (rc = spmt_view_get(comm, &w.view)))
		return rc;
	w.words = ptr;
	w.code = &code;
	for (int i = 0; i < WORDS; i++)
		w.words[i] = (float)(rank + i);
	if ((rc = channels_to_all(comm, w.words, w.peers)) ||
		(rc = spmt_host_launch(comm, NULL, kernel, &w, sizeof(w))) ||
		(rc = spmt_quiet(comm)))
		return rc;
	for (int i = 0; i < WORDS; i++)
		wrong += w.words[WORDS + i] < (float)(6 + 4 * i) ||
			w.words[WORDS + i] > (float)(6 + 4 * i);
	fprintf((FILE *)out, "rank %d of %d: %d sums, %d wrong\n", rank, RANKS, WORDS, wrong);
	return code ? code : spmt_free(comm, ptr);
}

int main(void)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.backend = "host";
	if (spmt_run(RANKS, &attr, rank_main, stdout) == 0)
		return 0;
	fprintf(stderr, "channel: %s\n", spmt_last_error());
	return 1;
}
