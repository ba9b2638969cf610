/* SPDX-License-Identifier: MIT */
/* Work in streams: in order, beside the host, with copies, signals, barriers and kernels of other ranks. */
#include <criterion/criterion.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "spmt_device.h"
#include "tests/lib/ranks.h"

/* ---- kernels of the tests --------------------------------------------------------------------------------------------------------- */

struct note {
	_Atomic int *next;
	int *list;
	int number;
	struct latch *latch; /* to pass first, or NULL */
};

static void write_down(void *args)
{
	struct note *n = args;

	if (n->latch)
		latch_pass(n->latch);
	n->list[atomic_fetch_add(n->next, 1)] = n->number;
}

struct fill {
	uint64_t *word; /* of the process */
	uint64_t value;
	int ms;
	struct latch *latch; /* to pass first, or NULL */
};

static void fill_word(void *args)
{
	struct fill *f = args;

	if (f->latch)
		latch_pass(f->latch);
	sleep_ms(f->ms);
	if (f->word)
		__atomic_store_n(f->word, f->value, __ATOMIC_RELAXED);
}

/* A device's default streams may be one for all ranks on it: what waits there for another rank waits for itself. */
static int streams_of(spmt_comm *comm, spmt_stream streams[4])
{
	bool alone = ranks_here(spmt_nranks(comm)) == spmt_nranks(comm);

	streams[0] = NULL;
	streams[1] = alone ? SPMT_STREAM_LEGACY : NULL;
	streams[2] = alone ? SPMT_STREAM_PER_THREAD : NULL;
	return stream_make(comm, &streams[3]);
}

/* ---- order in one stream, none between two --------------------------------------------------------------------------------------------- */

enum { NOTES = 60 };

/* quiet covers what the comm has queued: a signal behind the kernels takes them along on streams that are nobody's own. */
static int in_order(spmt_comm *comm, void *arg)
{
	uint64_t *word;
	spmt_stream streams[4];

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(streams_of(comm, streams));
	for (int s = 0; s < 4; s++) {
		_Atomic int next = 0;
		int list[NOTES];
		struct note note = { .next = &next, .list = list };
		struct latch latch = { 0 };

		for (int i = 0; i < NOTES; i++) {
			note.number = i;
			note.latch = i == 0 ? &latch : NULL;
			REQUIRE_OK(stream_call(comm, streams[s], write_down, &note, sizeof(note)));
			note.number = -1;
		}
		REQUIRE(latch_open(&latch));
		REQUIRE_OK(spmt_signal_on_stream(
			comm, word, 1, SPMT_SIGNAL_ADD, spmt_rank(comm), streams[s]));
		if (s < 3)
			REQUIRE_OK(spmt_quiet(comm));
		else
			REQUIRE_OK(stream_wait(comm, streams[s]));
		REQUIRE_EQ(atomic_load(&next), NOTES);
		for (int i = 0; i < NOTES; i++)
			REQUIRE_EQ(list[i], i);
	}
	REQUIRE_OK(stream_end(comm, streams[3]));
	return 0;
}

Test(streams, kernels_run_in_order_beside_the_host)
{
	RANKS_OK(ranks_run(2, NULL, in_order, NULL));
}

static int independent(spmt_comm *comm, void *arg)
{
	spmt_stream held, other;
	uint64_t *words;
	_Atomic int next = 0;
	int list[1];
	struct note note = { .next = &next, .list = list };

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*words), (void **)&words));
	REQUIRE_OK(stream_make(comm, &held));
	REQUIRE_OK(stream_make(comm, &other));
	REQUIRE_OK(spmt_signal_wait_on_stream(comm, words, SPMT_CMP_GE, 1, held));
	REQUIRE_OK(stream_call(comm, other, write_down, &note, sizeof(note)));
	REQUIRE_OK(stream_wait(comm, other));
	REQUIRE_EQ(atomic_load(&next), 1);
	REQUIRE_OK(spmt_signal(comm, words, 1, SPMT_SIGNAL_SET, spmt_rank(comm)));
	REQUIRE_OK(stream_wait(comm, held));
	REQUIRE_OK(stream_end(comm, held));
	REQUIRE_OK(stream_end(comm, other));
	return spmt_quiet(comm);
}

Test(streams, one_that_waits_holds_no_other)
{
	RANKS_OK(ranks_run(2, NULL, independent, NULL));
}

/* ---- kernel, copy, signal; wait, kernel ------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 30 };

/* Each round: the stream makes the value, a put and a signal carry it, the peer's stream waits and looks. The host
   only queues. */
static int pipeline(spmt_comm *comm, void *arg)
{
	int pe = 1 - spmt_rank(comm);
	bool one_call = *(bool *)arg;
	uint64_t *words, *seen;
	spmt_stream stream;

	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*words), (void **)&words));
	/* A copy to other memory is waited for by the host, and the driver keeps calls of ranks that share the GPU waiting meanwhile. */
	REQUIRE_OK(pinned_make(comm, ROUNDS * sizeof(*seen), (void **)&seen));
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(spmt_barrier(comm));
	for (uint64_t i = 0; i < ROUNDS; i++) {
		struct fill late = { .ms = i < 3 ? 10 : 0 };

		REQUIRE_OK(stream_call(comm, stream, fill_word, &late, sizeof(late)));
		REQUIRE_OK(stream_store(comm, stream, words + 1, i * 10 + (uint64_t)pe));
		if (one_call) {
			REQUIRE_OK(spmt_put_signal_on_stream(comm, words, words + 1, 8, words + 2,
				1, SPMT_SIGNAL_ADD, pe, stream));
		} else {
			REQUIRE_OK(spmt_put_on_stream(comm, words, words + 1, 8, pe, stream));
			REQUIRE_OK(spmt_signal_on_stream(
				comm, words + 2, 1, SPMT_SIGNAL_ADD, pe, stream));
		}
		REQUIRE_OK(spmt_signal_wait_on_stream(comm, words + 2, SPMT_CMP_GE, i + 1, stream));
		REQUIRE_OK(stream_load(comm, stream, words, &seen[i]));
		REQUIRE_OK(spmt_barrier_on_stream(comm, stream));
	}
	REQUIRE_OK(stream_wait(comm, stream));
	for (uint64_t i = 0; i < ROUNDS; i++)
		REQUIRE_EQ(seen[i], i * 10 + (uint64_t)spmt_rank(comm));
	REQUIRE_OK(stream_end(comm, stream));
	REQUIRE_OK(spmt_barrier(comm));
	return pinned_end(comm, seen);
}

Test(streams, data_then_signal_then_kernel)
{
	RANKS_OK(ranks_run(2, NULL, pipeline, &(bool){ false }));
	RANKS_OK(ranks_run(2, NULL, pipeline, &(bool){ true }));
}

/* A get in a stream sees what the stream did before it, and a kernel behind it sees what it brought. */
static int gets(spmt_comm *comm, void *arg)
{
	uint64_t *words, seen = 0;
	spmt_stream stream;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 4 * sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_copy_in(comm, words, &(uint64_t){ (uint64_t)spmt_rank(comm) + 50 }, 8));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(stream_make(comm, &stream));
	for (int pe = 0; pe < spmt_nranks(comm); pe++) {
		REQUIRE_OK(spmt_get_on_stream(comm, words + 1, words, 8, pe, stream));
		REQUIRE_OK(stream_load(comm, stream, words + 1, &seen));
		REQUIRE_OK(stream_wait(comm, stream));
		REQUIRE_EQ(seen, (uint64_t)pe + 50);
	}
	REQUIRE_OK(stream_end(comm, stream));
	return spmt_barrier(comm);
}

Test(streams, gets_in_order)
{
	RANKS_OK(ranks_run(3, NULL, gets, NULL));
}

/* What a blocking call has completed is seen by every kernel launched after it, in any stream. */
static int blocking_then_kernel(spmt_comm *comm, void *arg)
{
	int pe = 1 - spmt_rank(comm);
	uint64_t *words, seen;
	spmt_stream stream;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*words), (void **)&words));
	REQUIRE_OK(stream_make(comm, &stream));
	for (uint64_t i = 1; i <= test_count(300, 300); i++) {
		REQUIRE_OK(spmt_put(comm, words, &i, sizeof(i), pe));
		REQUIRE_OK(spmt_barrier(comm));
		REQUIRE_OK(stream_load(comm, i % 2 ? stream : NULL, words, &seen));
		REQUIRE_OK(i % 2 || !on_host() ? stream_wait(comm, i % 2 ? stream : NULL)
					       : spmt_quiet(comm));
		REQUIRE_EQ(seen, i);
		REQUIRE_OK(spmt_barrier(comm));
	}
	return stream_end(comm, stream);
}

Test(streams, kernels_see_what_blocking_calls_completed)
{
	RANKS_OK(ranks_run(2, NULL, blocking_then_kernel, NULL));
}

/* ---- quiet and barrier in a stream ----------------------------------------------------------------------------------------------------------- */

/* nbi puts of the host, quiet_on_stream, then a signal in that stream: who sees the signal sees the data. */
static int quiet_then_signal(spmt_comm *comm, void *arg)
{
	int pe = 1 - spmt_rank(comm);
	size_t size = 600000;
	char *dst, *src;
	uint64_t *sig;
	spmt_stream stream, side;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, size, (void **)&dst));
	REQUIRE_OK(spmt_malloc(comm, size, (void **)&src));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*sig), (void **)&sig));
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(stream_make(comm, &side));
	for (uint64_t i = 1; i <= 10; i++) {
		TRY(sym_fill(comm, src, size, i * 2 + (uint64_t)pe));
		REQUIRE_OK(spmt_barrier(comm));
		REQUIRE_OK(spmt_put_nbi(comm, dst, src, size / 2, pe));
		REQUIRE_OK(spmt_put_on_stream(
			comm, dst + size / 2, src + size / 2, size - size / 2, pe, side));
		REQUIRE_OK(spmt_quiet_on_stream(comm, stream));
		REQUIRE_OK(spmt_signal_on_stream(comm, sig, 1, SPMT_SIGNAL_ADD, pe, stream));
		REQUIRE_OK(spmt_signal_wait(comm, sig, SPMT_CMP_GE, i, NULL));
		TRY(sym_check(comm, dst, size, i * 2 + (uint64_t)spmt_rank(comm)));
		REQUIRE_OK(spmt_quiet(comm));
	}
	REQUIRE_OK(stream_end(comm, stream));
	REQUIRE_OK(stream_end(comm, side));
	return spmt_barrier(comm);
}

Test(streams, quiet_on_a_stream_covers_host_and_other_streams)
{
	RANKS_OK(ranks_run(2, NULL, quiet_then_signal, NULL));
}

/* Every rank's kernel has run before any kernel behind the barrier does. */
static _Atomic int before, wrong;

struct meeting {
	int want, ms;
};

static void come(void *args)
{
	sleep_ms(((struct meeting *)args)->ms);
	atomic_fetch_add(&before, 1);
}

static void meet(void *args)
{
	if (atomic_load(&before) < ((struct meeting *)args)->want)
		atomic_fetch_add(&wrong, 1);
}

static int barriers(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm), rank = spmt_rank(comm);
	spmt_stream streams[4];

	(void)arg;
	REQUIRE_OK(streams_of(comm, streams));
	for (int round = 1; round <= 24; round++) {
		spmt_stream stream = streams[round % 4];
		struct meeting m = { .want = round * n, .ms = (round + rank) % 3 };

		REQUIRE_OK(stream_call(comm, stream, come, &m, sizeof(m)));
		REQUIRE_OK(spmt_barrier_on_stream(comm, stream));
		REQUIRE_OK(stream_call(comm, stream, meet, &m, sizeof(m)));
		if (round % 4 < 3)
			REQUIRE_OK(spmt_quiet(comm));
		else
			REQUIRE_OK(stream_wait(comm, stream));
	}
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_EQ(atomic_load(&wrong), 0);
	REQUIRE_EQ(atomic_load(&before), 24 * n);
	REQUIRE_OK(stream_end(comm, streams[3]));
	return 0;
}

Test(streams, barriers_on_streams)
{
	RANKS_OK(ranks_run(5, NULL, barriers, NULL));
}

/* Ranks 0 and 1 wait for rank 2, one of them for longer: both hear that it alone was missing. */
static _Atomic int named;

static int gives_up(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), code;

	(void)arg;
	REQUIRE_OK(spmt_set_timeout(comm, rank ? 10000 : 1000));
	REQUIRE_OK(spmt_barrier(comm));
	if (rank < 2) {
		REQUIRE_OK(spmt_barrier_on_stream(comm, NULL));
		code = spmt_quiet(comm);
		atomic_fetch_add(&named, 1);
		REQUIRE_EQ(code, SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("rank 0: a barrier in a stream: 1 of 3 ranks missing after 1.0 s: 2");
	}
	while (atomic_load(&named) < 2)
		sleep_ms(1);
	return 0;
}

Test(streams, a_barrier_names_nobody_who_came)
{
	RANKS_OK(ranks_run(3, NULL, gives_up, NULL));
}

/* ---- many streams ------------------------------------------------------------------------------------------------------------------------------- */

enum { STREAMS = 40 };

static int many(spmt_comm *comm, void *arg)
{
	int pe = (spmt_rank(comm) + 1) % spmt_nranks(comm),
	    from = (spmt_rank(comm) + 2) % spmt_nranks(comm);
	size_t part = 20000;
	spmt_stream streams[STREAMS];
	char *dst, *src;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, part * STREAMS, (void **)&dst));
	REQUIRE_OK(spmt_malloc(comm, part * STREAMS, (void **)&src));
	TRY(sym_fill(comm, src, part * STREAMS, (uint64_t)spmt_rank(comm)));
	for (int round = 0; round < 3; round++) {
		TRY(sym_set(comm, dst, round, part * STREAMS));
		REQUIRE_OK(spmt_barrier(comm));
		for (int i = 0; i < STREAMS; i++) {
			REQUIRE_OK(stream_make(comm, &streams[i]));
			REQUIRE_OK(spmt_put_on_stream(comm, dst + part * (size_t)i,
				src + part * (size_t)i, part, pe, streams[i]));
			if (i % 2)
				REQUIRE_OK(stream_end(comm, streams[i]));
		}
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_sync(comm));
		TRY(sym_check(comm, dst, part * STREAMS, (uint64_t)from));
		for (int i = 0; i < STREAMS; i += 2)
			REQUIRE_OK(stream_end(comm, streams[i]));
	}
	return spmt_barrier(comm);
}

Test(streams, one_quiet_for_many_even_destroyed_ones)
{
	/* Stacks, two mappings each, are glibc's to keep: as many as there were threads at once, which
	   the later runs of 600 streams may have more of. */
	struct usage start, slack = { .maps = 2 * 3 * STREAMS, .rss_kib = 4096 };
	const char *grown;

	/* An arena a thread is glibc's, and comes when threads meet in malloc. */
	mallopt(M_ARENA_MAX, 1);
	for (int i = 0; i < 3; i++)
		RANKS_OK(ranks_run(3, NULL, many, NULL));
	start = usage_now();
	for (int i = 0; i < 5; i++)
		RANKS_OK(ranks_run(3, NULL, many, NULL));
	grown = usage_grown(&start, &slack);
	cr_expect_null(grown, "%s", grown);
}

/* Queued work still runs when its stream is destroyed. */
static int destroyed(spmt_comm *comm, void *arg)
{
	uint64_t *word = arg;
	struct latch latch = { 0 };
	struct fill fill = { .word = word, .value = 7, .latch = &latch };
	spmt_stream stream;
	int64_t begin;

	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(stream_call(comm, stream, fill_word, &fill, sizeof(fill)));
	REQUIRE_OK(stream_end(comm, stream));
	REQUIRE(latch_open(&latch));
	begin = now_ns();
	while (__atomic_load_n(word, __ATOMIC_RELAXED) != 7 && now_ns() - begin < 10000000000)
		sleep_ms(1);
	REQUIRE_EQ(__atomic_load_n(word, __ATOMIC_RELAXED), 7);
	return 0;
}

Test(streams, destroy_waits_for_nothing)
{
	uint64_t word = 0;

	RANKS_OK(ranks_run(1, NULL, destroyed, &word));
}

/* ---- waiting streams ------------------------------------------------------------------------------------------------------------------------------- */

/* A stream that waits for a word, and streams with nothing to do, take no CPU. */
static int idle(spmt_comm *comm, void *arg)
{
	double *cores = arg;
	uint64_t *word;
	spmt_stream streams[4];

	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	for (int i = 0; i < 4; i++)
		REQUIRE_OK(stream_make(comm, &streams[i]));
	REQUIRE_OK(spmt_signal_wait_on_stream(comm, word, SPMT_CMP_GE, 1, streams[0]));
	REQUIRE_OK(spmt_sync(comm));
	sleep_ms(50);
	if (spmt_rank(comm) == 0) {
		int64_t wall = now_ns(), cpu = cpu_ns();

		sleep_ms(500);
		*cores = (double)(cpu_ns() - cpu) / (double)(now_ns() - wall);
	}
	REQUIRE_OK(spmt_sync(comm));
	REQUIRE_OK(spmt_signal(
		comm, word, 1, SPMT_SIGNAL_SET, (spmt_rank(comm) + 1) % spmt_nranks(comm)));
	REQUIRE_OK(stream_wait(comm, streams[0]));
	for (int i = 0; i < 4; i++)
		REQUIRE_OK(stream_end(comm, streams[i]));
	return 0;
}

Test(streams, idle_ones_take_no_cpu)
{
	double cores = 9;

	NEEDS_HOST("on a GPU what waits in a stream is a kernel");
	RANKS_OK(ranks_run(8, NULL, idle, &cores));
	cr_expect(cores < (SANITIZED ? 1.0 : 0.3), "%.2f cores", cores);
}

static int stuck(spmt_comm *comm, void *arg)
{
	uint64_t *word;
	spmt_stream stream;
	int64_t begin;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_set_timeout(comm, 5000));
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(spmt_signal_wait_on_stream(comm, word, SPMT_CMP_GE, 1, stream));
	begin = now_ns();
	REQUIRE_CODE(stream_wait(comm, stream), SPMT_ERR_TIMEOUT);
	REQUIRE(now_ns() - begin >= 240000000 && now_ns() - begin < 4000000000);
	REQUIRE_OK(spmt_signal(comm, word, 1, SPMT_SIGNAL_SET, spmt_rank(comm)));
	REQUIRE_OK(stream_wait(comm, stream));
	REQUIRE_OK(stream_end(comm, stream));
	return spmt_quiet(comm);
}

Test(streams, synchronize_has_a_deadline)
{
	NEEDS_HOST("spmt_host_stream_synchronize");
	setenv("SPMT_TIMEOUT_MS", "250", 1);
	RANKS_OK(ranks_run(1, NULL, stuck, NULL));
}
