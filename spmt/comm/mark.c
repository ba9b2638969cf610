/* SPDX-License-Identifier: MIT */
#include "mark.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm.h"
#include "src/base/status.h"

/* ---- which stream it is ---------------------------------------------------------------------- */

#define OWN_STREAM UINT64_MAX /* lives as long as the comm, so that its handle is nobody else's */
#define KEPT_STREAM (UINT64_MAX - 1) /* and down from there: of backends without ids */

/* SPMT_STREAM_PER_THREAD is a different stream in each thread. */
struct stream_key stream_key_of(const spmt_comm *comm, device_stream stream)
{
	if (stream == comm->stream)
		return (struct stream_key){ .stream = stream, .id = OWN_STREAM };
	return (struct stream_key){ .stream = stream,
		.id = comm->backend->stream_id(comm->dev, stream),
		.thread = stream == SPMT_STREAM_PER_THREAD ? (int)syscall(SYS_gettid) : 0 };
}

/* No other stream has its handle while it is registered. */
struct stream_key stream_key_kept(spmt_comm *comm, device_stream stream)
{
	struct stream_key key = stream_key_of(comm, stream);

	if (!key.id)
		key.id = KEPT_STREAM - comm->nkept;
	comm->nkept++;
	return key;
}

static bool stream_key_same(const struct stream_key *a, const struct stream_key *b)
{
	return a->id && a->id == b->id;
}

/* Without ids, one may be a destroyed stream whose handle the other reuses. */
bool stream_key_alike(const struct stream_key *a, const struct stream_key *b)
{
	return stream_key_same(a, b) ||
		(!a->id && !b->id && a->stream == b->stream && a->thread == b->thread);
}

/* ---- marks ----------------------------------------------------------------------------------- */

static int mark_record(const spmt_comm *comm, struct mark *mark)
{
	int rc = comm->backend->event_record(comm->dev, mark->event, mark->at.stream);

	mark->late = rc != 0;
	return rc;
}

/* Records a mark that was not recorded when its work was queued; until then its event says nothing. In a capture it would become part
   of the graph. */
int mark_late(const spmt_comm *comm, struct mark *mark)
{
	device_stream stream = mark->at.stream;

	if (!mark->late)
		return 0;
	if (stream != comm->stream && comm->backend->capturing(comm->dev, stream))
		return fail(-EBUSY,
			"a registered stream has work from before it was captured, and cannot be waited for until the capture has ended");
	return mark_record(comm, mark);
}

int mark_join(const spmt_comm *comm, struct mark *mark, const struct stream_key *at)
{
	int rc;

	if (!mark->set || stream_key_same(&mark->at, at))
		return 0;
	rc = mark_late(comm, mark);
	return rc ? rc : comm->backend->stream_wait_event(comm->dev, at->stream, mark->event);
}

int mark_ready(const spmt_comm *comm, struct mark *mark, const struct stream_key *at)
{
	int rc = mark->event ? 0 : comm->backend->event_create(comm->dev, &mark->event);

	return rc ? rc : mark_join(comm, mark, at);
}

void mark_put_late(struct mark *mark, const struct stream_key *at)
{
	mark->at = *at;
	mark->set = mark->late = true;
}

void mark_put(const spmt_comm *comm, struct mark *mark, const struct stream_key *at)
{
	struct status_saved saved;

	mark_put_late(mark, at);
	status_save(&saved);
	if (mark_record(comm, mark))
		status_restore(&saved);
}

void mark_drop(const spmt_comm *comm, struct mark *mark)
{
	if (mark->event)
		comm->backend->event_destroy(comm->dev, mark->event);
	*mark = (struct mark){ .event = NULL };
}
