/* SPDX-License-Identifier: MIT */
/* What becomes of a rank's memory with the last rank of its process to leave, over a host backend that counts. */
#include <criterion/criterion.h>
#include <errno.h>

#include "spmt/comm/comm.h"
#include "spmt/comm/world.h"
#include "tests/unit/bootstrap/party.h"

static int freed, retired;

static int count_free(int dev, void *ptr)
{
	freed++;
	return backend_host.free(dev, ptr);
}

static int count_retire(int dev, void *ptr)
{
	retired++;
	return backend_host.retire(dev, ptr);
}

/* A world of two with rank 0 here, its heap open and, if `exported`, named to the other's process; it breaks or not, and rank 0 leaves. */
static void leave_world(bool exported, bool breaks)
{
	struct backend counting = backend_host;
	struct heap_config config = { .backend = &counting, .size = 2u << 20 };
	struct slot *slot;
	spmt_comm *comm;
	struct uid uid;

	counting.free = count_free;
	counting.retire = count_retire;
	freed = retired = 0;
	uid_make(&uid);
	cr_assert_eq(counting.load(), 0);
	cr_assert_eq(world_join(&uid, 0, 2, &comm), 0, "%s", status_sentence());
	cr_assert_eq(counting.open(0), 0);
	slot = comm->slot;
	slot->backend = &counting;
	cr_assert_eq(heap_open(&config, &slot->heap), 0, "%s", status_sentence());
	if (exported)
		cr_assert_eq(heap_export_update(&slot->heap, &slot->export), 0);
	if (breaks)
		world_break(comm->world, &(struct cause){ -EIO, 0, "on purpose" });
	world_comm_unlist(comm);
	world_leave(comm);
}

/* Of one that ended in order, or was never seen elsewhere, nobody has anything mapped. */
Test(world, memory_is_freed)
{
	for (int i = 0; i < 3; i++) {
		leave_world(i == 1, i == 2);
		cr_expect(
			freed == 1 && retired == 0, "%d: %d freed, %d retired", i, freed, retired);
	}
}

/* In a broken world nobody waits for those who have: no allocation may get it again. */
Test(world, memory_that_others_have_mapped_is_retired)
{
	leave_world(true, true);
	cr_expect(freed == 0 && retired == 1, "%d freed, %d retired", freed, retired);
}
