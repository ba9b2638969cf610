/* SPDX-License-Identifier: MIT */
/* Ports from many threads at once, in two worlds that come and go, all served by one thread: for ThreadSanitizer, which sees whether a
   signal orders what was put before it, and whether the ring does. */
#include <pthread.h>
#include <stdio.h>

#include "spmt_channel.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { RANKS = 3, BLOCKS = 3, WORDS = 40, BYTES = WORDS * 8 };
/* Of each block in every buffer: what it sends, and what comes. */
enum { PLACE = 2 * BYTES };

struct runner {
	pthread_t thread;
	struct spmt_view v;
	struct spmt_port to[RANKS]; /* by peer */
	uint64_t *own, *came;
	size_t off, rounds;
	const char *wrong;
};

static uint64_t word(size_t round, int pe, size_t i)
{
	return round * 0x9e3779b97f4a7c15u + (uint64_t)pe * 1000003 + i;
}

static int send(const struct runner *r, int to, size_t round)
{
	const struct spmt_port *p = &r->to[to];

	if (round % 3 == 0)
		return spmtd_port_put_signal(&r->v, p, r->off + BYTES, r->off, BYTES);
	if (round % 3 == 1)
		return spmtd_port_put_signal_flush(&r->v, p, r->off + BYTES, r->off, BYTES);
	return spmtd_port_put(&r->v, p, r->off + BYTES, r->off, BYTES / 2) ||
		spmtd_port_put(
			&r->v, p, r->off + BYTES + BYTES / 2, r->off + BYTES / 2, BYTES / 2) ||
		spmtd_port_signal(&r->v, p);
}

/* Puts round the ring; the way back says that the place is free, and what was sent has been. */
static void *ring(void *arg)
{
	struct runner *r = arg;
	int prev = (r->v.pe + RANKS - 1) % RANKS, next = (r->v.pe + 1) % RANKS;

	for (size_t i = 1; i <= r->rounds && !r->wrong; i++) {
		for (size_t k = 0; k < WORDS; k++)
			r->own[k] = word(i, r->v.pe, k);
		if (send(r, next, i))
			r->wrong = "a post failed";
		if (spmtd_port_wait(&r->v, &r->to[prev]))
			r->wrong = "a wait failed";
		for (size_t k = 0; k < WORDS; k++)
			if (r->came[k] != word(i, prev, k))
				r->wrong = "a signal came before its data";
		if (spmtd_port_signal(&r->v, &r->to[prev]))
			r->wrong = "a signal was not posted";
		if (spmtd_port_wait(&r->v, &r->to[next]))
			r->wrong = "a wait for the way back failed";
	}
	return NULL;
}

/* As ring, by packets, which are read while they are written. */
static void *packets(void *arg)
{
	struct runner *r = arg;
	int prev = (r->v.pe + RANKS - 1) % RANKS, next = (r->v.pe + 1) % RANKS;
	size_t half = BYTES / 2;
	uint64_t own[WORDS / 2], came[WORDS / 2];

	for (size_t i = 1; i <= r->rounds && !r->wrong; i++) {
		for (size_t k = 0; k < WORDS / 2; k++)
			own[k] = word(i, r->v.pe, k);
		if (spmtd_port_put_packets(
			    &r->v, &r->to[next], r->off + BYTES, r->off, own, half, (uint32_t)i))
			r->wrong = "packets were not posted";
		if (spmtd_port_unpack_packets(
			    &r->v, &r->to[prev], came, r->off + BYTES, half, (uint32_t)i))
			r->wrong = "packets did not come";
		for (size_t k = 0; k < WORDS / 2; k++)
			if (came[k] != word(i, prev, k))
				r->wrong = "a flag came before its data";
		if (spmtd_port_signal(&r->v, &r->to[prev]) ||
			spmtd_port_wait(&r->v, &r->to[next]) ||
			spmtd_port_flush(&r->v, &r->to[next]))
			r->wrong = "the way back failed";
	}
	return NULL;
}

/* As fast as the ring goes, so that it is full most of the time. */
static void *flood(void *arg)
{
	struct runner *r = arg;
	int prev = (r->v.pe + RANKS - 1) % RANKS, next = (r->v.pe + 1) % RANKS;
	size_t n = 400 * r->rounds;

	for (size_t i = 0; i < n && !r->wrong; i++)
		if (spmtd_port_signal(&r->v, &r->to[next]))
			r->wrong = "a signal was not posted";
	for (size_t i = 0; i < n && !r->wrong; i++)
		if (spmtd_port_wait(&r->v, &r->to[prev]))
			r->wrong = "a signal was lost";
	return NULL;
}

struct turn {
	void *(*fn)(void *);
	size_t rounds;
};

static int runner_make(
	spmt_comm *comm, struct runner *r, uint64_t *block, int index, const struct turn *turn)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr),
		.index = index,
		.remote = block,
		.remote_size = BLOCKS * (size_t)PLACE };

	memset(r, 0, sizeof(*r));
	r->v.size = sizeof(r->v);
	r->off = (size_t)index * PLACE;
	r->own = block + r->off / 8;
	r->came = r->own + WORDS;
	r->rounds = turn->rounds;
	REQUIRE_OK(spmt_view_get(comm, &r->v));
	for (attr.peer = 0; attr.peer < RANKS; attr.peer++) {
		r->to[attr.peer].size = sizeof(r->to[0]);
		REQUIRE_OK(spmt_port_get(comm, &attr, &r->to[attr.peer]));
	}
	return 0;
}

static int rank_main(spmt_comm *comm, void *arg)
{
	const struct turn *turn = arg;
	struct runner runners[BLOCKS];
	const char *wrong = NULL;
	void *block;

	REQUIRE_OK(spmt_set_timeout(comm, 100000));
	REQUIRE_OK(spmt_calloc(comm, BLOCKS, PLACE, &block));
	for (int i = 0; i < BLOCKS; i++)
		TRY(runner_make(comm, &runners[i], block, i, turn));
	for (int i = 0; i < BLOCKS; i++)
		REQUIRE_EQ(pthread_create(&runners[i].thread, NULL, turn->fn, &runners[i]), 0);
	for (int i = 0; i < BLOCKS; i++) {
		pthread_join(runners[i].thread, NULL);
		wrong = runners[i].wrong ? runners[i].wrong : wrong;
	}
	return wrong ? ranks_fail("%s", wrong) : 0;
}

/* Worlds that begin and end while the other one posts. */
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
	return run(ring, test_count(800, 8000));
}

static int floods(void)
{
	return run(flood, test_count(40, 400));
}

static int packet_rings(void)
{
	return run(packets, test_count(100, 2000));
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "puts and signals round a ring", rings },
		{ "packets round a ring", packet_rings },
		{ "more posts than there is room for", floods },
	};

	ranks_deadline(200);
	return tap_run(cases, sizeof(cases) / sizeof(*cases));
}
