/* SPDX-License-Identifier: MIT */
/*
 * Collectives of row engine, which have no kernel: right and as fast beside a kernel that keeps every thread of its device as alone, while a
 * sum, which has a kernel, stands until that one ends. SPMT_COLL=ROW times another row alone, of which nothing is asked beside the kernel.
 * Rank 0 prints what each takes, as remarks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "busy.h"
#include "kernels/fills.h"

enum { CALLS = 20, RUNS = 5, BLOCKS_A_UNIT = 8, LEAST_MIB = 16 };
enum what { ALL_GATHER, ALL_GATHER_IN_PLACE, ALL_TO_ALL, PERMUTE, BROADCAST, WHATS };
static const char *const names[WHATS] = { "all_gather", "all_gather in place", "all_to_all",
	"permute", "broadcast" };

struct scene {
	struct rank r;
	char *src, *dst; /* symmetric, `most` bytes each */
	uint32_t *host;
	size_t most;
	struct busy busy; /* fills the device */
};

struct item {
	enum what what;
	size_t bytes; /* of a rank's result, and of what it gives where that is for each rank */
};

static bool by_engine(void)
{
	const char *row = getenv("SPMT_COLL");

	return row && !strcmp(row, "engine");
}

/* ---- the calls --------------------------------------------------------------------------------------------- */

static size_t block_of(const struct scene *s, const struct item *it)
{
	return it->what == PERMUTE || it->what == BROADCAST ? it->bytes
							    : it->bytes / (size_t)s->r.n;
}

static const void *given(const struct scene *s, const struct item *it)
{
	return it->what == ALL_GATHER_IN_PLACE ? s->dst + (size_t)s->r.pe * block_of(s, it)
					       : s->src;
}

static int call(struct scene *s, const struct item *it)
{
	size_t n = block_of(s, it) / 4;
	int to[8];

	for (int i = 0; i < s->r.n; i++)
		to[i] = (i + 1) % s->r.n;
	switch (it->what) {
	case ALL_TO_ALL:
		return spmt_all_to_all(s->r.comm, s->dst, s->src, n, SPMT_TYPE_U32, s->r.stream);
	case PERMUTE:
		return spmt_permute(s->r.comm, s->dst, s->src, n, SPMT_TYPE_U32, to, s->r.stream);
	case BROADCAST:
		return spmt_broadcast(
			s->r.comm, s->dst, s->src, n, SPMT_TYPE_U32, s->r.n - 1, s->r.stream);
	default:
		return spmt_all_gather(
			s->r.comm, s->dst, given(s, it), n, SPMT_TYPE_U32, s->r.stream);
	}
}

/* Word i of what pe gives. */
static uint32_t word(const struct item *it, int pe, size_t i)
{
	return (uint32_t)((size_t)(pe + 1) * 2654435761u + i * 40503u + it->bytes + it->what);
}

static uint32_t wanted(const struct scene *s, const struct item *it, size_t i)
{
	size_t n = block_of(s, it) / 4;

	switch (it->what) {
	case ALL_TO_ALL:
		return word(it, (int)(i / n), (size_t)s->r.pe * n + i % n);
	case PERMUTE:
		return word(it, s->r.prev, i);
	case BROADCAST:
		return word(it, s->r.n - 1, i);
	default:
		return word(it, (int)(i / n), i % n);
	}
}

static int prepare(struct scene *s, const struct item *it)
{
	bool blocks = it->what == ALL_TO_ALL;
	size_t bytes = blocks ? it->bytes : block_of(s, it);

	TRY(rank_fill(&s->r, s->dst, 0xb6, it->bytes));
	for (size_t i = 0; i < bytes / 4; i++)
		s->host[i] = word(it, s->r.pe, i);
	TRY(rank_write(&s->r, (void *)(uintptr_t)given(s, it), s->host, bytes));
	REQUIRE_OK(spmt_barrier(s->r.comm));
	return 0;
}

static int check(struct scene *s, const struct item *it)
{
	TRY(rank_read(&s->r, s->host, s->dst, it->bytes / 4 * 4));
	for (size_t i = 0; i < it->bytes / 4 / (size_t)s->r.n * (size_t)s->r.n; i++)
		if (s->host[i] != wanted(s, it, i))
			return ranks_fail("%s of %zu bytes: word %zu is %#x, not %#x",
				names[it->what], it->bytes, i, s->host[i], wanted(s, it, i));
	return 0;
}

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Microseconds a call, the median of some runs; after one that is not timed. */
static int timed(struct scene *s, const struct item *it, double *us)
{
	int calls = (int)gpu_number(CALLS, 3);
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

/* ---- a full device ------------------------------------------------------------------------------------------ */

/* More blocks than fit: the rest stands in front of whatever else would run. */
static int device_fill(struct scene *s)
{
	struct device_desc desc = { .units = 1 };
	unsigned least, seen = 0;

	REQUIRE_OK(s->r.b->describe(s->r.dev, &desc));
	least = gpu_host() ? 1 : (unsigned)desc.units;
	TRY(busy_clear(&s->busy));
	TRY(busy_begin(&s->busy, (unsigned)desc.units * BLOCKS_A_UNIT));
	for (int i = 0; i < 500 && (seen < least || i < 30); i++) {
		sleep_ms(10);
		seen = busy_seen(&s->busy);
	}
	REQUIRE(seen >= least);
	REQUIRE(gpu_host() || seen < (unsigned)desc.units * BLOCKS_A_UNIT);
	if (!s->r.pe && !gpu_host())
		printf("# %u blocks of %d threads keep %d multiprocessors\n", seen, BUSY_THREADS,
			desc.units);
	REQUIRE_OK(spmt_barrier(s->r.comm));
	return 0;
}

/* ---- scenes --------------------------------------------------------------------------------------------------- */

static int scene_open(struct scene *s, spmt_comm *comm, size_t most)
{
	void *p;

	memset(s, 0, sizeof(*s));
	TRY(rank_open(&s->r, comm));
	s->most = most;
	REQUIRE_OK(spmt_malloc(comm, most, &p));
	s->src = p;
	REQUIRE_OK(spmt_malloc(comm, most, &p));
	s->dst = p;
	s->host = malloc(most);
	REQUIRE(s->host);
	return busy_open(&s->busy, &s->r);
}

static int scene_close(struct scene *s)
{
	REQUIRE_OK(spmt_barrier(s->r.comm));
	busy_close(&s->busy);
	free(s->host);
	rank_close(&s->r);
	return 0;
}

static size_t most_of(void)
{
	return gpu_number((size_t)256 << 20, (size_t)1 << 20);
}

static int alone(spmt_comm *comm, void *arg)
{
	const char *row = getenv("SPMT_COLL");
	struct scene s;
	double us;

	(void)arg;
	TRY(scene_open(&s, comm, most_of()));
	for (int what = 0; what < WHATS; what++)
		for (size_t bytes = gpu_number((size_t)LEAST_MIB << 20, most_of()); bytes <= s.most;
			bytes *= 2) {
			struct item it = { (enum what)what, bytes };

			TRY(prepare(&s, &it));
			REQUIRE_OK(call(&s, &it));
			TRY(rank_sync(&s.r));
			TRY(check(&s, &it));
			TRY(timed(&s, &it, &us));
			TRY(check(&s, &it));
			if (!s.r.pe && !gpu_host())
				printf("# %s of %zu MiB by row %s: %.1f us\n", names[what],
					bytes >> 20, row ? row : "as chosen", us);
		}
	return scene_close(&s);
}

/* What a rank gives itself is a copy within its device, which NVIDIA's driver makes by a kernel, whatever call asks for it. */
static bool copies_within(enum what what)
{
	return what != ALL_GATHER_IN_PLACE && what != PERMUTE;
}

/* The first call makes what the row needs: not beside the kernel, as drivers may wait for a device then. */
static int beside(spmt_comm *comm, void *arg)
{
	struct scene s;

	(void)arg;
	TRY(scene_open(&s, comm, most_of()));
	for (int what = 0; what < WHATS; what++) {
		struct item it = { (enum what)what, s.most };
		double by_itself, full;
		int rc;

		if (copies_within(it.what) && !gpu_host())
			continue;
		TRY(prepare(&s, &it));
		TRY(timed(&s, &it, &by_itself));
		TRY(prepare(&s, &it));
		TRY(device_fill(&s));
		rc = timed(&s, &it, &full);
		if (!rc)
			rc = check(&s, &it); /* while the device is full */
		if (!rc)
			rc = spmt_barrier(comm);
		TRY(busy_end(&s.busy));
		TRY(rc);
		if (!s.r.pe && !gpu_host())
			printf("# %s of %zu MiB by row engine: %.1f us alone, %.1f beside a full device (%.3f)\n",
				names[what], it.bytes >> 20, by_itself, full, full / by_itself);
	}
	return scene_close(&s);
}

/* A sum is by kernels, whatever SPMT_COLL says: it does not begin while the device is full. */
static int kernels_stand(spmt_comm *comm, void *arg)
{
	const size_t n = gpu_number((size_t)16 << 20, 4096) / 4;
	struct scene s;
	int done;

	(void)arg;
	TRY(scene_open(&s, comm, most_of()));
	TRY(rank_fill(&s.r, s.src, 1, 4 * n));
	REQUIRE_OK(spmt_all_reduce(comm, s.dst, s.src, n, SPMT_TYPE_U32, SPMT_OP_SUM, s.r.stream));
	TRY(rank_sync(&s.r));
	TRY(device_fill(&s));
	REQUIRE_OK(spmt_all_reduce(comm, s.dst, s.src, n, SPMT_TYPE_U32, SPMT_OP_SUM, s.r.stream));
	sleep_ms(200);
	done = s.r.b->stream_query(s.r.dev, s.r.stream);
	REQUIRE_OK(spmt_barrier_on_stream(comm, s.r.stream));
	TRY(busy_end(&s.busy));
	TRY(rank_sync(&s.r));
	REQUIRE(gpu_host() || !done);
	TRY(rank_read(&s.r, s.host, s.dst, 4 * n));
	for (size_t i = 0; i < n; i++)
		REQUIRE_EQ(s.host[i], 0x01010101u * (uint32_t)s.r.n);
	if (!s.r.pe && !gpu_host())
		printf("# an all_reduce had not begun after 200 ms beside a full device\n");
	return scene_close(&s);
}

static int run_alone(int n)
{
	return gpu_run(n, 3 * most_of(), alone, NULL);
}

static int run_beside(int n)
{
	return by_engine() ? gpu_run(n, 3 * most_of(), beside, NULL) : GPU_SKIP;
}

static int run_kernels(int n)
{
	return by_engine() ? gpu_run(n, 3 * most_of(), kernels_stand, NULL) : GPU_SKIP;
}

static const struct gpu_test tests[] = { { "engine_alone", run_alone, 2 },
	{ "engine_beside_a_full_device", run_beside, 2 },
	{ "engine_beside_which_kernels_stand", run_kernels, 2 } };
static const struct test_kernel *const kernels[] = { &test_fills, NULL };

int main(int argc, char **argv)
{
	setenv("SPMT_COLL", "engine", 0);
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
