/* SPDX-License-Identifier: MIT */
/* Order and meeting from the host: fence, quiet, sync, barrier. */
#include <errno.h>
#include <time.h>

#include "keyed.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/record.h"
#include "spmt/comm/stream.h"
#include "spmt/control/exclusive.h"
#include "spmt/proxy/fifo.h"
#include "spmt/proxy/queues.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/kernels/area.h"
#include "sync.h"
#include "view.h"
#include "wait.h"

#define SETTLE_NS 50000 /* between two looks at what still ends in a broken comm, */
#define SETTLE_MS 10000 /* for so long at most */

#define FORBID_NS 1000000000

int movers_quiet(spmt_comm *comm, const char *what)
{
	struct move_wait wait = { .ms = comm_timeout(comm) };
	struct first_failure first;
	bool pending = false;

	first.rc = 0;
	for (int pe = 0; comm->pending && pe < comm->nranks; pe++) {
		bool was = comm->links[pe].pending;
		int one = was ? link_quiet(&comm->links[pe], &wait) : 0;

		pending |= comm->links[pe].pending;
		/* Its waiters were woken before the bytes arrived. */
		if (was && comm_cpu_access(comm))
			wake_stored(comm->wake_counters[pe]);
		failure_note(&first, one);
	}
	comm->pending = pending;
	return first.rc == -ECANCELED ? comm_broken(comm, what) : failure_tell(&first);
}

/* A wait for what others move: the proxy, copy engines. In a broken comm it goes on until their work has ended, since that uses buffers until
   then. One, with one deadline, covers all that a call waits for. */
struct settling {
	struct wait_for wait;
	struct spmtd_pause pause;
	int broken;    /* what the comm is broken by; 0: not seen yet */
	int64_t until; /* then */
	int ended;     /* the time is up: nothing is waited for any more, but looked at once */
};

static int settle_broken(spmt_comm *comm, struct settling *s)
{
	const struct timespec slice = { .tv_nsec = SETTLE_NS };
	int64_t ms = comm_timeout(comm), now = process_now();
	UNCANCELLED;

	if (!s->broken) {
		s->broken = comm_broken(comm, s->wait.name);
		s->until = now + (ms < 0 ? SETTLE_MS : MIN_OF(ms, SETTLE_MS)) * 1000000;
	}
	if (now >= s->until)
		return s->broken;
	nanosleep(&slice, NULL);
	return 0;
}

/* 0: look again. */
static int settle_pause(spmt_comm *comm, struct settling *s)
{
	int rc = s->ended || s->broken ? 0 : wait_pause(comm, &s->pause, &s->wait);

	if (LIKELY(!rc && !s->ended && !s->broken))
		return 0;
	if (!s->ended)
		s->ended = comm_is_broken(comm) ? settle_broken(comm, s) : rc;
	return s->ended;
}

/* All that was posted before is done, or dropped. */
static int posts_answered(spmt_comm *comm, struct settling *s)
{
	uint64_t asked = fifo_ask(comm->fifo);
	int rc = 0;

	while (!fifo_answered(comm->fifo, asked) && !rc)
		rc = settle_pause(comm, s);
	return rc;
}

/* What kernels that have ended by now have posted. */
static int posts_quiet(spmt_comm *comm, struct settling *s)
{
	int rc;

	if (!comm->fifo)
		return 0;
	rc = posts_answered(comm, s);
	if (comm_is_broken(comm) && !posts_answered(comm, s))
		fifo_settle(comm->fifo);
	if (rc == SPMT_ERR_TIMEOUT && !s->broken)
		return fail_call(
			rc, s->wait.name, "rank %d: what kernels posted is not done", comm->rank);
	return rc;
}

/* What was submitted to it is lost, and nobody makes it again. The sentence stays as it is. */
static void engine_stopped(spmt_comm *comm, const char *what, int rc)
{
	KEEPS_SENTENCE;

	if (!comm_is_broken(comm))
		comm_break_last(comm, comm_failed(comm, what, rc));
}

/* Waits for what kernels have submitted to copy engines so far, not for what running ones submit meanwhile. */
static int engine_quiet(spmt_comm *comm, struct settling *s, int pe)
{
	const char *what = s->wait.name;
	uint64_t told = queues_told(comm, pe);
	int rc = 0, done;

	while (!(done = queues_query(comm, pe, told)) && !rc)
		rc = settle_pause(comm, s);
	if (done < 0) {
		rc = done;
		engine_stopped(comm, what, rc);
	}
	if (rc == SPMT_ERR_TIMEOUT && !s->broken)
		return fail_call(rc, what,
			"rank %d: what kernels submitted to the copy engine for rank %d is not done",
			comm->rank, pe);
	return done > 0 ? 0 : rc;
}

/* The first failure; the others are waited for all the same. */
static int engines_quiet(spmt_comm *comm, struct settling *s)
{
	struct first_failure first;

	first.rc = 0;
	for (int pe = 0; pe < comm->nranks; pe++)
		failure_note(&first, engine_quiet(comm, s, pe));
	return failure_tell(&first);
}

static int work_quiet(spmt_comm *comm, const char *what)
{
	struct settling s = { .wait.name = what };
	struct first_failure first;

	first.rc = 0;
	failure_note(
		&first, comm->streamed ? streams_quiet(comm, what) : kernel_failure(comm, what));
	failure_note(&first, posts_quiet(comm, &s));
	failure_note(&first, comm->queues ? engines_quiet(comm, &s) : 0);
	wait_end(comm, &s.pause);
	return failure_tell(&first);
}

/* Another thread that finalizes a broken comm waits for it: nothing of the comm goes meanwhile. */
int quiet_slow(spmt_comm *comm, const char *what)
{
	struct first_failure first;
	int rc = comm_visit(comm, what);

	first.rc = 0;
	if (rc)
		return rc;
	failure_note(&first, comm_failed(comm, what, work_quiet(comm, what)));
	/* behind streams, since links are told what has failed there */
	failure_note(&first, comm_failed(comm, what, movers_quiet(comm, what)));
	rc = failure_tell(&first);
	/* The work may have ended because the world broke. */
	if (!rc && comm_is_broken(comm))
		rc = comm_broken(comm, what);
	comm_left(comm);
	return rc;
}

int spmt_fence(spmt_comm *comm)
{
	EXCLUSIVE(comm, __func__);
	struct move_wait wait = { .end = 0 };
	int rc = comm_enter(comm, "spmt_fence");

	/* Non-blocking calls may have gone to the comm's own stream, and links tell which of them have
	   failed. Other streams are the user's to order. */
	if (!rc && comm->streamed_own)
		rc = stream_drain(comm, "spmt_fence");
	if (!rc)
		wait.ms = comm_timeout(comm);
	for (int pe = 0; !rc && comm->pending && pe < comm->nranks; pe++) {
		rc = link_fence(&comm->links[pe], &wait);
		if (rc == -ECANCELED)
			rc = comm_broken(comm, "spmt_fence");
	}
	return comm_failed(comm, "spmt_fence", rc);
}

/* Work that this rank has queued behind foreign work that does not end must not begin after this
   call has failed. On the host backend kernels see that the comm is broken; on GPUs they check a
   word of their device, which is written here. */
static void comm_forbid(spmt_comm *comm)
{
	struct area *area = area_at((uint64_t)(uintptr_t)comm_own(comm), comm->nranks);
	const struct backend *b = comm->backend;
	device_stream s;
	int rc;
	KEEPS_SENTENCE;

	if (comm_cpu_access(comm) || b->stream_query(comm->dev, comm->stream))
		return;
	rc = b->stream_create(comm->dev, &s);
	if (!rc) {
		comm->signals->mark = (uint32_t)SPMT_ERR_ABORTED;
		rc = b->copy(comm->dev, &area->error, &comm->signals->mark, sizeof(area->error), s);
		if (!rc)
			rc = b->stream_sync(comm->dev, s, FORBID_NS, NULL);
		b->stream_destroy(comm->dev, s);
	}
	if (rc)
		log_line(LOG_ERROR, "rank %d: what is queued in its streams cannot be stopped (%d)",
			comm->rank, rc);
}

/* Where it is broken: the work ends, or is kept from beginning. */
static int broken_quiet(spmt_comm *comm, const char *what, int rc)
{
	LANE_HOLD(comm);
	bool busy = comm->pending || comm->streamed;
	struct status_saved why;

	status_save(&why);
	if (busy || comm->fifo || comm->queues)
		quiet_all(comm, what);
	if (busy) {
		comm_forbid(comm);
		return comm_broken(comm, what);
	}
	status_restore(&why);
	return rc;
}

static int refused_quiet(spmt_comm *comm, const char *what, int rc)
{
	struct status_saved why;
	int gone;

	status_save(&why);
	gone = comm_visit(comm, what);
	status_restore(&why);
	if (gone)
		return rc;
	if (comm_is_broken(comm))
		rc = comm_is_keyed(comm) ? keyed_quiet(comm, what) : broken_quiet(comm, what, rc);
	comm_left(comm);
	return rc;
}

/* Buffers are released in a broken world as well. The first call that finds it broken returns the
   cause. */
int spmt_quiet(spmt_comm *comm)
{
	EXCLUSIVE(comm, __func__);
	static const char what[] = "spmt_quiet";
	int rc = comm_enter_lane(comm, what);

	if (rc)
		return refused_quiet(comm, what, rc);
	if (LIKELY(!comm->lane))
		return quiet_all(comm, what);
	rc = keyed_quiet(comm, what);
	comm_left_lane(comm);
	return rc;
}

int spmt_sync(spmt_comm *comm)
{
	EXCLUSIVE(comm, __func__);
	static const char what[] = "spmt_sync";
	int rc = comm_begin_lane(comm, what);

	if (rc)
		return rc;
	rc = comm->lane ? keyed_meet(comm, what)
			: meet(comm, &(struct meet_record){ .op = MEET_SYNC });
	comm_end_lane(comm);
	return rc;
}

static int barrier_meet(spmt_comm *comm, const char *what)
{
	struct meet_record record = { .op = MEET_BARRIER };

	record.status = quiet_all(comm, what);
	return meet(comm, &record);
}

int spmt_barrier(spmt_comm *comm)
{
	EXCLUSIVE(comm, __func__);
	static const char what[] = "spmt_barrier";
	int rc = comm_begin_lane(comm, what);

	if (rc)
		return rc;
	rc = comm->lane ? keyed_meet(comm, what) : barrier_meet(comm, what);
	comm_end_lane(comm);
	return rc;
}
