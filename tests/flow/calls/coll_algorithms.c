/* SPDX-License-Identifier: MIT */
/* SPMT_COLL: each algorithm of the table is taken wherever it fits, with the results that all have. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "spmt_device.h"
#include "src/kernels/area.h"
#include "tests/lib/every_call.h"
#include "tests/lib/processes.h"

struct wish {
	struct processes p; /* first */
	int row;
};

/* Ranks that touch each other's buffers say when they are through with it; what comes by slots needs no such word. */
static int taken(spmt_comm *comm, int row, size_t count)
{
	static const int to[] = { 1, 2, 3, 0 };
	struct spmt_view view = { .size = sizeof(view) };
	const uint64_t *done;
	uint64_t *dst, *src;

	REQUIRE_OK(spmt_view_get(comm, &view));
	REQUIRE_OK(spmt_calloc(comm, 4 * count, sizeof(*dst), (void **)&dst));
	REQUIRE_OK(spmt_calloc(comm, 4 * count, sizeof(*src), (void **)&src));
	done = &area_inbox(&view, (view.pe + 1) % view.npes)->words.done;
	for (int kind = 0; kind < COLL_KINDS; kind++) {
		uint64_t before = *done;

		if (!(coll_rows[row].kinds >> kind & 1))
			continue;
		REQUIRE_OK(every_call_collective(
			comm, (enum kernel_collective_kind)kind, dst, src, count, to));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_EQ(*done != before, coll_rows[row].way == COLL_AT_PEERS);
	}
	REQUIRE_OK(spmt_free(comm, src));
	return spmt_free(comm, dst);
}

static int as_wished(spmt_comm *comm, void *arg)
{
	struct wish *w = arg;
	struct every_call b = { .layout = w->p.layout,
		.uid = &w->p.uid[processes_cycle()],
		.less = !host_access(comm) };

	/* between processes some are none */
	if (host_access(comm) &&
		((coll_rows[w->row].way != COLL_BY_ENGINES && w->row != COLL_ROW_push2) ||
			!strchr(w->p.layout, '|'))) {
		TRY(taken(comm, w->row, 1));
		TRY(taken(comm, w->row, 500));
		if (w->row == COLL_ROW_ll12)
			TRY(taken(comm, w->row, COLL_LL12_MOST / 4 / sizeof(uint64_t)));
	}
	return every_call_right(comm, &b);
}

static void each_row(const char *layout)
{
	NEEDS_LAYOUT(layout);
	for (int row = 0; row < COLL_ROWS; row++) {
		struct wish w = { .p = { .layout = layout }, .row = row };

		setenv("SPMT_COLL", coll_rows[row].name, 1);
		RANKS_OK(processes_world(&w.p, as_wished, &w));
	}
}

Test(coll_algorithms, in_one_process)
{
	each_row("0,1,2,3");
}

Test(coll_algorithms, in_several)
{
	each_row("0|1,3|2");
}

static int refused(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, 2, &p->uid[0]);
	spmt_comm *comm;

	REQUIRE_CODE(spmt_init(&attr, &comm), -EINVAL);
	REQUIRE_SAYS(
		"SPMT_COLL=push is no algorithm of collectives; there are: ll12, ll, push2, twoshot, ");
	return 0;
}

Test(coll_algorithms, an_unknown_name)
{
	struct processes p = { .layout = "0,1" };

	setenv("SPMT_COLL", "push", 1);
	RANKS_OK(processes_run(&p, refused, &p));
}

static int differs(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, 2, &p->uid[0]);
	spmt_comm *comm;

	if (rank)
		setenv("SPMT_COLL", "direct", 1);
	REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("SPMT_COLL differs: rank 1 passed direct, rank 0 passed no algorithm");
	return 0;
}

Test(coll_algorithms, not_on_all_ranks)
{
	struct processes p = { .layout = "0|1" };

	RANKS_OK(processes_run(&p, differs, &p));
}
