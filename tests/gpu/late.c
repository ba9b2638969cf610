/* SPDX-License-Identifier: MIT */
/*
 * What others get of a device while a rank is late: behind a small call that waits for it, of which a large one stands in the same stream, half
 * of the multiprocessors are free for a kernel of another stream, and all its blocks run at once. The late rank comes when they do.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "busy.h"
#include "kernels/fills.h"

enum { SMALL = 2, LATE_MS = 60000 };

static const char *const small[] = { "a barrier", "a sum of 8 bytes" };
static const struct {
	size_t bytes, on_host;
	bool sums;
} large[] = { { 1 << 20, 1 << 16, true }, { 64 << 20, 1 << 16, true },
	{ 64 << 20, 1 << 16, false } };
enum { LARGE = sizeof(large) / sizeof(large[0]) };

struct scene {
	struct rank r;
	char *src, *dst; /* symmetric */
	uint32_t *host;
	struct busy busy;
	unsigned blocks; /* of its kernel */
};

static size_t bytes_of(int i)
{
	return gpu_number(large[i].bytes, large[i].on_host);
}

/* What all_gather makes of as many. */
static size_t most_of(int n)
{
	size_t most = 0;

	for (int i = 0; i < LARGE; i++)
		most = bytes_of(i) > most ? bytes_of(i) : most;
	return most * (size_t)n;
}

/* ---- the calls --------------------------------------------------------------------------------------------- */

static int call_small(struct scene *s, int which)
{
	if (!which)
		return spmt_barrier_on_stream(s->r.comm, s->r.stream);
	return spmt_all_reduce(
		s->r.comm, s->dst, s->src, 2, SPMT_TYPE_U32, SPMT_OP_SUM, s->r.stream);
}

static int call_large(struct scene *s, int which)
{
	size_t n = bytes_of(which) / 4;

	if (large[which].sums)
		return spmt_all_reduce(
			s->r.comm, s->dst, s->src, n, SPMT_TYPE_U32, SPMT_OP_SUM, s->r.stream);
	return spmt_all_gather(s->r.comm, s->dst, s->src, n, SPMT_TYPE_U32, s->r.stream);
}

/* Each rank gives its number, from 1 on, in every byte. */
static int check(struct scene *s, int which)
{
	size_t n = bytes_of(which) / 4, all = large[which].sums ? n : n * (size_t)s->r.n;
	uint32_t sum = (uint32_t)(s->r.n * (s->r.n + 1) / 2);

	TRY(rank_read(&s->r, s->host, s->dst, 4 * all));
	for (size_t i = 0; i < all; i++)
		REQUIRE_EQ(s->host[i],
			0x01010101u * (large[which].sums ? sum : (uint32_t)(i / n) + 1));
	return 0;
}

/* ---- the scene ------------------------------------------------------------------------------------------------- */

static int scene_open(struct scene *s, spmt_comm *comm)
{
	size_t most = most_of(spmt_nranks(comm));
	struct device_desc desc = { .units = 2 };
	void *p;

	memset(s, 0, sizeof(*s));
	TRY(rank_open(&s->r, comm));
	REQUIRE_OK(spmt_malloc(comm, most, &p));
	s->src = p;
	REQUIRE_OK(spmt_malloc(comm, most, &p));
	s->dst = p;
	s->host = malloc(most);
	REQUIRE(s->host);
	REQUIRE_OK(s->r.b->describe(s->r.dev, &desc));
	s->blocks = gpu_host() ? 1 : (unsigned)desc.units / 2;
	TRY(busy_open(&s->busy, &s->r));
	return rank_fill(&s->r, s->src, s->r.pe + 1, most);
}

static int scene_close(struct scene *s)
{
	REQUIRE_OK(spmt_barrier(s->r.comm));
	busy_close(&s->busy);
	free(s->host);
	rank_close(&s->r);
	return 0;
}

/* How many ranks have their kernel's blocks running, or have seen that they do not; so far. */
static _Atomic int through;

static void until_through(int n)
{
	for (int64_t begin = now_ns();
		atomic_load(&through) < n && now_ns() - begin < LATE_MS * 1000000ll;)
		sleep_ms(1);
}

static int beside(struct scene *s, int first, int then)
{
	unsigned seen = 0;
	int rc;

	TRY(call_small(s, first));
	TRY(call_large(s, then));
	sleep_ms(gpu_host() ? 1 : 50); /* it has begun, if it does */
	rc = busy_begin(&s->busy, s->blocks);
	for (int i = 0; !rc && i < 2000 && seen < s->blocks; i++) {
		sleep_ms(1);
		seen = busy_seen(&s->busy);
	}
	atomic_fetch_add(&through, 1);
	TRY(rc);
	TRY(busy_end(&s->busy));
	if (seen < s->blocks)
		return ranks_fail("%u of %u blocks ran behind %s and %s of %zu bytes", seen,
			s->blocks, small[first], large[then].sums ? "a sum" : "copies",
			bytes_of(then));
	return 0;
}

/* The first calls make what the rows need: not beside the kernel, as drivers may wait for a device then. */
static int late(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm), turns = 0, rc;
	struct scene s;

	(void)arg;
	TRY(scene_open(&s, comm));
	for (int first = 0; first < SMALL; first++) {
		for (int then = 0; then < LARGE; then++) {
			TRY(call_small(&s, first));
			TRY(call_large(&s, then));
			TRY(rank_sync(&s.r));
			TRY(busy_clear(&s.busy));
			TRY(rank_fill(&s.r, s.dst, 0xb6, bytes_of(then)));
			REQUIRE_OK(spmt_barrier(comm));
			turns++;
			if (s.r.pe < n - 1) {
				rc = beside(&s, first, then);
			} else {
				until_through(turns * (n - 1));
				rc = call_small(&s, first);
				rc = rc ? rc : call_large(&s, then);
			}
			TRY(rc);
			TRY(rank_sync(&s.r));
			TRY(check(&s, then));
		}
	}
	return scene_close(&s);
}

static int run_late(int n)
{
	atomic_store(&through, 0);
	return gpu_run(n, 3 * most_of(n), late, NULL);
}

static const struct gpu_test tests[] = { { "late_and_others_compute", run_late, 2 } };
static const struct test_kernel *const kernels[] = { &test_fills, NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
