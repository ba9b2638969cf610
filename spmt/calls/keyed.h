/* SPDX-License-Identifier: MIT */
/* Calls on lanes: comms that meet by key (spmt/lane/lane.h). Any thread may make them while another ends the lane, which waits until they
   have left: each begins and ends with one of the two pairs below, and what else is here is called in between. */
#ifndef SPMT_KEYED_H
#define SPMT_KEYED_H

#include "spmt/comm/comm.h"
#include "spmt/lane/caller.h"
#include "src/kernels/kernels.h"

/* As comm_enter, of the calls that lanes have. 0: comm_left_lane follows. */
int comm_enter_lane_slowly(spmt_comm *comm, const char *what);
static inline int comm_enter_lane(spmt_comm *comm, const char *what)
{
	return comm_quick(comm) ? 0 : comm_enter_lane_slowly(comm, what);
}
void comm_left_lane(spmt_comm *comm);
/* Behind comm_begin_lane. */
static inline void comm_end_lane(spmt_comm *comm)
{
	if (comm->lane)
		comm_left(comm);
	else
		comm_unclaim(comm);
}

/* A lane whose ranks meet on the host; others' do in kernels, as on any comm. */
static inline bool comm_is_keyed(const spmt_comm *comm)
{
	return comm->lane && !comm->lane_area;
}

/* Queues it. args: all but the view. */
int keyed_collective(spmt_comm *comm, const char *what, const struct kernel_collective_args *args,
	spmt_stream stream);
int keyed_barrier(spmt_comm *comm, const char *what, spmt_stream stream);
/* fn behind what the stream and the lane hold. */
int keyed_call(spmt_comm *comm, const char *what, spmt_stream stream,
	void (*fn)(void *arg, int code), void *arg);
/* Waits for what this rank has queued, also on a broken lane; returns the first failure since the last time. */
int keyed_settle(spmt_comm *comm, const char *what);
/* The same, and a lane that is broken fails. */
int keyed_quiet(spmt_comm *comm, const char *what);
/* -EINVAL: not all ranks' kernels reach these bytes of this rank. */
int keyed_range(
	const spmt_comm *comm, const char *what, const char *name, const void *at, uint64_t bytes);
/* Waits until all ranks have called it. */
int keyed_meet(spmt_comm *comm, const char *what);
/* Until the block ends: serialises calls on a lane whose ranks meet in kernels, which may come from any thread. Else a no-op. */
#define LANE_HOLD(comm) \
	__attribute__((cleanup(keyed_let_go), unused)) spmt_comm *lane_held = keyed_hold(comm)
spmt_comm *keyed_hold(spmt_comm *comm);
/* The same on a lane whose ranks meet on the host, too. */
#define LANE_HOLD_ANY(comm) \
	__attribute__((cleanup(keyed_let_go), unused)) spmt_comm *lane_held = keyed_hold_any(comm)
spmt_comm *keyed_hold_any(spmt_comm *comm);
void keyed_let_go(spmt_comm **held);

/* The thread for functions of this rank's users, made by the first who needs it. */
int comm_caller(const spmt_comm *comm, struct caller **caller);
/* -EBUSY: the calling thread is that one: it would wait for itself. */
int comm_not_inside(const spmt_comm *comm, const char *what);

#endif
