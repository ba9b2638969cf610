/* SPDX-License-Identifier: MIT */
/* Functions that are called in stream order: when, with what code, once, and by the end. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"

struct told {
	_Atomic int calls, code;
	const _Atomic int *seen; /* looked at when called, or NULL */
	_Atomic int saw;
	struct latch *latch; /* to pass first, or NULL */
};

static void tell(void *arg, int code)
{
	struct told *t = arg;

	if (t->latch)
		latch_pass(t->latch);
	if (t->seen)
		atomic_store(&t->saw, atomic_load(t->seen));
	atomic_store(&t->code, code);
	atomic_fetch_add(&t->calls, 1);
}

struct mark {
	_Atomic int *word;
	const _Atomic int *seen;
	_Atomic int *saw;
	struct latch *latch;
};

static void set_mark(void *args)
{
	struct mark *m = args;

	if (m->latch)
		latch_pass(m->latch);
	if (m->saw)
		atomic_store(m->saw, atomic_load(m->seen));
	atomic_store(m->word, 1);
}

/* ---- order -------------------------------------------------------------------------------------------------------------------- */

/* Work before it has ended, work behind it has not begun. */
static int between(spmt_comm *comm, spmt_stream stream)
{
	_Atomic int before = 0, after = 0, calls_before_after = -1;
	struct latch held = { 0 }, called = { 0 };
	struct told told = { .seen = &before, .latch = &called };
	struct mark first = { .word = &before, .latch = &held };
	struct mark last = { .word = &after, .seen = &told.calls, .saw = &calls_before_after };

	REQUIRE_OK(stream_call(comm, stream, set_mark, &first, sizeof(first)));
	REQUIRE_OK(spmt_on_complete(comm, stream, tell, &told));
	REQUIRE_OK(stream_call(comm, stream, set_mark, &last, sizeof(last)));
	REQUIRE_EQ(atomic_load(&told.calls), 0);
	REQUIRE(latch_open(&held));
	REQUIRE_EQ(atomic_load(&after), 0);
	REQUIRE(latch_open(&called));
	if (stream)
		REQUIRE_OK(stream_wait(comm, stream));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_EQ(atomic_load(&told.calls), 1);
	REQUIRE_EQ(atomic_load(&told.saw), 1);
	REQUIRE_EQ(atomic_load(&told.code), 0);
	REQUIRE_EQ(atomic_load(&calls_before_after), 1);
	return 0;
}

static int in_order(spmt_comm *comm, void *arg)
{
	spmt_stream stream;

	(void)arg;
	REQUIRE_OK(stream_make(comm, &stream));
	TRY(between(comm, NULL));
	TRY(between(comm, stream));
	return stream_end(comm, stream);
}

Test(complete, comes_behind_what_is_queued_and_before_what_follows)
{
	RANKS_OK(ranks_run(2, NULL, in_order, NULL));
}

/* quiet waits for it, as for all that the comm has queued. */
static int many(spmt_comm *comm, void *arg)
{
	enum { N = 300 };
	struct told told = { .calls = 0 };

	(void)arg;
	for (int i = 0; i < N; i++)
		REQUIRE_OK(spmt_on_complete(comm, NULL, tell, &told));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_EQ(atomic_load(&told.calls), N);
	return 0;
}

Test(complete, quiet_waits_for_all_of_them)
{
	RANKS_OK(ranks_run(2, NULL, many, NULL));
}

/* ---- what a function may do ------------------------------------------------------------------------------------------------------- */

enum { STEPS = 20 };

struct next {
	spmt_comm *comm;
	uint64_t *word; /* symmetric */
	int left;
	uint64_t values[STEPS + 1];
	_Atomic int failed, ended;
};

static void go_on(void *arg, int code)
{
	struct next *n = arg;
	int failed = code != 0;

	failed += spmt_status(n->comm) != 0;
	failed += spmt_finalize(n->comm) != -EBUSY;
	failed += spmt_finalize_all(1, &n->comm) != -EBUSY;
	n->values[n->left] = (uint64_t)n->left;
	atomic_fetch_add(&n->failed, failed);
	if (n->left > 0) {
		failed = spmt_put_on_stream(n->comm, n->word, &n->values[n->left], 8,
				 spmt_rank(n->comm), NULL) != 0;
		n->left--;
		failed += spmt_on_complete(n->comm, NULL, go_on, n) != 0;
		atomic_fetch_add(&n->failed, failed);
	} else {
		atomic_store(&n->ended, 1);
	}
}

static int calls_in_turn(spmt_comm *comm, void *arg)
{
	struct next next = { .comm = comm, .left = STEPS };

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*next.word), (void **)&next.word));
	REQUIRE_OK(spmt_on_complete(comm, NULL, go_on, &next));
	for (int64_t begin = now_ns();
		!atomic_load(&next.ended) && !atomic_load(&next.failed) && ms_since(begin) < 30000;)
		sleep_ms(1);
	REQUIRE_EQ(atomic_load(&next.failed), 0);
	REQUIRE_EQ(atomic_load(&next.ended), 1);
	REQUIRE_OK(spmt_quiet(comm));
	return sym_check_u64(comm, next.word, 1);
}

Test(complete, a_function_may_queue_the_next_step)
{
	RANKS_OK(ranks_run(2, NULL, calls_in_turn, NULL));
}

struct other {
	spmt_comm *comm;
	spmt_stream stream;
	uint64_t *word, value; /* word: symmetric */
	_Atomic int ended, code;
};

static void puts_there(void *arg, int code)
{
	struct other *o = arg;

	if (!code)
		code = spmt_put_on_stream(
			o->comm, o->word, &o->value, 8, spmt_rank(o->comm), o->stream);
	atomic_store(&o->code, code);
	atomic_store(&o->ended, 1);
}

/* Streams that the comm has not seen yet, so that its table of them grows under whoever is still in a call. */
static int others_in_turn(spmt_comm *comm, void *arg)
{
	enum { TIMES = 200 };
	static spmt_stream streams[2 * TIMES];
	struct other o = { .comm = comm };

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 8, (void **)&o.word));
	for (int i = 0; i < 2 * TIMES; i++)
		REQUIRE_OK(stream_make(comm, &streams[i]));
	for (int i = 0; i < TIMES; i++) {
		o.stream = streams[2 * i];
		atomic_store(&o.ended, 0);
		REQUIRE_OK(spmt_on_complete(comm, streams[2 * i + 1], puts_there, &o));
		while (!atomic_load(&o.ended))
			;
		REQUIRE_OK(atomic_load(&o.code));
	}
	REQUIRE_OK(spmt_quiet(comm));
	for (int i = 0; i < 2 * TIMES; i++)
		REQUIRE_OK(stream_end(comm, streams[i]));
	return spmt_free(comm, o.word);
}

/* Nobody can tell when the call that queues a function is through with the comm: the function comes behind that. */
Test(complete, a_function_has_the_comm_to_itself)
{
	setenv("SPMT_CHECK", "1", 1);
	RANKS_OK(ranks_run(1, NULL, others_in_turn, NULL));
}

/* ---- failures ------------------------------------------------------------------------------------------------------------------------ */

/* Rank 0 does not come to a collective, of which the function of rank 1 tells. */
static int missed(spmt_comm *comm, void *arg)
{
	struct told told = { .calls = 0 };
	uint64_t *sum;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*sum), (void **)&sum));
	if (spmt_rank(comm) != 0) {
		REQUIRE_OK(spmt_set_timeout(comm, 50));
		REQUIRE_OK(
			spmt_all_reduce(comm, sum, sum + 1, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		if (spmt_on_complete(comm, NULL, tell, &told) == 0) {
			REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
			REQUIRE_EQ(atomic_load(&told.calls), 1);
			REQUIRE_EQ(atomic_load(&told.code), SPMT_ERR_TIMEOUT);
		}
	}
	while (!spmt_status(comm))
		sleep_ms(1);
	REQUIRE(spmt_on_complete(comm, NULL, tell, &told) < 0);
	return 0;
}

Test(complete, a_function_hears_of_a_collective_that_failed)
{
	RANKS_OK(ranks_run(2, NULL, missed, NULL));
}

struct stuck {
	spmt_uid uid;
	struct latch latch;
	struct told told[2]; /* a rank each */
};

/* A kernel of the user's holds the stream beyond finalize; the function is called by then, and not again. */
static int held_beyond_the_end(spmt_comm *comm, void *arg)
{
	struct stuck *s = arg;
	struct latch *latch = &s->latch;
	int me = spmt_rank(comm);
	spmt_stream stream;

	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(stream_call(comm, stream, latch_kernel, &latch, sizeof(latch)));
	REQUIRE_OK(spmt_on_complete(comm, stream, tell, &s->told[me]));
	REQUIRE_OK(spmt_host_stream_destroy(stream));
	REQUIRE_OK(spmt_sync(comm));
	if (me == 0)
		REQUIRE_OK(spmt_abort(comm, -9));
	while (!spmt_status(comm))
		sleep_ms(1);
	spmt_finalize(comm);
	REQUIRE_EQ(atomic_load(&s->told[me].calls), 1);
	REQUIRE_EQ(atomic_load(&s->told[me].code), -9);
	return 0;
}

static int held_thread(int rank, void *arg)
{
	struct stuck *s = arg;
	struct spmt_attr attr = ranks_attr(rank, 2, &s->uid);
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	return held_beyond_the_end(comm, s);
}

static int refused(spmt_comm *comm, void *arg)
{
	(void)arg;
	REQUIRE_CODE(spmt_on_complete(comm, NULL, NULL, NULL), -EINVAL);
	REQUIRE_SAYS("fn is NULL");
	REQUIRE_CODE(spmt_on_complete(NULL, NULL, tell, NULL), -EINVAL);
	REQUIRE_OK(spmt_quiet(comm));
	return 0;
}

Test(complete, it_is_called_before_the_end_whatever_holds_the_stream)
{
	static struct stuck stuck;
	struct usage before, slack = { .fds = 0, .threads = 0, .maps = 32, .rss_kib = 4096 };
	const char *grown = "never looked";

	NEEDS_HOST("kernels that wait for the CPU");
	RANKS_OK(ranks_run(2, NULL, refused, NULL)); /* what stays for the next world */
	before = usage_now();
	cr_assert_eq(spmt_uid_create(&stuck.uid), 0);
	RANKS_OK(ranks_threads(2, held_thread, &stuck));
	cr_assert(latch_open(&stuck.latch));
	/* The stream's thread ends last, after a second call, were there one. */
	for (int i = 0; i < 600 && grown; i++) {
		sleep_ms(20);
		grown = usage_grown(&before, &slack);
	}
	cr_expect_null(grown, "%s", grown);
	cr_assert_eq(atomic_load(&stuck.told[0].calls), 1);
	cr_assert_eq(atomic_load(&stuck.told[1].calls), 1);
}

Test(complete, bad_arguments)
{
	RANKS_OK(ranks_run(1, NULL, refused, NULL));
}

/* ---- n ranks from one thread --------------------------------------------------------------------------------------------------------- */

static int open_all(int n, spmt_comm **comms)
{
	struct spmt_attr attrs[4];

	for (int r = 0; r < n; r++)
		attrs[r] = ranks_attr(r, n, NULL);
	return spmt_init_all(n, attrs, comms);
}

static int ends_all(int index, void *arg)
{
	spmt_comm *comms[4], *twice[2];
	struct usage before, slack = { .threads = 0 };

	(void)index;
	(void)arg;
	REQUIRE_OK(open_all(4, comms));
	REQUIRE_OK(spmt_finalize_all(4, comms));
	before = usage_now();
	REQUIRE_OK(open_all(4, comms));
	twice[0] = twice[1] = comms[0];
	REQUIRE_CODE(spmt_finalize_all(2, twice), -EINVAL);
	REQUIRE_OK(spmt_lane(comms[0], 1, &twice[1]));
	REQUIRE_CODE(spmt_finalize_all(2, twice), -EINVAL);
	REQUIRE_SAYS("comms[1] is a part or lane of comms[0]");
	REQUIRE_CODE(spmt_finalize_all(0, comms), -EINVAL);
	REQUIRE_CODE(spmt_finalize_all(4, NULL), -EINVAL);
	REQUIRE_OK(spmt_finalize_all(4, comms));
	REQUIRE_CODE(spmt_finalize_all(4, comms), -EBADF);
	slack.rss_kib = slack.maps = 1 << 20;
	REQUIRE(!usage_grown(&before, &slack));
	return 0;
}

Test(complete, finalize_all_ends_all_or_none)
{
	RANKS_OK(ranks_threads(1, ends_all, NULL));
}

static int fail_one(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_rank(comm) == 2 ? -33 : spmt_barrier(comm);
}

/* The others wait in a barrier without a deadline. */
static int one_fails(int index, void *arg)
{
	spmt_comm *comms[4];

	(void)index;
	(void)arg;
	REQUIRE_OK(open_all(4, comms));
	for (int r = 0; r < 4; r++)
		REQUIRE_OK(spmt_set_timeout(comms[r], -1));
	REQUIRE_CODE(spmt_each_abort(4, comms, fail_one, NULL), -33);
	REQUIRE_CODE(spmt_status(comms[0]), -33);
	spmt_finalize_all(4, comms);
	REQUIRE_OK(open_all(4, comms));
	REQUIRE_CODE(spmt_each_abort(0, comms, fail_one, NULL), -EINVAL);
	REQUIRE_CODE(spmt_each_abort(4, comms, NULL, NULL), -EINVAL);
	return spmt_finalize_all(4, comms);
}

Test(complete, a_function_that_fails_ends_the_others)
{
	RANKS_OK(ranks_threads(1, one_fails, NULL));
}

static int own_code(spmt_comm *comm, void *arg)
{
	const bool *before = arg;

	if (*before)
		REQUIRE_CODE(spmt_put(comm, NULL, comm, 8, 0), -EINVAL);
	return -33;
}

static int own_codes(int index, void *arg)
{
	bool before = false;
	spmt_comm *comm;

	(void)index;
	(void)arg;
	REQUIRE_OK(open_all(1, &comm));
	REQUIRE_CODE(spmt_each(1, &comm, own_code, &before), -33);
	REQUIRE_SAYS("spmt_each: fn returned -33 for comms[0]");
	REQUIRE_CODE(spmt_run(1, NULL, own_code, &before), -33);
	REQUIRE_SAYS("spmt_run: rank 0: fn returned -33");
	before = true;
	REQUIRE_CODE(spmt_each(1, &comm, own_code, &before), -33);
	REQUIRE_SAYS("fn returned -33 for comms[0]; before that: spmt_put: rank 0: dst is NULL");
	REQUIRE_CODE(spmt_run(1, NULL, own_code, &before), -33);
	REQUIRE_SAYS("rank 0: fn returned -33; before that: spmt_put: ");
	return spmt_finalize(comm);
}

/* Not the sentence of something else that failed before. */
Test(complete, a_code_of_the_function_s_own)
{
	RANKS_OK(ranks_threads(1, own_codes, NULL));
}
