/* SPDX-License-Identifier: MIT */
/* barrier and sync of the device header, in every form. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "spmt.h"
#include "tests/lib/device/plain_views.h"

static struct views world;
static struct spmt_view me; /* rank 1 of 3 */

static void open_world(void)
{
	cr_assert_eq(views_open(&world, 3, 4096, false), 0);
	me = view_of(&world, 1);
}

static void close_world(void)
{
	views_close(&world);
}

TestSuite(device_meetings, .init = open_world, .fini = close_world, .timeout = 60);

typedef int meet_fn(const struct spmt_view *);

static int split(const struct spmt_view *v)
{
	spmtd_sync_arrive(v);
	return spmtd_sync_wait(v);
}

static meet_fn *const meets[] = { spmtd_barrier, spmtd_barrier_warp, spmtd_barrier_block,
	spmtd_sync, spmtd_sync_warp, spmtd_sync_block, split };
enum { MEETS = sizeof(meets) / sizeof(meets[0]), RANKS = 4, ROUNDS = 300 };

struct walker {
	pthread_t thread;
	struct spmt_view v;
	int failed;
};
static uint32_t rounds[RANKS];

static void *walk(void *arg)
{
	struct walker *w = arg;

	for (uint32_t i = 1; i <= ROUNDS * MEETS; i++) {
		__atomic_store_n(&rounds[w->v.pe], i, __ATOMIC_RELEASE);
		if (meets[i % MEETS](&w->v))
			w->failed = 1;
		for (int pe = 0; pe < RANKS; pe++) {
			uint32_t at_ = __atomic_load_n(&rounds[pe], __ATOMIC_ACQUIRE);

			if (at_ != i && at_ != i + 1)
				w->failed = 2;
		}
	}
	return NULL;
}

static void walk_all(bool flat, uint64_t epoch)
{
	struct walker walkers[RANKS];
	struct views w;

	cr_assert_eq(views_open(&w, RANKS, 4096, flat), 0);
	memset(rounds, 0, sizeof(rounds));
	for (int pe = 0; pe < RANKS; pe++) {
		walkers[pe] = (struct walker){ .v = view_of(&w, pe) };
		walkers[pe].v.own->sync_epoch = epoch;
		for (int from = 0; from < RANKS; from++)
			((struct spmtd_inbox *)(walkers[pe].v.own + 1))[from].sync = epoch;
	}
	for (int pe = 0; pe < RANKS; pe++)
		cr_assert_eq(pthread_create(&walkers[pe].thread, NULL, walk, &walkers[pe]), 0);
	for (int pe = 0; pe < RANKS; pe++) {
		pthread_join(walkers[pe].thread, NULL);
		cr_expect_eq(walkers[pe].failed, 0);
	}
	views_close(&w);
}

Test(device_meetings, meetings_hold_everybody)
{
	walk_all(false, 0);
	walk_all(true, 0);
	walk_all(true, UINT64_MAX - 100); /* the counters wrap */
}

struct member {
	pthread_t thread;
	struct spmt_view v;
	int rc;
};

static void *meet_once(void *arg)
{
	struct member *m = arg;

	m->rc = spmtd_barrier(&m->v);
	return NULL;
}

static void member_start(struct member *m, int pe)
{
	m->v = view_of(&world, pe);
	m->v.timeout_ns = 20000000000;
	m->rc = 1;
	cr_assert_eq(pthread_create(&m->thread, NULL, meet_once, m), 0);
}

static int member_end(struct member *m)
{
	pthread_join(m->thread, NULL);
	return m->rc;
}

Test(device_meetings, a_missing_rank_is_named_and_the_meeting_begins_again)
{
	struct spmtd_inbox *inbox = (struct spmtd_inbox *)(me.own + 1);
	struct spmt_view v2 = view_of(&world, 2);
	struct spmtd_inbox *at_2 = (struct spmtd_inbox *)(v2.own + 1);
	struct spmtd_record *r = &world.records[1];
	struct member first, last;

	member_start(&first, 0);
	while (__atomic_load_n(&inbox[0].sync, __ATOMIC_ACQUIRE) != 1)
		usleep(100);
	me.timeout_ns = 1000000;
	cr_expect_eq(spmtd_barrier(&me), SPMTD_TIMEOUT);
	cr_expect_eq(r->peer, 2, "rank 0 had come");
	cr_expect_eq(r->what, SPMTD_WHAT_BARRIER);
	cr_expect_eq(r->expected, 1);
	cr_expect_eq(r->seen, 0);
	cr_expect_eq(me.own->sync_epoch, 0);
	cr_expect_eq(at_2[1].sync, 0, "taken back");
	member_start(&last, 2);
	me.timeout_ns = 20000000000;
	cr_expect_eq(spmtd_barrier(&me), 0, "the same meeting again");
	cr_expect_eq(member_end(&first), 0);
	cr_expect_eq(member_end(&last), 0);
	cr_expect_eq(me.own->sync_epoch, 1);
	cr_expect_eq(at_2[1].sync, 1);
	world.stop = 1;
	cr_expect_eq(spmtd_sync_block(&me), SPMTD_ABORTED);
}
