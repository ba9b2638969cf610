/* SPDX-License-Identifier: MIT */
/*
 * SPMT_SDMA=queues as on AMD's machines: the HIP backend over its stand-in, queues by the stand-in for libhsakmt, whose engines of
 * software read the packets, nodes and links as the driver lists them (tests/lib/device/kfd_nodes.h). Which copies go by packets, what
 * kernels feed, and what is said where streams do it instead.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt_device.h"
#include "src/base/base.h"
#include "src/kernels/images.h"
#include "tests/fakes/fake_hsakmt.h"
#include "tests/lib/device/kernel_checks.h"
#include "tests/lib/device/kernel_waits.h"
#include "tests/lib/device/kfd_nodes.h"
#include "tests/lib/processes.h"
#include "tests/lib/ranks.h"

TestSuite(hip_queues, .timeout = 120);

enum { RANKS = 4, ROUNDS = 6, PART = 1 << 17, LARGE = 100003, ROOM = (RANKS + 1) * PART };

/* Takes the place of the library's: the stand-in launches kernels by their names, so that a build without images runs this, too. */
static const unsigned char elf[64] = { 0x7f, 'E', 'L', 'F', [48] = 0x4c };
const struct device_image device_images[] = { { "gfx942", "hsaco", elf, sizeof(elf) } };
const size_t device_image_count = 1;

static struct fake_hsakmt *fake;

static void queues(void)
{
	void *library = dlopen(FAKES "/fake-hsakmt.so", RTLD_NOW);

	setenv("SPMT_HSAKMT_LIB", FAKES "/fake-hsakmt.so", 1);
	cr_assert_not_null(library, "%s", dlerror());
	fake = dlsym(library, "fake_hsakmt");
	cr_assert_not_null(fake);
}

static void nothing_left(void)
{
	cr_expect_eq(fake->queues + fake->memory + fake->mapped, 0, "%d queues, %d of memory",
		fake->queues, fake->memory);
}

/* ---- which copies go by packets */

static int route_says(spmt_comm *comm, int pe, const char *words)
{
	struct spmt_route route = { .size = sizeof(route) };

	REQUIRE_OK(spmt_route(comm, pe, &route));
	if (strcmp(route.movers, "sdma") != 0 || !strstr(route.reason, words))
		return ranks_fail(
			"to %d by %s, not \"%s\": %s", pe, route.movers, words, route.reason);
	return 0;
}

struct block {
	char *own, *came; /* PART bytes; and as much from each rank */
	uint64_t *sig, *back;
	void *memory;
};

static int block_of(spmt_comm *comm, struct block *b)
{
	REQUIRE_OK(spmt_calloc(comm, 1, ROOM + 64, &b->memory));
	b->own = b->memory;
	b->came = b->own + PART;
	b->sig = (uint64_t *)(void *)(b->own + ROOM);
	b->back = b->sig + 1;
	return 0;
}

static uint64_t seed_of(int round, int from, int to)
{
	return (uint64_t)(round * 100 + from * 10 + to);
}

/* To each peer, from an odd place to another; back; and told. */
static int round_of(spmt_comm *comm, const struct block *b, int round)
{
	static const size_t sizes[] = { 1, 4096, LARGE, 77, 65536, 3 };
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	size_t size = sizes[round % ROUNDS];

	for (int pe = 0; pe < n; pe++) {
		char *there = b->came + (size_t)me * PART + 5;

		if (pe == me)
			continue;
		TRY(sym_fill(comm, b->own + 3, size, seed_of(round, me, pe)));
		if (round % 2)
			REQUIRE_OK(spmt_put_nbi(comm, there, b->own + 3, size, pe));
		else
			REQUIRE_OK(spmt_put(comm, there, b->own + 3, size, pe));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_signal(comm, b->sig, 1, SPMT_SIGNAL_ADD, pe));
	}
	REQUIRE_OK(spmt_signal_wait(
		comm, b->sig, SPMT_CMP_GE, (uint64_t)(round + 1) * (uint64_t)(n - 1), NULL));
	for (int pe = 0; pe < n; pe++) {
		if (pe == me)
			continue;
		TRY(sym_check(comm, b->came + (size_t)pe * PART + 5, size, seed_of(round, pe, me)));
		REQUIRE_OK(
			spmt_get_nbi(comm, b->own + 9, b->came + (size_t)me * PART + 5, size, pe));
		REQUIRE_OK(spmt_quiet(comm));
		TRY(sym_check(comm, b->own + 9, size, seed_of(round, me, pe)));
	}
	return spmt_barrier(comm);
}

static int rounds(spmt_comm *comm, void *arg)
{
	struct block b;

	(void)arg;
	TRY(block_of(comm, &b));
	for (int round = 0; round < ROUNDS; round++)
		TRY(round_of(comm, &b, round));
	REQUIRE_OK(spmt_free(comm, b.memory));
	return 0;
}

static int all_by_packets(spmt_comm *comm)
{
	struct spmt_route here = { .size = sizeof(here) }, there = { .size = sizeof(there) };
	int me = spmt_rank(comm);
	char words[64];

	REQUIRE_OK(spmt_route(comm, me, &here));
	for (int pe = 0; pe < spmt_nranks(comm); pe++) {
		if (pe == me)
			continue;
		REQUIRE_OK(spmt_route(comm, pe, &there));
		snprintf(words, sizeof(words), "sdma: SDMA 4 engine for %s, node %d to %d",
			there.device == here.device ? "PCIe" : "xGMI", here.device + 2,
			there.device + 2);
		TRY(route_says(comm, pe, words));
	}
	return 0;
}

static int by_packets(spmt_comm *comm, void *arg)
{
	TRY(all_by_packets(comm));
	TRY(rounds(comm, arg));
	return all_by_packets(comm); /* nothing has fallen back */
}

Test(hip_queues, puts_and_gets_go_by_packets, .init = queues)
{
	RANKS_OK(ranks_run(RANKS, NULL, by_packets, NULL));
	/* a copy and one that counts, at least, of each put and get */
	cr_assert_geq(fake->packets, 2 * 2 * ROUNDS * RANKS * (RANKS - 1));
	nothing_left();
}

/* Memory that the runtime does not know faults an engine of hardware, and is refused by these. */
static int from_plain_memory(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm), to = 1 - me;
	unsigned char *plain = malloc(LARGE);
	long before;
	struct block b;

	(void)arg;
	REQUIRE(plain);
	TRY(block_of(comm, &b));
	REQUIRE_OK(spmt_barrier(comm));
	before = fake->packets;
	REQUIRE_OK(spmt_barrier(comm));
	pattern_fill(plain, LARGE, 7 + (uint64_t)me);
	REQUIRE_OK(spmt_put_nbi(comm, b.came, plain, LARGE, to));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check(comm, b.came, LARGE, 7 + (uint64_t)to));
	memset(plain, 0, LARGE);
	REQUIRE_OK(spmt_get(comm, plain, b.came, LARGE, to));
	REQUIRE_EQ(pattern_differs(plain, LARGE, 7 + (uint64_t)me), SIZE_MAX);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_EQ(fake->packets, before);
	free(plain);
	REQUIRE_OK(spmt_free(comm, b.memory));
	return 0;
}

Test(hip_queues, memory_of_nobody_goes_by_streams, .init = queues)
{
	RANKS_OK(ranks_run(2, NULL, from_plain_memory, NULL));
	nothing_left();
}

/* ---- kernels feed them */

struct args {
	struct spmt_view view;
	struct block block;
	int *line;
};

static const struct spmtd_host waits = {
	.pause = kernel_pause, .resume = kernel_resume, .wake = kernel_wake
};

/* Data round the ring; `back` tells that the place is free again. */
static void ring(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	const struct block *b = &a->block;
	int n = spmtd_n_pes(v), me = spmtd_my_pe(v), from = (me + n - 1) % n, to = (me + 1) % n;

	for (int round = 1; round <= ROUNDS; round++) {
		size_t size = round % 2 ? LARGE : 9;

		pattern_fill(b->own + 3, size, seed_of(round, me, to));
		CHECK(spmtd_sdma_put(v, b->came + 5, b->own + 3, size, to) == 0);
		CHECK(spmtd_sdma_signal(v, b->sig, (uint64_t)round, SPMT_SIGNAL_SET, to) == 0);
		CHECK(spmtd_signal_wait_until(v, b->sig, SPMT_CMP_GE, (uint64_t)round) == 0);
		CHECK(pattern_differs(b->came + 5, size, seed_of(round, from, me)) == SIZE_MAX);
		CHECK(spmtd_sdma_signal(v, b->back, 1, SPMT_SIGNAL_ADD, from) == 0);
		CHECK(spmtd_signal_wait_until(v, b->back, SPMT_CMP_GE, (uint64_t)round) == 0);
		CHECK(spmtd_sdma_quiet(v, round % 3 ? to : -1) == 0);
	}
	CHECK(spmtd_sdma_put(v, b->came + PART, b->own + 3, 9, to) ==
		0); /* the host's quiet covers it */
}

/* Kernels here are functions of the CPU, which reaches the memory or does not. */
static bool blind(void)
{
	const char *text = getenv("SPMT_FAKE_BLIND");

	return text && atoi(text);
}

/* In stream order, where the kernels of the stand-in run. */
static int by_kernels(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm), me = spmt_rank(comm), line = 0;
	struct args a = { .line = &line };

	if (blind())
		return 0;
	TRY(block_of(comm, &a.block));
	a.view.size = sizeof(a.view);
	REQUIRE_OK(spmt_view_get(comm, &a.view));
	a.view.host = &waits;
	for (int pe = 0; pe < n; pe++) {
		REQUIRE_EQ(a.view.sdma && a.view.sdma[pe].ring, arg && pe != me);
		/* also where the CPU that has the words is behind another one */
		if (arg && pe != me)
			REQUIRE_EQ(a.view.sdma[pe].atomics, SPMTD_SDMA_COUNTS | SPMTD_SDMA_SIGNALS);
	}
	REQUIRE_OK(stream_call(comm, NULL, ring, &a, sizeof(a)));
	TRY(stream_wait(comm, NULL));
	REQUIRE_EQ(line, 0);
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_EQ(pattern_differs(a.block.came + PART, 9, seed_of(ROUNDS, (me + n - 1) % n, me)),
		SIZE_MAX);
	REQUIRE_OK(spmt_free(comm, a.block.memory));
	return 0;
}

Test(hip_queues, kernels_feed_engines, .init = queues)
{
	if (blind())
		cr_skip_test("the CPU does not reach the devices' memory");
	RANKS_OK(ranks_run(RANKS, NULL, by_kernels, &(int){ 0 }));
	cr_assert_geq(fake->packets, 3 * ROUNDS * RANKS);
	nothing_left();
}

static int from_process_to_process(spmt_comm *comm, void *arg)
{
	long before;

	TRY(by_packets(comm, arg));
	REQUIRE(fake->packets >= 2 * 2 * ROUNDS * (RANKS - 1));
	REQUIRE_OK(spmt_barrier(comm));
	before = fake->packets;
	REQUIRE_OK(spmt_barrier(comm));
	TRY(by_kernels(comm, comm));
	REQUIRE(blind() || fake->packets >= before + 3 * ROUNDS);
	return 0;
}

/* The peer's device is one of this process's as well, and its heap one that this process has opened. */
Test(hip_queues, between_processes, .init = queues)
{
	struct processes p = { .layout = "0,2|1,3" };

	RANKS_OK(processes_world(&p, from_process_to_process, NULL));
}

/* ---- where streams do it instead, and why */

/* Of the pairs of device 0 before anything was moved, of all behind it; NULL: as where nothing is amiss. */
struct fall {
	const char *before, *behind, *others;
};

static int falls(spmt_comm *comm, void *arg)
{
	const struct fall *f = arg;
	int me = spmt_rank(comm);

	for (int pe = 0; pe < spmt_nranks(comm); pe++)
		if (pe != me)
			TRY(route_says(comm, pe, me && pe ? f->others : f->before));
	TRY(rounds(comm, NULL));
	for (int pe = 0; f->behind && pe < spmt_nranks(comm); pe++)
		if (pe != me)
			TRY(route_says(comm, pe, f->behind));
	return spmt_barrier(comm);
}

static void all_fall(const char *why)
{
	struct fall f = { .before = why, .others = why };

	RANKS_OK(ranks_run(3, NULL, falls, &f));
	cr_assert_eq(fake->packets, 0);
	RANKS_OK(ranks_run(3, NULL, by_kernels, NULL));
	cr_assert_eq(fake->packets, 0);
	nothing_left();
}

/* Device 0 has none, the others have theirs. */
static void first_falls(const char *why)
{
	struct fall f = { .before = why, .others = "sdma: SDMA 4 engine for xGMI, node " };

	RANKS_OK(ranks_run(3, NULL, falls, &f));
	cr_assert_geq(fake->packets, 2 * 2 * ROUNDS * 2);
	nothing_left();
}

Test(hip_queues, no_library, .init = queues)
{
	setenv("SPMT_HSAKMT_LIB", "/nonexistent/libhsakmt.so", 1);
	all_fall("sdma: streams, as no libhsakmt: /nonexistent/libhsakmt.so");
}

Test(hip_queues, no_driver_behind_the_library, .init = queues)
{
	fake->open_status = 20;
	all_fall("sdma: streams, as libhsakmt does not open /dev/kfd: status 20");
}

Test(hip_queues, no_nodes, .init = queues)
{
	kfd_nodes.none = true;
	all_fall("sdma: streams, as /sys/class/kfd/kfd/topology/nodes: No such file");
}

Test(hip_queues, a_device_that_is_not_listed, .init = queues)
{
	kfd_nodes.unlisted = 0;
	first_falls("sdma: streams, as the driver lists 0 nodes at 0000:fa:00.0");
}

/* As a container sees those of devices that it was not given. libhsakmt has no number for them: the others' nodes are not as the driver's. */
Test(hip_queues, a_node_that_may_not_be_read, .init = queues)
{
	kfd_nodes.hidden = fake->hidden = 0;
	fake->counted = 5;
	first_falls("sdma: streams, as the driver lists 0 nodes at 0000:fa:00.0");
	cr_assert_eq(fake->asked, 1 << 1 | 1 << 2, "%#x", fake->asked);
}

Test(hip_queues, nodes_that_are_counted_otherwise, .init = queues)
{
	fake->counted = 5;
	all_fall(
		"sdma: streams, as libhsakmt counts 5 nodes, and the driver lists 6 for this process");
}

/* Which part a device is nobody says: an engine of another part would fault. */
Test(hip_queues, a_device_in_parts, .init = queues)
{
	kfd_nodes.parts = 3;
	fake->counted = 8;
	first_falls("sdma: streams, as the driver lists 3 nodes at 0000:fa:00.0");
}

static int from_device_0(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm);

	(void)arg;
	for (int pe = 0; pe < 3; pe++)
		if (pe != me)
			TRY(route_says(comm, pe,
				me ? "sdma: SDMA 4 engine for xGMI, node "
				   : "sdma: streams, as node 2 has no SDMA engines"));
	return rounds(comm, NULL);
}

Test(hip_queues, a_device_without_engines, .init = queues)
{
	kfd_nodes.empty = 0;
	RANKS_OK(ranks_run(3, NULL, from_device_0, NULL));
	cr_assert_gt(fake->packets, 0);
	nothing_left();
}

Test(hip_queues, queues_that_are_refused, .init = queues)
{
	struct fall f = {
		.before = "sdma: SDMA 4 engine for xGMI, node ",
		.others = "sdma: SDMA 4 engine for xGMI, node ",
		.behind = "; sdma: streams: libhsakmt: hsaKmtCreateQueue: status 13",
	};

	fake->no_queues = true;
	RANKS_OK(ranks_run(3, NULL, falls, &f));
	RANKS_OK(ranks_run(3, NULL, by_kernels, NULL));
	cr_assert_eq(fake->packets, 0);
	nothing_left();
}

/* Each call of libhsakmt's that makes something, refused in turn: the copies go, by whatever does them. */
Test(hip_queues, what_a_queue_needs_is_refused_in_turn, .init = queues)
{
	for (int n = 1; n <= 8; n++) {
		fake->fail_at = n;
		RANKS_OK(ranks_run(2, NULL, rounds, NULL));
		nothing_left();
	}
	cr_assert_gt(fake->packets, 0);
}
