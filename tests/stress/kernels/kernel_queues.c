/* SPDX-License-Identifier: MIT */
/* Copy engines fed by many threads at once, in two worlds that come and go: for ThreadSanitizer, which sees whether the ring orders what
   was stored before a put, and whether a signal and quiet order what was put. Ranks have engines of every kind. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt_device.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { RANKS = 4, BLOCKS = 3, WORDS = 40, BYTES = WORDS * 8 };

/* Of each block in the heap: what it sends, what comes, and signals in lines of their own. */
struct place {
	uint64_t own[WORDS], came[WORDS];
	_Alignas(64) uint64_t sig;
	_Alignas(64) uint64_t back;
};

struct runner {
	pthread_t thread;
	struct spmt_view v;
	struct place *place;
	uint64_t *sum;
	size_t rounds;
	const char *wrong;
};

static uint64_t word(size_t round, int pe, size_t i)
{
	return round * 0x9e3779b97f4a7c15u + (uint64_t)pe * 1000003 + i;
}

static int send(const struct runner *r, int to, size_t round)
{
	const struct spmt_view *v = &r->v;
	struct place *p = r->place;

	if (round % 2)
		return spmtd_sdma_put(v, p->came, p->own, BYTES, to) ||
			spmtd_sdma_signal(v, &p->sig, round, SPMT_SIGNAL_SET, to);
	return spmtd_sdma_put_warp(v, p->came, p->own, BYTES / 2, to) ||
		spmtd_sdma_put_block(v, p->came + WORDS / 2, p->own + WORDS / 2, BYTES / 2, to) ||
		spmtd_sdma_signal_block(v, &p->sig, 1, SPMT_SIGNAL_ADD, to);
}

/* Puts round the ring; the way back says that the place is free. Ordinary loads: what a wait has acquired has to be seen by them. */
static void *ring(void *arg)
{
	struct runner *r = arg;
	struct place *p = r->place;
	int prev = (r->v.pe + RANKS - 1) % RANKS, next = (r->v.pe + 1) % RANKS;

	for (size_t i = 1; i <= r->rounds && !r->wrong; i++) {
		for (size_t k = 0; k < WORDS; k++)
			p->own[k] = word(i, r->v.pe, k);
		if (send(r, next, i))
			r->wrong = "nothing was submitted";
		if (spmtd_signal_wait_until(&r->v, &p->sig, SPMT_CMP_GE, i))
			r->wrong = "a wait failed";
		for (size_t k = 0; k < WORDS; k++)
			if (p->came[k] != word(i, prev, k))
				r->wrong = "a signal came before its data";
		if (spmtd_sdma_signal(&r->v, &p->back, i, SPMT_SIGNAL_SET, prev))
			r->wrong = "a signal was not submitted";
		if (spmtd_signal_wait_until(&r->v, &p->back, SPMT_CMP_GE, i))
			r->wrong = "a wait for the way back failed";
		if (i % 3 ? spmtd_sdma_quiet(&r->v, next) : spmtd_quiet(&r->v))
			r->wrong = "quiet failed";
	}
	return NULL;
}

/* As fast as the rings go, so that they are full most of the time. */
static void *flood(void *arg)
{
	struct runner *r = arg;
	int to = (r->v.pe + 1) % RANKS;

	for (size_t i = 0; i < 60 * r->rounds && !r->wrong; i++)
		if (spmtd_sdma_put(&r->v, r->place->came, r->place->own, 8 + i % 64, to) ||
			(i % 16 == 0 && spmtd_sdma_signal(&r->v, r->sum, 1, SPMT_SIGNAL_ADD, to)))
			r->wrong = "nothing was submitted";
	if (spmtd_sdma_quiet(&r->v, -1))
		r->wrong = "quiet failed";
	return NULL;
}

struct turn {
	void *(*fn)(void *);
	size_t rounds;
};

static int runner_make(spmt_comm *comm, struct runner *r, void *block, int index, size_t rounds)
{
	memset(r, 0, sizeof(*r));
	r->v.size = sizeof(r->v);
	r->place = (struct place *)block + 1 + index;
	r->sum = block;
	r->rounds = rounds;
	REQUIRE_OK(spmt_view_get(comm, &r->v));
	for (int pe = 0; pe < RANKS; pe++)
		REQUIRE(pe == r->v.pe || r->v.sdma[pe].ring);
	return 0;
}

static int rank_main(spmt_comm *comm, void *arg)
{
	const struct turn *turn = arg;
	struct runner runners[BLOCKS];
	const char *wrong = NULL;
	void *block;

	REQUIRE_OK(spmt_set_timeout(comm, 100000));
	REQUIRE_OK(spmt_calloc(comm, BLOCKS + 1, sizeof(struct place), &block));
	for (int i = 0; i < BLOCKS; i++)
		TRY(runner_make(comm, &runners[i], block, i, turn->rounds));
	for (int i = 0; i < BLOCKS; i++)
		REQUIRE_EQ(pthread_create(&runners[i].thread, NULL, turn->fn, &runners[i]), 0);
	for (int i = 0; i < BLOCKS; i++) {
		pthread_join(runners[i].thread, NULL);
		wrong = runners[i].wrong ? runners[i].wrong : wrong;
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (turn->fn == flood)
		REQUIRE_EQ(*(uint64_t *)block, BLOCKS * ((60 * turn->rounds + 15) / 16));
	return wrong ? ranks_fail("%s", wrong) : 0;
}

/* Worlds that begin and end while the other one works. */
static int world(int index, void *arg)
{
	const struct turn *turn = arg;
	struct turn part = *turn;

	part.rounds = turn->rounds / 4;
	for (int i = 0; i < 4; i++) {
		int rc = ranks_run(RANKS, NULL, rank_main, &part);

		if (rc)
			return ranks_fail("world %d, %d: %s", index, i, ranks_message());
	}
	return 0;
}

static int run(void *(*fn)(void *), size_t rounds)
{
	struct turn turn = { fn, rounds };

	return ranks_threads(2, world, &turn);
}

static int rings(void)
{
	return run(ring, test_count(160, 4000));
}

static int floods(void)
{
	return run(flood, test_count(80, 1000));
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "puts and signals round a ring", rings },
		{ "more submissions than there is room for", floods },
	};

	setenv("SPMT_SDMA", "queues", 1);
	ranks_deadline(200);
	return tap_run(cases, sizeof(cases) / sizeof(*cases));
}
