/* SPDX-License-Identifier: MIT */
/*
 * Moves over RDMA devices in order of a stream that fail or do not end in time, over the stand-in for libibverbs: who is told, once; that
 * no signal comes behind data that is not there; and that nothing is written behind a quiet that has returned 0. Two ranks as threads, with
 * two devices each, which share large moves.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/bytes.h"
#include "tests/lib/transports/fake_nic.h"

enum { PAIR = 2, FROM = 64 << 10, BIG = 4 * FROM, SHORT_MS = 200, LONG_MS = 20000, NAP_MS = 50 };

static const struct spmt_attr attr = { .size = sizeof(attr), .heap_size = 4 << 20 };
static const int apart[PAIR] = { 0, 2 }; /* their first devices are the same */

/* What rank 0 has, and where it and rank 1 have it. */
struct scene {
	spmt_comm *comm;
	char *block, *mine;
	uint64_t *word; /* of rank 1, that nobody may set before its data is there */
	size_t n;
};

static _Atomic int turn; /* 1: rank 0 has played, 2: rank 1 may end */

static void until(int when)
{
	while (turn < when)
		sleep_ms(1);
}

static uint64_t word_now(const struct scene *s)
{
	return __atomic_load_n(s->word, __ATOMIC_ACQUIRE);
}

/* Rank 0 plays, and rank 1 looks what has come. */
struct play {
	int (*rank0)(struct scene *s);
	int (*rank1)(struct scene *s); /* behind rank 0's; NULL: its word is still 0 */
	size_t n;
};

static int plays(spmt_comm *comm, void *arg)
{
	const struct play *play = arg;
	struct scene s = { .comm = comm, .n = play->n };
	int rank = spmt_rank(comm);

	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&s.block));
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&s.mine));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*s.word), (void **)&s.word));
	fill(s.mine, BIG, rank);
	/* all connections are there */
	REQUIRE_OK(spmt_put(comm, s.block, s.mine, BIG, !rank));
	REQUIRE_OK(spmt_signal(comm, s.word, 0, SPMT_SIGNAL_ADD, !rank));
	REQUIRE_OK(spmt_barrier(comm));
	memset(s.block, 0, BIG);
	REQUIRE_OK(spmt_barrier(comm));
	if (!rank) {
		int rc = play->rank0(&s);

		fake.hold(0);
		fake.congest(-1);
		fake.break_work(0, 0);
		turn = 1;
		return rc;
	}
	until(1);
	sleep_ms(NAP_MS);
	if (play->rank1)
		return play->rank1(&s);
	REQUIRE_EQ(word_now(&s), 0);
	return 0;
}

static int play(const struct play *what)
{
	struct play play = *what;

	turn = 0;
	TRY(ranks_run_on(PAIR, &attr, apart, plays, &play));
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

/* ---- who is told ------------------------------------------------------------------------------- */

enum call { PUT, GET, SIGNAL, PUT_SIGNAL, PUT_SIGNAL_NBI, CALLS };
static enum call called;

static int call(struct scene *s)
{
	switch (called) {
	case PUT:
		return spmt_put_on_stream(s->comm, s->block, s->mine, s->n, 1, NULL);
	case GET:
		return spmt_get_on_stream(s->comm, s->mine, s->block, s->n, 1, NULL);
	case SIGNAL:
		return spmt_signal_on_stream(s->comm, s->word, 1, SPMT_SIGNAL_ADD, 1, NULL);
	case PUT_SIGNAL:
		return spmt_put_signal_on_stream(
			s->comm, s->block, s->mine, s->n, s->word, 1, SPMT_SIGNAL_ADD, 1, NULL);
	default:
		return spmt_put_signal_nbi(
			s->comm, s->block, s->mine, s->n, s->word, 1, SPMT_SIGNAL_ADD, 1);
	}
}

static const char *call_says(void)
{
	return called == GET	   ? "get to rank 1: fake0 port 2 to fake0 port 2: "
		: called == SIGNAL ? "signal to rank 1: fake0 port 2 to fake0 port 2: "
				   : "put to rank 1: fake0 port 2 to fake0 port 2: ";
}

static _Atomic int code_seen;
static _Atomic bool code_noted;

static void code_note(void *arg, int code)
{
	(void)arg;
	code_seen = code;
	code_noted = true;
}

/* A function behind it, a fence, then quiet, once. */
static int told(struct scene *s)
{
	fake.hold(1);
	fake.break_work(1, VERBS_WC_REM_ACCESS_ERR);
	REQUIRE_OK(call(s));
	REQUIRE_OK(spmt_on_complete(s->comm, NULL, code_note, NULL));
	fake.hold(0);
	REQUIRE_CODE(spmt_fence(s->comm), -EIO);
	REQUIRE_SAYS(call_says());
	REQUIRE_EQ(code_seen, -EIO);
	REQUIRE_CODE(spmt_quiet(s->comm), -EIO);
	REQUIRE_SAYS("spmt_quiet: rank 0: ");
	REQUIRE_SAYS(call_says());
	REQUIRE_SAYS("verbs status 10");
	REQUIRE_OK(spmt_quiet(s->comm));
	REQUIRE_OK(spmt_status(s->comm));
	return 0;
}

static int all_told(void)
{
	for (int i = 0; i < CALLS; i++) {
		called = (enum call)i;
		TRY(play(&(struct play){ .rank0 = told, .n = FROM }));
	}
	return 0;
}

static _Atomic int let;

/* Lets the device go on, at some moment of the other thread's quiets. */
static void *lets(void *arg)
{
	const int64_t *after = arg;

	while (!let)
		;
	for (int64_t begin = now_ns(); now_ns() - begin < *after;)
		;
	fake.hold(0);
	return NULL;
}

/* A quiet that waits for no stream asks while the stream's move fails: it tells of that, or a later one does. */
static int asked(struct scene *s)
{
	static int64_t after; /* ns */
	spmt_stream other;
	pthread_t thread;
	int told = 0;

	after = (after + 7900) % 200000;
	code_noted = false;
	let = 0;
	REQUIRE_OK(spmt_host_stream_create(s->comm, &other));
	fake.hold(1);
	fake.break_work(1, VERBS_WC_REM_ACCESS_ERR);
	REQUIRE_OK(spmt_put_on_stream(s->comm, s->block, s->mine, s->n, 1, NULL));
	REQUIRE_OK(spmt_on_complete(s->comm, NULL, code_note, NULL));
	REQUIRE_EQ(pthread_create(&thread, NULL, lets, &after), 0);
	for (let = 1; !code_noted;)
		told |= spmt_quiet_on_stream(s->comm, other);
	pthread_join(thread, NULL);
	REQUIRE(code_seen == -EIO || told);
	if (told)
		REQUIRE_OK(spmt_quiet(s->comm));
	else
		REQUIRE_CODE(spmt_quiet(s->comm), -EIO);
	REQUIRE_OK(spmt_quiet(s->comm));
	return spmt_host_stream_destroy(other);
}

static int asked_often(void)
{
	for (size_t i = 0; i < test_count(100, 1000); i++)
		TRY(play(&(struct play){ .rank0 = asked, .n = FROM }));
	return 0;
}

/* ---- signals ----------------------------------------------------------------------------------- */

static int late_behind(struct scene *s)
{
	REQUIRE_CODE(spmt_quiet(s->comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS(
		"put to rank 1: fake0 port 2 to fake0 port 2: a move over the network is not done in time");
	fake.hold(0);
	fake.congest(-1);
	REQUIRE_OK(spmt_set_timeout(s->comm, LONG_MS));
	REQUIRE_OK(spmt_quiet(s->comm)); /* waits for what is left of it */
	sleep_ms(NAP_MS);
	return 0;
}

/* The data does not come in time, and its signal not at all. */
static int late(struct scene *s)
{
	REQUIRE_OK(spmt_set_timeout(s->comm, SHORT_MS));
	fake.hold(1);
	REQUIRE_OK(call(s));
	return late_behind(s);
}

/* Its second half alone does not, by the other device. */
static int half_late(struct scene *s)
{
	REQUIRE_OK(spmt_set_timeout(s->comm, SHORT_MS));
	fake.congest(1);
	REQUIRE_OK(call(s));
	return late_behind(s);
}

/* Once quiet has told of it and has waited, what is queued anew goes. */
static int late_then_again(struct scene *s)
{
	TRY(late(s));
	REQUIRE_OK(call(s));
	return spmt_quiet(s->comm);
}

static int has_come(struct scene *s)
{
	REQUIRE_EQ(word_now(s), 1);
	return filled_by("put again", s->block, s->n, 0);
}

static int signals(void)
{
	static const struct play scenes[] = { { .rank0 = late, .n = FROM },
		{ .rank0 = half_late, .n = BIG },
		{ .rank0 = late_then_again, .rank1 = has_come, .n = BIG } };

	for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		for (called = PUT_SIGNAL; called < CALLS; called++)
			TRY(play(&scenes[i]));
	return 0;
}

static _Atomic int reached, go;

static void stand(void *arg, int code)
{
	(void)arg;
	(void)code;
	reached = 1;
	while (!go)
		sleep_ms(1);
}

/* Quiet ends, and has told of the put, while the stream stands between that and a signal: it does not go afterwards, and the next quiet says so. */
static int overtaken(struct scene *s)
{
	reached = go = 0;
	REQUIRE_OK(spmt_set_timeout(s->comm, SHORT_MS));
	fake.hold(1);
	REQUIRE_OK(spmt_put_on_stream(s->comm, s->block, s->mine, s->n, 1, NULL));
	REQUIRE_OK(spmt_on_complete(s->comm, NULL, stand, NULL));
	REQUIRE_OK(spmt_signal_on_stream(s->comm, s->word, 1, SPMT_SIGNAL_ADD, 1, NULL));
	while (!reached)
		sleep_ms(1);
	fake.hold(0);
	REQUIRE_CODE(spmt_quiet(s->comm), SPMT_ERR_TIMEOUT);
	go = 1;
	REQUIRE_OK(spmt_set_timeout(s->comm, LONG_MS));
	REQUIRE_CODE(spmt_quiet(s->comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("put to rank 1: ");
	REQUIRE_OK(spmt_quiet(s->comm));
	return 0;
}

/* Nor does what another stream has, until quiet has told. */
static int other_stream(struct scene *s)
{
	spmt_stream stream;

	REQUIRE_OK(spmt_host_stream_create(s->comm, &stream));
	REQUIRE_OK(spmt_set_timeout(s->comm, SHORT_MS));
	fake.hold(1);
	REQUIRE_OK(spmt_put_on_stream(s->comm, s->block, s->mine, s->n, 1, NULL));
	REQUIRE_CODE(spmt_fence(s->comm), SPMT_ERR_TIMEOUT);
	fake.hold(0);
	REQUIRE_CODE(spmt_fence(s->comm), SPMT_ERR_TIMEOUT);
	REQUIRE_OK(spmt_signal_on_stream(s->comm, s->word, 1, SPMT_SIGNAL_ADD, 1, stream));
	REQUIRE_CODE(spmt_host_stream_synchronize(stream), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("signal to rank 1: not done, as an earlier one failed: put to rank 1: ");
	REQUIRE_CODE(spmt_quiet(s->comm), SPMT_ERR_TIMEOUT);
	REQUIRE_OK(spmt_quiet(s->comm));
	REQUIRE_OK(spmt_host_stream_destroy(stream));
	return 0;
}

static int overtakes(void)
{
	TRY(play(&(struct play){ .rank0 = overtaken, .n = FROM }));
	return play(&(struct play){ .rank0 = other_stream, .n = FROM });
}

/* ---- what is in flight ------------------------------------------------------------------------- */

static int stays(const char *at, size_t n, char value)
{
	sleep_ms(NAP_MS);
	for (size_t i = 0; i < n; i++)
		if (at[i] != value)
			return ranks_fail("byte %zu of %zu was written behind quiet", i, n);
	return 0;
}

/* No quiet is 0 as long as it may still come; and nothing else of a stream goes beside it. */
static int lands_late(struct scene *s)
{
	REQUIRE_OK(spmt_set_timeout(s->comm, SHORT_MS));
	fake.hold(1);
	REQUIRE_OK(spmt_get_on_stream(s->comm, s->mine, s->block, s->n, 1, NULL));
	REQUIRE_CODE(spmt_quiet(s->comm), SPMT_ERR_TIMEOUT);
	REQUIRE_CODE(spmt_quiet(s->comm), SPMT_ERR_TIMEOUT);
	REQUIRE_CODE(spmt_fence(s->comm), SPMT_ERR_TIMEOUT);
	REQUIRE_OK(spmt_signal_on_stream(s->comm, s->word, 1, SPMT_SIGNAL_ADD, 1, NULL));
	REQUIRE_CODE(spmt_quiet(s->comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("get to rank 1: ");
	fake.hold(0);
	REQUIRE_OK(spmt_set_timeout(s->comm, LONG_MS));
	REQUIRE_OK(spmt_quiet(s->comm));
	memset(s->mine, 1, s->n);
	return stays(s->mine, s->n, 1);
}

static int lands(void)
{
	TRY(play(&(struct play){ .rank0 = lands_late, .n = FROM }));
	return play(&(struct play){ .rank0 = lands_late, .n = BIG });
}

/* A world breaks while a stream waits for its move: quiet waits until the device has done with it. */
static int breaks_rank(spmt_comm *comm, void *arg)
{
	char *block, *mine;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&block));
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&mine));
	REQUIRE_OK(spmt_put(comm, block, mine, BIG, !spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm)) {
		until(1);
		sleep_ms(2 * NAP_MS);
		fake.hold(0);
		until(2);
		return 0;
	}
	fake.hold(1);
	REQUIRE_OK(spmt_get_on_stream(comm, mine, block, BIG, 1, NULL));
	sleep_ms(NAP_MS);
	REQUIRE_OK(spmt_abort(comm, -EPROTO));
	turn = 1;
	REQUIRE_CODE(spmt_quiet(comm), -EPROTO);
	memset(mine, 1, BIG);
	sleep_ms(2 * NAP_MS);
	turn = 2;
	return stays(mine, BIG, 1);
}

/* The world breaks, and the device goes on later. */
static void *breaks_later(void *arg)
{
	spmt_comm *comm = arg;

	sleep_ms(NAP_MS);
	fake.congest(1);
	fake.break_work(1, VERBS_WC_REM_ACCESS_ERR);
	fake.hold(0);
	sleep_ms(NAP_MS);
	spmt_abort(comm, -EPROTO);
	sleep_ms(4 * NAP_MS);
	fake.congest(-1);
	return NULL;
}

/* Two are late, of which one fails in the end: quiet waits for the other all the same. */
static int one_fails(struct scene *s)
{
	static char small[4096];
	spmt_stream first, second;
	pthread_t thread;

	REQUIRE_OK(spmt_host_stream_create(s->comm, &first));
	REQUIRE_OK(spmt_host_stream_create(s->comm, &second));
	REQUIRE_OK(spmt_set_timeout(s->comm, SHORT_MS));
	fake.hold(1);
	REQUIRE_OK(spmt_get_on_stream(s->comm, s->mine, s->block, BIG, 1, first));
	sleep_ms(NAP_MS);
	REQUIRE_OK(spmt_get_on_stream(s->comm, small, s->block, sizeof(small), 1, second));
	REQUIRE_CODE(spmt_host_stream_synchronize(first), SPMT_ERR_TIMEOUT);
	REQUIRE_CODE(spmt_host_stream_synchronize(second), SPMT_ERR_TIMEOUT);
	REQUIRE_OK(spmt_set_timeout(s->comm, LONG_MS));
	REQUIRE_EQ(pthread_create(&thread, NULL, breaks_later, s->comm), 0);
	REQUIRE(spmt_quiet(s->comm) < 0);
	memset(s->mine, 1, BIG);
	pthread_join(thread, NULL);
	REQUIRE_OK(spmt_host_stream_destroy(first));
	REQUIRE_OK(spmt_host_stream_destroy(second));
	return stays(s->mine, BIG, 1);
}

static int breaks(void)
{
	turn = 0;
	TRY(ranks_run_on(PAIR, &attr, apart, breaks_rank, NULL));
	REQUIRE_EQ(fake.live(), 0);
	return play(&(struct play){ .rank0 = one_fails, .n = BIG });
}

/* What a broken part has under way does not end, so its connection does; moves of its world by that fail. */
static int outlives_rank(spmt_comm *comm, void *arg)
{
	char *block, *mine;
	spmt_comm *part;
	int rc;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, FROM, (void **)&block));
	REQUIRE_OK(spmt_malloc(comm, FROM, (void **)&mine));
	REQUIRE_OK(spmt_put(comm, block, mine, FROM, !spmt_rank(comm)));
	REQUIRE_OK(spmt_split(comm, 0, spmt_rank(comm), &part));
	if (spmt_rank(comm)) {
		until(1);
		return 0;
	}
	fake.hold(1);
	REQUIRE_OK(spmt_put_nbi(part, block, mine, FROM, 1));
	REQUIRE_OK(spmt_abort(part, -EPROTO));
	REQUIRE_CODE(spmt_quiet(part), -EPROTO);
	fake.hold(0);
	rc = spmt_put(comm, block, mine, FROM, 1);
	turn = 1;
	REQUIRE_EQ(rc, -EIO);
	REQUIRE_SAYS("moves of a broken comm do not end");
	return 0;
}

/* It takes ten seconds. */
static int outlives(void)
{
	turn = 0;
	if (test_count(0, 1))
		TRY(ranks_run_on(PAIR, &attr, apart, outlives_rank, NULL));
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "quiet tells of each call", all_told },
		{ "quiet asks while a move fails", asked_often },
		{ "no signal behind data that is late", signals },
		{ "nothing that was queued before quiet told", overtakes },
		{ "quiet waits for what comes late", lands },
		{ "quiet waits where the world breaks", breaks },
		{ "a part breaks, and its world goes on", outlives },
	};

	setenv("SPMT_RDMA_STRIPE", "4", 1);
	setenv("SPMT_RDMA_STRIPE_FROM", "128K", 1);
	if (fake_nic(FAKES "/fake-verbs.so"))
		return 1;
	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
