/* SPDX-License-Identifier: MIT */
/* Waits of a block for any of several words, whose threads are threads of this process, beside another block that waits, too. */
#include <criterion/criterion.h>
#include <pthread.h>

#include "spmt_device/wait.h"

static _Thread_local uint32_t own_lane;
static int vote(int x);

enum { LANES = 2, N = 37, ROUNDS = 200 };

#define spmtd_lane_(scope) ((void)(scope), own_lane)
#define spmtd_lanes_(scope) ((void)(scope), (uint32_t)LANES)
#define spmtd_any_block_ vote
#define spmtd_any_warp_ vote
#define spmtd_meet_(scope) ((void)(scope), (void)vote(0))
#define spmtd_agree_(code, scope) ((void)(scope), vote(code) ? SPMTD_TIMEOUT : 0)
#include "spmt_device/waitby.h"
#undef spmtd_lane_
#undef spmtd_lanes_
#undef spmtd_any_block_
#undef spmtd_any_warp_
#undef spmtd_meet_
#undef spmtd_agree_
#include "tests/lib/device/plain_views.h"

static pthread_barrier_t all;
static int cell;

/* 1 for all threads if x is not 0 in any. */
static int vote(int x)
{
	int any;

	if (x)
		__atomic_store_n(&cell, 1, __ATOMIC_RELAXED);
	pthread_barrier_wait(&all);
	any = __atomic_load_n(&cell, __ATOMIC_RELAXED);
	pthread_barrier_wait(&all);
	if (own_lane == 0)
		__atomic_store_n(&cell, 0, __ATOMIC_RELAXED);
	pthread_barrier_wait(&all);
	return any;
}

static struct views world;
static struct spmt_view me;
static uint64_t words[N];
static int over;

struct lane {
	pthread_t thread;
	uint32_t lane;
	int failed;
};

/* In each round one word holds. */
static void *wait_for_each(void *arg)
{
	struct lane *l = arg;

	own_lane = l->lane;
	for (uint64_t i = 0; i < ROUNDS && !l->failed; i++) {
		size_t at = 0;
		int rc;

		if (own_lane == 0)
			words[i % N] = i + 1;
		rc = i % 2 ? spmtd_uint64_wait_until_any_warp(
				     &me, words, N, NULL, SPMT_CMP_EQ, i + 1, &at)
			   : spmtd_uint64_wait_until_any_block(
				     &me, words, N, NULL, SPMT_CMP_EQ, i + 1, &at);
		l->failed = vote(rc || at != i % N);
	}
	return NULL;
}

static void *move_turn(void *arg)
{
	uint64_t at = spmtd_at_(&spmtd_inbox_(&me, me.pe)->turn);

	(void)arg;
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
		spmtd_poke64_(at, spmtd_peek64_(at) + 1);
	return NULL;
}

Test(device_waits_by, threads_of_a_block_look_in_one_order, .timeout = 60)
{
	struct lane lanes[LANES];
	pthread_t other;

	cr_assert_eq(views_open(&world, 1, 4096, false), 0);
	me = view_of(&world, 0);
	me.timeout_ns = 1000000000;
	cr_assert_eq(pthread_barrier_init(&all, NULL, LANES), 0);
	cr_assert_eq(pthread_create(&other, NULL, move_turn, NULL), 0);
	for (uint32_t i = 0; i < LANES; i++) {
		lanes[i] = (struct lane){ .lane = i };
		cr_assert_eq(pthread_create(&lanes[i].thread, NULL, wait_for_each, &lanes[i]), 0);
	}
	for (uint32_t i = 0; i < LANES; i++)
		pthread_join(lanes[i].thread, NULL);
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	pthread_join(other, NULL);
	pthread_barrier_destroy(&all);
	views_close(&world);
	for (uint32_t i = 0; i < LANES; i++)
		cr_expect_eq(lanes[i].failed, 0);
}
