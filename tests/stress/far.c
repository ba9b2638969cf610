/* SPDX-License-Identifier: MIT */
/*
 * Collectives between nodes, which processes are here (tests/lib/transports/parcel.h): right at every size at which another way
 * begins, the same bits on all ranks; and how long they take, as comments of the TAP output. far [LAYOUT [BYTES..]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/base.h"
#include "src/base/process.h"
#include "tests/lib/processes.h"
#include "tests/lib/tap.h"

enum { MOST_RANKS = 16, SIZES_MOST = 8, PATIENCE = 120 };
enum { DENSE = 3000, SPARSE = 17 }; /* elements that are looked at: all at first, then some */

enum way { BARRIER, ALL_REDUCE, ALL_GATHER, BROADCAST, REDUCE, PERMUTE, SCATTER, GATHER, WAYS };

static const char *const names[WAYS] = { "barrier", "all_reduce", "all_gather", "broadcast",
	"reduce", "permute", "scatter", "gather" };

/* Shared by the processes. */
struct scene {
	size_t sizes[SIZES_MOST];
	int nsizes, rounds;
	double us[WAYS][SIZES_MOST];
};

/* So that sums round, each in another way in another order. */
static float element(int rank, size_t i)
{
	uint64_t x = ((uint64_t)rank * 1000003 + i + 1) * 0x9e3779b97f4a7c15u;

	return (float)(x >> 40) / (float)(1 << (x >> 8 & 15));
}

static float summed(int n, size_t i)
{
	float sum = element(0, i);

	for (int r = 1; r < n; r++)
		sum += element(r, i);
	return sum;
}

/* What element i of dst has to be. */
static float want(enum way way, int me, int n, size_t count, size_t i)
{
	switch (way) {
	case ALL_GATHER:
	case GATHER:
		return element((int)(i / count), i % count);
	case BROADCAST:
		return element(n - 1, i);
	case PERMUTE:
		return element((me + n - 1) % n, i);
	case SCATTER:
		return element(n - 1, (size_t)me * count + i);
	default:
		return summed(n, i);
	}
}

static int call(spmt_comm *comm, enum way way, float *dst, const float *src, size_t count)
{
	int n = spmt_nranks(comm), to[MOST_RANKS];

	for (int r = 0; r < n; r++)
		to[r] = (r + 1) % n;
	switch (way) {
	case BARRIER:
		return spmt_barrier_on_stream(comm, NULL);
	case ALL_REDUCE:
		return spmt_all_reduce(comm, dst, src, count, SPMT_TYPE_F32, SPMT_OP_SUM, NULL);
	case ALL_GATHER:
		return spmt_all_gather(comm, dst, src, count, SPMT_TYPE_F32, NULL);
	case BROADCAST:
		return spmt_broadcast(comm, dst, src, count, SPMT_TYPE_F32, n - 1, NULL);
	case REDUCE:
		return spmt_reduce(comm, dst, src, count, SPMT_TYPE_F32, SPMT_OP_SUM, n - 1, NULL);
	case PERMUTE:
		return spmt_permute(comm, dst, src, count, SPMT_TYPE_F32, to, NULL);
	case SCATTER:
		return spmt_scatter(comm, dst, src, count, SPMT_TYPE_F32, n - 1, NULL);
	default:
		return spmt_gather(comm, dst, src, count, SPMT_TYPE_F32, n - 1, NULL);
	}
}

static size_t blocks_of(enum way way, int n)
{
	return way == ALL_GATHER || way == GATHER ? (size_t)n : 1;
}

static int check(spmt_comm *comm, enum way way, const float *dst, size_t count)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);

	if (way == BARRIER || ((way == REDUCE || way == GATHER) && me != n - 1))
		return 0;
	for (size_t i = 0; i < count * blocks_of(way, n); i += i % count < DENSE ? 1 : SPARSE) {
		float x = want(way, me, n, count, i);

		if (memcmp(&x, dst + i, sizeof(x)) != 0)
			return ranks_fail("%s of %zu: rank %d of %d: element %zu is %g, not %g",
				names[way], count, me, n, i, (double)dst[i], (double)x);
	}
	return 0;
}

static int one(spmt_comm *comm, struct scene *s, enum way way, int size)
{
	size_t n = (size_t)spmt_nranks(comm), count = s->sizes[size] / sizeof(float);
	float *dst = calloc(count * n, sizeof(float)), *src = calloc(count * n, sizeof(float));
	int64_t begin;
	int code = 0;

	REQUIRE(dst && src);
	for (size_t i = 0; i < count * n; i++)
		src[i] = element(spmt_rank(comm), i);
	REQUIRE_OK(spmt_barrier(comm));
	begin = process_now();
	for (int i = 0; i < s->rounds && !code; i++) {
		code = call(comm, way, dst, src, count);
		if (!code)
			code = spmt_quiet(comm);
	}
	REQUIRE_OK(code);
	if (!spmt_rank(comm))
		s->us[way][size] = (double)(process_now() - begin) / 1e3 / s->rounds;
	code = check(comm, way, dst, count);
	free(dst);
	free(src);
	return code;
}

static int everything(spmt_comm *comm, void *arg)
{
	struct scene *s = arg;

	for (enum way way = BARRIER; way < WAYS; way++)
		for (int i = 0; i < (way == BARRIER ? 1 : s->nsizes); i++)
			TRY(one(comm, s, way, i));
	return 0;
}

/* Parts have smaller stages; their ranks are others of each node. */
static int in_parts(spmt_comm *comm, void *arg)
{
	const struct scene *s = arg;
	struct scene some = { .sizes = { s->sizes[1], s->sizes[3] }, .nsizes = 2, .rounds = 1 };
	spmt_comm *part;

	REQUIRE_OK(spmt_split(comm, spmt_rank(comm) % 3 > 0, -spmt_rank(comm), &part));
	TRY(everything(part, &some));
	return spmt_finalize(part);
}

static void figures(const struct scene *s)
{
	for (enum way way = BARRIER; way < WAYS; way++)
		for (int i = 0; i < (way == BARRIER ? 1 : s->nsizes); i++)
			printf("# %s of %zu bytes: %.0f us\n", names[way], way ? s->sizes[i] : 0,
				s->us[way][i]);
}

static int world(const char *layout, int (*fn)(spmt_comm *comm, void *arg), struct scene *s)
{
	struct processes p = { .layout = layout, .seconds = PATIENCE };

	return processes_world(&p, fn, s);
}

static int figures_of(int argc, char **argv, struct scene *s)
{
	s->nsizes = 0;
	for (int i = 2; i < argc && s->nsizes < SIZES_MOST; i++)
		s->sizes[s->nsizes++] = strtoull(argv[i], NULL, 10);
	s->rounds = 20;
	return tap_report(1, world(argv[1], everything, s), "%s", argv[1]);
}

int main(int argc, char **argv)
{
	static const char *const layouts[] = { "0,1|2,3|4,5|6,7", "0,1,2|3|4,5", "2,0|1" };
	static const size_t sizes[] = { 4, 70000, 8192, 300000 };
	struct scene *s = processes_shared(sizeof(*s));
	int bad = 0, number = 0;

	/* A machine that stands still is no node that vanishes. */
	if (!s || setenv("SPMT_SOCKET_IFNAME", "lo", 1) || setenv("SPMT_TIMEOUT_MS", "60000", 1) ||
		setenv("SPMT_SOCKET_LOST_MS", "60000", 1))
		return 2;
	memcpy(s->sizes, sizes, sizeof(sizes));
	s->nsizes = 3;
	s->rounds = 1;
	setvbuf(stdout, NULL, _IONBF, 0);
	printf("1..%d\n", argc > 1 ? 1 : 6);
	if (argc > 1) {
		bad = figures_of(argc, argv, s);
		figures(s);
		return bad;
	}
	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
		bad |= tap_report(
			++number, world(layouts[i], everything, s), "nodes of %s", layouts[i]);
		bad |= tap_report(
			++number, world(layouts[i], in_parts, s), "parts of %s", layouts[i]);
	}
	return bad;
}
