/* SPDX-License-Identifier: MIT */
/*
 * All_reduces by plans of packets whose blocks are alike, of sizes for which GPUs have each kind of packets: in brief, wide, and narrow as elements of
 * 8 bytes are; anywhere in memory that a type allows, on some ranks in place.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/device/backend_here.h"
#include "tests/lib/plan/row_plans.h"
#include "tests/lib/processes.h"

enum {
	GRAIN = 96, /* bytes: of any plan of up to 4 ranks a chunk is a multiple of 8 then */
	CALLS = 8,
	GRAINS = 5400, /* a plan of four ranks has room for 512 KiB of packets */
	MOST = GRAIN * GRAINS,
	BESIDE = 64, /* bytes around what is called, which stay */
	STAYS = 0x5c
};

struct wish {
	struct processes p; /* first */
	uint64_t seed;
};

struct call {
	enum spmt_type type;
	size_t size, count;
	size_t src, dst; /* bytes from where the memory begins */
	bool in_place;
};

static uint64_t drawn(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed * 1000003 + i + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
	return x >> 24;
}

/* Equal on all ranks but for where it lies. */
static struct call call_of(uint64_t seed, uint64_t nth, int rank)
{
	static const enum spmt_type types[] = { SPMT_TYPE_U8, SPMT_TYPE_U16, SPMT_TYPE_U32,
		SPMT_TYPE_U64 };
	static const size_t grains[] = { 4, 60, 900, 0 };
	uint64_t at = seed * 64 + nth, mine = at * 16 + (uint64_t)rank + 7;
	size_t few = grains[drawn(at, 1) % 4], most = few ? few : on_host() ? 1500 : GRAINS;
	size_t which = nth % 4;
	struct call c = { .type = types[which],
		.size = (size_t)1 << which,
		.in_place = drawn(mine, 2) % 3 == 0 };

	c.count = (1 + drawn(at, 3) % most) * GRAIN / c.size;
	c.src = BESIDE + drawn(mine, 4) % 3 * c.size;
	c.dst = c.in_place ? c.src : BESIDE + drawn(mine, 5) % 3 * c.size;
	return c;
}

static uint64_t given(int rank, uint64_t nth, size_t i)
{
	return drawn((uint64_t)rank * 64 + nth, i);
}

static uint64_t summed(int n, uint64_t nth, size_t i)
{
	uint64_t sum = 0;

	for (int r = 0; r < n; r++)
		sum += given(r, nth, i);
	return sum;
}

/* What memory of a call holds: of `rank`, -1: of all. */
static void write_at(
	unsigned char *to, const struct call *c, size_t at, int rank, int n, uint64_t nth)
{
	memset(to, STAYS, MOST + 2 * BESIDE);
	for (size_t i = 0; i < c->count; i++) {
		uint64_t x = rank < 0 ? summed(n, nth, i) : given(rank, nth, i);

		memcpy(to + at + i * c->size, &x, c->size); /* little endian */
	}
}

static int holds(spmt_comm *comm, const void *at, const unsigned char *wanted, unsigned char *seen)
{
	REQUIRE_OK(spmt_copy_out(comm, seen, at, MOST + 2 * BESIDE));
	REQUIRE_EQ(memcmp(seen, wanted, MOST + 2 * BESIDE), 0);
	return 0;
}

/* local: two of these. */
static int calls_by(spmt_comm *comm, const struct wish *w, unsigned char *src[CALLS],
	unsigned char *dst[CALLS], unsigned char *local[2])
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	size_t all = MOST + 2 * BESIDE;

	for (uint64_t nth = 0; nth < CALLS; nth++) {
		struct call c = call_of(w->seed, nth, me);

		write_at(local[0], &c, c.src, me, n, nth);
		REQUIRE_OK(spmt_copy_in(comm, src[nth], local[0], all));
		memset(local[0], STAYS, all);
		REQUIRE_OK(spmt_copy_in(comm, dst[nth], local[0], all));
	}
	for (uint64_t nth = 0; nth < CALLS; nth++) {
		struct call c = call_of(w->seed, nth, me);

		if (drawn(w->seed + (uint64_t)me, nth) % 5 == 0)
			sleep_ms(1);
		REQUIRE_OK(spmt_all_reduce(comm, (c.in_place ? src : dst)[nth] + c.dst,
			src[nth] + c.src, c.count, c.type, SPMT_OP_SUM, NULL));
	}
	REQUIRE_OK(spmt_quiet(comm));
	for (uint64_t nth = 0; nth < CALLS; nth++) {
		struct call c = call_of(w->seed, nth, me);

		write_at(local[0], &c, c.dst, -1, n, nth);
		TRY(holds(comm, (c.in_place ? src : dst)[nth], local[0], local[1]));
		if (c.in_place)
			continue;
		write_at(local[0], &c, c.src, me, n, nth);
		TRY(holds(comm, src[nth], local[0], local[1]));
	}
	return 0;
}

static int calls(spmt_comm *comm, void *arg)
{
	unsigned char *src[CALLS], *dst[CALLS], *local[2];
	size_t all = MOST + 2 * BESIDE;
	int rc;

	for (int i = 0; i < CALLS; i++) {
		REQUIRE_OK(spmt_malloc(comm, all, (void **)&src[i]));
		REQUIRE_OK(spmt_malloc(comm, all, (void **)&dst[i]));
	}
	local[0] = malloc(2 * all);
	REQUIRE(local[0]);
	local[1] = local[0] + all;
	rc = calls_by(comm, arg, src, dst, local);
	free(local[0]);
	for (int i = 0; i < CALLS && !rc; i++) {
		REQUIRE_OK(spmt_free(comm, src[i]));
		REQUIRE_OK(spmt_free(comm, dst[i]));
	}
	return rc;
}

static void run_with(const spmt_plan *plan, const char *layout, uint64_t seed)
{
	struct wish w = { .p = { .layout = layout }, .seed = seed };
	char file[ROW_PLANS_NAME], text[2 * ROW_PLANS_NAME];

	cr_assert_eq(row_plans_file(plan, file), 0, "%s", spmt_last_error());
	snprintf(text, sizeof(text), "plan:%s,only", file);
	setenv("SPMT_COLL", text, 1);
	cr_assert_eq(processes_world(&w.p, calls, &w), 0, "seed %llu: %s", (unsigned long long)seed,
		ranks_message());
}

Test(packet_rows, any_size_anywhere)
{
	static const char *const layouts[] = { "0,1", "0,1,2", "0,1,2,3", "0|1" };
	uint64_t n = !on_host() ? 12 : SANITIZED ? 4 : 12;

	for (uint64_t seed = 0; seed < n; seed++) {
		spmt_plan *plan = NULL;

		cr_assert_eq(
			row_plans_packets(seed, seed % 4 == 3 ? 2 : 2 + (int)(seed % 4), &plan), 0,
			"%s", spmt_last_error());
		run_with(plan, layouts[seed % 4], seed);
		spmt_plan_destroy(plan);
	}
}

/* ---- one that is in place alone ------------------------------------------------------------------ */

static void folds_all(spmt_plan *plan, int rank, int nranks, int block, int blocks)
{
	struct spmt_plan_op op = { .size = sizeof(op),
		.kind = SPMT_PLAN_PUT_PACKETS,
		.slice = blocks > 1 ? block : 0,
		.slices = blocks > 1 ? blocks : 0,
		.nsrc = 1,
		.ndst = 1 };

	op.src[0] = spmt_plan_input(rank, 0, 2);
	for (int i = 1; i < nranks; i++) {
		op.dst[0] = spmt_plan_scratch((rank + i) % nranks, 2 * (uint32_t)rank, 2);
		cr_assert_eq(spmt_plan_add(plan, rank, block, &op), 0, "%s", spmt_last_error());
	}
	op.kind = SPMT_PLAN_REDUCE_PACKETS;
	op.dst[0] = op.src[0];
	for (; op.nsrc < nranks; op.nsrc++)
		op.src[op.nsrc] =
			spmt_plan_scratch(rank, 2 * (uint32_t)((rank + op.nsrc) % nranks), 2);
	cr_assert_eq(spmt_plan_add(plan, rank, block, &op), 0, "%s", spmt_last_error());
}

/* Its sums are where its input is: of a call that is not in place that is copied to dst first. Two chunks at once. */
Test(packet_rows, copied_first)
{
	for (int nranks = 2; nranks <= 3; nranks++)
		for (int blocks = 1; blocks <= 3; blocks += 2) {
			struct spmt_plan_attr attr = { .size = sizeof(attr),
				.name = "here",
				.collective = "allreduce",
				.nranks = nranks,
				.in_place = 1,
				.input_chunks = 2,
				.output_chunks = 2,
				.scratch_chunks = 2 * (uint32_t)nranks };
			spmt_plan *plan = NULL;

			cr_assert_eq(spmt_plan_create(&attr, &plan), 0, "%s", spmt_last_error());
			for (int r = 0; r < nranks; r++)
				for (int b = 0; b < blocks; b++)
					folds_all(plan, r, nranks, b, blocks);
			run_with(plan, nranks == 2 ? "0,1" : "0,1,2", 30 + (uint64_t)blocks);
			spmt_plan_destroy(plan);
		}
}
