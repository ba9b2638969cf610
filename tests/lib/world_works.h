/* SPDX-License-Identifier: MIT */
/* Worlds that are seen to work. */
#ifndef TESTS_WORLD_WORKS_H
#define TESTS_WORLD_WORKS_H

#include "ranks.h"

/* Every rank adds its number to rank 0's sum, and all see the same. */
static inline int world_works(spmt_comm *comm)
{
	int n = spmt_nranks(comm);
	uint64_t mine = (uint64_t)spmt_rank(comm) + 1, total = 0;
	void *sum;

	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(uint64_t), &sum));
	REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, sum, &mine, NULL, NULL, 0));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_get(comm, &total, sum, sizeof(total), 0));
	REQUIRE_EQ(total, (uint64_t)n * ((uint64_t)n + 1) / 2);
	return spmt_free(comm, sum);
}

/* One world: init, a look at it, finalize. */
static inline int world_once(const struct spmt_attr *attr)
{
	spmt_comm *comm = NULL;
	int code;

	REQUIRE_OK(spmt_init(attr, &comm));
	ranks_watch(comm);
	code = world_works(comm);
	ranks_watch(NULL);
	if (code)
		spmt_abort(comm, -ECANCELED);
	if (spmt_finalize(comm) && !code)
		return ranks_fail("spmt_finalize: %s", spmt_last_error());
	return code;
}

/* `times` worlds, in which each has the place that its program gave it. */
static inline int worlds_in_a_row(const struct spmt_attr *attr, int rank, int times)
{
	spmt_comm *comm;

	for (int i = 0; i < times; i++) {
		REQUIRE_OK(spmt_init(attr, &comm));
		REQUIRE_EQ(spmt_rank(comm), rank);
		REQUIRE_EQ(spmt_device(comm), rank);
		TRY(world_works(comm));
		REQUIRE_OK(spmt_finalize(comm));
	}
	return 0;
}

#endif
