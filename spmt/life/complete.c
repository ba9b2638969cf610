/* SPDX-License-Identifier: MIT */
/*
 * Functions that are called in stream order, on a thread of the rank's own: a driver's thread may not call the driver again. The
 * stream's thread posts the call and waits until it has returned.
 */
#include "complete.h"

#include <errno.h>

#include "spmt/calls/keyed.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/record.h"
#include "spmt/comm/stream.h"
#include "spmt/control/exclusive.h"
#include "src/base/futex.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/base/tsan.h"

struct completion {
	struct completion *next, **at; /* of the comm; guarded by the slot's lock */
	struct errand errand;
	spmt_comm *comm; /* until it has returned */
	struct caller *caller;
	void (*fn)(void *arg, int code);
	void *arg;
	_Atomic int claimed; /* somebody sees to it that it is called */
	_Atomic int refs;    /* the stream, the comm, and the call that queues it */
	_Atomic uint32_t queued, returned;
};

static void completion_unref(struct completion *c)
{
	if (atomic_fetch_sub(&c->refs, 1) == 1)
		mem_free(c);
}

static void list_add(struct completion *c)
{
	spmt_comm *comm = c->comm;

	pthread_mutex_lock(&comm->slot->lock);
	c->next = comm->awaited;
	c->at = &comm->awaited;
	if (c->next)
		c->next->at = &c->next;
	comm->awaited = c;
	pthread_mutex_unlock(&comm->slot->lock);
}

static void list_remove(struct completion *c)
{
	struct slot *slot = c->comm->slot;

	pthread_mutex_lock(&slot->lock);
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	pthread_mutex_unlock(&slot->lock);
}

/* What quiet would tell of the comm now. */
static int comm_code(const spmt_comm *comm)
{
	struct cause cause;

	comm_look(comm);
	if (comm_is_broken(comm)) {
		comm_cause(comm, &cause);
		return cause.code;
	}
	/* a lane has its parent's links, and moves nothing over the network */
	for (int pe = 0; !comm->lane && pe < comm->nranks; pe++) {
		int code = comm->links[pe].failed;

		if (code)
			return code;
	}
	if (!kernel_left(comm))
		return 0;
	return __atomic_load_n(&kernel_report_of(comm->signals)->differs.valid, __ATOMIC_ACQUIRE) ==
			2
		? SPMT_ERR_MISMATCH
		: SPMT_ERR_TIMEOUT;
}

static void completion_run(struct errand *errand)
{
	struct completion *c =
		(struct completion *)(void *)((char *)errand - offsetof(struct completion, errand));
	spmt_comm *comm = c->comm;

	/* the call that has queued it, which waits for nobody, is on its way out */
	while (!atomic_load(&c->queued))
		futex_sleep(&c->queued, 0, -1);
	tsan_acquire(&c->queued);
	c->fn(c->arg, comm_code(comm));
	list_remove(c);
	tsan_release(&c->returned);
	atomic_store(&c->returned, 1);
	futex_wake_all(&c->returned);
	completion_unref(c);
	/* The last touch: comms are never unmapped. */
	tsan_release(&comm->completions);
	atomic_fetch_sub(&comm->completions, 1);
	futex_wake_all(&comm->completions);
}

static void completion_call(struct completion *c)
{
	if (!atomic_exchange(&c->claimed, 1))
		caller_post(c->caller, &c->errand);
}

/* On the stream's thread. */
static void completion_reached(void *arg)
{
	struct completion *c = arg;

	completion_call(c);
	while (!atomic_load(&c->returned))
		futex_sleep(&c->returned, 0, -1);
	tsan_acquire(&c->returned);
	completion_unref(c);
}

void completions_end(spmt_comm *comm)
{
	uint32_t left;

	pthread_mutex_lock(&comm->slot->lock);
	for (struct completion *c = comm->awaited; c; c = c->next)
		completion_call(c);
	pthread_mutex_unlock(&comm->slot->lock);
	while ((left = atomic_load(&comm->completions)))
		futex_sleep(&comm->completions, left, -1);
	tsan_acquire(&comm->completions);
}

/* ---- the call -------------------------------------------------------------------------------- */

static int completion_queue(
	spmt_comm *comm, const char *what, spmt_stream stream, struct completion *c)
{
	struct reserved reserved;
	int rc = stream_reserve(comm, stream_of(comm, stream), &reserved);

	if (!rc && reserved.captured)
		rc = fail_call(SPMT_ERR_UNSUPPORTED, what,
			"rank %d: the stream is being captured into a graph", comm->rank);
	if (rc)
		return rc;
	atomic_fetch_add(&comm->completions, 1);
	list_add(c);
	rc = comm->backend->call(comm->dev, stream_of(comm, stream), completion_reached, c);
	if (!rc) {
		stream_note(comm, &reserved);
		return 0;
	}
	list_remove(c);
	atomic_fetch_sub(&comm->completions, 1);
	return rc;
}

static int complete_in(spmt_comm *comm, const char *what, spmt_stream stream,
	void (*fn)(void *arg, int code), void *arg, struct completion **queued)
{
	struct completion *c;
	struct caller *caller;
	int rc = comm_caller(comm, &caller);

	if (rc)
		return rc;
	c = mem_calloc(1, sizeof(*c));
	if (!c)
		return fail_call(-ENOMEM, what, "rank %d: out of memory to queue it", comm->rank);
	c->errand.run = completion_run;
	c->comm = comm;
	c->caller = caller;
	c->fn = fn;
	c->arg = arg;
	atomic_store(&c->refs, 3);
	rc = completion_queue(comm, what, stream, c);
	if (rc)
		mem_free(c);
	else
		*queued = c;
	return rc;
}

static int complete_held(spmt_comm *comm, const char *what, spmt_stream stream,
	void (*fn)(void *arg, int code), void *arg, struct completion **queued)
{
	LANE_HOLD(comm);

	return comm_failed(comm, what, complete_in(comm, what, stream, fn, arg, queued));
}

static int complete_call(spmt_comm *comm, const char *what, spmt_stream stream,
	void (*fn)(void *arg, int code), void *arg, struct completion **queued)
{
	EXCLUSIVE(comm, what);
	int rc = comm_enter_lane(comm, what);

	if (rc)
		return rc;
	if (!fn)
		rc = fail_call(-EINVAL, what, "rank %d: fn is NULL", comm->rank);
	else if (comm_is_keyed(comm))
		rc = keyed_call(comm, what, stream, fn, arg);
	else
		rc = complete_held(comm, what, stream, fn, arg, queued);
	comm_left_lane(comm);
	return rc;
}

/* fn may make calls on the comm, which come one at a time: it is called when this one is through with it. */
int spmt_on_complete(
	spmt_comm *comm, spmt_stream stream, void (*fn)(void *arg, int code), void *arg)
{
	UNCANCELLED;
	struct completion *queued = NULL;
	int rc = complete_call(comm, __func__, stream, fn, arg, &queued);

	if (queued) {
		tsan_release(&queued->queued);
		atomic_store(&queued->queued, 1);
		futex_wake_all(&queued->queued);
		completion_unref(queued);
	}
	return rc;
}
