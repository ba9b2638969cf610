/* SPDX-License-Identifier: MIT */
/* Plans whose ranks do not come, that run on two streams at once, and that end while they run. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spmt/comm/comm.h"
#include "spmt_plan.h"
#include "src/base/fault.h"
#include "tests/lib/clocks.h"
#include "tests/lib/device/device_streams.h"
#include "tests/lib/plan/row_plans.h"
#include "tests/lib/ranks.h"
#include "tools/spmt-plan/made.h"

enum { RANKS = 4, COUNT = 64 * RANKS };

struct scene {
	spmt_plan *plan;
	_Atomic int queued, told, ready, released;
};

static void until(_Atomic int *what, int n)
{
	for (int64_t begin = now_ns(); atomic_load(what) < n && now_ns() - begin < 20000000000;)
		sleep_ms(1);
}

static void make(struct scene *s, const char *name, int n)
{
	cr_assert_eq(made_plan(name, n, &s->plan), 0, "%s", spmt_last_error());
}

/* ---- ranks that never come ----------------------------------------------------------------------- */

/* Holds the stream until all who come have queued what they want. */
static void hold_for_all(void *args)
{
	until(&(*(struct scene **)args)->queued, RANKS / 2);
}

/* Whoever comes, however late, hears who did not. */
static int hears(spmt_comm *comm)
{
	REQUIRE(spmt_quiet(comm) < 0);
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("of 4 ranks missing after");
	return 0;
}

static int early(
	spmt_comm *comm, struct scene *s, spmt_plan_open *open, uint32_t *words, spmt_stream stream)
{
	REQUIRE_OK(spmt_set_timeout(comm, 300));
	REQUIRE_OK(stream_call(comm, stream, hold_for_all, &s, sizeof(s)));
	for (int i = 0; i < 2; i++)
		REQUIRE_OK(open ? spmt_plan_run(comm, open, words, words, COUNT, SPMT_TYPE_U32,
					  SPMT_OP_SUM, stream)
				: spmt_all_reduce(comm, words, words, COUNT, SPMT_TYPE_U32,
					  SPMT_OP_SUM, stream));
	atomic_fetch_add(&s->queued, 1);
	TRY(hears(comm));
	atomic_fetch_add(&s->told, 1);
	return 0;
}

static int half_come(spmt_comm *comm, void *arg)
{
	struct scene *s = arg;
	int rank = spmt_rank(comm);
	spmt_plan_open *open;
	spmt_stream stream;
	uint32_t *words, local[COUNT];

	REQUIRE_OK(spmt_plan_begin(comm, s->plan, COUNT * sizeof(*words), &open));
	REQUIRE_OK(spmt_malloc(comm, sizeof(local), (void **)&words));
	TRY(stream_make(comm, &stream));
	for (size_t i = 0; i < COUNT; i++)
		local[i] = made_input(rank, i);
	REQUIRE_OK(spmt_copy_in(comm, words, local, sizeof(local)));
	REQUIRE_OK(spmt_barrier(comm));
	if (rank < RANKS / 2)
		TRY(early(comm, s, open, words, stream));
	until(&s->told, RANKS / 2);
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("spmt_plan_run in a stream: ");
	REQUIRE_SAYS("2 of 4 ranks missing after");
	REQUIRE_CODE(
		spmt_plan_run(comm, open, words, words, COUNT, SPMT_TYPE_U32, SPMT_OP_SUM, stream),
		SPMT_ERR_BROKEN);
	REQUIRE(spmt_quiet(comm) < 0);
	for (size_t i = 0; host_access(comm) && i < COUNT; i++)
		REQUIRE_EQ(words[i], made_input(rank, i));
	REQUIRE_CODE(spmt_plan_end(comm, open), SPMT_ERR_BROKEN);
	REQUIRE_OK(stream_end(comm, stream));
	atomic_fetch_add(&s->ready, 1);
	until(&s->ready, RANKS);
	return 0;
}

Test(plan_ends, half_of_the_ranks_never_come)
{
	struct scene s = { .told = 0 };

	NEEDS_DEVICES(RANKS);
	make(&s, "allreduce", RANKS);
	for (int i = 0; i < 2; i++) {
		s.queued = s.told = s.ready = 0;
		RANKS_OK(ranks_run(RANKS, NULL, half_come, &s));
	}
	spmt_plan_destroy(s.plan);
}

/* The same as a row of the collectives, where the others call something else of the comm. */
static int half_call(spmt_comm *comm, void *arg)
{
	struct scene *s = arg;
	spmt_stream stream;
	uint32_t *words;

	REQUIRE_OK(spmt_calloc(comm, COUNT, sizeof(*words), (void **)&words));
	TRY(stream_make(comm, &stream));
	if (spmt_rank(comm) < RANKS / 2)
		TRY(early(comm, s, NULL, words, stream));
	until(&s->told, RANKS / 2);
	REQUIRE_CODE(spmt_all_reduce(comm, words, words, COUNT, SPMT_TYPE_U32, SPMT_OP_SUM, NULL),
		SPMT_ERR_BROKEN);
	REQUIRE_OK(stream_end(comm, stream));
	atomic_fetch_add(&s->ready, 1);
	until(&s->ready, RANKS);
	return 0;
}

static void half_call_by(const char *made)
{
	struct scene s = { .told = 0 };
	char file[ROW_PLANS_NAME], wish[2 * ROW_PLANS_NAME];

	make(&s, made, RANKS);
	cr_assert_eq(row_plans_file(s.plan, file), 0);
	snprintf(wish, sizeof(wish), "plan:%s,only", file);
	setenv("SPMT_COLL", wish, 1);
	RANKS_OK(ranks_run(RANKS, NULL, half_call, &s));
	spmt_plan_destroy(s.plan);
}

Test(plan_ends, half_of_the_ranks_never_call_a_row)
{
	NEEDS_DEVICES(RANKS);
	half_call_by("allreduce");
	half_call_by("allreduce-packets");
}

/* ---- two streams --------------------------------------------------------------------------------- */

/* One plan, begun once, in two streams by turns, nobody waiting in between: its scratch is one. */
static int on_two_streams(spmt_comm *comm, void *arg)
{
	enum { ROUNDS = 20, BYTES = COUNT * sizeof(uint32_t) };
	const struct scene *s = arg;
	uint32_t *words[2][ROUNDS], local[COUNT];
	spmt_plan_open *open;
	spmt_stream streams[2];

	REQUIRE_OK(spmt_plan_begin(comm, s->plan, BYTES, &open));
	for (int i = 0; i < 2 * ROUNDS; i++) {
		REQUIRE_OK(spmt_malloc(comm, BYTES, (void **)&words[i % 2][i / 2]));
		for (size_t k = 0; k < COUNT; k++)
			local[k] = made_input(spmt_rank(comm), k) + (uint32_t)i;
		REQUIRE_OK(spmt_copy_in(comm, words[i % 2][i / 2], local, BYTES));
	}
	for (int i = 0; i < 2; i++)
		TRY(stream_make(comm, &streams[i]));
	for (int i = 0; i < 2 * ROUNDS; i++)
		REQUIRE_OK(spmt_plan_run(comm, open, words[i % 2][i / 2], words[i % 2][i / 2],
			COUNT, SPMT_TYPE_U32, SPMT_OP_SUM, streams[i % 2]));
	REQUIRE_OK(spmt_quiet(comm));
	for (int i = 0; i < 2 * ROUNDS; i++) {
		REQUIRE_OK(spmt_copy_out(comm, local, words[i % 2][i / 2], BYTES));
		for (size_t k = 0; k < COUNT; k++) {
			uint32_t want = (uint32_t)(RANKS * i);

			for (int r = 0; r < RANKS; r++)
				want += made_input(r, k);
			REQUIRE_EQ(local[k], want);
		}
		REQUIRE_OK(spmt_free(comm, words[i % 2][i / 2]));
	}
	for (int i = 0; i < 2; i++)
		REQUIRE_OK(stream_end(comm, streams[i]));
	return spmt_plan_end(comm, open);
}

Test(plan_ends, one_on_two_streams_at_once)
{
	static const char *const names[] = { "allreduce", "allreduce-packets" };

	NEEDS_DEVICES(RANKS);
	for (int i = 0; i < 2; i++) {
		struct scene s = { .told = 0 };

		make(&s, names[i], RANKS);
		RANKS_OK(ranks_run(RANKS, NULL, on_two_streams, &s));
		spmt_plan_destroy(s.plan);
	}
}

/* ---- ends while it runs -------------------------------------------------------------------------- */

/* Holds the stream until somebody has been waiting for a while. */
static void hold(void *args)
{
	struct scene *s = *(struct scene **)args;

	until(&s->ready, RANKS);
	sleep_ms(20);
	atomic_fetch_add(&s->released, 1);
}

/* A rank's sum in place. */
struct sum {
	uint32_t *words; /* symmetric */
	spmt_plan_open *open;
	spmt_stream stream;
};

static int sum_begin(spmt_comm *comm, const struct scene *s, struct sum *sum)
{
	uint32_t local[COUNT];

	for (size_t k = 0; k < COUNT; k++)
		local[k] = made_input(spmt_rank(comm), k);
	REQUIRE_OK(spmt_malloc(comm, sizeof(local), (void **)&sum->words));
	REQUIRE_OK(spmt_copy_in(comm, sum->words, local, sizeof(local)));
	TRY(stream_make(comm, &sum->stream));
	return spmt_plan_begin(comm, s->plan, sizeof(local), &sum->open);
}

static int sum_run(spmt_comm *comm, const struct sum *sum)
{
	return spmt_plan_run(comm, sum->open, sum->words, sum->words, COUNT, SPMT_TYPE_U32,
		SPMT_OP_SUM, sum->stream);
}

/* spmt_plan_end has returned: no sooner than the run was let go of, and with its result there. */
static int sum_is_there(spmt_comm *comm, struct scene *s, const struct sum *sum)
{
	uint32_t local[COUNT], want[COUNT] = { 0 };

	REQUIRE_EQ(atomic_load(&s->released), RANKS);
	for (size_t k = 0; k < COUNT; k++)
		for (int r = 0; r < RANKS; r++)
			want[k] += made_input(r, k);
	REQUIRE_OK(spmt_copy_out(comm, local, sum->words, sizeof(local)));
	REQUIRE(!memcmp(local, want, sizeof(want)));
	return 0;
}

static int sum_end(spmt_comm *comm, const struct sum *sum)
{
	REQUIRE_OK(stream_end(comm, sum->stream));
	return spmt_free(comm, sum->words);
}

/* The plan is gone before its run has begun; spmt_plan_end waits for that. */
static int ended_in_flight(spmt_comm *comm, void *arg)
{
	struct scene *s = arg;
	struct sum sum;

	TRY(sum_begin(comm, s, &sum));
	REQUIRE_OK(stream_call(comm, sum.stream, hold, &s, sizeof(s)));
	REQUIRE_OK(sum_run(comm, &sum));
	if (atomic_fetch_add(&s->told, 1) == RANKS - 1)
		spmt_plan_destroy(s->plan);
	until(&s->told, RANKS);
	atomic_fetch_add(&s->ready, 1);
	REQUIRE_OK(spmt_plan_end(comm, sum.open));
	TRY(sum_is_there(comm, s, &sum));
	return sum_end(comm, &sum);
}

Test(plan_ends, it_goes_and_ends_while_it_runs)
{
	struct scene s = { .told = 0 };

	NEEDS_DEVICES(RANKS);
	make(&s, "allreduce-packets", RANKS);
	RANKS_OK(ranks_run(RANKS, NULL, ended_in_flight, &s));
}

/* ---- a graph that holds a run ---------------------------------------------------------------------- */

/* One launch is on its way when the plan ends, which waits for it; behind that the graph would run in memory that is others'. */
static int captured(spmt_comm *comm, void *arg)
{
	struct scene *s = arg;
	spmt_host_graph *graph;
	struct sum sum;

	TRY(sum_begin(comm, s, &sum));
	REQUIRE_OK(spmt_host_graph_begin(sum.stream));
	REQUIRE_OK(sum_run(comm, &sum));
	REQUIRE_OK(spmt_host_graph_end(sum.stream, &graph));
	REQUIRE_OK(stream_call(comm, sum.stream, hold, &s, sizeof(s)));
	REQUIRE_OK(spmt_host_graph_launch(graph, sum.stream));
	atomic_fetch_add(&s->ready, 1);
	REQUIRE_OK(spmt_plan_end(comm, sum.open));
	TRY(sum_is_there(comm, s, &sum));
	REQUIRE_CODE(spmt_host_graph_launch(graph, sum.stream), -EBADF);
	REQUIRE_SAYS("a comm or plan whose work the graph holds has ended");
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	return sum_end(comm, &sum);
}

/* The stream is being captured when the plan ends. */
static int ended_in_capture(spmt_comm *comm, void *arg)
{
	struct scene *s = arg;
	spmt_host_graph *graph;
	struct sum sum;

	TRY(sum_begin(comm, s, &sum));
	REQUIRE_OK(spmt_host_graph_begin(sum.stream));
	REQUIRE_OK(sum_run(comm, &sum));
	REQUIRE_OK(spmt_plan_end(comm, sum.open));
	REQUIRE_CODE(spmt_host_graph_end(sum.stream, &graph), -EBADF);
	REQUIRE_SAYS("a comm or plan whose work was captured has ended");
	return sum_end(comm, &sum);
}

Test(plan_ends, no_graph_runs_it_later)
{
	struct scene s = { .told = 0 };

	NEEDS_HOST("its graphs");
	make(&s, "allreduce-packets", RANKS);
	RANKS_OK(ranks_run(RANKS, NULL, captured, &s));
	RANKS_OK(ranks_run(RANKS, NULL, ended_in_capture, &s));
	spmt_plan_destroy(s.plan);
}

/* ---- ends that fail ------------------------------------------------------------------------------ */

static void *in_barrier(void *comm)
{
	return spmt_barrier(comm) ? comm : NULL;
}

/* Another thread of rank 0 is in a call, which waits for the other ranks. */
static int end_while_busy(spmt_comm *comm, struct scene *s, spmt_plan_open *open)
{
	pthread_t thread;
	void *failed = NULL;

	REQUIRE_EQ(pthread_create(&thread, NULL, in_barrier, comm), 0);
	for (int i = 0; i < 10000 && !atomic_load(&comm->head.inside); i++)
		sleep_ms(1);
	REQUIRE_CODE(spmt_plan_end(comm, open), -EBUSY);
	atomic_store(&s->ready, 1);
	REQUIRE_EQ(pthread_join(thread, &failed), 0);
	REQUIRE(!failed);
	return 0;
}

/* What failed has given nothing back on any rank: it ends the second time, and whatever is begun then is the same on all. */
static int ends_again(spmt_comm *comm, void *arg)
{
	struct scene *s = arg;
	spmt_plan_open *open, *next;
	uint32_t *words;

	REQUIRE_OK(spmt_calloc(comm, COUNT, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_plan_begin(comm, s->plan, COUNT * sizeof(*words), &open));
	REQUIRE_CODE(spmt_rank(comm) ? spmt_barrier(comm) : spmt_plan_end(comm, open),
		SPMT_ERR_MISMATCH);
	if (spmt_rank(comm) == 0) {
		TRY(end_while_busy(comm, s, open));
	} else {
		until(&s->ready, 1);
		REQUIRE_OK(spmt_barrier(comm));
	}
	REQUIRE_OK(spmt_plan_begin(comm, s->plan, COUNT * sizeof(*words), &next));
	REQUIRE_OK(spmt_plan_end(comm, open));
	REQUIRE_CODE(spmt_plan_end(comm, open), -EINVAL);
	REQUIRE_OK(spmt_plan_begin(comm, s->plan, COUNT * sizeof(*words), &open));
	REQUIRE_OK(
		spmt_plan_run(comm, open, words, words, COUNT, SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_plan_end(comm, next));
	return spmt_plan_end(comm, open);
}

Test(plan_ends, that_fail_are_made_again)
{
	struct scene s = { .told = 0 };

	NEEDS_DEVICES(RANKS);
	make(&s, "allreduce", RANKS);
	RANKS_OK(ranks_run(RANKS, NULL, ends_again, &s));
	spmt_plan_destroy(s.plan);
}

/* ---- no memory ----------------------------------------------------------------------------------- */

struct poor {
	spmt_plan *plan;
	pthread_barrier_t all;
};

/* One rank lacks some memory: all hear which one, and none that it had another plan; and then it is begun. */
static int begins_in_the_end(spmt_comm *comm, void *arg)
{
	static const char *const words[] = { "spmt_plan_begin: ", "rank ", "memory" };
	struct poor *p = arg;

	for (uint64_t n = 1, fired = 1; fired; n++) {
		spmt_plan_open *open = NULL;
		int rc;

		if (pthread_barrier_wait(&p->all) == PTHREAD_BARRIER_SERIAL_THREAD)
			fault_arm(1u << FAULT_ALLOC, n);
		pthread_barrier_wait(&p->all);
		rc = spmt_plan_begin(comm, p->plan, 64, &open);
		pthread_barrier_wait(&p->all);
		fired = fault_fired();
		REQUIRE_CODE(rc, fired ? -ENOMEM : 0);
		for (size_t i = 0; fired && i < sizeof(words) / sizeof(words[0]); i++)
			REQUIRE_SAYS(words[i]);
		REQUIRE(fired ? !open : open != NULL);
		pthread_barrier_wait(&p->all);
		fault_disarm();
		if (open)
			REQUIRE_OK(spmt_plan_end(comm, open));
	}
	return 0;
}

Test(plan_ends, without_memory)
{
	struct poor p = { .plan = NULL };

	NEEDS_DEVICES(2);
	cr_assert_eq(made_plan("allgather", 2, &p.plan), 0, "%s", spmt_last_error());
	pthread_barrier_init(&p.all, NULL, 2);
	RANKS_OK(ranks_run(2, NULL, begins_in_the_end, &p));
	pthread_barrier_destroy(&p.all);
	spmt_plan_destroy(p.plan);
}

/* ---- another comm -------------------------------------------------------------------------------- */

/* For other ranks: on none. On a part of as many ranks it runs, and what was begun there does not run elsewhere. */
static int elsewhere(spmt_comm *comm, void *arg)
{
	const struct scene *s = arg;
	uint32_t *words, local[COUNT] = { 0 };
	spmt_plan_open *open = NULL;
	spmt_comm *part;

	REQUIRE_CODE(spmt_plan_begin(comm, s->plan, 64, &open), -EINVAL);
	REQUIRE_SAYS("is for 2 ranks, the comm has 4");
	REQUIRE(!open);
	REQUIRE_OK(spmt_split(comm, spmt_rank(comm) % 2, 0, &part));
	REQUIRE_OK(spmt_calloc(part, COUNT, sizeof(*words), (void **)&words));
	local[0] = 1;
	REQUIRE_OK(spmt_copy_in(part, words, local, sizeof(local)));
	REQUIRE_OK(spmt_plan_begin(part, s->plan, sizeof(local), &open));
	REQUIRE_CODE(
		spmt_plan_run(comm, open, words, words, COUNT, SPMT_TYPE_U32, SPMT_OP_SUM, NULL),
		-EINVAL);
	REQUIRE_SAYS("open is of another comm");
	REQUIRE_CODE(spmt_plan_end(comm, open), -EINVAL);
	REQUIRE_OK(
		spmt_plan_run(part, open, words, words, COUNT, SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(part));
	REQUIRE_OK(spmt_copy_out(part, local, words, sizeof(local)));
	REQUIRE_EQ(local[0], 2);
	REQUIRE_EQ(local[1], 0);
	REQUIRE_OK(spmt_plan_end(part, open));
	REQUIRE_OK(spmt_free(part, words));
	return spmt_finalize(part);
}

Test(plan_ends, on_another_comm)
{
	struct scene s = { .told = 0 };

	NEEDS_DEVICES(RANKS);
	make(&s, "allreduce", 2);
	RANKS_OK(ranks_run(RANKS, NULL, elsewhere, &s));
	spmt_plan_destroy(s.plan);
}
