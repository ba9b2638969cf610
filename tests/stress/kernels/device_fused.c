/* SPDX-License-Identifier: MIT */
/* What fused kernels are made of, from many threads at once, on views made by hand: packets, barrier sessions, collectives. For
   ThreadSanitizer. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/device/plain_views.h"
#include "tests/lib/ranks.h"

enum { RANKS = 3, BLOCKS = 3, WORDS = 40 };
/* Places in every heap, for each of its blocks one. */
enum { PLACE = 32768, PACKETS = 0, DATA = 16384, RESULT = 24576, HEAP = BLOCKS * PLACE };

/* A block of a rank's kernel. */
struct runner {
	pthread_t thread;
	struct spmt_view v;
	uint32_t block;
	size_t rounds;
	const char *wrong;
};

static struct views world;

static char *sym(const struct runner *r, size_t off)
{
	return views_heap(&world, r->v.pe) + r->block * (size_t)PLACE + off;
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
		runners[i].v = view_of(&world, i % RANKS);
		runners[i].block = (uint32_t)(i / RANKS);
		runners[i].rounds = rounds;
	}
	for (int i = 0; i < RANKS * BLOCKS; i++)
		if (pthread_create(&runners[i].thread, NULL, fn, &runners[i]))
			exit(1);
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

/* One phase: everybody puts to everybody, in two buffers by turns, and nothing else tells that one is free. */
static void *exchanged(void *arg)
{
	struct runner *r = arg;
	uint64_t mine[WORDS], theirs[WORDS];

	for (size_t i = 1; i <= r->rounds && !r->wrong; i++) {
		uint32_t flag = (uint32_t)(i + UINT32_MAX - 50); /* which wraps, and is never 0 */
		size_t turn = PACKETS + i % 2 * RANKS * sizeof(mine) * 2;
		bool narrow = i % 3 == 0;

		flag += flag < i ? 1 : 0;
		for (size_t k = 0; k < WORDS; k++)
			mine[k] = word(i, r->v.pe, k);
		for (int pe = 0; pe < RANKS; pe++) {
			char *to = sym(r, turn + (size_t)r->v.pe * sizeof(mine) * 2);

			if (narrow)
				spmtd_put_packets8_block(&r->v, to, mine, sizeof(mine), flag, pe);
			else
				spmtd_put_packets(&r->v, to, mine, sizeof(mine), flag, pe);
		}
		for (int pe = 0; pe < RANKS; pe++) {
			char *from = sym(r, turn + (size_t)pe * sizeof(mine) * 2);

			if (narrow ? spmtd_get_packets8(&r->v, theirs, from, sizeof(mine), flag)
				   : spmtd_get_packets_warp(
					     &r->v, theirs, from, sizeof(mine), flag))
				r->wrong = "packets did not come";
			for (size_t k = 0; k < WORDS && !r->wrong; k++)
				if (theirs[k] != word(i, pe, k))
					r->wrong = "a packet's data is not its flag's";
		}
	}
	return NULL;
}

/* Rank 0 sends round the ring, the others send on. */
static void *forwarded(void *arg)
{
	struct runner *r = arg;
	int next = (r->v.pe + 1) % RANKS;
	uint64_t data[WORDS];

	for (size_t i = 1; i <= r->rounds && !r->wrong; i++) {
		char *at = sym(r, PACKETS);
		uint32_t flag = (uint32_t)i;
		int rc;

		for (size_t k = 0; k < WORDS; k++)
			data[k] = word(i, 0, k);
		if (r->v.pe == 0)
			spmtd_put_packets(&r->v, at, data, sizeof(data), flag, next);
		memset(data, 0, sizeof(data));
		if (r->v.pe == 0)
			rc = spmtd_get_packets(&r->v, data, at, sizeof(data), flag);
		else
			rc = spmtd_forward_packets(
				&r->v, at, i % 2 ? data : NULL, at, sizeof(data), flag, next);
		if (rc)
			r->wrong = "packets did not come round";
		for (size_t k = 0; k < WORDS && (i % 2 || r->v.pe == 0); k++)
			if (data[k] != word(i, 0, k))
				r->wrong = "packets changed on their way";
	}
	return NULL;
}

/* Blocks of one index alone meet: each writes to the next rank's, and reads what came. */
static void *met(void *arg)
{
	struct runner *r = arg;
	uint32_t index = r->block * 100;
	int next = (r->v.pe + 1) % RANKS, prev = (r->v.pe + RANKS - 1) % RANKS;
	uint64_t data[WORDS], *came = (uint64_t *)(void *)sym(r, DATA);

	for (size_t i = 1; i <= r->rounds * (1 + r->block) && !r->wrong; i++) {
		for (size_t k = 0; k < WORDS; k++)
			data[k] = word(i, r->v.pe, k);
		spmtd_putmem_nbi(&r->v, came, data, sizeof(data), next);
		if (i % 2 ? spmtd_barrier_at(&r->v, index) : spmtd_barrier_at_block(&r->v, index))
			r->wrong = "a barrier failed";
		for (size_t k = 0; k < WORDS; k++)
			if (came[k] != word(i, prev, k))
				r->wrong = "a barrier came before its data";
		if (i % 4 < 2 ? spmtd_sync_at_warp(&r->v, index) : spmtd_sync_at(&r->v, index))
			r->wrong = "a sync failed";
	}
	return NULL;
}

/* Collectives of several blocks at once, in a session each. */
static void *together(void *arg)
{
	struct runner *r = arg;
	uint64_t *src = (uint64_t *)(void *)sym(r, DATA), *dst = (uint64_t *)(void *)sym(r, RESULT);

	for (size_t i = 1; i <= r->rounds && !r->wrong; i++) {
		size_t n = i % WORDS;
		int root = (int)(i % RANKS), rc;

		for (size_t k = 0; k < n; k++)
			src[k] = word(i, r->v.pe, k);
		rc = spmtd_uint64_sum_all_reduce_at_block(&r->v, dst, src, n, r->block);
		for (size_t k = 0; k < n; k++)
			if (dst[k] != word(i, 0, k) + word(i, 1, k) + word(i, 2, k))
				r->wrong = "a sum is wrong";
		if (!rc)
			rc = spmtd_all_gathermem_at(&r->v, dst, src, n * 8, r->block);
		for (size_t k = 0; k < RANKS * n; k++)
			if (dst[k] != word(i, (int)(k / n), k % n))
				r->wrong = "an all_gather is wrong";
		if (!rc)
			rc = spmtd_broadcastmem_at_warp(&r->v, src, src, n * 8, root, r->block);
		for (size_t k = 0; k < n; k++)
			if (src[k] != word(i, root, k))
				r->wrong = "a broadcast is wrong";
		if (rc)
			r->wrong = "a collective failed";
	}
	return NULL;
}

int main(void)
{
	puts("1..4");
	run_all("packets of all to all in two buffers", exchanged, test_count(1500, 60000));
	run_all("packets forwarded round a ring", forwarded, test_count(1000, 40000));
	run_all("blocks meet by index", met, test_count(700, 20000));
	run_all("collectives in sessions", together, test_count(500, 15000));
	return 0;
}
