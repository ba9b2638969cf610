/* SPDX-License-Identifier: MIT */
/* A thread makes calls on a comm, one after the other, while another thread of the rank ends it, or the plans on it: each is done, or
   refused, and touches nothing that is gone. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmt_plan.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { STREAMS = 24, LANES = 100, ABORTED = -EIO };

/* What both threads see of the comm that is ended next. */
struct beside {
	int (*call)(struct beside *b, int nth);
	int times;
	spmt_comm *comm;
	spmt_stream streams[STREAMS];
	uint64_t *word;
	int done;	    /* calls that returned 0 */
	_Atomic int called; /* functions of spmt_on_complete */
	_Atomic int turn, there, left;
};

static int pause_of(int nth)
{
	return nth * 137 % 9000;
}

/* Broken is a lane that is ended with work still to come. */
static bool may_say(int rc)
{
	return !rc || rc == -EBUSY || rc == -EBADF || rc == ABORTED || rc == SPMT_ERR_BROKEN;
}

static int calls(struct beside *b)
{
	for (int i = 1; i <= b->times; i++) {
		int rc, nth = 0;

		while (atomic_load(&b->turn) < i)
			sched_yield();
		atomic_store(&b->there, i);
		do {
			rc = b->call(b, nth++);
			b->done += !rc;
			if (!may_say(rc))
				return ranks_fail("%d: %s", rc, spmt_last_error());
		} while (rc != -EBADF);
		atomic_store(&b->left, i);
	}
	return 0;
}

/* The other thread is in its calls, somewhere; then it has seen the end. */
static int ends(struct beside *b, int i)
{
	int rc;

	atomic_store(&b->turn, i);
	while (atomic_load(&b->there) < i)
		sched_yield();
	for (volatile int k = 0; k < pause_of(i); k++)
		;
	while ((rc = spmt_finalize(b->comm)) == -EBUSY)
		sched_yield();
	while (atomic_load(&b->left) < i)
		sched_yield();
	REQUIRE(rc == 0 || rc == ABORTED);
	return 0;
}

/* ---- lanes ------------------------------------------------------------------------------------------ */

static int reduces(struct beside *b, int nth)
{
	static float words[16];

	(void)nth;
	return spmt_all_reduce(b->comm, words, words, 16, SPMT_TYPE_F32, SPMT_OP_SUM, NULL);
}

static int meets(struct beside *b, int nth)
{
	(void)nth;
	return spmt_barrier(b->comm);
}

static int meets_in_stream(struct beside *b, int nth)
{
	(void)nth;
	return spmt_barrier_on_stream(b->comm, NULL);
}

static int quiets(struct beside *b, int nth)
{
	(void)nth;
	return spmt_quiet(b->comm);
}

static void counts(void *arg, int code)
{
	struct beside *b = arg;

	(void)code;
	atomic_fetch_add(&b->called, 1);
}

static int completes(struct beside *b, int nth)
{
	(void)nth;
	return spmt_on_complete(b->comm, NULL, counts, b);
}

static int makes_ops(struct beside *b, int nth)
{
	float two = 2;
	enum spmt_op op;
	int rc = spmt_op_premul_create(b->comm, SPMT_TYPE_F32, &two, SPMT_SCALAR_HOST, &op);

	(void)nth;
	return rc ? rc : spmt_op_destroy(b->comm, op);
}

static int registers(struct beside *b, int nth)
{
	spmt_stream stream = b->streams[nth % STREAMS];
	int rc = spmt_stream_register(b->comm, stream);

	return rc == -EEXIST ? spmt_stream_deregister(b->comm, stream) : rc;
}

static int queries(struct beside *b, int nth)
{
	static const enum spmt_cap caps[] = { SPMT_CAP_HEAP_SIZE, SPMT_CAP_STORE_THRESHOLD };
	int64_t value;

	return spmt_query(b->comm, caps[nth % 2], &value);
}

static int lane_side(int index, void *arg)
{
	struct beside *b = arg;
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	spmt_comm *comm;

	if (index)
		return calls(b);
	REQUIRE_OK(spmt_init(&attr, &comm));
	for (int k = 0; k < STREAMS; k++)
		REQUIRE_OK(spmt_host_stream_create(comm, &b->streams[k]));
	for (int i = 1; i <= b->times; i++) {
		REQUIRE_OK(spmt_lane(comm, (uint64_t)i, &b->comm));
		TRY(ends(b, i));
		if (b->call == completes)
			REQUIRE_EQ(atomic_load(&b->called), b->done);
	}
	for (int k = 0; k < STREAMS; k++)
		REQUIRE_OK(spmt_host_stream_destroy(b->streams[k]));
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

static int lanes_end(int (*call)(struct beside *b, int nth))
{
	/* a function that is queued in the last moment is rare, and calls that are over at once */
	size_t often = call == completes ? 10 : call == queries ? 50 : 1;
	struct beside b = { .call = call, .times = (int)test_count(40 * often, 2000 * often) };

	return ranks_threads(2, lane_side, &b);
}

static int a_lane_and_collectives(void)
{
	return lanes_end(reduces);
}

static int a_lane_and_barriers(void)
{
	TRY(lanes_end(meets));
	return lanes_end(meets_in_stream);
}

static int a_lane_and_quiet(void)
{
	return lanes_end(quiets);
}

static int a_lane_and_functions(void)
{
	return lanes_end(completes);
}

static int a_lane_and_ops(void)
{
	return lanes_end(makes_ops);
}

static int a_lane_and_streams(void)
{
	return lanes_end(registers);
}

static int a_lane_and_queries(void)
{
	return lanes_end(queries);
}

/* Which one of them ends, and the other looks for, as it comes and goes. */
static int found_side(int index, void *arg)
{
	spmt_comm *lane;

	for (size_t i = 0; i < test_count(20000, 1000000); i++) {
		REQUIRE_OK(spmt_lane(arg, 1, &lane));
		if (!index)
			REQUIRE_OK(spmt_finalize(lane));
	}
	return 0;
}

static int found_rank(spmt_comm *comm, void *arg)
{
	(void)arg;
	return ranks_threads(2, found_side, comm);
}

static int a_lane_that_is_found(void)
{
	return ranks_run(1, NULL, found_rank, NULL);
}

/* ---- worlds ----------------------------------------------------------------------------------------- */

static int syncs(struct beside *b, int nth)
{
	(void)nth;
	return spmt_sync(b->comm);
}

static int shrinks(struct beside *b, int nth)
{
	spmt_uid next;
	int rank, nranks;

	(void)nth;
	return spmt_shrink(b->comm, &next, &rank, &nranks);
}

/* In a loop, for a word that holds in every other world. */
static int waits(struct beside *b, int nth)
{
	const uint64_t one = 1;

	(void)nth;
	return spmt_wait_until(b->comm, SPMT_TYPE_U64, b->word, SPMT_CMP_EQ, &one);
}

/* The end has many lanes to claim before it comes to the world, whose new part it may have passed. */
static int many_lanes(spmt_comm *comm)
{
	spmt_comm *lane;

	for (uint64_t key = 0; key < LANES; key++)
		REQUIRE_OK(spmt_lane(comm, key, &lane));
	return 0;
}

static int splits(struct beside *b, int nth)
{
	spmt_comm *part;
	int rc = spmt_split(b->comm, 0, nth, &part);

	for (int i = 0; i < 100 && !rc; i++)
		rc = spmt_barrier(part);
	return rc ? rc : spmt_finalize(part);
}

static int world_side(int index, void *arg)
{
	struct beside *b = arg;
	struct spmt_attr attr = ranks_attr(0, 1, NULL);

	if (index)
		return calls(b);
	for (int i = 1; i <= b->times; i++) {
		REQUIRE_OK(spmt_init(&attr, &b->comm));
		if (b->call == shrinks)
			REQUIRE_OK(spmt_abort(b->comm, ABORTED));
		if (b->call == splits)
			TRY(many_lanes(b->comm));
		if (b->call == waits) {
			REQUIRE_OK(spmt_calloc(b->comm, 1, sizeof(*b->word), (void **)&b->word));
			*b->word = (uint64_t)i % 2;
		}
		TRY(ends(b, i));
	}
	return 0;
}

static int worlds_end(int (*call)(struct beside *b, int nth))
{
	size_t often = call == waits ? 50 : 1;
	struct beside b = { .call = call,
		.times = (int)test_count(40 * often, 3000 + 100 * often) };

	return ranks_threads(2, world_side, &b);
}

static int a_world_and_meetings(void)
{
	TRY(worlds_end(meets));
	return worlds_end(syncs);
}

/* With SPMT_CHECK the end is refused while a wait is under way (tests/flow/failure/ends.c). AddressSanitizer turns it on by itself. */
static int a_world_and_waits(void)
{
	const char *check = getenv("SPMT_CHECK");
	bool checked = check ? strcmp(check, "0") != 0 : SANITIZED;

	return checked ? 0 : worlds_end(waits);
}

static int a_world_and_collectives(void)
{
	return worlds_end(reduces);
}

static int a_world_and_shrink(void)
{
	return worlds_end(shrinks);
}

static int a_world_and_splits(void)
{
	return worlds_end(splits);
}

/* ---- spmt_init -------------------------------------------------------------------------------------- */

enum { RANKS = 3 };

struct found {
	spmt_uid uid;
	_Atomic bool failed;
};

static int makes_or_ends(int index, void *arg)
{
	struct found *f = arg;
	struct spmt_attr attr = ranks_attr(index % RANKS, RANKS, &f->uid);
	spmt_comm *comm;

	if (index < RANKS) {
		int rc = spmt_init(&attr, &comm);

		if (rc)
			atomic_store(&f->failed, true);
		REQUIRE_OK(rc);
		return 0;
	}
	while (!(comm = spmt_comm_by_rank(&f->uid, index % RANKS)) && !atomic_load(&f->failed))
		sched_yield();
	REQUIRE(comm);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

/* Before spmt_init has returned there. */
static int who_is_found_is_ended(void)
{
	for (size_t i = 0; i < test_count(30, 1000); i++) {
		struct found f = { .failed = false };

		REQUIRE_OK(spmt_uid_create(&f.uid));
		TRY(ranks_threads(2 * RANKS, makes_or_ends, &f));
	}
	return 0;
}

/* ---- plans ------------------------------------------------------------------------------------------ */

struct plans {
	spmt_plan *plan;
	spmt_comm *comm;
	uint64_t *words; /* two a thread */
};

/* Until it is not another thread's turn. */
#define REQUIRE_IN_TURN(call)                    \
	do {                                     \
		int rc_;                         \
		while ((rc_ = (call)) == -EBUSY) \
			sched_yield();           \
		REQUIRE_OK(rc_);                 \
	} while (0)

static int plan_side(int index, void *arg)
{
	const struct plans *p = arg;
	uint64_t *words = p->words + 2 * index;

	for (size_t i = 0; i < test_count(300, 20000); i++) {
		spmt_plan_open *open;

		REQUIRE_IN_TURN(spmt_plan_begin(p->comm, p->plan, sizeof(*words), &open));
		REQUIRE_IN_TURN(spmt_plan_run(
			p->comm, open, words, words + 1, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_IN_TURN(spmt_plan_end(p->comm, open));
	}
	return 0;
}

static int plans_come_and_go(spmt_comm *comm, void *arg)
{
	enum { THREADS = 3 };
	struct plans p = { .plan = arg, .comm = comm };

	REQUIRE_OK(spmt_calloc(comm, 2 * THREADS, sizeof(*p.words), (void **)&p.words));
	TRY(ranks_threads(THREADS, plan_side, &p));
	return spmt_free(comm, p.words);
}

static int plans_and_plans(void)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "p",
		.collective = "c",
		.nranks = 1,
		.input_chunks = 1,
		.output_chunks = 1 };
	spmt_plan *plan;

	REQUIRE_OK(spmt_plan_create(&attr, &plan));
	REQUIRE_OK(spmt_plan_copy(plan, 0, 0, spmt_plan_input(0, 0, 1), spmt_plan_output(0, 0, 1)));
	TRY(ranks_run(1, NULL, plans_come_and_go, plan));
	spmt_plan_destroy(plan);
	return 0;
}

int main(void)
{
	const struct test_case cases[] = {
		{ "a lane ends beside collectives", a_lane_and_collectives },
		{ "a lane ends beside barriers", a_lane_and_barriers },
		{ "a lane ends beside quiet", a_lane_and_quiet },
		{ "a lane ends beside functions that are queued", a_lane_and_functions },
		{ "a lane ends beside ops that are made", a_lane_and_ops },
		{ "a lane ends beside streams that are registered", a_lane_and_streams },
		{ "a lane ends beside queries", a_lane_and_queries },
		{ "a lane ends beside who looks for it", a_lane_that_is_found },
		{ "a world ends beside meetings", a_world_and_meetings },
		{ "a world ends beside waits", a_world_and_waits },
		{ "a world ends beside collectives", a_world_and_collectives },
		{ "a world ends beside parts that are made", a_world_and_splits },
		{ "a broken world ends beside who shrinks it", a_world_and_shrink },
		{ "a world ends that was found", who_is_found_is_ended },
		{ "plans begin, run and end beside each other", plans_and_plans },
	};

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
