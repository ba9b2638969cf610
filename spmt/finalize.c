/* SPDX-License-Identifier: MIT */
/* The way back, written once: of a rank, however far it got. */
#include "../src/status.h"
#include "peer.h"
#include "steps.h"
#include "stream.h"

static void comm_release(void *arg)
{
	spmt_comm *comm = arg;

	mems_drop(comm);
	peers_unlink(comm);
	streams_drop(comm);
	if (comm->stream)
		comm->backend->stream_destroy(comm->dev, comm->stream);
	world_comm_unlist(comm);
	pinned_return(comm);
	world_leave(comm);
}

/* What a kernel that goes on may touch stays until it has ended: the whole world, as its ranks leave it
   one by one. */
void comm_destroy(spmt_comm *comm)
{
	struct status_saved saved;

	if (!comm)
		return;
	status_save(&saved);
	comm_unvisited(comm);
	if (streams_settle(comm) || !streams_hand_over(comm, comm_release))
		comm_release(comm);
	status_restore(&saved);
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
	struct meet_record record = { .op = MEET_FINALIZE };
	int rc = comm_enter_any(comm, "spmt_finalize");
	bool broken;

	if (rc)
		return rc;
	broken = atomic_load(&comm->control->stop);
	record.status = quiet_all(comm, "spmt_finalize");
	if (!broken) {
		finalize_deadline(comm);
		rc = meet(comm, &record);
		/* Somebody is elsewhere: what the others do next would wait for a rank that is
		   gone. */
		if (rc)
			comm_break(comm, rc, status_sentence());
	}
	world_unpublish(comm);
	comm_destroy(comm);
	return rc;
}
