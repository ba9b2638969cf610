/* SPDX-License-Identifier: MIT */
/* Order across GPUs: no signal before its data, no rank out of a barrier before all have come. */
#include <stdio.h>
#include <string.h>

#include "gpu.h"
#include "kernels/signals.h"

/* ---- signals --------------------------------------------------------------------------------- */

struct ring {
	struct rank r;
	void *slots, *buffers, *sigs, *acks;
	struct outcome *outcome;
};

/* Every scope and several of each, from no data to 32 KiB. */
static const struct load loads[] = {
	{ BY_THREAD, 1, 1, 0, 20000, 200 },
	{ BY_THREAD, 1, 1, 1, 20000, 200 },
	{ BY_THREAD, 2, 64, 17, 2000, 50 },
	{ BY_WARP, 1, 32, 1, 20000, 200 },
	{ BY_WARP, 2, 128, 100, 10000, 100 },
	{ BY_BLOCK, 1, 256, 0, 20000, 200 },
	{ BY_BLOCK, 1, 256, 1, 100000, 1000 },
	{ BY_BLOCK, 1, 512, 513, 20000, 500 },
	{ BY_BLOCK, 4, 1024, 4096, 5000, 2000 },
};

static int ring_open(struct ring *g, spmt_comm *comm)
{
	const size_t slots = 4u << 20, few = 4096;

	TRY(rank_open(&g->r, comm));
	TRY(outcome_open(&g->r, &g->outcome));
	REQUIRE_OK(spmt_malloc(comm, slots, &g->slots));
	REQUIRE_OK(spmt_malloc(comm, slots, &g->buffers));
	REQUIRE_OK(spmt_calloc(comm, few, 1, &g->sigs));
	REQUIRE_OK(spmt_calloc(comm, few, 1, &g->acks));
	return 0;
}

static int ring_run(struct ring *g, const struct load *l, int form)
{
	char what[64];
	struct signals_args a = { .view = g->r.view,
		.slots = addr(g->slots),
		.buffers = addr(g->buffers),
		.sigs = addr(g->sigs),
		.acks = addr(g->acks),
		.outcome = addr(g->outcome),
		.words = l->words,
		.rounds = gpu_number(l->rounds, l->fewer),
		.to = g->r.next,
		.from = g->r.prev,
		.scope = (int)l->scope,
		.form = form };

	REQUIRE(workers_of(l) * 2 * l->words * 8 <= 4u << 20 && workers_of(l) * 8 <= 4096);
	snprintf(what, sizeof(what), "form %d by %u x a %s, %llu words", form, workers_of(l),
		scope_names[l->scope], (unsigned long long)l->words);
	TRY(rank_fill(&g->r, g->slots, 0xee, 4u << 20));
	TRY(rank_fill(&g->r, g->sigs, 0, 4096));
	TRY(rank_fill(&g->r, g->acks, 0, 4096));
	REQUIRE_OK(spmt_barrier(g->r.comm));
	RANK_STEP(&g->r, test_signals, l->grid, l->block, a);
	return outcome_check(&g->r, g->outcome, what);
}

static int rings(spmt_comm *comm, void *arg)
{
	int form = *(const int *)arg;
	struct ring g;

	TRY(ring_open(&g, comm));
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++)
		TRY(ring_run(&g, &loads[i], form));
	rank_close(&g.r);
	return 0;
}

static int run_ring(int n, int form)
{
	return gpu_run(n, 16u << 20, rings, &form);
}

static int run_set(int n)
{
	return run_ring(n, SIGNAL_SET_FORM);
}

static int run_add(int n)
{
	return run_ring(n, SIGNAL_ADD_FORM);
}

static int run_nbi(int n)
{
	return run_ring(n, SIGNAL_NBI_FORM);
}

static int run_fence(int n)
{
	return run_ring(n, SIGNAL_FENCE_FORM);
}

static int run_quiet(int n)
{
	return run_ring(n, SIGNAL_QUIET_FORM);
}

static int run_sdma(int n)
{
	return run_ring(n, SIGNAL_SDMA_FORM);
}

static int run_sdma_add(int n)
{
	return run_ring(n, SIGNAL_SDMA_ADD_FORM);
}

/* ---- meetings -------------------------------------------------------------------------------- */

static int meetings(spmt_comm *comm, void *arg)
{
	static const unsigned blocks[SCOPES] = { 1, 32, 512 };
	struct meetings_args a = { .form = *(const int *)arg };
	struct outcome *outcome;
	struct rank r;
	void *slots;

	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	REQUIRE_OK(spmt_calloc(comm, 2 * (size_t)r.n, 8, &slots));
	a.view = r.view;
	a.slots = addr(slots);
	a.outcome = addr(outcome);
	a.rounds = gpu_number(100000, 1000);
	for (a.scope = 0; a.scope < SCOPES; a.scope++) {
		char what[64];

		snprintf(what, sizeof(what), "meetings of form %d by a %s", a.form,
			scope_names[a.scope]);
		RANK_STEP(&r, test_meetings, 1, blocks[a.scope], a);
		TRY(outcome_check(&r, outcome, what));
		a.done += a.rounds;
	}
	rank_close(&r);
	return 0;
}

static int run_meetings(int n, int form)
{
	return gpu_run(n, 4u << 20, meetings, &form);
}

static int run_barrier(int n)
{
	return run_meetings(n, MEET_BY_BARRIER);
}

static int run_sync(int n)
{
	return run_meetings(n, MEET_BY_SYNC);
}

static int run_halves(int n)
{
	return run_meetings(n, MEET_BY_HALVES);
}

static const struct gpu_test tests[] = {
	{ "data_before_signal_set", run_set, 1 },
	{ "data_before_signal_add", run_add, 1 },
	{ "data_before_signal_nbi", run_nbi, 1 },
	{ "data_before_signal_after_fence", run_fence, 1 },
	{ "data_before_signal_after_quiet", run_quiet, 1 },
	{ "data_before_signal_by_copy_engine", run_sdma, 1 },
	{ "data_before_signal_by_copy_engine_add", run_sdma_add, 1 },
	{ "barrier_torture", run_barrier, 1 },
	{ "sync_torture", run_sync, 1 },
	{ "split_sync_torture", run_halves, 1 },
};
static const struct test_kernel *const kernels[] = { &test_signals, &test_meetings, NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
