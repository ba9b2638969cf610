/* SPDX-License-Identifier: MIT */
/*
 * SPMT_COLL=engine: collectives that move data by copy engines alone, with no kernel. Here: one thread that calls for each rank in turn, large
 * ones beside kernels that keep their threads, late ranks, calls that differ from a kernel's, captures, ends. flow-coll_algorithms has the
 * results; flow-collectives, flow-kinds and flow-told run with it as well.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/every_call.h"
#include "tests/lib/processes.h"

enum { LARGE = 30000, RANKS = 4, BESIDE = 8 };

struct buffers {
	uint64_t *dst, *src; /* symmetric */
	size_t blocks;
};

static int open_buffers(spmt_comm *comm, struct buffers *b)
{
	int me = spmt_rank(comm);

	b->blocks = (size_t)spmt_nranks(comm) * LARGE;
	REQUIRE_OK(spmt_calloc(comm, b->blocks, 8, (void **)&b->dst));
	REQUIRE_OK(spmt_calloc(comm, b->blocks, 8, (void **)&b->src));
	for (size_t i = 0; i < b->blocks; i++)
		b->src[i] = every_call_given(me, i);
	return spmt_barrier(comm);
}

static int all_there(spmt_comm *comm, const struct buffers *b, enum kernel_collective_kind kind)
{
	size_t wrong = 0;

	for (size_t i = 0; i < b->blocks; i++)
		wrong += b->dst[i] !=
			every_call_collected(kind, spmt_rank(comm), spmt_nranks(comm), LARGE, i);
	REQUIRE_EQ(wrong, 0);
	return 0;
}

static int untouched(const struct buffers *b)
{
	size_t wrong = 0;

	for (size_t i = 0; i < b->blocks; i++)
		wrong += b->dst[i] != 0;
	REQUIRE_EQ(wrong, 0);
	return 0;
}

/* Buffers are looked at by the CPU. */
#define NEEDS_PLAIN_MEMORY()                               \
	do {                                               \
		if (!on_host() && opening_s())             \
			cr_skip_test("tests/gpu: engine"); \
	} while (0)

static void by_engines(void)
{
	setenv("SPMT_COLL", "engine", 1);
	setenv("SPMT_HOST_DEVICES", "16", 0);
}

/* ---- a thread for all ranks ---------------------------------------------------------------------------------------------- */

static struct together {
	struct buffers b[RANKS];
	spmt_comm *comm[RANKS];
	spmt_stream stream[RANKS];
	_Atomic int here, gone;
} together;

static void until(_Atomic int *what, int n)
{
	for (int64_t begin = now_ns(); atomic_load(what) < n && now_ns() - begin < 20000000000;)
		sleep_ms(1);
}

/* Rank 0's thread queues everybody's calls, each rank's two in turn; no call waits for another one. */
static int for_each(spmt_comm *comm, void *arg)
{
	struct together *t = &together;
	int me = spmt_rank(comm);

	(void)arg;
	TRY(open_buffers(comm, &t->b[me]));
	REQUIRE_OK(spmt_host_stream_create(comm, &t->stream[me]));
	t->comm[me] = comm;
	atomic_fetch_add(&t->here, 1);
	until(&t->here, RANKS);
	for (int r = 0; !me && r < RANKS; r++) {
		struct buffers *b = &t->b[r];

		REQUIRE_OK(spmt_all_to_all(
			t->comm[r], b->dst, b->src, LARGE, SPMT_TYPE_U64, t->stream[r]));
		REQUIRE_OK(spmt_all_gather(
			t->comm[r], b->dst, b->src, LARGE, SPMT_TYPE_U64, t->stream[r]));
	}
	for (int r = 0; !me && r < RANKS; r++)
		REQUIRE_OK(spmt_host_stream_synchronize(t->stream[r]));
	atomic_fetch_add(&t->gone, !me);
	until(&t->gone, 1);
	TRY(all_there(comm, &t->b[me], COLL_ALL_GATHER));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_host_stream_destroy(t->stream[me]);
}

Test(engines, one_thread_calls_for_all)
{
	NEEDS_HOST("its streams");
	by_engines();
	RANKS_OK(ranks_run(RANKS, NULL, for_each, NULL));
}

/* ---- beside kernels ------------------------------------------------------------------------------------------------------ */

struct busy {
	_Atomic int *run, *end;
};

static void busy(void *args)
{
	const struct busy *b = args;

	atomic_fetch_add(b->run, 1);
	while (!atomic_load(b->end))
		;
}

static int beside_kernels(spmt_comm *comm, void *arg)
{
	_Atomic int run = 0, end = 0;
	struct busy b = { &run, &end };
	struct buffers buf;
	spmt_stream streams[BESIDE], own;
	int rc;

	(void)arg;
	TRY(open_buffers(comm, &buf));
	REQUIRE_OK(spmt_host_stream_create(comm, &own));
	for (int i = 0; i < BESIDE / spmt_nranks(comm); i++) {
		REQUIRE_OK(spmt_host_stream_create(comm, &streams[i]));
		REQUIRE_OK(spmt_host_launch(comm, streams[i], busy, &b, sizeof(b)));
	}
	rc = spmt_all_gather(comm, buf.dst, buf.src, LARGE, SPMT_TYPE_U64, own);
	if (!rc)
		rc = spmt_host_stream_synchronize(own);
	atomic_store(&end, 1);
	REQUIRE_OK(rc);
	for (int i = 0; i < BESIDE / spmt_nranks(comm); i++) {
		REQUIRE_OK(spmt_host_stream_synchronize(streams[i]));
		REQUIRE_OK(spmt_host_stream_destroy(streams[i]));
	}
	TRY(all_there(comm, &buf, COLL_ALL_GATHER));
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_host_stream_destroy(own);
}

Test(engines, beside_kernels_that_do_not_end)
{
	NEEDS_HOST("its kernels");
	by_engines();
	RANKS_OK(ranks_run(2, NULL, beside_kernels, NULL));
	RANKS_OK(ranks_run(RANKS, NULL, beside_kernels, NULL));
}

/* ---- late ---------------------------------------------------------------------------------------------------------------- */

struct late {
	bool stream; /* the rank has called, and its stream comes late; else it has not called */
	_Atomic int told, go;
};

static void gate(void *args)
{
	until(*(_Atomic int **)args, 1);
}

/* The last rank comes when the others have been told: their buffers are theirs again, and stay as they are. */
static int one_is_late(spmt_comm *comm, void *arg)
{
	struct late *l = arg;
	int n = spmt_nranks(comm), me = spmt_rank(comm);
	_Atomic int *go = &l->go;
	struct buffers b;
	spmt_stream stream;

	TRY(open_buffers(comm, &b));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_set_timeout(comm, me == n - 1 ? 20000 : 300));
	REQUIRE_OK(spmt_barrier(comm));
	if (me == n - 1 && l->stream)
		REQUIRE_OK(spmt_host_launch(comm, stream, gate, &go, sizeof(go)));
	if (me < n - 1 || l->stream)
		REQUIRE_OK(spmt_all_gather(comm, b.dst, b.src, LARGE, SPMT_TYPE_U64, stream));
	if (me < n - 1) {
		REQUIRE(spmt_host_stream_synchronize(stream) < 0);
		REQUIRE_SAYS(n == 2 ? "1 of 2 ranks missing after 0.3 s: 1"
				    : "1 of 3 ranks missing after 0.3 s: 2");
		REQUIRE(spmt_quiet(comm) < 0);
	}
	atomic_fetch_add(&l->told, 1);
	until(&l->told, me == n - 1 ? n : 1);
	REQUIRE(spmt_status(comm) < 0);
	if (me == n - 1) {
		atomic_store(&l->go, 1);
		REQUIRE(spmt_all_gather(comm, b.dst, b.src, LARGE, SPMT_TYPE_U64, stream) < 0);
		spmt_host_stream_synchronize(stream);
	}
	until(&l->go, 1);
	sleep_ms(30);
	TRY(untouched(&b));
	return spmt_host_stream_destroy(stream);
}

Test(engines, a_rank_that_calls_late)
{
	NEEDS_HOST("its streams");
	by_engines();
	for (int n = 2; n <= 3; n++) {
		struct late l = { .stream = false };

		RANKS_OK(ranks_run(n, NULL, one_is_late, &l));
	}
}

Test(engines, a_rank_whose_stream_comes_late)
{
	NEEDS_HOST("its streams");
	by_engines();
	for (int n = 2; n <= 3; n++) {
		struct late l = { .stream = true };

		RANKS_OK(ranks_run(n, NULL, one_is_late, &l));
	}
}

/* The rank ends with a call queued that nobody else makes. */
static int ends_early(spmt_comm *comm, void *arg)
{
	struct buffers b;

	(void)arg;
	TRY(open_buffers(comm, &b));
	REQUIRE_OK(spmt_set_timeout(comm, 300));
	REQUIRE_OK(spmt_barrier(comm));
	if (!spmt_rank(comm))
		REQUIRE_OK(spmt_broadcast(comm, b.dst, b.src, LARGE, SPMT_TYPE_U64, 0, NULL));
	return 0;
}

/* By the thread that ends the comm, which is to say so. */
static int finalized(int rank, void *arg)
{
	struct spmt_attr attr = ranks_attr(rank, 2, arg);
	spmt_comm *comm;
	int rc;

	REQUIRE_OK(spmt_init(&attr, &comm));
	rc = ends_early(comm, NULL);
	REQUIRE(spmt_finalize(comm) < 0);
	REQUIRE_SAYS("missing");
	return rc;
}

Test(engines, ends_with_a_call_that_others_never_make)
{
	struct processes p = { .layout = "0,1" };

	NEEDS_HOST("its time");
	by_engines();
	RANKS_OK(processes_run(&p, finalized, &p.uid[0]));
}

/* All have called: the end waits for what moves. */
static int ends_at_once(spmt_comm *comm, void *arg)
{
	struct buffers b;

	(void)arg;
	TRY(open_buffers(comm, &b));
	for (int i = 0; i < 20; i++)
		REQUIRE_OK(spmt_all_to_all(comm, b.dst, b.src, LARGE, SPMT_TYPE_U64, NULL));
	return 0;
}

Test(engines, ends_with_calls_in_its_stream)
{
	by_engines();
	NEEDS_PLAIN_MEMORY();
	for (int i = 0; i < 5; i++)
		RANKS_OK(ranks_run(ranks_here(3), NULL, ends_at_once, NULL));
}

static int aborted(spmt_comm *comm, void *arg)
{
	struct buffers b;
	spmt_stream stream;

	(void)arg;
	TRY(open_buffers(comm, &b));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	if (!spmt_rank(comm)) {
		sleep_ms(30);
		REQUIRE_OK(spmt_abort(comm, 7));
	} else {
		spmt_all_gather(comm, b.dst, b.src, LARGE, SPMT_TYPE_U64, stream);
		REQUIRE(spmt_host_stream_synchronize(stream) < 0 || spmt_status(comm) < 0);
		TRY(untouched(&b));
	}
	return spmt_host_stream_destroy(stream);
}

Test(engines, an_abort_lets_streams_go_on)
{
	NEEDS_HOST("its streams");
	by_engines();
	RANKS_OK(ranks_run(3, NULL, aborted, NULL));
}

/* ---- calls that differ --------------------------------------------------------------------------------------------------- */

/* Of the row and not: a sum has a kernel. */
static int mixed(spmt_comm *comm, void *arg)
{
	int first = *(const int *)arg, me = spmt_rank(comm);
	struct buffers b;

	TRY(open_buffers(comm, &b));
	REQUIRE_OK(spmt_set_timeout(comm, 20000));
	REQUIRE_OK(spmt_all_gather(comm, b.dst, b.src, LARGE, SPMT_TYPE_U64, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_barrier(comm));
	sleep_ms(me == first ? 0 : 20);
	if (me)
		spmt_all_reduce(comm, b.dst, b.src, 10, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
	else
		spmt_all_gather(comm, b.dst, b.src, LARGE, SPMT_TYPE_U64, NULL);
	REQUIRE(spmt_quiet(comm) < 0);
	REQUIRE_SAYS(
		"the function called differs: rank 1 passed spmt_all_reduce, rank 0 passed spmt_all_gather");
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_MISMATCH);
	return 0;
}

Test(engines, a_call_of_another_row)
{
	NEEDS_PLAIN_MEMORY();
	by_engines();
	for (int first = 0; first < 2; first++)
		RANKS_OK(ranks_run(ranks_here(2), NULL, mixed, &first));
}

/* Both of the row, and not of the kind that breaks: told to all, nothing moves, and the next is right. */
static int counts_differ(spmt_comm *comm, void *arg)
{
	struct buffers b;

	(void)arg;
	TRY(open_buffers(comm, &b));
	for (int i = 0; i < 3; i++) {
		memset(b.dst, 0, b.blocks * 8);
		REQUIRE_OK(spmt_barrier(comm));
		REQUIRE_OK(spmt_all_gather(comm, b.dst, b.src,
			(size_t)(LARGE - (spmt_rank(comm) == 1)), SPMT_TYPE_U64, NULL));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_MISMATCH);
		REQUIRE_SAYS("spmt_all_gather: count differs: rank ");
		TRY(untouched(&b));
		REQUIRE_OK(spmt_all_gather(comm, b.dst, b.src, LARGE, SPMT_TYPE_U64, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		TRY(all_there(comm, &b, COLL_ALL_GATHER));
	}
	return 0;
}

/* A gather's do: two ranks are enough for it, and the third may come when all is over. */
static int roots_differ(spmt_comm *comm, void *arg)
{
	struct buffers b;
	int rc;

	(void)arg;
	TRY(open_buffers(comm, &b));
	rc = spmt_gather(comm, b.dst, b.src, LARGE, SPMT_TYPE_U64, spmt_rank(comm) == 1, NULL);
	REQUIRE(!rc || rc == SPMT_ERR_BROKEN);
	REQUIRE(spmt_quiet(comm) < 0);
	REQUIRE_SAYS("spmt_gather: root differs: rank ");
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_MISMATCH);
	return untouched(&b);
}

Test(engines, calls_that_differ)
{
	NEEDS_PLAIN_MEMORY();
	by_engines();
	RANKS_OK(ranks_run(ranks_here(3), NULL, counts_differ, NULL));
	RANKS_OK(ranks_run(ranks_here(3), NULL, roots_differ, NULL));
}

/* ---- captures take another row -------------------------------------------------------------------------------------------- */

static int in_graphs(spmt_comm *comm, void *arg)
{
	struct buffers buf;
	spmt_host_graph *graph;
	spmt_stream stream;

	(void)arg;
	TRY(open_buffers(comm, &buf));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_host_graph_begin(stream));
	REQUIRE_OK(spmt_all_to_all(comm, buf.dst, buf.src, LARGE, SPMT_TYPE_U64, stream));
	REQUIRE_OK(spmt_host_graph_end(stream, &graph));
	for (int i = 0; i < 10; i++) {
		memset(buf.dst, 0, buf.blocks * 8);
		REQUIRE_OK(spmt_host_graph_launch(graph, stream));
		REQUIRE_OK(spmt_host_stream_synchronize(stream));
		TRY(all_there(comm, &buf, COLL_ALL_TO_ALL));
		REQUIRE_OK(spmt_all_gather(comm, buf.dst, buf.src, LARGE, SPMT_TYPE_U64, stream));
		REQUIRE_OK(spmt_host_stream_synchronize(stream));
		TRY(all_there(comm, &buf, COLL_ALL_GATHER));
		REQUIRE_OK(spmt_barrier(comm));
	}
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_host_stream_destroy(stream);
}

Test(engines, in_graphs_and_between_their_replays)
{
	NEEDS_HOST("its graphs");
	by_engines();
	RANKS_OK(ranks_run(3, NULL, in_graphs, NULL));
}

/* Kernels of another row wait for the last rank's, and no copy for a kernel: all are told, and nothing moves. */
static int one_captures(spmt_comm *comm, void *arg)
{
	int captures = spmt_rank(comm) == spmt_nranks(comm) - 1;
	struct buffers buf;
	spmt_host_graph *graph;
	spmt_stream stream;

	(void)arg;
	TRY(open_buffers(comm, &buf));
	REQUIRE_OK(spmt_set_timeout(comm, 500));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	if (captures)
		REQUIRE_OK(spmt_host_graph_begin(stream));
	REQUIRE_OK(spmt_all_gather(comm, buf.dst, buf.src, LARGE, SPMT_TYPE_U64, stream));
	if (captures) {
		REQUIRE_OK(spmt_host_graph_end(stream, &graph));
		REQUIRE_OK(spmt_host_graph_launch(graph, stream));
	}
	spmt_host_stream_synchronize(stream);
	REQUIRE(spmt_quiet(comm) < 0);
	TRY(untouched(&buf));
	sleep_ms(1500);
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS(" ranks missing after 0.5 s: ");
	if (captures)
		REQUIRE_OK(spmt_host_graph_destroy(graph));
	return spmt_host_stream_destroy(stream);
}

Test(engines, a_rank_that_captures_beside_ranks_that_do_not)
{
	NEEDS_HOST("its graphs");
	by_engines();
	for (int n = 2; n <= 3; n++)
		RANKS_OK(ranks_run(n, NULL, one_captures, NULL));
}

/* ---- parts of a world have meetings of their own --------------------------------------------------------------------------- */

static int of_a_part(spmt_comm *comm, void *arg)
{
	struct buffers buf;
	spmt_comm *part;

	(void)arg;
	TRY(open_buffers(comm, &buf));
	REQUIRE_OK(spmt_split(comm, spmt_rank(comm) % 2, 0, &part));
	for (int i = 0; i < 3; i++) {
		REQUIRE_OK(
			spmt_broadcast(part, buf.dst, buf.src, LARGE, SPMT_TYPE_U64, i % 2, NULL));
		REQUIRE_OK(spmt_quiet(part));
		for (size_t k = 0; k < LARGE; k++)
			REQUIRE_EQ(
				buf.dst[k], every_call_given(spmt_rank(comm) % 2 + i % 2 * 2, k));
		REQUIRE_OK(spmt_barrier(comm));
	}
	return spmt_finalize(part);
}

Test(engines, of_a_part)
{
	NEEDS_HOST("loads of its memory");
	by_engines();
	RANKS_OK(ranks_run(RANKS, NULL, of_a_part, NULL));
}
