/* SPDX-License-Identifier: MIT */
/* What fused kernels are made of, across GPUs: packets and lines whose data are their flag's, blocks that meet by index, collectives of
   blocks. */
#include <stdio.h>

#include "gpu.h"
#include "kernels/fused.h"

/* ---- packets --------------------------------------------------------------------------------- */

/* From one word to more than a thread has in flight. */
static const struct load packets_loads[] = {
	{ BY_THREAD, 1, 1, 1, 20000, 100 },
	{ BY_THREAD, 2, 32, 7, 2000, 50 },
	{ BY_WARP, 1, 32, 1, 20000, 100 },
	{ BY_WARP, 2, 128, 150, 5000, 50 },
	{ BY_BLOCK, 1, 512, 1, 50000, 200 },
	{ BY_BLOCK, 1, 256, 513, 20000, 200 },
	{ BY_BLOCK, 4, 512, 4096, 2000, 100 },
};

static const char *const formats[] = { "wide packets", "narrow packets",
	"wide packets of each thread", "lines" };

static int packets_run(struct rank *r, const struct load *l, struct packets_args *a)
{
	const uint64_t room = workers_of(l) * l->words * 8;
	void *places, *buffers;
	char what[96];

	a->place = spmtd_lines_room(l->words * 16); /* which is room for packets, too */
	REQUIRE_OK(spmt_calloc(r->comm, 2 * (size_t)r->n * workers_of(l), a->place, &places));
	REQUIRE_OK(spmt_malloc(r->comm, 2 * room, &buffers));
	a->places = addr(places);
	a->buffers = addr(buffers);
	a->unpacked = addr(buffers) + room;
	a->words = l->words;
	a->rounds = gpu_number(l->rounds, l->fewer);
	a->scope = (int)l->scope;
	a->done = 0;
	snprintf(what, sizeof(what), "%s, form %d, by %u x a %s, %llu words", formats[a->format],
		a->form, workers_of(l), scope_names[l->scope], (unsigned long long)l->words);
	RANK_STEP(r, test_packets, l->grid, l->block, *a);
	TRY(outcome_check(r, (struct outcome *)(uintptr_t)a->outcome, what));
	a->done = a->rounds; /* a launch goes on where the last one was */
	a->rounds = 5;
	RANK_STEP(r, test_packets, l->grid, l->block, *a);
	TRY(outcome_check(r, (struct outcome *)(uintptr_t)a->outcome, what));
	REQUIRE_OK(spmt_free(r->comm, buffers));
	REQUIRE_OK(spmt_free(r->comm, places));
	return 0;
}

static int packets(spmt_comm *comm, void *arg)
{
	struct packets_args a = { .form = *(const int *)arg };
	struct outcome *outcome;
	struct rank r;

	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	a.view = r.view;
	a.outcome = addr(outcome);
	for (size_t i = 0; i < sizeof(packets_loads) / sizeof(packets_loads[0]); i++)
		for (a.format = 0; a.format < PACKETS_FORMATS; a.format++)
			if (a.format != PACKETS_LINES || packets_loads[i].scope != BY_THREAD)
				TRY(packets_run(&r, &packets_loads[i], &a));
	rank_close(&r);
	return 0;
}

static int run_to_all(int n)
{
	int form = PACKETS_TO_ALL;

	return gpu_run(n, 16u << 20, packets, &form);
}

static int run_ring(int n)
{
	int form = PACKETS_ROUND_THE_RING;

	return gpu_run(n, 16u << 20, packets, &form);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static const struct load sessions_loads[] = {
	{ BY_THREAD, 1, 1, 0, 20000, 300 },
	{ BY_WARP, 2, 128, 0, 10000, 300 },
	{ BY_BLOCK, 1, 512, 0, 50000, 300 },
	{ BY_BLOCK, 16, 256, 0, 20000, 300 },
};

static int sessions(spmt_comm *comm, void *arg)
{
	struct sessions_args a = { .sync = *(const int *)arg };
	struct outcome *outcome;
	struct rank r;
	void *slots;

	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	REQUIRE_OK(spmt_calloc(comm, 2 * (size_t)r.n * 64, 8, &slots));
	a.view = r.view;
	a.slots = addr(slots);
	a.outcome = addr(outcome);
	for (size_t i = 0; i < sizeof(sessions_loads) / sizeof(sessions_loads[0]); i++) {
		const struct load *l = &sessions_loads[i];
		char what[64];

		REQUIRE(workers_of(l) <= 64);
		a.scope = (int)l->scope;
		a.rounds = gpu_number(l->rounds, l->fewer);
		snprintf(what, sizeof(what), "meetings of %u x a %s", workers_of(l),
			scope_names[l->scope]);
		RANK_STEP(&r, test_sessions, l->grid, l->block, a);
		TRY(outcome_check(&r, outcome, what));
		a.done += a.rounds;
	}
	rank_close(&r);
	return 0;
}

static int run_barriers(int n)
{
	int sync = 0;

	return gpu_run(n, 4u << 20, sessions, &sync);
}

static int run_syncs(int n)
{
	int sync = 1;

	return gpu_run(n, 4u << 20, sessions, &sync);
}

/* ---- collectives ----------------------------------------------------------------------------- */

static const struct load together_loads[] = {
	{ BY_THREAD, 1, 1, 3, 5000, 50 },
	{ BY_WARP, 2, 128, 33, 5000, 50 },
	{ BY_BLOCK, 1, 256, 4, 10000, 100 },
	{ BY_BLOCK, 8, 256, 1000, 2000, 50 },
};

static int together(spmt_comm *comm, void *arg)
{
	struct outcome *outcome;
	struct rank r;

	(void)arg;
	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	for (size_t i = 0; i < sizeof(together_loads) / sizeof(together_loads[0]); i++) {
		const struct load *l = &together_loads[i];
		size_t room = workers_of(l) * (size_t)r.n * l->words * 4;
		struct together_args a = { .view = r.view,
			.outcome = addr(outcome),
			.words = l->words,
			.rounds = gpu_number(l->rounds, l->fewer),
			.scope = (int)l->scope };
		void *src, *dst;
		char what[64];

		REQUIRE_OK(spmt_malloc(comm, room, &src));
		REQUIRE_OK(spmt_malloc(comm, room, &dst));
		a.src = addr(src);
		a.dst = addr(dst);
		snprintf(what, sizeof(what), "collectives of %u x a %s", workers_of(l),
			scope_names[l->scope]);
		RANK_STEP(&r, test_together, l->grid, l->block, a);
		TRY(outcome_check(&r, outcome, what));
		REQUIRE_OK(spmt_free(comm, dst));
		REQUIRE_OK(spmt_free(comm, src));
	}
	rank_close(&r);
	return 0;
}

static int run_together(int n)
{
	return gpu_run(n, 8u << 20, together, NULL);
}

/* ---- waits ----------------------------------------------------------------------------------- */

static int choices(spmt_comm *comm, void *arg)
{
	static const unsigned blocks[SCOPES] = { 1, 32, 512 };
	struct choices_args a = { .rounds = gpu_number(5000, 50) };
	uint64_t want[CHOICES] = { 0 };
	struct outcome *outcome;
	struct rank r;
	void *words, *cells;

	(void)arg;
	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	REQUIRE_OK(spmt_malloc(comm, sizeof(want), &words));
	REQUIRE_OK(spmt_calloc(comm, 512, 8, &cells));
	for (int i = 0; i < CHOICES; i += 3)
		want[i] = 1;
	TRY(rank_write(&r, words, want, sizeof(want)));
	a.view = r.view;
	a.words = addr(words);
	a.cells = addr(cells);
	a.outcome = addr(outcome);
	for (a.scope = 0; a.scope < SCOPES; a.scope++) {
		char what[64];

		snprintf(what, sizeof(what), "choices of a %s", scope_names[a.scope]);
		RANK_STEP(&r, test_choices, 1, blocks[a.scope], a);
		TRY(outcome_check(&r, outcome, what));
	}
	rank_close(&r);
	return 0;
}

static int run_choices(int n)
{
	return gpu_run(n, 4u << 20, choices, NULL);
}

static const struct gpu_test tests[] = {
	{ "packets_to_all", run_to_all, 1 },
	{ "packets_round_the_ring", run_ring, 1 },
	{ "barriers_by_index", run_barriers, 1 },
	{ "syncs_by_index", run_syncs, 1 },
	{ "collectives_of_blocks", run_together, 1 },
	{ "some_of_many_words", run_choices, 1 },
};
static const struct test_kernel *const kernels[] = { &test_packets, &test_sessions, &test_together,
	&test_choices, NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
