/* SPDX-License-Identifier: MIT */
/* The cuda backend over the stand-in for libcuda: what no GPU would show. tests/unit/device/backends.c
   has the rest. */
#include "standin.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "include/spmt.h"
#include "kept.h"
#include "src/base/env.h"
#include "src/device/gpu/abi_cuda_calls.h"
#include "src/device/gpu/vendor.h"
#include "src/kernels/kernels.h"
#include "standin_images.h"
#include "standin_work.h"
#include "tests/lib/ranks.h"

#define B (&backend_cuda)

static struct {
	struct standin s;
	int (*depth)(void);
	void *(*context_of)(int dev);
	cu_result (*push)(cu_context context);
	cu_result (*pop)(cu_context *context);
	cu_result (*current)(cu_context *context);
	cu_result (*reset)(cu_device device);
	cu_result (*retain)(cu_context *context, cu_device device);
	cu_result (*alloc)(cu_pointer *ptr, size_t size);
} drv;

static void start(void)
{
	standin_load(&drv.s, B, "SPMT_CUDA_LIB", FAKES "/fake-cuda.so");
	standin_symbol(&drv.s, "fake_context_depth", &drv.depth);
	standin_symbol(&drv.s, "fake_context_of", &drv.context_of);
	standin_symbol(&drv.s, "cuCtxPushCurrent_v2", &drv.push);
	standin_symbol(&drv.s, "cuCtxPopCurrent_v2", &drv.pop);
	standin_symbol(&drv.s, "cuCtxGetCurrent", &drv.current);
	standin_symbol(&drv.s, "cuDevicePrimaryCtxReset_v2", &drv.reset);
	standin_symbol(&drv.s, "cuDevicePrimaryCtxRetain", &drv.retain);
	standin_symbol(&drv.s, "cuMemAlloc_v2", &drv.alloc);
}

static void reset(int dev)
{
	cr_assert_eq(drv.reset(dev), CU_OK);
}

TestSuite(cuda, .timeout = 60);

Test(cuda, no_library)
{
	setenv("SPMT_CUDA_LIB", "/nonexistent/fake-cuda.so", 1);
	cr_assert_eq(B->load(), -ENODEV);
	cr_assert(strstr(status_sentence(), "SPMT_CUDA_LIB") &&
		strstr(status_sentence(), "/nonexistent"));
	fail(-1, "nothing said");
	cr_assert_eq(B->load(), -ENODEV);
	cr_assert(strstr(status_sentence(), "SPMT_CUDA_LIB"));
}

Test(cuda, no_such_symbols)
{
	setenv("SPMT_CUDA_LIB", "libm.so.6", 1);
	cr_assert_eq(B->load(), -ENOSYS);
	cr_assert(strstr(status_sentence(), "cuInit"));
}

Test(cuda, no_devices)
{
	setenv("SPMT_CUDA_LIB", FAKES "/fake-cuda.so", 1);
	setenv("SPMT_FAKE_DEVICES", "0", 1);
	cr_assert_eq(B->load(), -ENODEV);
	cr_assert(strstr(status_sentence(), "no devices"));
}

/* Where no backend is named. What is read of the environment wants descriptors, too. */
static void none_named(void)
{
	const struct env *env;

	setenv("SPMT_HIP_LIB", "/nonexistent/libamdhip64.so", 1);
	setenv("SPMT_CUDA_LIB", FAKES "/fake-cuda.so", 1);
	cr_assert_eq(env_get(&env), 0);
}

static void is_chosen(void)
{
	const struct backend *b = NULL;

	cr_assert_eq(device_select(NULL, &b), 0, "%s", status_sentence());
	cr_assert_eq(b, B, "%s", b->name);
}

/* The limit of before. No asserts until it is back: they take descriptors. */
static struct rlimit no_descriptors(void)
{
	struct rlimit before, none;

	getrlimit(RLIMIT_NOFILE, &before);
	none = before;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none);
	return before;
}

Test(cuda, a_shortage_of_descriptors_passes)
{
	const struct backend *b = NULL;
	struct rlimit before;
	int codes[2];

	none_named();
	before = no_descriptors();
	codes[0] = B->load();
	codes[1] = device_select(NULL, &b);
	setrlimit(RLIMIT_NOFILE, &before);
	cr_expect_eq(codes[0], -EMFILE, "%d", codes[0]);
	cr_expect_eq(codes[1], -EMFILE, "%d %s", codes[1], b ? b->name : "");
	is_chosen();
}

/* The driver has no code for that. */
Test(cuda, a_shortage_of_descriptors_passes_while_the_driver_starts)
{
	struct standin s = { .library = dlopen(FAKES "/fake-cuda.so", RTLD_NOW | RTLD_LOCAL) };
	struct rlimit before;
	int rc;

	none_named();
	cr_assert_not_null(s.library);
	standin_symbol(&s, "fake_fail", &s.fail);
	s.fail("cuInit", -1, CU_NO_DEVICE);
	before = no_descriptors();
	rc = B->load();
	setrlimit(RLIMIT_NOFILE, &before);
	s.fail("cuInit", 0, 0);
	cr_expect_eq(rc, -EMFILE, "%d", rc);
	is_chosen();
}

/* From nothing up to enough for the library. */
Test(cuda, a_shortage_of_memory_passes)
{
	struct rlimit most, limit;
	long pages = 0, room;
	int rc = -ENOMEM;
	FILE *file;

	if (SANITIZE_ADDRESS || SANITIZE_THREAD)
		cr_skip_test("a sanitizer has more address space than can be left");
	none_named();
	file = fopen("/proc/self/statm", "r");
	cr_assert(file && fscanf(file, "%ld", &pages) == 1);
	fclose(file);
	cr_assert_eq(getrlimit(RLIMIT_AS, &most), 0);
	limit = most;
	for (room = 0; room < 1 << 25 && rc == -ENOMEM; room += 1 << 14) {
		limit.rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE) + room);
		setrlimit(RLIMIT_AS, &limit);
		rc = B->load();
	}
	setrlimit(RLIMIT_AS, &most);
	cr_assert_eq(rc, 0, "with room for %ld: %d %s", room, rc, status_sentence());
	cr_expect_gt(room, 1 << 16, "there was room");
	is_chosen();
}

Test(cuda, ops_before_load)
{
	struct device_saved saved;
	void *ptr = NULL;

	cr_assert_lt(B->open(0), 0);
	cr_assert_lt(B->enter(0, &saved), 0);
	cr_assert_lt(B->alloc(0, 64, DEVICE_MEMORY_PLAIN, &ptr), 0);
	B->close(0);
}

Test(cuda, ops_on_a_closed_device)
{
	void *ptr = NULL;

	start();
	cr_assert_eq(B->alloc(0, 64, DEVICE_MEMORY_PLAIN, &ptr), -EINVAL);
	cr_assert(strstr(status_sentence(), "not open"));
	B->close(0);
	cr_assert(standin_idle(&drv.s));
}

Test(cuda, no_stream)
{
	start();
	cr_assert_eq(B->open(0), 0);
	cr_assert_eq(B->copy(0, &drv, &drv, 1, NULL), -EINVAL);
	cr_assert_eq(B->stream_sync(0, NULL, 0, NULL), -EINVAL);
	cr_assert_eq(B->stream_query(0, NULL), -EINVAL);
	B->close(0);
}

/* The caller has two contexts on its stack; every driver call fails in turn; the stack stays as
   it is. */
#define NAME(field, symbol, args) #symbol,
static const char *const driver_calls[] = { CUDA_REQUIRED(NAME) CUDA_OPTIONAL(NAME) };

static bool undoes(const char *name)
{
	return strstr(name, "Free") || strstr(name, "Destroy") || strstr(name, "Release") ||
		strstr(name, "Unmap") || strstr(name, "Unload") || strstr(name, "CtxPop");
}

static void check_stack(const char *after)
{
	cu_context top = NULL;

	cr_assert_eq(drv.depth(), 2, "%s: depth %d", after, drv.depth());
	drv.current(&top);
	cr_assert_eq(top, drv.context_of(3), "%s: another context on top", after);
}

Test(cuda, context_stack_whatever_fails)
{
	size_t i;
	int nth, failures = 0;
	struct fake_counts now;
	cu_context was;

	start();
	cr_assert(!B->open(2) && !B->open(3) && !drv.push(drv.context_of(2)) &&
		!drv.push(drv.context_of(3)));
	for (i = 0; i < ARRAY_SIZE(driver_calls); i++) {
		char name[64];

		snprintf(name, sizeof(name), "%.*s",
			(int)(strstr(driver_calls[i], "_v2")
					? (size_t)(strstr(driver_calls[i], "_v2") - driver_calls[i])
					: strlen(driver_calls[i])),
			driver_calls[i]);
		for (nth = 1; nth <= 4; nth++) {
			struct standin_scene x = { 0 };

			if (undoes(name))
				continue;
			reset(0); /* so that open makes everything */
			reset(1);
			drv.s.fail(name, nth, 999);
			failures += standin_work(B, &x);
			drv.s.fail("", 0, 0);
			check_stack(name);
			cr_assert_eq(
				standin_undo(B, &x), 0, "%s, %d: %s", name, nth, status_sentence());
			check_stack(name);
		}
	}
	cr_assert_gt(failures, 40);
	cr_assert(!drv.pop(&was) && !drv.pop(&was));
	B->close(2);
	B->close(3);
	reset(0);
	reset(1);
	drv.s.live(&now);
	cr_assert_leq(now.contexts, 4, "%d contexts are retained", now.contexts);
	cr_assert(standin_only_kept(&drv.s, 2, 0), "something was not given back");
}

Test(cuda, undo_failures_are_codes)
{
	struct standin_scene x = { 0 };

	start();
	cr_assert_eq(standin_work(B, &x), 0, "%s", status_sentence());
	drv.s.fail("cuMemUnmap", 1, 999);
	cr_assert_eq(B->vmm->decommit(0, x.base, x.g), -EIO);
	drv.s.fail("cuStreamDestroy", 1, 999);
	cr_assert_eq(B->stream_destroy(0, x.s), -EIO);
	cr_assert_eq(drv.depth(), 0);
	x.committed = false;
	x.s = NULL;
	cr_expect_eq(standin_undo(B, &x), 1, "the range is still mapped, and all else given back");
}

Test(cuda, no_growth)
{
	int i;

	start();
	for (i = 0; i < 200; i++) {
		struct standin_scene x = { 0 };

		cr_assert_eq(standin_work(B, &x), 0, "%s", status_sentence());
		cr_assert_eq(standin_undo(B, &x), 0, "%s", status_sentence());
		cr_assert(standin_only_kept(&drv.s, 2, 3));
	}
}

Test(cuda, frees_wait_for_nobody)
{
	start();
	kept_frees_do_not_wait(B);
}

Test(cuda, memory_is_given_back)
{
	start();
	kept_is_given_back(B, &drv.s, "cuMemAlloc");
}

Test(cuda, memory_is_retired)
{
	start();
	kept_retires(B, &drv.s, "cuMemAlloc");
}

Test(cuda, memory_yields_to_ranges)
{
	start();
	kept_yields_to_ranges(B, &drv.s, "cuMemCreate");
}

/* Someone else's buffer may lie where our marker was. */
static void use(int dev)
{
	cu_context context;
	cu_pointer ptr;

	cr_assert(!drv.retain(&context, dev) && !drv.push(context));
	cr_assert(!drv.alloc(&ptr, 256) && !drv.pop(&context));
	reset(dev);
	cr_assert(!drv.retain(&context, dev) && !drv.push(context) && !drv.pop(&context));
}

Test(cuda, resets_are_survived)
{
	start();
	kept_survives_resets(B, &drv.s, reset, use);
}

Test(cuda, peers_must_be_enabled)
{
	device_stream s;
	void *near, *far;

	start();
	cr_assert(!B->open(0) && !B->open(1) && !B->stream_create(0, &s));
	cr_assert(!B->alloc(0, 64, DEVICE_MEMORY_SYMMETRIC, &near) &&
		!B->alloc(1, 64, DEVICE_MEMORY_SYMMETRIC, &far));
	cr_assert_lt(B->copy(0, far, near, 64, s), 0);
	cr_assert_eq(B->peer_enable(0, 1), 0);
	cr_assert_eq(B->copy(0, far, near, 64, s), 0);
	cr_assert_eq(B->peer_enable(0, 1), 0, "704 is success");
	drv.s.fail("cuCtxEnablePeerAccess", 1, 711);
	cr_assert_eq(B->peer_enable(0, 1), -EACCES);
	cr_assert_eq(B->peer_enable(0, 2), -EINVAL, "a closed device");
}

Test(cuda, peers_refused)
{
	char reason[DEVICE_REASON] = "";

	setenv("SPMT_FAKE_NOPEER", "1", 1);
	start();
	cr_assert(!B->open(0) && !B->open(1));
	fail(-1, "nothing said");
	cr_assert_eq(B->peer_check(0, 1, reason), -EACCES);
	cr_assert(strstr(reason, "no access"));
	cr_assert_str_eq(status_sentence(), "nothing said");
	cr_assert_eq(B->peer_check(0, 2, reason), 0);
	cr_assert_eq(B->peer_enable(0, 1), -EACCES);
	setenv("SPMT_FAKE_NOATOMICS", "1", 1);
	cr_assert_eq(B->peer_check(0, 2, reason), -EACCES);
	cr_assert(strstr(reason, "atomics"));
}

Test(cuda, ranges_of_strangers)
{
	setenv("SPMT_FAKE_NOPEER", "1", 1);
	start();
	ranges_pass_over_strangers(B);
}

Test(cuda, older_device)
{
	size_t g;
	void *word, *seen, *base;

	setenv("SPMT_FAKE_WITHOUT", "vmm", 1);
	start();
	cr_assert(!B->open(0) && !B->host_alloc(0, 64, &word, &seen));
	cr_assert_eq(B->vmm->granularity(0, &g), SPMT_ERR_UNSUPPORTED);
	cr_assert_eq(B->vmm->commit(0, word, 2 << 20, NULL, 0), SPMT_ERR_UNSUPPORTED);
	cr_assert(!B->vmm->reserve(2 << 20, 2 << 20, &base) && !B->vmm->unreserve(base, 2 << 20));
}

Test(cuda, what_the_driver_does_not_support)
{
	void *ptr = NULL;

	start();
	cr_assert(!B->open(0));
	drv.s.fail("cuMemAlloc", 1, CU_NOT_SUPPORTED);
	cr_assert_eq(B->alloc(0, 64, DEVICE_MEMORY_PLAIN, &ptr), SPMT_ERR_UNSUPPORTED);
	cr_assert_null(ptr);
}

Test(cuda, streams_that_wait_for_no_words)
{
	char reason[DEVICE_REASON] = "";

	setenv("SPMT_FAKE_WITHOUT", "words", 1);
	setenv("SPMT_FAKE_OLD", "1", 1);
	start();
	cr_assert_eq(B->words->check(0, reason), 0);
	cr_assert_eq(B->words->check(1, reason), SPMT_ERR_UNSUPPORTED);
	cr_assert_str_eq(reason, "the streams of device 1 wait for no words");
}

/* ---- images */

Test(cuda, pick)
{
	const struct device_image *best[2];
	const size_t n = device_image_count;

	cr_assert_eq(vendor_pick(device_images, n, "sm_90", best), 2);
	cr_assert(!strcmp(best[0]->kind, "cubin") && !strcmp(best[1]->arch, "sm_80"));
	cr_assert_eq(vendor_pick(device_images, n, "sm_86", best), 1);
	cr_assert_str_eq(best[0]->arch, "sm_80");
	cr_assert_eq(vendor_pick(device_images, n, "sm_120", best), 1);
	cr_assert_str_eq(best[0]->arch, "sm_100");
	cr_assert_eq(vendor_pick(device_images, n, "sm_75", best), 0);
	cr_assert_eq(vendor_pick(device_images, n, "gfx942", best), 1);
	cr_assert_str_eq(best[0]->arch, "gfx942");
	cr_assert_eq(vendor_pick(device_images, n, "gfx94", best), 0);
	cr_assert_eq(vendor_pick(device_images, 0, "sm_90", best), 0);
}

Test(cuda, kernels_are_found_at_open)
{
	struct kernel_copy_args args = { .wake = -1, .size = 64 };
	device_stream s;
	void *a, *b;

	start();
	drv.s.fail("cuFuncLoad", 0, 0);
	cr_assert(!B->open(0) && !B->stream_create(0, &s));
	cr_assert_gt(drv.s.calls(), 3, "loaded, not only found");
	cr_assert(!B->alloc(0, 64, DEVICE_MEMORY_PLAIN, &a) &&
		!B->alloc(0, 64, DEVICE_MEMORY_PLAIN, &b));
	args.dst = (uintptr_t)a;
	args.src = (uintptr_t)b;
	drv.s.fail("cuModuleGetFunction", 0, 0);
	cr_assert_eq(B->launch(0, s, &kernel_copy, 1, 32, &args, sizeof(args)), 0, "%s",
		status_sentence());
	cr_assert_eq(drv.s.calls(), 0);
	cr_assert_eq(B->stream_sync(0, s, 1000000000, NULL), 0);
	cr_assert_lt(B->launch(0, s, &kernel_copy, 0, 32, &args, sizeof(args)), 0);
	cr_assert(strstr(status_sentence(), kernel_copy.name));
	drv.s.fail("cuModuleLoadData", 0, 0);
	cr_assert_eq(B->open(0), 0);
	cr_assert_eq(drv.s.calls(), 0, "the second open loads nothing");
}

/* A cubin that is refused gives way to the text; when that is refused too, open fails and leaves
   nothing. */
Test(cuda, images_refused)
{
	start();
	drv.s.fail("cuModuleLoadData", 1, 209);
	cr_assert_eq(B->open(0), 0, "%s", status_sentence());
	cr_assert_eq(drv.s.calls(), 2);
	B->close(0);
	reset(0);
	drv.s.fail("cuModuleGetFunction", 2, 500);
	cr_assert_eq(B->open(0), 0, "%s", status_sentence());
	B->close(0);
	reset(0);
	drv.s.fail("cuModuleLoadData", -1, 209);
	cr_assert_eq(B->open(0), -EIO);
	cr_assert(strstr(status_sentence(), "sm_80"));
	cr_assert(standin_only_kept(&drv.s, 0, 0));
}

Test(cuda, capturing)
{
	device_stream s;

	start();
	cr_assert(!B->open(0) && !B->stream_create(0, &s) && !B->capturing(0, s));
	drv.s.set_capturing(true);
	cr_assert(B->capturing(0, s));
	drv.s.fail("cuStreamIsCapturing", 1, 906);
	cr_assert(!B->capturing(0, s));
	cr_assert(!B->capturing(9, DEVICE_STREAM_LEGACY) && !B->capturing(0, NULL));
}

/* What was queued elsewhere before is no part of the graph: to wait for it would break the capture. */
Test(cuda, captures_stand_alone)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_stream s, other;
	spmt_comm *comm;
	spmt_uid uid;
	void *w;

	start();
	cr_assert_eq(spmt_uid_create(&uid), 0);
	attr = ranks_attr(0, 1, &uid);
	attr.backend = "cuda";
	attr.device = 0;
	cr_assert_eq(spmt_init(&attr, &comm), 0, "%s", spmt_last_error());
	cr_assert(!spmt_malloc(comm, 64, &w) && !B->stream_create(0, &s) &&
		!B->stream_create(0, &other));
	cr_assert(!spmt_put_on_stream(comm, w, w, 8, 0, other) &&
		!spmt_put_on_stream(comm, w, w, 8, 0, NULL));
	drv.s.set_capturing(true);
	cr_expect_eq(spmt_put_on_stream(comm, w, w, 8, 0, s), 0);
	cr_expect_eq(spmt_quiet_on_stream(comm, s), 0, "%s", spmt_last_error());
	cr_expect_eq(spmt_barrier_on_stream(comm, s), 0, "%s", spmt_last_error());
	drv.s.fail("cuStreamWaitEvent", 0, 0);
	cr_expect_eq(spmt_all_reduce(comm, w, w, 1, SPMT_TYPE_U64, SPMT_OP_SUM, s), 0);
	cr_expect_eq(drv.s.calls(), 0);
	drv.s.set_capturing(false);
	cr_expect_eq(spmt_quiet_on_stream(comm, s), 0, "%s", spmt_last_error());
	cr_expect_geq(drv.s.calls(), 2, "outside of a capture the streams are joined");
	cr_assert_eq(spmt_finalize(comm), 0, "%s", spmt_last_error());
}

/* Another thread captures: our calls do not break that, and the thread's own mode is as before. */
Test(cuda, capture_elsewhere)
{
	cu_result (*exchange)(cu_capture_mode * mode);
	cu_capture_mode mode = 1;
	void *ptr;

	start();
	standin_symbol(&drv.s, "cuThreadExchangeStreamCaptureMode", &exchange);
	exchange(&mode);
	drv.s.set_capturing(true);
	cr_assert_eq(B->open(0), 0);
	cr_assert_eq(B->alloc(0, 64, DEVICE_MEMORY_PLAIN, &ptr), 0, "%s", status_sentence());
	cr_assert_lt(B->alloc(0, (size_t)1 << 50, DEVICE_MEMORY_PLAIN, &ptr), 0);
	exchange(&mode);
	cr_assert_eq(mode, 1);
}

/* Far apart in pieces, near by way of a buffer, which is given back in the stream. */
Test(cuda, overlap)
{
	struct fake_counts before, after;
	device_stream s;
	void *p;

	start();
	cr_assert(!B->open(0) && !B->stream_create(0, &s) &&
		!B->alloc(0, 10000, DEVICE_MEMORY_PLAIN, &p));
	drv.s.live(&before);
	drv.s.fail("cuMemAllocAsync", 0, 0);
	cr_assert_eq(B->copy(0, (char *)p + 1000, p, 9000, s), 0);
	cr_assert_eq(drv.s.calls(), 0);
	cr_assert_eq(B->copy(0, (char *)p + 8, p, 9000, s), 0);
	cr_assert_eq(drv.s.calls(), 1);
	drv.s.fail("cuMemAllocAsync", 1, 2);
	cr_assert_eq(B->copy(0, (char *)p + 8, p, 9000, s), -ENOMEM);
	cr_assert_eq(B->stream_sync(0, s, 1000000000, NULL), 0);
	drv.s.live(&after);
	cr_assert_eq(before.blocks, after.blocks);
}

static int never(void *arg)
{
	(*(int *)arg)++;
	return 0;
}

/* Waiting costs little: asking grows rare. */
Test(cuda, waits_sleep)
{
	int asked = 0;

	cr_assert_eq(vendor_wait(never, &asked, 200000000, NULL), -ETIMEDOUT);
	cr_assert_lt(asked, 3000, "%d", asked);
	cr_assert_gt(asked, 20, "%d", asked);
}
