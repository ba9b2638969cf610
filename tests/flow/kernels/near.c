/* SPDX-License-Identifier: MIT */
/* Kernels compiled with SPMT_NEAR: they work where all ranks have addresses, and get no view where one has none. */
#define SPMT_NEAR
#include "spmt_device.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"

#define KERNELS "kernels that are C functions (those of the library are compiled so for GPUs)"

enum { RANKS = 4, ROUNDS = 50 };

struct args {
	struct spmt_view view;
	uint64_t *words; /* symmetric: a signal, one word by put, one by atomics */
	int *code;
};

static void meet(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int next = (v->pe + 1) % v->npes, rc = 0;

	for (uint64_t i = 1; i <= ROUNDS && !rc; i++) {
		uint64_t mine = i * 100 + (uint64_t)(unsigned)v->pe;

		spmtd_putmem_signal(
			v, a->words + 1, &mine, sizeof(mine), a->words, i, SPMT_SIGNAL_SET, next);
		spmtd_uint64_atomic_add(v, a->words + 2, i, next);
		rc = spmtd_signal_wait_until(v, a->words, SPMT_CMP_GE, i);
		if (!rc && a->words[1] / 100 < i)
			rc = -EIO; /* the signal came before its data */
		if (!rc)
			rc = spmtd_barrier(v);
	}
	*a->code = rc;
}

static bool all_far(void)
{
	const char *maps = getenv("SPMT_MAPS");

	return maps && strcmp(maps, "rdma") == 0;
}

static int near(spmt_comm *comm, void *arg)
{
	struct args a = { .view.size = sizeof(a.view) };
	int pe = spmt_rank(comm), code = -1;
	void *p;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 3 * sizeof(uint64_t), &p));
	memset(p, 0, 3 * sizeof(uint64_t));
	REQUIRE_OK(spmt_barrier(comm));
	if (all_far()) {
		REQUIRE_CODE(spmt_view_get(comm, &a.view), SPMT_ERR_UNSUPPORTED);
		REQUIRE_SAYS("by map rdma, which kernels compiled with SPMT_NEAR");
		return spmt_barrier(comm);
	}
	REQUIRE_OK(spmt_view_get(comm, &a.view));
	REQUIRE_EQ(a.view.size, sizeof(a.view));
	a.words = p;
	a.code = &code;
	REQUIRE_OK(spmt_host_launch(comm, NULL, meet, &a, sizeof(a)));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_EQ(code, 0);
	REQUIRE_EQ(a.words[1], ROUNDS * 100u + (unsigned)((pe + RANKS - 1) % RANKS));
	REQUIRE_EQ(a.words[2], ROUNDS * (ROUNDS + 1u) / 2);
	return spmt_barrier(comm);
}

Test(near, works_where_all_have_addresses_alone)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(RANKS, NULL, near, NULL));
}
