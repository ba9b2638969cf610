/* SPDX-License-Identifier: MIT */
/* Threads of one rank that come to a comm while another begins or ends a plan on it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>

#include "spmt/comm/comm.h"
#include "spmt_plan.h"
#include "tests/lib/device/latch.h"
#include "tests/lib/ranks.h"

static spmt_plan *plan_of_one(void)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "p",
		.collective = "c",
		.nranks = 1,
		.input_chunks = 1,
		.output_chunks = 1 };
	spmt_plan *plan = NULL;

	cr_assert_eq(spmt_plan_create(&attr, &plan), 0, "%s", spmt_last_error());
	return plan;
}

/* ---- begin ---------------------------------------------------------------------------------------- */

/* Two blocks that touch one chunk by turns: billions of pairs to look at. */
static spmt_plan *long_to_check(void)
{
	enum { TURNS = 26000, TERMS = 4 };
	struct spmt_plan_chunk own[TERMS];
	spmt_plan *plan = plan_of_one();

	for (int k = 0; k < TERMS; k++)
		own[k] = spmt_plan_output(0, 0, 1);
	for (int i = 0; i < TURNS; i++) {
		int block = i % 2;

		cr_assert_eq(spmt_plan_acquire(plan, 0, block, block, !block), 0);
		cr_assert_eq(spmt_plan_reduce(plan, 0, block, own[0], own, TERMS), 0);
		cr_assert_eq(spmt_plan_release(plan, 0, block, !block), 0);
	}
	return plan;
}

struct begins {
	const spmt_plan *plan;
	spmt_comm *comm;
	int rc;
};

static void *begins(void *arg)
{
	struct begins *b = arg;
	spmt_plan_open *open;

	do
		b->rc = spmt_plan_begin(b->comm, b->plan, 64, &open);
	while (b->rc == -EBUSY);
	return NULL;
}

/* The plan is looked at: calls of others are refused, and what breaks the world ends it. */
static int begun_beside(spmt_comm *comm, void *arg)
{
	struct begins b = { .plan = arg, .comm = comm };
	int64_t begin = now_ns();
	pthread_t thread;
	int rc;

	REQUIRE_EQ(pthread_create(&thread, NULL, begins, &b), 0);
	while (!(rc = spmt_sync(comm)) && now_ns() - begin < 5000000000)
		sleep_ms(1);
	REQUIRE_CODE(rc, -EBUSY);
	REQUIRE_SAYS("another thread is in spmt_plan_begin on this comm");
	REQUIRE_CODE(spmt_finalize(comm), -EBUSY);
	begin = now_ns();
	REQUIRE_OK(spmt_abort(comm, -EIO));
	REQUIRE_EQ(pthread_join(thread, NULL), 0);
	REQUIRE_EQ(b.rc, -EIO);
	REQUIRE(now_ns() - begin < 5000000000);
	return 0;
}

Test(plan_beside, a_check_is_part_of_begin)
{
	spmt_plan *plan = long_to_check();

	RANKS_OK(ranks_run(1, NULL, begun_beside, plan));
	spmt_plan_destroy(plan);
}

/* ---- end ------------------------------------------------------------------------------------------ */

/* A plan that a graph runs behind the latch, so that whoever ends it waits there. */
struct held {
	struct latch latch;
	spmt_comm *comm;
	spmt_plan_open *open;
	spmt_host_graph *graph;
	spmt_stream stream;
	uint64_t *words;
};

static int runs(struct held *h)
{
	return spmt_plan_run(
		h->comm, h->open, h->words, h->words + 1, 1, SPMT_TYPE_U64, SPMT_OP_SUM, h->stream);
}

static int hold_begin(spmt_comm *comm, const spmt_plan *plan, struct held *h)
{
	struct latch *latch = &h->latch;

	h->comm = comm;
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*h->words), (void **)&h->words));
	REQUIRE_OK(spmt_plan_begin(comm, plan, sizeof(*h->words), &h->open));
	REQUIRE_OK(spmt_host_stream_create(comm, &h->stream));
	REQUIRE_OK(spmt_host_graph_begin(h->stream));
	REQUIRE_OK(runs(h));
	REQUIRE_OK(spmt_host_graph_end(h->stream, &h->graph));
	REQUIRE_OK(spmt_host_launch(comm, h->stream, latch_kernel, &latch, sizeof(latch)));
	REQUIRE_OK(spmt_host_graph_launch(h->graph, h->stream));
	return 0;
}

static int hold_end(struct held *h)
{
	REQUIRE_OK(spmt_host_graph_destroy(h->graph));
	return spmt_host_stream_destroy(h->stream);
}

struct ends {
	spmt_comm *comm;
	spmt_plan_open *open;
	_Atomic int rc; /* 1: not yet */
};

static void *ends(void *arg)
{
	struct ends *e = arg;

	atomic_store(&e->rc, spmt_plan_end(e->comm, e->open));
	return NULL;
}

/* The other thread is in spmt_plan_end, and has the comm. */
static int end_begin(struct ends *e, struct held *h, pthread_t *thread)
{
	int64_t begin = now_ns();
	int rc;

	*e = (struct ends){ h->comm, h->open, 1 };
	REQUIRE_EQ(pthread_create(thread, NULL, ends, e), 0);
	while (!(rc = spmt_sync(h->comm)) && now_ns() - begin < 5000000000)
		sleep_ms(1);
	REQUIRE_CODE(rc, -EBUSY);
	REQUIRE_SAYS("another thread is in spmt_plan_end on this comm");
	return 0;
}

/* What it ends is neither run nor ended meanwhile, nor is the comm. */
static int ended_beside(spmt_comm *comm, void *arg)
{
	struct held h = { .open = NULL };
	pthread_t thread;
	struct ends e;

	TRY(hold_begin(comm, arg, &h));
	TRY(end_begin(&e, &h, &thread));
	REQUIRE_CODE(runs(&h), -EBUSY);
	REQUIRE_CODE(spmt_plan_end(comm, h.open), -EBUSY);
	REQUIRE_CODE(spmt_finalize(comm), -EBUSY);
	REQUIRE(latch_open(&h.latch));
	REQUIRE_EQ(pthread_join(thread, NULL), 0);
	REQUIRE_EQ(e.rc, 0);
	REQUIRE_CODE(runs(&h), -EINVAL);
	REQUIRE_OK(hold_end(&h));
	return spmt_free(comm, h.words);
}

/* In a broken comm as well: whoever comes next waits until the first is through, and finds that it has ended. */
static int ended_twice(spmt_comm *comm, void *arg)
{
	struct held h = { .open = NULL };
	struct ends first, second;
	pthread_t threads[2];

	TRY(hold_begin(comm, arg, &h));
	TRY(end_begin(&first, &h, &threads[0]));
	REQUIRE_OK(spmt_abort(comm, -EIO));
	second = (struct ends){ comm, h.open, 1 };
	REQUIRE_EQ(pthread_create(&threads[1], NULL, ends, &second), 0);
	for (int i = 0; i < 5000 && second.rc == 1 && !atomic_load(&comm->head.visitors); i++)
		sleep_ms(1);
	sleep_ms(20);
	REQUIRE_EQ(second.rc, 1);
	REQUIRE(latch_open(&h.latch));
	for (int i = 0; i < 2; i++)
		REQUIRE_EQ(pthread_join(threads[i], NULL), 0);
	REQUIRE_EQ(first.rc, -EIO);
	REQUIRE_EQ(second.rc, -EIO);
	REQUIRE(!comm->opens);
	return hold_end(&h);
}

Test(plan_beside, an_end_has_the_comm)
{
	spmt_plan *plan = plan_of_one();

	NEEDS_HOST("its graphs");
	cr_assert_eq(
		spmt_plan_copy(plan, 0, 0, spmt_plan_input(0, 0, 1), spmt_plan_output(0, 0, 1)), 0);
	RANKS_OK(ranks_run(1, NULL, ended_beside, plan));
	RANKS_OK(ranks_run(1, NULL, ended_twice, plan));
	spmt_plan_destroy(plan);
}
