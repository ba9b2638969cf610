/* SPDX-License-Identifier: MIT */
/* A thread with a cancellation pending keeps it through every call: none of the library's is a cancellation point. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "spmt/comm/comm.h"
#include "tests/lib/every_call.h"
#include "tests/lib/processes.h"

/* Taken at the first cancellation point, which is then where the thread was seen last. */
static void pend(void)
{
	pthread_cancel(pthread_self());
}

static void no_more(void)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

static int told(spmt_comm *comm)
{
	struct spmt_route route = { .size = sizeof(route) };
	struct spmt_stats stats = { .size = sizeof(stats) };
	spmt_stream stream;
	int64_t value;
	int count;

	REQUIRE_OK(spmt_route(comm, 0, &route));
	REQUIRE_OK(spmt_stats(comm, -1, &stats));
	REQUIRE_OK(spmt_query(comm, SPMT_CAP_HEAP_SIZE, &value));
	REQUIRE_OK(spmt_device_count(NULL, &count));
	if (!on_host())
		return 0;
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_barrier_on_stream(comm, stream));
	REQUIRE_OK(spmt_host_stream_synchronize(stream));
	REQUIRE_OK(spmt_host_stream_destroy(stream));
	return 0;
}

static int part(spmt_comm *comm)
{
	spmt_comm *half;

	REQUIRE_OK(spmt_split(comm, spmt_rank(comm) % 2, 0, &half));
	TRY(every_call_registered(half, &(struct every_call){ .layout = NULL }));
	REQUIRE_OK(spmt_barrier(half));
	REQUIRE_OK(spmt_finalize(half));
	return 0;
}

/* Rank 0 stays away, and is waited for; then the others go on without it. */
static int broken(spmt_comm *comm)
{
	int rank, n;
	spmt_uid next;

	REQUIRE_OK(spmt_set_timeout(comm, 300));
	while (spmt_rank(comm) == 0)
		if (spmt_status(comm))
			return 0;
		else
			sched_yield(); /* as no sleep is: no cancellation point */
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_OK(spmt_shrink(comm, &next, &rank, &n));
	REQUIRE_EQ(n, spmt_nranks(comm) - 1);
	REQUIRE_OK(spmt_abort(comm, -1));
	return 0;
}

static int life(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, p->nranks, &p->uid[0]);
	struct every_call b = { .layout = p->layout, .uid = &p->uid[0], .less = true };
	spmt_comm *comm;

	attr.heap_size = 16 << 20;
	if (processes_widest(p->layout) <= devices_here())
		attr.device = -1;
	pend();
	REQUIRE_OK(spmt_init(&attr, &comm));
	TRY(every_call_right(comm, &b));
	TRY(told(comm));
	TRY(part(comm));
	TRY(broken(comm));
	REQUIRE_OK(spmt_finalize(comm));
	no_more();
	return 0;
}

static void lives(const char *layout)
{
	struct processes p = { .layout = layout, .seconds = 30 };

	NEEDS_LAYOUT(layout);
	RANKS_OK(processes_run(&p, life, &p));
}

Test(cancel, in_one_process)
{
	lives("0,1,2,3");
}

Test(cancel, in_several)
{
	lives("0,1|2,3");
	lives("0|1|2|3");
}

/* Broken by who has not said why, and may be about to: all calls wait for that. */
static int unsaid(int rank, void *arg)
{
	struct spmt_attr attr = ranks_attr(rank, 1, arg);
	uint64_t *word;
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	atomic_store(&comm->control->stop, 1);
	pend();
	REQUIRE_CODE(spmt_signal(comm, word, 1, SPMT_SIGNAL_ADD, 0), SPMT_ERR_BROKEN);
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_BROKEN);
	REQUIRE_OK(spmt_finalize(comm));
	no_more();
	return 0;
}

Test(cancel, in_a_world_that_does_not_say_why_it_is_broken)
{
	spmt_uid uid;

	NEEDS_HOST("calls are the same");
	ranks_deadline(30);
	cr_assert_eq(spmt_uid_create(&uid), 0);
	RANKS_OK(ranks_threads(1, unsaid, &uid));
}

/* ---- calls that make threads -------------------------------------------------------------------------------------------- */

enum { RANKS = 2 };

static int meet_all(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_barrier(comm);
}

static int leave(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_finalize(comm);
}

static int crews(int index, void *arg)
{
	struct spmt_attr attrs[RANKS], common = ranks_attr(0, RANKS, NULL);
	spmt_comm *comms[RANKS];

	(void)index;
	(void)arg;
	for (int i = 0; i < RANKS; i++)
		attrs[i] = ranks_attr(i, RANKS, NULL);
	common.device = -1;
	pend();
	REQUIRE_OK(spmt_run(RANKS, &common, meet_all, NULL));
	REQUIRE_OK(spmt_init_all(RANKS, attrs, comms));
	REQUIRE_OK(spmt_each(RANKS, comms, meet_all, NULL));
	REQUIRE_OK(spmt_each(RANKS, comms, leave, NULL));
	REQUIRE_CODE(spmt_run(RANKS, &common, NULL, NULL), -EINVAL);
	no_more();
	return 0;
}

Test(cancel, of_those_who_start_ranks)
{
	NEEDS_DEVICES(RANKS);
	ranks_deadline(30);
	RANKS_OK(ranks_threads(1, crews, NULL));
}

/* Rank 0's failure breaks nothing; then rank 1's thread ends. */
static int one_fails_and_one_ends(spmt_comm *comm, void *failed)
{
	if (spmt_rank(comm) == 0) {
		atomic_store((_Atomic int *)failed, 1);
		return -EIO;
	}
	while (!atomic_load((_Atomic int *)failed))
		sleep_ms(1);
	sleep_ms(50);
	pthread_exit(NULL);
}

Test(cancel, a_world_tells_why_it_broke_and_not_what_had_failed_before)
{
	struct spmt_attr attrs[RANKS];
	spmt_comm *comms[RANKS];
	_Atomic int failed = 0;
	int rc;

	NEEDS_DEVICES(RANKS);
	ranks_deadline(30);
	for (int i = 0; i < RANKS; i++)
		attrs[i] = ranks_attr(i, RANKS, NULL);
	cr_assert_eq(spmt_init_all(RANKS, attrs, comms), 0, "%s", spmt_last_error());
	rc = spmt_each(RANKS, comms, one_fails_and_one_ends, &failed); /* of whichever was first */
	cr_assert(rc == -EIO || rc == SPMT_ERR_PEER_DEAD, "%d", rc);
	for (int i = 0; i < RANKS; i++) {
		cr_assert_eq(spmt_status(comms[i]), SPMT_ERR_PEER_DEAD);
		cr_assert(
			strstr(spmt_last_error(), "the thread of 1 of 2 ranks ended inside fn: 1"),
			"%s", spmt_last_error());
	}
	cr_assert_eq(spmt_finalize_all(RANKS, comms), 0, "%s", spmt_last_error());
}
