/* SPDX-License-Identifier: MIT */
#include "missing.h"

#include "spmt/comm/comm.h"
#include "spmt/comm/meet.h"
#include "src/base/process.h"

#define LATE_NS (100 * 1000000ll) /* before it is asked who has come */

bool missing_late(const spmt_comm *comm, int rank)
{
	return process_now() - atomic_load(&comm->control->rows[rank].since) < LATE_NS;
}

void missing_here(const spmt_comm *comm)
{
	for (int r = 0; r < comm->nranks; r++) {
		struct control_row *row = &comm->control->rows[r];

		if (!meet_is_near(comm, r))
			continue;
		if (atomic_load(&row->arrived) < comm->epoch)
			atomic_store(&row->missed, comm->epoch);
		else if (missing_late(comm, r))
			atomic_store(&row->late, comm->epoch);
	}
}

void missing_silent(const spmt_comm *comm, uint64_t epoch, int process)
{
	for (int r = 0; r < comm->nranks; r++)
		if (comm->world->process[comm_world_rank(comm, r)] == process)
			atomic_store(&comm->control->rows[r].silent, epoch);
}

enum meet_standing missing_standing(const spmt_comm *comm, int rank)
{
	const struct control_row *row = &comm->control->rows[rank];
	uint64_t epoch = comm->epoch;
	bool silent = atomic_load(&row->silent) == epoch;

	if (!meet_is_near(comm, rank) && atomic_load(&comm->control->shut) < epoch)
		return silent ? MEET_LEADS : MEET_UNKNOWN;
	if (atomic_load(&row->arrived) < epoch || atomic_load(&row->missed) == epoch)
		return MEET_MISSING;
	return silent ? MEET_SILENT : atomic_load(&row->late) == epoch ? MEET_LATE : MEET_COME;
}
