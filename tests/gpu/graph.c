/* SPDX-License-Identifier: MIT */
/*
 * A put, a signal, a wait, a kernel of the user's and collectives, captured once from a stream and
 * replayed; and the same work queued each time, which a backend without graphs does as well.
 */
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "kernels/signals.h"

enum { REPLAYS = 100 };

struct scene {
	struct rank r;
	size_t words;
	bool put_signal;			   /* in one call */
	uint64_t *came, *next, *sig, *round, *sum; /* symmetric */
	struct outcome *outcome;
};

struct size {
	size_t words;
	bool put_signal;
	enum driver_capture mode;
	bool queued;	 /* each time */
	bool registered; /* the stream */
	int current; /* the thread's device at the capture: 0: the rank's; 1: the next one; -1: none */
};

static int words_of(struct scene *s, size_t n, uint64_t **words)
{
	void *p;

	REQUIRE_OK(spmt_calloc(s->r.comm, n, sizeof(**words), &p));
	*words = p;
	return 0;
}

static int scene_open(struct scene *s, spmt_comm *comm, const struct size *size)
{
	uint64_t *first, one = 1;

	memset(s, 0, sizeof(*s));
	s->words = size->words;
	s->put_signal = size->put_signal;
	TRY(rank_open(&s->r, comm));
	TRY(outcome_open(&s->r, &s->outcome));
	TRY(words_of(s, s->words, &s->came));
	TRY(words_of(s, s->words, &s->next));
	TRY(words_of(s, 1, &s->sig));
	TRY(words_of(s, 1, &s->round));
	TRY(words_of(s, 2, &s->sum));
	first = malloc(s->words * 8);
	REQUIRE(first);
	for (size_t i = 0; i < s->words; i++)
		first[i] = step_value(s->r.pe, 1, i);
	TRY(rank_write(&s->r, s->next, first, s->words * 8));
	TRY(rank_write(&s->r, s->round, &one, 8));
	free(first);
	/* Collectives elsewhere before, so that their order is known to the comm. */
	REQUIRE_OK(spmt_all_reduce(comm, s->sum, s->round, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

/* One round on the test's stream. */
static int queue_round(struct scene *s)
{
	spmt_comm *comm = s->r.comm;
	spmt_stream stream = s->r.stream;
	struct step_args a = { .view = s->r.view,
		.came = addr(s->came),
		.next = addr(s->next),
		.sig = addr(s->sig),
		.round = addr(s->round),
		.outcome = addr(s->outcome),
		.words = s->words,
		.from = s->r.prev };

	if (s->put_signal) {
		REQUIRE_OK(spmt_put_signal_on_stream(comm, s->came, s->next, s->words * 8, s->sig,
			1, SPMT_SIGNAL_SET, s->r.next, stream));
	} else {
		REQUIRE_OK(spmt_put_on_stream(
			comm, s->came, s->next, s->words * 8, s->r.next, stream));
		REQUIRE_OK(
			spmt_signal_on_stream(comm, s->sig, 1, SPMT_SIGNAL_SET, s->r.next, stream));
	}
	REQUIRE_OK(spmt_signal_wait_on_stream(comm, s->sig, SPMT_CMP_EQ, 1, stream));
	RANK_LAUNCH(&s->r, test_step, 1, 256, a);
	REQUIRE_OK(spmt_all_reduce(comm, s->sum, s->round, 1, SPMT_TYPE_U64, SPMT_OP_SUM, stream));
	REQUIRE_OK(
		spmt_all_reduce(comm, s->sum + 1, s->sum, 1, SPMT_TYPE_U64, SPMT_OP_MAX, stream));
	REQUIRE_OK(spmt_barrier_on_stream(comm, stream));
	return 0;
}

/* Host calls of every kind of driver call, beside captures of this thread and of all the others: allowed in every mode. */
static int calls_meanwhile(struct scene *s)
{
	spmt_comm *comm = s->r.comm;
	uint64_t sent = 70 + (uint64_t)s->r.pe, seen = 0;
	spmt_mem *mem;
	void *p;

	REQUIRE_OK(spmt_calloc(comm, 1 << 20, 8, &p)); /* the heap grows */
	REQUIRE_OK(spmt_put(comm, p, &sent, 8, s->r.next));
	REQUIRE_OK(
		spmt_put_nbi(comm, (char *)p + (4 << 20), (char *)p + 8, (4 << 20) - 8, s->r.pe));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_get(comm, &seen, p, 8, s->r.pe));
	REQUIRE_EQ(seen, 70 + (uint64_t)s->r.prev);
	REQUIRE_OK(
		spmt_all_reduce(comm, s->sum + 1, s->round, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_register(comm, s->came, 8, &mem));
	REQUIRE_OK(spmt_deregister(comm, mem));
	REQUIRE_OK(spmt_free(comm, p));
	return 0;
}

static int make_current(const struct scene *s, int current)
{
	return driver_make_current(current < 0 ? -1 : (s->r.dev + current) % gpu_devices());
}

/* All ranks capture at once. What the test itself asks of the driver beside that, it asks when none does. */
static int captured(struct scene *s, int replays, const struct size *size)
{
	void *graph = NULL, *exec = NULL;
	int rc;

	/* Under way in another stream: no part of the graph, and none of its dependences. */
	REQUIRE_OK(spmt_put_on_stream(s->r.comm, s->sum, s->sum, 8, s->r.pe, NULL));
	REQUIRE_EQ(driver_capture_begin(s->r.dev, s->r.stream, size->mode), 0);
	rc = make_current(s, size->current);
	if (!rc)
		rc = queue_round(s);
	if (!rc)
		rc = calls_meanwhile(s);
	if (!rc)
		rc = make_current(s, 0);
	REQUIRE_EQ(driver_capture_end(s->r.dev, s->r.stream, &graph), 0);
	TRY(rc);
	REQUIRE_OK(spmt_barrier(s->r.comm));
	REQUIRE_EQ(driver_graph_make(s->r.dev, graph, &exec), 0);
	/* Nothing of it has run yet. */
	REQUIRE_OK(spmt_quiet(s->r.comm));
	TRY(rank_sync(&s->r));
	for (int i = 0; i < replays; i++)
		REQUIRE_EQ(driver_graph_launch(s->r.dev, exec, s->r.stream), 0);
	TRY(rank_sync(&s->r));
	REQUIRE_EQ(driver_graph_destroy(s->r.dev, exec), 0);
	return 0;
}

static int queued(struct scene *s, int replays)
{
	for (int i = 0; i < replays; i++)
		TRY(queue_round(s));
	return rank_sync(&s->r);
}

static int check_rounds(struct scene *s, uint64_t rounds)
{
	uint64_t n = (uint64_t)s->r.n, sums[2], round;

	TRY(outcome_check(&s->r, s->outcome, "replay"));
	TRY(rank_read(&s->r, &round, s->round, 8));
	TRY(rank_read(&s->r, sums, s->sum, 16));
	REQUIRE_EQ(round, rounds + 1);
	REQUIRE_EQ(sums[0], n * (rounds + 1));
	REQUIRE_EQ(sums[1], n * (rounds + 1));
	REQUIRE_OK(spmt_quiet(s->r.comm));
	return 0;
}

/* What a registered stream holds from before a capture cannot be told of while that goes on, which is none the worse for it. */
static int kept_stream(struct scene *s, enum driver_capture mode)
{
	spmt_comm *comm = s->r.comm;
	void *graph = NULL, *exec = NULL;
	int rc;

	REQUIRE_OK(spmt_stream_register(comm, s->r.stream));
	REQUIRE_OK(spmt_put_on_stream(comm, s->sum, s->sum, 8, s->r.pe, s->r.stream));
	REQUIRE_EQ(driver_capture_begin(s->r.dev, s->r.stream, mode), 0);
	rc = spmt_put_on_stream(comm, s->sum, s->sum, 8, s->r.pe, s->r.stream);
	if (!rc)
		rc = spmt_quiet(comm) == -EBUSY ? 0 : -EIO;
	REQUIRE_EQ(driver_capture_end(s->r.dev, s->r.stream, &graph), 0);
	REQUIRE_OK(rc);
	REQUIRE_OK(spmt_barrier(comm)); /* nobody captures any more */
	REQUIRE_EQ(driver_graph_make(s->r.dev, graph, &exec), 0);
	REQUIRE_EQ(driver_graph_launch(s->r.dev, exec, s->r.stream), 0);
	REQUIRE_OK(spmt_quiet(comm));
	TRY(rank_sync(&s->r));
	REQUIRE_EQ(driver_graph_destroy(s->r.dev, exec), 0);
	REQUIRE_OK(spmt_barrier(comm)); /* nor makes or drops a graph, before the next capture */
	return 0;
}

/* The comm's other streams, and the same stream without a capture, are usable afterwards. */
static int replays(spmt_comm *comm, void *arg)
{
	const struct size *size = arg;
	struct scene s;

	TRY(scene_open(&s, comm, size));
	if (size->registered)
		TRY(kept_stream(&s, size->mode));
	if (size->queued)
		TRY(queued(&s, REPLAYS));
	else
		TRY(captured(&s, REPLAYS, size));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(check_rounds(&s, REPLAYS));
	REQUIRE_OK(spmt_all_reduce(comm, s.sum, s.round, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_put_on_stream(comm, s.sum + 1, s.round, 8, s.r.pe, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(queued(&s, 3));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(check_rounds(&s, REPLAYS + 3));
	REQUIRE_OK(spmt_barrier(comm));
	rank_close(&s.r);
	return 0;
}

static int run(int n, struct size size)
{
	if (!size.queued && !driver_graphs())
		return GPU_SKIP;
	return gpu_run(n, 64u << 20, replays, &size);
}

static int run_queued(int n)
{
	return run(n, (struct size){ 1000, false, CAPTURE_RELAXED, true });
}

static int run_queued_engines(int n)
{
	return run(n, (struct size){ (3u << 20) / 8 + 5, true, CAPTURE_RELAXED, true });
}

static int run_stores(int n)
{
	return run(n, (struct size){ 1000, false, CAPTURE_RELAXED, false });
}

/* What frameworks choose if not told otherwise. */
static int run_put_signal(int n)
{
	return run(n, (struct size){ 513, true, CAPTURE_GLOBAL, false });
}

static int run_engines(int n)
{
	return run(n, (struct size){ (3u << 20) / 8 + 5, false, CAPTURE_GLOBAL, false });
}

static int run_thread_local(int n)
{
	return run(n, (struct size){ 1000, true, CAPTURE_THREAD_LOCAL, false });
}

static int run_registered(int n)
{
	return run(n, (struct size){ 1000, false, CAPTURE_GLOBAL, false, true });
}

/* Of pieces of mapped memory, which CUDA copies in a context alone. */
static int run_without_a_context(int n)
{
	return run(n, (struct size){ (5u << 20) / 8, false, CAPTURE_GLOBAL, false, false, -1 });
}

static int run_of_another_device(int n)
{
	return run(n, (struct size){ (5u << 20) / 8, false, CAPTURE_GLOBAL, false, false, 1 });
}

static const struct gpu_test tests[] = {
	{ "graph_work_queued_each_time", run_queued, 1 },
	{ "graph_work_queued_on_copy_engines", run_queued_engines, 1 },
	{ "graph_replay_stores", run_stores, 1 },
	{ "graph_replay_put_signal", run_put_signal, 1 },
	{ "graph_replay_copy_engines", run_engines, 1 },
	{ "graph_replay_captured_thread_local", run_thread_local, 1 },
	{ "graph_replay_of_a_registered_stream", run_registered, 1 },
	{ "graph_replay_captured_without_a_context", run_without_a_context, 1 },
	{ "graph_replay_captured_in_another_devices_context", run_of_another_device, 1 },
};
static const struct test_kernel *const kernels[] = { &test_step, NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
