/* SPDX-License-Identifier: MIT */
/* Registered streams: what is queued there has no event behind it until somebody waits, and is ordered and waited for as ever. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/lib/ranks.h"
#include "tests/lib/usage.h"

enum { WORDS = 4096, ROUNDS = 20, KEY = 7 };

struct buffers {
	uint64_t *src, *sum, *twice, *came; /* symmetric, of WORDS */
	uint64_t *seen;			    /* of this process */
};

static int buffers_open(spmt_comm *comm, struct buffers *b)
{
	uint64_t **words[] = { &b->src, &b->sum, &b->twice, &b->came };

	for (int i = 0; i < 4; i++)
		REQUIRE_OK(spmt_calloc(comm, WORDS, sizeof(uint64_t), (void **)words[i]));
	b->seen = calloc(WORDS, sizeof(uint64_t));
	REQUIRE(b->seen);
	return spmt_barrier(comm);
}

static int all_are(spmt_comm *comm, struct buffers *b, const uint64_t *dst, uint64_t value)
{
	REQUIRE_OK(spmt_copy_out(comm, b->seen, dst, WORDS * sizeof(uint64_t)));
	for (int i = 0; i < WORDS; i++)
		REQUIRE_EQ(b->seen[i], value);
	return 0;
}

static int src_is(spmt_comm *comm, struct buffers *b, uint64_t value)
{
	for (int i = 0; i < WORDS; i++)
		b->seen[i] = value;
	return spmt_copy_in(comm, b->src, b->seen, WORDS * sizeof(uint64_t));
}

/* ---- order, and quiet ------------------------------------------------------------------------------------------------------- */

static int sum_of(spmt_comm *comm, uint64_t *dst, const uint64_t *src, spmt_stream stream)
{
	return spmt_all_reduce(comm, dst, src, WORDS, SPMT_TYPE_U64, SPMT_OP_SUM, stream);
}

/* A sum of what the other stream's sum has made: collectives follow each other whatever streams they are in. */
static int sums_follow(spmt_comm *comm, struct buffers *b, spmt_stream first, spmt_stream second)
{
	uint64_t n = (uint64_t)spmt_nranks(comm);
	int next = (spmt_rank(comm) + 1) % spmt_nranks(comm);

	for (uint64_t round = 1; round <= ROUNDS; round++) {
		REQUIRE_OK(src_is(comm, b, round));
		REQUIRE_OK(sum_of(comm, b->sum, b->src, first));
		REQUIRE_OK(sum_of(comm, b->twice, b->sum, second));
		REQUIRE_OK(spmt_put_on_stream(
			comm, b->came, b->twice, WORDS * sizeof(uint64_t), next, second));
		REQUIRE_OK(spmt_barrier(comm));
		TRY(all_are(comm, b, b->sum, round * n));
		TRY(all_are(comm, b, b->twice, round * n * n));
		TRY(all_are(comm, b, b->came, round * n * n));
		REQUIRE_OK(spmt_barrier(comm));
	}
	return 0;
}

static int in_turn(spmt_comm *comm, void *arg)
{
	spmt_stream kept, other;
	struct buffers b;

	(void)arg;
	TRY(buffers_open(comm, &b));
	REQUIRE_OK(stream_make(comm, &kept));
	REQUIRE_OK(stream_make(comm, &other));
	REQUIRE_OK(spmt_stream_register(comm, kept));
	TRY(sums_follow(comm, &b, kept, other));
	REQUIRE_CODE(spmt_stream_register(comm, kept), -EEXIST); /* it still is, unused as it was */
	TRY(sums_follow(comm, &b, other, kept));
	TRY(sums_follow(comm, &b, NULL, kept));
	TRY(sums_follow(comm, &b, kept, NULL));
	REQUIRE_OK(spmt_stream_register(comm, other));
	TRY(sums_follow(comm, &b, kept, other));
	TRY(sums_follow(comm, &b, kept, kept));
	REQUIRE_OK(spmt_stream_deregister(comm, kept));
	TRY(sums_follow(comm, &b, kept, other));
	REQUIRE_OK(stream_end(comm, kept));
	free(b.seen);
	return stream_end(comm, other); /* registered to the end, as quiet has found all of it */
}

Test(stream_register, sums_of_two_streams_follow_each_other)
{
	RANKS_OK(ranks_run(3, NULL, in_turn, NULL));
}

/* quiet covers what is queued behind, which it does not where an event stands between the two. */
static int covers(spmt_comm *comm, void *arg)
{
	struct latch latch = { 0 };
	struct latch *held = &latch;
	struct buffers b;
	spmt_stream stream;
	int me = spmt_rank(comm);

	(void)arg;
	TRY(buffers_open(comm, &b));
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(spmt_put_on_stream(comm, b.came, b.src, 8, me, stream));
	REQUIRE_OK(stream_call(comm, stream, latch_kernel, &held, sizeof(held)));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE(!atomic_load(&latch.passed) && latch_open(&latch));
	REQUIRE_OK(stream_wait(comm, stream));
	latch = (struct latch){ 0 };
	REQUIRE_OK(spmt_stream_register(comm, stream));
	REQUIRE_OK(spmt_put_on_stream(comm, b.came, b.src, 8, me, stream));
	REQUIRE_OK(stream_call(comm, stream, latch_kernel, &held, sizeof(held)));
	REQUIRE_OK(spmt_set_timeout(comm, 100));
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	REQUIRE(latch_open(&latch));
	REQUIRE_OK(spmt_set_timeout(comm, 0));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE(atomic_load(&latch.passed));
	free(b.seen);
	REQUIRE_OK(spmt_stream_deregister(comm, stream));
	return stream_end(comm, stream);
}

Test(stream_register, quiet_waits_for_all_of_it)
{
	RANKS_OK(ranks_run(2, NULL, covers, NULL));
}

/* A collective is waited for up to itself where something else of the comm's follows it, which may wait for a later one. */
static int no_more(spmt_comm *comm, void *arg)
{
	struct buffers b;
	spmt_stream kept, other;
	uint64_t *word;

	(void)arg;
	TRY(buffers_open(comm, &b));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(stream_make(comm, &kept));
	REQUIRE_OK(stream_make(comm, &other));
	REQUIRE_OK(spmt_stream_register(comm, kept));
	REQUIRE_OK(src_is(comm, &b, 2));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(sum_of(comm, b.sum, b.src, kept));
	REQUIRE_OK(spmt_signal_wait_on_stream(comm, word, SPMT_CMP_GE, 1, kept));
	REQUIRE_OK(sum_of(comm, b.twice, b.sum, other));
	REQUIRE_OK(spmt_signal_on_stream(comm, word, 1, SPMT_SIGNAL_SET, spmt_rank(comm), other));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(all_are(
		comm, &b, b.twice, 2 * (uint64_t)spmt_nranks(comm) * (uint64_t)spmt_nranks(comm)));
	free(b.seen);
	REQUIRE_OK(stream_end(comm, other));
	REQUIRE_OK(spmt_stream_deregister(comm, kept));
	return stream_end(comm, kept);
}

Test(stream_register, a_later_sum_waits_for_the_one_before_alone)
{
	RANKS_OK(ranks_run(2, NULL, no_more, NULL));
}

/* ---- until it is deregistered ----------------------------------------------------------------------------------------------- */

/* What a stream holds as it is deregistered and destroyed is waited for, be it a collective or a put, and whichever stream has its handle next. */
static int goes(spmt_comm *comm, void *arg)
{
	uint64_t n = (uint64_t)spmt_nranks(comm);
	int next = (spmt_rank(comm) + 1) % spmt_nranks(comm);
	struct buffers b;

	(void)arg;
	TRY(buffers_open(comm, &b));
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		struct latch latch = { 0 };
		struct latch *held = &latch;
		spmt_stream stream;

		REQUIRE_OK(src_is(comm, &b, round));
		REQUIRE_OK(spmt_barrier(comm));
		REQUIRE_OK(stream_make(comm, &stream));
		REQUIRE_OK(spmt_stream_register(comm, stream));
		REQUIRE_OK(stream_call(comm, stream, latch_kernel, &held, sizeof(held)));
		REQUIRE_OK(spmt_put_on_stream(
			comm, b.came, b.src, WORDS * sizeof(uint64_t), next, stream));
		if (round % 2)
			REQUIRE_OK(sum_of(comm, b.sum, b.src, stream));
		REQUIRE_OK(spmt_stream_deregister(comm, stream));
		REQUIRE(latch_open(&latch));
		REQUIRE_OK(stream_end(comm, stream));
		REQUIRE_OK(spmt_barrier(comm));
		TRY(all_are(comm, &b, b.came, round));
		if (round % 2)
			TRY(all_are(comm, &b, b.sum, round * n));
		REQUIRE_OK(spmt_barrier(comm));
	}
	free(b.seen);
	return 0;
}

Test(stream_register, work_outlives_its_stream)
{
	RANKS_OK(ranks_run(2, NULL, goes, NULL));
}

/* Its user has destroyed one that holds a kernel, a put and a sum: all who wait for these are told, and no memory of the world stays. glibc keeps
   stacks and arenas of threads, of as many as have been there at once. */
static int destroyed(spmt_comm *comm, void *arg)
{
	struct latch *held = &((struct latch *)arg)[spmt_rank(comm)];
	struct buffers b;
	spmt_stream stream;

	TRY(buffers_open(comm, &b));
	free(b.seen);
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(spmt_stream_register(comm, stream));
	REQUIRE_OK(stream_call(comm, stream, latch_kernel, &held, sizeof(held)));
	REQUIRE_OK(spmt_put_on_stream(comm, b.came, b.src, 8, spmt_rank(comm), stream));
	REQUIRE_OK(sum_of(comm, b.sum, b.src, stream));
	REQUIRE_OK(spmt_host_stream_destroy(stream));
	REQUIRE_CODE(spmt_barrier(comm), -EINVAL);
	REQUIRE_SAYS("not a live stream");
	REQUIRE_CODE(spmt_stream_deregister(comm, stream), -EINVAL);
	return latch_open(held) ? 0 : -1;
}

Test(stream_register, one_destroyed_too_early_keeps_no_memory)
{
	struct usage before;
	const char *grown = "never looked";

	NEEDS_HOST("elsewhere a destroyed stream may crash the driver");
	for (int round = 0; round < 17; round++) {
		struct latch latches[2] = { 0 };

		if (round == 1)
			before = usage_now();
		cr_assert_eq(spmt_run(2, NULL, destroyed, latches), -EINVAL, "%s", ranks_message());
		cr_assert(strstr(spmt_last_error(), "not a live stream"), "%s", spmt_last_error());
	}
	grown = usage_grown(
		&before, &(struct usage){ .fds = 0, .threads = 0, .maps = 15, .rss_kib = 4096 });
	cr_assert(!grown, "%s", grown);
}

/* ---- what is refused --------------------------------------------------------------------------------------------------------- */

static int refusals(spmt_comm *comm, void *arg)
{
	spmt_stream stream, other;
	spmt_comm *part;

	(void)arg;
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(stream_make(comm, &other));
	REQUIRE_CODE(spmt_stream_register(NULL, stream), -EINVAL);
	REQUIRE_CODE(spmt_stream_register(comm, NULL), -EINVAL);
	REQUIRE_SAYS("the comm's own stream");
	REQUIRE_CODE(spmt_stream_register(comm, SPMT_STREAM_PER_THREAD), -EINVAL);
	REQUIRE_SAYS("SPMT_STREAM_PER_THREAD");
	REQUIRE_CODE(spmt_stream_deregister(comm, stream), -EINVAL);
	REQUIRE_SAYS("spmt_stream_deregister");
	REQUIRE_SAYS("not registered");
	REQUIRE_OK(spmt_stream_register(comm, stream));
	REQUIRE_CODE(spmt_stream_register(comm, stream), -EEXIST);
	REQUIRE_SAYS("registered already");
	REQUIRE_CODE(spmt_stream_deregister(comm, other), -EINVAL);
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	REQUIRE_CODE(spmt_stream_deregister(part, stream), -EINVAL); /* each comm has its own */
	REQUIRE_OK(spmt_stream_register(part, stream));
	REQUIRE_OK(spmt_barrier_on_stream(part, stream));
	REQUIRE_OK(spmt_barrier_on_stream(comm, stream));
	REQUIRE_OK(spmt_finalize(part));
	REQUIRE_CODE(spmt_stream_deregister(part, stream), -EBADF);
	REQUIRE_OK(spmt_stream_deregister(comm, stream));
	REQUIRE_CODE(spmt_stream_deregister(comm, stream), -EINVAL);
	REQUIRE_CODE(spmt_stream_register(comm, SPMT_STREAM_LEGACY), -EINVAL);
	REQUIRE_SAYS("a default stream is nobody's to keep");
	REQUIRE_OK(spmt_stream_register(comm, stream));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(stream_end(comm, other));
	return stream_end(comm, stream); /* nothing waits there */
}

Test(stream_register, what_is_refused)
{
	RANKS_OK(ranks_run(2, NULL, refusals, NULL));
}

/* An event of a capture would be the graph's. */
static int captured(spmt_comm *comm, void *arg)
{
	struct buffers b;
	spmt_stream stream, other;
	spmt_host_graph *graph;
	int me = spmt_rank(comm);

	(void)arg;
	TRY(buffers_open(comm, &b));
	REQUIRE_OK(src_is(comm, &b, 5));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_host_stream_create(comm, &other));
	REQUIRE_OK(spmt_stream_register(comm, stream));
	REQUIRE_OK(spmt_put_on_stream(comm, b.came, b.src, 8, me, stream));
	REQUIRE_OK(sum_of(comm, b.sum, b.src, stream));
	REQUIRE_OK(spmt_host_graph_begin(stream));
	REQUIRE_OK(sum_of(comm, b.twice, b.sum, stream));
	REQUIRE_CODE(spmt_quiet(comm), -EBUSY);
	REQUIRE_SAYS("spmt_quiet");
	REQUIRE_SAYS("until the capture has ended");
	REQUIRE_CODE(spmt_quiet_on_stream(comm, other), -EBUSY);
	REQUIRE_CODE(sum_of(comm, b.twice, b.sum, other), -EBUSY);
	REQUIRE_CODE(spmt_stream_deregister(comm, stream), -EBUSY);
	REQUIRE_CODE(spmt_finalize(comm), -EBUSY);
	REQUIRE_SAYS("spmt_finalize");
	REQUIRE_CODE(spmt_finalize_all(1, &comm), -EBUSY);
	REQUIRE_OK(spmt_host_graph_begin(other));
	REQUIRE_CODE(spmt_stream_register(comm, other), -EBUSY);
	REQUIRE_SAYS("being captured");
	REQUIRE_OK(sum_of(comm, b.twice, b.sum, other)); /* as in the graph of the first */
	REQUIRE_OK(spmt_host_graph_end(other, &graph));
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	REQUIRE_OK(spmt_host_graph_end(stream, &graph));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(all_are(comm, &b, b.sum, 5 * (uint64_t)spmt_nranks(comm)));
	REQUIRE_OK(spmt_host_graph_launch(graph, stream));
	REQUIRE_OK(spmt_host_stream_synchronize(stream));
	TRY(all_are(
		comm, &b, b.twice, 5 * (uint64_t)spmt_nranks(comm) * (uint64_t)spmt_nranks(comm)));
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	REQUIRE_OK(spmt_stream_deregister(comm, stream));
	free(b.seen);
	REQUIRE_OK(spmt_host_stream_destroy(other));
	return spmt_host_stream_destroy(stream);
}

Test(stream_register, a_capture_is_not_disturbed)
{
	NEEDS_HOST("graphs of its own");
	RANKS_OK(ranks_run(2, NULL, captured, NULL));
}

/* ---- lanes, and ends ------------------------------------------------------------------------------------------------------- */

static int on_a_lane(spmt_comm *comm, void *arg)
{
	struct buffers b;
	spmt_stream stream;
	spmt_comm *lane;

	(void)arg;
	TRY(buffers_open(comm, &b));
	REQUIRE_OK(src_is(comm, &b, 3));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(spmt_stream_register(lane, stream));
	REQUIRE_CODE(spmt_stream_register(lane, stream), -EEXIST);
	REQUIRE_OK(sum_of(lane, b.sum, b.src, stream));
	REQUIRE_OK(sum_of(lane, b.twice, b.sum, NULL));
	REQUIRE_OK(spmt_quiet(lane));
	TRY(all_are(
		comm, &b, b.twice, 3 * (uint64_t)spmt_nranks(comm) * (uint64_t)spmt_nranks(comm)));
	REQUIRE_OK(spmt_stream_deregister(lane, stream));
	REQUIRE_OK(spmt_finalize(lane));
	free(b.seen);
	return stream_end(comm, stream);
}

Test(stream_register, lanes_have_theirs)
{
	RANKS_OK(ranks_run(2, NULL, on_a_lane, NULL));
}

/* Of one lane any thread may do so, several at once. */
enum { THREADS = 8, TURNS = 200 };
static spmt_comm *shared_lane;

static int registers(int index, void *arg)
{
	spmt_stream *streams = arg;

	for (int i = 0; i < TURNS; i++) {
		REQUIRE_OK(spmt_stream_register(shared_lane, streams[index]));
		REQUIRE_CODE(spmt_stream_register(shared_lane, streams[index]), -EEXIST);
		REQUIRE_OK(spmt_stream_deregister(shared_lane, streams[index]));
	}
	return 0;
}

static int by_threads(spmt_comm *comm, void *arg)
{
	spmt_stream streams[THREADS];

	(void)arg;
	REQUIRE_OK(spmt_lane(comm, KEY, &shared_lane));
	for (int i = 0; i < THREADS; i++)
		REQUIRE_OK(stream_make(comm, &streams[i]));
	TRY(ranks_threads(THREADS, registers, streams));
	for (int i = 0; i < THREADS; i++)
		REQUIRE_OK(stream_end(comm, streams[i]));
	return 0;
}

Test(stream_register, threads_of_a_lane)
{
	RANKS_OK(ranks_run(1, NULL, by_threads, NULL));
}

static _Atomic int queued;

static int broken(spmt_comm *comm, void *arg)
{
	struct buffers b;
	spmt_stream stream, other;

	(void)arg;
	TRY(buffers_open(comm, &b));
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(stream_make(comm, &other));
	REQUIRE_OK(spmt_stream_register(comm, stream));
	REQUIRE_OK(spmt_put_on_stream(comm, b.came, b.src, 8, spmt_rank(comm), stream));
	REQUIRE_OK(spmt_barrier_on_stream(comm, stream));
	atomic_fetch_add(&queued, 1);
	while (atomic_load(&queued) < spmt_nranks(comm))
		sleep_ms(1);
	if (spmt_rank(comm) == 0)
		spmt_abort(comm, SPMT_ERR_ABORTED);
	while (!spmt_status(comm))
		sleep_ms(1);
	REQUIRE_CODE(spmt_stream_register(comm, other), SPMT_ERR_ABORTED);
	REQUIRE_OK(spmt_stream_deregister(comm, stream));
	REQUIRE_CODE(spmt_stream_deregister(comm, stream), -EINVAL);
	free(b.seen);
	REQUIRE_OK(stream_end(comm, other));
	REQUIRE_OK(stream_end(comm, stream));
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_ABORTED);
	return 0;
}

Test(stream_register, a_broken_world_lets_them_go)
{
	RANKS_OK(ranks_run(2, NULL, broken, NULL));
}
