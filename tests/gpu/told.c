/* SPDX-License-Identifier: MIT */
/*
 * Collectives and barriers that fail in a stream: every rank is told, in its own words or by status, nobody finds a wrong result
 * behind a 0, and what comes later writes nothing; replays of a graph, of which no call of the library knows, included.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

enum { DEADLINE_MS = 500, POISON = 0x3c, SIZES = 3 };

/* Words: pushed by one thread; by many; and moved. */
static const size_t sizes[SIZES] = { 1, 12288, 300000 };

struct shared {
	_Atomic int told, ended;
	size_t count;
	bool barrier;
};

struct scene {
	struct rank r;
	struct shared *all;
	uint64_t *dst, *src, *host; /* dst and src in the heap */
};

static int scene_open(struct scene *s, spmt_comm *comm, struct shared *all)
{
	size_t bytes = all->count * 8;
	void *p;

	memset(s, 0, sizeof(*s));
	s->all = all;
	TRY(rank_open(&s->r, comm));
	s->host = malloc(bytes);
	REQUIRE(s->host);
	REQUIRE_OK(spmt_malloc(comm, bytes, &p));
	s->dst = p;
	REQUIRE_OK(spmt_malloc(comm, bytes, &p));
	s->src = p;
	for (size_t i = 0; i < all->count; i++)
		s->host[i] = 1;
	TRY(rank_write(&s->r, s->src, s->host, bytes));
	TRY(rank_fill(&s->r, s->dst, POISON, bytes));
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

/* When all ranks are through with each other's words. */
static void scene_close(struct scene *s)
{
	atomic_fetch_add(&s->all->ended, 1);
	for (int64_t begin = now_ns();
		atomic_load(&s->all->ended) < s->r.n && now_ns() - begin < 30000000000;)
		sleep_ms(1);
	free(s->host);
	rank_close(&s->r);
}

static int queue(struct scene *s)
{
	if (s->all->barrier)
		return spmt_barrier_on_stream(s->r.comm, s->r.stream);
	return spmt_all_reduce(
		s->r.comm, s->dst, s->src, s->all->count, SPMT_TYPE_U64, SPMT_OP_SUM, s->r.stream);
}

static int dst_is(struct scene *s, uint64_t want)
{
	TRY(rank_read(&s->r, s->host, s->dst, s->all->count * 8));
	for (size_t i = 0; i < s->all->count; i++)
		if (s->host[i] != want)
			return ranks_fail("rank %d: element %zu of %zu is %#llx, not %#llx",
				s->r.pe, i, s->all->count, (unsigned long long)s->host[i],
				(unsigned long long)want);
	return 0;
}

static uint64_t poison(void)
{
	uint64_t x;

	memset(&x, POISON, sizeof(x));
	return x;
}

static void until_told(const struct scene *s, int n)
{
	for (int64_t begin = now_ns();
		atomic_load(&s->all->told) < n && now_ns() - begin < 30000000000;)
		sleep_ms(1);
}

/* By no call of the library since. */
static int is_told(struct scene *s)
{
	REQUIRE_CODE(spmt_status(s->r.comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("ranks missing after");
	REQUIRE_CODE(queue(s), SPMT_ERR_BROKEN);
	REQUIRE(spmt_quiet(s->r.comm) < 0);
	return 0;
}

/* ---- half of the ranks join ----------------------------------------------------------------------------------------------------- */

static int half_joins(spmt_comm *comm, void *arg)
{
	int half = (spmt_nranks(comm) + 1) / 2;
	struct scene s;

	TRY(scene_open(&s, comm, arg));
	if (s.r.pe < half) {
		REQUIRE_OK(spmt_set_timeout(comm, DEADLINE_MS));
		REQUIRE_OK(queue(&s));
		TRY(rank_sync(&s.r));
		TRY(is_told(&s));
		atomic_fetch_add(&s.all->told, 1);
	} else {
		until_told(&s, half);
		TRY(is_told(&s));
		TRY(dst_is(&s, poison()));
	}
	scene_close(&s);
	return 0;
}

/* And a barrier. */
static int run_half(int n)
{
	for (int i = 0; i <= SIZES; i++) {
		struct shared all = { .count = sizes[i % SIZES], .barrier = i == SIZES };

		TRY(gpu_run(n, 16u << 20, half_joins, &all));
	}
	return 0;
}

/* ---- one comes when another has given up -------------------------------------------------------------------------------------- */

/* Queued in time on all ranks, held up on the last: no call says that the world is broken. */
static int one_is_late(spmt_comm *comm, void *arg)
{
	struct latch latch = { 0 }, *held = &latch;
	struct scene s;
	int code;

	TRY(scene_open(&s, comm, arg));
	REQUIRE_OK(spmt_set_timeout(comm, s.r.pe ? 20000 : DEADLINE_MS));
	if (s.r.pe == s.r.n - 1)
		REQUIRE_OK(stream_call(comm, s.r.stream, latch_kernel, &held, sizeof(held)));
	REQUIRE_OK(queue(&s));
	if (s.r.pe == s.r.n - 1) {
		until_told(&s, s.r.n - 1);
		REQUIRE(latch_open(&latch));
	}
	TRY(rank_sync(&s.r));
	code = spmt_status(comm);
	if (!code)
		TRY(dst_is(&s, (uint64_t)s.r.n));
	REQUIRE(code < 0 || s.r.pe);
	if (s.r.pe == s.r.n - 1)
		TRY(dst_is(&s, poison()));
	atomic_fetch_add(&s.all->told, 1);
	until_told(&s, s.r.n);
	REQUIRE(spmt_quiet(comm) < 0);
	scene_close(&s);
	return 0;
}

static int run_late(int n)
{
	for (int i = 0; i < SIZES; i++) {
		struct shared all = { .count = sizes[i] };

		TRY(gpu_run(n, 16u << 20, one_is_late, &all));
	}
	return 0;
}

/* ---- calls that differ ------------------------------------------------------------------------------------------------------------ */

static int one_differs(spmt_comm *comm, void *arg)
{
	struct scene s;
	size_t odd;

	TRY(scene_open(&s, comm, arg));
	odd = s.all->count > 1 && s.r.pe == s.r.n - 1;
	REQUIRE_OK(spmt_all_reduce(
		comm, s.dst, s.src, s.all->count - odd, SPMT_TYPE_U64, SPMT_OP_SUM, s.r.stream));
	TRY(rank_sync(&s.r));
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_MISMATCH);
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("count differs");
	REQUIRE_OK(spmt_status(comm));
	TRY(dst_is(&s, poison()));
	REQUIRE_OK(queue(&s));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(dst_is(&s, (uint64_t)s.r.n));
	scene_close(&s);
	return 0;
}

static int run_differs(int n)
{
	for (int i = 0; i < SIZES; i++) {
		struct shared all = { .count = i ? sizes[i] : 2 };

		TRY(gpu_run(n, 16u << 20, one_differs, &all));
	}
	return 0;
}

/* ---- graphs ----------------------------------------------------------------------------------------------------------------------- */

static int graph_make(struct scene *s, void **exec)
{
	void *graph = NULL;
	int rc;

	REQUIRE_EQ(driver_capture_begin(s->r.dev, s->r.stream, CAPTURE_RELAXED), 0);
	rc = queue(s);
	REQUIRE_EQ(driver_capture_end(s->r.dev, s->r.stream, &graph), 0);
	REQUIRE_OK(rc);
	REQUIRE_EQ(driver_graph_make(s->r.dev, graph, exec), 0);
	return spmt_barrier(s->r.comm);
}

static int replay(struct scene *s, void *exec, uint64_t want)
{
	TRY(rank_fill(&s->r, s->dst, POISON, s->all->count * 8));
	REQUIRE_EQ(driver_graph_launch(s->r.dev, exec, s->r.stream), 0);
	TRY(rank_sync(&s->r));
	return dst_is(s, want);
}

/* Once with all; once without the last rank; then with all again, which comes to nothing. */
static int replays(spmt_comm *comm, void *arg)
{
	struct scene s;
	void *exec = NULL;

	REQUIRE_OK(spmt_set_timeout(comm, 2000));
	TRY(scene_open(&s, comm, arg));
	TRY(graph_make(&s, &exec));
	TRY(replay(&s, exec, (uint64_t)s.r.n));
	REQUIRE_OK(spmt_barrier(comm));
	if (s.r.pe < s.r.n - 1)
		TRY(replay(&s, exec, poison()));
	else
		until_told(&s, s.r.n - 1);
	TRY(is_told(&s));
	atomic_fetch_add(&s.all->told, 1);
	until_told(&s, s.r.n);
	TRY(replay(&s, exec, poison()));
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_EQ(driver_graph_destroy(s.r.dev, exec), 0);
	scene_close(&s);
	return 0;
}

/* Aborted by one rank; the others' hosts have made no call since. */
static int replays_aborted(spmt_comm *comm, void *arg)
{
	struct scene s;
	void *exec = NULL;

	TRY(scene_open(&s, comm, arg));
	TRY(graph_make(&s, &exec));
	TRY(replay(&s, exec, (uint64_t)s.r.n));
	REQUIRE_OK(spmt_barrier(comm));
	if (s.r.pe == 0)
		REQUIRE_OK(spmt_abort(comm, -71));
	atomic_fetch_add(&s.all->told, 1);
	until_told(&s, s.r.n);
	TRY(replay(&s, exec, poison()));
	REQUIRE_CODE(spmt_status(comm), -71);
	REQUIRE_EQ(driver_graph_destroy(s.r.dev, exec), 0);
	scene_close(&s);
	return 0;
}

static int run_graphs(int n, int (*fn)(spmt_comm *comm, void *arg))
{
	if (!driver_graphs())
		return GPU_SKIP;
	for (int i = 0; i < SIZES; i++) {
		struct shared all = { .count = sizes[i] };

		TRY(gpu_run(n, 16u << 20, fn, &all));
	}
	return 0;
}

static int run_replays(int n)
{
	return run_graphs(n, replays);
}

static int run_aborted(int n)
{
	return run_graphs(n, replays_aborted);
}

static const struct gpu_test tests[] = {
	{ "half_of_the_ranks_join", run_half, 2 },
	{ "a_rank_is_late", run_late, 2 },
	{ "a_call_differs", run_differs, 2 },
	{ "graph_replays_are_told", run_replays, 2 },
	{ "graph_replays_of_an_aborted_world", run_aborted, 2 },
};
static const struct test_kernel *const kernels[] = { NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
