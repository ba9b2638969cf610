/* SPDX-License-Identifier: MIT */
/*
 * Every host call from a thread that has something of its own: another device, a stack of contexts, an error that nobody has
 * asked for. All of it is the same after each call. No kernels but the library's, so that it runs over stand-ins, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls/calls.h"

struct elsewhere {
	spmt_uid uid;
	int n;
	int error; /* the kind of error; -1: none */
	bool bare; /* no device, as far as there can be none */
};

static void told(const struct driver_thread *t, char *text, size_t size)
{
	int at = snprintf(text, size, "device %d, error %d, contexts", t->device, t->error);

	for (int i = 0; i < t->depth && at > 0 && (size_t)at < size; i++)
		at += snprintf(text + at, size - (size_t)at, " %p", t->contexts[i]);
}

static int unchanged(void *state, const char *call)
{
	const struct driver_thread *before = state;
	struct driver_thread now;
	char had[256], has[256];

	if (driver_thread(&now))
		return ranks_fail("%s: the thread cannot be asked what it has", call);
	if (!memcmp(before, &now, sizeof(now)))
		return 0;
	told(before, had, sizeof(had));
	told(&now, has, sizeof(has));
	return ranks_fail("%s: the thread had %s; it has %s", call, had, has);
}

/* Of several devices the rank's own is in the middle of the stack. */
static int settle_down(const struct elsewhere *e, int index, struct driver_thread *t)
{
	int all = gpu_devices();

	driver_clear();
	REQUIRE_EQ(driver_make_current(e->bare ? -1 : (index + 1) % all), 0);
	for (int i = 0; i < 2 && !e->bare; i++)
		REQUIRE_EQ(driver_push((index + i) % all), 0);
	if (e->error >= 0 && e->error < DRIVER_FRAIL)
		REQUIRE(driver_raise(e->error));
	REQUIRE_EQ(driver_thread(t), 0);
	return 0;
}

static int meets(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_barrier(comm);
}

/* Worlds of one, and what needs no comm. */
static int alone(struct calls *c, const struct spmt_attr *common)
{
	struct spmt_attr attr = *common;
	spmt_comm *comm;
	int count = 0;
	spmt_uid uid;

	CALL(spmt_uid_create(&uid));
	CALL(spmt_device_count(attr.backend, &count));
	REQUIRE(count >= gpu_devices());
	attr.rank = 0;
	attr.nranks = 1;
	attr.uid = NULL;
	CALL(spmt_init_all(1, &attr, &comm));
	CALL(spmt_barrier(comm));
	CALL(spmt_finalize_all(1, &comm));
	CALL(spmt_run(1, &attr, meets, NULL));
	attr.device = 1 << 20;
	GIVES(-ENODEV, spmt_init(&attr, &comm));
	attr.heap_size = (size_t)1 << 50; /* more than a driver has addresses for */
	attr.device = common->device;
	TRUE(spmt_init(&attr, &comm) < 0);
	attr.heap_size = SIZE_MAX;
	GIVES(-EINVAL, spmt_init(&attr, &comm));
	attr.backend = "abacus";
	GIVES(-EINVAL, spmt_init(&attr, &comm));
	GIVES(-EINVAL, spmt_device_count("abacus", &count));
	return 0;
}

static int in_world(struct calls *c, const struct elsewhere *e, struct driver_thread *has)
{
	spmt_comm *comm = c->r->comm;

	/* What init and finalize try may fail in the runtime; the calls between them ask it for nothing that does. */
	if (e->error >= DRIVER_FRAIL)
		REQUIRE(driver_raise(e->error));
	REQUIRE_EQ(driver_thread(has), 0);
	TRUE(spmt_comm_by_rank(&e->uid, c->r->pe) == comm);
	TRUE(spmt_comm_by_device(&e->uid, c->r->dev) == comm);
	TRY(calls_open(c));
	TRY(calls_all(c, 9));
	TRY(calls_wrong(c));
	TRY(calls_close(c));
	if (e->error >= DRIVER_FRAIL)
		REQUIRE_EQ(settle_down(e, c->r->pe, has), 0);
	return 0;
}

static int from_elsewhere(int index, void *arg)
{
	const struct elsewhere *e = arg;
	struct spmt_attr attr = ranks_attr(index, e->n, &e->uid);
	struct driver_thread has;
	struct rank r;
	struct calls calls = { .r = &r, .after = unchanged, .state = &has }, *c = &calls;
	spmt_comm *comm;
	int rc;

	attr.backend = gpu_backend()->name;
	attr.heap_size = 64u << 20;
	attr.timeout_ms = 20000;
	attr.device = index;
	TRY(settle_down(e, index, &has));
	TRY(alone(c, &attr));
	CALL(spmt_init(&attr, &comm));
	ranks_watch(comm);
	TRY(rank_open(&r, comm));
	rc = in_world(c, e, &has);
	if (rc)
		spmt_abort(comm, -ECANCELED);
	rank_close(&r);
	ranks_watch(NULL);
	TRY(rc);
	CALL(spmt_finalize(comm));
	driver_clear();
	return 0;
}

static int run_elsewhere(int n, bool bare, int error)
{
	struct elsewhere e = { .n = n, .bare = bare, .error = error };

	REQUIRE_OK(spmt_uid_create(&e.uid));
	return ranks_threads(n, from_elsewhere, &e);
}

static int run_nowhere(int n)
{
	return run_elsewhere(n, true, -1);
}

static int run_bound(int n)
{
	return run_elsewhere(n, false, -1);
}

static int run_errors(int n)
{
	int rc = driver_raise(0) ? 0 : GPU_SKIP;

	for (int error = 0; driver_raise(error) && !rc; error++)
		rc = run_elsewhere(n, false, error);
	driver_clear();
	return rc;
}

static const struct gpu_test tests[] = {
	{ "thread_bound_to_no_device", run_nowhere, 1 },
	{ "thread_bound_to_another_device", run_bound, 1 },
	{ "thread_with_an_error", run_errors, 1 },
};
static const struct test_kernel *const kernels[] = { NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
