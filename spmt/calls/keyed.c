/* SPDX-License-Identifier: MIT */
#include "keyed.h"

#include <errno.h>

#include "spmt/comm/broken.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/record.h"
#include "spmt/comm/stream.h"
#include "spmt/control/exclusive.h"
#include "spmt/control/trace.h"
#include "spmt/lane/lanes.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/host/host.h"
#include "sync.h"
#include "view.h"

#define KEYED_BARRIER UINT64_MAX /* no collective's key */

/* ---- the pairs --------------------------------------------------------------------------------- */

/* A lane stays visited: what was visited is a lane, or none, until it is left. */
int comm_enter_lane_slowly(spmt_comm *comm, const char *what)
{
	int rc = comm_visit(comm, what);

	if (rc)
		return rc;
	rc = comm_refuse_lane(comm, what);
	if (rc || !comm->lane)
		comm_left(comm);
	return rc;
}

void comm_left_lane(spmt_comm *comm)
{
	if (comm->lane)
		comm_left(comm);
}

int comm_caller(const spmt_comm *comm, struct caller **caller)
{
	struct slot *slot = comm->slot;
	int rc = 0;

	pthread_mutex_lock(&slot->lock);
	if (!slot->caller)
		rc = caller_open(&slot->caller, comm_world_rank(comm, comm->rank));
	*caller = slot->caller;
	pthread_mutex_unlock(&slot->lock);
	return rc;
}

int comm_not_inside(const spmt_comm *comm, const char *what)
{
	struct slot *slot = comm->slot;
	bool inside;

	pthread_mutex_lock(&slot->lock);
	inside = caller_is_me(slot->caller);
	pthread_mutex_unlock(&slot->lock);
	return inside
		? fail_call(-EBUSY, what,
			  "rank %d: a function that spmt_on_complete calls cannot end a comm of its rank",
			  comm->rank)
		: 0;
}

static int64_t timeout_ns(const spmt_comm *comm)
{
	int64_t ms = comm_timeout(comm);

	return ms < 0 ? -1 : ms * 1000000;
}

static int step_make(spmt_comm *comm, const char *what, struct step **out)
{
	struct step *step;
	int rc = lanes_clock(comm->lane->all);

	if (rc)
		return comm_failed(comm, what, rc);
	step = mem_calloc(1, sizeof(*step));
	if (!step)
		return fail_call(-ENOMEM, what, "rank %d: out of memory to queue it", comm->rank);
	step->lane = comm->lane;
	step->rank = comm->rank;
	step->what = what;
	step->timeout_ns = timeout_ns(comm);
	*out = step;
	return 0;
}

/* On the stream's thread, which waits. */
static void keyed_reach(void *arg)
{
	struct cause cause;
	int code = lane_reach(arg, &cause);

	if (code)
		host_stream_blame(code, cause.sentence);
}

/* The stream is told first: from then on nothing can fail. */
static int step_into_stream(spmt_comm *comm, struct step *step, spmt_stream stream)
{
	int rc;

	lanes_hold(step->lane);
	rc = comm->backend->call(comm->dev, stream, keyed_reach, step);
	if (!rc) {
		lane_queue(step);
		return 0;
	}
	lanes_release(step->lane);
	mem_free(step);
	return rc;
}

/* The lane holds steps in the stream's order: else the stream would wait in a step queued behind another that it reaches only later. */
static int step_queue(spmt_comm *comm, struct step *step, spmt_stream stream)
{
	pthread_mutex_t *calls = &step->lane->sides[step->rank].calls;
	const char *what = step->what;
	int rc;

	if (object_is_traced(&comm->head))
		trace_stream(stream ? stream : TRACE_OWN);
	if (!stream) {
		lane_queue(step);
		return 0;
	}
	step->streamed = true;
	pthread_mutex_lock(calls);
	rc = step_into_stream(comm, step, stream);
	pthread_mutex_unlock(calls);
	return rc ? comm_failed(comm, what, rc) : 0;
}

int keyed_collective(spmt_comm *comm, const char *what, const struct kernel_collective_args *args,
	spmt_stream stream)
{
	struct step *step = NULL;
	int rc = step_make(comm, what, &step);

	if (rc)
		return rc;
	step->args = *args;
	return step_queue(comm, step, stream);
}

int keyed_barrier(spmt_comm *comm, const char *what, spmt_stream stream)
{
	const struct kernel_collective_args none = { .key = KEYED_BARRIER };

	return keyed_collective(comm, what, &none, stream);
}

int keyed_call(spmt_comm *comm, const char *what, spmt_stream stream,
	void (*fn)(void *arg, int code), void *arg)
{
	struct caller *caller;
	struct step *step = NULL;
	int rc = comm_caller(comm, &caller);

	if (rc)
		return comm_failed(comm, what, rc);
	rc = step_make(comm, what, &step);
	if (rc)
		return rc;
	step->fn = fn;
	step->arg = arg;
	step->caller = caller;
	return step_queue(comm, step, stream);
}

#define GRACE_NS 400000000ll

static int steps_settle(spmt_comm *comm, const char *what)
{
	int64_t ns = timeout_ns(comm), more;
	int rc = lane_drain(comm->lane, comm->rank, ns);
	struct cause cause;

	if (rc == -ETIMEDOUT) { /* the clock may be late; functions that hear of it take a moment */
		lane_expire(comm->lane, process_now());
		more = ns / 8 + GRACE_NS;
		rc = lane_drain(comm->lane, comm->rank, more);
		ns += more;
	}
	if (rc == -ETIMEDOUT)
		return fail_call(SPMT_ERR_TIMEOUT, what,
			"rank %d: what is queued on lane %llu is not done after %.*f s", comm->rank,
			(unsigned long long)comm->lane->key, SECONDS((double)ns / 1e9));
	if (!lane_failure(comm->lane, comm->rank))
		return 0;
	comm_cause(comm, &cause);
	return fail_call(
		cause.code, what, "rank %d: the lane is broken: %s", comm->rank, cause.sentence);
}

/* ---- where its ranks meet in kernels ---------------------------------------------------------- */

spmt_comm *keyed_hold_any(spmt_comm *comm)
{
	if (!comm->lane)
		return NULL;
	pthread_mutex_lock(&comm->lane->sides[comm->rank].calls);
	return comm;
}

spmt_comm *keyed_hold(spmt_comm *comm)
{
	return LIKELY(!comm->lane_area) ? NULL : keyed_hold_any(comm);
}

void keyed_let_go(spmt_comm **held)
{
	if (*held)
		pthread_mutex_unlock(&(*held)->lane->sides[(*held)->rank].calls);
}

int keyed_range(
	const spmt_comm *comm, const char *what, const char *name, const void *at, uint64_t bytes)
{
	if (!comm_spans_processes(comm) ||
		(heap_offset(comm->heap, at) < comm->heap->size &&
			heap_holds(comm->heap, at, bytes)))
		return 0;
	return fail_call(-EINVAL, what,
		"rank %d: %s %p is not in the heap: ranks of other processes reach nothing else on a lane",
		comm->rank, name, at);
}

static int kernels_settle(spmt_comm *comm, const char *what)
{
	LANE_HOLD(comm);

	return quiet_all(comm, what);
}

static int kernels_meet(spmt_comm *comm, const char *what)
{
	LANE_HOLD(comm);
	HOLD_DEVICE(comm);
	struct kernel_barrier_args args = { .report = (uint64_t)(uintptr_t)kernel_report_of(
						    comm->signals_dev) };
	struct reserved reserved;
	int rc = stream_reserve_collective(comm, comm->stream, &reserved);

	view_fill(comm, &args.view);
	if (!rc)
		rc = kernel_queue_grid(comm, &kernel_barrier, &args, sizeof(args),
			kernel_grid_of(comm, 1, (uint64_t)comm->nranks), comm->stream);
	if (rc)
		return comm_failed(comm, what, rc);
	comm->collectives = true;
	stream_note(comm, &reserved);
	return quiet_all(comm, what);
}

int keyed_settle(spmt_comm *comm, const char *what)
{
	return comm->lane_area ? kernels_settle(comm, what) : steps_settle(comm, what);
}

/* A lane that another thread closes meanwhile has done what was called. */
static int steps_quiet(spmt_comm *comm, const char *what)
{
	int rc = steps_settle(comm, what);

	return !rc && comm_is_broken(comm) ? comm_refuse_lane(comm, what) : rc;
}

int keyed_quiet(spmt_comm *comm, const char *what)
{
	return comm->lane_area ? kernels_settle(comm, what) : steps_quiet(comm, what);
}

static int steps_meet(spmt_comm *comm, const char *what)
{
	int rc = keyed_barrier(comm, what, NULL);

	return rc ? rc : steps_quiet(comm, what);
}

int keyed_meet(spmt_comm *comm, const char *what)
{
	return comm->lane_area ? kernels_meet(comm, what) : steps_meet(comm, what);
}
