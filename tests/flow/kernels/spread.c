/* SPDX-License-Identifier: MIT */
/*
 * SPMT_COLL=spread: an all_reduce whose parts a kernel folds, each at its rank, and copy engines bring to all. Here: every small size, wherever
 * buffers begin, in place and not; ranks that are late, calls that differ, captures, and copies that are refused behind the kernel.
 * flow-coll_algorithms has it among all rows.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fault.h"
#include "tests/lib/ranks.h"

enum { SMALL = 200, ROOM = 32, LARGE = 100000, RANKS = 4 };

static void by_name(void)
{
	setenv("SPMT_COLL", "spread", 1);
	setenv("SPMT_HOST_DEVICES", "16", 0);
}

static uint8_t byte_of(int rank, size_t i)
{
	return (uint8_t)(rank * 50 + (int)(i * 7 % 11) + 1);
}

static uint8_t sum_of(int n, size_t i)
{
	unsigned sum = 0;

	for (int r = 0; r < n; r++)
		sum += byte_of(r, i);
	return (uint8_t)sum;
}

/* ---- results ------------------------------------------------------------------------------------------------------------- */

struct place {
	size_t src, dst; /* where they begin, in their buffers */
	bool in_place;
};

/* SMALL + ROOM bytes each. */
struct bytes {
	uint8_t *src, *dst;
};

static int bytes_open(spmt_comm *comm, struct bytes *b)
{
	REQUIRE_OK(spmt_calloc(comm, SMALL + 2 * ROOM, 1, (void **)&b->src));
	return spmt_calloc(comm, SMALL + 2 * ROOM, 1, (void **)&b->dst);
}

static int sum_at(spmt_comm *comm, const struct bytes *b, struct place at, size_t count)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	uint8_t *src = b->src + at.src, *dst = at.in_place ? src : b->dst + at.dst;
	size_t wrong = 0;

	memset(b->dst, 0xee, SMALL + 2 * ROOM);
	memset(b->src, 0xee, SMALL + 2 * ROOM);
	for (size_t i = 0; i < count; i++)
		src[i] = byte_of(me, i);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_all_reduce(comm, dst, src, count, SPMT_TYPE_U8, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	for (size_t i = 0; i < count; i++)
		wrong += dst[i] != sum_of(n, i);
	REQUIRE_EQ(wrong, 0);
	REQUIRE_EQ(dst[count], 0xee);
	if (dst > (at.in_place ? b->src : b->dst))
		REQUIRE_EQ(dst[-1], 0xee);
	return spmt_barrier(comm);
}

/* Buffers of all ranks begin alike, or each elsewhere. */
static int every_size(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm);
	struct bytes b;

	(void)arg;
	TRY(bytes_open(comm, &b));
	for (size_t count = 0; count <= SMALL; count += count < 70 ? 1 : 13)
		for (size_t head = 0; head < 16; head += 5)
			for (int way = 0; way < 4; way++) {
				size_t own = way & 1 ? (size_t)me * 3 : 0;
				struct place at = { (head + own) % 16, (head * 3 + own) % 16,
					way & 2 };

				TRY(sum_at(comm, &b, at, count));
			}
	return 0;
}

Test(spread, every_size_wherever_it_begins)
{
	NEEDS_HOST("the CPU looks at the heap");
	by_name();
	for (int n = 1; n <= RANKS; n++)
		RANKS_OK(ranks_run(n, NULL, every_size, NULL));
}

/* Of an op with factors and of others, by many blocks. */
static int large(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	float *src, *dst, factor = (float)(me + 1);
	spmt_stream stream;
	size_t wrong = 0;
	enum spmt_op op;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, LARGE, sizeof(*src), (void **)&src));
	REQUIRE_OK(spmt_calloc(comm, LARGE, sizeof(*dst), (void **)&dst));
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(spmt_op_premul_create(comm, SPMT_TYPE_F32, &factor, SPMT_SCALAR_HOST, &op));
	for (size_t i = 0; i < LARGE; i++)
		src[i] = (float)(i % 1000);
	REQUIRE_OK(spmt_barrier(comm));
	for (int round = 0; round < 10; round++) {
		REQUIRE_OK(spmt_all_reduce(comm, dst, src, LARGE, SPMT_TYPE_F32, op, stream));
		REQUIRE_OK(
			spmt_all_reduce(comm, dst, dst, LARGE, SPMT_TYPE_F32, SPMT_OP_MAX, stream));
	}
	REQUIRE_OK(spmt_quiet(comm));
	for (size_t i = 0; i < LARGE; i++)
		wrong += dst[i] != (float)(i % 1000) * (float)(n * (n + 1) / 2);
	REQUIRE_EQ(wrong, 0);
	REQUIRE_OK(spmt_op_destroy(comm, op));
	return stream_end(comm, stream);
}

Test(spread, large_ones_behind_each_other)
{
	NEEDS_HOST("the CPU looks at the heap");
	by_name();
	RANKS_OK(ranks_run(3, NULL, large, NULL));
}

/* ---- failures ------------------------------------------------------------------------------------------------------------ */

static int words_open(spmt_comm *comm, uint64_t **dst, uint64_t **src)
{
	REQUIRE_OK(spmt_calloc(comm, LARGE, sizeof(**dst), (void **)dst));
	REQUIRE_OK(spmt_calloc(comm, LARGE, sizeof(**src), (void **)src));
	for (size_t i = 0; i < LARGE; i++)
		(*src)[i] = (uint64_t)(spmt_rank(comm) + 1) * i;
	return spmt_barrier(comm);
}

/* n: the ranks that have given; 0: dst is as it was. */
static int words_are(const uint64_t *dst, int n)
{
	size_t wrong = 0;

	for (size_t i = 0; i < LARGE; i++)
		wrong += dst[i] != (uint64_t)(n * (n + 1) / 2) * i;
	REQUIRE_EQ(wrong, 0);
	return 0;
}

/* What differs is told to all by the kernel, before anything moves; the copies do not, either, and the next call is right. */
static int counts_differ(spmt_comm *comm, void *arg)
{
	uint64_t *dst, *src;

	(void)arg;
	TRY(words_open(comm, &dst, &src));
	for (int i = 0; i < 3; i++) {
		memset(dst, 0, LARGE * sizeof(*dst));
		REQUIRE_OK(spmt_barrier(comm));
		REQUIRE_OK(spmt_all_reduce(comm, dst, src, (size_t)(LARGE - (spmt_rank(comm) == 1)),
			SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_MISMATCH);
		REQUIRE_SAYS("spmt_all_reduce: count differs: rank ");
		TRY(words_are(dst, 0));
		REQUIRE_OK(
			spmt_all_reduce(comm, dst, src, LARGE, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		TRY(words_are(dst, spmt_nranks(comm)));
	}
	return 0;
}

Test(spread, calls_that_differ)
{
	NEEDS_HOST("the CPU looks at the heap");
	by_name();
	RANKS_OK(ranks_run(3, NULL, counts_differ, NULL));
}

/* The last rank comes when the others have been told. */
static int one_is_late(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm), me = spmt_rank(comm);
	uint64_t *dst, *src;

	(void)arg;
	TRY(words_open(comm, &dst, &src));
	REQUIRE_OK(spmt_set_timeout(comm, 300));
	if (me == n - 1) {
		sleep_ms(1500);
		REQUIRE(spmt_all_reduce(comm, dst, src, LARGE, SPMT_TYPE_U64, SPMT_OP_SUM, NULL) <
			0);
	} else {
		REQUIRE_OK(
			spmt_all_reduce(comm, dst, src, LARGE, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS(n == 2 ? "1 of 2 ranks missing" : "1 of 3 ranks missing");
		sleep_ms(1500);
	}
	return words_are(dst, 0);
}

Test(spread, a_rank_that_calls_late)
{
	NEEDS_HOST("the CPU looks at the heap");
	by_name();
	for (int n = 2; n <= 3; n++)
		RANKS_OK(ranks_run(n, NULL, one_is_late, NULL));
}

/* The kernel is queued, and its copies cannot be: nobody takes what is there for a result. */
static int refused(spmt_comm *comm, void *arg)
{
	uint64_t *dst, *src;
	spmt_stream stream;
	int rc;

	(void)arg;
	TRY(words_open(comm, &dst, &src));
	REQUIRE_OK(spmt_set_timeout(comm, 20000));
	REQUIRE_OK(stream_make(comm, &stream));
	/* the stream's thread is there by then */
	REQUIRE_OK(spmt_broadcast(comm, dst, dst, LARGE, SPMT_TYPE_U64, 0, stream));
	REQUIRE_OK(stream_wait(comm, stream));
	REQUIRE_OK(spmt_barrier(comm));
	if (!spmt_rank(comm))
		fault_arm(1u << FAULT_THREAD, 1);
	REQUIRE_OK(spmt_barrier(comm));
	rc = spmt_all_reduce(comm, dst, src, LARGE, SPMT_TYPE_U64, SPMT_OP_SUM, stream);
	if (rc && rc != SPMT_ERR_BROKEN)
		REQUIRE_SAYS("no thread that has copy engines move");
	stream_wait(comm, stream);
	REQUIRE(spmt_quiet(comm) < 0);
	REQUIRE_SAYS("no thread that has copy engines move");
	REQUIRE(spmt_status(comm) < 0);
	return stream_end(comm, stream);
}

Test(spread, copies_that_are_refused_break_the_comm)
{
	NEEDS_HOST("its threads");
	by_name();
	RANKS_OK(ranks_run(2, NULL, refused, NULL));
	cr_assert(fault_fired());
	fault_disarm();
}

/* ---- captures take another row ------------------------------------------------------------------------------------------- */

static int in_graphs(spmt_comm *comm, void *arg)
{
	uint64_t *dst, *src;
	spmt_host_graph *graph;
	spmt_stream stream;

	(void)arg;
	TRY(words_open(comm, &dst, &src));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_host_graph_begin(stream));
	REQUIRE_OK(spmt_all_reduce(comm, dst, src, LARGE, SPMT_TYPE_U64, SPMT_OP_SUM, stream));
	REQUIRE_OK(spmt_host_graph_end(stream, &graph));
	for (int i = 0; i < 10; i++) {
		memset(dst, 0, LARGE * sizeof(*dst));
		if (i & 1)
			REQUIRE_OK(spmt_host_graph_launch(graph, stream));
		else
			REQUIRE_OK(spmt_all_reduce(
				comm, dst, src, LARGE, SPMT_TYPE_U64, SPMT_OP_SUM, stream));
		REQUIRE_OK(spmt_host_stream_synchronize(stream));
		TRY(words_are(dst, spmt_nranks(comm)));
		REQUIRE_OK(spmt_barrier(comm));
	}
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_host_stream_destroy(stream);
}

Test(spread, between_replays_of_a_graph)
{
	NEEDS_HOST("its graphs");
	by_name();
	RANKS_OK(ranks_run(3, NULL, in_graphs, NULL));
}

/* The last rank's kernel, of another row, stores to all what it folds, and waits for no copies: it would take its dst for the sum. */
static int one_captures(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm), captures = spmt_rank(comm) == n - 1;
	uint64_t *dst, *src;
	spmt_host_graph *graph;
	spmt_stream stream;

	(void)arg;
	TRY(words_open(comm, &dst, &src));
	REQUIRE_OK(spmt_set_timeout(comm, 500));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	if (captures)
		REQUIRE_OK(spmt_host_graph_begin(stream));
	REQUIRE_OK(spmt_all_reduce(comm, dst, src, LARGE, SPMT_TYPE_U64, SPMT_OP_SUM, stream));
	if (captures) {
		REQUIRE_OK(spmt_host_graph_end(stream, &graph));
		REQUIRE_OK(spmt_host_graph_launch(graph, stream));
	}
	spmt_host_stream_synchronize(stream);
	REQUIRE(spmt_quiet(comm) < 0);
	TRY(words_are(dst, 0));
	sleep_ms(1500);
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("what is captured into a graph does not meet what is not");
	if (captures)
		REQUIRE_OK(spmt_host_graph_destroy(graph));
	return spmt_host_stream_destroy(stream);
}

Test(spread, a_rank_that_captures_beside_ranks_that_do_not)
{
	NEEDS_HOST("its graphs");
	by_name();
	for (int n = 2; n <= 3; n++)
		RANKS_OK(ranks_run(n, NULL, one_captures, NULL));
}
