/* SPDX-License-Identifier: MIT */
/*
 * SPMT_COLL=copy: collectives that move data have copy queues do it. Here: large ones beside kernels that keep their threads, in graphs, of a
 * part of a world. flow-coll_algorithms has their results; flow-told and others run with it as well.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/lib/every_call.h"
#include "tests/lib/processes.h"

enum { LARGE = 30000, RANKS = 4, BESIDE = 8, REPLAYS = 50 };

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

static void by_copies(void)
{
	setenv("SPMT_COLL", "copy", 1);
	setenv("SPMT_HOST_DEVICES", "16", 0);
}

/* ---- beside kernels ------------------------------------------------------------------------------------------------------- */

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

/* Each rank has kernels in other streams that do not end before the collective has. */
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
	REQUIRE_EQ(atomic_load(&run), BESIDE / spmt_nranks(comm));
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_host_stream_destroy(own);
}

Test(copies, beside_kernels_that_do_not_end)
{
	NEEDS_HOST("its kernels");
	by_copies();
	RANKS_OK(ranks_run(2, NULL, beside_kernels, NULL));
	RANKS_OK(ranks_run(RANKS, NULL, beside_kernels, NULL));
}

/* ---- in graphs -------------------------------------------------------------------------------------------------------------- */

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
	for (int i = 0; i < REPLAYS; i++) {
		REQUIRE_OK(spmt_host_graph_launch(graph, stream));
		if (i % 10)
			continue;
		REQUIRE_OK(spmt_host_stream_synchronize(stream));
		TRY(all_there(comm, &buf, COLL_ALL_TO_ALL));
		for (size_t k = 0; k < buf.blocks; k++)
			buf.dst[k] = 0;
	}
	REQUIRE_OK(spmt_host_stream_synchronize(stream));
	TRY(all_there(comm, &buf, COLL_ALL_TO_ALL));
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_host_stream_destroy(stream);
}

Test(copies, in_graphs)
{
	NEEDS_HOST("its graphs");
	by_copies();
	RANKS_OK(ranks_run(3, NULL, in_graphs, NULL));
}

/* ---- parts of a world have queues of their own ------------------------------------------------------------------------------- */

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

Test(copies, of_a_part)
{
	NEEDS_HOST("loads of its memory");
	by_copies();
	RANKS_OK(ranks_run(RANKS, NULL, of_a_part, NULL));
}
