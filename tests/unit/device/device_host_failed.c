/* SPDX-License-Identifier: MIT */
/* Streams of the host runtime that have failed: who hears of it. */
#include "held_stream.h"

/* Work that fails when it runs: its memory goes while a latch holds the stream. */
static void fail_stream(device_stream s)
{
	struct latch latch = { 0 };
	void *gone;

	OK(b->alloc(0, 4096, DEVICE_MEMORY_PLAIN, &gone));
	block(0, s, &latch);
	OK(b->fill(0, gone, 1, 4096, s));
	OK(b->free(0, gone));
	cr_assert(latch_open(&latch));
	cr_assert_eq(b->stream_sync(0, s, 10 * SECOND, NULL), -EFAULT);
}

/* The next stream in the same object has not failed, and what had is still known of the event. */
Test(device_host_failed, an_event_tells_of_a_failure_when_its_stream_is_gone)
{
	device_stream s, t;
	device_event before, behind;

	start(1);
	OK(b->event_create(0, &before));
	OK(b->event_create(0, &behind));
	s = stream_of(0);
	OK(b->fill(0, &(int){ 0 }, 1, 4, s));
	OK(b->event_record(0, before, s));
	fail_stream(s);
	OK(b->event_record(0, behind, s));
	OK(b->stream_destroy(0, s));
	t = stream_of(0);
	cr_assert_eq(t, s, "the object was not used again");
	OK(b->fill(0, &(int){ 0 }, 1, 4, t));
	settle(0, t);
	cr_expect_eq(b->event_query(0, before), 1);
	cr_expect_eq(b->event_sync(0, before, SECOND, NULL), 0);
	cr_expect_eq(b->event_query(0, behind), -EFAULT);
	cr_expect_eq(b->event_sync(0, behind, SECOND, NULL), -EFAULT);
	OK(b->event_record(0, behind, t));
	cr_expect_eq(b->event_sync(0, behind, SECOND, NULL), 0);
	OK(b->event_destroy(0, before));
	OK(b->event_destroy(0, behind));
	end(0, t);
}

/* Also where the failure is known before the wait is queued. */
Test(device_host_failed, who_waits_for_work_that_failed_fails)
{
	device_stream s, t;
	device_event e;
	int calls = 0;

	start(1);
	OK(b->event_create(0, &e));
	s = stream_of(0);
	t = stream_of(0);
	fail_stream(s);
	OK(b->event_record(0, e, s));
	OK(b->stream_wait_event(0, t, e));
	OK(b->fill(0, &calls, 1, sizeof(calls), t));
	cr_expect_eq(b->stream_sync(0, t, 10 * SECOND, NULL), -EFAULT);
	cr_expect_eq(calls, 0);
	OK(b->event_destroy(0, e));
	end(0, s);
	end(0, t);
}

static void count_call(void *arg)
{
	++*(int *)arg;
}

/* A caller that waits for its function would else wait for ever. */
Test(device_host_failed, functions_are_called_all_the_same)
{
	device_stream s;
	int calls = 0;

	start(1);
	s = stream_of(0);
	fail_stream(s);
	OK(b->call(0, s, count_call, &calls));
	cr_expect_eq(b->stream_sync(0, s, 10 * SECOND, NULL), -EFAULT);
	cr_expect_eq(calls, 1);
	end(0, s);
}
