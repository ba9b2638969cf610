/* SPDX-License-Identifier: MIT */
/* What memory a plan has as a row of a comm, and for inputs of how many bytes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "row.h"
#include "row_fit.h"

#define ROW_ROOM (64u << 20)	/* bytes of a plan's scratch and a copy of its input; */
#define ROW_PACKETS (16u << 20) /* of one with packets, which large calls have not; */
#define ROW_SPLIT (256u << 10)	/* on a part of a world */
#define ROW_LEAST 1024u		/* inputs that have room there at least */
#define ROW_WORDS (1u << 20)	/* and of its counters, beside that */
#define ROW_LINE 128u

/* Some call may find its input where the plan must not have it. */
static bool row_wants_copy(const spmt_plan *plan, const struct coll_plan *p)
{
	if (p->either)
		return false;
	return !plan->attr.in_place || !strcmp(plan->collective, "reducescatter");
}

/* One whose least input has no room would never be taken. */
static int row_least(const spmt_plan *plan, uint64_t most, uint64_t room)
{
	if (plan->attr.min_bytes <= most)
		return 0;
	return fail_call(-EINVAL, "SPMT_COLL",
		"plan %s fits no call: min_message_size is %llu, and with scratch and copies %llu bytes of input have room in %llu KiB",
		plan->name, (unsigned long long)plan->attr.min_bytes, (unsigned long long)most,
		(unsigned long long)(room >> 10));
}

struct row_sets row_sets(const struct plan_layout *layout, bool two_of_scratch)
{
	uint64_t packets = align_up(layout->size - layout->packets, ROW_LINE);
	struct row_sets sets = { packets, 0, align_up(layout->packets + 2 * packets, ROW_LINE) };

	if (two_of_scratch) {
		sets.other_scratch = sets.end - layout->scratch;
		sets.end = align_up(sets.end + layout->packets - layout->scratch, ROW_LINE);
	}
	return sets;
}

/* What is beside its table, with one set of scratch or two. */
static uint64_t row_beside(const struct coll_plan *p, bool two_of_scratch)
{
	return row_sets(&p->open.layout, two_of_scratch).end - p->open.layout.words;
}

/* Where to begin: of a large call each rank's scratch may hold its part alone. A power of two. */
static uint64_t row_first(const spmt_comm *comm, const spmt_plan *plan, uint64_t room)
{
	uint64_t first = room;

	if (!comm->parent && !plan_has_packets(plan))
		while (first < room * (uint64_t)comm->nranks)
			first *= 2;
	return first;
}

/* The largest power of two below. */
static uint64_t row_next(uint64_t bytes)
{
	return 1ull << (63 - __builtin_clzll(bytes - 1));
}

static uint64_t row_rooms(const spmt_comm *comm, const spmt_plan *plan)
{
	return comm->parent ? ROW_SPLIT : plan_has_packets(plan) ? ROW_PACKETS : ROW_ROOM;
}

static bool row_has_room(uint64_t bytes, uint64_t room)
{
	return bytes <= room + MIN_OF(room, ROW_WORDS);
}

/* As large as fits the room; without scratch and copies, without end. */
static int row_room(spmt_comm *comm, const spmt_plan *plan, struct coll_plan *p)
{
	const struct spmt_plan_attr *a = &plan->attr;
	uint64_t room = row_rooms(comm, plan);
	bool copies = row_wants_copy(plan, p);
	int rc;

	p->most = a->max_bytes ? a->max_bytes : UINT64_MAX;
	if (!copies && !a->scratch_chunks)
		return plan_open_on(comm, plan, p->either, 0, &p->open);
	for (p->most = MIN_OF(p->most, row_first(comm, plan, room));; p->most = row_next(p->most)) {
		rc = plan_open_on(comm, plan, p->either, p->most, &p->open);
		if (rc || row_has_room(row_beside(p, false) + (copies ? p->most : 0), room))
			return rc ? rc : row_least(plan, p->most, room);
		if (p->most < 2 * ROW_LEAST)
			return fail_call(-EINVAL, "SPMT_COLL",
				"plan %s: %u chunks of scratch are too many for %llu KiB",
				plan->name, a->scratch_chunks, (unsigned long long)(room >> 10));
	}
}

/* Its memory begins at `size`; behind the plan's own is what copies of an input need. */
static void row_place(spmt_comm *comm, const spmt_plan *plan, struct coll_plan *p, uint64_t *size)
{
	uint64_t copies = row_wants_copy(plan, p) ? p->most : 0;
	bool two = p->open.layout.leads &&
		row_has_room(row_beside(p, true) + copies, row_rooms(comm, plan));

	p->sets = row_sets(&p->open.layout, two);
	p->at = *size;
	p->spare = p->at + p->sets.end;
	*size = align_up(p->spare + copies, ROW_LINE);
}

int row_make(spmt_comm *comm, const spmt_plan *plan, struct coll_plan *p, uint64_t *size)
{
	uint32_t blocks = coll_kinds[p->kind].src_blocks ? (uint32_t)comm->nranks : 1;
	int rc;

	p->writes = plan_row_writes_input(plan);
	rc = row_room(comm, plan, p);
	if (rc)
		return rc;
	snprintf(p->name, sizeof(p->name), "%s", plan->name);
	p->parts = plan_parts(&plan->attr) / blocks;
	row_place(comm, plan, p, size);
	p->table = plan_table(plan, &p->open.layout, comm->rank);
	if (!p->table)
		return fail_call(-ENOMEM, "SPMT_COLL", "no memory for plan %s", p->name);
	rc = row_packets_find(plan, &p->open.layout, p->table, comm->rank, &p->packets);
	return rc ? fail_call(rc, "SPMT_COLL", "no memory for plan %s", p->name) : 0;
}
