/* SPDX-License-Identifier: MIT */
/* Worlds on GPUs: again and again, two at once, on permuted devices, and while kernels wait. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls/calls.h"
#include "kernels/waits.h"

enum { WAIT_MS = 30000 }; /* for a kernel to wait through all calls */

/* ---- while a kernel waits -------------------------------------------------------------------- */

struct waiting {
	uint64_t *words;
	int64_t *code;
};

static int wait_launch(struct rank *r, struct waiting *w)
{
	struct hold_args a = { .view.size = sizeof(a.view), .value = 1, .form = HOLD_SIGNAL };
	void *p;

	REQUIRE_OK(spmt_set_timeout(r->comm, WAIT_MS));
	REQUIRE_OK(spmt_view_get(r->comm, &a.view));
	REQUIRE_OK(spmt_set_timeout(r->comm, 0));
	REQUIRE_OK(spmt_calloc(r->comm, 4, 8, &p));
	w->words = p;
	REQUIRE_OK(spmt_calloc(r->comm, 2, 8, &p));
	w->code = p;
	a.word = addr(w->words);
	a.code = addr(w->code);
	RANK_LAUNCH(r, test_hold, 1, 32, a);
	return 0;
}

static int wait_release(struct rank *r, const struct waiting *w)
{
	int64_t seen[2] = { -1, -1 };

	REQUIRE_EQ(gpu_backend()->stream_query(r->dev, r->stream), 0);
	REQUIRE_OK(spmt_barrier(r->comm));
	REQUIRE_OK(spmt_signal(r->comm, w->words, 1, SPMT_SIGNAL_SET, r->next));
	TRY(rank_sync(r));
	TRY(rank_read(r, seen, w->code, sizeof(seen)));
	REQUIRE_EQ(seen[0], 0);
	REQUIRE_EQ(seen[1], 0);
	return 0;
}

/* A call that does not go through returns when the kernel has ended at its deadline. */
static int still_waits(void *state, const char *call)
{
	const struct rank *r = state;

	return r->b->stream_query(r->dev, r->stream)
		? ranks_fail("%s: the kernel that was waiting has ended", call)
		: 0;
}

/* fn while a kernel waits on the rank's GPU. One that still waits uses the comm, which has to be there until it has ended. */
static int meanwhile(spmt_comm *comm, int (*fn)(struct calls *c, void *arg), void *arg)
{
	struct rank r;
	struct calls c = { .r = &r };
	struct waiting w;
	int rc;

	TRY(rank_open(&r, comm));
	TRY(calls_open(&c));
	TRY(wait_launch(&r, &w));
	c.after = still_waits;
	c.state = &r;
	rc = fn(&c, arg);
	c.after = NULL;
	if (!rc)
		rc = wait_release(&r, &w);
	if (rc) {
		spmt_abort(comm, -ECANCELED);
		r.b->stream_sync(r.dev, r.stream, 10000000000, NULL);
		return rc;
	}
	TRY(calls_close(&c));
	rank_close(&r);
	return 0;
}

static int all_calls(struct calls *c, void *arg)
{
	(void)arg;
	for (uint64_t seed = 1; seed < 3; seed++)
		TRY(calls_all(c, seed));
	return calls_wrong(c);
}

static int calls_meanwhile(spmt_comm *comm, void *arg)
{
	return meanwhile(comm, all_calls, arg);
}

static int run_meanwhile(int n)
{
	return gpu_run(n, 64u << 20, calls_meanwhile, NULL);
}

/* ---- other maps of ranks to devices ---------------------------------------------------------- */

static int calls_on_device(struct calls *c, void *arg)
{
	const int *devices = arg;

	REQUIRE_EQ(spmt_device(c->r->comm), devices[c->r->pe]);
	return calls_all(c, 5);
}

static int on_devices(spmt_comm *comm, void *arg)
{
	return meanwhile(comm, calls_on_device, arg);
}

static int run_permuted(int n)
{
	static const int maps[][8] = { { 3, 2, 1, 0, 7, 6, 5, 4 }, { 1, 2, 3, 0, 5, 6, 7, 4 },
		{ 2, 0, 3, 1, 6, 4, 7, 5 }, { 1, 0, 3, 2, 5, 4, 7, 6 } };

	for (size_t m = 0; m < sizeof(maps) / sizeof(maps[0]); m++) {
		struct spmt_attr attr = SPMT_ATTR_INIT;
		int devices[8], at = 0, rc;

		for (int i = 0; i < 8; i++)
			if (maps[m][i] < n)
				devices[at++] = (maps[m][i] + (int)m) % gpu_devices();
		attr.backend = gpu_backend()->name;
		attr.heap_size = 64u << 20;
		attr.timeout_ms = 20000;
		rc = ranks_run_on(n, &attr, devices, on_devices, devices);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- two worlds ------------------------------------------------------------------------------ */

struct worlds {
	spmt_uid uid[3]; /* the first world, the same again, the second */
	int n;
	_Atomic int waiting, gone; /* ranks of the second world, of the first */
};

/* Holds `count` ranks together without the library. */
static int meet(_Atomic int *count, int n)
{
	for (int i = 0; i < 20000 && atomic_load(count) < n; i++)
		sleep_ms(1);
	return atomic_load(count) < n ? ranks_fail("the other world is not so far") : 0;
}

struct part_of_two {
	struct worlds *worlds;
	bool stays;
};

/* The first world ends, memory and all, and comes again, while kernels of the second wait on every device. */
static int calls_in_two(struct calls *c, void *arg)
{
	const struct part_of_two *p = arg;
	struct worlds *w = p->worlds;

	if (p->stays)
		atomic_fetch_add(&w->waiting, 1);
	else
		TRY(meet(&w->waiting, w->n));
	for (uint64_t i = 0; i < 2; i++)
		TRY(calls_all(c, (p->stays ? 1000 : 10) + i));
	return p->stays ? meet(&w->gone, 2 * w->n) : 0;
}

static int one_world(int index, struct worlds *w, const spmt_uid *uid, bool stays)
{
	struct spmt_attr attr = ranks_attr(index % w->n, w->n, uid);
	struct part_of_two part = { w, stays };
	spmt_comm *comm;
	int rc;

	attr.backend = gpu_backend()->name;
	attr.heap_size = 64u << 20;
	attr.timeout_ms = 20000;
	attr.device = index % w->n;
	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	rc = meanwhile(comm, calls_in_two, &part);
	if (rc)
		spmt_abort(comm, -ECANCELED);
	ranks_watch(NULL);
	if (rc)
		spmt_finalize(comm); /* the first failure counts */
	else
		rc = ranks_code("spmt_finalize", spmt_finalize(comm), 0);
	atomic_fetch_add(&w->gone, !stays);
	return rc;
}

static int two_worlds(int index, void *arg)
{
	struct worlds *w = arg;
	int rc;

	if (index >= w->n)
		return one_world(index, w, &w->uid[2], true);
	rc = one_world(index, w, &w->uid[0], false);
	return rc ? rc : one_world(index, w, &w->uid[1], false);
}

static int run_two_worlds(int n)
{
	struct worlds w = { .n = n };

	for (int i = 0; i < 3; i++)
		REQUIRE_OK(spmt_uid_create(&w.uid[i]));
	return ranks_threads(2 * n, two_worlds, &w);
}

/* ---- again and again ------------------------------------------------------------------------- */

static int short_life(spmt_comm *comm, void *arg)
{
	struct rank r;
	void *p;
	uint64_t sent, seen = 0;

	(void)arg;
	TRY(rank_open(&r, comm));
	sent = 1 + (uint64_t)r.pe;
	REQUIRE_OK(spmt_calloc(comm, 2, 8, &p));
	REQUIRE_OK(spmt_put(comm, p, &sent, 8, r.next));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_all_reduce(
		comm, (uint64_t *)p + 1, p, 1, SPMT_TYPE_U64, SPMT_OP_SUM, r.stream));
	TRY(rank_sync(&r));
	TRY(rank_read(&r, &seen, (uint64_t *)p + 1, 8));
	REQUIRE_EQ(seen, (uint64_t)r.n * ((uint64_t)r.n + 1) / 2);
	REQUIRE_OK(spmt_barrier(comm));
	rank_close(&r);
	return 0;
}

static int memory_now(size_t *unused, int n)
{
	for (int dev = 0; dev < n && !gpu_host(); dev++)
		if (driver_memory(dev, &unused[dev]))
			return ranks_fail("no figure of the free memory of device %d", dev);
	return 0;
}

static int run_lives(int n)
{
	const struct usage slack = { .fds = 0, .threads = 0, .maps = 8, .rss_kib = 16 << 10 };
	size_t before[8] = { 0 }, after[8] = { 0 };
	int lives = (int)gpu_number(200, 50), warm = lives / 10, rc = 0;
	struct usage usage = { 0 };
	const char *grown;

	for (int i = 0; i < lives + warm && !rc; i++) {
		if (i == warm) {
			usage = usage_now();
			rc = memory_now(before, n);
		}
		if (!rc)
			rc = gpu_run(n, (size_t)(4 + i % 3 * 4) << 20, short_life, NULL);
	}
	if (rc)
		return rc;
	TRY(memory_now(after, n));
	for (int dev = 0; dev < n; dev++)
		if (after[dev] < before[dev])
			return ranks_fail("device %d: %zu bytes fewer are free after %d lives", dev,
				before[dev] - after[dev], lives);
	grown = usage_grown(&usage, &slack);
	return grown ? ranks_fail("after %d lives: %s", lives, grown) : 0;
}

static const struct gpu_test tests[] = {
	{ "init_finalize_200", run_lives, 1 },
	{ "host_calls_while_kernels_wait", run_meanwhile, 1 },
	{ "permuted_devices", run_permuted, 1 },
	{ "two_worlds", run_two_worlds, 1 },
};
static const struct test_kernel *const kernels[] = { &test_hold, NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
