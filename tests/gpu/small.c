/* SPDX-License-Identifier: MIT */
/*
 * Small collectives and barriers one after the other, and large collectives: what each takes on a stream and in a graph of 20, which SPMT_COLL has one
 * algorithm of the table for. Every size is looked at before and after it is timed, in graphs after a hundred replays. Printed by rank 0, as remarks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

enum { MOST = 128 << 10, LARGE = 16 << 20, LINKS = 20, REPLAYS = 100, RUNS = 5, PES = 64 };
enum what { ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, PERMUTE, WHATS, BARRIER = WHATS };
static const char *const names[WHATS] = { "all_reduce", "all_gather", "all_to_all", "permute" };

struct scene {
	struct rank r;
	uint32_t *src, *dst, *host; /* MOST bytes for each rank, or LARGE */
	int to[PES];
};

struct item {
	enum what what;
	size_t bytes;
};

static int call(struct scene *s, const struct item *i)
{
	size_t n = i->bytes / 4;

	if (i->what == BARRIER)
		return spmt_barrier_on_stream(s->r.comm, s->r.stream);
	if (i->what == PERMUTE)
		return spmt_permute(
			s->r.comm, s->dst, s->src, n, SPMT_TYPE_U32, s->to, s->r.stream);
	if (i->what == ALL_REDUCE)
		return spmt_all_reduce(
			s->r.comm, s->dst, s->src, n, SPMT_TYPE_U32, SPMT_OP_SUM, s->r.stream);
	if (i->what == ALL_GATHER)
		return spmt_all_gather(s->r.comm, s->dst, s->src, n, SPMT_TYPE_U32, s->r.stream);
	return spmt_all_to_all(s->r.comm, s->dst, s->src, n, SPMT_TYPE_U32, s->r.stream);
}

/* Word i of what pe gives. */
static uint32_t word(const struct item *it, int pe, size_t i)
{
	return (uint32_t)((size_t)(pe + 1) * 2654435761u + i * 40503u + it->bytes + it->what);
}

static size_t words_out(const struct scene *s, const struct item *i)
{
	return i->bytes / 4 * (i->what == ALL_REDUCE || i->what == PERMUTE ? 1 : (size_t)s->r.n);
}

static int prepare(struct scene *s, const struct item *it)
{
	size_t n = it->bytes / 4 * (it->what == ALL_TO_ALL ? (size_t)s->r.n : 1);

	for (size_t i = 0; i < n; i++)
		s->host[i] = word(it, s->r.pe, i);
	TRY(rank_write(&s->r, s->src, s->host, 4 * n));
	return 0;
}

static int poison(struct scene *s, const struct item *it)
{
	return rank_fill(&s->r, s->dst, 0xb6, 4 * words_out(s, it));
}

static int check(struct scene *s, const struct item *it)
{
	size_t n = it->bytes / 4, out = words_out(s, it);

	TRY(rank_sync(&s->r));
	TRY(rank_read(&s->r, s->host, s->dst, 4 * out));
	for (size_t i = 0; i < out; i++) {
		uint32_t want = 0;

		if (it->what == ALL_REDUCE)
			for (int pe = 0; pe < s->r.n; pe++)
				want += word(it, pe, i);
		else if (it->what == PERMUTE)
			want = word(it, (s->r.pe + s->r.n - 1) % s->r.n, i);
		else if (it->what == ALL_GATHER)
			want = word(it, (int)(i / n), i % n);
		else
			want = word(it, (int)(i / n), (size_t)s->r.pe * n + i % n);
		if (s->host[i] != want)
			return ranks_fail("%s of %zu bytes: word %zu is %#x, not %#x",
				names[it->what], it->bytes, i, s->host[i], want);
	}
	return 0;
}

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Microseconds a call, the median of some runs; after one that is not timed. */
static int on_stream(struct scene *s, const struct item *it, double *us)
{
	int calls = (int)gpu_number(500, 20);
	double runs[RUNS];

	for (int run = -1; run < RUNS; run++) {
		int64_t begin;

		REQUIRE_OK(spmt_barrier(s->r.comm));
		begin = now_ns();
		for (int i = 0; i < calls; i++)
			REQUIRE_OK(call(s, it));
		TRY(rank_sync(&s->r));
		if (run >= 0)
			runs[run] = (double)(now_ns() - begin) / calls / 1e3;
	}
	qsort(runs, RUNS, sizeof(*runs), by_time);
	*us = runs[RUNS / 2];
	return 0;
}

static int in_graph(struct scene *s, const struct item *it, double *us)
{
	void *graph, *exec;
	double runs[RUNS];
	int rc = 0;

	REQUIRE_EQ(driver_capture_begin(s->r.dev, s->r.stream, CAPTURE_RELAXED), 0);
	for (int i = 0; i < LINKS && !rc; i++)
		rc = call(s, it);
	REQUIRE_EQ(driver_capture_end(s->r.dev, s->r.stream, &graph), 0);
	REQUIRE_OK(rc);
	REQUIRE_EQ(driver_graph_make(s->r.dev, graph, &exec), 0);
	for (int run = -1; run < RUNS; run++) {
		int64_t begin;

		REQUIRE_OK(spmt_barrier(s->r.comm));
		begin = now_ns();
		for (int i = 0; i < REPLAYS; i++)
			REQUIRE_EQ(driver_graph_launch(s->r.dev, exec, s->r.stream), 0);
		TRY(rank_sync(&s->r));
		if (run >= 0)
			runs[run] = (double)(now_ns() - begin) / (REPLAYS * LINKS) / 1e3;
	}
	REQUIRE_EQ(driver_graph_destroy(s->r.dev, exec), 0);
	qsort(runs, RUNS, sizeof(*runs), by_time);
	*us = runs[RUNS / 2];
	return 0;
}

static int one(struct scene *s, const struct item *it)
{
	double stream, graph = 0;

	TRY(prepare(s, it));
	TRY(poison(s, it));
	REQUIRE_OK(spmt_barrier(s->r.comm));
	REQUIRE_OK(call(s, it));
	TRY(check(s, it));
	TRY(on_stream(s, it, &stream));
	TRY(check(s, it));
	TRY(poison(s, it));
	if (driver_graphs()) {
		TRY(in_graph(s, it, &graph));
		TRY(check(s, it));
	}
	if (s->r.pe == 0 && !gpu_host())
		printf("# %s of %zu bytes: %.2f us on a stream, %.2f in a graph\n", names[it->what],
			it->bytes, stream, graph);
	return 0;
}

static int barriers(struct scene *s)
{
	struct item it = { BARRIER, 0 };
	double stream, graph = 0;

	TRY(on_stream(s, &it, &stream));
	if (driver_graphs())
		TRY(in_graph(s, &it, &graph));
	if (s->r.pe == 0 && !gpu_host())
		printf("# barrier: %.2f us on a stream, %.2f in a graph\n", stream, graph);
	return 0;
}

static int scene_open(struct scene *s, spmt_comm *comm, size_t bytes)
{
	void *p;

	TRY(rank_open(&s->r, comm));
	REQUIRE(s->r.n <= PES);
	for (int pe = 0; pe < s->r.n; pe++)
		s->to[pe] = (pe + 1) % s->r.n;
	REQUIRE_OK(spmt_malloc(comm, bytes, &p));
	s->src = p;
	REQUIRE_OK(spmt_malloc(comm, bytes, &p));
	s->dst = p;
	s->host = malloc(bytes);
	REQUIRE(s->host);
	return 0;
}

static int scene_close(struct scene *s)
{
	REQUIRE_OK(spmt_barrier(s->r.comm));
	free(s->host);
	rank_close(&s->r);
	return 0;
}

static int timed(spmt_comm *comm, void *arg)
{
	struct scene s;

	(void)arg;
	TRY(scene_open(&s, comm, (size_t)spmt_nranks(comm) * MOST));
	for (int what = 0; what < WHATS; what++)
		for (size_t bytes = 8; bytes <= MOST; bytes *= gpu_number(4, 64)) {
			struct item it = { (enum what)what, bytes };

			TRY(one(&s, &it));
		}
	TRY(barriers(&s));
	return scene_close(&s);
}

/* Of `bytes` in a rank's whole buffer; an all_reduce of whole units, and of others. */
static int large_of(struct scene *s, enum what what, size_t bytes)
{
	const size_t ranks = what == ALL_REDUCE || what == PERMUTE ? 1 : (size_t)s->r.n;

	for (size_t more = 0; more <= (what == ALL_REDUCE ? 4 : 0); more += 4) {
		struct item it = { what, bytes / ranks / 4 * 4 + more };

		TRY(one(s, &it));
	}
	return 0;
}

static int large_timed(spmt_comm *comm, void *arg)
{
	const size_t most = gpu_number(LARGE, 32 << 10);
	struct scene s;

	(void)arg;
	TRY(scene_open(&s, comm, most + 4));
	for (int what = 0; what < WHATS; what++)
		for (size_t bytes = most / 64; bytes <= most; bytes *= gpu_number(2, 4))
			TRY(large_of(&s, (enum what)what, bytes));
	return scene_close(&s);
}

static int run_timed(int n)
{
	return gpu_run(n, 8u << 20, timed, NULL);
}

static int run_large_timed(int n)
{
	return gpu_run(n, 64u << 20, large_timed, NULL);
}

/* ---- sums so large that they come in many pieces ------------------------------------------------------ */

enum { BEHIND = 64 };

struct sums {
	struct rank r;
	char *dst, *src;
	unsigned char *host;
};

/* Elements of 4 bytes, the last of which are no whole unit; on a stand-in few. */
enum { PIECES = (20 << 20) / 4 + 3, FEW_PIECES = 4099 };

/* Small whole numbers, whose sum every type has: of rank pe, or of n ranks. */
static uint32_t whole_number(size_t i, int pe)
{
	return (uint32_t)((i * 7 + (size_t)pe * 13) % 29);
}

static uint32_t whole_sum(size_t i, int n)
{
	uint32_t sum = 0;

	for (int pe = 0; pe < n; pe++)
		sum += whole_number(i, pe);
	return sum;
}

static void element_put(unsigned char *p, enum spmt_type type, size_t i, uint32_t x)
{
	float f = (float)x;
	uint32_t bits = x;

	if (type != SPMT_TYPE_U32)
		memcpy(&bits, &f, sizeof(bits));
	if (type == SPMT_TYPE_BF16)
		memcpy(p + 2 * i, (const char *)&bits + 2, 2);
	else
		memcpy(p + 4 * i, &bits, 4);
}

/* One sum, from an address that is aligned for the type alone if `odd`, in place then. */
static int whole_sums(struct sums *s, enum spmt_type type, bool scatter, bool odd)
{
	size_t size = type == SPMT_TYPE_BF16 ? 2 : 4,
	       count = gpu_number(PIECES, FEW_PIECES) * 4 / size;
	size_t n = (size_t)s->r.n, in = scatter ? n * (count / n) : count;
	size_t out = scatter ? count / n : count, first = scatter ? (size_t)s->r.pe * out : 0;
	char *dst = s->dst + (odd ? size : 0), *src = odd && !scatter ? dst : s->src;

	for (size_t i = 0; i < in; i++)
		element_put(s->host, type, i, whole_number(i, s->r.pe));
	TRY(rank_fill(&s->r, dst, 0x5c, out * size + BEHIND));
	TRY(rank_write(&s->r, src, s->host, in * size));
	if (scatter)
		REQUIRE_OK(spmt_reduce_scatter(
			s->r.comm, dst, src, out, type, SPMT_OP_SUM, s->r.stream));
	else
		REQUIRE_OK(
			spmt_all_reduce(s->r.comm, dst, src, out, type, SPMT_OP_SUM, s->r.stream));
	TRY(rank_sync(&s->r));
	TRY(rank_read(&s->r, s->host, dst, out * size + BEHIND));
	for (size_t i = 0; i < out; i++) {
		unsigned char want[4] = { 0 };

		element_put(want, type, 0, whole_sum(first + i, s->r.n));
		if (memcmp(want, s->host + i * size, size))
			return ranks_fail("%s of type %d%s: rank %d: element %zu of %zu is wrong",
				scatter ? "reduce_scatter" : "all_reduce", (int)type,
				odd ? ", not aligned" : "", s->r.pe, i, out);
	}
	for (size_t i = out * size; i < out * size + BEHIND; i++)
		REQUIRE_EQ(s->host[i], 0x5c);
	return 0;
}

static int pieces(spmt_comm *comm, void *arg)
{
	static const enum spmt_type types[] = { SPMT_TYPE_U32, SPMT_TYPE_F32, SPMT_TYPE_BF16 };
	const size_t room = gpu_number(PIECES, FEW_PIECES) * 4 + 4096;
	struct sums s = { .host = malloc(room) };
	void *dst, *src;

	(void)arg;
	REQUIRE(s.host);
	TRY(rank_open(&s.r, comm));
	TRY(rank_alloc(&s.r, room, &dst));
	TRY(rank_alloc(&s.r, room, &src));
	s.dst = dst;
	s.src = src;
	for (int i = 0; i < 12; i++)
		TRY(whole_sums(&s, types[i / 4], i & 1, i & 2));
	REQUIRE_OK(spmt_barrier(comm));
	rank_free(&s.r, dst);
	rank_free(&s.r, src);
	free(s.host);
	rank_close(&s.r);
	return 0;
}

static int run_pieces(int n)
{
	return gpu_run(n, 4u << 20, pieces, NULL);
}

static const struct gpu_test tests[] = { { "small_collectives_timed", run_timed, 2 },
	{ "large_collectives_timed", run_large_timed, 2 },
	{ "sums_of_many_pieces", run_pieces, 2 } };
static const struct test_kernel *const kernels[] = { NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
