/* SPDX-License-Identifier: MIT */
/* The hip backend over the stand-ins for libamdhip64 5, 6 and 7: what differs between them, and
   the thread's state. */
#include "standin.h"

#include <criterion/parameterized.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "include/spmt.h"
#include "kept.h"
#include "src/device/gpu/abi_hip_calls.h"
#include "src/kernels/kernels.h"
#include "standin_images.h"
#include "standin_work.h"

#define B (&backend_hip)
#define GRANULARITY ((size_t)2 << 20) /* of the stand-ins */

static struct {
	struct standin s;
	hip_result (*set)(int dev);
	hip_result (*get)(int *dev);
	hip_result (*last)(void);
	hip_result (*peek)(void);
	hip_result (*alloc)(void **ptr, size_t size);
	hip_result (*reset)(void);
} rt;

static void start(int version)
{
	char path[4096];

	snprintf(path, sizeof(path), FAKES "/fake-hip%d.so", version);
	standin_load(&rt.s, B, "SPMT_HIP_LIB", path);
	standin_symbol(&rt.s, "hipSetDevice", &rt.set);
	standin_symbol(&rt.s, "hipGetDevice", &rt.get);
	standin_symbol(&rt.s, "hipGetLastError", &rt.last);
	standin_symbol(&rt.s, "hipPeekAtLastError", &rt.peek);
	standin_symbol(&rt.s, "hipMalloc", &rt.alloc);
	standin_symbol(&rt.s, "hipDeviceReset", &rt.reset);
}

static int current(void)
{
	int dev = -1;

	rt.get(&dev);
	return dev;
}

static void reset(int dev)
{
	int was = current();

	cr_assert(!rt.set(dev) && !rt.reset() && !rt.set(was));
}

#define VERSIONS(name)                                        \
	ParameterizedTestParameters(hip, name)                \
	{                                                     \
		static int versions[] = { 5, 6, 7 };          \
		return cr_make_param_array(int, versions, 3); \
	}                                                     \
	ParameterizedTest(int *version, hip, name)

TestSuite(hip, .timeout = 60);

Test(hip, no_driver)
{
	unsetenv("SPMT_HIP_LIB");
	if (!access("/dev/kfd", F_OK))
		cr_skip_test("this machine has /dev/kfd");
	cr_assert_eq(B->load(), -ENODEV);
	cr_assert(strstr(status_sentence(), "/dev/kfd"));
}

Test(hip, no_library)
{
	setenv("SPMT_HIP_LIB", "/nonexistent/libamdhip64.so", 1);
	cr_assert_eq(B->load(), -ENODEV);
	cr_assert(strstr(status_sentence(), "SPMT_HIP_LIB"));
	setenv("SPMT_HIP_LIB", FAKES "/fake-hip6.so", 1);
	cr_assert_eq(B->load(), -ENODEV, "once a process");
}

Test(hip, no_such_symbols)
{
	setenv("SPMT_HIP_LIB", "libm.so.6", 1);
	cr_assert_eq(B->load(), -ENOSYS);
	cr_assert(strstr(status_sentence(), "hipInit"));
}

VERSIONS(no_devices)
{
	char path[4096];

	snprintf(path, sizeof(path), FAKES "/fake-hip%d.so", *version);
	setenv("SPMT_HIP_LIB", path, 1);
	setenv("SPMT_FAKE_DEVICES", "0", 1);
	cr_assert_eq(B->load(), -ENODEV);
	cr_assert(strstr(status_sentence(), "no devices"));
}

VERSIONS(architecture)
{
	struct device_desc d;

	start(*version);
	cr_assert_eq(B->describe(1, &d), 0);
	cr_assert_str_eq(d.arch, "gfx942");
	cr_assert_str_eq(d.pci, "0000:fb:00.0");
	cr_assert_eq(d.uuid[0], 0x61);
}

/* All devices that the driver has no number of have the same UUID, and are not one device. */
VERSIONS(no_uuids)
{
	struct device_desc d[2];

	setenv("SPMT_FAKE_NO_UUIDS", "1", 1);
	start(*version);
	cr_assert(!B->describe(0, &d[0]) && !B->describe(1, &d[1]));
	cr_assert_str_eq((char *)d[0].uuid, d[0].pci);
	cr_assert_str_eq((char *)d[1].uuid, d[1].pci);
	cr_assert(memcmp(d[0].uuid, d[1].uuid, sizeof(d[0].uuid)));
}

/* Version 5 knows no uncached memory; from 6 on it is taken at once, and only symmetric memory
   is of a special kind. */
VERSIONS(symmetric_memory)
{
	void *ptr;

	start(*version);
	cr_assert_eq(B->open(0), 0);
	rt.s.fail("hipExtMallocWithFlags", 0, 0);
	cr_assert_eq(B->alloc(0, 64, DEVICE_MEMORY_SYMMETRIC, &ptr), 0, "%s", status_sentence());
	cr_assert_eq(rt.s.calls(), *version == 5 ? 2 : 1);
	cr_assert_eq(B->alloc(0, 64, DEVICE_MEMORY_PLAIN, &ptr), 0);
	cr_assert_eq(rt.s.calls(), *version == 5 ? 2 : 1);
	rt.s.fail("hipExtMallocWithFlags", -1, 2);
	cr_assert_eq(B->alloc(0, 64, DEVICE_MEMORY_SYMMETRIC, &ptr), -ENOMEM);
	cr_assert_eq(rt.s.calls(), 1, "no memory is no reason to ask for another kind");
}

static void raise_flag(void *arg)
{
	__atomic_store_n((int *)arg, 1, __ATOMIC_SEQ_CST);
}

/* hipLaunchHostFunc is not in version 5. */
VERSIONS(host_functions)
{
	device_stream s;
	int raised = 0;

	start(*version);
	cr_assert(!B->open(0) && !B->stream_create(0, &s));
	rt.s.fail("hipStreamAddCallback", 0, 0);
	cr_assert_eq(B->call(0, s, raise_flag, &raised), 0, "%s", status_sentence());
	cr_assert_eq(rt.s.calls(), *version == 5);
	cr_assert_eq(B->stream_sync(0, s, 1000000000, NULL), 0);
	cr_assert_eq(raised, 1);
}

/* Uncached memory for ranges came with 7.2; before, a symmetric heap in one would not be
   coherent. */
VERSIONS(ranges)
{
	size_t g = 7;
	void *base = &g;
	int rc;

	start(*version);
	rc = B->vmm->granularity(0, &g);
	cr_assert_eq(rc, *version < 7 ? SPMT_ERR_UNSUPPORTED : 0);
	cr_assert_eq(g, *version < 7 ? 7 : GRANULARITY);
	rc = B->vmm->reserve(GRANULARITY, GRANULARITY, &base);
	cr_assert_eq(rc, *version < 7 ? SPMT_ERR_UNSUPPORTED : 0);
	cr_assert_neq(base, NULL);
	if (!rc) {
		cr_assert_eq(B->vmm->unreserve(base, GRANULARITY), 0);
		/* which the runtime does not align to as much */
		cr_assert_eq(B->vmm->reserve(GRANULARITY, 4 * GRANULARITY, &base), 0);
		cr_assert_eq((uintptr_t)base % (4 * GRANULARITY), 0);
		cr_assert_eq(B->vmm->commit(0, base, GRANULARITY, NULL, 0), -EINVAL, "not open");
		cr_assert_eq(B->vmm->unreserve(base, GRANULARITY), 0);
	}
	cr_assert(standin_idle(&rt.s));
}

enum { BUSY = 8, ROUNDS = 8 }; /* threads, and what each does */

/* Every call for ranges there is. 0, or the line that failed. */
static int ranges_once(int dev)
{
	struct device_export e;
	void *own = NULL, *into = NULL, *seen = NULL;
	int fd = -1, bad = 0;

#define DOES(call)                       \
	do {                             \
		if ((call) != 0 && !bad) \
			bad = __LINE__;  \
	} while (0)
	DOES(B->vmm->reserve(GRANULARITY, GRANULARITY, &own));
	DOES(B->vmm->reserve(GRANULARITY, GRANULARITY, &into));
	DOES(bad ? bad : B->vmm->commit(dev, own, GRANULARITY, NULL, 0));
	DOES(bad ? bad : B->ipc->export_memory(dev, own, GRANULARITY, &e, &fd));
	DOES(bad ? bad : B->vmm->import(dev, into, &e, fd));
	DOES(bad ? bad : B->ipc->import_memory(dev, &e, fd, &seen));
	DOES(bad ? bad : B->ipc->release(dev, seen, &e));
	DOES(bad ? bad : B->vmm->decommit(dev, into, GRANULARITY));
	DOES(bad ? bad : B->vmm->decommit(dev, own, GRANULARITY));
	DOES(bad ? bad : B->vmm->unreserve(into, GRANULARITY));
	DOES(bad ? bad : B->vmm->unreserve(own, GRANULARITY));
#undef DOES
	if (fd >= 0)
		close(fd);
	return bad;
}

struct busy {
	pthread_barrier_t *begin;
	int dev, bad;
	char why[256];
};

static void *busy_main(void *arg)
{
	struct busy *t = arg;

	pthread_barrier_wait(t->begin);
	for (int i = 0; i < ROUNDS && !t->bad; i++)
		t->bad = ranges_once(t->dev);
	if (t->bad)
		snprintf(t->why, sizeof(t->why), "%s", status_sentence());
	return NULL;
}

/* The runtime's calls for ranges fail now and then where threads make them at once, on different devices as well. */
Test(hip, ranges_of_many_threads)
{
	struct busy threads[BUSY];
	pthread_t ids[BUSY];
	pthread_barrier_t begin;
	int (*overlaps)(void);

	setenv("SPMT_FAKE_LINGER", "1", 1);
	start(7);
	standin_symbol(&rt.s, "fake_overlaps", &overlaps);
	pthread_barrier_init(&begin, NULL, BUSY);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(B->open(i), 0, "%s", status_sentence());
	for (int i = 0; i < BUSY; i++) {
		threads[i] = (struct busy){ .begin = &begin, .dev = i % 4 };
		cr_assert_eq(pthread_create(&ids[i], NULL, busy_main, &threads[i]), 0);
	}
	for (int i = 0; i < BUSY; i++)
		pthread_join(ids[i], NULL);
	pthread_barrier_destroy(&begin);
	cr_assert_eq(overlaps(), 0, "%d calls came while another was inside", overlaps());
	for (int i = 0; i < BUSY; i++)
		cr_assert_eq(threads[i].bad, 0, "line %d: %s", threads[i].bad, threads[i].why);
}

/* ---- the thread's device and last error */

#define NAME(field, symbol, args) #symbol,
static const char *const calls[] = { HIP_REQUIRED(NAME) HIP_OPTIONAL(NAME) HIP_PROPS(NAME) };

/* What takes back, and what puts the thread's state back. */
static bool undoes(const char *name)
{
	return strstr(name, "Free") || strstr(name, "Destroy") || strstr(name, "Release") ||
		strstr(name, "Unmap") || strstr(name, "Unload") || strstr(name, "LastError") ||
		!strcmp(name, "hipSetDevice") || !strcmp(name, "hipGetDevice");
}

VERSIONS(state_whatever_fails)
{
	size_t i;
	int nth, failures = 0;

	start(*version);
	rt.set(3);
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		for (nth = 1; nth <= 3 && !undoes(calls[i]); nth++) {
			struct standin_scene x = { 0 };

			reset(0); /* so that open makes everything */
			reset(1);
			rt.s.fail(calls[i], nth, 999);
			failures += standin_work(B, &x);
			cr_assert_eq(current(), 3, "%s", calls[i]);
			cr_assert_eq(rt.peek(), HIP_OK, "%s leaves %d behind", calls[i], rt.peek());
			rt.s.fail("", 0, 0);
			cr_assert_eq(standin_undo(B, &x), 0, "%s, %d: %s", calls[i], nth,
				status_sentence());
			cr_assert_eq(current(), 3);
			cr_assert_eq(rt.peek(), HIP_OK);
		}
	}
	cr_assert_gt(failures, 30);
	reset(0);
	reset(1);
	cr_assert(standin_idle(&rt.s), "something was not given back");
}

VERSIONS(set_device_refused)
{
	struct device_saved saved;
	void *ptr = &saved;

	start(*version);
	cr_assert_eq(B->open(0), 0);
	rt.set(2);
	rt.s.fail("hipSetDevice", 1, 46);
	cr_assert_lt(B->alloc(0, 64, DEVICE_MEMORY_PLAIN, &ptr), 0);
	cr_assert(ptr == &saved && current() == 2 && rt.peek() == HIP_OK);
	rt.s.fail("hipSetDevice", 1, 46);
	cr_assert_lt(B->enter(0, &saved), 0);
	cr_assert(current() == 2 && rt.peek() == HIP_OK);
}

/* An engine that is fed from user space faults where the runtime's own copy goes round. */
VERSIONS(what_engines_reach)
{
	const struct device_sdma_ops *sdma = B->sdma;
	char reason[DEVICE_REASON] = "", *mine, other[64];
	void *ptr = NULL;

	start(*version);
	cr_assert(!B->open(0) && !B->open(1));
	cr_assert_eq(B->alloc(0, 65536, DEVICE_MEMORY_PLAIN, &ptr), 0);
	mine = ptr;
	fail(-EBADF, "an older sentence");
	cr_assert(sdma->reaches(0, mine, 64) && sdma->reaches(0, mine + 65535, 1));
	cr_assert_not(sdma->reaches(0, mine + 65535, 4 << 20), "beyond its end");
	cr_assert_not(sdma->reaches(0, other, 64), "memory that the runtime does not know");
	cr_assert(sdma->reaches(1, mine, 64), "a peer's, whose access is enabled");
	rt.s.fail("hipPointerGetAttribute", 1, 1);
	cr_assert_not(sdma->reaches(0, mine, 64));
	cr_assert_eq(rt.peek(), HIP_OK);
	cr_assert_str_eq(status_sentence(), "an older sentence");
	cr_assert_lt(sdma->check(0, 1, reason), 0);
	cr_assert_gt(strlen(reason), 10);
	cr_assert_str_eq(status_sentence(), "an older sentence");
}

/* The application's own last error is there after our calls, those that fail included. */
VERSIONS(last_error_stays)
{
	struct device_saved saved;
	void *ptr = NULL;

	start(*version);
	cr_assert(!B->open(0) && !B->open(1));
	cr_assert_eq(rt.set(999), HIP_INVALID_DEVICE);
	cr_assert_eq(B->alloc(1, 64, DEVICE_MEMORY_PLAIN, &ptr), 0);
	cr_assert_eq(rt.peek(), HIP_INVALID_DEVICE);
	cr_assert_lt(B->alloc(1, (size_t)1 << 50, DEVICE_MEMORY_PLAIN, &ptr), 0);
	cr_assert_eq(rt.peek(), HIP_INVALID_DEVICE);
	cr_assert(!B->peer_enable(0, 1) && !B->peer_enable(0, 1));
	cr_assert_eq(rt.peek(), HIP_INVALID_DEVICE);
	cr_assert_eq(B->enter(1, &saved), 0);
	cr_assert_eq(rt.peek(), HIP_INVALID_DEVICE);
	cr_assert_eq(rt.last(), HIP_INVALID_DEVICE);
	cr_assert_eq(rt.get(NULL), HIP_INVALID_VALUE);
	B->leave(&saved);
	cr_assert_eq(rt.last(), HIP_INVALID_VALUE);
	cr_assert_eq(rt.last(), HIP_OK);
	cr_assert_eq(B->free(1, ptr), 0);
	cr_assert_eq(rt.last(), HIP_OK);
}

/* One that no harmless call can raise again: version 7 keeps it by itself, if we fail at
   nothing. */
Test(hip, other_last_error_stays)
{
	void *ptr;

	start(7);
	cr_assert_eq(B->open(0), 0);
	cr_assert_eq(rt.alloc(&ptr, (size_t)1 << 50), HIP_NO_MEMORY);
	cr_assert(!B->alloc(0, 64, DEVICE_MEMORY_PLAIN, &ptr) && !B->free(0, ptr));
	cr_assert_eq(rt.last(), HIP_NO_MEMORY);
}

/* Up to 6 that one becomes success, whether we fail or not; and the two that can be raised again stay,
   whatever was our own failure. */
ParameterizedTestParameters(hip, older_last_error)
{
	static int versions[] = { 5, 6 };

	return cr_make_param_array(int, versions, 2);
}
ParameterizedTest(int *version, hip, older_last_error)
{
	const size_t too_much = (size_t)1 << 50;
	void *ptr;

	start(*version);
	cr_assert_eq(B->open(0), 0);
	for (int fails = 0; fails < 2; fails++) {
		const size_t size = fails ? too_much : 64;

		cr_assert_eq(rt.alloc(&ptr, too_much), HIP_NO_MEMORY);
		cr_assert_eq(rt.peek(), HIP_NO_MEMORY);
		cr_assert_eq(B->alloc(0, size, DEVICE_MEMORY_PLAIN, &ptr), fails ? -ENOMEM : 0);
		cr_expect_eq(rt.last(), HIP_OK);
		cr_assert_eq(rt.get(NULL), HIP_INVALID_VALUE);
		cr_assert_eq(B->alloc(0, size, DEVICE_MEMORY_PLAIN, &ptr), fails ? -ENOMEM : 0);
		cr_expect_eq(rt.last(), HIP_INVALID_VALUE);
		cr_assert_eq(rt.set(999), HIP_INVALID_DEVICE);
		cr_assert_eq(B->alloc(0, size, DEVICE_MEMORY_PLAIN, &ptr), fails ? -ENOMEM : 0);
		cr_expect_eq(rt.last(), HIP_INVALID_DEVICE);
	}
}

/* Another thread captures: our calls do not break that, and the thread's own mode is as before. */
VERSIONS(capture_elsewhere)
{
	hip_result (*exchange)(hip_capture_mode * mode);
	hip_capture_mode mode = 1;
	void *ptr;

	start(*version);
	standin_symbol(&rt.s, "hipThreadExchangeStreamCaptureMode", &exchange);
	exchange(&mode);
	rt.s.set_capturing(true);
	cr_assert_eq(B->open(0), 0);
	cr_assert_eq(B->alloc(0, 64, DEVICE_MEMORY_PLAIN, &ptr), 0, "%s", status_sentence());
	cr_assert_lt(B->alloc(0, (size_t)1 << 50, DEVICE_MEMORY_PLAIN, &ptr), 0);
	exchange(&mode);
	cr_assert_eq(mode, 1);
}

VERSIONS(no_growth)
{
	int i;

	start(*version);
	for (i = 0; i < 200; i++) {
		struct standin_scene x = { 0 };

		cr_assert_eq(standin_work(B, &x), 0, "%s", status_sentence());
		cr_assert_eq(standin_undo(B, &x), 0, "%s", status_sentence());
		cr_assert(standin_only_kept(&rt.s, 2, 3));
	}
}

VERSIONS(frees_wait_for_nobody)
{
	start(*version);
	kept_frees_do_not_wait(B);
}

VERSIONS(memory_is_given_back)
{
	start(*version);
	kept_is_given_back(B, &rt.s, "hipMalloc");
}

Test(hip, ranges_of_strangers)
{
	setenv("SPMT_FAKE_NOPEER", "1", 1);
	start(7);
	ranges_pass_over_strangers(B);
}

Test(hip, memory_yields_to_ranges)
{
	start(7);
	kept_yields_to_ranges(B, &rt.s, "hipMemCreate");
}

VERSIONS(memory_is_retired)
{
	start(*version);
	kept_retires(B, &rt.s, "hipExtMallocWithFlags");
}

static void use(int dev)
{
	int was = current();
	void *ptr;

	cr_assert(!rt.set(dev) && !rt.alloc(&ptr, 256) && !rt.reset() && !rt.set(was));
}

VERSIONS(resets_are_survived)
{
	start(*version);
	kept_survives_resets(B, &rt.s, reset, use);
}

VERSIONS(peers)
{
	char reason[DEVICE_REASON] = "";
	void *near, *far;
	device_stream s;

	setenv("SPMT_FAKE_NOPEER", "2", 1);
	start(*version);
	cr_assert(!B->open(0) && !B->open(1) && !B->stream_create(0, &s));
	cr_assert(!B->alloc(0, 64, DEVICE_MEMORY_SYMMETRIC, &near) &&
		!B->alloc(1, 64, DEVICE_MEMORY_SYMMETRIC, &far));
	cr_assert_lt(B->copy(0, far, near, 64, s), 0);
	cr_assert(!B->peer_check(0, 1, reason) && !B->peer_enable(0, 1) &&
		!B->copy(0, far, near, 64, s));
	cr_assert_eq(B->peer_check(0, 2, reason), -EACCES);
	cr_assert(strstr(reason, "no access"));
	cr_assert_eq(B->peer_enable(0, 2), -EACCES);
	cr_assert_eq(rt.peek(), HIP_OK);
	setenv("SPMT_FAKE_NOATOMICS", "1", 1);
	cr_assert_eq(B->peer_check(0, 1, reason), -EACCES);
	cr_assert(strstr(reason, "atomics"));
}

VERSIONS(kernels_are_found_at_open)
{
	struct kernel_copy_args args = { .wake = -1, .size = 64 };
	device_stream s;
	void *a, *b;

	start(*version);
	rt.s.fail("hipModuleGetFunction", 0, 0);
	cr_assert(!B->open(0) && !B->stream_create(0, &s));
	cr_assert_gt(rt.s.calls(), 3);
	cr_assert(!B->alloc(0, 64, DEVICE_MEMORY_PLAIN, &a) &&
		!B->alloc(0, 64, DEVICE_MEMORY_PLAIN, &b));
	args.dst = (uintptr_t)a;
	args.src = (uintptr_t)b;
	rt.s.fail("hipModuleGetFunction", 0, 0);
	cr_assert_eq(B->launch(0, s, &kernel_copy, 1, 32, &args, sizeof(args)), 0, "%s",
		status_sentence());
	cr_assert_eq(rt.s.calls(), 0);
	cr_assert_eq(B->stream_sync(0, s, 1000000000, NULL), 0);
	B->close(0);
	reset(0);
	rt.s.fail("hipModuleLoadData", 1, 200);
	cr_assert_eq(B->open(0), -EIO, "there is one image for this device");
	cr_assert(strstr(status_sentence(), "gfx942"));
}
