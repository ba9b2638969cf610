/* SPDX-License-Identifier: MIT */
/* Lanes: what they are, that they move what any comm moves, what breaks them and what that leaves alone. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt_device.h"
#include "tests/lib/every_call.h"
#include "tests/lib/ranks.h"

enum { KEY = 4242 };

static void count(void *arg, int code)
{
	_Atomic int *calls = arg; /* [0]: all, [1]: the last code that was not 0 */

	if (code)
		atomic_store(&calls[1], code);
	atomic_fetch_add(&calls[0], 1);
}

/* When all ranks are through with the lane of that key; and they go on when all have the next. */
static int next_lane(spmt_comm *comm, uint64_t key, spmt_comm **lane)
{
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_lane(comm, key, lane));
	return spmt_barrier(comm);
}

/* ---- what a lane is ----------------------------------------------------------------------------------------------------------- */

static int the_same(spmt_comm *comm, void *arg)
{
	spmt_comm *lane, *again, *other;

	(void)arg;
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_lane(comm, KEY, &again));
	REQUIRE_OK(spmt_lane(comm, KEY + 1, &other));
	REQUIRE(lane == again && lane != other && lane != comm);
	REQUIRE_EQ(spmt_rank(lane), spmt_rank(comm));
	REQUIRE_EQ(spmt_nranks(lane), spmt_nranks(comm));
	REQUIRE_EQ(spmt_device(lane), spmt_device(comm));
	REQUIRE_EQ(strcmp(spmt_backend(lane), spmt_backend(comm)), 0);
	REQUIRE_OK(spmt_status(lane));
	REQUIRE_OK(spmt_quiet(lane));
	REQUIRE_OK(spmt_finalize(other));
	REQUIRE_CODE(spmt_status(other), -EBADF);
	REQUIRE_OK(spmt_barrier(lane));
	REQUIRE_OK(spmt_finalize(lane));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_sync(lane));
	return 0; /* it ends with its comm */
}

Test(lanes, one_key_names_one_lane)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(3, NULL, the_same, NULL));
}

static int refused(spmt_comm *comm, void *arg)
{
	struct spmt_view view = { .size = sizeof(view) };
	struct spmt_stats stats = { .size = sizeof(stats) };
	spmt_comm *lane, *part = NULL;
	spmt_mem *mem = NULL;
	spmt_uid next;
	int a, b;
	void *p = NULL;

	(void)arg;
	REQUIRE_CODE(spmt_lane(comm, KEY, NULL), -EINVAL);
	REQUIRE_CODE(spmt_lane(NULL, KEY, &lane), -EINVAL);
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_CODE(spmt_lane(lane, KEY, &part), -EINVAL);
	REQUIRE_CODE(spmt_malloc(lane, 8, &p), SPMT_ERR_UNSUPPORTED);
	REQUIRE_SAYS("lane");
	REQUIRE_CODE(spmt_split(lane, 0, 0, &part), SPMT_ERR_UNSUPPORTED);
	REQUIRE_CODE(spmt_register(lane, &a, sizeof(a), &mem), SPMT_ERR_UNSUPPORTED);
	REQUIRE_CODE(spmt_view_get(lane, &view), SPMT_ERR_UNSUPPORTED);
	REQUIRE_CODE(spmt_put(lane, &a, &a, 0, 0), SPMT_ERR_UNSUPPORTED);
	REQUIRE_CODE(spmt_fence(lane), SPMT_ERR_UNSUPPORTED);
	REQUIRE_CODE(spmt_stats(lane, 0, &stats), SPMT_ERR_UNSUPPORTED);
	REQUIRE_CODE(spmt_shrink(lane, &next, &a, &b), SPMT_ERR_UNSUPPORTED);
	REQUIRE_CODE(spmt_all_reduce(lane, &a, NULL, 1, SPMT_TYPE_I32, SPMT_OP_SUM, NULL), -EINVAL);
	REQUIRE_CODE(spmt_broadcast(lane, &a, &a, 1, SPMT_TYPE_I32, 9, NULL), -EINVAL);
	REQUIRE_CODE(spmt_on_complete(lane, NULL, NULL, NULL), -EINVAL);
	REQUIRE(!p && !part && !mem);
	return spmt_barrier(lane);
}

Test(lanes, what_a_lane_has_not_says_so)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(2, NULL, refused, NULL));
}

/* ---- data --------------------------------------------------------------------------------------------------------------------------- */

enum { MOST = 5000 };

/* Every kind, as the comm itself does it. */
static int like_the_comm(spmt_comm *comm, void *arg)
{
	static const size_t counts[] = { 0, 1, 7, MOST };
	int n = spmt_nranks(comm), me = spmt_rank(comm), to[8];
	uint64_t *src = calloc((size_t)n * MOST, 8), *a = calloc((size_t)n * MOST, 8);
	uint64_t *b = calloc((size_t)n * MOST, 8);
	spmt_comm *lane;
	int code = 0;

	(void)arg;
	REQUIRE(src && a && b);
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	pattern_fill(src, (size_t)n * MOST * 8, (uint64_t)me + 1);
	for (int i = 0; i < n; i++)
		to[i] = i == 1 ? -1 : (i + 1) % n;
	for (int kind = 0; kind < COLL_KINDS && !code; kind++)
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && !code; i++) {
			memset(a, 7, (size_t)n * MOST * 8);
			memset(b, 7, (size_t)n * MOST * 8);
			code = every_call_collective(
				comm, (enum kernel_collective_kind)kind, a, src, counts[i], to);
			if (!code)
				code = every_call_collective(lane,
					(enum kernel_collective_kind)kind, b, src, counts[i], to);
			if (!code)
				code = spmt_quiet(comm);
			if (!code)
				code = spmt_quiet(lane);
			if (!code && memcmp(a, b, (size_t)n * MOST * 8) != 0)
				code = ranks_fail("kind %d, count %zu differs", kind, counts[i]);
		}
	free(b);
	free(a);
	free(src);
	return code;
}

Test(lanes, collectives_move_what_they_move_on_any_comm)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(1, NULL, like_the_comm, NULL));
	RANKS_OK(ranks_run(5, NULL, like_the_comm, NULL));
}

/* In place, halves, and a lane of a part whose ranks have other numbers. */
static int on_a_part(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	uint16_t half = 0x3c00; /* 1.0 */
	uint32_t all[4] = { 0 };
	spmt_comm *part, *lane;

	(void)arg;
	REQUIRE_OK(spmt_split(comm, 0, -me, &part));
	REQUIRE_OK(spmt_lane(part, KEY, &lane));
	all[spmt_rank(lane)] = (uint32_t)me + 10;
	REQUIRE_OK(spmt_all_gather(lane, all, &all[spmt_rank(lane)], 1, SPMT_TYPE_U32, NULL));
	REQUIRE_OK(spmt_all_reduce(lane, &half, &half, 1, SPMT_TYPE_F16, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(lane));
	for (int r = 0; r < n; r++)
		REQUIRE_EQ(all[r], (uint32_t)(n - 1 - r) + 10);
	REQUIRE_EQ(half, 0x4400); /* 4.0 */
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_finalize(part));
	REQUIRE_CODE(spmt_quiet(lane), -EBADF);
	return 0;
}

Test(lanes, a_part_has_lanes_too)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(4, NULL, on_a_part, NULL));
}

/* ---- streams ---------------------------------------------------------------------------------------------------------------------------- */

struct fill {
	uint64_t *word;
	uint64_t value;
	struct latch *latch;
};

static void fill_word(void *args)
{
	struct fill *f = args;

	if (f->latch)
		latch_pass(f->latch);
	*f->word = f->value;
}

/* The stream's work before it is what is summed; work behind it has the sum. The lane's order is that of the calls. */
static int in_streams(spmt_comm *comm, void *arg)
{
	uint64_t in = 0, sum = 0, copy = 0, second = 0, two = 2;
	struct latch latch = { 0 };
	struct fill fill = { &in, (uint64_t)spmt_rank(comm) + 1, &latch };
	_Atomic int calls[2] = { 0, 0 };
	spmt_stream stream;
	spmt_comm *lane;

	(void)arg;
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(stream_call(comm, stream, fill_word, &fill, sizeof(fill)));
	REQUIRE_OK(spmt_all_reduce(lane, &sum, &in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, stream));
	REQUIRE_OK(spmt_on_complete(lane, stream, count, calls));
	REQUIRE_OK(spmt_all_reduce(lane, &second, &two, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_barrier_on_stream(lane, stream));
	REQUIRE_EQ(atomic_load(calls), 0);
	REQUIRE(latch_open(&latch));
	REQUIRE_OK(stream_wait(comm, stream));
	REQUIRE_OK(spmt_quiet(lane));
	copy = sum;
	REQUIRE_EQ(copy, 10);
	REQUIRE_EQ(second, 8);
	REQUIRE_EQ(atomic_load(calls), 1);
	REQUIRE_EQ(atomic_load(calls + 1), 0);
	return stream_end(comm, stream);
}

Test(lanes, a_stream_waits_for_its_collective)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(4, NULL, in_streams, NULL));
}

/* Threads of a rank share a lane and a stream, which both have their calls in one order. */
enum { WORKERS = 4, CALLS = 4000 };

struct worker {
	pthread_t thread;
	spmt_comm *lane;
	spmt_stream stream;
	_Atomic int *calls;
	uint64_t word;
	int rc;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < CALLS && !w->rc; i++) {
		w->rc = spmt_all_reduce(
			w->lane, &w->word, &w->word, 1, SPMT_TYPE_U64, SPMT_OP_MAX, w->stream);
		if (!w->rc && i % 8 == 0)
			w->rc = spmt_on_complete(w->lane, w->stream, count, w->calls);
	}
	return NULL;
}

static int share_a_stream(spmt_comm *comm, void *arg)
{
	_Atomic int calls[2] = { 0, 0 };
	struct worker w[WORKERS] = { 0 };
	spmt_stream stream;
	spmt_comm *lane;

	(void)arg;
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(stream_make(comm, &stream));
	for (int i = 0; i < WORKERS; i++) {
		w[i].lane = lane;
		w[i].stream = stream;
		w[i].calls = calls;
		REQUIRE_EQ(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
	}
	for (int i = 0; i < WORKERS; i++) {
		pthread_join(w[i].thread, NULL);
		REQUIRE_OK(w[i].rc);
	}
	REQUIRE_OK(stream_wait(comm, stream));
	REQUIRE_OK(spmt_quiet(lane));
	REQUIRE_EQ(calls[0], WORKERS * CALLS / 8);
	REQUIRE_EQ(calls[1], 0);
	return stream_end(comm, stream);
}

Test(lanes, threads_share_a_stream)
{
	NEEDS_HOST("lanes");
	for (int n = 1; n <= 2; n++)
		RANKS_OK(ranks_run(n, NULL, share_a_stream, NULL));
}

/* Rank 0 does not come, rank 1 last of the others: it has the deadline. */
static int stream_hears(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm);
	_Atomic int calls[2] = { 0, 0 };
	uint64_t in = 0, sum = 77;
	spmt_stream stream;
	spmt_comm *lane;

	(void)arg;
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(spmt_set_timeout(lane, me == 1 ? 50 : -1));
	if (me == 1)
		REQUIRE_OK(spmt_barrier(comm));
	if (me)
		REQUIRE_OK(spmt_all_reduce(lane, &sum, &in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, stream));
	if (me == 2)
		REQUIRE_OK(spmt_on_complete(lane, stream, count, calls));
	if (me != 1)
		REQUIRE_OK(spmt_barrier(comm));
	if (me) {
		REQUIRE_CODE(spmt_host_stream_synchronize(stream), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("lane 4242");
		REQUIRE_EQ(atomic_load(calls), me == 2);
		REQUIRE_EQ(atomic_load(calls + 1), me == 2 ? SPMT_ERR_TIMEOUT : 0);
	}
	REQUIRE_EQ(sum, 77);
	return stream_end(comm, stream);
}

Test(lanes, a_stream_hears_of_a_lane_that_broke)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(3, NULL, stream_hears, NULL));
}

/* ---- failures ------------------------------------------------------------------------------------------------------------------------------- */

/* Rank 1 is late, rank 0 the last of the others: what rank 1 calls then fails, and all go on with the next lane of the key. */
static int late(spmt_comm *comm, void *arg)
{
	uint64_t in = 1, sum = 77;
	int me = spmt_rank(comm);
	_Atomic int calls[2] = { 0, 0 };
	spmt_comm *lane, *next;

	(void)arg;
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_set_timeout(lane, me == 0 ? 50 : -1));
	if (me == 0)
		REQUIRE_OK(spmt_barrier(comm));
	if (me != 1)
		REQUIRE_OK(spmt_all_reduce(lane, &sum, &in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	if (me == 2)
		REQUIRE_OK(spmt_on_complete(lane, NULL, count, calls));
	if (me != 0)
		REQUIRE_OK(spmt_barrier(comm));
	if (me != 1) {
		REQUIRE_CODE(spmt_quiet(lane), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("spmt_all_reduce: lane 4242: 1 of 3 ranks missing after 0.050 s: 1");
		REQUIRE_EQ(atomic_load(calls + 1), me == 2 ? SPMT_ERR_TIMEOUT : 0);
	}
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_CODE(spmt_status(lane), SPMT_ERR_TIMEOUT);
	REQUIRE_CODE(spmt_all_reduce(lane, &sum, &in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL),
		SPMT_ERR_BROKEN);
	REQUIRE_SAYS("4242");
	REQUIRE_CODE(spmt_on_complete(lane, NULL, count, calls), SPMT_ERR_BROKEN);
	REQUIRE_EQ(sum, 77);
	TRY(next_lane(comm, KEY, &next));
	REQUIRE(next != lane);
	REQUIRE_OK(spmt_all_reduce(next, &sum, &in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(next));
	REQUIRE_EQ(sum, 3);
	REQUIRE_OK(spmt_finalize(lane));
	REQUIRE_OK(spmt_status(comm));
	return spmt_barrier(next);
}

Test(lanes, one_that_timed_out_is_replaced)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(3, NULL, late, NULL));
}

/* Calls that differ, and an abort, are heard by all that the lane has, and by nobody else. */
static int differ(spmt_comm *comm, void *arg)
{
	uint64_t in[4] = { 1 }, out[4] = { 9, 9, 9, 9 };
	int me = spmt_rank(comm), code;
	spmt_comm *lane, *beside;

	(void)arg;
	REQUIRE_OK(spmt_lane(comm, 1, &beside));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_all_reduce(lane, out, in, me ? 1 : 2, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_CODE(spmt_quiet(lane), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("lane 4242: ");
	REQUIRE_SAYS("count differs: rank 1 passed 1, rank 0 passed 2");
	REQUIRE_EQ(out[0], 9);
	TRY(next_lane(comm, KEY, &lane));
	if (me)
		code = spmt_barrier(lane);
	else
		code = spmt_sync(lane);
	REQUIRE_EQ(code, SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("rank 1 called spmt_barrier, rank 0 spmt_sync");
	TRY(next_lane(comm, KEY, &lane));
	if (me) {
		code = spmt_all_reduce(lane, out, in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
		code = code ? code : spmt_quiet(lane);
		REQUIRE(code == -66 || code == SPMT_ERR_BROKEN);
		REQUIRE_CODE(spmt_status(lane), -66);
		REQUIRE_SAYS("aborted lane 4242 with code -66");
	} else {
		REQUIRE_OK(spmt_abort(lane, -66));
	}
	REQUIRE_EQ(out[0], 9);
	REQUIRE_OK(spmt_all_reduce(beside, out, in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(beside));
	REQUIRE_EQ(out[0], 3);
	return spmt_status(comm);
}

Test(lanes, differences_and_aborts_break_one_lane_alone)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(3, NULL, differ, NULL));
}

static void until_told(void *arg, int code)
{
	(void)code;
	while (!atomic_load((_Atomic int *)arg))
		sleep_ms(1);
}

/* Functions have an eighth of the deadline and 0.4 s beyond it, and the sentence says how long that was. */
static int goes_on(spmt_comm *comm, void *arg)
{
	_Atomic int over = 0;
	spmt_comm *lane;
	int rc;

	(void)arg;
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_set_timeout(lane, 100));
	REQUIRE_OK(spmt_on_complete(lane, NULL, until_told, &over));
	rc = spmt_quiet(lane);
	atomic_store(&over, 1);
	REQUIRE_CODE(rc, SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("is not done after 0.5 s");
	return spmt_quiet(lane);
}

Test(lanes, a_quiet_says_how_long_it_has_waited)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(1, NULL, goes_on, NULL));
}

/* A lane ends its calls with its part, and that with its world. */
static int with_its_comm(spmt_comm *comm, void *arg)
{
	_Atomic int calls[2] = { 0, 0 };
	uint64_t in = 1, out = 9;
	spmt_comm *part, *lane;

	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	REQUIRE_OK(spmt_lane(part, KEY, &lane));
	REQUIRE_OK(spmt_set_timeout(lane, -1));
	if (spmt_rank(comm)) {
		REQUIRE_OK(spmt_all_reduce(lane, &out, &in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_on_complete(lane, NULL, count, calls));
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0)
		REQUIRE_OK(spmt_abort(arg ? part : comm, -44));
	else
		REQUIRE_CODE(spmt_quiet(lane), -44);
	while (!spmt_status(lane))
		sleep_ms(1);
	REQUIRE_EQ(atomic_load(calls), spmt_rank(comm) != 0);
	REQUIRE_EQ(atomic_load(calls + 1), spmt_rank(comm) ? -44 : 0);
	REQUIRE(spmt_lane(part, KEY + 1, &lane) < 0);
	REQUIRE_EQ(out, 9);
	return arg ? spmt_barrier(comm) : 0;
}

Test(lanes, a_lane_breaks_with_its_comm)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(3, NULL, with_its_comm, &(int){ 0 }));
	RANKS_OK(ranks_run(3, NULL, with_its_comm, NULL));
}

/* A rank that ends its lane with work that nobody joins tells the others. */
static int ends_early(spmt_comm *comm, void *arg)
{
	uint64_t in = 1, out = 9;
	spmt_comm *lane;

	(void)arg;
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_set_timeout(lane, 50));
	if (spmt_rank(comm) == 0) {
		REQUIRE_OK(spmt_all_reduce(lane, &out, &in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_CODE(spmt_finalize(lane), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("1 of 2 ranks missing");
	}
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_EQ(out, 9);
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	return 0;
}

Test(lanes, finalize_of_a_lane_waits_for_its_own_work)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(2, NULL, ends_early, NULL));
}

/* ---- a thousand ---------------------------------------------------------------------------------------------------------------------------- */

enum { THOUSAND = 1000, HALF_DOZEN = 6 };

static int thousand(int index, void *arg)
{
	static uint32_t out[HALF_DOZEN][THOUSAND], in[HALF_DOZEN];
	spmt_comm *comms[HALF_DOZEN], *lane;
	struct spmt_attr attrs[HALF_DOZEN];
	struct usage before, slack = { .threads = 0, .rss_kib = 96 << 10, .maps = 1000 };
	const char *grown;

	(void)index;
	(void)arg;
	for (int r = 0; r < HALF_DOZEN; r++)
		attrs[r] = ranks_attr(r, HALF_DOZEN, NULL);
	REQUIRE_OK(spmt_init_all(HALF_DOZEN, attrs, comms));
	/* one lane has what the world has once for all of them */
	for (int r = 0; r < HALF_DOZEN; r++) {
		REQUIRE_OK(spmt_lane(comms[r], THOUSAND, &lane));
		REQUIRE_OK(
			spmt_all_reduce(lane, out[r], &in[r], 1, SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
		in[r] = 1;
	}
	REQUIRE_OK(spmt_quiet(lane));
	before = usage_now();
	for (int r = 0; r < HALF_DOZEN; r++)
		for (int i = 0; i < THOUSAND; i++) {
			REQUIRE_OK(spmt_lane(comms[r], (uint64_t)i, &lane));
			REQUIRE_OK(spmt_all_reduce(
				lane, &out[r][i], &in[r], 1, SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
		}
	for (int i = 0; i < THOUSAND; i++)
		REQUIRE_EQ(out[0][i], HALF_DOZEN);
	grown = usage_grown(&before, &slack);
	if (grown)
		return ranks_fail("%s", grown);
	return spmt_finalize_all(HALF_DOZEN, comms);
}

Test(lanes, a_thousand_take_no_threads_and_little_memory)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_threads(1, thousand, NULL));
}
