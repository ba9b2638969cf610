/* SPDX-License-Identifier: MIT */
/* Order and meeting from the host: fence, quiet, sync, barrier. */
#include <errno.h>

#include "../src/status.h"
#include "steps.h"
#include "stream.h"

/* The first failure of the two keeps its sentence. */
static int link_quiet(struct link *link)
{
	struct status_saved first;
	int small = link->small->quiet(link), large = 0;

	status_save(&first);
	if (link->large != link->small)
		large = link->large->quiet(link);
	link->pending = link_cut_short(small) || link_cut_short(large);
	if (!small)
		return large;
	status_restore(&first);
	return small;
}

int movers_quiet(spmt_comm *comm, const char *what)
{
	struct status_saved first;
	bool pending = false;
	int rc = 0;

	for (int pe = 0; comm->pending && pe < comm->nranks; pe++) {
		bool was = comm->links[pe].pending;
		int one = was ? link_quiet(&comm->links[pe]) : 0;

		pending |= comm->links[pe].pending;
		/* Its waits were told when the bytes were not there yet. */
		if (was && comm_cpu_access(comm))
			bell_stored(comm->bells[pe]);
		if (one && !rc) {
			rc = one;
			status_save(&first);
		}
	}
	comm->pending = pending;
	if (rc == -ECANCELED)
		return comm_broken(comm, what);
	if (rc)
		status_restore(&first);
	return rc;
}

int quiet_slow(spmt_comm *comm, const char *what)
{
	struct status_saved first;
	int rc = comm_failed(comm, what, movers_quiet(comm, what)), streams;

	if (!comm->streamed)
		return rc;
	status_save(&first);
	streams = comm_failed(comm, what, streams_quiet(comm, what));
	if (!rc)
		return streams;
	status_restore(&first);
	return rc;
}

int spmt_fence(spmt_comm *comm)
{
	TURN(comm, __func__);
	int rc = comm_enter(comm, "spmt_fence");

	for (int pe = 0; !rc && comm->pending && pe < comm->nranks; pe++) {
		struct link *link = &comm->links[pe];

		if (!link->pending)
			continue;
		rc = link->small->fence(link);
		if (!rc && link->large != link->small)
			rc = link->large->fence(link);
		if (rc == -ECANCELED)
			rc = comm_broken(comm, "spmt_fence");
	}
	/* Non-blocking calls may have gone to the comm's own stream. Other streams are the
	   user's to order. */
	if (!rc && comm->streamed_own)
		rc = stream_drain(comm, "spmt_fence");
	return comm_failed(comm, "spmt_fence", rc);
}

/* A broken world, too, gives buffers back. */
int spmt_quiet(spmt_comm *comm)
{
	TURN(comm, __func__);
	struct status_saved why;
	int rc = comm_enter(comm, "spmt_quiet");

	if (!rc)
		return quiet_all(comm, "spmt_quiet");
	status_save(&why);
	if (!comm_enter_any(comm, "spmt_quiet"))
		quiet_all(comm, "spmt_quiet");
	status_restore(&why);
	return rc;
}

int spmt_sync(spmt_comm *comm)
{
	TURN(comm, __func__);
	int rc = comm_begin(comm, "spmt_sync");

	if (rc)
		return rc;
	rc = meet(comm, &(struct meet_record){ .op = MEET_SYNC });
	comm_unclaim(comm);
	return rc;
}

int spmt_barrier(spmt_comm *comm)
{
	TURN(comm, __func__);
	struct meet_record record = { .op = MEET_BARRIER };
	int rc = comm_begin(comm, "spmt_barrier");

	if (rc)
		return rc;
	record.status = quiet_all(comm, "spmt_barrier");
	rc = meet(comm, &record);
	comm_unclaim(comm);
	return rc;
}
