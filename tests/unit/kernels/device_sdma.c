/* SPDX-License-Identifier: MIT */
/* Copy engines fed by kernels: what is written into a ring, in which order the engine hears of it, rings that wrap and are full. The engine
   is software and goes on only when told, or by a thread of its own. */
static void on_store(const volatile void *word);
#define SPMTD_SEEN(a) ((void)0)
#define SPMTD_SHOWN(a) on_store(a)
#include "spmt_device.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "src/device/sdma/engine.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/patterns.h"
#include "transports/sdma/kernel_queue.h"

enum { RING = 4096, UNITS = RING / 64, HEAP = 1 << 16, PEER = 2, THREADS = 4 };

static const struct {
	struct sdma_format format;
	bool signals;
} kinds[] = {
	{ { SDMA_V4, 22, 64, true }, true },
	{ { SDMA_V4, 22, 256, false }, false },
	{ { SDMA_V5, 30, 64, true }, false },
	{ { SDMA_V5, 22, 64, false }, true },
};
#define KINDS ARRAY_SIZE(kinds)

/* The queue from rank 1 to rank 2 of 3. */
static struct hand {
	struct sdma_queue queue;
	struct sdma_engine engine;
	_Alignas(64) uint32_t ring[RING / 4];
	uint64_t ends[UNITS];
	_Atomic uint64_t read, write, completed, bell;
	_Atomic int rings;
	int early; /* stores to the doorbell that the write pointer was not ahead of */
	_Atomic bool closing;
	pthread_t thread;
} hand;
static struct spmtd_sdma table[3];
static struct views world;
static struct spmt_view me;
static char *mine, *theirs;

static void on_store(const volatile void *word)
{
	if (word == &hand.bell && (int64_t)(hand.write - hand.bell) <= 0)
		hand.early++;
}

static bool hand_reach(int dev, const void *ptr, size_t n)
{
	(void)ptr;
	(void)n;
	return dev == 1;
}

static void hand_move(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
}

static void hand_rung(uint64_t queue)
{
	cr_assert_eq(queue, (uintptr_t)&hand.queue);
	hand.rings++;
}

static void open_world(size_t kind)
{
	cr_assert_eq(views_open(&world, 3, HEAP, kind & 1), 0);
	memset(&hand, 0, sizeof(hand));
	hand.queue = (struct sdma_queue){ .format = kinds[kind].format,
		.ring = hand.ring,
		.size = RING,
		.read = &hand.read,
		.write = &hand.write,
		.doorbell = &hand.bell,
		.rung = hand_rung,
		.completed = &hand.completed,
		.signals = kinds[kind].signals };
	hand.engine = (struct sdma_engine){ &hand.queue, 1, hand_reach, hand_move };
	hand.read = hand.write = hand.completed = hand.bell = 0 - 2 * (uint64_t)RING;
	memset(table, 0, sizeof(table));
	cr_assert_leq(kernel_queue_room(&hand.queue), sizeof(hand.ends));
	kernel_queue_fill(&hand.queue, &table[PEER], hand.ends, (uintptr_t)hand.ends);
	me = view_of(&world, 1);
	me.sdma = table;
	mine = views_heap(&world, 1);
	theirs = views_heap(&world, PEER);
}

static void close_world(void)
{
	cr_expect_eq(hand.early, 0, "the doorbell was stored before the write pointer");
	views_close(&world);
}

TestSuite(device_sdma, .timeout = 120);

/* Serves what was told; how many packets. */
static int serve(void)
{
	int n = 0, rc;

	while ((rc = sdma_engine_step(&hand.engine, hand.bell)) > 0)
		n++;
	cr_assert_eq(rc, 0, "%s", hand.queue.why); /* who waits for it would do so for ever */
	return n;
}

static int serve_meanwhile(const struct spmt_view *v, struct spmtd_pause *p)
{
	(void)v;
	(void)p;
	serve();
	return 0;
}

static void *engine(void *arg)
{
	int rc = 0;

	(void)arg;
	while (!hand.closing && rc >= 0) {
		rc = sdma_engine_step(&hand.engine, hand.bell);
		if (!rc)
			sched_yield();
	}
	if (rc < 0) /* nobody waits for it */
		__atomic_store_n(&world.stop, 1, __ATOMIC_RELEASE);
	return NULL;
}

static uint64_t word_there(size_t i)
{
	return __atomic_load_n((uint64_t *)(void *)theirs + i, __ATOMIC_ACQUIRE);
}

/* ---- packets */

/* The packets of packet.h, each as the host's rings have it. */
static uint32_t *put_begin(const struct sdma_format *f, uint32_t *at)
{
	return f->version >= SDMA_V5 ? sdma_put_cache(at, true) : at;
}

static void ends_as(const struct sdma_format *f, const uint32_t *want, uint32_t *at, uint64_t begin)
{
	size_t unit = f->unit / 4, words;

	if (f->version >= SDMA_V5)
		at = sdma_put_cache(at, false);
	words = (size_t)(at - want) + (f->atomics ? SDMA_ATOMIC_WORDS : SDMA_FENCE_WORDS);
	words = (words + unit - 1) / unit * unit;
	if (f->atomics)
		at = sdma_put_add(at, &hand.completed, words * 4);
	else
		at = sdma_put_fence(f, at, &hand.completed, (uint32_t)(begin + words * 4));
	sdma_put_nop(at, words - (size_t)(at - want));
	cr_assert_eq(hand.bell, begin + words * 4);
	cr_assert_arr_eq(hand.ring + (begin & (RING - 1)) / 4, want, words * 4);
}

Test(device_sdma, packets_are_those_of_the_host)
{
	uint32_t want[256], swap[SDMA_ATOMIC_WORDS], *at;

	for (size_t k = 0; k < KINDS; k++) {
		const struct sdma_format *f = &kinds[k].format;
		uint64_t begin;

		open_world(k);
		begin = hand.bell;
		cr_assert_eq(spmtd_sdma_put(&me, mine + 3, mine + 4097, 333, PEER), 0);
		at = sdma_put_copy(put_begin(f, want), theirs + 3, mine + 4097, 333);
		ends_as(f, want, at, begin);
		begin = hand.bell;
		if (kinds[k].signals) {
			uint64_t *sig = (uint64_t *)(void *)mine + 5;
			const uint64_t value = 0x0123456789abcdef;

			cr_assert_eq(
				spmtd_sdma_signal_warp(&me, sig, value, SPMT_SIGNAL_ADD, PEER), 0);
			at = sdma_put_add(put_begin(f, want), theirs + 40, value);
			ends_as(f, want, at, begin);
			begin = hand.bell;
			cr_assert_eq(
				spmtd_sdma_signal_block(&me, sig, value, SPMT_SIGNAL_SET, PEER), 0);
			sdma_put_add(swap, theirs + 40, value);
			swap[0] = SDMA_ATOMIC | SDMA_ATOMIC_SWAP64 << SDMA_ATOMIC_SHIFT;
			at = put_begin(f, want);
			memcpy(at, swap, sizeof(swap));
			ends_as(f, want, at + SDMA_ATOMIC_WORDS, begin);
		}
		serve();
		cr_assert_eq(spmtd_sdma_quiet(&me, PEER), 0);
		close_world();
	}
}

/* Nothing is read or written: the engine is asked for its packets alone. The addresses have room for tens of GiB behind them, which heaps,
   at the end of what a process has, need not have. */
static const uintptr_t long_src = 0x100000000, long_dst = 0x10000000000;
static size_t moved;

static void count_move(void *dst, const void *src, size_t n)
{
	cr_assert_eq((uintptr_t)dst, long_dst + moved);
	cr_assert_eq((uintptr_t)src, long_src + moved);
	moved += n;
}

Test(device_sdma, a_long_put_is_cut)
{
	for (size_t k = 0; k < KINDS; k++) {
		size_t most = sdma_copy_most(&kinds[k].format), sizes[3];

		open_world(k);
		world.ops.pause = serve_meanwhile;
		hand.engine.move = count_move;
		sizes[0] = most;
		sizes[1] = 2 * table[PEER].most + most + 1; /* three submissions */
		sizes[2] = 3 * most - 1;
		for (int i = 0; i < 3; i++) {
			uintptr_t dst = (uintptr_t)mine + (long_dst - (uintptr_t)theirs);
			int rings = hand.rings;

			moved = 0;
			cr_assert_eq(spmtd_sdma_put_block(
					     &me, (void *)dst, (void *)long_src, sizes[i], PEER),
				0);
			cr_assert_eq(spmtd_sdma_quiet_block(&me, -1), 0);
			cr_assert_eq(moved, sizes[i]);
			cr_assert_eq(hand.rings - rings,
				(int)((sizes[i] + table[PEER].most - 1) / table[PEER].most));
		}
		close_world();
	}
}

Test(device_sdma, what_goes_round_the_ring_is_a_model)
{
	static char model[HEAP];
	uint64_t seed = 11, *counts = (uint64_t *)(void *)model;

	for (size_t k = 0; k < KINDS; k++) {
		uint64_t begin;

		open_world(k);
		world.ops.pause = serve_meanwhile;
		begin = hand.bell;
		pattern_fill((unsigned char *)mine, HEAP, k);
		memset(model, 0, sizeof(model));
		for (int i = 0; i < 500; i++) {
			size_t n = random_next(&seed) % 5000;
			size_t to = 64 + random_next(&seed) % (HEAP - 64 - 5000);
			size_t from = random_next(&seed) % (HEAP - 5000);
			uint64_t *sig = (uint64_t *)(void *)mine + i % 8,
				 value = random_next(&seed);
			int op = i & 1 ? SPMT_SIGNAL_SET : SPMT_SIGNAL_ADD;

			if (i % 7 == 0)
				n = 0;
			cr_assert_eq(spmtd_sdma_put(&me, mine + to, mine + from, n, PEER), 0);
			memcpy(model + to, mine + from, n);
			cr_assert_eq(spmtd_sdma_signal(&me, sig, value, op, PEER), 0);
			counts[i % 8] = value + (op == SPMT_SIGNAL_ADD ? counts[i % 8] : 0);
		}
		cr_assert_eq(spmtd_sdma_quiet(&me, PEER), 0);
		cr_assert_arr_eq(theirs, model, HEAP);
		cr_assert_gt(hand.bell - begin, 8 * RING, "it went round");
		cr_assert_lt(hand.bell, begin, "the numbers wrapped");
		close_world();
	}
}

/* ---- order */

Test(device_sdma, an_engine_hears_of_packets_in_their_order)
{
	for (size_t k = 0; k < KINDS; k++) {
		struct spmtd_sdma *q = &table[PEER];
		uint64_t bytes, begin, end, told;

		open_world(k);
		told = hand.bell;
		bytes = spmtd_sdma_bytes_(q, SPMTD_SDMA_DO_COPY_, 8);
		/* a thread has room and has not written yet */
		cr_assert_eq(spmtd_sdma_claim_(q, bytes, &begin, &end), 1);
		for (int i = 0; i < 3; i++)
			cr_assert_eq(spmtd_sdma_put(&me, mine + 8, mine, 8, PEER), 0);
		cr_assert_eq(hand.bell, told, "nobody tells of what is behind that");
		cr_assert_eq(hand.write, told);
		spmtd_sdma_write_(q, begin, end, bytes, SPMTD_SDMA_DO_COPY_, (uintptr_t)theirs,
			(uintptr_t)mine, 8);
		spmtd_sdma_publish_(q, begin, end);
		cr_assert_eq(hand.bell, told + 4 * bytes, "it tells for all");
		cr_assert_eq(hand.rings, 1);
		/* while one tells, another leaves, and is told of by that one */
		q->telling = 1;
		cr_assert_eq(spmtd_sdma_put(&me, mine + 8, mine, 8, PEER), 0);
		cr_assert_eq(hand.bell, told + 4 * bytes);
		q->telling = 0;
		cr_assert_eq(spmtd_sdma_put(&me, mine + 8, mine, 8, PEER), 0);
		cr_assert_eq(hand.bell, told + 6 * bytes);
		serve();
		cr_assert_eq(spmtd_sdma_completed_(q), told + 6 * bytes);
		close_world();
	}
}

Test(device_sdma, quiet_waits_for_what_was_submitted)
{
	for (size_t k = 0; k < KINDS; k++) {
		open_world(k);
		me.timeout_ns = 20000000;
		pattern_fill((unsigned char *)mine, 256, 7);
		cr_assert_eq(spmtd_sdma_quiet(&me, -1), 0, "of nothing");
		cr_assert_eq(spmtd_sdma_put(&me, mine, mine, 256, PEER), 0);
		cr_assert_eq(spmtd_sdma_quiet(&me, 0), 0, "to another one");
		cr_assert_eq(spmtd_sdma_quiet(&me, PEER), SPMTD_TIMEOUT);
		cr_assert_eq(me.record->what, SPMTD_WHAT_SDMA);
		cr_assert_eq(me.record->peer, PEER);
		cr_assert_eq(me.record->expected, hand.bell);
		cr_assert_eq(spmtd_sdma_quiet_warp(&me, -1), SPMTD_TIMEOUT);
		cr_assert_eq(spmtd_quiet(&me), SPMTD_TIMEOUT, "the ordinary one covers it");
		cr_assert_eq(spmtd_quiet_warp(&me), SPMTD_TIMEOUT);
		cr_assert_eq(spmtd_quiet_block(&me), SPMTD_TIMEOUT);
		cr_assert_eq(spmtd_barrier(&me), SPMTD_TIMEOUT);
		cr_assert_eq(views_wakes(&world, 0), 0, "it has not arrived");
		sdma_engine_step(&hand.engine, hand.bell);
		cr_assert_eq(spmtd_sdma_quiet(&me, PEER), SPMTD_TIMEOUT, "packet by packet");
		serve();
		cr_assert_eq(spmtd_quiet_block(&me), 0);
		cr_assert_eq(spmtd_sdma_quiet_block(&me, -1), 0);
		cr_assert_arr_eq(theirs, mine, 256);
		/* fences, and signals that the engine cannot make, wait for it */
		world.ops.pause = serve_meanwhile;
		for (int i = 0; i < 3; i++) {
			pattern_fill((unsigned char *)mine + 8, 248, (uint64_t)i);
			cr_assert_eq(spmtd_sdma_put(&me, mine + 8, mine + 8, 248, PEER), 0);
			if (i == 0)
				spmtd_fence(&me);
			else if (i == 1)
				spmtd_fence_warp(&me);
			else
				spmtd_fence_block(&me);
			cr_assert_arr_eq(theirs, mine, 256);
		}
		close_world();
	}
}

/* A kernel that goes on submits more meanwhile: the host does not wait for that. */
Test(device_sdma, the_host_waits_for_what_was_told_when_it_asked)
{
	for (size_t k = 0; k < KINDS; k++) {
		uint64_t told;

		open_world(k);
		told = kernel_queue_told(&hand.queue);
		cr_assert_eq(kernel_queue_query(&hand.queue, told), 1, "nothing");
		for (int i = 0; i < 100; i++) {
			cr_assert_eq(spmtd_sdma_put(&me, mine, mine + 64, 64, PEER), 0);
			told = kernel_queue_told(&hand.queue);
			cr_assert_eq(kernel_queue_query(&hand.queue, told), 0);
			cr_assert_eq(spmtd_sdma_put(&me, mine, mine + 64, 64, PEER), 0);
			while (hand.read != told)
				cr_assert_eq(sdma_engine_step(&hand.engine, hand.bell), 1);
			cr_assert_eq(kernel_queue_query(&hand.queue, told), 1);
			cr_assert_eq(kernel_queue_query(&hand.queue, hand.bell), 0);
			serve();
			cr_assert_eq(kernel_queue_query(&hand.queue, told), 1);
		}
		hand.queue.error = -EIO;
		cr_assert_eq(kernel_queue_query(&hand.queue, told), 1, "it was done before");
		cr_assert_eq(kernel_queue_query(&hand.queue, hand.bell + 64), -EIO);
		close_world();
	}
}

Test(device_sdma, a_signal_that_the_engine_cannot_make_is_stored_behind_it)
{
	for (size_t k = 0; k < KINDS; k++) {
		uint64_t *sig = (uint64_t *)(void *)mine;

		open_world(k);
		sig = (uint64_t *)(void *)mine;
		pattern_fill((unsigned char *)mine + 64, 512, k);
		world.ops.pause = serve_meanwhile;
		cr_assert_eq(spmtd_sdma_put(&me, mine + 64, mine + 64, 512, PEER), 0);
		cr_assert_eq(spmtd_sdma_signal(&me, sig, 5, SPMT_SIGNAL_SET, PEER), 0);
		cr_assert_eq(word_there(0), kinds[k].signals ? 0 : 5);
		if (!kinds[k].signals)
			cr_assert_arr_eq(theirs + 64, mine + 64, 512);
		serve();
		cr_assert_eq(word_there(0), 5);
		cr_assert_eq(spmtd_sdma_signal_block(&me, sig, 3, SPMT_SIGNAL_ADD, PEER), 0);
		serve();
		cr_assert_eq(word_there(0), 8);
		cr_assert_arr_eq(theirs + 64, mine + 64, 512);
		close_world();
	}
}

/* ---- a full ring */

Test(device_sdma, a_full_ring_ends_at_the_deadline)
{
	for (size_t k = 0; k < KINDS; k++) {
		uint64_t bytes, bell;
		int n = 0;

		open_world(k);
		me.timeout_ns = 20000000;
		bytes = spmtd_sdma_bytes_(&table[PEER], SPMTD_SDMA_DO_COPY_, 8);
		mine[0] = 42;
		while (!spmtd_sdma_put(&me, mine, mine, 8, PEER))
			n++;
		cr_assert_eq(n, (int)(RING / bytes) - 1);
		cr_assert_eq(me.record->what, SPMTD_WHAT_SDMA);
		bell = hand.bell;
		cr_assert_eq(spmtd_sdma_put_block(&me, mine + 1, mine, 8, PEER), SPMTD_TIMEOUT);
		world.stop = 1;
		cr_assert_eq(spmtd_sdma_put_warp(&me, mine + 1, mine, 8, PEER), SPMTD_ABORTED);
		world.stop = 0;
		cr_assert_eq(spmtd_sdma_put(&me, mine, mine, 0, PEER), 0, "nothing needs no room");
		cr_assert_eq(hand.bell, bell, "nothing was submitted");
		serve();
		cr_assert_eq(theirs[0], 42);
		cr_assert_eq(spmtd_sdma_put(&me, mine + 16, mine, 8, PEER), 0);
		serve();
		cr_assert_eq(theirs[16], 42);
		cr_assert_eq(spmtd_sdma_quiet(&me, PEER), 0);
		close_world();
	}
}

/* ---- without a queue */

Test(device_sdma, without_a_queue_they_are_ordinary)
{
	for (int i = 0; i < 3; i++) {
		uint64_t *sig;
		int pe = i == 2 ? 1 : 0;
		char *there;

		open_world(0);
		there = views_heap(&world, pe);
		sig = (uint64_t *)(void *)mine;
		if (i == 0)
			me.sdma = NULL;
		pattern_fill((unsigned char *)mine + 64, 999, 3);
		cr_assert_eq(spmtd_sdma_put(&me, mine + 2064, mine + 64, 333, pe), 0);
		cr_assert_eq(spmtd_sdma_put_warp(&me, mine + 2397, mine + 397, 333, pe), 0);
		cr_assert_eq(spmtd_sdma_put_block(&me, mine + 2730, mine + 730, 333, pe), 0);
		cr_assert_eq(spmtd_sdma_signal(&me, sig, 2, SPMT_SIGNAL_SET, pe), 0);
		cr_assert_eq(spmtd_sdma_signal_block(&me, sig, 3, SPMT_SIGNAL_ADD, pe), 0);
		cr_assert_arr_eq(there + 2064, mine + 64, 999);
		cr_assert_eq(*(uint64_t *)(void *)there, 5);
		cr_assert_eq(spmtd_sdma_quiet(&me, pe), 0);
		cr_assert_eq(spmtd_sdma_quiet_block(&me, -1), 0);
		cr_assert_eq(hand.rings, 0);
		close_world();
	}
}

/* An engine moves in no particular order, the host's copy does. */
Test(device_sdma, what_overlaps_is_not_the_engines)
{
	char want[64];

	open_world(0);
	pattern_fill((unsigned char *)theirs, 64, 9);
	memcpy(want, theirs, 64);
	cr_assert_eq(spmtd_sdma_put(&me, mine + 4, theirs, 32, PEER), 0);
	memmove(want + 4, want, 32);
	cr_assert_eq(hand.rings, 0);
	cr_assert_arr_eq(theirs, want, 64);
	cr_assert_eq(spmtd_sdma_put(&me, mine + 32, theirs, 32, PEER), 0, "side by side");
	cr_assert_eq(hand.rings, 1);
	serve();
	close_world();
}

/* ---- many threads */

struct worker {
	pthread_t thread;
	int index;
	uint64_t seed;
	const char *wrong;
};

/* Each has a part of both heaps of its own, and adds to a word that all share. */
static void *work(void *arg)
{
	struct worker *w = arg;
	enum { PART = HEAP / 8 };
	static const char *const failed = "a call failed";
	char *own = mine + (w->index + 1) * PART, *there = theirs + (w->index + 1) * PART;
	char model[PART / 2] = { 0 };

	for (int i = 0; i < 400 && !w->wrong; i++) {
		size_t n = random_next(&w->seed) % 900;
		/* of two halves in turn: what is put may be written again once it is quiet */
		size_t from = PART / 2 + (i & 1 ? (size_t)PART / 4 : 0) +
			random_next(&w->seed) % (PART / 4 - n);
		size_t to = random_next(&w->seed) % (PART / 2 - n);

		for (size_t k = 0; k < n; k++)
			own[from + k] = (char)(i * 31 + (int)k);
		if (spmtd_sdma_put(&me, own + to, own + from, n, PEER) ||
			spmtd_sdma_signal(&me, (uint64_t *)(void *)mine, 1, SPMT_SIGNAL_ADD, PEER))
			w->wrong = failed;
		memcpy(model + to, own + from, n);
		if (i & 1 && spmtd_sdma_quiet(&me, PEER))
			w->wrong = failed;
		if (i & 1 && memcmp(there, model, sizeof(model)))
			w->wrong = "wrong bytes behind quiet";
	}
	return NULL;
}

Test(device_sdma, many_threads_feed_a_small_ring)
{
	for (size_t k = 0; k < KINDS; k++) {
		struct worker workers[THREADS] = { { .index = 0 } };
		uint64_t told;

		open_world(k);
		told = hand.bell;
		me.timeout_ns = 0; /* the suite's alone: the machine may stand still */
		cr_assert_eq(pthread_create(&hand.thread, NULL, engine, NULL), 0);
		for (int i = 0; i < THREADS; i++) {
			workers[i].index = i;
			workers[i].seed = k * 100 + (uint64_t)i;
			cr_assert_eq(
				pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
		}
		for (int i = 0; i < THREADS; i++) {
			pthread_join(workers[i].thread, NULL);
			cr_expect_null(workers[i].wrong, "%s", workers[i].wrong);
		}
		cr_assert_eq(spmtd_sdma_quiet(&me, PEER), 0);
		hand.closing = true;
		pthread_join(hand.thread, NULL);
		cr_assert_eq(hand.queue.error, 0, "%s", hand.queue.why);
		cr_assert_eq(word_there(0), THREADS * 400);
		cr_assert_eq(hand.bell, table[PEER].claimed);
		cr_assert_gt(hand.bell - told, 16 * RING);
		close_world();
	}
}
