/* SPDX-License-Identifier: MIT */
/*
 * A part of a comm as a comm of its own. Three meetings of the parent: who goes with whom; each has
 * its library area and the first of each group the control block of all; all have their links and can meet.
 */
#include "split.h"

#include <errno.h>
#include <string.h>

#include "finalize.h"
#include "lane.h"
#include "peer.h"
#include "spmt/collective/collective.h"
#include "spmt/collective/far.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/stream.h"
#include "spmt/comm/waits.h"
#include "spmt/control/exclusive.h"
#include "spmt/nodes/nodes.h"
#include "spmt/plan/rows/row.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/kernels/area.h"

#define NO_AREA UINT64_MAX /* 0 is an offset as any other */

/* ---- the tree of a rank's comms --------------------------------------------------------------- */

void tree_add(spmt_comm *comm)
{
	pthread_mutex_lock(&comm->slot->lock);
	comm->sibling = comm->parent->children;
	comm->parent->children = comm;
	pthread_mutex_unlock(&comm->slot->lock);
}

void tree_remove(spmt_comm *comm)
{
	spmt_comm **at = &comm->parent->children;

	pthread_mutex_lock(&comm->slot->lock);
	while (*at && *at != comm)
		at = &(*at)->sibling;
	if (*at)
		*at = comm->sibling;
	pthread_mutex_unlock(&comm->slot->lock);
}

/* How many ranks have the comm's control block: all that this one shares memory with. */
static uint32_t control_ranks(const spmt_comm *comm)
{
	uint32_t n = 0;

	for (int r = 0; r < comm->nranks; r++)
		n += meet_is_near(comm, r);
	return n;
}

/* Whether no other process can be meant by a control block. Ranks that came late make the world of one process a shared one. */
static bool control_is_ours(const struct world *w)
{
	int r = 1;

	while (r < w->nranks && world_process(w, r) == world_process(w, 0))
		r++;
	return r == w->nranks || atomic_load(&w->control) == w->local;
}

/* The block at that offset; one outside the room lies in memory only this process has. */
static struct control *control_named(const struct world *w, uint64_t offset, int nranks)
{
	struct control *world = atomic_load(&w->control);
	struct control *control = control_at(world, w->nranks, offset, nranks);

	if (control || !control_is_ours(w))
		return control;
	return (struct control *)((uintptr_t)world + offset);
}

static void control_drop(const struct world *w, struct control *control, int nranks)
{
	struct control *world = atomic_load(&w->control);

	if (control_at(world, w->nranks, control_offset(world, control), nranks))
		control_give(world, w->nranks, control, nranks);
	else
		mem_free(control);
}

void split_leave(spmt_comm *comm)
{
	struct control *control = comm->control;

	tree_remove(comm);
	if (!control || !atomic_load(&control->stop)) {
		heap_free_owned(comm->heap, comm->id);
		if (comm->area != NO_AREA && !comm->keeps_area)
			heap_own_free(comm->heap, comm->area);
	}
	if (control && atomic_fetch_add(&control->gone, 1) + 1 == control_ranks(comm)) {
		lane_forget(comm);
		control_drop(comm->world, control, comm->nranks);
	}
	mem_free(comm->world_ranks);
	world_comm_give(comm);
}

/* ---- who goes with whom ------------------------------------------------------------------------ */

struct group {
	int color;
	int n, rank; /* this rank's number in it */
	int *ranks;  /* of the parent, by number */
	int *keys;
	uint64_t *areas;
};

/* Sorts by key, then by the parent's rank. */
static void group_insert(struct group *group, int rank, int key)
{
	int at = group->n++;

	for (; at && group->keys[at - 1] > key; at--) {
		group->ranks[at] = group->ranks[at - 1];
		group->keys[at] = group->keys[at - 1];
	}
	group->ranks[at] = rank;
	group->keys[at] = key;
}

/* Reads what the others brought to the first meeting; this rank's own is known. */
static int group_make(const spmt_comm *parent, int color, int key, struct group *group)
{
	size_t n = (size_t)parent->nranks;

	group->ranks = mem_calloc(n, sizeof(*group->ranks));
	group->keys = mem_calloc(n, sizeof(*group->keys));
	group->areas = mem_calloc(n, sizeof(*group->areas));
	if (!group->ranks || !group->keys || !group->areas)
		return fail_call(-ENOMEM, "spmt_split",
			"rank %d: out of memory for a group of ranks", parent->rank);
	group->color = color;
	for (int r = 0; r < parent->nranks; r++) {
		if (r == parent->rank)
			group_insert(group, r, key);
		else if ((int)(int64_t)meet_payload(parent, r, 0) == color)
			group_insert(group, r, (int)(int64_t)meet_payload(parent, r, 1));
	}
	while (group->ranks[group->rank] != parent->rank)
		group->rank++;
	return 0;
}

static void group_drop(struct group *group)
{
	mem_free(group->ranks);
	mem_free(group->keys);
	mem_free(group->areas);
}

/* ---- the comm ---------------------------------------------------------------------------------- */

/* Equal on all ranks of the comm: made of the parent's id, its meetings so far, and the color. */
static uint64_t comm_id(const spmt_comm *parent, int color)
{
	const uint64_t odd = 0x9e3779b97f4a7c15u;
	uint64_t id = (parent->id ^ parent->epoch) * odd;

	id = (id ^ id >> 32 ^ (unsigned)color) * odd;
	id ^= id >> 29;
	return id && id != HEAP_LIBRARY ? id : 1;
}

static int part_begin(spmt_comm *parent, const struct group *group, spmt_comm **out)
{
	spmt_comm *comm = world_comm_take();

	if (!comm)
		return fail_call(
			-ENOMEM, "spmt_split", "rank %d: out of memory for a comm", parent->rank);
	comm->rank = group->rank;
	comm->nranks = group->n;
	comm->parent = parent;
	comm->world = parent->world;
	comm->slot = parent->slot;
	comm->heap = parent->heap;
	comm->backend = parent->backend;
	comm->dev = parent->dev;
	comm->units = parent->units;
	comm->area = NO_AREA;
	comm->coll_wanted = parent->coll_wanted;
	comm->slot_room = coll_room(comm, SPLIT_SLOTS);
	comm->id = comm_id(parent, group->color);
	comm->default_timeout_ms = parent->default_timeout_ms;
	atomic_store(&comm->timeout_ms, comm_timeout(parent));
	tree_add(comm);
	*out = comm;
	return 0;
}

static int world_ranks_make(spmt_comm *comm, const struct group *group)
{
	comm->world_ranks = mem_calloc((size_t)comm->nranks, sizeof(*comm->world_ranks));
	if (!comm->world_ranks)
		return fail_call(-ENOMEM, "spmt_split",
			"rank %d: out of memory for a list of %d ranks", comm->parent->rank,
			comm->nranks);
	for (int r = 0; r < comm->nranks; r++)
		comm->world_ranks[r] = comm_world_rank(comm->parent, group->ranks[r]);
	return 0;
}

/* Where plans of SPMT_COLL lie there, behind lanes. */
static uint64_t area_plans(spmt_comm *comm)
{
	uint64_t words = align_up(area_size(comm->nranks, comm->slot_room), CACHE_LINE);

	return align_up(words + lane_areas(comm, words), PLAN_ROWS_ALIGN);
}

static uint64_t area_words(spmt_comm *comm)
{
	uint64_t words = area_plans(comm) + align_up(plan_rows_size(comm), CACHE_LINE);

	return far_possible(comm) ? words + nodes_notes_room() + far_head(comm->nranks) : words;
}

/* Counters, an inbox a peer, slots; then the stage, where one is needed. */
static int area_make(spmt_comm *comm)
{
	bool staged = far_possible(comm);
	uint64_t area;
	int rc = heap_own_alloc(
		comm->heap, area_words(comm) + (staged ? 2 * SPLIT_STAGE : 0), &area);

	if (rc)
		return rc;
	comm->area = area;
	if (staged) {
		comm->stage_size = SPLIT_STAGE;
		comm->stage = comm->heap->base + area + area_words(comm);
	}
	return 0;
}

static int device_part(spmt_comm *comm)
{
	int rc = signals_open(comm);

	if (!rc && !comm_cpu_access(comm))
		rc = scratch_room(comm, 1);
	return rc ? rc : comm->backend->stream_create(comm->dev, &comm->stream);
}

/* Makes what needs no other rank. */
static int comm_make(spmt_comm *parent, const struct group *group, spmt_comm **comm)
{
	int rc = part_begin(parent, group, comm);

	if (!rc)
		rc = world_ranks_make(*comm, group);
	if (!rc)
		rc = plan_rows_split(*comm);
	if (!rc)
		rc = area_make(*comm);
	return rc ? rc : device_part(*comm);
}

/* The number of the rank that makes the control block which this rank is to have. */
static int control_maker(const spmt_comm *comm)
{
	int r = 0;

	while (!meet_is_near(comm, r))
		r++;
	return r;
}

/* The room is for what processes share; where there is but one, memory of its own is as good. */
static int control_make(const spmt_comm *comm, struct control **control)
{
	struct control *world = atomic_load(&comm->world->control);

	*control = control_take(world, comm->world->nranks, comm->nranks);
	if (!*control && control_is_ours(comm->world)) {
		*control = mem_aligned(CACHE_LINE, control_size(comm->nranks));
		if (*control)
			(*control)->nranks = (uint32_t)comm->nranks;
	}
	return *control
		? 0
		: fail_call(-ENOMEM, "spmt_split",
			  "rank %d: no room for another comm of %d ranks: too many are alive",
			  comm->parent->rank, comm->nranks);
}

/* ---- the meetings ------------------------------------------------------------------------------ */

/* Whether a rank's heap has room for an area there. */
static bool area_fits(spmt_comm *comm, int world_rank, uint64_t area)
{
	const struct rank_info *info = &comm->world->infos[world_rank];
	uint64_t end = info->own_base - info->heap_base + info->own_size;

	return area % CACHE_LINE == 0 && area <= end && area_words(comm) <= end - area;
}

/* Takes what the others have made: their areas, and the control block. */
static int split_take(spmt_comm *comm, const struct group *group)
{
	spmt_comm *parent = comm->parent;
	struct world *w = comm->world;

	for (int r = 0; r < group->n; r++) {
		group->areas[r] = meet_payload(parent, group->ranks[r], 0);
		if (!area_fits(comm, comm->world_ranks[r], group->areas[r]))
			return comm_spoiled(parent, "spmt_split");
	}
	comm->control = control_named(
		w, meet_payload(parent, group->ranks[control_maker(comm)], 1), comm->nranks);
	if (!comm->control)
		return comm_spoiled(parent, "spmt_split");
	waits_join(comm);
	world_comm_list(comm);
	return 0;
}

/* The second meeting: what each has made. The control block is passed as an offset. */
static int split_made(spmt_comm *parent, int color, int key, struct group *group, spmt_comm **comm)
{
	struct meet_record record = { .op = MEET_SPLIT_MADE };
	struct control *world = atomic_load(&parent->world->control), *control = NULL;
	int rc;

	if (color >= 0) {
		record.status = group_make(parent, color, key, group);
		if (!record.status)
			record.status = comm_make(parent, group, comm);
		if (!record.status && control_maker(*comm) == group->rank)
			record.status = control_make(*comm, &control);
		if (!record.status)
			record.payload[0] = (*comm)->area;
		if (control)
			record.payload[1] = control_offset(world, control);
	}
	record.status = comm_failed(parent, "spmt_split", record.status);
	rc = meet(parent, &record);
	if (rc && control)
		control_drop(parent->world, control, group->n);
	return rc || !*comm ? rc : split_take(*comm, group);
}

/* The third meeting: the links to all peers. Nothing that can fail follows it. */
static int split_linked(spmt_comm *parent, const struct group *group, spmt_comm *comm)
{
	struct meet_record record = { .op = MEET_SPLIT_LINKED };
	int rc;

	if (comm) {
		record.status = meet_open(comm);
		if (!record.status)
			record.status = comm->backend->fill(comm->dev,
				comm->heap->base + comm->area, 0, area_words(comm), comm->stream);
		if (!record.status)
			record.status = stream_drain(comm, "spmt_split");
		if (!record.status)
			record.status = peers_share(comm, group->areas, group->ranks);
		if (!record.status)
			record.status = plan_rows_open(
				comm, comm->heap->base + comm->area, area_plans(comm));
		if (!record.status)
			record.status = plan_rows_fit(comm);
		if (!record.status)
			record.status = lane_tables_open(comm);
		if (!record.status)
			peers_reach(comm, &record);
	}
	record.status = comm_failed(parent, "spmt_split", record.status);
	rc = meet(parent, &record);
	if (!rc && comm)
		peers_reached(comm, parent, group->ranks);
	return rc;
}

/* At once for who ends the tree: it finds both claimed, or neither. */
static void split_begins(spmt_comm *parent, spmt_comm *comm)
{
	pthread_mutex_t *lock = &parent->slot->lock;

	pthread_mutex_lock(lock);
	if (comm) {
		comm_set_live(comm);
		comm_unclaim(comm);
	}
	comm_unclaim(parent);
	pthread_mutex_unlock(lock);
}

int spmt_split(spmt_comm *parent, int color, int key, spmt_comm **out)
{
	UNCANCELLED;
	EXCLUSIVE(parent, __func__);
	struct meet_record record = { .op = MEET_SPLIT,
		.payload = { (uint64_t)(int64_t)color, (uint64_t)(int64_t)key } };
	struct group group = { .n = 0 };
	spmt_comm *comm = NULL;
	int rc = comm_begin(parent, "spmt_split");

	if (rc)
		return rc;
	if (!out)
		record.status =
			fail_call(-EINVAL, "spmt_split", "rank %d: part is NULL", parent->rank);
	rc = meet(parent, &record);
	if (!rc)
		rc = split_made(parent, color, key, &group, &comm);
	if (!rc)
		rc = split_linked(parent, &group, comm);
	group_drop(&group);
	if (rc)
		comm_destroy(comm);
	else
		*out = comm;
	split_begins(parent, rc ? NULL : comm);
	return rc;
}
