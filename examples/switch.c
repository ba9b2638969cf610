/* SPDX-License-Identifier: MIT */
/*
 * The all_reduce of channel.c through a switch channel: one buffer of every rank, from which a kernel reduces and to which it
 * broadcasts, between two barriers. The kernel is C for virtual devices; on GPUs add_up() is the body of a __global__ function.
 */
#include <errno.h>
#include <spmt_channel.h>
#include <stdio.h>

enum { RANKS = 4, WORDS = 1024, SHARE = WORDS / RANKS };

struct work {
	struct spmt_view view;
	struct spmt_switch all;
	int *code;
};

static int add_up(const struct work *w)
{
	const struct spmt_view *v = &w->view;
	size_t share = (size_t)v->pe * SHARE * sizeof(float);
	char *own = (char *)spmtd_switch_at_rank(v, &w->all, v->pe);
	int rc = spmtd_barrier_block(v); /* all words are there */

	if (rc)
		return rc;
	/* In place: no rank but this one reads or writes this share until it is broadcast. */
	spmtd_switch_float_sum_reduce_block(
		v, &w->all, (float *)(void *)(own + share), share, SHARE);
	spmtd_switch_broadcast_block(v, &w->all, share, own + share, SHARE * sizeof(float));
	return spmtd_barrier_block(v);
}

static void kernel(void *w)
{
	const struct work *work = (const struct work *)w;

	*work->code = add_up(work);
}

static int rank_main(spmt_comm *comm, void *out)
{
	struct work w = { .view.size = sizeof(w.view), .all.size = sizeof(w.all) };
	int rank = spmt_rank(comm), code = 0, wrong = 0, rc;
	float *words;
	void *ptr;

	rc = spmt_malloc(comm, WORDS * sizeof(float), &ptr);
	if (rc || (rc = spmt_view_get(comm, &w.view)) ||
		(rc = spmt_switch_get(comm, ptr, WORDS * sizeof(float), NULL, &w.all)))
		return rc;
	words = ptr;
	w.code = &code;
	for (int i = 0; i < WORDS; i++)
		words[i] = (float)(rank + i);
	if ((rc = spmt_host_launch(comm, NULL, kernel, &w, sizeof(w))) || (rc = spmt_quiet(comm)))
		return rc;
	for (int i = 0; i < WORDS; i++)
		wrong += words[i] < (float)(6 + 4 * i) || words[i] > (float)(6 + 4 * i);
	fprintf((FILE *)out, "rank %d of %d: %d sums, %d wrong\n", rank, RANKS, WORDS, wrong);
	return code ? code : spmt_free(comm, ptr);
}

int main(void)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.backend = "host";
	if (spmt_run(RANKS, &attr, rank_main, stdout) == 0)
		return 0;
	fprintf(stderr, "switch: %s\n", spmt_last_error());
	return 1;
}
