/* SPDX-License-Identifier: MIT */
/*
 * A block round a ring, step by step, through ports: one thread of a kernel posts the transfer, a copy engine or NIC makes it, and the rest of
 * the kernel adds up what has come meanwhile. The kernel is C for virtual devices, whose blocks have one thread. On GPUs pass_on() is the body
 * of a __global__ function for one block, whose threads share out the words to add up, and add to *sum atomically.
 */
#include <errno.h>
#include <spmt_channel.h>
#include <stdio.h>

enum { RANKS = 4, WORDS = 4096, BLOCK = WORDS * sizeof(uint64_t) };

struct work {
	struct spmt_view view;
	struct spmt_port next, prev;
	uint64_t *blocks; /* symmetric: RANKS of them, by whose it was */
	uint64_t *sum;
	int *code;
};

static int pass_on(const struct work *w)
{
	const struct spmt_view *v = &w->view;
	int me = spmtd_my_pe(v), rc = 0;

	for (int step = 0; step < RANKS && !rc; step++) {
		size_t whose = (size_t)((me + RANKS - step) % RANKS);

		if (step < RANKS - 1) /* goes while we add up */
			rc = spmtd_port_put_signal_block(
				v, &w->next, whose * BLOCK, whose * BLOCK, BLOCK);
		for (size_t i = 0; i < WORDS; i++)
			*w->sum += w->blocks[whose * WORDS + i];
		if (!rc && step < RANKS - 1)
			rc = spmtd_port_wait_block(v, &w->prev);
	}
	return rc ? rc : spmtd_port_flush_block(v, &w->next);
}

static void kernel(void *w)
{
	const struct work *work = (const struct work *)w;

	*work->code = pass_on(work);
}

static int rank_main(spmt_comm *comm, void *out)
{
	struct work w = { .view.size = sizeof(w.view),
		.next.size = sizeof(w.next),
		.prev.size = sizeof(w.prev) };
	struct spmt_channel_attr attr = { .size = sizeof(attr), .remote_size = RANKS * BLOCK };
	int rank = spmt_rank(comm), code = 0, rc;
	uint64_t sum = 0;
	void *ptr;

	rc = spmt_calloc(comm, RANKS, BLOCK, &ptr);
	if (rc || (rc = spmt_view_get(comm, &w.view)))
		return rc;
	attr.remote = w.blocks = ptr;
	attr.peer = (rank + 1) % RANKS;
	if ((rc = spmt_port_get(comm, &attr, &w.next)))
		return rc;
	attr.peer = (rank + RANKS - 1) % RANKS;
	if ((rc = spmt_port_get(comm, &attr, &w.prev)))
		return rc;
	w.sum = &sum;
	w.code = &code;
	for (size_t i = 0; i < WORDS; i++)
		w.blocks[(size_t)rank * WORDS + i] = (uint64_t)rank + 1;
	if ((rc = spmt_host_launch(comm, NULL, kernel, &w, sizeof(w))) || (rc = spmt_barrier(comm)))
		return rc;
	fprintf((FILE *)out, "rank %d of %d: the sum of all blocks is %llu\n", rank, RANKS,
		(unsigned long long)sum);
	return code ? code : spmt_free(comm, ptr);
}

int main(void)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.backend = "host";
	if (spmt_run(RANKS, &attr, rank_main, stdout) == 0)
		return 0;
	fprintf(stderr, "port: %s\n", spmt_last_error());
	return 1;
}
