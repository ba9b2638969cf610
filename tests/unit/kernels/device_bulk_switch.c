/* SPDX-License-Identifier: MIT */
/* Bulk copies to all buffers of a switch channel, over a model of the engine (engine_model.c): each in turn, and by a multicast. */
#define SPMTD_BULK_MODEL 1
#define SPMTD_MULTIMEM_MODEL 1
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "spmt_channel.h"
#include "tests/lib/device/engine_model.h"
#include "tests/lib/device/plain_views.h"

enum {
	RANKS = 3,
	HEAP = 32768,
	SRC = 1024,
	BUFFER = 16384,
	ROOM = 4 * 512 + 64,
	MULTICAST = 0x10000
};

static struct views world;
static struct spmt_view me;
static char before[RANKS * HEAP];
static char shared[ROOM] __attribute__((aligned(128)));

/* ---- the switch ------------------------------------------------------------------------------- */

static int stores;

void spmtd_multimem_fence_(void)
{
	engine.alias_fenced = true;
	engine.alias = false;
}

void spmtd_multimem_store_(uint64_t a, struct spmtd_unit_ u)
{
	cr_assert(engine.alias_fenced && a % 16 == 0);
	engine.alias = true;
	stores++;
	for (int i = 0; i < engine.nbuffers; i++)
		memcpy((void *)(uintptr_t)(engine.buffers[i] + (a - engine.multicast)), &u, 16);
}

struct spmtd_unit_ spmtd_multimem_load_(uint64_t a, int fold)
{
	cr_assert_fail("nothing is folded here: %#llx, %d", (unsigned long long)a, fold);
	return (struct spmtd_unit_){ 0, 0 };
}

/* ---- worlds ----------------------------------------------------------------------------------- */

static char *at(int pe, size_t off)
{
	return views_heap(&world, pe) + off;
}

static void open_world(void)
{
	cr_assert_eq(views_open(&world, RANKS, HEAP, true), 0);
	me = view_of(&world, 1);
	engine = (struct engine){ .reaches = true, .seed = 1, .multicast = MULTICAST };
	engine.nbuffers = RANKS;
	for (int pe = 0; pe < RANKS; pe++)
		engine.buffers[pe] = (uint64_t)(uintptr_t)at(pe, BUFFER);
}

static void close_world(void)
{
	views_close(&world);
}

TestSuite(device_bulk_switch, .init = open_world, .fini = close_world, .timeout = 120);

static void scramble_all(uint32_t seed)
{
	for (size_t i = 0; i < RANKS * HEAP; i++) {
		seed = seed * 1664525u + 1013904223u;
		before[i] = (char)(seed >> 24);
	}
	for (int pe = 0; pe < RANKS; pe++)
		memcpy(at(pe, 0), before + (size_t)pe * HEAP, HEAP);
}

static void broadcast(int form, struct spmtd_bulk *b, const struct spmt_switch *s, size_t off,
	const char *src, size_t n)
{
	if (form == 0)
		spmtd_bulk_broadcast(&me, b, s, off, src, n);
	else if (form == 1)
		spmtd_bulk_broadcast_warp(&me, b, s, off, src, n);
	else if (form == 2)
		spmtd_bulk_broadcast_nbi(&me, b, s, off, src, n);
	else
		spmtd_bulk_broadcast_nbi_warp(&me, b, s, off, src, n);
}

/* off: in the buffer; src: in this rank's heap. */
static void one(struct spmtd_bulk *b, const struct spmt_switch *s, int form, size_t off, size_t src,
	size_t n)
{
	size_t place = BUFFER + off;

	scramble_all((uint32_t)(n * 100 + off + src));
	for (size_t pe = 0; pe < RANKS; pe++)
		memcpy(before + pe * HEAP + place, at(1, src), n);
	engine.alias_fenced = false;
	broadcast(form, b, s, off, at(1, src), n);
	if (form < 2)
		cr_assert(!engine.alias, "complete on return, also by ranks' own addresses");
	else
		spmtd_bulk_quiet(b);
	cr_assert(!engine.alias, "fenced by quiet");
	cr_assert_eq(engine.nstores, 0);
	for (int pe = 0; pe < RANKS; pe++)
		for (size_t i = 0; i < HEAP; i++)
			cr_assert_eq(at(pe, 0)[i], before[(size_t)pe * HEAP + i],
				"form %d, %zu bytes at %zu from %zu: byte %zu of rank %d", form, n,
				off, src, i, pe);
}

static void all_sizes(const struct spmt_switch *s)
{
	static const size_t sizes[] = { 0, 1, 15, 16, 33, 100, 256, 1000, 4096, 5001 };
	struct spmtd_bulk b;

	for (int form = 0; form < 4; form++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (size_t odd = 0; odd < 32; odd += 5) {
				cr_assert_eq(spmtd_bulk_begin(&b, shared, 512, 4), 0);
				one(&b, s, form, 64 + odd % 16, SRC + odd % 16, sizes[i]);
				one(&b, s, form, 32, SRC + odd, sizes[i]);
				one(&b, s, form, odd, BUFFER + odd, sizes[i]); /* its own place */
				spmtd_bulk_end(&b);
			}
}

Test(device_bulk_switch, each_rank_in_turn)
{
	struct spmt_switch s = switch_of(&world, 1, BUFFER, 8192);

	all_sizes(&s);
	cr_expect_eq(engine.spreads + stores, 0);
	cr_expect_gt(engine.loads, 0);
}

Test(device_bulk_switch, by_a_multicast)
{
	struct spmt_switch s = switch_of(&world, 1, BUFFER, 8192);

	s.multicast = MULTICAST;
	all_sizes(&s);
	cr_expect_gt(engine.spreads, 100);
}

Test(device_bulk_switch, each_chunk_is_loaded_and_stored_once)
{
	struct spmt_switch s = switch_of(&world, 1, BUFFER, 8192);
	struct spmtd_bulk b;

	s.multicast = MULTICAST;
	cr_assert_eq(spmtd_bulk_begin(&b, shared, 512, 4), 0);
	one(&b, &s, 0, 0, SRC, 4096);
	cr_expect_eq(engine.loads, 8);
	cr_expect_eq(engine.spreads, 8);
	spmtd_bulk_end(&b);
}

/* Without stages, and where the engine does not reach, it is what spmtd_switch_broadcast does. */
Test(device_bulk_switch, without_an_engine)
{
	struct spmt_switch s = switch_of(&world, 1, BUFFER, 8192);
	struct spmtd_bulk b;

	cr_assert_eq(spmtd_bulk_begin(&b, shared + 1, 512, 4), SPMTD_INVALID);
	one(&b, &s, 0, 0, SRC, 1000);
	s.multicast = MULTICAST;
	one(&b, &s, 0, 0, SRC, 1000);
	cr_expect_eq(stores, 1000 / 16);
	cr_expect_eq(engine.loads, 0);
}

/* Registered parts may lie otherwise on each rank. */
Test(device_bulk_switch, parts_that_are_aligned_differently)
{
	struct spmtd_mem_peer parts[RANKS];
	struct spmt_switch s = switch_of(&world, 1, 0, 8192);
	struct spmtd_bulk b;

	for (int pe = 0; pe < RANKS; pe++)
		parts[pe] = (struct spmtd_mem_peer){ (uint64_t)(uintptr_t)at(pe, BUFFER), 8192 };
	s.offset = 0;
	s.parts = parts;
	cr_assert_eq(spmtd_bulk_begin(&b, shared, 512, 4), 0);
	one(&b, &s, 0, 0, SRC, 1000);
	cr_expect_gt(engine.loads, 0);
	engine.loads = 0;
	parts[2].base += 4;
	scramble_all(7);
	spmtd_bulk_broadcast(&me, &b, &s, 0, at(1, SRC), 1000);
	cr_expect_eq(engine.loads, 0);
	cr_expect_eq(memcmp(at(0, BUFFER), at(1, SRC), 1000), 0);
	cr_expect_eq(memcmp(at(2, BUFFER + 4), at(1, SRC), 1000), 0);
	spmtd_bulk_end(&b);
}
