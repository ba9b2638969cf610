/* SPDX-License-Identifier: MIT */
/* Ranks that never come, and worlds that are broken: named within the deadline, everybody woken, every later call told. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt_device.h"
#include "tests/lib/ranks.h"

enum { RANKS = 8, DEADLINE_MS = 500 };

/* ---- missing ranks ---------------------------------------------------------------------------------------------------------- */

/* What six ranks wait in for the other two. */
enum place {
	IN_BARRIER,
	IN_SYNC,
	IN_MALLOC,
	IN_FREE,
	IN_REGISTER,
	IN_FINALIZE,
	IN_ALL_REDUCE,
	IN_BARRIER_ON_STREAM,
	PLACES
};

static const char *const calls[] = { "spmt_barrier", "spmt_sync", "spmt_malloc", "spmt_free",
	"spmt_register", "spmt_finalize", "spmt_quiet", "spmt_quiet" };

/* How ranks 3 and 6 are missing. */
enum absence { LATE, RETURNED, CANCELLED };

struct scene {
	enum place place;
	enum absence absence;
	spmt_uid uid;
	_Atomic int told; /* ranks that have their error */
	_Atomic int64_t
		first; /* when the first of them began to wait: its deadline ends the others' waits */
	pthread_t absent[RANKS];
	_Atomic bool asleep[RANKS];
	spmt_comm *left[RANKS]; /* comms of threads that went without a word */
};

/* "<call>: <missing> ranks missing after 0.5 s: <who>", or a little later where the machine is busy. */
static int says_missing(const char *call, const char *missing, const char *who)
{
	const char *text = spmt_last_error();
	char head[64], tail[32];

	snprintf(head, sizeof(head), "%s: %s ranks missing after ", call, missing);
	snprintf(tail, sizeof(tail), " s: %s", who);
	if (strncmp(text, call, strlen(call)) == 0 &&
		calm_says(text, head, (double)DEADLINE_MS / 1e3, tail))
		return 0;
	return ranks_fail("\"%s\" is not \"%s0.5%s\"", text, head, tail);
}

static bool is_absent(int rank)
{
	return rank == 3 || rank == 6;
}

static int wait_in(spmt_comm *comm, enum place place, uint64_t *word)
{
	void *block;
	spmt_mem *mem;
	int code = 0;

	switch (place) {
	case IN_BARRIER:
		return spmt_barrier(comm);
	case IN_SYNC:
		return spmt_sync(comm);
	case IN_MALLOC:
		return spmt_malloc(comm, 64, &block);
	case IN_FREE:
		return spmt_free(comm, word);
	case IN_REGISTER:
		return spmt_register(comm, word, 8, &mem);
	case IN_FINALIZE:
		return spmt_finalize(comm);
	case IN_ALL_REDUCE:
		code = spmt_all_reduce(comm, word, word, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
		break;
	default:
		code = spmt_barrier_on_stream(comm, NULL);
	}
	return code ? code : spmt_quiet(comm);
}

/* On a device each rank sees only the one it waits for: 3, or 6, or both, and nobody who is there. */
static bool lists_none_but_the_missing(const char *list)
{
	int n = 0;
	char *end;

	for (; list && *list; list = end, n++) {
		long rank = strtol(list + 1, &end, 10);

		if (end == list + 1 || !is_absent((int)rank) || !strchr(",", *end))
			return false;
	}
	return n > 0;
}

static int names_the_missing(enum place place)
{
	const char *text = spmt_last_error();

	if (place == IN_ALL_REDUCE || place == IN_BARRIER_ON_STREAM) {
		if (!strstr(text, "missing") || !lists_none_but_the_missing(strrchr(text, ':')))
			return ranks_fail("\"%s\" does not name 3 or 6 alone", text);
		return 0;
	}
	return says_missing(calls[place], "2 of 8", "3, 6");
}

/* What calls give after the one that broke the world: the code of an abort, else that it broke earlier. */
static int later(int why)
{
	return why == SPMT_ERR_TIMEOUT ? SPMT_ERR_BROKEN : why;
}

/* Broken for good: every call fails at once, finalize waits for nobody. */
static int broken_for_good(spmt_comm *comm, uint64_t *word)
{
	int64_t begin = calm_ns();
	int status = spmt_status(comm), why = later(status);
	void *block = word;

	REQUIRE(status < 0);
	REQUIRE_CODE(spmt_barrier(comm), why);
	REQUIRE_SAYS("broken");
	REQUIRE_CODE(spmt_put(comm, word, word, 8, 0), why);
	REQUIRE_SAYS("spmt_put");
	REQUIRE_CODE(spmt_malloc(comm, 8, &block), why);
	REQUIRE_CODE(spmt_signal_wait(comm, word, SPMT_CMP_EQ, 12345, NULL), why);
	REQUIRE_CODE(spmt_all_reduce(comm, word, word, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL), why);
	REQUIRE_CODE(spmt_quiet(comm), why);
	REQUIRE_CODE(spmt_status(comm), status);
	REQUIRE_OK(spmt_finalize(comm));
	REQUIRE_CODE(spmt_barrier(comm), -EBADF);
	REQUIRE(calm_ns() - begin < 400000000);
	return 0;
}

static int present(spmt_comm *comm, struct scene *s, uint64_t *word)
{
	int64_t begin = now_ns(), ms, first = 0;
	int code;

	atomic_compare_exchange_strong(&s->first, &first, begin);
	code = wait_in(comm, s->place, word);
	ms = (now_ns() - atomic_load(&s->first)) / 1000000;
	if (code != SPMT_ERR_TIMEOUT && !(s->place >= IN_ALL_REDUCE && code < 0))
		return ranks_fail(
			"%s gave %d: %s", calls[s->place], code, code ? spmt_last_error() : "");
	REQUIRE(ms >= DEADLINE_MS - 1 && ms < DEADLINE_MS + 4000);
	TRY(names_the_missing(s->place));
	if (s->place != IN_FINALIZE)
		TRY(broken_for_good(comm, word));
	atomic_fetch_add(&s->told, 1);
	return 0;
}

static int absent(spmt_comm *comm, struct scene *s, int rank)
{
	int64_t end = now_ns() + 8000000000;

	s->left[rank] = s->absence == LATE ? NULL : comm;
	if (s->absence == RETURNED)
		return 0;
	if (s->absence == CANCELLED) {
		s->absent[rank] = pthread_self();
		atomic_store(&s->asleep[rank], true);
	}
	while (atomic_load(&s->told) < RANKS - 2 && now_ns() < end)
		sleep_ms(5);
	REQUIRE(spmt_status(comm) < 0);
	REQUIRE(spmt_barrier(comm) < 0);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

static int scene_main(int rank, void *arg)
{
	struct scene *s = arg;
	struct spmt_attr attr = ranks_attr(rank, RANKS, &s->uid);
	spmt_comm *comm;
	uint64_t *word;

	attr.timeout_ms = 10000;
	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_set_timeout(comm, DEADLINE_MS));
	ranks_watch(NULL);
	return is_absent(rank) ? absent(comm, s, rank) : present(comm, s, word);
}

/* A comm may be finalized by any thread, also by one that never was its rank. */
static void finalize_left(const struct scene *s)
{
	for (int i = 0; i < RANKS; i++)
		if (s->left[i])
			cr_expect_eq(spmt_finalize(s->left[i]), 0, "%s", spmt_last_error());
}

static void play(enum place place, enum absence absence)
{
	struct scene s = { .place = place, .absence = absence };

	cr_assert_eq(spmt_uid_create(&s.uid), 0);
	cr_expect_eq(ranks_threads(RANKS, scene_main, &s), 0, "place %d, absence %d: %s",
		(int)place, (int)absence, ranks_message());
	finalize_left(&s);
}

Test(failure, late_ranks_are_named)
{
	for (enum place p = IN_BARRIER; p < PLACES; p++)
		play(p, LATE);
}

Test(failure, returned_ranks_are_named)
{
	for (enum place p = IN_BARRIER; p < PLACES; p += 3)
		play(p, RETURNED);
}

/* ---- cancelled threads ---------------------------------------------------------------------------------------------------------- */

struct victim {
	struct scene *scene;
	pthread_t thread;
	int rank;
};

static void *victim_main(void *arg)
{
	struct victim *v = arg;

	scene_main(v->rank, v->scene);
	return NULL;
}

/* Ranks 3 and 6 live on threads of their own, which are cancelled in the test's sleep. */
static int cancelled_main(int rank, void *arg)
{
	struct scene *s = arg;
	struct victim v = { .scene = s, .rank = rank };
	void *result;

	if (!is_absent(rank))
		return scene_main(rank, s);
	REQUIRE_EQ(pthread_create(&v.thread, NULL, victim_main, &v), 0);
	while (!atomic_load(&s->asleep[rank]))
		sleep_ms(1);
	REQUIRE_EQ(pthread_cancel(v.thread), 0);
	REQUIRE_EQ(pthread_join(v.thread, &result), 0);
	REQUIRE(result == PTHREAD_CANCELED);
	return 0;
}

Test(failure, cancelled_ranks_are_named)
{
	struct scene s = { .place = IN_BARRIER, .absence = CANCELLED };

	cr_assert_eq(spmt_uid_create(&s.uid), 0);
	RANKS_OK(ranks_threads(RANKS, cancelled_main, &s));
	finalize_left(&s);
}

struct pending {
	spmt_uid uid;
	_Atomic int through; /* barriers that the cancelled thread has passed */
	_Atomic bool ready;
};

/* Waits of the library are no cancellation points: a cancelled thread completes its barrier, then goes. */
static void *cancelled_in_a_barrier(void *arg)
{
	struct pending *p = arg;
	struct spmt_attr attr = ranks_attr(1, 2, &p->uid);
	spmt_comm *comm;

	if (spmt_init(&attr, &comm) || spmt_barrier(comm))
		return NULL;
	atomic_store(&p->ready, true);
	if (!spmt_barrier(comm))
		atomic_fetch_add(&p->through, 1);
	if (!spmt_finalize(comm))
		atomic_fetch_add(&p->through, 1);
	pthread_testcancel();
	return NULL;
}

Test(failure, waits_are_no_cancellation_points)
{
	struct pending p = { .through = 0 };
	struct spmt_attr attr;
	spmt_comm *comm;
	pthread_t thread;
	void *result;

	cr_assert_eq(spmt_uid_create(&p.uid), 0);
	attr = ranks_attr(0, 2, &p.uid);
	cr_assert_eq(pthread_create(&thread, NULL, cancelled_in_a_barrier, &p), 0);
	cr_assert_eq(spmt_init(&attr, &comm), 0, "%s", spmt_last_error());
	cr_assert_eq(spmt_barrier(comm), 0);
	while (!atomic_load(&p.ready))
		sleep_ms(1);
	sleep_ms(30);
	cr_assert_eq(pthread_cancel(thread), 0);
	sleep_ms(50);
	cr_expect_eq(spmt_barrier(comm), 0, "%s", spmt_last_error());
	cr_expect_eq(spmt_finalize(comm), 0, "%s", spmt_last_error());
	cr_assert_eq(pthread_join(thread, &result), 0);
	cr_expect_eq(result, PTHREAD_CANCELED);
	cr_expect_eq(atomic_load(&p.through), 2);
}

/* ---- init --------------------------------------------------------------------------------------------------------------------------- */

static int lonely_init(int rank, void *arg)
{
	struct spmt_attr attr = ranks_attr(rank, 3, arg);
	spmt_comm *comm = NULL;

	attr.timeout_ms = DEADLINE_MS;
	REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_TIMEOUT);
	REQUIRE(!comm);
	return says_missing("spmt_init", "1 of 3", "2");
}

Test(failure, init_names_who_never_came)
{
	struct usage before, slack = { .maps = 64, .rss_kib = 4096 };
	const char *grown;
	spmt_uid uid;

	for (int i = 0; i < 2; i++) {
		cr_assert_eq(spmt_uid_create(&uid), 0);
		if (i == 1)
			before = usage_now();
		RANKS_OK(ranks_threads(2, lonely_init, &uid));
	}
	grown = usage_grown(&before, &slack);
	cr_expect_null(grown, "%s", grown);
}

/* ---- abort ---------------------------------------------------------------------------------------------------------------------------- */

enum wait {
	W_BARRIER,
	W_SIGNAL,
	W_UNTIL,
	W_ANY,
	W_SOME,
	W_ALL,
	W_MALLOC,
	W_FINALIZE,
	W_STREAM_QUIET,
	W_STREAM_SYNC,
	W_KERNEL,
	W_COLLECTIVE,
	W_REGISTER,
	WAITS
};

struct abort_scene {
	spmt_uid uid;
	int code, want;
	_Atomic int going, woken; /* so many are about to wait, and wait no more */
};

struct kernel_args {
	struct spmt_view view;
	uint64_t *word;
};

static void waiting_kernel(void *args)
{
	struct kernel_args *a = args;

	spmtd_signal_wait_until(&a->view, a->word, SPMT_CMP_EQ, 99);
}

static int wait_as(spmt_comm *comm, enum wait wait, uint64_t *words)
{
	struct kernel_args args = { .view.size = sizeof(args.view), .word = words };
	spmt_stream stream = NULL;
	uint64_t never = 99;
	size_t index, list[2];
	int code;

	switch (wait) {
	case W_SIGNAL:
		return spmt_signal_wait(comm, words, SPMT_CMP_EQ, 99, NULL);
	case W_UNTIL:
		return spmt_wait_until(comm, SPMT_TYPE_U64, words, SPMT_CMP_EQ, &never);
	case W_ANY:
		return spmt_wait_until_any(
			comm, SPMT_TYPE_U64, words, 2, NULL, SPMT_CMP_EQ, &never, &index);
	case W_SOME:
		return spmt_wait_until_some(
			comm, SPMT_TYPE_U64, words, 2, NULL, SPMT_CMP_EQ, &never, list, &index);
	case W_ALL:
		return spmt_wait_until_all(
			comm, SPMT_TYPE_U64, words, 2, NULL, SPMT_CMP_EQ, &never);
	case W_STREAM_QUIET:
		code = spmt_signal_wait_on_stream(comm, words, SPMT_CMP_EQ, 99, NULL);
		return code ? code : spmt_quiet(comm);
	case W_STREAM_SYNC:
		REQUIRE_OK(stream_make(comm, &stream));
		code = spmt_signal_wait_on_stream(comm, words, SPMT_CMP_EQ, 99, stream);
		stream_wait(comm, stream);
		REQUIRE_OK(stream_end(comm, stream));
		return code ? code : spmt_quiet(comm);
	case W_KERNEL:
		if (!on_host()) /* tests/gpu: wait */
			return spmt_barrier(comm);
		code = spmt_view_get(comm, &args.view);
		if (!code)
			code = spmt_host_launch(comm, NULL, waiting_kernel, &args, sizeof(args));
		return code ? code : spmt_quiet(comm);
	case W_COLLECTIVE:
		return wait_in(comm, IN_ALL_REDUCE, words);
	case W_MALLOC:
		return wait_in(comm, IN_MALLOC, words);
	case W_FINALIZE:
		return wait_in(comm, IN_FINALIZE, words);
	case W_REGISTER:
		return wait_in(comm, IN_REGISTER, words);
	default:
		return spmt_barrier(comm);
	}
}

/* Rank r > 0 waits as r - 1, with no deadline; rank 0 aborts when all had time to fall asleep. */
static int abort_main(int rank, void *arg)
{
	struct abort_scene *s = arg;
	struct spmt_attr attr = ranks_attr(rank, WAITS + 1, &s->uid);
	int64_t begin;
	spmt_comm *comm;
	uint64_t *words;

	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_set_timeout(comm, -1));
	if (rank == 0) {
		while (atomic_load(&s->going) < WAITS)
			sleep_ms(1);
		sleep_ms(100);
		REQUIRE_EQ(spmt_status(comm), 0);
		begin = calm_ns();
		REQUIRE_OK(spmt_abort(comm, s->code));
		REQUIRE_OK(spmt_abort(comm, -5));
		while (atomic_load(&s->woken) < WAITS && calm_ns() - begin < 2000000000)
			sleep_ms(1);
		REQUIRE_EQ(atomic_load(&s->woken), WAITS);
		REQUIRE_EQ(spmt_status(comm), s->want);
		REQUIRE_CODE(spmt_barrier(comm), s->want);
		REQUIRE_OK(spmt_finalize(comm));
		return 0;
	}
	atomic_fetch_add(&s->going, 1);
	if (wait_as(comm, (enum wait)(rank - 1), words) != s->want)
		return ranks_fail(
			"wait %d did not end with %d: %s", rank - 1, s->want, spmt_last_error());
	REQUIRE(rank - 1 == W_FINALIZE || spmt_status(comm) == s->want);
	ranks_watch(NULL);
	atomic_fetch_add(&s->woken, 1);
	if (rank - 1 != W_FINALIZE)
		REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

static void abort_with(int code, int want)
{
	struct abort_scene s = { .code = code, .want = want };

	cr_assert_eq(spmt_uid_create(&s.uid), 0);
	cr_expect_eq(ranks_threads(WAITS + 1, abort_main, &s), 0, "abort(%d): %s", code,
		ranks_message());
}

Test(failure, abort_wakes_everybody)
{
	setenv("SPMT_HOST_DEVICES", "16", 1);
	abort_with(-77, -77);
	abort_with(0, SPMT_ERR_ABORTED);
	abort_with(3, SPMT_ERR_ABORTED);
	abort_with(SPMT_ERR_PEER_DEAD, SPMT_ERR_PEER_DEAD);
	abort_with(SPMT_ERR_TIMEOUT, SPMT_ERR_TIMEOUT);
}

/* Beside a call of another thread on the same comm. */
static void *abort_later(void *arg)
{
	sleep_ms(50);
	spmt_abort(arg, -71);
	return NULL;
}

Test(failure, abort_from_a_foreign_thread)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	spmt_comm *comm;
	uint64_t *word;
	pthread_t thread;
	int64_t begin;

	cr_assert_eq(spmt_init(&attr, &comm), 0, "%s", spmt_last_error());
	cr_assert_eq(spmt_calloc(comm, 1, 8, (void **)&word), 0);
	begin = calm_ns();
	cr_assert_eq(pthread_create(&thread, NULL, abort_later, comm), 0);
	cr_expect_eq(spmt_signal_wait(comm, word, SPMT_CMP_EQ, 1, NULL), -71);
	cr_expect_lt(calm_ns() - begin, 2000000000);
	pthread_join(thread, NULL);
	cr_expect_eq(spmt_finalize(comm), 0, "%s", spmt_last_error());
}

/* A world that broke leaves nothing: neither in the process nor to the next world. */
static int break_it(spmt_comm *comm, void *arg)
{
	char *block;

	REQUIRE_OK(spmt_malloc(comm, 2 << 20, (void **)&block));
	REQUIRE_OK(spmt_put_nbi(comm, block, block + (1 << 20), 1 << 20, 0));
	if (spmt_rank(comm) == 1)
		REQUIRE_OK(spmt_abort(comm, -70));
	return arg ? 0 : -1;
}

Test(failure, broken_worlds_leave_nothing)
{
	struct usage before, slack = { .maps = 64, .rss_kib = 4096 };
	const char *grown;

	for (int i = 0; i < 60; i++) {
		int code = ranks_run(4, NULL, break_it, &slack);

		cr_assert(code == 0 || strstr(ranks_message(), "-70") ||
				strstr(ranks_message(), "broken"),
			"%s", ranks_message());
		if (i == 20)
			before = usage_now();
	}
	grown = usage_grown(&before, &slack);
	cr_expect_null(grown, "%s", grown);
}

/* What was waited for is said so that it is not "0.0 s". */
static int soon_over(spmt_comm *comm, void *arg)
{
	(void)arg;
	REQUIRE_OK(spmt_set_timeout(comm, 40));
	if (spmt_rank(comm))
		return sleep_ms(1000), 0;
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("spmt_barrier: 1 of 2 ranks missing after 0.");
	REQUIRE(!strstr(spmt_last_error(), "after 0.0 s") &&
		!strstr(spmt_last_error(), "after 0.000 s"));
	return 0;
}

Test(failure, a_deadline_of_milliseconds)
{
	RANKS_OK(ranks_run(2, NULL, soon_over, NULL));
}
