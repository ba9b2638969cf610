/* SPDX-License-Identifier: MIT */
/* Threads of one rank that come to a comm while another is in spmt_init, spmt_shrink or spmt_finalize of it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "spmt/comm/comm.h"
#include "tests/lib/processes.h"
#include "tests/lib/ranks.h"

enum { RANKS = 4, WORLDS = SANITIZED ? 20 : 60 };

/* ---- spmt_init -------------------------------------------------------------------------------------- */

struct found {
	spmt_uid uid;
	pthread_barrier_t all;
	_Atomic bool failed;
};

static int makes(struct found *f, int rank)
{
	struct spmt_attr attr = ranks_attr(rank, RANKS, &f->uid);
	spmt_comm *comm = NULL;
	int rc = spmt_init(&attr, &comm);

	if (rc)
		atomic_store(&f->failed, true);
	pthread_barrier_wait(&f->all);
	REQUIRE_OK(rc);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

/* As soon as there is one. */
static int finds(struct found *f, int rank)
{
	spmt_comm *comm;
	int rc = -ENOENT;

	while (!(comm = spmt_comm_by_rank(&f->uid, rank)) && !atomic_load(&f->failed))
		sched_yield();
	if (comm)
		rc = spmt_barrier(comm);
	pthread_barrier_wait(&f->all);
	REQUIRE_OK(rc);
	return 0;
}

static int makes_or_finds(int index, void *arg)
{
	return index < RANKS ? makes(arg, index) : finds(arg, index - RANKS);
}

Test(beside, who_is_found_can_meet)
{
	for (int i = 0; i < WORLDS; i++) {
		struct found f = { .failed = false };

		cr_assert_eq(spmt_uid_create(&f.uid), 0);
		pthread_barrier_init(&f.all, NULL, 2 * RANKS);
		RANKS_OK(ranks_threads(2 * RANKS, makes_or_finds, &f));
		pthread_barrier_destroy(&f.all);
	}
}

/* ---- spmt_shrink ------------------------------------------------------------------------------------ */

/* A thread that calls spmt_shrink, or spmt_finalize, and what it was told. */
struct caller {
	spmt_comm *comm;
	bool ends;
	spmt_uid uid;
	int rc, rank, nranks;
};

static void *calls(void *arg)
{
	struct caller *c = arg;

	c->rc = c->ends ? spmt_finalize(c->comm)
			: spmt_shrink(c->comm, &c->uid, &c->rank, &c->nranks);
	return NULL;
}

/* Rank 0 has two threads, of which the second comes while the first waits for rank 1. */
struct survivors {
	spmt_uid uid;
	struct caller rank0, rank1, second;
	_Atomic bool there;
};

static int two_threads(struct survivors *s)
{
	const struct timespec moment = { .tv_nsec = 100000000 };
	pthread_t one, other;

	REQUIRE_OK(spmt_abort(s->rank0.comm, -EIO));
	REQUIRE_OK(pthread_create(&one, NULL, calls, &s->rank0));
	nanosleep(&moment, NULL);
	REQUIRE_OK(pthread_create(&other, NULL, calls, &s->second));
	nanosleep(&moment, NULL);
	atomic_store(&s->there, true);
	REQUIRE_OK(pthread_join(one, NULL));
	REQUIRE_OK(pthread_join(other, NULL));
	return 0;
}

static int survives(int rank, void *arg)
{
	struct survivors *s = arg;
	struct spmt_attr attr = ranks_attr(rank, 2, &s->uid);
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	if (rank == 0) {
		s->rank0.comm = s->second.comm = comm;
		TRY(two_threads(s));
		if (s->second.ends)
			return 0;
	} else {
		while (!atomic_load(&s->there))
			sched_yield();
		s->rank1.comm = comm;
		calls(&s->rank1);
	}
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

static void both_go_on(struct survivors *s)
{
	cr_assert_eq(spmt_uid_create(&s->uid), 0);
	RANKS_OK(ranks_threads(2, survives, s));
	cr_expect_eq(s->rank0.rc, 0);
	cr_expect_eq(s->rank1.rc, 0);
	cr_expect_eq(s->rank0.nranks, 2);
	cr_expect_eq(s->rank1.nranks, 2);
	cr_expect_eq(memcmp(&s->rank0.uid, &s->rank1.uid, sizeof(s->uid)), 0);
}

Test(beside, one_thread_shrinks)
{
	struct survivors s = { .second.ends = false };

	both_go_on(&s);
	cr_expect_eq(s.second.rc, -EBUSY);
}

/* In a broken world spmt_finalize lets out who is in the comm. */
Test(beside, an_end_waits_for_who_shrinks)
{
	struct survivors s = { .second.ends = true };

	both_go_on(&s);
	cr_expect_eq(s.second.rc, 0);
}

/* ---- lanes ------------------------------------------------------------------------------------------ */

enum { LANES = SANITIZED ? 50 : 200, LANE_MS = 20 };

struct lane_ends {
	spmt_comm *lane;
	_Atomic int turn, done;
	_Atomic int well, refused;
};

static void ends_lane(struct lane_ends *e)
{
	int rc = spmt_finalize(e->lane);

	if (!rc)
		atomic_fetch_add(&e->well, 1);
	else if (rc == -EBUSY || rc == -EBADF)
		atomic_fetch_add(&e->refused, 1);
}

static void *ends_too(void *arg)
{
	struct lane_ends *e = arg;

	for (int i = 1; i <= LANES; i++) {
		while (atomic_load(&e->turn) < i)
			sched_yield();
		ends_lane(e);
		atomic_store(&e->done, i);
	}
	return NULL;
}

static void takes_a_moment(void *arg, int code)
{
	const struct timespec moment = { .tv_nsec = 1000000 };

	(void)arg;
	(void)code;
	nanosleep(&moment, NULL);
}

/* A lane that is ended twice is ended once: two keys have two comms behind that. */
static int lane_once(spmt_comm *comm, struct lane_ends *e, int i)
{
	spmt_comm *one, *other;

	REQUIRE_OK(spmt_lane(comm, (uint64_t)i, &e->lane));
	REQUIRE_OK(spmt_on_complete(e->lane, NULL, takes_a_moment, NULL));
	atomic_store(&e->turn, i);
	ends_lane(e);
	while (atomic_load(&e->done) < i)
		sched_yield();
	REQUIRE_OK(spmt_lane(comm, LANES + 1, &one));
	REQUIRE_OK(spmt_lane(comm, LANES + 2, &other));
	REQUIRE(one != other);
	REQUIRE_OK(spmt_finalize(one));
	REQUIRE_OK(spmt_finalize(other));
	return 0;
}

static int lanes_end_once(spmt_comm *comm, void *arg)
{
	struct lane_ends *e = arg;
	pthread_t other;

	REQUIRE_OK(pthread_create(&other, NULL, ends_too, e));
	for (int i = 1; i <= LANES; i++)
		TRY(lane_once(comm, e, i));
	REQUIRE_OK(pthread_join(other, NULL));
	REQUIRE_EQ(atomic_load(&e->well), LANES);
	REQUIRE_EQ(atomic_load(&e->refused), LANES);
	return 0;
}

Test(beside, a_lane_ends_once)
{
	struct lane_ends e = { .turn = 0 };

	RANKS_OK(ranks_run(1, NULL, lanes_end_once, &e));
}

/* One thread ends the world, another its lane: one of them is first, and the other is refused, or finds no comm. */
struct ends {
	spmt_comm *lane;
	_Atomic int there;
	int rc;
};

static void *ends_the_lane(void *arg)
{
	struct ends *e = arg;

	atomic_fetch_add(&e->there, 1);
	while (atomic_load(&e->there) < 2)
		;
	e->rc = spmt_finalize(e->lane);
	return NULL;
}

static int world_and_lane(int index, void *arg)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	struct ends e = { .there = 0 };
	spmt_comm *comm;
	pthread_t other;
	int rc;

	(void)index;
	(void)arg;
	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_lane(comm, 1, &e.lane));
	REQUIRE_OK(pthread_create(&other, NULL, ends_the_lane, &e));
	atomic_fetch_add(&e.there, 1);
	while (atomic_load(&e.there) < 2)
		;
	rc = spmt_finalize(comm);
	REQUIRE_OK(pthread_join(other, NULL));
	REQUIRE(!e.rc || e.rc == -EBUSY || e.rc == -EBADF);
	if (rc != -EBUSY)
		return rc;
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

Test(beside, a_world_and_its_lane)
{
	for (int i = 0; i < 10 * WORLDS; i++)
		RANKS_OK(ranks_threads(1, world_and_lane, NULL));
}

/* The other thread waits in a barrier on the lane, to which its other rank comes or does not. */
struct left {
	spmt_comm *lane;
	_Atomic int turn, done;
	_Atomic bool odd;
};

static void *meets(void *arg)
{
	struct left *l = arg;

	for (int i = 1; i <= LANES; i++) {
		int rc;

		while (atomic_load(&l->turn) < i)
			sched_yield();
		rc = spmt_barrier(l->lane);
		if (rc && rc != SPMT_ERR_BROKEN && rc != SPMT_ERR_TIMEOUT && rc != -EBADF)
			atomic_store(&l->odd, true);
		atomic_store(&l->done, i);
	}
	return NULL;
}

static int lane_left(spmt_comm *comm, struct left *l, int i)
{
	spmt_comm *lane;

	REQUIRE_OK(spmt_lane(comm, (uint64_t)i, &lane));
	REQUIRE_OK(spmt_set_timeout(lane, LANE_MS));
	REQUIRE_OK(spmt_barrier(comm)); /* a comm that has ended may be another's next one */
	if (spmt_rank(comm) == 0) {
		l->lane = lane;
		atomic_store(&l->turn, i);
		if (i % 2)
			sched_yield();
		(void)spmt_finalize(lane);
		while (atomic_load(&l->done) < i)
			sched_yield();
	} else if (i % 20) {
		(void)spmt_barrier(lane);
		(void)spmt_finalize(lane);
	}
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static int lanes_are_left(spmt_comm *comm, void *arg)
{
	struct left *l = arg;
	pthread_t other;

	if (spmt_rank(comm) == 0)
		REQUIRE_OK(pthread_create(&other, NULL, meets, l));
	for (int i = 1; i <= LANES; i++)
		TRY(lane_left(comm, l, i));
	if (spmt_rank(comm) == 0)
		REQUIRE_OK(pthread_join(other, NULL));
	REQUIRE(!atomic_load(&l->odd));
	return 0;
}

Test(beside, a_lane_lets_out_who_is_in_it)
{
	struct left l = { .turn = 0 };

	RANKS_OK(ranks_run(2, NULL, lanes_are_left, &l));
}

/* ---- spmt_finalize_all ------------------------------------------------------------------------------ */

enum { REFUSALS = SANITIZED ? 10000 : 100000 };

struct refused {
	spmt_comm *alone, *pair[2];
	_Atomic bool end;
	int waits, calls; /* the first failure of either thread's barriers */
};

static void *waits_for_the_other(void *arg)
{
	struct refused *r = arg;

	r->waits = spmt_barrier(r->pair[0]);
	return NULL;
}

static void *calls_often(void *arg)
{
	struct refused *r = arg;

	while (!r->calls && !atomic_load(&r->end))
		r->calls = spmt_barrier(r->alone);
	return NULL;
}

/* What is refused as one of the comms is in use refuses no call on the others. */
Test(beside, an_end_that_is_refused)
{
	struct spmt_attr attrs[] = { ranks_attr(0, 2, NULL), ranks_attr(1, 2, NULL) };
	struct spmt_attr alone = ranks_attr(0, 1, NULL);
	struct refused r = { .end = false };
	pthread_t waits, calls;
	spmt_comm *all[2];
	int rc = -EBUSY;

	NEEDS_DEVICES(2);
	cr_assert_eq(spmt_init_all(1, &alone, &r.alone), 0, "%s", spmt_last_error());
	cr_assert_eq(spmt_init_all(2, attrs, r.pair), 0, "%s", spmt_last_error());
	all[0] = r.alone;
	all[1] = r.pair[0];
	cr_assert_eq(pthread_create(&waits, NULL, waits_for_the_other, &r), 0);
	while (!atomic_load(&r.pair[0]->head.inside))
		sched_yield();
	cr_assert_eq(pthread_create(&calls, NULL, calls_often, &r), 0);
	for (int i = 0; i < REFUSALS && rc == -EBUSY; i++)
		rc = spmt_finalize_all(2, all);
	atomic_store(&r.end, true);
	pthread_join(calls, NULL);
	cr_expect_eq(rc, -EBUSY);
	cr_expect_eq(r.calls, 0);
	cr_expect_eq(spmt_barrier(r.pair[1]), 0, "%s", spmt_last_error());
	pthread_join(waits, NULL);
	cr_expect_eq(r.waits, 0);
	cr_expect_eq(spmt_finalize_all(2, r.pair), 0, "%s", spmt_last_error());
	cr_expect_eq(spmt_finalize(r.alone), 0, "%s", spmt_last_error());
}

/* ---- parts ------------------------------------------------------------------------------------------ */

static void *ends_the_part(void *arg)
{
	struct ends *e = arg;

	e->rc = spmt_finalize(e->lane);
	return NULL;
}

/* The part is closed, and its end waits for the latch: the world's end does not take down what that is in. */
static int part_and_world(int index, void *arg)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	struct latch latch = { .open = 0 }, *args = &latch;
	struct ends e = { .rc = 1 };
	spmt_comm *comm;
	spmt_stream stream;
	pthread_t other;

	(void)index;
	(void)arg;
	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_split(comm, 0, 0, &e.lane));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_host_launch(e.lane, stream, latch_kernel, &args, sizeof(args)));
	REQUIRE_OK(pthread_create(&other, NULL, ends_the_part, &e));
	while (spmt_status(e.lane) != -EBADF)
		sched_yield();
	REQUIRE_CODE(spmt_finalize(comm), -EBUSY);
	REQUIRE_CODE(spmt_finalize_all(1, &comm), -EBUSY);
	atomic_store(&latch.open, 1);
	REQUIRE_OK(pthread_join(other, NULL));
	REQUIRE_OK(e.rc);
	REQUIRE_OK(spmt_finalize(comm));
	REQUIRE_OK(spmt_host_stream_destroy(stream));
	return 0;
}

Test(beside, a_world_and_its_part_that_ends)
{
	NEEDS_HOST("a kernel that is a function");
	RANKS_OK(ranks_threads(1, part_and_world, NULL));
}

/* ---- lanes whose ranks meet in kernels ------------------------------------------------------------------ */

enum { CALLS = 8, KERNEL_LANES = SANITIZED ? 10 : 30 };

struct reduces {
	spmt_comm *lane;
	float *words;
	int odd; /* a code that no call of it may have */
};

static void *reduces(void *arg)
{
	struct reduces *r = arg;

	for (int i = 0; i < CALLS; i++) {
		int rc = spmt_all_reduce(
			r->lane, r->words, r->words, 16, SPMT_TYPE_F32, SPMT_OP_SUM, NULL);

		if (rc && rc != -EBADF && rc != SPMT_ERR_BROKEN && rc != SPMT_ERR_TIMEOUT)
			r->odd = rc;
	}
	return NULL;
}

/* Rank 0 ends its lane while another thread of it is in its calls, which are any number of those that the others make. */
static int lane_of_kernels(spmt_comm *comm, struct reduces *r, int i)
{
	pthread_t other;

	REQUIRE_OK(spmt_lane(comm, (uint64_t)i, &r->lane));
	REQUIRE_OK(spmt_set_timeout(r->lane, LANE_MS));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		REQUIRE_OK(pthread_create(&other, NULL, reduces, r));
		if (i % 2)
			sched_yield();
		REQUIRE(spmt_finalize(r->lane) != -EBUSY);
		REQUIRE_OK(pthread_join(other, NULL));
	} else {
		reduces(r);
		(void)spmt_finalize(r->lane);
	}
	REQUIRE_OK(r->odd);
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static int lanes_of_kernels(spmt_comm *comm, void *arg)
{
	struct reduces r = { .odd = 0 };

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 16, sizeof(float), (void **)&r.words));
	for (int i = 1; i <= KERNEL_LANES; i++)
		TRY(lane_of_kernels(comm, &r, i));
	return 0;
}

Test(beside, a_lane_of_kernels_ends_beside_its_calls)
{
	struct processes p = { .layout = "0|1" };

	NEEDS_LAYOUT("0|1");
	RANKS_OK(processes_world(&p, lanes_of_kernels, NULL));
}
