/* SPDX-License-Identifier: MIT */
/* Posts of the device header, into a ring that the test takes from by hand. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "spmt.h"
#include "spmt_channel.h"
#include "tests/lib/device/plain_views.h"

enum { SHIFT = 3, PLACES = 1 << SHIFT, POSTERS = 4, EACH = 500 };

static struct views world;
static struct spmt_view me; /* rank 1 of 3 */
static struct spmtd_post places[PLACES];
static uint64_t taken;
static int rung;
static struct spmtd_fifo fifo;
static struct spmt_port port; /* to rank 2 */

static void ring_here(const struct spmt_view *v)
{
	(void)v;
	__atomic_fetch_add(&rung, 1, __ATOMIC_RELAXED);
}

static void open_world(void)
{
	cr_assert_eq(views_open(&world, 3, 4096, true), 0);
	world.ops.posted = ring_here;
	me = view_of(&world, 1);
	fifo = (struct spmtd_fifo){ .ring = (uintptr_t)places,
		.taken = (uintptr_t)&taken,
		.shift = SHIFT,
		.pe = 1,
		.own = me.own,
		.stop = me.stop,
		.record = me.record,
		.host = me.host };
	port = (struct spmt_port){
		.size = sizeof(port), .pe = 1, .peer = 2, .fifo = (uintptr_t)&fifo, .index = 0x12345
	};
}

static void close_world(void)
{
	views_close(&world);
}

TestSuite(device_fifo, .init = open_world, .fini = close_world, .timeout = 60);

static void take(uint64_t n)
{
	__atomic_fetch_add(&taken, n, __ATOMIC_RELEASE);
}

/* The next one, as the host reads it. False: it is not there. */
static bool next(uint64_t nth, struct spmtd_post *post)
{
	struct spmtd_post *place = &places[nth % PLACES];
	uint64_t head = __atomic_load_n(&place->head, __ATOMIC_ACQUIRE);

	if ((head & 1) == (nth / PLACES & 1))
		return false;
	*post = *place;
	return true;
}

static void is_post(uint64_t nth, int kind, uint64_t to, uint64_t from, uint64_t size)
{
	struct spmtd_post post;

	cr_assert(next(nth, &post), "post %d", (int)nth);
	cr_assert_eq(post.head >> 1 & 0x7f, (uint64_t)(SPMTD_POST_PORT | kind));
	cr_assert_eq(post.head >> 8 & 0xffffff, 2);
	cr_assert_eq(post.head >> 32, 0x12345);
	cr_assert_eq(post.to, to);
	cr_assert_eq(post.from, from);
	cr_assert_eq(post.size, size);
}

/* Sizes and offsets of 64 bits, and the bit that says that it is there, over many ways round the ring. */
Test(device_fifo, a_post_is_what_was_asked_for)
{
	const uint64_t large = 0xfedcba9876543210;
	struct spmtd_post post;

	for (uint64_t i = 0; i < 7 * PLACES; i++) {
		cr_assert_not(next(i, &post));
		if (i % 3 == 0) {
			cr_assert_eq(spmtd_port_put(&me, &port, large + i, i, large), 0);
			is_post(i, SPMTD_POST_PUT, large + i, i, large);
		} else if (i % 3 == 1) {
			cr_assert_eq(spmtd_port_signal_block(&me, &port), 0);
			is_post(i, SPMTD_POST_SIGNAL, 0, 0, 0);
		} else {
			cr_assert_eq(spmtd_port_put_signal_warp(&me, &port, 1, large, i), 0);
			is_post(i, SPMTD_POST_PUT | SPMTD_POST_SIGNAL, 1, large, i);
		}
		take(1);
		cr_assert_eq(rung, (int)i + 1);
	}
}

/* Packets are made where the port's put takes them from; those that have come are sent on from there. */
Test(device_fifo, packets_are_a_post)
{
	const int plain = SPMTD_POST_PUT | SPMTD_POST_PACKETS;
	uint64_t local[16] __attribute__((aligned(16))) = { 0 },
			   came[16] __attribute__((aligned(16)));
	uint32_t data[4] = { 1, 2, 3, 4 }, got[4] = { 0 };
	struct spmtd_post post;

	port.local = (uintptr_t)local;
	port.local_size = sizeof(local);
	port.incoming = (uintptr_t)came;
	port.incoming_size = sizeof(came);
	cr_assert_eq(spmtd_port_put_packets(&me, &port, 4096, 32, data, 16, 7), 0);
	is_post(0, plain | SPMTD_POST_PAIRS, 4096, 32, 32);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(local[4 + i], (uint64_t)7 << 32 | data[i]);
	cr_assert_eq(local[3] | local[8], 0);
	cr_assert_eq(spmtd_port_put_packets8_block(&me, &port, 8, 8, data, 4, 8), 0);
	is_post(1, plain, 8, 8, 8);
	cr_assert_eq(local[1], (uint64_t)8 << 32 | 1);
	memcpy(came, local, sizeof(came));
	cr_assert_eq(spmtd_port_unpack_packets(&me, &port, got, 32, 16, 7), 0);
	cr_assert_eq(memcmp(got, data, sizeof(got)), 0);
	cr_assert_eq(spmtd_port_read_put_packets_warp(&me, &port, 16, 32, 16, 7), 0);
	is_post(2, plain | SPMTD_POST_PAIRS | SPMTD_POST_CAME, 16, 32, 32);
	/* nothing is no post, and neither is what has not come */
	cr_assert_eq(spmtd_port_put_packets(&me, &port, 0, 0, data, 0, 7), 0);
	cr_assert_eq(spmtd_port_read_put_packets(&me, &port, 0, 0, 0, 7), 0);
	me.timeout_ns = 1000000;
	cr_assert_eq(spmtd_port_read_put_packets8(&me, &port, 0, 32, 8, 9), SPMTD_TIMEOUT);
	cr_assert_not(next(3, &post));
}

/* One that has found no place has posted nothing; the ring goes on. */
Test(device_fifo, a_full_ring_ends_at_the_deadline)
{
	struct spmtd_post post;

	me.timeout_ns = 20000000;
	for (uint64_t i = 0; i < PLACES; i++)
		cr_assert_eq(spmtd_port_put(&me, &port, i, 0, 1), 0);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(spmtd_port_put(&me, &port, 99, 0, 1), SPMTD_TIMEOUT);
	cr_assert_eq(rung, PLACES);
	cr_assert_eq(me.own->posted, PLACES);
	cr_assert_eq(me.own->lost, (uint64_t)(int64_t)SPMTD_TIMEOUT);
	cr_assert_eq(me.record->code, SPMTD_TIMEOUT);
	cr_assert_eq(me.record->what, SPMTD_WHAT_POST);
	cr_assert_eq(me.record->peer, 2);
	cr_assert_not(next(PLACES, &post));
	take(1);
	cr_assert_eq(spmtd_port_put(&me, &port, PLACES, 0, 1), 0);
	cr_assert_eq(spmtd_port_put(&me, &port, 99, 0, 1), SPMTD_TIMEOUT);
	for (uint64_t i = 1; i <= PLACES; i++)
		is_post(i, SPMTD_POST_PUT, i, 0, 1);
}

Test(device_fifo, a_broken_world_ends_what_waits)
{
	world.stop = 1;
	for (uint64_t i = 0; i < PLACES; i++)
		cr_assert_eq(spmtd_port_put(&me, &port, i, 0, 1), 0);
	cr_assert_eq(spmtd_port_put(&me, &port, 99, 0, 1), SPMTD_ABORTED);
	take(1);
	cr_assert_eq(spmtd_port_flush(&me, &port), SPMTD_ABORTED);
	is_post(PLACES, SPMTD_POST_FLUSH, 0, 0, 0);
}

/* ---- several at once ---------------------------------------------------------------------------------------- */

struct poster {
	pthread_t thread;
	uint64_t number;
	int failed;
};

static void *posts(void *arg)
{
	struct poster *p = arg;

	for (uint64_t i = 0; i < EACH && !p->failed; i++)
		p->failed = i % 10 ? spmtd_port_put(&me, &port, p->number, i, 1)
				   : spmtd_port_put_signal_flush(&me, &port, p->number, i, 1);
	return NULL;
}

/* Each one's come in its order, none twice, and a flush ends once its post is taken. */
Test(device_fifo, many_post_at_once)
{
	struct poster posters[POSTERS] = { { .number = 0 } };
	uint64_t came[POSTERS] = { 0 };

	for (uint64_t i = 0; i < POSTERS; i++) {
		posters[i].number = i;
		cr_assert_eq(pthread_create(&posters[i].thread, NULL, posts, &posters[i]), 0);
	}
	for (uint64_t i = 0; i < POSTERS * EACH; i++) {
		struct spmtd_post post;

		while (!next(i, &post))
			sched_yield();
		cr_assert_lt(post.to, POSTERS);
		cr_assert_eq(post.from, came[post.to]++);
		take(1);
	}
	for (int i = 0; i < POSTERS; i++) {
		pthread_join(posters[i].thread, NULL);
		cr_assert_eq(posters[i].failed, 0);
		cr_assert_eq(came[i], EACH);
	}
}
