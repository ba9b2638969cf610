/* SPDX-License-Identifier: MIT */
/* The host runtime's devices, threads, peers and life. Memory and streams: device_host_memory.c, device_host_stream.c. */
#include <pthread.h>

#include "host_backend.h"

static void finish(int dev)
{
	OK(b->stream_sync(dev, DEVICE_STREAM_LEGACY, 10 * SECOND, NULL));
}

/* ---- devices */

Test(device_host, default_count)
{
	int n;

	unsetenv("SPMT_HOST_DEVICES");
	load();
	load();
	OK(b->count(&n));
	cr_assert_eq(n, 8);
}

Test(device_host, no_devices)
{
	struct device_saved saved;
	int n = -1;

	start(0);
	OK(b->count(&n));
	cr_assert_eq(n, 0);
	cr_assert_eq(b->enter(0, &saved), -ENODEV);
	cr_assert_eq(host_set_device(0), -ENODEV);
	SAYS("SPMT_HOST_DEVICES");
}

Test(device_host, a_count_out_of_range_is_refused)
{
	setenv("SPMT_HOST_DEVICES", "4097", 1);
	cr_assert_lt(b->load(), 0);
	SAYS("SPMT_HOST_DEVICES");
}

Test(device_host, nothing_works_before_load)
{
	int n = -1;

	cr_assert_eq(b->count(&n), -ENODEV);
	cr_assert_eq(n, -1);
	cr_assert_eq(b->open(0), -ENODEV);
	b->close(0);
}

Test(device_host, describe)
{
	struct device_desc desc;

	start(3);
	OK(b->describe(2, &desc));
	cr_assert_eq(desc.ordinal, 2);
	cr_assert_str_eq(desc.arch, "host");
	cr_assert_str_eq(desc.pci, "");
	cr_assert_gt(desc.memory, 16 * MIB);
	cr_assert_geq(desc.units, 1);
	cr_assert_eq(b->describe(3, &desc), -ENODEV);
	cr_assert_eq(b->describe(-1, &desc), -ENODEV);
}

Test(device_host, the_largest_count)
{
	void *ptr;

	start(4096);
	OK(b->open(4095));
	OK(b->peer_enable(4095, 0));
	OK(b->alloc(0, 64, DEVICE_MEMORY_PLAIN, &ptr));
	OK(b->fill(4095, ptr, 7, 64, DEVICE_STREAM_LEGACY));
	finish(4095);
	cr_assert(is_filled(ptr, 7, 64));
	OK(b->free(0, ptr));
	b->close(4095);
}

Test(device_host, many_devices)
{
	enum { N = 144 };
	void *ptr[N];

	start(N);
	for (int i = 0; i < N; i++) {
		OK(b->open(i));
		OK(b->alloc(i, 3 * MIB, DEVICE_MEMORY_SYMMETRIC, &ptr[i]));
		for (int j = 0; j < N; j++)
			OK(b->peer_enable(i, j));
	}
	for (int i = 0; i < N; i++)
		OK(b->fill(i, ptr[(i + 1) % N], i, 4096, DEVICE_STREAM_LEGACY));
	for (int i = 0; i < N; i++) {
		finish(i);
		cr_assert(is_filled(ptr[(i + 1) % N], i, 4096));
	}
	for (int i = 0; i < N; i++) {
		OK(b->free(i, ptr[i]));
		b->close(i);
	}
	cr_assert_eq(workers(0), 0);
}

/* ---- threads */

static void *get_device(void *out)
{
	*(int *)out = host_get_device();
	host_set_device(2);
	return NULL;
}

Test(device_host, the_current_device_is_a_threads_own)
{
	pthread_t thread;
	int seen = -1;

	start(8);
	cr_assert_eq(host_get_device(), 0);
	OK(host_set_device(6));
	cr_assert_eq(pthread_create(&thread, NULL, get_device, &seen), 0);
	pthread_join(thread, NULL);
	cr_assert_eq(seen, 0);
	cr_assert_eq(host_get_device(), 6);
}

Test(device_host, a_failed_call_leaves_a_sticky_error)
{
	start(2);
	cr_assert_eq(host_set_device(2), -ENODEV);
	cr_assert_eq(host_get_device(), 0);
	OK(host_set_device(1));
	cr_assert_eq(host_peek_error(), -ENODEV);
	cr_assert_eq(host_get_error(), -ENODEV);
	cr_assert_eq(host_get_error(), 0);
}

Test(device_host, ops_leave_the_sticky_error_alone)
{
	struct device_saved saved;
	void *mine, *theirs;

	start(2);
	OK(b->open(0));
	OK(b->alloc(0, 64, DEVICE_MEMORY_PLAIN, &mine));
	OK(b->alloc(1, 64, DEVICE_MEMORY_PLAIN, &theirs));
	cr_assert_lt(b->copy(0, mine, theirs, 64, DEVICE_STREAM_LEGACY), 0);
	cr_assert_lt(b->free(1, mine), 0);
	cr_assert_lt(b->enter(2, &saved), 0);
	OK(b->peer_enable(0, 1));
	OK(b->peer_enable(0, 1));
	cr_assert_eq(host_peek_error(), 0);
	cr_assert_eq(host_set_device(-1), -ENODEV);
	OK(b->copy(0, mine, theirs, 64, DEVICE_STREAM_LEGACY));
	cr_assert_lt(b->alloc(9, 1, DEVICE_MEMORY_PLAIN, &mine), 0);
	finish(0);
	cr_assert_eq(host_peek_error(), -ENODEV);
	OK(b->free(0, mine));
	OK(b->free(1, theirs));
	b->close(0);
}

/* ---- peers */

Test(device_host, a_peer_is_refused_until_enabled)
{
	void *mine, *theirs;

	start(8);
	OK(b->open(1));
	OK(b->alloc(1, 64, DEVICE_MEMORY_PLAIN, &mine));
	OK(b->alloc(6, 64, DEVICE_MEMORY_PLAIN, &theirs));
	cr_assert_eq(host_copy(1, theirs, mine, 64, DEVICE_STREAM_LEGACY), -EACCES);
	SAYS("device 1");
	SAYS("device 6");
	cr_assert_eq(host_get_error(), -EACCES);
	cr_assert_eq(host_fill(1, theirs, 1, 64, DEVICE_STREAM_LEGACY), -EACCES);
	cr_assert_eq(host_get_error(), -EACCES);
	OK(b->peer_enable(6, 1));
	cr_assert_eq(b->copy(1, mine, theirs, 64, DEVICE_STREAM_LEGACY), -EACCES);
	OK(b->peer_enable(1, 6));
	OK(b->fill(1, theirs, 9, 64, DEVICE_STREAM_LEGACY));
	OK(b->copy(1, mine, theirs, 64, DEVICE_STREAM_LEGACY));
	finish(1);
	cr_assert(is_filled(mine, 9, 64));
	OK(b->free(1, mine));
	OK(b->free(6, theirs));
	b->close(1);
}

Test(device_host, enabling_twice_is_an_error_of_the_runtime_only)
{
	start(2);
	OK(host_peer_enable(0, 1));
	cr_assert_eq(host_peer_enable(0, 1), -EALREADY);
	cr_assert_eq(host_get_error(), -EALREADY);
	OK(b->peer_enable(0, 1));
	cr_assert_eq(host_peek_error(), 0);
}

Test(device_host, a_forbidden_peer)
{
	char reason[DEVICE_REASON] = "";

	start(2);
	OK(b->peer_check(0, 1, reason));
	OK(b->peer_enable(0, 1));
	host_forbid_peer(0, 1, true);
	cr_assert_eq(b->peer_check(0, 1, reason), -EACCES);
	cr_assert_not_null(strstr(reason, "device 1"), "%s", reason);
	OK(b->peer_check(1, 0, reason));
	OK(b->peer_check(0, 0, reason));
	cr_assert_eq(b->peer_enable(0, 1), -EACCES);
	cr_assert_eq(host_peek_error(), 0);
	cr_assert_eq(b->peer_check(0, 2, reason), -ENODEV);
	host_forbid_peer(0, 1, false);
	OK(host_peer_enable(0, 1));
}

/* ---- fork */

static int heir(void *arg)
{
	void *parents = ((void **)arg)[0], *stream = ((void **)arg)[1], *own;

	if (b->fill(0, parents, 1, 64, stream) != -ENODEV || b->free(0, parents) != -ENODEV)
		return 1;
	if (b->load() || b->free(0, parents) != -EINVAL || b->stream_query(0, stream) != -EINVAL)
		return 2;
	if (b->stream_query(0, DEVICE_STREAM_LEGACY) != -ENODEV)
		return 3; /* open in the parent, not here */
	if (b->open(0) || b->alloc(0, 64, DEVICE_MEMORY_PLAIN, &own))
		return 4;
	if (b->fill(0, own, 1, 64, DEVICE_STREAM_PER_THREAD) ||
		b->stream_sync(0, DEVICE_STREAM_PER_THREAD, 5 * SECOND, NULL))
		return 5;
	return is_filled(own, 1, 64) && !b->free(0, own) ? 0 : 6;
}

Test(device_host, a_forked_child_begins_anew)
{
	void *have[2];

	start(1);
	OK(b->open(0));
	OK(b->alloc(0, 64, DEVICE_MEMORY_PLAIN, &have[0]));
	OK(b->stream_create(0, &have[1]));
	OK(b->fill(0, have[0], 8, 64, have[1]));
	OK(b->fill(0, have[0], 8, 64, DEVICE_STREAM_PER_THREAD));
	finish(0);
	OK(b->stream_sync(0, have[1], SECOND, NULL));
	OK(b->stream_sync(0, DEVICE_STREAM_PER_THREAD, SECOND, NULL));
	cr_assert_eq(in_child(heir, have), 0);
	cr_assert(is_filled(have[0], 8, 64));
	OK(b->fill(0, have[0], 9, 64, have[1]));
	OK(b->stream_sync(0, have[1], SECOND, NULL));
	cr_assert(is_filled(have[0], 9, 64));
	OK(b->stream_destroy(0, have[1]));
	OK(b->free(0, have[0]));
	b->close(0);
}

/* ---- life */

static void kernel_nothing(const void *args)
{
	(void)args;
}

/* One life of a program that uses everything once; a refusal on the way is undone. 0 or the first failure. */
static int live_once(void)
{
	static const struct kernel kernel = { "nothing", kernel_nothing };
	device_stream s = NULL;
	device_event e = NULL;
	void *range = NULL, *ptr = NULL;
	int rc, peer = 1, opened = 0, committed = 0;

	rc = b->load();
	if (!rc)
		rc = b->open(0);
	opened = !rc;
	if (!rc)
		rc = b->peer_enable(0, 1);
	if (!rc)
		rc = b->alloc(0, MIB, DEVICE_MEMORY_SYMMETRIC, &ptr);
	if (!rc)
		rc = b->vmm->reserve(4 * MIB, 4096, &range);
	if (!rc)
		rc = b->vmm->commit(0, range, 2 * MIB, &peer, 1);
	committed = !rc;
	if (!rc)
		rc = b->stream_create(0, &s);
	if (!rc)
		rc = b->event_create(0, &e);
	if (!rc)
		rc = b->fill(0, ptr, 1, MIB, s);
	if (!rc)
		rc = b->event_record(0, e, s);
	if (!rc)
		rc = b->stream_wait_event(0, DEVICE_STREAM_PER_THREAD, e);
	if (!rc)
		rc = b->copy(0, range, ptr, MIB, DEVICE_STREAM_PER_THREAD);
	if (!rc)
		rc = b->launch(0, DEVICE_STREAM_LEGACY, &kernel, 1, 1, NULL, 0);
	if (opened) {
		b->stream_sync(0, DEVICE_STREAM_PER_THREAD, -1, NULL);
		b->stream_sync(0, DEVICE_STREAM_LEGACY, -1, NULL);
	}
	if (s) {
		b->stream_sync(0, s, -1, NULL);
		OK(b->stream_destroy(0, s));
	}
	if (!rc)
		cr_assert(is_filled(range, 1, MIB));
	if (e)
		OK(b->event_destroy(0, e));
	if (committed)
		OK(b->vmm->decommit(0, range, 2 * MIB));
	if (range)
		OK(b->vmm->unreserve(range, 4 * MIB));
	OK(ptr ? b->free(0, ptr) : 0);
	if (opened)
		b->close(0);
	return rc;
}

static long resident_kib(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long size = 0, pages = 0;

	if (!file)
		return -1;
	if (fscanf(file, "%ld %ld", &size, &pages) != 2)
		pages = -1;
	fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

Test(device_host, a_thousand_lives_leave_nothing)
{
	int fds, maps, i;
	long rss;

	start(8);
	for (i = 0; i < 50; i++)
		OK(live_once());
	cr_assert_eq(workers(0), 0);
	fds = entries("/proc/self/fd");
	maps = lines("/proc/self/maps");
	rss = resident_kib();
	for (i = 0; i < 1000; i++)
		OK(live_once());
	cr_assert_eq(workers(0), 0);
	cr_expect_eq(entries("/proc/self/fd"), fds);
	if (!SANITIZED) { /* a sanitizer keeps what was freed */
		cr_expect_leq(lines("/proc/self/maps"), maps + 4);
		cr_expect_leq(resident_kib(), rss + 512);
	}
}

/* Every request of every kind is refused once. */
Test(device_host, each_refusal_is_an_error_and_is_undone)
{
	int fds, fired = 0;
	uint64_t n;

	start(8);
	fds = entries("/proc/self/fd");
	for (n = 1; n < 1000; n++) {
		bool hit;
		int rc;

		fault_arm(FAULT_ANY, n);
		rc = live_once();
		hit = fault_fired();
		fault_disarm();
		if (!hit) {
			OK(rc);
			break;
		}
		cr_expect_lt(rc, 0, "refusal %llu went unnoticed", (unsigned long long)n);
		fired++;
		cr_expect_eq(
			entries("/proc/self/fd"), fds, "after refusal %llu", (unsigned long long)n);
		cr_expect_eq(workers(0), 0, "after refusal %llu", (unsigned long long)n);
		cr_expect_eq(host_peek_error(), 0);
		OK(live_once());
	}
	cr_assert_gt(fired, 25);
	cr_assert_lt(n, 1000);
}
