/* SPDX-License-Identifier: MIT */
/* Graphs of the host backend: what is captured from a stream runs once for each launch, in order, and is told of as in streams. */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "tests/lib/ranks.h"

enum { REPLAYS = 100, WORDS = 40000 };

/* ---- one of everything, a hundred times --------------------------------------------------------------------------------- */

struct scene {
	int me, n, next;
	uint64_t *came, *sent, *sig, *mine, *sum, *all, *got; /* symmetric */
	_Atomic int steps, wrong;
};

static int scene_open(spmt_comm *comm, struct scene *s)
{
	uint64_t **words[] = { &s->came, &s->sent, &s->sig, &s->mine, &s->sum, &s->all, &s->got };
	size_t sizes[] = { WORDS, WORDS, 1, 1, 1, 8, 1 };

	s->me = spmt_rank(comm);
	s->n = spmt_nranks(comm);
	s->next = (s->me + 1) % s->n;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		REQUIRE_OK(spmt_calloc(comm, sizes[i], sizeof(uint64_t), (void **)words[i]));
	return spmt_barrier(comm);
}

struct step {
	struct scene *s;
	uint64_t used; /* a kernel has arguments of its own, in each launch */
};

/* Looks at what the rank before has sent, and makes what is sent next. */
static void go_on(void *args)
{
	struct step *step = args;
	struct scene *s = step->s;
	uint64_t round = (uint64_t)atomic_load(&s->steps);
	int before = (s->me + s->n - 1) % s->n, wrong = step->used++ != 0;

	for (size_t i = 0; i < WORDS; i++) {
		wrong += s->came[i] != (round ? round * 1000 + (uint64_t)before + i : 0);
		s->sent[i] = (round + 1) * 1000 + (uint64_t)s->me + i;
	}
	__atomic_store_n(s->sig, 0, __ATOMIC_RELEASE);
	*s->mine = round + 1;
	atomic_fetch_add(&s->wrong, wrong);
	atomic_fetch_add(&s->steps, 1);
}

static int queue_round(spmt_comm *comm, struct scene *s, spmt_stream stream)
{
	struct step step = { .s = s };

	REQUIRE_OK(spmt_put_on_stream(comm, s->came, s->sent, WORDS * 8, s->next, stream));
	REQUIRE_OK(spmt_signal_on_stream(comm, s->sig, 1, SPMT_SIGNAL_SET, s->next, stream));
	REQUIRE_OK(spmt_signal_wait_on_stream(comm, s->sig, SPMT_CMP_EQ, 1, stream));
	REQUIRE_OK(spmt_host_launch(comm, stream, go_on, &step, sizeof(step)));
	REQUIRE_OK(spmt_all_reduce(comm, s->sum, s->mine, 1, SPMT_TYPE_U64, SPMT_OP_SUM, stream));
	REQUIRE_OK(spmt_all_gather(comm, s->all, s->mine, 1, SPMT_TYPE_U64, stream));
	REQUIRE_OK(spmt_barrier_on_stream(comm, stream));
	REQUIRE_OK(spmt_get_on_stream(comm, s->got, s->mine, 8, s->next, stream));
	REQUIRE_OK(spmt_quiet_on_stream(comm, stream));
	return spmt_barrier_on_stream(comm, stream);
}

static int check_rounds(struct scene *s, int rounds)
{
	uint64_t want = (uint64_t)rounds;

	REQUIRE_EQ(atomic_load(&s->steps), rounds);
	REQUIRE_EQ(atomic_load(&s->wrong), 0);
	REQUIRE_EQ(*s->sum, want * (uint64_t)s->n);
	REQUIRE_EQ(*s->got, want);
	for (int r = 0; r < s->n; r++)
		REQUIRE_EQ(s->all[r], want);
	return 0;
}

/* Behind the replays the stream and the comm serve as before. */
static int replays(spmt_comm *comm, void *arg)
{
	struct scene s = { .steps = 0 };
	spmt_host_graph *graph;
	spmt_stream stream;
	int64_t can;

	(void)arg;
	REQUIRE_OK(spmt_query(comm, SPMT_CAP_GRAPH, &can));
	REQUIRE_EQ(can, 1);
	TRY(scene_open(comm, &s));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_host_graph_begin(stream));
	TRY(queue_round(comm, &s, stream));
	REQUIRE_OK(spmt_host_graph_end(stream, &graph));
	REQUIRE_OK(spmt_host_stream_synchronize(stream));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(check_rounds(&s, 0));
	for (int i = 0; i < REPLAYS; i++)
		REQUIRE_OK(spmt_host_graph_launch(graph, stream));
	REQUIRE_OK(spmt_host_stream_synchronize(stream));
	TRY(check_rounds(&s, REPLAYS));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(queue_round(comm, &s, stream));
	REQUIRE_OK(spmt_host_graph_launch(graph, stream));
	REQUIRE_OK(spmt_host_graph_destroy(graph)); /* while it runs */
	REQUIRE_OK(spmt_host_stream_synchronize(stream));
	TRY(check_rounds(&s, REPLAYS + 2));
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_host_stream_destroy(stream);
}

Test(graphs, what_is_captured_replays)
{
	NEEDS_HOST("its graphs");
	RANKS_OK(ranks_run(1, NULL, replays, NULL));
	RANKS_OK(ranks_run(2, NULL, replays, NULL));
	RANKS_OK(ranks_run(4, NULL, replays, NULL));
}

/* ---- launches in two streams ------------------------------------------------------------------------------------------------ */

struct turns {
	_Atomic int running, most, ended;
	struct latch *latch;
};

static void take_turn(void *args)
{
	struct turns *t = *(struct turns **)args;
	int now = atomic_fetch_add(&t->running, 1) + 1;

	latch_pass(t->latch);
	if (now > atomic_load(&t->most))
		atomic_store(&t->most, now);
	atomic_fetch_sub(&t->running, 1);
	atomic_fetch_add(&t->ended, 1);
}

static int one_at_a_time(spmt_comm *comm, void *arg)
{
	struct latch latch = { 0 };
	struct turns turns = { .latch = &latch }, *p = &turns;
	spmt_host_graph *graph;
	spmt_stream streams[2];

	(void)arg;
	for (int i = 0; i < 2; i++)
		REQUIRE_OK(spmt_host_stream_create(comm, &streams[i]));
	REQUIRE_OK(spmt_host_graph_begin(streams[0]));
	REQUIRE_OK(spmt_host_launch(comm, streams[0], take_turn, &p, sizeof(p)));
	REQUIRE_OK(spmt_host_graph_end(streams[0], &graph));
	for (int i = 0; i < 20; i++)
		REQUIRE_OK(spmt_host_graph_launch(graph, streams[i % 2]));
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	REQUIRE_EQ(atomic_load(&turns.ended), 0);
	REQUIRE(latch_open(&latch));
	for (int i = 0; i < 2; i++) {
		REQUIRE_OK(spmt_host_stream_synchronize(streams[i]));
		REQUIRE_OK(spmt_host_stream_destroy(streams[i]));
	}
	REQUIRE_EQ(atomic_load(&turns.ended), 20);
	REQUIRE_EQ(atomic_load(&turns.most), 1);
	return 0;
}

Test(graphs, launches_of_one_graph_run_one_after_the_other)
{
	NEEDS_HOST("its graphs");
	RANKS_OK(ranks_run(2, NULL, one_at_a_time, NULL));
}

/* ---- what a kernel does to its thread ---------------------------------------------------------------------------------------- */

struct seen {
	int dev, other;
	_Atomic int wrong;
};

static void leave_the_device(void *args)
{
	struct seen *seen = *(struct seen **)args;

	atomic_fetch_add(&seen->wrong,
		spmt_host_get_device() != seen->dev || spmt_host_set_device(seen->other));
}

static int devices_of_kernels(spmt_comm *comm, void *arg)
{
	struct seen seen = { .dev = spmt_device(comm), .other = 1 - spmt_device(comm) };
	struct seen *p = &seen;
	spmt_host_graph *graph;
	spmt_stream stream;

	(void)arg;
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_host_graph_begin(stream));
	for (int i = 0; i < 3; i++)
		REQUIRE_OK(spmt_host_launch(comm, stream, leave_the_device, &p, sizeof(p)));
	REQUIRE_OK(spmt_host_graph_end(stream, &graph));
	for (int i = 0; i < 3; i++)
		REQUIRE_OK(spmt_host_graph_launch(graph, stream));
	REQUIRE_OK(spmt_host_stream_synchronize(stream));
	REQUIRE_EQ(atomic_load(&seen.wrong), 0);
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	return spmt_host_stream_destroy(stream);
}

Test(graphs, each_kernel_begins_on_its_own_device)
{
	NEEDS_HOST("its graphs");
	RANKS_OK(ranks_run(2, NULL, devices_of_kernels, NULL));
}

/* ---- failures --------------------------------------------------------------------------------------------------------------- */

/* The first launch finds the word, the second waits in vain, the third finds it again. */
static int a_wait_in_vain(spmt_comm *comm, void *arg)
{
	spmt_host_graph *graph;
	spmt_stream stream;
	uint64_t *word;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_set_timeout(comm, 100));
	REQUIRE_OK(spmt_host_graph_begin(stream));
	REQUIRE_OK(spmt_signal_wait_on_stream(comm, word, SPMT_CMP_EQ, 1, stream));
	REQUIRE_OK(spmt_host_graph_end(stream, &graph));
	REQUIRE_OK(spmt_set_timeout(comm, 30000));
	for (int i = 0; i < 3; i++) {
		REQUIRE_OK(spmt_signal(
			comm, word, (uint64_t)(i != 1), SPMT_SIGNAL_SET, spmt_rank(comm)));
		REQUIRE_OK(spmt_host_graph_launch(graph, stream));
		REQUIRE_CODE(spmt_host_stream_synchronize(stream), i == 1 ? SPMT_ERR_TIMEOUT : 0);
	}
	spmt_quiet(comm); /* tells of it, too */
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	return spmt_host_stream_destroy(stream);
}

Test(graphs, a_wait_in_vain_is_told_and_the_world_stays)
{
	NEEDS_HOST("its graphs");
	RANKS_OK(ranks_run(1, NULL, a_wait_in_vain, NULL));
}

/* Rank 0 launches once less: the others' world breaks, and what the graph has behind the collective does not happen. */
static int one_launch_less(spmt_comm *comm, void *arg)
{
	uint64_t *words;
	spmt_host_graph *graph;
	spmt_stream stream;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_copy_in(comm, words, &(uint64_t){ 1 }, 8));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_set_timeout(comm, 300));
	REQUIRE_OK(spmt_host_graph_begin(stream));
	REQUIRE_OK(spmt_all_reduce(comm, words + 1, words, 1, SPMT_TYPE_U64, SPMT_OP_SUM, stream));
	REQUIRE_OK(spmt_put_on_stream(comm, words + 2, words + 1, 8, spmt_rank(comm), stream));
	REQUIRE_OK(spmt_signal_on_stream(
		comm, words + 3, 1, SPMT_SIGNAL_ADD, spmt_rank(comm), stream));
	REQUIRE_OK(spmt_host_graph_end(stream, &graph));
	if (spmt_rank(comm) != 0) {
		REQUIRE_OK(spmt_host_graph_launch(graph, stream));
		REQUIRE_CODE(spmt_host_stream_synchronize(stream), SPMT_ERR_TIMEOUT);
		REQUIRE_EQ(words[2], 0);
		REQUIRE_EQ(words[3], 0);
	}
	while (!spmt_status(comm))
		sleep_ms(1);
	REQUIRE_OK(spmt_host_graph_launch(graph, stream)); /* nothing of it happens now */
	REQUIRE(spmt_host_stream_synchronize(stream) < 0);
	REQUIRE_EQ(words[3], 0);
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	spmt_host_stream_destroy(stream);
	return 0;
}

Test(graphs, a_collective_that_fails_is_told_by_synchronize)
{
	NEEDS_HOST("its graphs");
	RANKS_OK(ranks_run(3, NULL, one_launch_less, NULL));
}

/* ---- the end of a comm --------------------------------------------------------------------------------------------------------- */

struct last {
	spmt_uid uid;
	struct latch latch;
	_Atomic int passed;
	spmt_host_graph *graphs[2];
	spmt_stream streams[2];
};

static void pass_last(void *args)
{
	struct last *l = *(struct last **)args;

	latch_pass(&l->latch);
	atomic_fetch_add(&l->passed, 1);
}

/* A graph with work of the comm, held by a kernel. */
static int launch_held(spmt_comm *comm, struct last *l)
{
	int me = spmt_rank(comm);
	uint64_t *word;

	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_host_stream_create(comm, &l->streams[me]));
	REQUIRE_OK(spmt_host_graph_begin(l->streams[me]));
	REQUIRE_OK(spmt_host_launch(comm, l->streams[me], pass_last, &l, sizeof(l)));
	REQUIRE_OK(spmt_put_on_stream(comm, word, word + 1, 8, 1 - me, l->streams[me]));
	REQUIRE_OK(spmt_host_graph_end(l->streams[me], &l->graphs[me]));
	return spmt_host_graph_launch(l->graphs[me], l->streams[me]);
}

static int finalize_last(int rank, void *arg)
{
	struct last *l = arg;
	struct spmt_attr attr = ranks_attr(rank, 2, &l->uid);
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	TRY(launch_held(comm, l));
	if (rank == 0)
		REQUIRE(latch_open(&l->latch));
	REQUIRE_OK(spmt_finalize(comm));
	REQUIRE_CODE(spmt_host_graph_launch(l->graphs[rank], l->streams[rank]), -EBADF);
	REQUIRE_OK(spmt_host_stream_destroy(l->streams[rank]));
	return spmt_host_graph_destroy(l->graphs[rank]);
}

Test(graphs, finalize_waits_for_what_runs_and_no_launch_follows)
{
	static struct last last;

	NEEDS_HOST("its graphs");
	cr_assert_eq(spmt_uid_create(&last.uid), 0);
	RANKS_OK(ranks_threads(2, finalize_last, &last));
	cr_assert_eq(atomic_load(&last.passed), 2);
}

/* Where there is a leak checker. */
void __lsan_disable(void) __attribute__((weak));

/* It is destroyed, and goes on when finalize has given up: what it uses stays, for good, and that is no leak. */
static int left_behind(int rank, void *arg)
{
	struct last *l = arg;
	struct spmt_attr attr = ranks_attr(rank, 2, &l->uid);
	spmt_comm *comm;

	if (__lsan_disable)
		__lsan_disable();
	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_set_timeout(comm, 200));
	TRY(launch_held(comm, l));
	REQUIRE_OK(spmt_host_graph_destroy(l->graphs[rank]));
	spmt_finalize(comm);
	REQUIRE_EQ(atomic_load(&l->passed), 0);
	return 0;
}

Test(graphs, what_goes_on_beyond_finalize_finds_its_memory)
{
	static struct last last;

	NEEDS_HOST("its graphs");
	cr_assert_eq(spmt_uid_create(&last.uid), 0);
	RANKS_OK(ranks_threads(2, left_behind, &last));
	cr_assert(latch_open(&last.latch));
	for (int i = 0; i < 2; i++) {
		cr_expect_eq(spmt_host_stream_synchronize(last.streams[i]), 0);
		cr_expect_eq(spmt_host_stream_destroy(last.streams[i]), 0);
	}
	cr_assert_eq(atomic_load(&last.passed), 2);
}

/* ---- what is refused ------------------------------------------------------------------------------------------------------------ */

static void never(void *arg, int code)
{
	(void)arg;
	(void)code;
}

static int begin_and_end(spmt_comm *comm, spmt_stream stream, spmt_stream other)
{
	spmt_host_graph *graph = NULL;
	uint64_t *word;
	spmt_comm *lane;

	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*word), (void **)&word));
	REQUIRE_CODE(spmt_host_graph_end(stream, &graph), -EINVAL);
	REQUIRE_SAYS("not being captured");
	REQUIRE_OK(spmt_host_graph_begin(stream));
	REQUIRE_CODE(spmt_host_graph_begin(stream), -EBUSY);
	REQUIRE_SAYS("being captured already");
	REQUIRE_CODE(spmt_host_stream_synchronize(stream), -EBUSY);
	REQUIRE_SAYS("captured into a graph");
	REQUIRE_CODE(spmt_on_complete(comm, stream, never, NULL), SPMT_ERR_UNSUPPORTED);
	REQUIRE_OK(spmt_lane(comm, 3, &lane));
	REQUIRE_CODE(spmt_all_reduce(lane, word, word + 1, 1, SPMT_TYPE_U64, SPMT_OP_SUM, stream),
		SPMT_ERR_UNSUPPORTED);
	REQUIRE_SAYS("cannot be replayed");
	REQUIRE_OK(spmt_finalize(lane));
	REQUIRE_CODE(spmt_host_graph_end(stream, NULL), -EINVAL);
	REQUIRE_SAYS("graph is NULL");
	REQUIRE_OK(spmt_host_graph_end(stream, &graph));
	REQUIRE_OK(spmt_host_graph_begin(other));
	REQUIRE_CODE(spmt_host_graph_launch(graph, other), SPMT_ERR_UNSUPPORTED);
	REQUIRE_OK(spmt_host_stream_destroy(other));
	REQUIRE_CODE(spmt_host_graph_end(other, &graph), -EBADF);
	REQUIRE(!strstr(spmt_last_error() + 1, "spmt_host_graph_end")); /* is said once */
	REQUIRE_OK(spmt_host_graph_launch(graph, stream));		/* of nothing */
	REQUIRE_OK(spmt_host_stream_synchronize(stream));
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	REQUIRE_CODE(spmt_host_graph_destroy(graph), -EBADF);
	REQUIRE_CODE(spmt_host_graph_launch(graph, stream), -EBADF);
	return 0;
}

static _Atomic(spmt_host_graph *) foreign;

static int refused(spmt_comm *comm, void *arg)
{
	spmt_stream streams[2];
	spmt_host_graph *graph;

	(void)arg;
	for (int i = 0; i < 2; i++)
		REQUIRE_OK(spmt_host_stream_create(comm, &streams[i]));
	TRY(begin_and_end(comm, streams[0], streams[1]));
	REQUIRE_CODE(spmt_host_graph_begin(NULL), -EINVAL);
	REQUIRE_CODE(spmt_host_graph_begin(SPMT_STREAM_LEGACY), -EINVAL);
	REQUIRE_CODE(spmt_host_graph_begin(SPMT_STREAM_PER_THREAD), -EINVAL);
	REQUIRE_CODE(spmt_host_graph_launch(NULL, streams[0]), -EBADF);
	REQUIRE_CODE(spmt_host_graph_destroy(NULL), -EBADF);
	REQUIRE_CODE(spmt_host_graph_destroy((spmt_host_graph *)streams[0]), -EBADF);
	REQUIRE_OK(spmt_host_graph_begin(streams[0]));
	REQUIRE_OK(spmt_host_graph_end(streams[0], &graph));
	if (spmt_rank(comm) == 0)
		atomic_store(&foreign, graph);
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 1) {
		REQUIRE_CODE(spmt_host_graph_launch(atomic_load(&foreign), streams[0]), -EINVAL);
		REQUIRE_SAYS("is one of device");
	}
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	return spmt_host_stream_destroy(streams[0]);
}

Test(graphs, what_cannot_be_is_refused_in_words)
{
	NEEDS_HOST("its graphs");
	RANKS_OK(ranks_run(2, NULL, refused, NULL));
}
