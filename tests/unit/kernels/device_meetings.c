/* SPDX-License-Identifier: MIT */
/* barrier and sync of the device header, in every form. */
#include <criterion/criterion.h>
#include <errno.h>
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

/* ---- sessions by index ----------------------------------------------------------------------- */

typedef int session_fn(const struct spmt_view *, uint32_t);

static int split_at(const struct spmt_view *v, uint32_t index)
{
	spmtd_sync_arrive_at(v, index);
	return spmtd_sync_wait_at(v, index);
}

static session_fn *const sessions[] = { spmtd_barrier_at, spmtd_barrier_at_warp,
	spmtd_barrier_at_block, spmtd_sync_at, spmtd_sync_at_warp, spmtd_sync_at_block, split_at };
enum { FORMS = sizeof(sessions) / sizeof(sessions[0]), AT_ONCE = 3, SESSION_ROUNDS = 150 };

/* A block of one rank, that meets those of its index. */
struct block {
	pthread_t thread;
	struct spmt_view v;
	uint32_t nth, index;
	int failed;
};
static uint32_t block_rounds[AT_ONCE][RANKS];

static void *walk_at(void *arg)
{
	struct block *b = arg;

	for (uint32_t i = 1; i <= SESSION_ROUNDS * FORMS; i++) {
		__atomic_store_n(&block_rounds[b->nth][b->v.pe], i, __ATOMIC_RELEASE);
		if (sessions[i % FORMS](&b->v, b->index))
			b->failed = 1;
		for (int pe = 0; pe < RANKS; pe++) {
			uint32_t at_ = __atomic_load_n(&block_rounds[b->nth][pe], __ATOMIC_ACQUIRE);

			if (at_ != i && at_ != i + 1)
				b->failed = 2;
		}
	}
	return NULL;
}

/* The words of session `index` at rank pe. */
static uint64_t *session_words(const struct spmt_view *v, uint32_t index)
{
	return (uint64_t *)(void *)((char *)v->own + v->sessions +
		index * spmtd_session_size_(v->npes));
}

Test(device_meetings, blocks_of_one_index_meet_whatever_the_others_do)
{
	struct block blocks[AT_ONCE * RANKS];

	for (int flat = 0; flat < 2; flat++) {
		struct views w;

		cr_assert_eq(views_open(&w, RANKS, 4096, flat), 0);
		memset(block_rounds, 0, sizeof(block_rounds));
		for (uint32_t i = 0; i < AT_ONCE; i++)
			for (int pe = 0; pe < RANKS; pe++) {
				struct block *b = &blocks[i * RANKS + (uint32_t)pe];

				*b = (struct block){ .v = view_of(&w, pe), .nth = i };
				b->index = i ? (uint32_t)b->v.nsessions - i : 0;
				for (int from = 0; from < RANKS; from++) /* they wrap */
					session_words(&b->v, b->index)[from] = UINT64_MAX - 100;
			}
		for (int i = 0; i < AT_ONCE * RANKS; i++)
			cr_assert_eq(
				pthread_create(&blocks[i].thread, NULL, walk_at, &blocks[i]), 0);
		for (int i = 0; i < AT_ONCE * RANKS; i++) {
			pthread_join(blocks[i].thread, NULL);
			cr_expect_eq(blocks[i].failed, 0);
		}
		for (int pe = 0; pe < RANKS; pe++)
			cr_expect_eq(view_of(&w, pe).own->sync_epoch, 0, "the world's own");
		views_close(&w);
	}
}

Test(device_meetings, sessions_do_not_overlap)
{
	for (int n = 1; n < 40; n += 7) {
		struct views w;
		struct spmt_view v;

		cr_assert_eq(views_open(&w, n, 4096, true), 0);
		v = view_of(&w, n - 1);
		cr_expect_geq(v.sessions,
			sizeof(struct spmtd_own) + (uint64_t)n * sizeof(struct spmtd_inbox));
		cr_expect_geq(spmtd_session_size_(n), (uint64_t)n * 8);
		cr_expect_eq(spmtd_session_size_(n) % 64, 0);
		cr_expect_eq(v.sessions % 64, 0);
		views_close(&w);
	}
}

Test(device_meetings, a_session_that_is_none)
{
	uint32_t nsessions = (uint32_t)me.nsessions;
	uint64_t before[3];

	memcpy(before, session_words(&me, nsessions - 1), sizeof(before));
	for (int i = 0; i < FORMS; i++) {
		cr_expect_eq(sessions[i](&me, (uint32_t)me.nsessions), SPMTD_INVALID);
		cr_expect_eq(sessions[i](&me, UINT32_MAX), SPMTD_INVALID);
	}
	me.nsessions = 0; /* as of a library that knows none */
	cr_expect_eq(spmtd_sync_at(&me, 0), SPMTD_INVALID);
	cr_expect_eq(memcmp(before, session_words(&me, nsessions - 1), sizeof(before)), 0);
	cr_expect_eq((int)SPMTD_INVALID, -EINVAL);
	cr_expect_eq(me.own->sync_epoch, 0);
	cr_expect_eq(world.records[1].valid, 0);
}

Test(device_meetings, a_session_that_nobody_else_comes_to)
{
	struct spmt_view v0 = view_of(&world, 0);

	me.timeout_ns = 1000000;
	for (int i = 0; i < FORMS - 1; i++) {
		cr_expect_eq(sessions[i](&me, 5), SPMTD_TIMEOUT);
		cr_expect_eq(session_words(&v0, 5)[1], 0, "taken back");
		cr_expect_eq(session_words(&me, 5)[1], 0, "the epoch");
	}
	cr_expect_eq(world.records[1].peer, 0);
	world.stop = 1;
	cr_expect_eq(spmtd_barrier_at_block(&me, 5), SPMTD_ABORTED);
}
