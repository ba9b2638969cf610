/* SPDX-License-Identifier: MIT */
/* Lanes as comms: handles that their ranks make without each other. */
#include "lane.h"

#include <errno.h>

#include "split.h"
#include "spmt/calls/keyed.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/record.h"
#include "spmt/control/exclusive.h"
#include "spmt/lane/lanes.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

static spmt_comm *handle_make(spmt_comm *parent, struct comm_lane *lane)
{
	spmt_comm *comm = world_comm_take();

	if (!comm)
		return NULL;
	comm->rank = parent->rank;
	comm->nranks = parent->nranks;
	comm->parent = parent;
	comm->world = parent->world;
	comm->slot = parent->slot;
	comm->heap = parent->heap;
	comm->links = parent->links;
	comm->wake_counters = parent->wake_counters;
	comm->world_ranks = parent->world_ranks;
	comm->backend = parent->backend;
	comm->dev = parent->dev;
	comm->units = parent->units;
	comm->far = parent->far;
	comm->coll_wanted = -1;
	comm->id = parent->id;
	comm->default_timeout_ms = parent->default_timeout_ms;
	atomic_store(&comm->timeout_ms, comm_timeout(parent));
	comm->lane = lane;
	comm->control = lane->control;
	comm->raised = control_stop_word(lane->control);
	tree_add(comm);
	comm_set_live(comm);
	return comm;
}

/* Two threads that ask at once get the same. */
static spmt_comm *handle_get(spmt_comm *parent, struct lanes *all, uint64_t key)
{
	struct comm_lane *lane;
	spmt_comm *comm = NULL;

	lanes_lock(all);
	lane = lanes_find(all, parent->id, key, parent->nranks);
	if (lane) {
		comm = lanes_user(lane, parent->rank);
		if (!comm) {
			comm = handle_make(parent, lane);
			if (comm)
				lanes_enter(lane, parent->rank, comm);
			else
				lanes_drop(lane);
		}
	}
	lanes_unlock(all);
	return comm;
}

static int lane_check(spmt_comm *parent, spmt_comm **out, const char *what)
{
	if (parent->lane)
		return fail_call(-EINVAL, what,
			"rank %d: the comm is a lane, which has no lanes of its own", parent->rank);
	if (!out)
		return fail_call(-EINVAL, what, "rank %d: lane is NULL", parent->rank);
	if (comm_spans_processes(parent))
		return fail_call(SPMT_ERR_UNSUPPORTED, what,
			"rank %d: lanes are for ranks of one process", parent->rank);
	if (!comm_cpu_access(parent))
		return fail_call(SPMT_ERR_UNSUPPORTED, what, "rank %d: backend %s has no lanes yet",
			parent->rank, parent->backend->name);
	return comm_is_broken(parent) ? comm_enter(parent, what) : 0;
}

/* The parent may break before it knows of the lane. */
static void break_after(const spmt_comm *parent, struct comm_lane *lane)
{
	struct cause cause;

	if (!comm_is_broken(parent))
		return;
	comm_look(parent);
	comm_cause(parent, &cause);
	lanes_break(lane->all, parent->id, &cause);
}

int spmt_lane(spmt_comm *parent, uint64_t key, spmt_comm **out)
{
	UNCANCELLED;
	static const char what[] = "spmt_lane";
	TRACED(parent, what);
	struct lanes *all;
	spmt_comm *comm;
	int rc = comm_visit(parent, what);

	if (rc)
		return rc;
	rc = lane_check(parent, out, what);
	if (!rc) {
		all = lanes_of(&parent->world->lanes);
		comm = all ? handle_get(parent, all, key) : NULL;
		if (comm) {
			break_after(parent, comm->lane);
			*out = comm;
		} else {
			rc = fail_call(
				-ENOMEM, what, "rank %d: out of memory for a lane", parent->rank);
		}
	}
	comm_left(parent);
	return rc;
}

/* ---- the end --------------------------------------------------------------------------------- */

void lane_settle(spmt_comm *comm)
{
	struct comm_lane *lane = comm->lane;
	struct text text = { .used = 0 };
	struct cause cause;

	if (lane_drain(lane, comm->rank, 0)) {
		text_add(&text, "spmt_finalize: lane %llu: rank %d has ended it",
			(unsigned long long)lane->key, comm->rank);
		cause_set(&cause, SPMT_ERR_BROKEN, "spmt_finalize", text.bytes);
		lane_break(lane, &cause);
		lane_unstream(lane, comm->rank);
		lane_drain(lane, comm->rank, -1);
	}
}

void lane_release(spmt_comm *comm)
{
	tree_remove(comm);
	lanes_leave(comm->lane, comm->rank);
	mem_free(comm->ops);
	comm->ops = NULL;
	world_comm_give(comm);
}

int lane_finalize(spmt_comm *comm)
{
	struct status_saved saved;
	int rc = keyed_settle(comm, "spmt_finalize");

	status_save(&saved);
	comm_destroy(comm);
	return rc ? fail_again(rc, &saved) : 0;
}
