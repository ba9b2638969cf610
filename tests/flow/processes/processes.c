/* SPDX-License-Identifier: MIT */
/* One program text over every layout of ranks in processes: the same results, to the last byte. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt_device.h"
#include "tests/lib/every_call.h"
#include "tests/lib/processes.h"

static int everything(spmt_comm *comm, void *arg)
{
	struct processes *p = arg;
	struct every_call b = {
		.layout = p->layout, .uid = &p->uid[processes_cycle()], .less = !host_access(comm)
	};

	TRY(every_call_places(comm, &b));
	return every_call_right(comm, &b);
}

static void same_results(const char *layout)
{
	struct processes p = { .layout = layout };

	NEEDS_LAYOUT(layout);
	RANKS_OK(processes_world(&p, everything, &p));
}

Test(processes, one_of_8)
{
	same_results("0,1,2,3,4,5,6,7");
}

Test(processes, two_of_4)
{
	same_results("0,1,2,3|4,5,6,7");
}

Test(processes, eight_of_1)
{
	same_results("0|1|2|3|4|5|6|7");
}

Test(processes, unequal)
{
	same_results("0|1,2,3|4,5,6,7");
}

Test(processes, permuted)
{
	same_results("0,2|1,3");
	same_results("6,1|0,7|5,2|4,3");
}

/* Halves register at once, what lies outside the heap included: none waits for a process that has no rank in it. */
static int halves(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm);

	(void)arg;
	for (int across = 0; across < 2; across++) {
		spmt_comm *part;

		REQUIRE_OK(spmt_split(comm, across ? me % 2 : me / 2, me, &part));
		for (int i = 0; i < 3; i++)
			TRY(every_call_registered(part, &(struct every_call){ .layout = NULL }));
		REQUIRE_OK(spmt_finalize(part));
	}
	return 0;
}

Test(processes, halves_register_at_once)
{
	static const char *const layouts[] = { "0,1|2,3", "0,2|1,3", "0|1,2,3", "0|1|2|3" };

	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
		struct processes p = { .layout = layouts[i] };

		if (processes_widest(layouts[i]) <= devices_here())
			RANKS_OK(processes_world(&p, halves, NULL));
	}
}

/* Two heaps of two processes have a distance that is not negative every other time. */
static int views(spmt_comm *comm, void *arg)
{
	struct spmt_route mine = { .size = sizeof(mine) }, other = { .size = sizeof(other) };
	struct spmt_view view = { .size = sizeof(view) };

	(void)arg;
	REQUIRE_OK(spmt_view_get(comm, &view));
	REQUIRE_OK(spmt_route(comm, spmt_rank(comm), &mine));
	REQUIRE_OK(spmt_route(comm, 1 - spmt_rank(comm), &other));
	REQUIRE(other.process != mine.process);
	REQUIRE_EQ(view.stride, 0);
	return 0;
}

Test(processes, kernels_compute_no_addresses_of_other_processes)
{
	struct processes p = { .layout = "0|1", .cycles = 8 };

	p.slack = (struct usage){ .fds = 0, .threads = 0, .maps = 4, .rss_kib = 8192 };
	NEEDS_RANGES();
	cr_assert_eq(setenv("SPMT_HEAP_MODE", "vmm", 1), 0);
	RANKS_OK(processes_world(&p, views, NULL));
}

/* ---- beside ------------------------------------------------------------------------------------------------------ */

static int two_jobs(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank % 4, 4, &p->uid[rank / 4]);
	struct every_call here = { .layout = "0,1|2,3", .uid = attr.uid };
	spmt_comm *comm;
	uint64_t *told;

	attr.device = -1;
	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*told), (void **)&told));
	TRY(every_call_same(comm, told, 1000 + (uint64_t)(rank / 4)));
	TRY(every_call_places(comm, &here));
	REQUIRE(!spmt_comm_by_rank(&p->uid[1 - rank / 4], rank % 4));
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

Test(processes, two_jobs_at_once)
{
	struct processes p = { .layout = "0,1|2,3|4,5|6,7" };

	NEEDS_LAYOUT(p.layout);
	RANKS_OK(processes_run(&p, two_jobs, &p));
}

static int short_life(spmt_comm *comm, void *arg)
{
	uint64_t *told;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*told), (void **)&told));
	return every_call_same(comm, told, 7);
}

Test(processes, worlds_leave_nothing)
{
	struct processes p = { .layout = "0,1|2,3", .cycles = 30 };

	NEEDS_LAYOUT(p.layout);
	p.slack = (struct usage){ .fds = 0, .threads = 0, .maps = 16, .rss_kib = 8192 };
	RANKS_OK(processes_world(&p, short_life, NULL));
}

/* The first rank of a process joins at once for all of them: those that come later are added, however many. What rank 3 knows
   when it gives up shows that rank 0 was there alone. */
static int one_by_one(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, 4, &p->uid[0]);
	spmt_comm *comm = NULL;
	uint64_t *told;

	/* in which rank 0 has come: its process may have a driver to start */
	attr.timeout_ms = rank != 3 ? 20000 : opening_s() ? 5000 : 1500;
	if (rank == 0 || rank == 3)
		REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_TIMEOUT);
	if (rank == 3)
		REQUIRE_SAYS("2 of 4 ranks missing");
	if (rank == 3)
		REQUIRE_SAYS(" s: 1, 2");
	attr = ranks_attr(rank, 4, &p->uid[1]);
	sleep_ms(rank == 3 ? 0 : 60 * rank);
	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*told), (void **)&told));
	TRY(every_call_same(comm, told, 12));
	ranks_watch(NULL);
	return spmt_finalize(comm);
}

Test(processes, ranks_come_one_by_one)
{
	struct processes p = { .layout = "0,1,2|3" };

	RANKS_OK(processes_run(&p, one_by_one, &p));
}
