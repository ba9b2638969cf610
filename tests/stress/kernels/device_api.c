/* SPDX-License-Identifier: MIT */
/* The device header and the kernels from many threads at once, on views made by hand; for
   ThreadSanitizer. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/kernels/area.h"
#include "src/kernels/kernels.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/ranks.h"

enum { RANKS = 6, BLOCK = 512 };

/* Places in every heap. */
enum { SIGNAL = 0, COUNTER = 64, FLAGS = 128, DATA = 4096, SOURCE = 32768, HEAP = 65536 };

struct runner {
	pthread_t thread;
	struct spmt_view v;
	size_t rounds;
	const char *wrong;
};

static struct views world;

static char *sym(const struct runner *r, size_t off)
{
	return views_heap(&world, r->v.pe) + off;
}

static void run_all(const char *name, void *(*fn)(void *), size_t rounds)
{
	static int tests;
	struct runner runners[RANKS];
	const char *wrong = NULL;

	if (views_open(&world, RANKS, HEAP, tests % 2))
		exit(1);
	world.timeout_ns = 50000000000ull;
	memset(runners, 0, sizeof(runners));
	for (int pe = 0; pe < RANKS; pe++) {
		runners[pe].v = view_of(&world, pe);
		runners[pe].rounds = rounds;
	}
	for (int pe = 0; pe < RANKS; pe++)
		if (pthread_create(&runners[pe].thread, NULL, fn, &runners[pe]))
			exit(1);
	for (int pe = 0; pe < RANKS; pe++) {
		pthread_join(runners[pe].thread, NULL);
		wrong = runners[pe].wrong ? runners[pe].wrong : wrong;
	}
	views_close(&world);
	printf("%sok %d - %s, %zu rounds\n", wrong ? "not " : "", ++tests, name, rounds);
	if (wrong)
		printf("# %s\n", wrong);
	if (wrong)
		exit(1);
}

/* Everybody writes a block to everybody; after the barrier all must be there; after the next,
   all may be overwritten. */
static void *barriers(void *arg)
{
	struct runner *r = arg;

	for (size_t i = 0; i < r->rounds && !r->wrong; i++) {
		char *mine = sym(r, DATA + (size_t)r->v.pe * BLOCK);

		memset(sym(r, SOURCE), (int)(i + (size_t)r->v.pe), BLOCK);
		for (int pe = 0; pe < RANKS; pe++)
			spmtd_putmem_nbi(&r->v, mine, sym(r, SOURCE), BLOCK - i % 32, pe);
		if (i % 2 ? spmtd_barrier(&r->v) : spmtd_barrier_block(&r->v))
			r->wrong = "a barrier failed";
		for (int pe = 0; pe < RANKS; pe++)
			if (*sym(r, DATA + (size_t)pe * BLOCK + i % 480) != (char)(i + (size_t)pe))
				r->wrong = "a barrier came before its data";
		if (spmtd_quiet(&r->v) || (i % 3 ? spmtd_sync(&r->v) : spmtd_barrier_warp(&r->v)))
			r->wrong = "a sync failed";
	}
	return NULL;
}

/* A ring: data and signal to the next, wait for the previous one's. */
static void *ring(void *arg)
{
	struct runner *r = arg;
	uint64_t *sig = (uint64_t *)(void *)sym(r, SIGNAL), *back = sig + 1;
	int next = (r->v.pe + 1) % RANKS, before = (r->v.pe + RANKS - 1) % RANKS;

	for (size_t i = 1; i <= r->rounds && !r->wrong; i++) {
		size_t n = i % 7 ? i % BLOCK : 0;
		int op = i % 2 ? SPMT_SIGNAL_ADD : SPMT_SIGNAL_SET;

		memset(sym(r, SOURCE), (int)i, n);
		spmtd_putmem_signal(&r->v, sym(r, DATA), sym(r, SOURCE), n, sig,
			op == SPMT_SIGNAL_ADD ? 1 : i, op, next);
		if (spmtd_signal_wait_until(&r->v, sig, SPMT_CMP_GE, i))
			r->wrong = "a signal did not come";
		for (size_t k = 0; k < n; k += 61)
			if (*sym(r, DATA + k) != (char)i)
				r->wrong = "a signal came before its data";
		spmtd_uint64_p(&r->v, back, i, before); /* its block has been read */
		if (spmtd_uint64_wait_until(&r->v, back, SPMT_CMP_EQ, i))
			r->wrong = "an answer did not come";
	}
	return NULL;
}

/* A flag that is put as 8 bytes, ordered after its data by a fence alone. */
static void *flags(void *arg)
{
	struct runner *r = arg;
	uint64_t *flag = (uint64_t *)(void *)sym(r, FLAGS), seen;
	int next = (r->v.pe + 1) % RANKS;

	for (uint64_t i = 1; i <= r->rounds && !r->wrong; i++) {
		memset(sym(r, SOURCE), (int)i, BLOCK);
		spmtd_putmem(&r->v, sym(r, DATA), sym(r, SOURCE), BLOCK, next);
		spmtd_fence(&r->v);
		spmtd_putmem(&r->v, flag, &i, sizeof(i), next);
		if (spmtd_uint64_wait_until_all(&r->v, flag, 1, NULL, SPMT_CMP_GE, i))
			r->wrong = "a flag did not come";
		if (*sym(r, DATA + i % BLOCK) != (char)i)
			r->wrong = "a flag came before its data";
		seen = 0;
		spmtd_getmem(&r->v, &seen, flag, sizeof(seen), next);
		if (seen != i) /* nobody else puts it there */
			r->wrong = "a get does not see what was put";
		if (spmtd_sync(&r->v))
			r->wrong = "a sync failed";
	}
	return NULL;
}

/* Ranks 0 and 1 meet here, at the same time as nearly as can be. */
static void both(int pe, uint64_t nth)
{
	static uint64_t here[2][8];

	__atomic_store_n(&here[pe][0], nth, __ATOMIC_RELEASE);
	for (int i = 1; __atomic_load_n(&here[!pe][0], __ATOMIC_ACQUIRE) < nth; i++)
		if (i % 1000 == 0)
			sched_yield();
}

/* Each of two ranks stores at the other, completes, and loads what the other stores: one at least sees it. With no host
   behind the view nothing but quiet orders that. */
static void *answers(void *arg)
{
	static uint64_t seen[2][2];
	struct runner *r = arg;
	uint64_t *cell = (uint64_t *)(void *)sym(r, FLAGS);
	int pe = r->v.pe;

	r->v.host = NULL;
	for (uint64_t i = 1; pe < 2 && i <= r->rounds; i++) {
		both(pe, 2 * i - 1);
		spmtd_uint64_p(&r->v, cell, i, !pe);
		spmtd_quiet(&r->v);
		seen[i % 2][pe] = spmtd_uint64_g(&r->v, cell, pe);
		both(pe, 2 * i);
		if (seen[i % 2][0] < i && seen[i % 2][1] < i)
			r->wrong =
				"two ranks completed what they stored, and neither saw the other's";
	}
	return NULL;
}

static void *atomics(void *arg)
{
	struct runner *r = arg;
	uint64_t *sum = (uint64_t *)(void *)sym(r, COUNTER), sum_want = 0;
	uint8_t *small = (uint8_t *)(sum + 1), small_want[4] = { 0 };
	float *real = (float *)(void *)(sum + 2);

	for (size_t i = 0; i < r->rounds; i++) {
		int pe = (int)(i % RANKS);

		spmtd_uint64_atomic_add(&r->v, sum, i, pe);
		spmtd_uint64_atomic_fetch_inc(&r->v, sum, pe);
		spmtd_uint8_atomic_fetch_add(&r->v, small + i / RANKS % 4, 1, pe);
		spmtd_float_atomic_add(&r->v, real, 1, pe);
		if ((int)(i % RANKS) == r->v.pe) {
			sum_want += (i + 1) * RANKS;
			small_want[i / RANKS % 4] = (uint8_t)(small_want[i / RANKS % 4] + RANKS);
		}
	}
	if (spmtd_barrier(&r->v))
		r->wrong = "the barrier failed";
	if (spmtd_uint64_atomic_fetch(&r->v, sum, r->v.pe) != sum_want)
		r->wrong = "a sum is wrong";
	if (memcmp(small, small_want, sizeof(small_want)) != 0)
		r->wrong = "a sum of bytes is wrong, or its neighbour";
	if (*real != (float)(r->rounds / RANKS * RANKS))
		r->wrong = "a sum of floats is wrong";
	return NULL;
}

/* The kth word of rank pe's input to round i. */
static uint32_t given(size_t i, size_t k, size_t pe)
{
	return (uint32_t)(i * 1000 + k + pe * 100000);
}

/* The kth word of all RANKS * 8 that rank `me` has after round i; 0 where nothing comes. */
static uint32_t wanted(int kind, size_t i, size_t k, size_t me)
{
	size_t root = i % RANKS;
	uint32_t sum = 0;

	if (kind == COLL_ALL_GATHER)
		return given(i, k % 8, k / 8);
	if (kind == COLL_ALL_TO_ALL)
		return given(i, me * 8 + k % 8, k / 8);
	if (k >= 8 || (kind == COLL_REDUCE && me != root))
		return 0;
	for (size_t pe = 0; pe < RANKS; pe++)
		sum += given(i, kind == COLL_REDUCE_SCATTER ? me * 8 + k : k, pe);
	if (kind == COLL_BROADCAST)
		return given(i, k, root);
	/* from `root` on, in turn */
	return kind == COLL_PERMUTE ? given(i, k, (me + root) % RANKS) : sum;
}

static void *collectives(void *arg)
{
	struct runner *r = arg;
	size_t me = (size_t)r->v.pe;
	uint32_t src[RANKS * 8], dst[RANKS * 8];
	struct kernel_collective_args args = { .view = r->v,
		.src = (uint64_t)(uintptr_t)src,
		.dst = (uint64_t)(uintptr_t)dst,
		.bytes = 8 * sizeof(*src),
		.type = SPMT_TYPE_U32,
		.op = SPMT_OP_SUM,
		.words = AREA_BLOCKS,
		.places = coll_places(RANKS),
		.share = coll_share(8 * sizeof(*src), RANKS, 1, 1) };

	for (size_t i = 0; i < r->rounds && !r->wrong; i++) {
		static const enum kernel_collective_kind kinds[] = { COLL_BROADCAST,
			COLL_ALL_GATHER, COLL_ALL_TO_ALL, COLL_PERMUTE, COLL_REDUCE_SCATTER,
			COLL_ALL_REDUCE, COLL_REDUCE };
		size_t n = sizeof(kinds) / sizeof(kinds[0]);
		struct coll_case c = { .kind = kinds[i / RANKS % n],
			.bytes = args.bytes,
			.room = i / RANKS / n % 2 ? VIEWS_ROOM : 0, /* through slots, or not */
			.wanted = -1 };
		int root = (int)(i % RANKS), to = 0; /* each kind with every root */

		if (c.kind == COLL_PERMUTE) {
			root = (int)((me + i) % RANKS);
			to = (int)((me + RANKS - i % RANKS) % RANKS);
		}
		args.key = i;
		args.room = c.room;
		args.algorithm = coll_choose(&c);
		args.moves = coll_moves(c.kind, (int)me, RANKS, root, to);
		for (size_t k = 0; k < RANKS * 8; k++)
			src[k] = given(i, k, me);
		memset(dst, 0, sizeof(dst));
		kernel_collective.host(&args);
		for (size_t k = 0; k < RANKS * 8; k++)
			if (dst[k] != wanted((int)c.kind, i, k, me))
				r->wrong = "a collective is wrong";
		if (area_of(&r->v)->error)
			r->wrong = "a collective failed";
	}
	return NULL;
}

int main(void)
{
	puts("1..6");
	run_all("barriers hold back what comes after", barriers, test_count(3000, 100000));
	run_all("signals follow their data round a ring", ring, test_count(3000, 100000));
	run_all("a fence orders a flag after its data", flags, test_count(2000, 50000));
	run_all("of two that complete what they stored one sees it", answers,
		test_count(100000, 1000000));
	run_all("atomics lose nothing", atomics, test_count(6000, 600000) / RANKS * RANKS);
	run_all("collectives in a row", collectives, test_count(3000, 60000));
	return 0;
}
