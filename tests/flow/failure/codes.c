/* SPDX-License-Identifier: MIT */
/* What calls on a broken comm return: after an abort its code, and as soon as a call has told that the comm broke. */
#include <criterion/criterion.h>

#include "tests/lib/processes.h"

enum { RANKS = 4, KEY = 3, ROUNDS = 30 };

/* ---- an abort with a code that other breaks keep for the call that failed ------------------------------------------- */

static int aborted(spmt_comm *world, void *arg)
{
	const int *code = arg;
	spmt_comm *half, *lane, *lane_of_half;
	int rank = spmt_rank(world);

	REQUIRE_OK(spmt_split(world, rank % 2, rank, &half));
	REQUIRE_OK(spmt_lane(world, KEY, &lane));
	REQUIRE_OK(spmt_lane(half, KEY, &lane_of_half));
	REQUIRE_OK(spmt_barrier(world));
	if (rank == 1)
		REQUIRE_OK(spmt_abort(world, *code));
	REQUIRE_CODE(spmt_barrier(world), *code);
	for (int again = 0; again < 2; again++) {
		REQUIRE_CODE(spmt_barrier(world), *code);
		REQUIRE_CODE(spmt_barrier(half), *code);
		REQUIRE_CODE(spmt_quiet(lane), *code);
		REQUIRE_CODE(spmt_quiet(lane_of_half), *code);
	}
	REQUIRE_CODE(spmt_status(world), *code);
	REQUIRE_CODE(spmt_status(half), *code);
	return 0;
}

Test(codes, of_an_abort)
{
	static const int codes[] = { SPMT_ERR_TIMEOUT, SPMT_ERR_MISMATCH, -77 };
	static const char *const layouts[] = { "0,1,2,3", "0,1|2,3" };

	for (size_t l = 0; l < 2; l++) {
		struct processes p = { .layout = layouts[l] };

		NEEDS_LAYOUT(p.layout);
		for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
			int code = codes[i];

			RANKS_OK(processes_world(&p, aborted, &code));
		}
	}
}

/* ---- a rank that finalizes while the others meet ---------------------------------------------------------------------- */

static struct processes world;

static int leaves_others(int rank, void *arg)
{
	struct spmt_attr attr = ranks_attr(rank, RANKS, &world.uid[0]);
	spmt_comm *comm;

	(void)arg;
	REQUIRE_OK(spmt_init(&attr, &comm));
	if (rank == RANKS - 1) {
		REQUIRE_CODE(spmt_finalize(comm), SPMT_ERR_MISMATCH);
		return 0;
	}
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_MISMATCH);
	REQUIRE(spmt_status(comm) < 0);
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_BROKEN);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

Test(codes, behind_a_rank_that_has_left)
{
	static const char *const layouts[] = { "0,1,2,3", "0,1|2,3", "0|1|2|3" };

	for (int i = 0; i < ROUNDS; i++) {
		world = (struct processes){ .layout = layouts[i % 3] };
		NEEDS_LAYOUT(world.layout);
		RANKS_OK(processes_run(&world, leaves_others, NULL));
	}
}
