/* SPDX-License-Identifier: MIT */
/* What a comm says of itself: capabilities, routes, counters; and variables that do not parse. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"

/* ---- capabilities ---------------------------------------------------------------------------------------------------------------- */

static int capabilities(spmt_comm *comm, void *arg)
{
	int64_t value;

	(void)arg;
	for (enum spmt_cap cap = SPMT_CAP_VMM; cap <= SPMT_CAP_CHANNELS; cap++) {
		value = -1;
		REQUIRE_OK(spmt_query(comm, cap, &value));
		REQUIRE(value >= 0);
	}
	REQUIRE_OK(spmt_query(comm, SPMT_CAP_HEAP_SIZE, &value));
	REQUIRE(value >= 4 << 20 && value <= 6 << 20);
	REQUIRE_OK(spmt_query(comm, SPMT_CAP_RESIDENT_BLOCKS, &value));
	REQUIRE(value >= 1);
	REQUIRE_OK(spmt_query(comm, SPMT_CAP_BARRIERS, &value));
	REQUIRE(value >= 8);
	REQUIRE(strcmp(spmt_backend(comm), "host") == 0);
	REQUIRE_OK(spmt_query(comm, SPMT_CAP_HOST_ACCESS, &value));
	REQUIRE_EQ(value, 1);
	return 0;
}

Test(info, capabilities)
{
	setenv("SPMT_BACKEND", "host", 1);
	RANKS_OK(ranks_run(2, NULL, capabilities, NULL));
}

static int resident(spmt_comm *comm, void *arg)
{
	int64_t *blocks = arg;

	REQUIRE_OK(spmt_query(comm, SPMT_CAP_RESIDENT_BLOCKS, &blocks[spmt_rank(comm)]));
	return 0;
}

/* Kernels of ranks that share a device may wait for each other there. */
Test(info, ranks_of_a_device_have_a_part_of_its_blocks_each)
{
	static const int devices[] = { 0, 1, 0 };
	int64_t alone[3] = { 0 }, some[3] = { 0 };

	setenv("SPMT_BACKEND", "host", 1);
	RANKS_OK(ranks_run(3, NULL, resident, alone));
	RANKS_OK(ranks_run_on(3, NULL, devices, resident, some));
	for (int i = 0; i < 3; i++) {
		cr_expect_geq(alone[i], 1);
		cr_expect_eq(some[i], i != 1 && alone[i] > 1 ? alone[i] / 2 : alone[i]);
	}
}

/* ---- counters -------------------------------------------------------------------------------------------------------------------- */

static int read_stats(spmt_comm *comm, int pe, struct spmt_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
	REQUIRE_OK(spmt_stats(comm, pe, stats));
	return 0;
}

static int counters(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), next = (rank + 1) % 3, other = (rank + 2) % 3;
	struct spmt_stats to, away, all, before;
	uint64_t *words, one = 1;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 256, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(read_stats(comm, next, &before));
	for (int i = 0; i < 10; i++)
		REQUIRE_OK(spmt_put(comm, words, words + 128, 800, next));
	REQUIRE_OK(spmt_get(comm, words + 128, words, 40, next));
	TRY(read_stats(comm, next, &to));
	REQUIRE_EQ(to.ops - before.ops, 11);
	REQUIRE_EQ(to.bytes - before.bytes, 8040);
	REQUIRE_EQ(to.store.ops + to.sdma.ops + to.verbs.ops, to.ops);
	REQUIRE_EQ(to.store.bytes + to.sdma.bytes + to.verbs.bytes, to.bytes);
	REQUIRE_OK(spmt_atomic(
		comm, SPMT_AMO_ADD, SPMT_TYPE_U64, words + 255, &one, NULL, NULL, next));
	REQUIRE_OK(spmt_signal(comm, words + 254, 1, SPMT_SIGNAL_ADD, next));
	TRY(read_stats(comm, next, &to));
	REQUIRE_EQ(to.ops - before.ops, 13);
	TRY(read_stats(comm, other, &away));
	TRY(read_stats(comm, -1, &all));
	REQUIRE(all.ops >= to.ops + away.ops && all.bytes >= to.bytes + away.bytes);
	REQUIRE_OK(spmt_set_timeout(comm, 30));
	REQUIRE_CODE(spmt_signal_wait(comm, words + 253, SPMT_CMP_EQ, 1, NULL), SPMT_ERR_TIMEOUT);
	REQUIRE_OK(spmt_set_timeout(comm, 0));
	TRY(read_stats(comm, -1, &to));
	REQUIRE(to.waits > all.waits);
	REQUIRE(to.longest_wait_ns >= 29000000 && to.longest_wait_ns < 5000000000);
	return spmt_barrier(comm);
}

Test(info, counters)
{
	RANKS_OK(ranks_run(3, NULL, counters, NULL));
}

/* ---- routes as wished ------------------------------------------------------------------------------------------------------------- */

static int only_stores(spmt_comm *comm, void *arg)
{
	struct spmt_route route = { .size = sizeof(route) };
	struct spmt_stats stats;
	char *at;

	(void)arg;
	REQUIRE_OK(spmt_route(comm, 1 - spmt_rank(comm), &route));
	REQUIRE(strcmp(route.movers, "store") == 0);
	REQUIRE(strstr(route.reason, "SPMT_MOVES"));
	REQUIRE_OK(spmt_malloc(comm, 2 << 20, (void **)&at));
	REQUIRE_OK(spmt_put_nbi(comm, at, at + (1 << 20), 1 << 20, 1 - spmt_rank(comm)));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(read_stats(comm, 1 - spmt_rank(comm), &stats));
	REQUIRE_EQ(stats.sdma.ops, 0);
	REQUIRE(stats.store.bytes >= 1 << 20);
	return 0;
}

Test(info, moves_by_stores_alone)
{
	setenv("SPMT_MOVES", "store", 1);
	RANKS_OK(ranks_run(2, NULL, only_stores, NULL));
}

static int threshold(spmt_comm *comm, void *arg)
{
	struct spmt_route route = { .size = sizeof(route) };
	struct spmt_stats stats, after;
	int pe = 1 - spmt_rank(comm);
	char *at;

	(void)arg;
	REQUIRE_OK(spmt_route(comm, pe, &route));
	REQUIRE_EQ(route.threshold, 4096);
	REQUIRE_OK(spmt_malloc(comm, 1 << 20, (void **)&at));
	TRY(read_stats(comm, pe, &stats));
	REQUIRE_OK(spmt_put_nbi(comm, at, at + 65536, 4096, pe));
	TRY(read_stats(comm, pe, &after));
	REQUIRE_EQ(after.sdma.ops, stats.sdma.ops);
	REQUIRE_OK(spmt_put_nbi(comm, at, at + 65536, 4097, pe));
	TRY(read_stats(comm, pe, &after));
	REQUIRE_EQ(after.sdma.ops, stats.sdma.ops + 1);
	REQUIRE_EQ(after.sdma.bytes, stats.sdma.bytes + 4097);
	return spmt_quiet(comm);
}

Test(info, the_threshold_between_movers)
{
	setenv("SPMT_STORE_THRESHOLD", "4K", 1);
	RANKS_OK(ranks_run(2, NULL, threshold, NULL));
}

/* p2p forbidden, and nothing else leads to a rank of the same process: no world, and the reason in the sentence. */
static int no_way(int rank, void *arg)
{
	struct spmt_attr attr = ranks_attr(rank, 2, arg);
	spmt_comm *comm = NULL;

	REQUIRE(spmt_init(&attr, &comm) < 0);
	REQUIRE(!comm);
	REQUIRE_SAYS("SPMT_MAPS");
	return 0;
}

Test(info, no_way_at_all)
{
	spmt_uid uid;

	setenv("SPMT_MAPS", "-p2p", 1);
	cr_assert_eq(spmt_uid_create(&uid), 0);
	RANKS_OK(ranks_threads(2, no_way, &uid));
}

/* ---- variables ---------------------------------------------------------------------------------------------------------------------- */

static void refuses(const char *name, const char *value)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	spmt_comm *comm = NULL;

	setenv(name, value, 1);
	cr_expect_lt(spmt_init(&attr, &comm), 0);
	cr_expect_eq(
		strncmp(spmt_last_error(), "spmt_init: rank 0: ", 19), 0, "%s", spmt_last_error());
	cr_expect(strstr(spmt_last_error(), name) && strstr(spmt_last_error(), value), "%s",
		spmt_last_error());
}

Test(info, a_bad_number)
{
	refuses("SPMT_HEAP_SIZE", "12Q");
}

Test(info, a_bad_word)
{
	refuses("SPMT_HEAP_MODE", "stack");
}

Test(info, a_bad_range)
{
	refuses("SPMT_HOST_DEVICES", "-3");
}

Test(info, a_bad_backend)
{
	refuses("SPMT_BACKEND", "abacus");
}

static int default_heap(spmt_comm *comm, void *arg)
{
	int64_t size = 0;

	REQUIRE_OK(spmt_query(comm, SPMT_CAP_HEAP_SIZE, &size));
	REQUIRE_EQ(size, *(int64_t *)arg);
	return 0;
}

Test(info, the_heap_of_the_environment)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	int64_t size = 24 << 20;

	setenv("SPMT_HEAP_SIZE", "24M", 1);
	attr.heap_size = 0;
	RANKS_OK(ranks_run(2, &attr, default_heap, &size));
	cr_expect_eq(
		spmt_run(ranks_here(2), NULL, default_heap, &size), 0, "%s", spmt_last_error());
}

Test(info, versions_and_words)
{
	int major, minor, patch;
	spmt_uid a, b;

	cr_expect_eq(spmt_version_number(), SPMT_VERSION_NUMBER);
	cr_assert_eq(sscanf(spmt_version(), "%d.%d.%d", &major, &minor, &patch), 3);
	cr_expect_eq(major * 10000 + minor * 100 + patch, SPMT_VERSION_NUMBER);
	for (int code = -10010; code < 5; code = code == -9990 ? -200 : code + 1) {
		cr_assert_not_null(spmt_strerror(code));
		cr_expect_neq(spmt_strerror(code)[0], '\0', "code %d", code);
	}
	cr_expect_str_neq(spmt_strerror(SPMT_ERR_TIMEOUT), spmt_strerror(SPMT_ERR_BROKEN));
	cr_assert_eq(spmt_uid_create(&a), 0);
	cr_assert_eq(spmt_uid_create(&b), 0);
	cr_expect_neq(memcmp(&a, &b, sizeof(a)), 0);
}
