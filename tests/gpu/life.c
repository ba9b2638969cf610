/* SPDX-License-Identifier: MIT */
/* Worlds on GPUs: again and again, two at once, on permuted devices, from threads bound to other
   devices, and while kernels wait. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "kernels/waits.h"

enum { LARGE = 3 << 20 };

/* ---- one of each host call, its data checked ------------------------------------------------- */

struct calls {
	struct rank *r;
	unsigned char *small, *large; /* symmetric; of `large` the second half receives */
	uint64_t *words;
	void *outside; /* of the device, not symmetric */
	int current;   /* the thread's device, which no call may change; -2: not looked at */
};

static int still_there(const struct calls *c, const char *what)
{
	if (c->current == -2 || driver_current() == c->current)
		return 0;
	return ranks_fail(
		"after %s the thread's device is %d, not %d", what, driver_current(), c->current);
}
#define CALL(c, call)                                \
	do {                                         \
		REQUIRE_OK(call);                    \
		RANKS_TRY_(still_there((c), #call)); \
	} while (0)

static int calls_memory(struct calls *c)
{
	spmt_comm *comm = c->r->comm;
	void *p;

	CALL(c, spmt_malloc(comm, 4096, &p));
	c->small = p;
	CALL(c, spmt_malloc(comm, 2 * LARGE, &p));
	c->large = p;
	CALL(c, spmt_calloc(comm, 8, 8, &p));
	c->words = p;
	return rank_alloc(c->r, 4096, &c->outside);
}

static void calls_end(struct calls *c)
{
	rank_free(c->r, c->outside);
	rank_close(c->r);
}

static int calls_move(struct calls *c, uint64_t seed)
{
	spmt_comm *comm = c->r->comm;
	unsigned char *host = malloc(LARGE);
	int next = c->r->next;
	uint64_t own = seed + (uint64_t)c->r->pe, prev = seed + (uint64_t)c->r->prev;

	REQUIRE(host);
	pattern_fill(host, LARGE, own);
	CALL(c, spmt_copy_in(comm, c->large, host, LARGE));
	CALL(c, spmt_put(comm, c->small, host, 1000, next));
	CALL(c, spmt_put_nbi(comm, c->large + LARGE, c->large, LARGE, next));
	CALL(c, spmt_fence(comm));
	CALL(c, spmt_quiet(comm));
	CALL(c, spmt_barrier(comm));
	CALL(c, spmt_copy_out(comm, host, c->large + LARGE, LARGE));
	REQUIRE(pattern_differs(host, LARGE, prev) == SIZE_MAX);
	CALL(c, spmt_copy_out(comm, host, c->small, 1000));
	REQUIRE(pattern_differs(host, 1000, prev) == SIZE_MAX);
	CALL(c, spmt_get(comm, host, c->large, LARGE, next));
	REQUIRE(pattern_differs(host, LARGE, seed + (uint64_t)next) == SIZE_MAX);
	CALL(c, spmt_sync(comm));
	CALL(c, spmt_put_on_stream(comm, c->small + 2048, c->large, 1024, next, NULL));
	CALL(c, spmt_get_on_stream(comm, c->small + 1024, c->large, 512, next, NULL));
	CALL(c, spmt_quiet(comm));
	CALL(c, spmt_barrier(comm));
	CALL(c, spmt_copy_out(comm, host, c->small + 2048, 1024));
	REQUIRE(pattern_differs(host, 1024, prev) == SIZE_MAX);
	free(host);
	return 0;
}

static int calls_words(struct calls *c, uint64_t seed)
{
	spmt_comm *comm = c->r->comm;
	uint64_t one = 1, old, n = (uint64_t)c->r->n, sum = 0;

	CALL(c, spmt_signal(comm, c->words, seed, SPMT_SIGNAL_SET, c->r->next));
	CALL(c, spmt_signal_wait(comm, c->words, SPMT_CMP_EQ, seed, NULL));
	CALL(c,
		spmt_put_signal(comm, c->words + 1, &seed, 8, c->words + 2, seed, SPMT_SIGNAL_SET,
			c->r->next));
	CALL(c, spmt_signal_wait(comm, c->words + 2, SPMT_CMP_EQ, seed, NULL));
	CALL(c, spmt_signal_fetch(comm, c->words + 1, &old));
	REQUIRE_EQ(old, seed);
	CALL(c,
		spmt_atomic(comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, c->words + 3, &one, NULL, &old,
			0));
	CALL(c, spmt_barrier(comm));
	CALL(c,
		spmt_atomic(
			comm, SPMT_AMO_FETCH, SPMT_TYPE_U64, c->words + 3, NULL, NULL, &sum, 0));
	REQUIRE_EQ(sum % n, 0);
	CALL(c,
		spmt_all_reduce(
			comm, c->words + 5, c->words + 3, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	CALL(c, spmt_quiet(comm));
	CALL(c, spmt_signal_fetch(comm, c->words + 5, &old));
	REQUIRE_EQ(old, sum);
	CALL(c, spmt_barrier(comm));
	return 0;
}

/* Registration and the heap's growth, too. */
static int calls_collective(struct calls *c)
{
	spmt_comm *comm = c->r->comm;
	uint64_t seen = 0, sent = 77 + (uint64_t)c->r->pe;
	spmt_mem *mem;
	void *more;

	CALL(c, spmt_register(comm, c->outside, 4096, &mem));
	CALL(c, spmt_mem_put(comm, mem, 64, &sent, 8, c->r->next));
	CALL(c, spmt_barrier(comm));
	CALL(c, spmt_mem_get(comm, &seen, mem, 64, 8, c->r->pe));
	REQUIRE_EQ(seen, 77 + (uint64_t)c->r->prev);
	CALL(c, spmt_deregister(comm, mem));
	CALL(c, spmt_malloc(comm, 5u << 20, &more));
	CALL(c, spmt_free(comm, more));
	return 0;
}

static int all_calls(struct calls *c, uint64_t seed)
{
	if (!c->small)
		TRY(calls_memory(c));
	TRY(calls_move(c, seed));
	TRY(calls_words(c, seed));
	return calls_collective(c);
}

/* ---- while a kernel waits -------------------------------------------------------------------- */

struct waiting {
	uint64_t *words;
	int64_t *code;
};

static int wait_launch(struct rank *r, struct waiting *w)
{
	struct hold_args a = { .view = r->view, .value = 1, .form = HOLD_SIGNAL };
	void *p;

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

static int calls_meanwhile(spmt_comm *comm, void *arg)
{
	struct waiting w;
	struct rank r;
	struct calls c = { .r = &r, .current = -2 };

	(void)arg;
	TRY(rank_open(&r, comm));
	TRY(calls_memory(&c));
	TRY(wait_launch(&r, &w));
	for (uint64_t seed = 1; seed < 4; seed++)
		TRY(all_calls(&c, seed));
	TRY(wait_release(&r, &w));
	REQUIRE_OK(spmt_barrier(comm));
	calls_end(&c);
	return 0;
}

static int run_meanwhile(int n)
{
	return gpu_run(n, 64u << 20, calls_meanwhile, NULL);
}

/* ---- another device current ------------------------------------------------------------------ */

struct elsewhere {
	spmt_uid uid;
	int n, shift; /* shift 0: no device at all */
};

static int from_elsewhere(int index, void *arg)
{
	const struct elsewhere *e = arg;
	struct spmt_attr attr = ranks_attr(index, e->n, &e->uid);
	struct calls c = { .r = NULL };
	struct rank r;
	spmt_comm *comm;

	attr.backend = gpu_backend()->name;
	attr.heap_size = 64u << 20;
	attr.timeout_ms = 20000;
	attr.device = index;
	REQUIRE_EQ(driver_make_current(e->shift ? (index + e->shift) % gpu_devices() : -1), 0);
	c.current = driver_current();
	CALL(&c, spmt_init(&attr, &comm));
	ranks_watch(comm);
	TRY(rank_open(&r, comm));
	c.r = &r;
	TRY(still_there(&c, "opening a stream"));
	TRY(all_calls(&c, 9));
	{
		SPMT_GUARD(comm);
		REQUIRE_EQ(driver_current(), r.dev);
	}
	TRY(still_there(&c, "a guard"));
	calls_end(&c);
	ranks_watch(NULL);
	CALL(&c, spmt_finalize(comm));
	driver_make_current(-1);
	return 0;
}

static int run_elsewhere(int n)
{
	for (int shift = 0; shift < 2; shift++) {
		struct elsewhere e = { .n = n, .shift = shift };
		int rc;

		REQUIRE_OK(spmt_uid_create(&e.uid));
		rc = ranks_threads(n, from_elsewhere, &e);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- other maps of ranks to devices ---------------------------------------------------------- */

static int on_devices(spmt_comm *comm, void *arg)
{
	const int *devices = arg;
	struct rank r;
	struct calls c = { .r = &r, .current = -2 };
	struct waiting w;

	TRY(rank_open(&r, comm));
	REQUIRE_EQ(spmt_device(comm), devices[r.pe]);
	TRY(calls_memory(&c));
	TRY(wait_launch(&r, &w));
	TRY(all_calls(&c, 5));
	TRY(wait_release(&r, &w));
	REQUIRE_OK(spmt_barrier(comm));
	calls_end(&c);
	return 0;
}

static int run_permuted(int n)
{
	static const int maps[][8] = { { 3, 2, 1, 0 }, { 1, 2, 3, 0 }, { 2, 0, 3, 1 },
		{ 1, 0, 3, 2 } };

	for (size_t m = 0; m < sizeof(maps) / sizeof(maps[0]); m++) {
		struct spmt_attr attr = SPMT_ATTR_INIT;
		int devices[8], at = 0, rc;

		for (int i = 0; i < 4; i++)
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

/* The first world ends, memory and all, and comes again, while kernels of the second wait on every device. */
static int two_world_rank(spmt_comm *comm, struct worlds *o, uint64_t seed, bool stays)
{
	struct waiting w;
	struct rank r;
	struct calls c = { .r = &r, .current = -2 };

	TRY(rank_open(&r, comm));
	TRY(calls_memory(&c));
	TRY(wait_launch(&r, &w));
	if (stays)
		atomic_fetch_add(&o->waiting, 1);
	else
		TRY(meet(&o->waiting, o->n));
	for (uint64_t i = 0; i < 4; i++)
		TRY(all_calls(&c, seed + i));
	if (stays)
		TRY(meet(&o->gone, 2 * o->n));
	TRY(wait_release(&r, &w));
	REQUIRE_OK(spmt_barrier(comm));
	calls_end(&c);
	return 0;
}

static int one_world(int index, struct worlds *w, const spmt_uid *uid, bool stays)
{
	struct spmt_attr attr = ranks_attr(index % w->n, w->n, uid);
	spmt_comm *comm;
	int rc;

	attr.backend = gpu_backend()->name;
	attr.heap_size = 64u << 20;
	attr.timeout_ms = 20000;
	attr.device = index % w->n;
	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	rc = two_world_rank(comm, w, stays ? 1000 : 10, stays);
	if (rc)
		spmt_abort(comm, -ECANCELED);
	ranks_watch(NULL);
	spmt_finalize(comm);
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
	int lives = (int)gpu_count(200, 50), warm = lives / 10, rc = 0;
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
	{ "thread_bound_to_another_device", run_elsewhere, 1 },
	{ "permuted_devices", run_permuted, 1 },
	{ "two_worlds", run_two_worlds, 1 },
};
static const struct test_kernel *const kernels[] = { &test_hold, NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
