/* SPDX-License-Identifier: MIT */
/* Channels, switch channels and bulk copies across GPUs, or among ranks that share one (-n 2 where there is one). What a signal takes is told. */
#include <stdio.h>

#include "gpu.h"
#include "kernels/channels.h"
#include "spmt_channel.h"

/* ---- channels --------------------------------------------------------------------------------- */

static const struct load loads[] = {
	{ BY_THREAD, 1, 1, 1, 10000, 100 },
	{ BY_THREAD, 1, 32, 9, 2000, 50 },
	{ BY_WARP, 2, 128, 33, 5000, 50 },
	{ BY_BLOCK, 1, 512, 1, 10000, 100 },
	{ BY_BLOCK, 16, 256, 1000, 1000, 20 },
};

/* The link between a rank and the next has one of two indices in turn, as with two ranks both are to one peer. */
static int link_get(struct rank *r, unsigned worker, int first, int peer, const void *block,
	size_t size, struct spmt_channel *c)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr),
		.peer = peer,
		.index = (int)(2 * worker) + first % 2,
		.remote = block,
		.remote_size = size };

	c->size = sizeof(*c);
	REQUIRE_OK(spmt_channel_get(r->comm, &attr, c));
	return 0;
}

static int channels_run(struct rank *r, const struct load *l, struct outcome *outcome)
{
	struct channels_args a = { .view = r->view,
		.outcome = addr(outcome),
		.words = l->words,
		.rounds = gpu_number(l->rounds, l->fewer),
		.scope = (int)l->scope };
	size_t places = workers_of(l) * l->words * 32, size = 3 * places;
	struct spmt_channel own[2 * CHANNELS_WORKERS];
	void *block, *table;
	char what[64];

	REQUIRE(workers_of(l) <= CHANNELS_WORKERS);
	REQUIRE_OK(spmt_calloc(r->comm, 1, size, &block));
	REQUIRE_OK(spmt_malloc(r->comm, sizeof(own), &table));
	for (unsigned w = 0; w < workers_of(l); w++) {
		TRY(link_get(r, w, r->pe, r->next, block, size, &own[2 * w]));
		TRY(link_get(r, w, r->prev, r->prev, block, size, &own[2 * w + 1]));
	}
	TRY(rank_write(r, table, own, sizeof(own)));
	a.places = addr(block);
	a.packets = places;
	a.channels = addr(table);
	snprintf(what, sizeof(what), "channels of %u x a %s", workers_of(l), scope_names[l->scope]);
	for (; a.done < 2 * a.rounds; a.done += a.rounds) {
		RANK_STEP(r, test_channels, l->grid, l->block, a);
		TRY(outcome_check(r, outcome, what));
	}
	REQUIRE_OK(spmt_free(r->comm, table));
	REQUIRE_OK(spmt_free(r->comm, block));
	return 0;
}

static int channels(spmt_comm *comm, void *arg)
{
	struct outcome *outcome;
	struct rank r;

	(void)arg;
	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++)
		TRY(channels_run(&r, &loads[i], outcome));
	rank_close(&r);
	return 0;
}

static int run_channels_ring(int n)
{
	return gpu_run(n, 16u << 20, channels, NULL);
}

/* ---- what a signal takes ----------------------------------------------------------------------- */

static int pingpong(spmt_comm *comm, void *arg)
{
	struct pingpong_args a = { .rounds = gpu_number(20000, 200) };
	struct outcome *outcome;
	struct rank r;

	(void)arg;
	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	a.view = r.view;
	a.outcome = addr(outcome);
	if (r.pe < 2)
		TRY(link_get(&r, 0, 0, 1 - r.pe, NULL, 0, &a.other));
	for (a.relaxed = 0; a.relaxed < 2; a.relaxed++) {
		int64_t begin;

		REQUIRE_OK(spmt_barrier(comm));
		begin = now_ns();
		if (r.pe < 2)
			RANK_LAUNCH(&r, test_pingpong, 1, 1, a);
		TRY(rank_sync(&r));
		if (r.pe == 0)
			printf("# a signal one way%s: %.2f us\n", a.relaxed ? ", relaxed" : "",
				(double)(now_ns() - begin) / 2e3 / (double)a.rounds);
		TRY(outcome_check(&r, outcome, "signals there and back"));
	}
	rank_close(&r);
	return 0;
}

static int run_pingpong_pair(int n)
{
	return gpu_run(n, 4u << 20, pingpong, NULL);
}

/* ---- switch channels -------------------------------------------------------------------------- */

static int switches(spmt_comm *comm, void *arg)
{
	static const unsigned grids[] = { 1, 3, 16 };
	struct switches_args a = { .rounds = gpu_number(500, 20), .all.size = sizeof(a.all) };
	struct outcome *outcome;
	struct rank r;

	(void)arg;
	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	a.view = r.view;
	a.outcome = addr(outcome);
	for (a.words = 1; a.words < 20000; a.words = a.words * 10 + 7) {
		void *block;

		REQUIRE_OK(spmt_malloc(comm, 24 * a.words, &block));
		REQUIRE_OK(spmt_switch_get(comm, block, 24 * a.words, NULL, &a.all));
		for (size_t i = 0; i < sizeof(grids) / sizeof(grids[0]); i++) {
			RANK_STEP(&r, test_switches, grids[i], 256, a);
			TRY(outcome_check(&r, outcome, "switch channels"));
		}
		REQUIRE_OK(spmt_free(comm, block));
	}
	rank_close(&r);
	return 0;
}

static int run_switches_all(int n)
{
	return gpu_run(n, 4u << 20, switches, NULL);
}

/* ---- bulk copies ------------------------------------------------------------------------------ */

/* odd: how far src is off, and 16 times how far dst is. */
static const struct {
	uint64_t bytes, odd;
} bulks[] = { { 0, 0 }, { 1, 0 }, { 16, 0 }, { 100, 0x55 }, { 4096, 0 }, { 65536, 0 },
	{ 65537, 0x33 }, { 65536, 0x35 }, { 1000000, 0 }, { 999999, 0x11 } };

static int bulk(spmt_comm *comm, void *arg)
{
	enum { BLOCKS = 4, PLACE = 1 << 20 };
	struct bulk_args a = { .place = PLACE };
	struct outcome *outcome;
	void *src, *dst;
	struct rank r;

	(void)arg;
	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	REQUIRE_OK(spmt_malloc(comm, BLOCKS * PLACE + 64, &src));
	REQUIRE_OK(spmt_malloc(comm, BLOCKS * PLACE + 64, &dst));
	a.view = r.view;
	a.src = addr(src);
	a.dst = addr(dst);
	a.outcome = addr(outcome);
	for (size_t i = 0; i < sizeof(bulks) / sizeof(bulks[0]); i++)
		for (a.warp = 0; a.warp < 2; a.warp++) {
			char what[64];

			a.bytes = bulks[i].bytes;
			a.odd = bulks[i].odd;
			snprintf(what, sizeof(what), "%llu bytes by a %s, odd by %llx",
				(unsigned long long)a.bytes, scope_names[a.warp],
				(unsigned long long)a.odd);
			TRY(rank_fill(&r, dst, 0x5a, BLOCKS * PLACE));
			REQUIRE_OK(spmt_barrier(comm));
			RANK_STEP(&r, test_bulk, BLOCKS, 128, a);
			TRY(outcome_check(&r, outcome, what));
		}
	rank_close(&r);
	return 0;
}

static int run_bulk_copies(int n)
{
	return gpu_run(n, 16u << 20, bulk, NULL);
}

static int bulk_folds(spmt_comm *comm, void *arg)
{
	enum { BLOCKS = 4, PLACE = 1 << 20 };
	static const uint64_t odds[] = { 0, 0x11, 0x21 };
	struct bulk_folds_args a = { .place = PLACE };
	struct outcome *outcome;
	void *src, *dst;
	struct rank r;

	(void)arg;
	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	REQUIRE_OK(spmt_malloc(comm, BLOCKS * PLACE + 64, &src));
	REQUIRE_OK(spmt_malloc(comm, BLOCKS * PLACE + 64, &dst));
	a.view = r.view;
	a.src = addr(src);
	a.dst = addr(dst);
	a.outcome = addr(outcome);
	for (size_t i = 0; i < 3 * FOLD_TYPES * sizeof(bulks) / sizeof(bulks[0]); i++) {
		char what[80];

		a.fold = (int)(i % FOLD_TYPES);
		a.warp = (int)(i / FOLD_TYPES % 2);
		a.bytes = bulks[i / FOLD_TYPES % (sizeof(bulks) / sizeof(bulks[0]))].bytes / 4 * 4;
		a.odd = odds[i / 2 % 3];
		snprintf(what, sizeof(what), "%llu bytes folded by a %s, type %d, odd by %llx",
			(unsigned long long)a.bytes, scope_names[a.warp], a.fold,
			(unsigned long long)a.odd);
		RANK_STEP(&r, test_bulk_folds, BLOCKS, 128, a);
		TRY(outcome_check(&r, outcome, what));
	}
	rank_close(&r);
	return 0;
}

static int run_bulk_folds_all(int n)
{
	return gpu_run(n, 16u << 20, bulk_folds, NULL);
}

static const struct gpu_test tests[] = {
	{ "channels_round_a_ring", run_channels_ring, 1 },
	{ "signals_there_and_back", run_pingpong_pair, 2 },
	{ "switch_channels", run_switches_all, 1 },
	{ "bulk_copies", run_bulk_copies, 1 },
	{ "bulk_reductions", run_bulk_folds_all, 1 },
};
static const struct test_kernel *const kernels[] = { &test_channels, &test_pingpong, &test_switches,
	&test_bulk, &test_bulk_folds, NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
