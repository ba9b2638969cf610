/* SPDX-License-Identifier: MIT */
/* Channels between many threads at once, on views made by hand: for ThreadSanitizer, which sees whether a signal orders what was put
   before it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/device/plain_views.h"
#include "tests/lib/ranks.h"

enum { RANKS = 3, BLOCKS = 3, WORDS = 40, BYTES = WORDS * 8 };
/* Places in every heap, for each of its blocks one; a block's channels have its index. */
enum { PLACE = 16384, OWN = 0, CAME = 4096, PACKETS = 8192, SUM = 12288, HEAP = BLOCKS * PLACE };

struct runner {
	pthread_t thread;
	struct spmt_view v;
	struct spmt_channel to[RANKS]; /* by peer */
	uint32_t block;
	size_t rounds;
	const char *wrong;
};

static struct views world;

static uint64_t *at(const struct runner *r, size_t off)
{
	return (uint64_t *)(void *)(views_heap(&world, r->v.pe) + r->block * (size_t)PLACE + off);
}

static void run_all(const char *name, void *(*fn)(void *), size_t rounds)
{
	static int tests;
	struct runner runners[RANKS * BLOCKS];
	const char *wrong = NULL;

	if (views_open(&world, RANKS, HEAP, tests % 2))
		exit(1);
	world.timeout_ns = 100000000000ull;
	memset(runners, 0, sizeof(runners));
	for (int i = 0; i < RANKS * BLOCKS; i++) {
		struct runner *r = &runners[i];

		r->v = view_of(&world, i % RANKS);
		r->block = (uint32_t)(i / RANKS);
		r->rounds = rounds;
		for (int pe = 0; pe < RANKS; pe++)
			r->to[pe] = channel_of(&world, r->v.pe, pe, r->block,
				r->block * (size_t)PLACE, r->block * (size_t)PLACE, PLACE);
		if (pthread_create(&r->thread, NULL, fn, r))
			exit(1);
	}
	for (int i = 0; i < RANKS * BLOCKS; i++) {
		pthread_join(runners[i].thread, NULL);
		wrong = runners[i].wrong ? runners[i].wrong : wrong;
	}
	views_close(&world);
	printf("%sok %d - %s, %zu rounds\n", wrong ? "not " : "", ++tests, name, rounds);
	if (wrong) {
		printf("# %s\n", wrong);
		exit(1);
	}
}

static uint64_t word(size_t round, int pe, size_t i)
{
	return round * 0x9e3779b97f4a7c15u + (uint64_t)pe * 1000003 + i;
}

static void fill(uint64_t *to, size_t round, int pe)
{
	for (size_t i = 0; i < WORDS; i++)
		to[i] = word(round, pe, i);
}

static void check(struct runner *r, const uint64_t *words, size_t round, int pe, const char *wrong)
{
	for (size_t i = 0; i < WORDS; i++)
		if (words[i] != word(round, pe, i))
			r->wrong = wrong;
}

/* Puts round the ring; the way back says that the place is free. */
static void *put(void *arg)
{
	struct runner *r = arg;
	int prev = (r->v.pe + RANKS - 1) % RANKS, next = (r->v.pe + 1) % RANKS;

	for (size_t i = 1; i <= r->rounds && !r->wrong; i++) {
		fill(at(r, OWN), i, r->v.pe);
		if (i % 2) {
			spmtd_channel_put_signal(&r->v, &r->to[next], CAME, OWN, BYTES);
		} else {
			spmtd_channel_put_group(&r->v, &r->to[next], CAME, OWN, BYTES, 0, 2);
			spmtd_channel_put_group(&r->v, &r->to[next], CAME, OWN, BYTES, 1, 2);
			spmtd_channel_signal_block(&r->v, &r->to[next], SPMTD_DATA_SYNC_BOTH);
		}
		while (i % 3 == 0 && !spmtd_channel_poll(&r->v, &r->to[prev]))
			sched_yield();
		if (i % 3 && spmtd_channel_wait(&r->v, &r->to[prev]))
			r->wrong = "a wait failed";
		check(r, at(r, CAME), i, prev, "a signal came before its data");
		spmtd_channel_signal(&r->v, &r->to[prev]);
		if (spmtd_channel_wait_warp(&r->v, &r->to[next], SPMTD_DATA_SYNC_AFTER))
			r->wrong = "a wait for the way back failed";
	}
	return NULL;
}

/* All fold what all others have, through channels, and get it. */
static void *folded(void *arg)
{
	struct runner *r = arg;
	const uint64_t offsets[RANKS] = { OWN, OWN, OWN };
	struct spmt_channel others[RANKS];
	int n = 0;

	for (int pe = 0; pe < RANKS; pe++)
		if (pe != r->v.pe)
			others[n++] = r->to[pe];
	for (size_t i = 1; i <= r->rounds && !r->wrong; i++) {
		fill(at(r, OWN), i, r->v.pe);
		for (int k = 0; k < n; k++)
			spmtd_channel_signal(&r->v, &others[k]);
		for (int k = 0; k < n; k++)
			if (spmtd_channel_wait(&r->v, &others[k]))
				r->wrong = "a wait failed";
		spmtd_channel_uint64_sum_reduce(
			&r->v, at(r, SUM), at(r, OWN), others, offsets, n, WORDS);
		for (size_t k = 0; k < WORDS; k++)
			if (at(r, SUM)[k] != word(i, 0, k) + word(i, 1, k) + word(i, 2, k))
				r->wrong = "a sum is wrong";
		spmtd_channel_get(&r->v, &others[0], CAME, OWN, BYTES);
		check(r, at(r, CAME), i, others[0].peer, "what was got is wrong");
		for (int k = 0; k < n; k++)
			spmtd_channel_signal(&r->v, &others[k]);
		for (int k = 0; k < n; k++)
			if (spmtd_channel_wait(&r->v, &others[k]))
				r->wrong = "a wait for the end failed";
	}
	return NULL;
}

/* Packets by way of another rank, which sends them on as they come. */
static void *sent_on(void *arg)
{
	struct runner *r = arg;
	struct spmt_channel *next = &r->to[(r->v.pe + 1) % RANKS];

	for (size_t i = 1; i <= r->rounds && !r->wrong; i++) {
		uint32_t flag = (uint32_t)i;
		int rc;

		if (r->v.pe == 0) {
			fill(at(r, OWN), i, 0);
			spmtd_channel_put_packets(&r->v, next, PACKETS, OWN, BYTES, flag);
			rc = spmtd_channel_unpack_packets(&r->v, next, CAME, PACKETS, BYTES, flag);
			check(r, at(r, CAME), i, 0, "packets changed on their way");
		} else {
			rc = spmtd_channel_read_put_packets(
				&r->v, next, PACKETS, PACKETS, BYTES, flag);
		}
		if (rc)
			r->wrong = "packets did not come";
	}
	return NULL;
}

int main(void)
{
	puts("1..3");
	run_all("puts and signals round a ring", put, test_count(1500, 60000));
	run_all("reductions through channels", folded, test_count(700, 30000));
	run_all("packets sent on", sent_on, test_count(1000, 40000));
	return 0;
}
