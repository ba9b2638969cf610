/* SPDX-License-Identifier: MIT */
/* Streams of the host runtime: order, asynchrony, events, kernels, words, waits. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "held_stream.h"
#include "tests/lib/ranks.h"

/* ---- order and asynchrony */

Test(device_host_stream, a_copy_does_not_wait_for_its_stream)
{
	struct latch latch = { 0 };
	char src[1000], dst[1000] = "";
	device_stream s;

	start(1);
	s = stream_of(0);
	block(0, s, &latch);
	memset(src, 5, sizeof(src));
	OK(b->copy(0, dst, src, sizeof(src), s));
	cr_assert_eq(b->stream_query(0, s), 0);
	cr_assert(is_filled(dst, 0, sizeof(dst)));
	cr_assert(latch_open(&latch));
	settle(0, s);
	cr_assert_eq(b->stream_query(0, s), 1);
	cr_assert(is_filled(dst, 5, sizeof(dst)));
	end(0, s);
}

Test(device_host_stream, a_blocked_stream_holds_up_no_other)
{
	struct latch latch = { 0 };
	device_stream s, t;
	int word = 0;

	start(1);
	s = stream_of(0);
	t = stream_of(0);
	block(0, s, &latch);
	OK(b->fill(0, &word, 1, sizeof(word), t));
	settle(0, t);
	cr_assert_eq(word, 0x01010101);
	cr_assert_eq(b->stream_query(0, s), 0);
	cr_assert(latch_open(&latch));
	settle(0, s);
	end(0, s);
	end(0, t);
}

struct append {
	int *at, value;
};

static void append(void *arg)
{
	struct append *a = arg;

	a->at[a->at[0]++] = a->value;
}

Test(device_host_stream, work_runs_in_order)
{
	enum { N = 2000 };
	static struct append what[N];
	static int log[N + 1] = { 1 };
	device_stream s;

	start(1);
	s = stream_of(0);
	for (int i = 0; i < N; i++) {
		what[i] = (struct append){ log, i };
		OK(b->call(0, s, append, &what[i]));
	}
	settle(0, s);
	for (int i = 0; i < N; i++)
		cr_assert_eq(log[i + 1], i);
	end(0, s);
}

Test(device_host_stream, copies_of_every_small_size_and_place)
{
	unsigned char src[64], dst[64];
	device_stream s;

	start(1);
	s = stream_of(0);
	for (unsigned char i = 0; i < 64; i++)
		src[i] = (unsigned char)(i + 1);
	for (size_t n = 0; n <= 20; n++)
		for (size_t from = 0; from < 9; from++)
			for (size_t to = 0; to < 9; to++) {
				memset(dst, 0, sizeof(dst));
				OK(b->copy(0, dst + to, src + from, n, s));
				settle(0, s);
				cr_assert(!memcmp(dst + to, src + from, n));
				cr_assert(is_filled(dst, 0, to));
				cr_assert(is_filled(dst + to + n, 0, 64 - to - n));
			}
	memcpy(dst, src, 64);
	OK(b->copy(0, dst + 3, dst, 50, s));
	settle(0, s);
	cr_assert(!memcmp(dst + 3, src, 50), "overlap is as with memmove");
	end(0, s);
}

Test(device_host_stream, nothing_is_made_before_the_first_use)
{
	device_stream s;

	start(1);
	s = stream_of(0);
	cr_assert_eq(b->stream_query(0, s), 1);
	settle(0, s);
	cr_assert_eq(workers(0), 0);
	OK(b->fill(0, &(int){ 0 }, 0, 0, s)); /* nothing to do is not queued */
	cr_assert_eq(workers(0), 0);
	end(0, s);
}

Test(device_host_stream, destroy_waits_for_nothing_and_loses_nothing)
{
	struct latch latch = { 0 };
	int word = 0;
	uint64_t value = 0;
	device_stream s;

	start(1);
	s = stream_of(0);
	block(0, s, &latch);
	OK(b->fill(0, &value, 77, 1, s));
	OK(b->stream_destroy(0, s));
	cr_assert_eq(b->stream_query(0, s), -EINVAL);
	cr_assert_eq(b->fill(0, &word, 1, 4, s), -EINVAL);
	cr_assert_eq(b->stream_destroy(0, s), -EINVAL);
	cr_assert_eq(__atomic_load_n(&value, __ATOMIC_ACQUIRE), 0);
	cr_assert(latch_open(&latch));
	cr_assert_eq(workers(0), 0);
	cr_assert_eq(__atomic_load_n(&value, __ATOMIC_ACQUIRE), 77);
	b->close(0);
}

Test(device_host_stream, bad_handles_are_errors)
{
	device_stream s;
	device_event e;
	char local[512];

	start(2);
	s = stream_of(0);
	OK(b->event_create(0, &e));
	cr_assert_eq(b->stream_query(1, s), -EINVAL);
	SAYS("device 0");
	cr_assert_eq(b->stream_query(0, NULL), -EINVAL);
	cr_assert_eq(b->stream_query(0, local), -EINVAL);
	cr_assert_eq(b->stream_query(0, (char *)s + 1), -EINVAL);
	cr_assert_eq(b->stream_query(0, e), -EINVAL);
	cr_assert_eq(b->stream_destroy(0, DEVICE_STREAM_LEGACY), -EINVAL);
	cr_assert_eq(b->event_query(0, s), -EINVAL);
	cr_assert_eq(b->event_query(1, e), -EINVAL);
	OK(b->event_destroy(0, e));
	cr_assert_eq(b->event_destroy(0, e), -EINVAL);
	cr_assert_eq(b->stream_wait_event(0, s, e), -EINVAL);
	cr_assert_eq(b->copy(0, NULL, local, 8, s), -EINVAL);
	cr_assert_eq(b->copy(0, local, local, SIZE_MAX, s), -EINVAL);
	cr_assert_eq(b->call(0, s, NULL, NULL), -EINVAL);
	cr_assert_eq(b->stream_query(0, s), 1);
	end(0, s);
}

Test(device_host_stream, a_closed_device_has_no_streams)
{
	device_stream s;

	start(1);
	cr_assert_eq(b->stream_create(0, &s), -ENODEV);
	cr_assert_eq(b->stream_query(0, DEVICE_STREAM_LEGACY), -ENODEV);
	cr_assert_eq(b->stream_query(0, DEVICE_STREAM_PER_THREAD), -ENODEV);
	OK(b->open(0));
	OK(b->open(0));
	b->close(0);
	cr_assert_eq(b->stream_query(0, DEVICE_STREAM_LEGACY), 1);
	b->close(0);
	b->close(0);
	cr_assert_eq(b->stream_query(0, DEVICE_STREAM_LEGACY), -ENODEV);
}

/* ---- default streams */

static void *use_own_stream(void *arg)
{
	OK(b->call(0, DEVICE_STREAM_PER_THREAD, latch_call, arg));
	OK(b->stream_sync(0, DEVICE_STREAM_PER_THREAD, 10 * SECOND, NULL));
	return NULL;
}

Test(device_host_stream, each_thread_has_its_own)
{
	struct latch mine = { 0 }, theirs = { .open = 1 };
	pthread_t thread;

	start(1);
	OK(b->open(0));
	block(0, DEVICE_STREAM_PER_THREAD, &mine);
	cr_assert_eq(pthread_create(&thread, NULL, use_own_stream, &theirs), 0);
	pthread_join(thread, NULL); /* it did not wait for ours */
	cr_assert_eq(workers(1), 1, "its worker ended with it, ours did not");
	cr_assert_eq(b->stream_query(0, DEVICE_STREAM_LEGACY), 1);
	cr_assert(latch_open(&mine));
	settle(0, DEVICE_STREAM_PER_THREAD);
	b->close(0);
	cr_assert_eq(workers(0), 0);
}

/* ---- events */

Test(device_host_stream, an_event_orders_streams_of_two_devices)
{
	struct latch latch = { 0 };
	device_stream s, t;
	device_event e;
	int from = 1, to = 0;

	start(2);
	s = stream_of(0);
	t = stream_of(1);
	OK(b->event_create(0, &e));
	cr_assert_eq(b->event_query(0, e), 1);
	block(0, s, &latch);
	OK(b->fill(0, &from, 2, sizeof(from), s));
	OK(b->event_record(0, e, s));
	cr_assert_eq(b->event_query(0, e), 0);
	OK(b->stream_wait_event(1, t, e));
	OK(b->copy(1, &to, &from, sizeof(to), t));
	usleep(20000);
	cr_assert_eq(b->stream_query(1, t), 0);
	cr_assert(latch_open(&latch));
	settle(1, t);
	cr_assert_eq(to, 0x02020202);
	cr_assert_eq(b->event_query(0, e), 1);
	OK(b->event_destroy(0, e));
	end(0, s);
	end(1, t);
}

Test(device_host_stream, a_wait_is_for_the_record_before_it)
{
	struct latch first = { 0 }, second = { 0 };
	device_stream s, t, u;
	device_event e;

	start(1);
	s = stream_of(0);
	t = stream_of(0);
	u = stream_of(0);
	OK(b->event_create(0, &e));
	block(0, s, &first);
	OK(b->event_record(0, e, s));
	OK(b->stream_wait_event(0, u, e));
	block(0, t, &second);
	OK(b->event_record(0, e, t));
	cr_assert(latch_open(&first));
	settle(0, u);
	cr_assert_eq(b->event_query(0, e), 0);
	cr_assert(latch_open(&second));
	settle(0, t);
	cr_assert_eq(b->event_query(0, e), 1);
	OK(b->event_destroy(0, e));
	end(0, s);
	end(0, t);
	end(0, u);
}

Test(device_host_stream, an_event_outlives_its_stream)
{
	struct latch latch = { 0 };
	device_stream s, t;
	device_event e;

	start(1);
	s = stream_of(0);
	t = stream_of(0);
	OK(b->event_create(0, &e));
	block(0, s, &latch);
	OK(b->event_record(0, e, s));
	OK(b->stream_wait_event(0, t, e));
	end(0, s);
	cr_assert_eq(b->event_query(0, e), 0);
	cr_assert(latch_open(&latch));
	settle(0, t);
	cr_assert_eq(b->event_query(0, e), 1);
	OK(b->event_destroy(0, e));
	end(0, t);
}

/* ---- kernels */

struct args {
	uint64_t *out, value;
};

static void kernel_store(const void *args)
{
	const struct args *a = args;

	*a->out = a->value + (uint64_t)host_get_device();
}

static const struct kernel store = { "store", kernel_store };

Test(device_host_stream, arguments_are_copied_at_launch)
{
	struct latch latch = { 0 };
	struct args args;
	uint64_t out = 0;
	device_stream s;

	start(3);
	s = stream_of(2);
	block(2, s, &latch);
	args = (struct args){ &out, 40 };
	OK(b->launch(2, s, &store, 4, 64, &args, sizeof(args)));
	memset(&args, 0xff, sizeof(args));
	cr_assert(latch_open(&latch));
	settle(2, s);
	cr_assert_eq(out, 42, "a kernel runs once, on the stream's device");
	cr_assert_eq(b->launch(2, s, &store, 0, 1, &args, sizeof(args)), -EINVAL);
	cr_assert_eq(b->launch(2, s, &(struct kernel){ "none", NULL }, 1, 1, NULL, 0), -EINVAL);
	cr_assert_eq(b->launch(2, s, &store, 1, 1, NULL, 8), -EINVAL);
	end(2, s);
}

/* As a user's are who builds without optimisation and with AddressSanitizer. */
static void kernel_deep(const void *args)
{
	const struct args *a = args;
	volatile char frame[(3 << 20) / 2];

	for (size_t i = 0; i < sizeof(frame); i += 4096)
		frame[i] = (char)a->value;
	*a->out = (uint64_t)frame[1 << 20];
}

Test(device_host_stream, kernels_have_room_on_their_stack)
{
	static const struct kernel deep = { "deep", kernel_deep };
	device_stream s;
	uint64_t out = 0;

	start(1);
	s = stream_of(0);
	OK(b->launch(0, s, &deep, 1, 1, &(struct args){ &out, 42 }, sizeof(struct args)));
	settle(0, s);
	cr_assert_eq(out, 42);
	end(0, s);
}

/* Padding behind an int holds what was there before: the upper half of an address, here, of memory of another device. */
Test(device_host_stream, an_int_beside_padding_is_no_address)
{
	struct args args = { NULL, 0 };
	device_stream s;
	void *base;
	size_t unit;
	uint64_t out = 0;

	start(2);
	s = stream_of(0);
	OK(b->vmm->granularity(1, &unit));
	OK(b->vmm->reserve(unit, (size_t)1 << 32, &base));
	OK(b->vmm->commit(1, base, unit, NULL, 0));
	args = (struct args){ &out, (uintptr_t)base + 7 };
	OK(host_launch(0, s, &store, 1, 1, &args, sizeof(args)));
	settle(0, s);
	cr_assert_eq(out, args.value);
	OK(b->vmm->decommit(1, base, unit));
	OK(b->vmm->unreserve(base, unit));
	end(0, s);
}

Test(device_host_stream, a_kernel_is_not_given_memory_out_of_reach)
{
	struct args args = { NULL, 1 };
	device_stream s;
	void *ptr;

	start(2);
	s = stream_of(0);
	OK(b->alloc(1, 4096, DEVICE_MEMORY_SYMMETRIC, &ptr));
	args.out = (uint64_t *)ptr + 8;
	cr_assert_eq(host_launch(0, s, &store, 1, 1, &args, sizeof(args)), -EACCES);
	SAYS("device 1");
	cr_assert_eq(host_get_error(), -EACCES);
	OK(b->peer_enable(0, 1));
	OK(host_launch(0, s, &store, 1, 1, &args, sizeof(args)));
	settle(0, s);
	cr_assert_eq(*args.out, 1);
	OK(b->free(1, ptr));
	end(0, s);
}

struct meet {
	_Atomic int *mine, *theirs;
};

static void kernel_meet(const void *args)
{
	const struct meet *m = args;

	atomic_fetch_add(m->mine, 1);
	while (!atomic_load(m->theirs))
		usleep(100);
}

Test(device_host_stream, kernels_may_wait_for_each_other)
{
	static const struct kernel kernel = { "meet", kernel_meet };
	_Atomic int words[2] = { 0, 0 };
	device_stream s[2];

	start(2);
	for (int i = 0; i < 2; i++) {
		struct meet meet = { &words[i], &words[!i] };

		s[i] = stream_of(i);
		OK(b->launch(i, s[i], &kernel, 1, 1, &meet, sizeof(meet)));
	}
	settle(0, s[0]);
	settle(1, s[1]);
	end(0, s[0]);
	end(1, s[1]);
}

/* ---- waits */

Test(device_host_stream, a_sync_ends_at_its_deadline)
{
	struct latch latch = { 0 };
	device_stream s;
	int64_t begin, calm;

	start(1);
	s = stream_of(0);
	block(0, s, &latch);
	cr_assert_eq(b->stream_sync(0, s, 0, NULL), -ETIMEDOUT);
	calm = calm_ns();
	begin = process_now();
	cr_assert_eq(b->stream_sync(0, s, 30000000, NULL), -ETIMEDOUT);
	cr_assert_geq(process_now() - begin, 30000000);
	cr_assert_lt(calm_ns() - calm, 500000000);
	cr_assert(latch_open(&latch));
	settle(0, s);
	end(0, s);
}

static void *set_later(void *word)
{
	usleep(30000);
	__atomic_store_n((uint32_t *)word, 1, __ATOMIC_RELEASE);
	return NULL;
}

Test(device_host_stream, a_sync_ends_at_a_stop)
{
	struct latch latch = { 0 };
	uint32_t stop = 0;
	pthread_t thread;
	device_stream s;
	int64_t begin;

	start(1);
	s = stream_of(0);
	block(0, s, &latch);
	begin = calm_ns();
	cr_assert_eq(pthread_create(&thread, NULL, set_later, &stop), 0);
	cr_assert_eq(b->stream_sync(0, s, -1, &stop), -ECANCELED);
	cr_assert_lt(calm_ns() - begin, 500000000);
	pthread_join(thread, NULL);
	cr_assert(latch_open(&latch));
	settle(0, s);
	cr_assert_eq(b->stream_sync(0, s, -1, &stop), 0, "done goes before stopped");
	end(0, s);
}

Test(device_host_stream, the_idle_use_no_cpu)
{
	enum { N = 32 };
	device_stream s[N];
	uint64_t word = 0;
	int64_t used = INT64_MAX;

	start(1);
	for (int i = 0; i < N; i++) {
		s[i] = stream_of(0);
		OK(b->fill(0, &word, 1, sizeof(word), s[i]));
		settle(0, s[i]);
	}
	/* What a busy machine charges a process for is not always its own. */
	for (int round = 0; round < 5 && used >= 5000000; round++) {
		int64_t before = cpu_ns(), now;

		usleep(200000);
		now = cpu_ns();
		used = now - before < used ? now - before : used;
	}
	cr_assert_lt(used, 5000000, "%lld us of CPU", (long long)used / 1000);
	for (int i = 0; i < N; i++)
		end(0, s[i]);
}

/* What a function has seen of its thread, which it leaves in another state. */
struct thread_seen {
	int device, error;
};

static void see_thread(void *arg)
{
	struct thread_seen *seen = arg;

	seen->device = host_get_device();
	seen->error = host_peek_error();
	host_set_device(0);
	host_set_device(-1);
}

static void see_in_turn(const device_stream *s, int n)
{
	for (int i = 0; i < n; i++) {
		struct thread_seen seen = { .device = -1 };

		OK(b->call(1, s[i], see_thread, &seen));
		settle(1, s[i]);
		cr_assert_eq(seen.device, 1);
		cr_assert_eq(seen.error, 0);
	}
}

/* A thread goes to the stream that has work, and leaves behind what functions have done to it; but not while it is busy. */
Test(device_host_stream, streams_that_work_in_turn_share_threads)
{
	enum { N = 40 };
	struct latch gate = { 0 };
	device_stream s[N];
	long before;

	start(2);
	for (int i = 0; i < N; i++)
		s[i] = stream_of(1);
	before = usage_now().threads;
	for (int turn = 0; turn < 3; turn++)
		see_in_turn(s, N);
	block(1, s[0], &gate);
	see_in_turn(s + 1, N - 1);
	cr_assert_eq(b->stream_query(1, s[0]), 0);
	cr_expect_lt(usage_now().threads - before, N / 2);
	atomic_store(&gate.open, 1);
	for (int i = 0; i < N; i++) {
		settle(1, s[i]);
		end(1, s[i]);
	}
	cr_expect_eq(usage_now().threads, before);
}

static void get_mask(void *set)
{
	pthread_sigmask(SIG_SETMASK, NULL, set);
}

Test(device_host_stream, workers_take_no_signals)
{
	device_stream s;
	sigset_t set, before, after;

	start(1);
	s = stream_of(0);
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	OK(b->call(0, s, get_mask, &set));
	settle(0, s);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	cr_assert(sigismember(&set, SIGINT) && sigismember(&set, SIGALRM) &&
		sigismember(&set, SIGUSR1) && sigismember(&set, SIGCHLD));
	cr_assert_not(sigismember(&set, SIGSEGV), "a fault is reported where it happens");
	for (int i = 1; i < 32; i++)
		cr_assert_eq(sigismember(&before, i), sigismember(&after, i));
	end(0, s);
}
