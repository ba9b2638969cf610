/* SPDX-License-Identifier: MIT */
/* The barrier in a stream. */
#include "collective.h"
#include "far.h"
#include "spmt/calls/keyed.h"
#include "spmt/calls/rma.h"
#include "spmt/calls/sync.h"
#include "spmt/calls/view.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/record.h"
#include "spmt/control/exclusive.h"
#include "src/kernels/kernels.h"

/* One launch of a thread for each rank. */
static int barrier_queue(spmt_comm *comm, const char *what, device_stream stream)
{
	HOLD_DEVICE(comm);
	const struct far_call far = { .what = what, .size = 1, .key = FAR_BARRIER };
	struct kernel_barrier_args args;
	struct coll_in_stream in;
	int rc = coll_begin(comm, stream, &in);

	if (!rc && comm->far.map)
		rc = movers_quiet(comm, what);
	if (!rc)
		rc = stream_quiet(comm, what, &in.reserved);
	if (rc)
		return rc;
	if (comm->far.map) {
		in.stream = in.reserved.at.stream;
		rc = coll_far(comm, &far, &in);
		coll_end(comm, &in);
		return rc;
	}
	args.report = coll_report(comm);
	args.plan = 0;
	args.alone = coll_is_alone(comm, &kernel_barrier);
	/* A graph keeps this view: without queues if none were made yet. They are not made here, as a capture may refuse their copies;
	   and kernels that feed one have got a view first, before they are captured behind it. */
	view_fill(comm, &args.view);
	rc = kernel_queue_grid(comm, &kernel_barrier, &args, sizeof(args),
		kernel_grid_of(comm, 1, (uint64_t)comm->nranks), stream);
	in.queued = !rc;
	coll_end(comm, &in);
	return rc;
}

static int barrier_held(spmt_comm *comm, const char *what, spmt_stream stream)
{
	LANE_HOLD(comm);
	int rc = comm->stage ? 0 : view_whole(comm, what);

	if (!rc)
		rc = barrier_queue(comm, what, stream_of(comm, stream));
	return comm_failed(comm, what, rc);
}

int spmt_barrier_on_stream(spmt_comm *comm, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	static const char what[] = "spmt_barrier_on_stream";
	int rc = comm_begin_lane(comm, what);

	if (rc)
		return rc;
	rc = comm_is_keyed(comm) ? keyed_barrier(comm, what, stream)
				 : barrier_held(comm, what, stream);
	comm_end_lane(comm);
	return rc;
}
