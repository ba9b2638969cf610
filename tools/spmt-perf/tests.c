/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers.h"

static uint64_t *word(struct rank *r, int i)
{
	return r->words + (size_t)i * (PERF_WORD / sizeof(uint64_t));
}

static uint64_t seed_of(const struct rank *r, size_t size)
{
	return (uint64_t)size * 1024 + (uint64_t)(r->role == ROLE_RECEIVER ? r->peer : r->rank);
}

/* ---- put, get */

static int put_verify(struct rank *r, size_t size)
{
	int rc = 0;

	if (r->role == ROLE_SENDER)
		rc = perf_fill(r, r->src, size, seed_of(r, size));
	else if (r->role == ROLE_RECEIVER)
		rc = perf_poison(r, r->dst, size);
	if (!rc)
		rc = spmt_barrier(r->comm);
	if (!rc && r->role == ROLE_SENDER)
		rc = r->run->bench->ours(r, size, 1);
	if (!rc)
		rc = spmt_barrier(r->comm);
	if (!rc && r->role == ROLE_RECEIVER)
		rc = perf_compare(r, r->run->bench->name, r->dst, size, seed_of(r, size));
	return rc;
}

static int get_verify(struct rank *r, size_t size)
{
	int rc = 0;

	if (r->role == ROLE_RECEIVER)
		rc = perf_fill(r, r->src, size, seed_of(r, size));
	else if (r->role == ROLE_SENDER)
		rc = perf_poison(r, r->dst, size);
	if (!rc)
		rc = spmt_barrier(r->comm);
	if (!rc && r->role == ROLE_SENDER)
		rc = r->run->bench->ours(r, size, 1);
	if (!rc && r->role == ROLE_SENDER)
		rc = perf_compare(r, r->run->bench->name, r->dst, size, seed_of(r, size));
	return rc;
}

static int put_loop(struct rank *r, size_t size, uint64_t iters)
{
	int rc = 0;

	if (r->role != ROLE_SENDER)
		return 0;
	for (uint64_t i = 0; i < iters && !rc; i++)
		rc = spmt_put(r->comm, r->dst, r->src, size, r->peer);
	return rc ? rc : spmt_quiet(r->comm);
}

static int get_loop(struct rank *r, size_t size, uint64_t iters)
{
	int rc = 0;

	if (r->role != ROLE_SENDER)
		return 0;
	for (uint64_t i = 0; i < iters && !rc; i++)
		rc = spmt_get(r->comm, r->dst, r->src, size, r->peer);
	return rc;
}

static int put_quiet_loop(struct rank *r, size_t size, uint64_t iters)
{
	int rc = 0;

	if (r->role != ROLE_SENDER)
		return 0;
	for (uint64_t i = 0; i < iters && !rc; i++) {
		rc = spmt_put(r->comm, r->dst, r->src, size, r->peer);
		if (!rc)
			rc = spmt_quiet(r->comm);
	}
	return rc;
}

static int put_nbi_loop(struct rank *r, size_t size, uint64_t iters)
{
	int rc = 0;

	if (r->role != ROLE_SENDER)
		return 0;
	for (uint64_t i = 0; i < iters && !rc; i++)
		rc = spmt_put_nbi(r->comm, r->dst, r->src, size, r->peer);
	return rc ? rc : spmt_quiet(r->comm);
}

static int get_nbi_loop(struct rank *r, size_t size, uint64_t iters)
{
	int rc = 0;

	if (r->role != ROLE_SENDER)
		return 0;
	for (uint64_t i = 0; i < iters && !rc; i++)
		rc = spmt_get_nbi(r->comm, r->dst, r->src, size, r->peer);
	return rc ? rc : spmt_quiet(r->comm);
}

/* ---- put with signal, there and back */

static int pong(struct rank *r, size_t size, uint64_t value)
{
	return spmt_put_signal(
		r->comm, r->dst, r->src, size, word(r, 0), value, SPMT_SIGNAL_SET, r->peer);
}

static int pingpong_loop(struct rank *r, size_t size, uint64_t iters)
{
	int rc = 0;

	if (r->role == ROLE_IDLE)
		return 0;
	for (uint64_t i = 0; i < iters && !rc; i++) {
		uint64_t value = ++r->epoch;

		if (r->role == ROLE_SENDER)
			rc = pong(r, size, value);
		if (!rc)
			rc = spmt_signal_wait(r->comm, word(r, 0), SPMT_CMP_GE, value, NULL);
		if (!rc && r->role == ROLE_RECEIVER)
			rc = pong(r, size, value);
	}
	return rc;
}

/* Both ways; what the signal announces is compared at once, with no barrier in between. */
static int pingpong_verify(struct rank *r, size_t size)
{
	uint64_t mine = (uint64_t)size * 1024 + (uint64_t)r->rank;
	uint64_t theirs = (uint64_t)size * 1024 + (uint64_t)r->peer;
	int rc = 0;

	if (r->role != ROLE_IDLE) {
		rc = perf_fill(r, r->src, size, mine);
		if (!rc)
			rc = perf_poison(r, r->dst, size);
	}
	if (!rc)
		rc = spmt_barrier(r->comm);
	if (!rc)
		rc = pingpong_loop(r, size, 1);
	if (!rc && r->role != ROLE_IDLE)
		rc = perf_compare(r, "pingpong", r->dst, size, theirs);
	return rc;
}

/* ---- barrier */

static int barrier_loop(struct rank *r, size_t size, uint64_t iters)
{
	int rc = 0;

	(void)size;
	for (uint64_t i = 0; i < iters && !rc; i++)
		rc = spmt_barrier(r->comm);
	return rc;
}

/* Every rank writes a word of every other; behind the barrier all of them are there. */
static int barrier_verify(struct rank *r, size_t size)
{
	uint64_t value, seen = 0;
	int rc = 0;

	(void)size;
	value = perf_random(77, (uint64_t)r->rank);
	for (int pe = 0; pe < r->run->nranks && !rc; pe++)
		rc = spmt_atomic(r->comm, SPMT_AMO_SET, SPMT_TYPE_U64, word(r, r->rank), &value,
			NULL, NULL, pe);
	if (!rc)
		rc = spmt_barrier(r->comm);
	for (int pe = 0; pe < r->run->nranks && !rc; pe++) {
		rc = spmt_copy_out(r->comm, &seen, word(r, pe), sizeof(seen));
		if (!rc && seen != perf_random(77, (uint64_t)pe))
			rc = perf_wrong(r,
				"barrier: rank %d does not see what rank %d stored before it",
				r->rank, pe);
	}
	return rc;
}

/* ---- atomics */

static int fetch_add_loop(struct rank *r, size_t size, uint64_t iters)
{
	uint64_t one = 1, old;
	int rc = 0;

	(void)size;
	if (r->role != ROLE_SENDER)
		return 0;
	for (uint64_t i = 0; i < iters && !rc; i++)
		rc = spmt_atomic(r->comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, word(r, 0), &one, NULL,
			&old, r->peer);
	return rc;
}

/*
 * All ranks add to one word of rank 0 at once; every old value is below the sum, and the sum is exact. Where NICs alone do atomics, the
 * CPU of rank 0 may not.
 */
static int fetch_add_verify(struct rank *r, size_t size)
{
	enum { TIMES = 500 };
	const char *who = getenv("SPMT_RDMA_ATOMICS");
	bool apart = who && !strcmp(who, "nic");
	uint64_t one = 1, old = 0, adders = (uint64_t)(r->run->nranks - apart),
		 sum = adders * TIMES;
	int rc = 0;

	(void)size;
	for (int i = 0; i < TIMES && !rc && (r->rank || !apart); i++) {
		rc = spmt_atomic(r->comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, word(r, 1), &one, NULL,
			&old, 0);
		if (!rc && old >= sum)
			rc = perf_wrong(r, "fetch_add: rank %d fetched %llu of %llu", r->rank,
				(unsigned long long)old, (unsigned long long)sum);
	}
	if (!rc)
		rc = spmt_barrier(r->comm);
	if (!rc && r->rank == 0)
		rc = spmt_copy_out(r->comm, &old, word(r, 1), sizeof(old));
	if (!rc && r->rank == 0 && old != sum)
		rc = perf_wrong(r, "fetch_add: %d ranks added %d each, sum %llu", (int)adders,
			TIMES, (unsigned long long)old);
	return rc;
}

/* ---- all-reduce */

static int all_reduce_loop(struct rank *r, size_t size, uint64_t iters)
{
	int rc = 0;

	for (uint64_t i = 0; i < iters && !rc; i++) {
		rc = spmt_all_reduce(r->comm, r->dst, r->src, size / sizeof(float), SPMT_TYPE_F32,
			SPMT_OP_SUM, NULL);
		if (!rc)
			rc = spmt_quiet(r->comm);
	}
	return rc;
}

/* Whole numbers small enough that f32 sums of them are exact in any order. */
static float term(int rank, size_t i)
{
	return (float)(perf_random((uint64_t)rank + 5, i) % 4096);
}

static int all_reduce_fill(struct rank *r, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		float x = term(r->rank, i);

		memcpy(r->scratch + i * sizeof(x), &x, sizeof(x));
	}
	return spmt_copy_in(r->comm, r->src, r->scratch, count * sizeof(float));
}

static int all_reduce_verify(struct rank *r, size_t size)
{
	size_t count = size / sizeof(float);
	int rc = all_reduce_fill(r, count);

	if (!rc)
		rc = perf_poison(r, r->dst, size);
	if (!rc)
		rc = all_reduce_loop(r, size, 1);
	if (!rc)
		rc = spmt_copy_out(r->comm, r->scratch, r->dst, count * sizeof(float));
	for (size_t i = 0; i < count && !rc; i++) {
		float want = 0, seen;

		for (int pe = 0; pe < r->run->nranks; pe++)
			want += term(pe, i);
		memcpy(&seen, r->scratch + i * sizeof(seen), sizeof(seen));
		if (seen != want)
			rc = perf_wrong(r,
				"all_reduce of %zu bytes, rank %d: element %zu is %g, want %g",
				size, r->rank, i, (double)seen, (double)want);
	}
	return rc;
}

/* ---- init */

const char perf_init_name[] = "init";
const char perf_init_help[] =
	"spmt_run of an empty function: threads, init, finalize; the first is not counted. --layout: the first init of fresh processes, from the first call to the last return";

static int init_rank(spmt_comm *comm, void *arg)
{
	const int *nranks = arg;

	return spmt_nranks(comm) == *nranks && spmt_rank(comm) < *nranks ? 0 : -EILSEQ;
}

int perf_init(const struct options *opt, int nranks, struct figure *figure)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	double ns[PERF_ROUNDS_MAX];
	int rc = 0;

	attr.backend = opt->backend[0] ? opt->backend : NULL;
	*figure = (struct figure){ .ranks = nranks, .unit = UNIT_MS };
	snprintf(figure->test, sizeof(figure->test), "%s", perf_init_name);
	for (int i = -1; i < opt->rounds && !rc; i++) {
		int64_t begin = perf_now();

		rc = spmt_run(nranks, &attr, init_rank, &nranks);
		if (i >= 0)
			ns[i] = perf_convert(UNIT_MS, (double)(perf_now() - begin), 0, 0);
	}
	if (rc) {
		fprintf(stderr, "spmt-perf: init with %d ranks: %s: %s\n", nranks,
			spmt_strerror(rc), spmt_last_error());
		return PERF_EXIT_WRONG;
	}
	perf_spread(ns, opt->rounds, &figure->ours);
	return 0;
}

/* ---- the table */

const struct bench perf_benches[] = {
	{ .name = "put",
		.help = "blocking puts one after the other, then quiet",
		.peer_name = "memcpy",
		.unit = UNIT_GBPS,
		.paired = true,
		.hops = 1,
		.limit = 64u << 20,
		.sized = true,
		.verify = put_verify,
		.ours = put_loop,
		.peer = peer_memcpy_out },
	{ .name = "get",
		.help = "blocking gets one after the other",
		.peer_name = "memcpy",
		.unit = UNIT_GBPS,
		.paired = true,
		.hops = 1,
		.limit = 64u << 20,
		.sized = true,
		.verify = get_verify,
		.ours = get_loop,
		.peer = peer_memcpy_in },
	{ .name = "put_bw",
		.help = "put_nbi one after the other, one quiet at the end",
		.peer_name = "memcpy",
		.unit = UNIT_GBPS,
		.paired = true,
		.hops = 1,
		.sizes = { 64u << 10, 1u << 20 },
		.sized = true,
		.verify = put_verify,
		.ours = put_nbi_loop,
		.peer = peer_memcpy_out },
	{ .name = "get_bw",
		.help = "get_nbi one after the other, one quiet at the end",
		.peer_name = "memcpy",
		.unit = UNIT_GBPS,
		.paired = true,
		.hops = 1,
		.sizes = { 64u << 10, 1u << 20 },
		.sized = true,
		.verify = get_verify,
		.ours = get_nbi_loop,
		.peer = peer_memcpy_in },
	{ .name = "put_lat",
		.help = "put and quiet, one by one",
		.peer_name = "memcpy",
		.unit = UNIT_US,
		.paired = true,
		.hops = 1,
		.limit = 64u << 10,
		.sized = true,
		.verify = put_verify,
		.ours = put_quiet_loop,
		.peer = peer_memcpy_out },
	{ .name = "get_lat",
		.help = "get, one by one",
		.peer_name = "memcpy",
		.unit = UNIT_US,
		.paired = true,
		.hops = 1,
		.limit = 64u << 10,
		.sized = true,
		.verify = get_verify,
		.ours = get_loop,
		.peer = peer_memcpy_in },
	{ .name = "put8",
		.help = "8-byte puts to a word nobody polls",
		.peer_name = "store",
		.unit = UNIT_NS,
		.paired = true,
		.hops = 1,
		.sizes = { 8 },
		.verify = put_verify,
		.ours = put_loop,
		.peer = peer_store },
	{ .name = "put_nbi",
		.help = "rate of 8-byte put_nbi, one quiet at the end",
		.peer_name = "store",
		.unit = UNIT_MOPS,
		.paired = true,
		.hops = 1,
		.sizes = { 8 },
		.verify = put_verify,
		.ours = put_nbi_loop,
		.peer = peer_store },
	{ .name = "pingpong",
		.help = "put with signal there and back, half the round trip",
		.peer_name = "C11",
		.unit = UNIT_US,
		.paired = true,
		.hops = 2,
		.limit = 1u << 20,
		.sized = true,
		.verify = pingpong_verify,
		.ours = pingpong_loop,
		.peer = peer_pingpong },
	{ .name = "barrier",
		.help = "spmt_barrier",
		.peer_name = "pthread",
		.unit = UNIT_US,
		.hops = 1,
		.ranks = { 2, 8, 64 },
		.sizes = { 0 },
		.verify = barrier_verify,
		.ours = barrier_loop,
		.peer = peer_barrier },
	{ .name = "fetch_add",
		.help = "rate of spmt_atomic FETCH_ADD, u64, one rank a word",
		.peer_name = "C11",
		.unit = UNIT_MOPS,
		.paired = true,
		.hops = 1,
		.sizes = { 0 },
		.verify = fetch_add_verify,
		.ours = fetch_add_loop,
		.peer = peer_fetch_add },
	{ .name = "all_reduce",
		.help = "sum of f32, then quiet",
		.peer_name = "memcpy",
		.unit = UNIT_US,
		.hops = 1,
		.ranks = { 2, 8 },
		.sizes = { 8, 4096, 1u << 20 },
		.sized = true,
		.verify = all_reduce_verify,
		.ours = all_reduce_loop,
		.peer = peer_share },
	{ .name = NULL },
};
