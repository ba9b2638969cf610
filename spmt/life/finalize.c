/* SPDX-License-Identifier: MIT */
/* The teardown, written once: of a comm, however far it got, and of those split from it. */
#include "finalize.h"

#include "claim.h"
#include "complete.h"
#include "lane.h"
#include "peer.h"
#include "split.h"
#include "spmt/calls/keyed.h"
#include "spmt/calls/misuse.h"
#include "spmt/calls/register.h"
#include "spmt/calls/sync.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/record.h"
#include "spmt/comm/stream.h"
#include "spmt/control/exclusive.h"
#include "spmt/control/trace.h"
#include "spmt/plan/rows/row.h"
#include "spmt/plan/run.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

/* Closes comm to calls and waits until nobody is in one. */
static void comm_close(spmt_comm *comm)
{
	atomic_store_explicit(&comm->head.state, OBJECT_BUSY, memory_order_release);
	if (comm->lane)
		lane_settle(comm);
	comm_unvisited(comm);
	if (comm->lane)
		return;
	if (comm->control)
		comm_inherit(comm); /* else those who shrink it would wait for this rank */
	if (comm->control && atomic_load(&comm->control->stop))
		control_leave(comm->control, comm->rank);
	mem_free(comm->survivors);
	comm->survivors = NULL;
}

/* Unmaps everything of its peers. */
static void comm_unmap(spmt_comm *comm)
{
	mems_drop(comm);
	peers_unlink(comm);
}

static void comm_release(spmt_comm *comm)
{
	if (comm->lane) {
		lane_release(comm);
		return;
	}
	meet_close(comm); /* while what a break touches is there */
	comm_unmap(comm);
	streams_drop(comm);
	plan_rows_close(comm);
	plan_opens_drop(comm);
	if (comm->stream)
		comm->backend->stream_destroy(comm->dev, comm->stream);
	world_comm_unlist(comm);
	pinned_return(comm);
	if (comm->parent)
		split_leave(comm);
	else
		world_leave(comm);
}

/* ---- a comm and those split from it, which end with it ------------------------------------------ */

/* False: some work goes on. A kernel in one comm's stream may use another's view, so all comms
   stay or none does. */
static bool tree_close(spmt_comm *root)
{
	int64_t deadline = streams_deadline(root);
	bool settled;

	comm_close(root); /* first: from then on it gets no more lanes */
	for (spmt_comm *c = comm_tree_first(root); c != root; c = comm_tree_next(c))
		comm_close(c);
	settled = streams_settle(root, deadline);
	for (spmt_comm *c = comm_tree_first(root); c != root; c = comm_tree_next(c))
		settled &= streams_settle(c, deadline);
	for (spmt_comm *c = comm_tree_first(root); c != root; c = comm_tree_next(c))
		completions_end(c);
	completions_end(root);
	if (!root->parent && root->slot) {
		caller_close(root->slot->caller);
		root->slot->caller = NULL;
	}
	return settled;
}

static bool tree_ended(spmt_comm *root)
{
	bool ended = streams_ended(root);

	for (spmt_comm *c = comm_tree_first(root); c != root; c = comm_tree_next(c))
		ended &= streams_ended(c);
	return ended;
}

static void parts_release(spmt_comm *root)
{
	spmt_comm *next;

	for (spmt_comm *c = comm_tree_first(root); c != root; c = next) {
		next = comm_tree_next(c);
		comm_release(c);
	}
}

static void tree_release(spmt_comm *root)
{
	parts_release(root);
	comm_release(root);
}

/* Runs on the thread of the last stream that ends. */
static void tree_left(void *arg)
{
	spmt_comm *root = arg;

	if (atomic_fetch_sub(&root->going, 1) == 1)
		tree_release(root);
}

static void tree_leave_one(spmt_comm *comm, spmt_comm *root)
{
	if (!comm->streamed)
		return;
	atomic_fetch_add(&root->going, 1);
	streams_hand_over(comm, tree_left, root); /* if that fails all of it stays */
}

static void tree_hand_over(spmt_comm *root)
{
	atomic_store(&root->going, 1);
	for (spmt_comm *c = comm_tree_first(root); c != root; c = comm_tree_next(c))
		tree_leave_one(c, root);
	tree_leave_one(root, root);
	tree_left(root);
}

/* Looks at the deferred comms again, whenever a rank comes or goes. */
void comms_release(void)
{
	spmt_comm *comm = world_deferred(), *next;
	KEEPS_SENTENCE;

	if (LIKELY(!comm))
		return;
	for (; comm; comm = next) {
		next = comm->sibling;
		if (tree_ended(comm))
			tree_release(comm);
		else
			world_defer(comm);
	}
}

/* What a running kernel may touch stays until it has ended: the whole world, as its ranks leave one by one;
   or, for a part, whose world stands, what is released with that world. */
void comm_destroy(spmt_comm *comm)
{
	KEEPS_SENTENCE;

	if (!comm)
		return;
	comms_release();
	if (tree_close(comm))
		tree_release(comm);
	else if (comm->lane)
		lane_leave(comm);
	else if (!comm->parent && comm_cpu_access(comm))
		tree_hand_over(comm);
	else if (!comm->parent)
		world_defer(comm);
	else
		claim_drop(comm);
}

/* A failure that broke a split comm is not a failure of its parent. One that is closed has ended before, but for work of the user's. */
static int quiet_one(spmt_comm *comm)
{
	if (comm->lane) { /* its own calls tell */
		KEEPS_SENTENCE;
		keyed_settle(comm, "spmt_finalize");
		return 0;
	}
	if (!object_is_open(&comm->head) || atomic_load(&comm->control->stop))
		return 0;
	return quiet_all(comm, "spmt_finalize");
}

/* The first failure. */
static int tree_quiet(spmt_comm *root)
{
	struct first_failure first;

	first.rc = 0;
	failure_note(&first, quiet_one(root));
	for (spmt_comm *c = comm_tree_first(root); c != root; c = comm_tree_next(c))
		failure_note(&first, quiet_one(c));
	return failure_tell(&first);
}

/* If others wait for this rank in another call, that call names who is missing: the same deadline
   ends it first. */
static void finalize_deadline(spmt_comm *comm)
{
	int64_t ms = comm_timeout(comm);

	if (ms >= 0)
		atomic_store(&comm->timeout_ms, MIN_OF(ms + 50, TIMEOUT_MOST));
}

/* Calls on lanes may come at once. */
static int end_alone(spmt_comm *comm, struct object **exclusive)
{
	const char *other;

	if (comm->lane)
		return 0;
	comm_look(comm);
	comm_inherit(comm);
	*exclusive = exclusive_begin(&comm->head, comm_ending);
	other = exclusive_other(&comm->head);
	return other && !comm_is_broken(comm) ? comm_busy(comm, comm_ending, other) : 0;
}

/* Until it is claimed another thread may end it. */
static int end_begin(spmt_comm *comm, struct object **exclusive)
{
	int rc = comm_visit(comm, comm_ending);

	if (rc)
		return rc;
	rc = comm_not_inside(comm, comm_ending);
	if (!rc)
		rc = end_alone(comm, exclusive);
	if (!rc)
		rc = claim_tree(comm, comm_ending);
	if (rc)
		exclusive_end(exclusive);
	comm_left(comm);
	return rc;
}

/* Memory that another process has mapped is not given back under it. */
static int tree_detach(spmt_comm *root)
{
	if (tree_close(root)) {
		parts_release(root);
		comm_unmap(root);
	}
	return meet(root, &(struct meet_record){ .op = MEET_DETACHED });
}

int spmt_finalize(spmt_comm *comm)
{
	UNCANCELLED;
	struct meet_record record = { .op = MEET_FINALIZE };
	struct object *exclusive = NULL;
	int rc = end_begin(comm, &exclusive);
	struct status_saved what;
	bool broken;
	int found = 0;

	if (rc)
		return rc;
	if (comm->lane) {
		rc = keyed_settle(comm, comm_ending);
		comm_destroy(comm);
		return rc;
	}
	broken = comm_is_broken(comm);
	record.status = tree_quiet(comm);
	if (!broken) {
		finalize_deadline(comm);
		rc = meet(comm, &record);
		/* Somebody is in another call: what the others do next would wait for a rank that
		   is gone. */
		if (rc)
			comm_break_last(comm, rc);
	}
	if (!broken && !rc && comm_checked(comm))
		found = misuse_left(comm);
	if (found)
		status_save(&what);
	exclusive_end(&exclusive);
	if (!comm->parent)
		world_unpublish(comm);
	if (!broken && !rc && comm_spans_processes(comm))
		rc = tree_detach(comm);
	comm_destroy(comm);
	trace_flush();
	if (rc || !found)
		return rc;
	status_restore(&what);
	return found;
}
