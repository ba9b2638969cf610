/* SPDX-License-Identifier: MIT */
/* Streams of the host runtime whose work is done by the thread that waits for it. */
#include <stdatomic.h>
#include <sys/syscall.h>

#include "held_stream.h"
#include "include/spmt_device/types.h"
#include "src/device/host/stream.h"

#define TURNS 500

struct mark_args {
	_Atomic int *by; /* whose thread has run it */
	_Atomic int *runs;
};

static int thread_now(void)
{
	return (int)syscall(SYS_gettid);
}

static void mark(const void *args)
{
	const struct mark_args *a = args;

	atomic_store(a->by, thread_now());
	atomic_fetch_add(a->runs, 1);
}

static const struct kernel ours = { .name = "ours", .host = mark, .bounded = true },
			   theirs = { .name = "theirs", .host = mark };

static _Atomic int by, runs;
static const struct mark_args args = { &by, &runs };

static void queue(device_stream s, const struct kernel *k)
{
	OK(b->launch(0, s, k, 1, 1, &args, sizeof(args)));
}

/* Until the waiting thread has done something, so that the worker is not woken for the next. */
static void rely(device_stream s)
{
	for (int i = 0; i < 100000; i++) {
		atomic_store(&by, 0);
		queue(s, &ours);
		settle(0, s);
		if (atomic_load(&by) == thread_now())
			return;
	}
	cr_assert_fail("the worker did all");
}

static void comes_to(int want)
{
	for (int64_t end = process_now() + 20 * SECOND; atomic_load(&runs) < want;)
		cr_assert(process_now() < end, "%d of %d", atomic_load(&runs), want);
}

Test(device_host_waiter, who_waits_does_the_librarys_work)
{
	device_stream s;

	start(1);
	s = stream_of(0);
	for (int i = 0; i < TURNS; i++)
		rely(s);
	end(0, s);
}

Test(device_host_waiter, a_users_kernel_is_the_workers)
{
	device_stream s;

	start(1);
	s = stream_of(0);
	for (int i = 0; i < TURNS; i++) {
		if (i % 2)
			rely(s);
		queue(s, &theirs);
		settle(0, s);
		cr_assert_neq(atomic_load(&by), thread_now());
	}
	end(0, s);
}

/* What it runs may wait for what it has left asleep, whose worker would only look after a while. */
static bool wakes_the_other(device_stream s, device_stream t)
{
	int rc;
	struct host_stream *left = host_stream_find(0, s, "test", &rc);
	uint32_t rung;

	rely(t);
	rely(s);
	queue(s, &ours);
	rung = atomic_load(&left->wakes);
	queue(t, &ours);
	settle(0, t);
	settle(0, s);
	return atomic_load(&left->wakes) > rung;
}

Test(device_host_waiter, a_thread_of_two_streams_wakes_the_first)
{
	device_stream s, t;
	int turn;

	start(1);
	s = stream_of(0);
	t = stream_of(0);
	for (turn = 0; turn < TURNS && !wakes_the_other(s, t); turn++)
		;
	cr_assert_lt(turn, TURNS);
	end(0, t);
	end(0, s);
}

/* Both before and behind it, and where that keeps the worker busy. */
Test(device_host_waiter, order_is_kept)
{
	struct latch latch = { 0 };
	device_stream s;

	start(1);
	s = stream_of(0);
	rely(s);
	atomic_store(&runs, 0);
	block(0, s, &latch);
	queue(s, &ours);
	queue(s, &theirs);
	cr_assert_eq(b->stream_sync(0, s, SECOND / 20, NULL), -ETIMEDOUT);
	cr_assert_eq(atomic_load(&runs), 0);
	cr_assert(latch_open(&latch));
	settle(0, s);
	cr_assert_eq(atomic_load(&runs), 2);
	end(0, s);
}

Test(device_host_waiter, what_nobody_waits_for_is_done)
{
	device_stream s;

	start(1);
	s = stream_of(0);
	for (int i = 0; i < 20; i++) {
		rely(s);
		sleep_ms(5); /* the worker sleeps */
		atomic_store(&runs, 0);
		queue(s, &ours);
		if (i % 2)
			queue(s, &theirs);
		comes_to(1 + i % 2);
	}
	end(0, s);
}

static void mark_late(const void *mine)
{
	sleep_ms(20);
	mark(mine);
}

/* The worker's last nap ends while the thread that waits is at the first piece of work; it goes on to the second. */
Test(device_host_waiter, what_nobody_waits_for_is_done_behind_long_work)
{
	static const struct kernel late = { .name = "late", .host = mark_late, .bounded = true };
	device_stream s;
	int lent = 0;

	start(1);
	s = stream_of(0);
	for (int i = 0; i < 100 && lent < 5; i++) {
		rely(s);
		queue(s, &late);
		queue(s, &ours);
		settle(0, s);
		lent += atomic_load(&by) == thread_now();
		atomic_store(&runs, 0);
		queue(s, &ours);
		comes_to(1);
	}
	cr_expect_eq(lent, 5, "the worker did all");
	end(0, s);
}

Test(device_host_waiter, what_is_left_in_a_destroyed_stream_is_done)
{
	for (int i = 0; i < 20; i++) {
		device_stream s;

		start(1);
		s = stream_of(0);
		rely(s);
		atomic_store(&runs, 0);
		queue(s, &ours);
		end(0, s);
		comes_to(1);
	}
}

/* A worker that waits for it does nothing of it itself. */
Test(device_host_waiter, another_streams_wait_is_served)
{
	device_stream s, t;
	device_event e;

	start(1);
	s = stream_of(0);
	t = stream_of(0);
	OK(b->event_create(0, &e));
	for (int i = 0; i < 20; i++) {
		rely(s);
		atomic_store(&runs, 0);
		queue(s, &ours);
		OK(b->event_record(0, e, s));
		OK(b->stream_wait_event(0, t, e));
		settle(0, t);
		cr_assert_eq(atomic_load(&runs), 1);
		cr_assert_neq(atomic_load(&by), thread_now());
	}
	OK(b->event_destroy(0, e));
	end(0, t);
	end(0, s);
}

struct wait_args {
	struct spmt_view view;
	_Atomic bool *go_on;
};

static void wait_on(const void *its)
{
	const struct wait_args *a = its;

	atomic_store(&by, thread_now());
	while (!atomic_load(a->go_on))
		sleep_ms(1);
}

/* Whether the thread that waits has done it. */
static bool waits_itself(uint64_t work_ns, int64_t patience, bool goes_on)
{
	static const struct kernel slow = { "slow", wait_on, true, false, sizeof(struct spmt_view),
		0 };
	_Atomic bool go_on = goes_on; /* else it would wait for ever */
	struct wait_args a = { .view.timeout_ns = work_ns, .go_on = &go_on };
	device_stream s = stream_of(0);
	int64_t begin;
	bool itself;

	rely(s);
	OK(b->launch(0, s, &slow, 1, 1, &a, sizeof(a)));
	begin = calm_ns();
	host_patience(patience);
	cr_expect_eq(b->stream_sync(0, s, SECOND / 20, NULL), goes_on ? 0 : -ETIMEDOUT);
	host_patience(0);
	cr_expect_lt(calm_ns() - begin, SECOND);
	itself = atomic_load(&by) == thread_now();
	atomic_store(&go_on, true);
	settle(0, s);
	end(0, s);
	return itself;
}

/* A deadline would never come in work that takes longer. */
Test(device_host_waiter, what_takes_longer_is_the_workers, .timeout = 30)
{
	bool itself = false;

	start(1);
	cr_expect_not(waits_itself(SECOND / 10, 0, false));
	cr_expect_not(waits_itself(0, 0, false));
	cr_expect_not(waits_itself(SECOND, SECOND / 10, false));
	for (int i = 0; i < TURNS && !itself; i++)
		itself = waits_itself(SECOND, 2 * SECOND, true);
	cr_expect(itself, "the worker did all");
}

static void disturb(const void *unused)
{
	(void)unused;
	atomic_store(&by, host_get_device() * 1000000 + thread_now());
	host_set_device(99); /* fails, which stays with the thread */
	host_set_device(0);
}

/* It has the stream's device meanwhile, and what the work leaves behind is not its own. */
Test(device_host_waiter, the_thread_is_as_it_was)
{
	static const struct kernel odd = { .name = "odd", .host = disturb, .bounded = true };
	device_stream s;
	int lent = 0;

	start(3);
	OK(host_set_device(1));
	s = stream_of(2);
	for (int i = 0; i < 100000 && !lent; i++) {
		OK(b->launch(2, s, &odd, 1, 1, NULL, 0));
		settle(2, s);
		lent = atomic_load(&by) == 2000000 + thread_now();
	}
	cr_assert(lent);
	cr_assert_eq(host_get_device(), 1);
	cr_assert_eq(host_get_error(), 0);
	end(2, s);
}
