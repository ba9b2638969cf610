/* SPDX-License-Identifier: MIT */
/* What a call has queued is waited for, whatever else of it has failed; and of a call that failed nothing happens later. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/fault.h"
#include "tests/lib/ranks.h"

TestSuite(queued, .timeout = 240);

enum { WORDS = 64, SIZE = WORDS * 8 };

/* A rank alone, whose streams can be held up. `stream` is held from hold() to let_go(). */
struct scene {
	spmt_comm *comm;
	uint64_t *dst, *sig; /* symmetric */
	uint64_t *src;	     /* symmetric, too, as a get has it */
	spmt_mem *mem;	     /* of dst */
	spmt_stream stream;
	struct latch latch;
};

static int hold(struct scene *s)
{
	struct latch *latch = &s->latch;

	atomic_store(&latch->open, 0);
	return stream_call(s->comm, s->stream, latch_kernel, &latch, sizeof(latch));
}

static int let_go(struct scene *s)
{
	REQUIRE(latch_open(&s->latch));
	return stream_wait(s->comm, s->stream);
}

/* ---- a request is refused while a call queues its work -------------------------------------------------------------- */

static int do_put(struct scene *s)
{
	return spmt_put_on_stream(s->comm, s->dst, s->src, SIZE, 0, s->stream);
}

static int do_get(struct scene *s)
{
	return spmt_get_on_stream(s->comm, s->dst, s->src, SIZE, 0, s->stream);
}

static int do_mem_put(struct scene *s)
{
	return spmt_mem_put_on_stream(s->comm, s->mem, 0, s->src, SIZE, 0, s->stream);
}

static int do_signal(struct scene *s)
{
	return spmt_signal_on_stream(s->comm, s->dst, 7, SPMT_SIGNAL_SET, 0, s->stream);
}

static int do_put_signal(struct scene *s)
{
	return spmt_put_signal_on_stream(
		s->comm, s->dst, s->src, SIZE, s->sig, 1, SPMT_SIGNAL_ADD, 0, s->stream);
}

static int do_reduce(struct scene *s)
{
	return spmt_all_reduce(
		s->comm, s->dst, s->src, WORDS, SPMT_TYPE_U64, SPMT_OP_SUM, s->stream);
}

static int (*const calls[])(
	struct scene *) = { do_put, do_get, do_mem_put, do_signal, do_put_signal, do_reduce };

/* The nth request is refused. Then whatever is on its way holds quiet up. */
static int refuse_one(
	struct scene *s, int (*call)(struct scene *), unsigned site, uint64_t n, bool *fired)
{
	uint64_t before[WORDS], after[WORDS];
	int code, quiet;

	REQUIRE_OK(spmt_copy_in(s->comm, s->dst, (uint64_t[WORDS]){ 0 }, SIZE));
	TRY(hold(s));
	fault_arm(1u << site, n);
	code = call(s);
	*fired = fault_fired();
	fault_disarm();
	REQUIRE(code == 0 || strncmp(spmt_last_error(), "spmt_", 5) == 0);
	quiet = spmt_quiet(s->comm);
	REQUIRE(quiet == 0 || quiet == SPMT_ERR_TIMEOUT);
	REQUIRE(code != 0 || quiet == SPMT_ERR_TIMEOUT);
	memcpy(before, s->dst, SIZE);
	TRY(let_go(s));
	memcpy(after, s->dst, SIZE);
	if (quiet == 0)
		REQUIRE(memcmp(before, after, SIZE) == 0);
	if (code == 0)
		REQUIRE_EQ(after[0], 7);
	return spmt_quiet(s->comm);
}

static int refuse_all(spmt_comm *comm, void *arg)
{
	struct scene s = { .comm = comm };
	unsigned site = *(unsigned *)arg;
	bool fired;

	REQUIRE_OK(spmt_calloc(comm, 1, SIZE, (void **)&s.src));
	s.src[0] = 7;
	REQUIRE_OK(spmt_calloc(comm, 1, SIZE, (void **)&s.dst));
	REQUIRE_OK(spmt_calloc(comm, 1, 8, (void **)&s.sig));
	REQUIRE_OK(spmt_register(comm, s.dst, SIZE, &s.mem));
	REQUIRE_OK(spmt_set_timeout(comm, 1));
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		fired = true;
		for (uint64_t n = 1; fired; n++) {
			/* a stream that the comm does not know yet */
			REQUIRE_OK(stream_make(comm, &s.stream));
			TRY(refuse_one(&s, calls[i], site, n, &fired));
			REQUIRE_OK(stream_end(comm, s.stream));
		}
	}
	return 0;
}

Test(queued, nothing_is_left_behind_when_memory_is_refused)
{
	NEEDS_HOST("the CPU looks at the heap");
	RANKS_OK(ranks_run(1, NULL, refuse_all, &(unsigned){ FAULT_ALLOC }));
}

Test(queued, nothing_is_left_behind_when_the_device_refuses)
{
	NEEDS_HOST("the CPU looks at the heap");
	RANKS_OK(ranks_run(1, NULL, refuse_all, &(unsigned){ FAULT_DEVICE }));
}

/* ---- the world breaks while all of it stands behind a user's kernel --------------------------------------------------- */

/* No stream_wait(): the stream tells that the world broke. */
static int broken_behind_kernel(spmt_comm *comm, void *arg)
{
	struct scene s = { .comm = comm };

	REQUIRE_OK(spmt_calloc(comm, 1, SIZE, (void **)&s.src));
	REQUIRE_OK(spmt_calloc(comm, 1, SIZE, (void **)&s.dst));
	REQUIRE_OK(spmt_calloc(comm, 1, 8, (void **)&s.sig));
	REQUIRE_OK(spmt_register(comm, s.dst, SIZE, &s.mem));
	REQUIRE_OK(stream_make(comm, &s.stream));
	TRY(hold(&s));
	REQUIRE_OK(((int (**)(struct scene *))arg)[0](&s));
	REQUIRE_OK(spmt_abort(comm, -EIO));
	REQUIRE_CODE(spmt_quiet(comm), -EIO);
	s.dst[0] = 1;
	s.src[0] = 2;
	REQUIRE(latch_open(&s.latch));
	(void)spmt_host_stream_synchronize(s.stream);
	REQUIRE(s.latch.passed);
	REQUIRE_EQ(s.dst[0], 1);
	REQUIRE_EQ(s.sig[0], 0);
	REQUIRE_OK(spmt_host_stream_destroy(s.stream));
	return 0;
}

Test(queued, what_has_not_begun_as_the_world_breaks_never_does)
{
	NEEDS_HOST("the CPU looks at the heap");
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		int (*call)(struct scene *) = calls[i];

		RANKS_OK(ranks_run(1, NULL, broken_behind_kernel, &call));
	}
}

/* ---- ... and while it is waited for ------------------------------------------------------------------------------------ */

/* Two streams are held, and a third is made to wait for them. */
static int refuse_quiet(spmt_comm *comm, void *arg)
{
	struct scene s[2] = { { .comm = comm }, { .comm = comm } };
	unsigned site = *(unsigned *)arg;
	uint64_t src[WORDS] = { 9 }, *dst;
	spmt_stream order;
	bool fired = true;

	REQUIRE_OK(spmt_calloc(comm, 2, SIZE, (void **)&dst));
	REQUIRE_OK(spmt_set_timeout(comm, 1));
	REQUIRE_OK(stream_make(comm, &order));
	for (uint64_t n = 1; fired; n++) {
		for (int i = 0; i < 2; i++) {
			REQUIRE_OK(stream_make(comm, &s[i].stream));
			TRY(hold(&s[i]));
			REQUIRE_OK(spmt_put_on_stream(
				comm, dst + i * WORDS, src, SIZE, 0, s[i].stream));
		}
		fault_arm(1u << site, n);
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		fired = spmt_quiet_on_stream(comm, order) != 0;
		fault_disarm();
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		TRY(let_go(&s[1]));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		TRY(let_go(&s[0]));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_EQ(dst[0] + dst[WORDS], 18);
		memset(dst, 0, 2 * SIZE);
		for (int i = 0; i < 2; i++)
			REQUIRE_OK(stream_end(comm, s[i].stream));
	}
	return stream_end(comm, order);
}

Test(queued, a_quiet_that_fails_forgets_nothing)
{
	NEEDS_HOST("the CPU looks at the heap");
	RANKS_OK(ranks_run(1, NULL, refuse_quiet, &(unsigned){ FAULT_ALLOC }));
	RANKS_OK(ranks_run(1, NULL, refuse_quiet, &(unsigned){ FAULT_DEVICE }));
}

/* ---- what fails when it runs ------------------------------------------------------------------------------------------- */

static spmt_comm *alone(void)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	spmt_comm *comm = NULL;

	attr.device = 0;
	cr_assert_eq(spmt_init(&attr, &comm), 0, "%s", spmt_last_error());
	return comm;
}

/* A move in a held stream, whose other side is another world's heap, which ends meanwhile. */
static void lose_move(struct scene *s, bool put)
{
	spmt_comm *other = alone();
	void *gone;

	cr_assert_eq(spmt_malloc(other, SIZE, &gone), 0);
	cr_assert_eq(stream_make(s->comm, &s->stream), 0);
	cr_assert_eq(hold(s), 0);
	if (put)
		cr_assert_eq(spmt_put_on_stream(s->comm, s->dst, gone, SIZE, 0, s->stream), 0, "%s",
			spmt_last_error());
	else
		cr_assert_eq(spmt_get_on_stream(s->comm, gone, s->dst, SIZE, 0, s->stream), 0, "%s",
			spmt_last_error());
	cr_assert_eq(spmt_finalize(other), 0);
}

/* Told once, by the quiet of the comm that queued it, also if the stream is destroyed by then and another has its handle. */
static void lost(bool put, bool destroyed)
{
	struct scene s = { .comm = alone() };
	spmt_stream next;

	cr_assert_eq(spmt_calloc(s.comm, 1, SIZE, (void **)&s.dst), 0);
	lose_move(&s, put);
	cr_assert(latch_open(&s.latch));
	if (destroyed) {
		cr_assert_lt(stream_wait(s.comm, s.stream), 0);
		cr_assert_eq(stream_end(s.comm, s.stream), 0);
		cr_assert_eq(stream_make(s.comm, &next), 0);
		cr_expect_eq(spmt_signal_on_stream(s.comm, s.dst, 3, SPMT_SIGNAL_SET, 0, next), 0);
	}
	cr_expect_eq(spmt_quiet(s.comm), -EFAULT);
	cr_expect(strstr(spmt_last_error(), "spmt_quiet: rank 0: "), "%s", spmt_last_error());
	cr_expect_eq(spmt_quiet(s.comm), 0, "%s", spmt_last_error());
	if (destroyed) {
		cr_expect_eq(s.dst[0], 3);
		cr_assert_eq(stream_end(s.comm, next), 0);
	}
	cr_expect_eq(spmt_finalize(s.comm), 0, "%s", spmt_last_error());
}

Test(queued, quiet_tells_of_a_move_that_failed_when_it_ran)
{
	NEEDS_HOST("a driver's context is lost with the stream");
	for (int i = 0; i < 4; i++)
		lost(i & 1, i & 2);
}

/* A signal that is ordered behind a put is not delivered without its bytes. */
Test(queued, no_signal_follows_a_put_that_failed)
{
	struct scene s = { .comm = NULL };
	uint64_t seen = 1;
	spmt_stream order;

	NEEDS_HOST("a driver's context is lost with the stream");
	s.comm = alone();
	cr_assert_eq(spmt_calloc(s.comm, 2, SIZE, (void **)&s.dst), 0);
	cr_assert_eq(stream_make(s.comm, &order), 0);
	lose_move(&s, true);
	cr_assert_eq(spmt_quiet_on_stream(s.comm, order), 0);
	cr_assert_eq(spmt_signal_on_stream(s.comm, s.dst + WORDS, 1, SPMT_SIGNAL_SET, 0, order), 0);
	cr_assert(latch_open(&s.latch));
	cr_expect_eq(spmt_quiet(s.comm), -EFAULT);
	cr_assert_eq(spmt_signal_fetch(s.comm, s.dst + WORDS, &seen), 0);
	cr_expect_eq(seen, 0, "delivered");
	cr_assert_eq(stream_end(s.comm, order), 0);
	cr_assert_eq(stream_end(s.comm, s.stream), 0);
	cr_expect_eq(spmt_finalize(s.comm), 0, "%s", spmt_last_error());
}

/* ---- streams that have another's handle ---------------------------------------------------------------------------------- */

/* The first stream is held and destroyed, the second has its handle where the driver gives it away again at once. */
static int reused_put(spmt_comm *comm, void *arg)
{
	struct scene s = { .comm = comm };
	int pe = (spmt_rank(comm) + 1) % spmt_nranks(comm);
	uint64_t *src;
	spmt_stream next;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 3, SIZE, (void **)&s.dst));
	REQUIRE_OK(spmt_malloc(comm, SIZE, (void **)&src));
	TRY(sym_set(comm, src, 5, SIZE));
	REQUIRE_OK(spmt_barrier(comm));
	for (int turn = 0; turn < 3; turn++) {
		int64_t begin = now_ns();

		REQUIRE_OK(stream_make(comm, &s.stream));
		TRY(hold(&s));
		REQUIRE_OK(spmt_put_on_stream(comm, s.dst + turn * WORDS, src, SIZE, pe, s.stream));
		REQUIRE_OK(stream_end(comm, s.stream));
		REQUIRE_OK(stream_make(comm, &next));
		REQUIRE_OK(spmt_put_on_stream(comm, s.dst, src, 8, pe, next));
		REQUIRE_OK(spmt_set_timeout(comm, 1));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		REQUIRE_OK(spmt_set_timeout(comm, 10000));
		REQUIRE(latch_open(&s.latch) && now_ns() - begin < 9000000000);
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_sync(comm));
		TRY(sym_check_byte(comm, s.dst + turn * WORDS, 5, SIZE));
		REQUIRE_OK(stream_end(comm, next));
	}
	return spmt_barrier(comm);
}

Test(queued, quiet_knows_a_stream_from_the_next_of_its_handle)
{
	RANKS_OK(ranks_run(ranks_here(2), NULL, reused_put, NULL));
}

/* All ranks but the last hold their first stream: its collective still comes before that of the next stream. */
static int reused_collective(spmt_comm *comm, void *arg)
{
	struct scene s = { .comm = comm };
	int n = spmt_nranks(comm), rank = spmt_rank(comm);
	uint64_t *in, seen[2], give[2] = { (uint64_t)rank + 1, 100 * ((uint64_t)rank + 1) };
	uint64_t sum = (uint64_t)n * ((uint64_t)n + 1) / 2;
	spmt_stream next;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 2, 8, (void **)&s.dst));
	REQUIRE_OK(spmt_malloc(comm, 2 * 8, (void **)&in));
	REQUIRE_OK(spmt_copy_in(comm, in, give, sizeof(give)));
	for (int turn = 0; turn < 5; turn++) {
		REQUIRE_OK(stream_make(comm, &s.stream));
		if (rank < n - 1)
			TRY(hold(&s));
		REQUIRE_OK(
			spmt_all_reduce(comm, s.dst, in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, s.stream));
		REQUIRE_OK(stream_end(comm, s.stream));
		REQUIRE_OK(stream_make(comm, &next));
		REQUIRE_OK(spmt_all_reduce(
			comm, s.dst + 1, in + 1, 1, SPMT_TYPE_U64, SPMT_OP_SUM, next));
		sleep_ms(20);
		REQUIRE(rank == n - 1 || latch_open(&s.latch));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_copy_out(comm, seen, s.dst, sizeof(seen)));
		REQUIRE_EQ(seen[0], sum);
		REQUIRE_EQ(seen[1], 100 * sum);
		REQUIRE_OK(stream_end(comm, next));
	}
	return spmt_barrier(comm);
}

Test(queued, collectives_know_a_stream_from_the_next_of_its_handle)
{
	RANKS_OK(ranks_run(ranks_here(3), NULL, reused_collective, NULL));
}

/* ---- one mark for all collectives ---------------------------------------------------------------------------------------- */

static int reduce_on(struct scene *s, uint64_t *in, spmt_stream stream)
{
	return spmt_all_reduce(s->comm, s->dst, in, WORDS, SPMT_TYPE_U64, SPMT_OP_SUM, stream);
}

/* Its stream held: quiet waits for it, and so does what is ordered behind it, also once its stream is destroyed. */
static int held_collective(spmt_comm *comm, void *arg)
{
	struct scene s = { .comm = comm };
	uint64_t *in, *after, seen;
	spmt_stream order;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, SIZE, (void **)&s.dst));
	REQUIRE_OK(spmt_malloc(comm, SIZE, (void **)&in));
	REQUIRE_OK(spmt_malloc(comm, sizeof(*after), (void **)&after));
	TRY(sym_set(comm, in, 5, SIZE));
	REQUIRE_OK(stream_make(comm, &order));
	for (int destroyed = 0; destroyed < 2; destroyed++) {
		TRY(sym_set(comm, s.dst, 0, SIZE));
		REQUIRE_OK(stream_make(comm, &s.stream));
		TRY(hold(&s));
		REQUIRE_OK(reduce_on(&s, in, s.stream));
		if (destroyed)
			REQUIRE_OK(stream_end(comm, s.stream));
		REQUIRE_OK(spmt_set_timeout(comm, 1));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		REQUIRE_OK(spmt_quiet_on_stream(comm, order));
		/* Not to the CPU's memory, for which a driver may wait at once. */
		REQUIRE_OK(spmt_put_on_stream(comm, after, s.dst, sizeof(*after), 0, order));
		REQUIRE_OK(spmt_set_timeout(comm, 10000));
		REQUIRE(latch_open(&s.latch));
		REQUIRE_OK(stream_wait(comm, order));
		REQUIRE_OK(stream_load(comm, order, after, &seen));
		REQUIRE_OK(stream_wait(comm, order));
		REQUIRE_EQ(seen, 0x0505050505050505);
		REQUIRE_OK(spmt_quiet(comm));
		if (!destroyed)
			REQUIRE_OK(stream_end(comm, s.stream));
	}
	return stream_end(comm, order);
}

Test(queued, quiet_waits_for_collectives_as_for_moves)
{
	RANKS_OK(ranks_run(1, NULL, held_collective, NULL));
}

/* Behind the first, its stream waits for a signal; the second is in another stream, and waits for the first alone. */
static int free_collective(spmt_comm *comm, void *arg)
{
	struct scene s = { .comm = comm };
	uint64_t *in;
	spmt_stream streams[3] = { NULL };

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, SIZE, (void **)&s.dst));
	REQUIRE_OK(spmt_calloc(comm, 1, 8, (void **)&s.sig));
	REQUIRE_OK(spmt_calloc(comm, 1, SIZE, (void **)&in));
	for (int i = 1; i < 3; i++)
		REQUIRE_OK(stream_make(comm, &streams[i]));
	for (uint64_t i = 0; i < 2; i++) {
		REQUIRE_OK(reduce_on(&s, in, streams[i]));
		REQUIRE_OK(spmt_signal_wait_on_stream(comm, s.sig, SPMT_CMP_GE, i + 1, streams[i]));
		REQUIRE_OK(reduce_on(&s, in, streams[i + 1]));
		REQUIRE_OK(stream_wait(comm, streams[i + 1]));
		REQUIRE_OK(spmt_signal(comm, s.sig, i + 1, SPMT_SIGNAL_SET, 0));
		REQUIRE_OK(spmt_quiet(comm));
	}
	for (int i = 1; i < 3; i++)
		REQUIRE_OK(stream_end(comm, streams[i]));
	return 0;
}

Test(queued, a_collective_waits_for_no_more_than_the_one_before)
{
	NEEDS_HOST("a signal of the host's does not go through the comm's own stream");
	RANKS_OK(ranks_run(1, NULL, free_collective, NULL));
}
