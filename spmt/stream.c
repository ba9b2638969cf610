/* SPDX-License-Identifier: MIT */
/*
 * Streams a comm has queued work in. quiet must cover that work and nothing the user queued behind
 * it, so every piece of work is followed by an event, one a stream, recorded anew each time.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../src/log.h"
#include "../src/mem.h"
#include "../src/process.h"
#include "../src/status.h"
#include "record.h"
#include "steps.h"
#include "stream.h"

#define SETTLE_MS 10000		/* where waits have no deadline */
#define SETTLE_HANDOVER_MS 1000 /* where what goes on can be left to itself */

device_stream stream_of(const spmt_comm *comm, spmt_stream stream)
{
	return stream ? stream : comm->stream;
}

static struct used_stream *used_take(struct used_stream *used, device_stream stream, pid_t thread)
{
	used->stream = stream;
	used->thread = thread;
	return used;
}

/* The entry of `stream`, or one that can be made its own: clean entries are taken over before
   the table grows. Every thread has a stream of its own behind SPMT_STREAM_PER_THREAD. */
static struct used_stream *used_entry(spmt_comm *comm, device_stream stream)
{
	pid_t thread = stream == SPMT_STREAM_PER_THREAD ? (pid_t)syscall(SYS_gettid) : 0;
	struct used_stream *clean = NULL, *grown;

	for (size_t i = 0; i < comm->nused; i++) {
		if (comm->used[i].stream == stream && comm->used[i].thread == thread)
			return &comm->used[i];
		if (!comm->used[i].dirty)
			clean = &comm->used[i];
	}
	if (clean)
		return used_take(clean, stream, thread);
	grown = mem_calloc(comm->nused + 4, sizeof(*grown));
	if (!grown)
		return NULL;
	if (comm->nused)
		memcpy(grown, comm->used, comm->nused * sizeof(*grown));
	mem_free(comm->used);
	comm->used = grown;
	return used_take(&grown[comm->nused++], stream, thread);
}

/* What a graph replays is ordered by who launches it: an event of a capture is none outside it. */
bool stream_captured(const spmt_comm *comm, device_stream stream)
{
	return stream != comm->stream && comm->backend->capturing(comm->dev, stream);
}

int stream_note(spmt_comm *comm, device_stream stream)
{
	struct used_stream *used;
	int rc = 0;

	comm->streamed = true;
	if (stream == comm->stream) {
		comm->streamed_own = true;
		return 0;
	}
	if (stream_captured(comm, stream))
		return 0;
	used = used_entry(comm, stream);
	if (!used)
		return fail(-ENOMEM, "rank %d: out of memory for one more stream", comm->rank);
	if (!used->event)
		rc = comm->backend->event_create(comm->dev, &used->event);
	if (!rc)
		rc = comm->backend->event_record(comm->dev, used->event, stream);
	if (!rc)
		used->dirty = true;
	return rc;
}

/* Kernels keep the same deadline and know what they wait for: they get the first word. */
#define GRACE_MS(ms) ((ms) / 8 + 400)

/* stream_sync's two silent codes in words. */
static int sync_failed(spmt_comm *comm, const char *what, int rc)
{
	int64_t ms = comm_timeout(comm);

	if (rc == -ECANCELED)
		return comm_broken(comm, what);
	if (rc != -ETIMEDOUT)
		return rc;
	rc = kernel_failure(comm, what);
	if (rc)
		return rc;
	return fail(SPMT_ERR_TIMEOUT,
		"%s: rank %d: work queued in its streams is not done after %lld.%lld s", what,
		comm->rank, (long long)(ms / 1000), (long long)(ms % 1000 / 100));
}

#define SHOW_NS 1000000 /* a drain that takes longer is shown as a wait */

static int stream_drain_shown(spmt_comm *comm, const char *what, int64_t ns)
{
	const uint32_t *stop = control_stop_word(comm->control);
	int64_t first = ns < 0 ? SHOW_NS : MIN_OF(ns, SHOW_NS), begin = process_now();
	struct wait_for wait = { .name = what, .since = begin };
	int rc = device_drain(comm->backend, comm->dev, comm->stream, first, stop);

	if (rc != -ETIMEDOUT || first == ns)
		return rc;
	waits_show(comm, &wait, &wait);
	rc = device_drain(comm->backend, comm->dev, comm->stream, ns < 0 ? ns : ns - first, stop);
	waits_hide(comm, &wait);
	return rc;
}

/* In a broken world the library's kernels end by themselves, and what is queued behind them, such as a collective's copy to dst,
   follows at once. */
int stream_drain(spmt_comm *comm, const char *what)
{
	int64_t ms = comm_timeout(comm);
	int64_t ns = ms < 0 ? -1 : (ms + GRACE_MS(ms)) * 1000000;
	int rc = stream_drain_shown(comm, what, ns);

	return rc ? sync_failed(comm, what, rc) : 0;
}

int streams_join(spmt_comm *comm, device_stream stream)
{
	int rc = 0;

	for (size_t i = 0; i < comm->nused && !rc; i++)
		if (comm->used[i].dirty && comm->used[i].stream != stream)
			rc = comm->backend->stream_wait_event(
				comm->dev, stream, comm->used[i].event);
	return rc;
}

static void streams_forget(spmt_comm *comm)
{
	for (size_t i = 0; i < comm->nused; i++)
		comm->used[i].dirty = false;
	comm->streamed = false;
	comm->streamed_own = false;
}

int streams_quiet(spmt_comm *comm, const char *what)
{
	int rc = streams_join(comm, comm->stream);

	if (!rc)
		rc = stream_drain(comm, what);
	/* A wait that was cut short leaves its work in flight: the next quiet waits for it again. */
	if (!rc || comm->backend->stream_query(comm->dev, comm->stream))
		streams_forget(comm);
	if (!rc)
		rc = kernel_failure(comm, what);
	/* What broke the world is the cause of whatever failed here. */
	if (rc && atomic_load_explicit(&comm->control->stop, memory_order_acquire))
		return comm_broken(comm, what);
	return rc;
}

/* A deadline holds here, too: a user's kernel may never end. A move whose wait was cut short is still in the comm's own stream,
   whether it was noted or not. */
bool streams_settle(spmt_comm *comm)
{
	int64_t ms = comm_timeout(comm);
	int rc;

	if (!comm->stream)
		return true;
	ms = ms < 0 ? SETTLE_MS : ms;
	if (comm_cpu_access(comm))
		ms = MIN_OF(ms, SETTLE_HANDOVER_MS);
	rc = comm->streamed ? streams_join(comm, comm->stream) : 0;
	if (!rc)
		rc = comm->backend->stream_sync(comm->dev, comm->stream, ms * 1000000, NULL);
	streams_forget(comm);
	if (!rc)
		return true;
	log_line(
		LOG_ERROR, "rank %d: work is still in its streams at the end (%d)", comm->rank, rc);
	return rc != -ETIMEDOUT;
}

bool streams_ended(spmt_comm *comm)
{
	return comm->backend->stream_query(comm->dev, comm->stream) != 0;
}

bool streams_hand_over(spmt_comm *comm, void (*release)(void *comm))
{
	int rc;

	if (!comm_cpu_access(comm))
		return false;
	rc = comm->backend->call(comm->dev, comm->stream, release, comm);
	if (rc)
		log_line(LOG_ERROR, "rank %d: what goes on there is never released", comm->rank);
	return true;
}

void streams_drop(spmt_comm *comm)
{
	for (size_t i = 0; i < comm->nused; i++)
		if (comm->used[i].event)
			comm->backend->event_destroy(comm->dev, comm->used[i].event);
	mem_free(comm->used);
	comm->used = NULL;
	comm->nused = 0;
	if (comm->collective)
		comm->backend->event_destroy(comm->dev, comm->collective);
	comm->collective = NULL;
}
