/* SPDX-License-Identifier: MIT */
/*
 * Worlds that are aborted, or lose a process, at any moment, whatever their ranks are just at: parts, lanes, memory, functions behind
 * streams. All ranks hear of it soon, and of nothing else; each part and lane is found broken by whoever has heard; those that are left go on
 * together.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/lib/processes.h"
#include "tests/lib/tap.h"

enum { RANKS = 4, CODE = -77, DEADLINE_MS = 30000, SOON_MS = 5000, ACTS = 11, WORDS = 64 };

static struct round {
	struct processes p;
	uint64_t seed;
	int us;	    /* from when all have begun */
	int victim; /* a process; -1: rank 0 aborts */
	struct shared {
		_Atomic int ready, functions, queued;
		_Atomic int64_t begin;
	} * shared;
} round_now;

struct rank {
	spmt_comm *world, *part, *sub, *lane;
	uint64_t *in, (*out)[WORDS]; /* out: by comm, and key of a lane */
	char buf[4096];
	int key;
};

/* ---- what ranks do, all in the same order ------------------------------------------------------------------------- */

static void count(void *arg, int code)
{
	(void)arg;
	(void)code;
	atomic_fetch_add(&round_now.shared->functions, 1);
}

static int call_back(spmt_comm *comm)
{
	int code = spmt_on_complete(comm, NULL, count, NULL);

	if (!code)
		atomic_fetch_add(&round_now.shared->queued, 1);
	return code;
}

static int sum(spmt_comm *comm, const struct rank *r, int to)
{
	return spmt_all_reduce(comm, r->out[to], r->in, WORDS, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
}

static int memory(spmt_comm *comm, const struct rank *r)
{
	void *block;
	int code = spmt_malloc(comm, 256, &block);

	if (!code)
		code = spmt_put(comm, block, r->in, 64, (spmt_rank(comm) + 1) % spmt_nranks(comm));
	return code ? code : spmt_free(comm, block);
}

static int buffer(struct rank *r)
{
	spmt_mem *mem;
	int code = spmt_register(r->world, r->buf, sizeof(r->buf), &mem);

	return code ? code : spmt_deregister(r->world, mem);
}

static int end(spmt_comm **comm)
{
	int code = spmt_finalize(*comm);

	*comm = NULL;
	return code;
}

static int part(struct rank *r, unsigned arg)
{
	if (!r->part)
		return spmt_split(r->world, arg % 3 ? spmt_rank(r->world) % 2 : 0, 0, &r->part);
	r->sub = NULL; /* ends with it */
	return end(&r->part);
}

static int sub(struct rank *r)
{
	if (!r->part)
		return spmt_barrier(r->world);
	return r->sub ? end(&r->sub) : spmt_split(r->part, 0, 0, &r->sub);
}

static int lane(struct rank *r, unsigned arg)
{
	int code;

	if (r->lane && arg % 4 == 0)
		return end(&r->lane);
	code = spmt_lane(r->world, arg % 2, &r->lane);
	r->key = (int)(arg % 2);
	return code ? code : sum(r->lane, r, 3 + r->key);
}

static int act(struct rank *r, unsigned what, unsigned arg)
{
	int to = r->sub && arg & 1 ? 2 : r->part && arg & 2 ? 1 : 0;
	spmt_comm *comm = to == 2 ? r->sub : to ? r->part : r->world;

	switch (what) {
	case 0:
		return part(r, arg);
	case 1:
		return sub(r);
	case 2:
		return lane(r, arg);
	case 3:
		return r->lane ? spmt_quiet(r->lane) : 0;
	case 4:
		return memory(comm, r);
	case 5:
		return buffer(r);
	case 6:
		return sum(comm, r, to);
	case 7:
		return call_back(comm);
	case 8:
		return spmt_quiet(comm);
	case 9:
		return r->lane ? call_back(r->lane) : 0;
	default:
		return spmt_barrier(comm);
	}
}

/* ---- what comes of it ------------------------------------------------------------------------------------------------ */

static int soon(int64_t begin)
{
	return calm_ns() - begin < SOON_MS * (int64_t)1000000
		? 0
		: ranks_fail("after %d ms", (int)((calm_ns() - begin) / 1000000));
}

static int found_broken(const struct rank *r, int code)
{
	spmt_comm *comms[] = { r->part, r->sub };

	REQUIRE_CODE(spmt_status(r->world), code);
	if (r->lane)
		REQUIRE_CODE(sum(r->lane, r, 3 + r->key), code);
	for (int i = 0; i < 2; i++)
		if (comms[i])
			REQUIRE_CODE(spmt_barrier(comms[i]), code);
	return 0;
}

static int left(void)
{
	int n = 0;

	for (int r = 0; r < RANKS; r++)
		n += processes_of(round_now.p.layout, r) != round_now.victim;
	return n;
}

static int goes_on(struct rank *r)
{
	int64_t begin = calm_ns();
	struct spmt_attr attr;
	spmt_uid uid;
	spmt_comm *next;
	int rank = -1, n = -1;

	if (r->part && round_now.seed % 3 == 0) {
		REQUIRE_OK(spmt_shrink(r->part, &uid, &rank, &n));
		REQUIRE(n >= 1 && n <= spmt_nranks(r->part)); /* some may have ended theirs */
	}
	REQUIRE_OK(spmt_shrink(r->world, &uid, &rank, &n));
	REQUIRE_EQ(n, left());
	if (round_now.seed % 2)
		REQUIRE_OK(end(&r->world));
	attr = ranks_attr(rank, n, &uid);
	attr.timeout_ms = DEADLINE_MS;
	REQUIRE_OK(spmt_init(&attr, &next));
	REQUIRE_OK(spmt_barrier(next));
	TRY(soon(begin));
	if (r->world)
		REQUIRE_OK(end(&r->world));
	return spmt_finalize(next);
}

/* ---- a round ---------------------------------------------------------------------------------------------------------- */

static void await_all(void)
{
	for (int64_t end = now_ns() + 20000000000;
		atomic_load(&round_now.shared->ready) < RANKS && now_ns() < end;)
		usleep(20);
}

static void *aborter(void *world)
{
	await_all();
	usleep((useconds_t)round_now.us);
	atomic_store(&round_now.shared->begin, calm_ns());
	if (spmt_abort(world, CODE))
		abort();
	return NULL;
}

static void killer(struct processes *p)
{
	if (round_now.victim < 0)
		return;
	await_all();
	usleep((useconds_t)round_now.us);
	atomic_store(&round_now.shared->begin, calm_ns());
	kill(p->pid[round_now.victim], SIGKILL);
}

static int acts(struct rank *r)
{
	uint64_t seed = round_now.seed;
	int code = 0;

	atomic_fetch_add(&round_now.shared->ready, 1);
	await_all();
	while (!code) {
		uint64_t next = random_next(&seed);

		code = act(r, (unsigned)(next >> 8) % ACTS, (unsigned)(next >> 20));
	}
	return code;
}

static int member(int rank, void *arg)
{
	struct spmt_attr attr = ranks_attr(rank, RANKS, &round_now.p.uid[0]);
	int want = round_now.victim < 0 ? CODE : SPMT_ERR_PEER_DEAD, code;
	struct rank r = { .key = 0 };
	pthread_t thread;

	(void)arg;
	attr.timeout_ms = DEADLINE_MS;
	REQUIRE_OK(spmt_init(&attr, &r.world));
	ranks_watch(r.world);
	REQUIRE_OK(spmt_calloc(r.world, 6, sizeof(*r.out), (void **)&r.in));
	r.out = (void *)(r.in + WORDS);
	if (!rank && round_now.victim < 0)
		REQUIRE_EQ(pthread_create(&thread, NULL, aborter, r.world), 0);
	code = acts(&r);
	if (!rank && round_now.victim < 0)
		pthread_join(thread, NULL);
	REQUIRE_CODE(code, want);
	TRY(soon(atomic_load(&round_now.shared->begin)));
	TRY(found_broken(&r, want));
	ranks_watch(NULL);
	return goes_on(&r);
}

static int one_round(uint64_t *seed, bool seldom)
{
	static const char *const layouts[] = { "0,1,2,3", "0,1|2,3", "0|1|2|3", "0,2|1|3" };
	static const int processes[] = { 1, 2, 4, 3 };
	struct shared *shared = round_now.shared;
	int l = (int)(random_next(seed) % 4), code;

	memset(shared, 0, sizeof(*shared));
	round_now.p = (struct processes){ .layout = layouts[l], .watch = killer };
	round_now.seed = random_next(seed);
	round_now.us = (int)(random_next(seed) % (seldom ? 20000 : 3000));
	round_now.victim = -1;
	if (l && random_next(seed) % 3) {
		round_now.victim = (int)(random_next(seed) % (unsigned)processes[l]);
		round_now.p.killed = 1u << round_now.victim;
	}
	code = processes_run(&round_now.p, member, NULL);
	if (!code && round_now.victim < 0 && shared->functions != shared->queued)
		return ranks_fail(
			"%d functions of %d were called", shared->functions, shared->queued);
	return code;
}

static int rounds(void)
{
	const char *first = getenv("SEED");
	uint64_t seed = first ? strtoull(first, NULL, 10) : 4711;

	round_now.shared = processes_shared(sizeof(*round_now.shared));
	REQUIRE(round_now.shared);
	for (size_t i = 0; i < test_count(100, 3000); i++)
		TRY(one_round(&seed, i % 8 == 0));
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = { { "aborted or killed at any moment", rounds } };

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
