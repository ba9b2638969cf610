/* SPDX-License-Identifier: MIT */
/* Entering a call, and the failures of those who may not. */
#include "comm.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "broken.h"
#include "record.h"
#include "spmt/control/exclusive.h"
#include "spmt/control/trace.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/status.h"

int comm_enter_any(const spmt_comm *comm, const char *what)
{
	if (!comm)
		return fail_call(-EINVAL, what, "comm is NULL");
	switch (atomic_load_explicit(&comm->head.state, memory_order_acquire)) {
	case OBJECT_LIVE:
	case OBJECT_CHECKED:
	case OBJECT_LANE:
	case OBJECT_LANE_CHECKED:
		return 0;
	case OBJECT_FREE:
	case OBJECT_BUSY:
		return fail_call(-EBADF, what, "comm %p is finalized", (const void *)comm);
	case 0:
		if (world_is_inherited())
			return fail_call(SPMT_ERR_FORKED, what,
				"the comm belongs to the process that this one was forked from");
		break;
	default:
		break;
	}
	return fail_call(-EBADF, what, "%p is no comm", (const void *)comm);
}

/* With SPMT_CHECK or SPMT_TRACE, comm_enter's quick check fails, and comm_refuse decides. */
void comm_set_live(spmt_comm *comm)
{
	bool closer = comm->heap->check || trace_is_on();
	uint32_t state = comm->lane ? OBJECT_LANE : OBJECT_LIVE;

	comm->head.looks = (struct object_looks){ .alone = comm->heap->check && !comm->lane,
		.trace = trace_is_on(),
		.rank = comm_world_rank(comm, comm->rank),
		.of = comm->rank,
		.nranks = comm->nranks };
	if (closer)
		state = comm->lane ? OBJECT_LANE_CHECKED : OBJECT_CHECKED;
	atomic_store_explicit(&comm->head.state, state, memory_order_release);
}

/* Counts first and then checks; comm_unvisited does the reverse. Never writes to what is not a comm. */
int comm_visit(spmt_comm *comm, const char *what)
{
	int rc = comm_enter_any(comm, what);

	if (rc)
		return rc;
	atomic_fetch_add(&comm->head.visitors, 1);
	rc = comm_enter_any(comm, what);
	if (rc)
		comm_left(comm);
	return rc;
}

void comm_unvisited(spmt_comm *comm)
{
	while (object_is_visited(&comm->head))
		sched_yield();
}

int comm_busy(const spmt_comm *comm, const char *what, const char *other)
{
	return fail_call(-EBUSY, what, "rank %d: another thread is in %s on this %s", comm->rank,
		other, comm->lane ? "lane" : "comm, whose calls come one at a time");
}

/* With SPMT_CHECK: fails if another thread is inside a call on this comm. */
static int exclusive_check(const spmt_comm *comm, const char *what)
{
	const char *other = exclusive_other(&comm->head);
	int rc = other ? comm_busy(comm, what, other) : 0;

	if (rc)
		log_line(LOG_CHECK, "%s", status_sentence());
	return rc;
}

static int comm_refuse_broken(const spmt_comm *comm, const char *what)
{
	struct cause cause;
	int rc;

	comm_look(comm);
	comm_cause(comm, &cause);
	rc = comm_broken(comm, what);
	/* A deliberate abort gives its code to all calls; any other such code belongs to the call that
	   failed. */
	if ((rc == SPMT_ERR_TIMEOUT || rc == SPMT_ERR_MISMATCH) && !cause_is_abort(&cause))
		return fail_call(SPMT_ERR_BROKEN, what, "rank %d: the %s is broken: %s", comm->rank,
			comm->parent ? "comm" : "world", cause.sentence);
	return rc;
}

int comm_refuse_lane(const spmt_comm *comm, const char *what)
{
	int rc = comm_enter_any(comm, what);

	if (rc)
		return rc;
	if (comm_is_broken(comm))
		return comm_refuse_broken(comm, what);
	return comm->lane ? 0 : exclusive_check(comm, what);
}

int comm_refuse(const spmt_comm *comm, const char *what)
{
	int rc = comm_refuse_lane(comm, what);

	if (rc || !comm->lane)
		return rc;
	return fail_call(SPMT_ERR_UNSUPPORTED, what,
		"rank %d: a lane has collectives, but those with counts, and quiet; the rest is called on the comm that it is a lane of",
		comm->rank);
}

int comm_refuse_pe(const spmt_comm *comm, const char *what, int pe)
{
	return fail_call(-EINVAL, what, "rank %d: pe %d is not in 0 .. %d", comm->rank, pe,
		comm->nranks - 1);
}

int comm_failed(const spmt_comm *comm, const char *what, int rc)
{
	const char *cause;

	if (LIKELY(!rc) || status_names(what))
		return rc;
	cause = status_sentence();
	if (status_names_rank())
		return fail_call(rc, what, "%s", cause);
	return fail_call(rc, what, "rank %d: %s", comm->rank, cause);
}

/* Of a comm that is visited. */
static int comm_claim(spmt_comm *comm, const char *what)
{
	const char *other;

	while ((other = object_claim(&comm->head, what))) {
		int rc = comm_enter_any(comm, what);

		if (rc)
			return rc;
		if (other != world_joining)
			return comm_busy(comm, what, other);
		/* It was found, so all ranks have come, and its spmt_init is about to return. */
		sched_yield();
	}
	return 0;
}

/* Reads of the comm only what is there for good until it is claimed: another thread may be ending it. */
static inline bool comm_begin_quickly(spmt_comm *comm, const char *what)
{
	if (!LIKELY(comm && object_is_live(&comm->head) && !object_claim(&comm->head, what)))
		return false;
	if (LIKELY(comm_quick(comm)))
		return true;
	comm_unclaim(comm);
	return false;
}

/* A lane stays visited instead. */
static int comm_begin_slowly(spmt_comm *comm, const char *what, bool lanes)
{
	int rc = comm_visit(comm, what);

	if (rc)
		return rc;
	rc = lanes ? comm_refuse_lane(comm, what) : comm_refuse(comm, what);
	if (!rc && comm->lane)
		return 0;
	if (!rc)
		rc = comm_claim(comm, what);
	comm_left(comm);
	return rc;
}

int comm_begin(spmt_comm *comm, const char *what)
{
	return LIKELY(comm_begin_quickly(comm, what)) ? 0 : comm_begin_slowly(comm, what, false);
}

int comm_begin_lane(spmt_comm *comm, const char *what)
{
	return LIKELY(comm_begin_quickly(comm, what)) ? 0 : comm_begin_slowly(comm, what, true);
}

/* What others do in a broken comm is let out first. */
static int comm_claim_any(spmt_comm *comm, const char *what)
{
	const struct timespec slice = { .tv_nsec = 100000 };
	int64_t until = process_now() + COMM_BROKEN_NS;
	int rc;

	while ((rc = comm_claim(comm, what)) == -EBUSY && comm_is_broken(comm) &&
		process_now() < until)
		nanosleep(&slice, NULL);
	return rc;
}

int comm_begin_any(spmt_comm *comm, const char *what)
{
	int rc = comm_visit(comm, what);

	if (rc)
		return rc;
	rc = comm_refuse(comm, what);
	if (!comm->lane && (!rc || comm_is_broken(comm)))
		rc = comm_claim_any(comm, what);
	comm_left(comm);
	return rc;
}

/* ---- the tree of a rank's comms --------------------------------------------------------------- */

spmt_comm *comm_tree_first(spmt_comm *root)
{
	while (root->children)
		root = root->children;
	return root;
}

spmt_comm *comm_tree_next(const spmt_comm *comm)
{
	return comm->sibling ? comm_tree_first(comm->sibling) : comm->parent;
}
