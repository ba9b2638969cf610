/* SPDX-License-Identifier: MIT */
/* The way back, written once: of a comm, however far it got, and of those split from it. */
#include "../src/mem.h"
#include "../src/process.h"
#include "../src/status.h"
#include "gather.h"
#include "misuse.h"
#include "peer.h"
#include "split.h"
#include "steps.h"
#include "stream.h"

/* Nobody is in a call on it any more. False: a user's kernel goes on in its streams. */
static bool comm_close(spmt_comm *comm)
{
	spmt_comm *child;

	while ((child = split_any(comm)))
		comm_destroy(child);
	atomic_store_explicit(&comm->head.state, POOLED_BUSY, memory_order_release);
	comm_unvisited(comm);
	if (comm->control && atomic_load(&comm->control->stop))
		control_leave(comm->control, comm->rank);
	mem_free(comm->survivors);
	comm->survivors = NULL;
	return streams_settle(comm);
}

/* Nothing of its peers' is mapped afterwards. */
static void comm_unmap(spmt_comm *comm)
{
	mems_drop(comm);
	peers_unlink(comm);
}

static void comm_release(void *arg)
{
	spmt_comm *comm = arg;

	comm_unmap(comm);
	streams_drop(comm);
	if (comm->stream)
		comm->backend->stream_destroy(comm->dev, comm->stream);
	world_comm_unlist(comm);
	pinned_return(comm);
	if (comm->parent)
		split_leave(comm);
	else
		world_leave(comm);
}

/* Those that linger are looked at again whenever a rank comes or goes. */
void comms_release(void)
{
	spmt_comm *comm = world_lingering(), *next;
	struct status_saved saved;

	if (LIKELY(!comm))
		return;
	status_save(&saved);
	for (; comm; comm = next) {
		next = comm->sibling;
		if (streams_ended(comm))
			comm_release(comm);
		else
			world_linger(comm);
	}
	status_restore(&saved);
}

/* What a kernel that goes on may touch stays until it has ended: the whole world, as its ranks leave it
   one by one. The host's comms of a split world end together, on this thread. */
void comm_destroy(spmt_comm *comm)
{
	struct status_saved saved;
	bool alone, settled;

	if (!comm)
		return;
	comms_release();
	alone = !comm->parent && !comm->children;
	status_save(&saved);
	settled = comm_close(comm);
	if (!settled && !comm->parent && !comm_cpu_access(comm))
		world_linger(comm);
	else if (settled || !alone || !streams_hand_over(comm, comm_release))
		comm_release(comm);
	status_restore(&saved);
}

/* Of the comm and those split from it, which end with it: the first failure. What broke one of those
   is not this comm's failure. */
static int quiet_tree(spmt_comm *comm)
{
	struct status_saved first;
	bool broken = atomic_load(&comm->control->stop);
	int rc = broken ? 0 : quiet_all(comm, "spmt_finalize"), one;

	for (spmt_comm *c = comm->children; c; c = c->sibling) {
		status_save(&first);
		one = quiet_tree(c);
		if (rc)
			status_restore(&first);
		else
			rc = one;
	}
	return rc;
}

/* Where others wait in another call for this rank, that call knows who is missing: the same deadline ends
   it first. */
static void finalize_deadline(spmt_comm *comm)
{
	int64_t ms = comm_timeout(comm);

	if (ms >= 0)
		atomic_store(&comm->timeout_ms, MIN_OF(ms + 50, TIMEOUT_MOST));
}

int spmt_finalize(spmt_comm *comm)
{
	UNCANCELLED;
	struct meet_record record = { .op = MEET_FINALIZE };
	int rc = comm_enter_any(comm, "spmt_finalize");
	struct status_saved what;
	spmt_comm *turn;
	const char *other;
	bool broken;
	int found = 0;

	if (rc)
		return rc;
	broken = atomic_load(&comm->control->stop);
	turn = turn_begin(comm, "spmt_finalize");
	other = atomic_load(&comm->inside);
	if (!other)
		other = turn_other(comm);
	if (other && !broken) {
		turn_end(&turn);
		return comm_busy(comm, "spmt_finalize", other);
	}
	record.status = quiet_tree(comm);
	if (!broken) {
		finalize_deadline(comm);
		rc = meet(comm, &record);
		/* Somebody is elsewhere: what the others do next would wait for a rank that is
		   gone. */
		if (rc)
			comm_break(comm, rc, status_sentence());
	}
	if (!broken && !rc && comm_checked(comm))
		found = misuse_left(comm);
	if (found)
		status_save(&what);
	turn_end(&turn);
	if (!comm->parent)
		world_unpublish(comm);
	if (!broken && !rc && gather_elsewhere(comm)) {
		/* Memory that another process has mapped is not given back under it. */
		comm_close(comm);
		comm_unmap(comm);
		rc = meet(comm, &(struct meet_record){ .op = MEET_DETACHED });
	}
	comm_destroy(comm);
	if (rc || !found)
		return rc;
	status_restore(&what);
	return found;
}
