/* SPDX-License-Identifier: MIT */
/*
 * The streams in which a comm has queued work. quiet must cover that work and nothing the user
 * queued behind it, so what a call queues is followed by an event, one a stream, recorded anew
 * each time. A user may destroy the stream at once, so recording cannot wait until somebody asks,
 * unless the user has said that the stream stays.
 */
#include <errno.h>
#include <string.h>

#include "broken.h"
#include "comm.h"
#include "record.h"
#include "spmt/control/exclusive.h"
#include "spmt/control/trace.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/host/host.h"
#include "stream.h"
#include "waits.h"

#define SETTLE_MS 10000		/* where waits have no deadline */
#define SETTLE_HANDOVER_MS 1000 /* where what goes on can be left to itself */
#define LINGER_NS 10000000000ll /* as such kernels wait for peers that read their buffers */
#define LINGER_LOOK_NS 1000000

device_stream stream_of(const spmt_comm *comm, spmt_stream stream)
{
	return stream ? stream : comm->stream;
}

/* NULL: nothing is to be let go. Moves that are pending may have to be waited for first. */
const spmt_comm *stream_hold(const spmt_comm *comm)
{
	const struct device_hold_ops *hold = comm ? comm->backend->hold : NULL;

	return hold && !comm->pending && hold->begin(comm->dev) ? comm : NULL;
}

void stream_let_go(const spmt_comm **held)
{
	if (*held)
		(*held)->backend->hold->end((*held)->dev);
}

/* ---- noting ---------------------------------------------------------------------------------- */

/* Nobody waits for a user's own work before the end, so its mark is looked at when another is wanted. */
static bool mark_is_free(const spmt_comm *comm, const struct mark *mark)
{
	if (mark->kept)
		return false;
	return !mark->set ||
		(mark->users && !mark->late && comm->backend->event_query(comm->dev, mark->event));
}

/* NULL: nobody has said that the stream stays. */
static struct mark *kept_mark(const spmt_comm *comm, device_stream stream)
{
	for (size_t i = 0; i < comm->nused; i++)
		if (comm->used[i].kept && comm->used[i].at.stream == stream)
			return &comm->used[i];
	return NULL;
}

/* The mark of a stream, or one that it can take over: marks without work are reused before the
   table grows. */
static struct mark *used_mark(spmt_comm *comm, const struct stream_key *at, bool users)
{
	struct mark *unset = NULL, *grown;

	for (size_t i = 0; i < comm->nused; i++) {
		struct mark *mark = &comm->used[i];

		if (mark->set && mark->users == users && stream_key_alike(&mark->at, at))
			return mark;
		if (!unset && mark_is_free(comm, mark))
			unset = mark;
	}
	if (unset) {
		unset->set = false;
		return unset;
	}
	grown = mem_calloc(comm->nused + 4, sizeof(*grown));
	if (!grown)
		return NULL;
	if (comm->nused)
		memcpy(grown, comm->used, comm->nused * sizeof(*grown));
	mem_free(comm->used);
	comm->used = grown;
	return &grown[comm->nused++];
}

/* Whoever launches a graph orders its work: an event of a capture has no meaning outside the
   graph. */
static void stream_look(spmt_comm *comm, device_stream stream, struct reserved *reserved)
{
	struct mark *kept = kept_mark(comm, stream);

	*reserved = (struct reserved){ .at = { .stream = stream },
		.stays = kept || stream == comm->stream };
	if (object_is_traced(&comm->head))
		trace_stream(stream == comm->stream ? TRACE_OWN : stream);
	if (stream != comm->stream)
		reserved->captured = comm->backend->capturing(comm->dev, stream);
	if (reserved->captured)
		return;
	reserved->mark = kept;
	reserved->at = kept ? kept->at : stream_key_of(comm, stream);
}

/* The graph is not to run when the comm has ended. */
static int stream_captured(const spmt_comm *comm, device_stream stream)
{
	const struct device_graph_ops *graph = comm->backend->graph;

	return graph ? graph->uses(comm->dev, stream, comm) : 0;
}

static bool collective_is_own(const spmt_comm *comm)
{
	return comm->collective.set && comm->collective.at.stream == comm->stream;
}

/* A mark that has work moves behind new work of the same stream. If the stream may be another one
   with the same handle, the new work waits for the old. */
static int mark_reserve(
	spmt_comm *comm, device_stream stream, bool users, struct reserved *reserved)
{
	int rc = 0;

	stream_look(comm, stream, reserved);
	if (reserved->captured)
		return stream_captured(comm, stream);
	/* later work here may wait for another stream's collective, which must not wait for that work */
	if (comm->collective.set && comm->collective.at.stream == stream)
		rc = mark_late(comm, &comm->collective);
	if (rc || stream == comm->stream || (!users && reserved->mark && reserved->mark->event))
		return rc;
	if (users || !reserved->mark)
		reserved->mark = used_mark(comm, &reserved->at, users);
	if (!reserved->mark)
		return fail(-ENOMEM, "out of memory for one more stream");
	reserved->mark->users = users;
	return mark_ready(comm, reserved->mark, &reserved->at);
}

int stream_reserve(spmt_comm *comm, device_stream stream, struct reserved *reserved)
{
	return mark_reserve(comm, stream, false, reserved);
}

int stream_reserve_users(spmt_comm *comm, device_stream stream, struct reserved *reserved)
{
	return mark_reserve(comm, stream, true, reserved);
}

/* Each collective waits for those before it, so one mark does for all, whatever their streams. */
int stream_reserve_collective(spmt_comm *comm, device_stream stream, struct reserved *reserved)
{
	stream_look(comm, stream, reserved);
	if (reserved->captured)
		return stream_captured(comm, stream);
	reserved->mark = &comm->collective;
	return mark_ready(comm, reserved->mark, &reserved->at);
}

/* The user waits for none of the user's own work: it gets its event at once, so as not to cover later work. */
void stream_note(spmt_comm *comm, const struct reserved *reserved)
{
	struct mark *mark = reserved->mark;

	comm->streamed |= !mark || !mark->users;
	comm->streamed_own |= reserved->at.stream == comm->stream;
	if (mark && reserved->stays && !mark->users)
		mark_put_late(mark, &reserved->at);
	else if (mark)
		mark_put(comm, mark, &reserved->at);
}

int stream_note_order(spmt_comm *comm, const struct reserved *reserved)
{
	struct mark *mark = reserved->mark;
	bool was = mark && mark->set;

	stream_note(comm, reserved);
	if (!mark || !mark->late || reserved->stays)
		return 0;
	mark->set = was;
	return mark_late(comm, mark);
}

/* ---- streams that stay ----------------------------------------------------------------------- */

int stream_keep(spmt_comm *comm, device_stream stream)
{
	struct stream_key at;
	struct mark *mark;
	int busy;

	if (kept_mark(comm, stream))
		return fail(-EEXIST, "the stream is registered already");
	if (comm->backend->capturing(comm->dev, stream))
		return fail(-EBUSY, "the stream is being captured");
	busy = comm->backend->stream_query(comm->dev, stream);
	if (busy < 0)
		return busy;
	at = stream_key_kept(comm, stream);
	mark = used_mark(comm, &at, false);
	if (!mark)
		return fail(-ENOMEM, "out of memory for one more stream");
	mark->at = at;
	mark->users = false;
	mark->kept = true;
	return 0;
}

/* From here on the stream may go, and what waits for its work has to do without it. */
int stream_keep_end(spmt_comm *comm, device_stream stream)
{
	struct mark *mark = kept_mark(comm, stream);
	int rc;

	if (!mark)
		return fail(-EINVAL, "the stream is not registered");
	rc = mark_late(comm, mark);
	if (!rc && comm->collective.at.stream == stream)
		rc = mark_late(comm, &comm->collective);
	mark->kept = rc != 0;
	return rc;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Kernels keep the same deadline and know what they wait for, so they report first. */
#define GRACE_MS(ms) ((ms) / 8 + 400)

/* One deadline for all streams of a call. */
struct drain {
	int64_t begin; /* ns; 0: nothing waited for yet, so the clock, which takes as long as a small kernel, is unread */
	int64_t limit; /* ns from begin on; INT64_MAX: none */
	const uint32_t *stop;
	bool stopped, broken; /* a wait was cut short, as the world is broken; the world is */
	int64_t linger;	      /* until when what has begun is waited for; 0: it has not been */
	const char *what;     /* the call that waits, for others to see; NULL: not shown */
};

static struct drain drain_for(int64_t ms, const uint32_t *stop)
{
	return (struct drain){ .limit = ms < 0 ? INT64_MAX : ms * 1000000, .stop = stop };
}

static struct drain drain_of(const spmt_comm *comm, const char *what)
{
	int64_t ms = comm_timeout(comm);
	struct drain d =
		drain_for(ms < 0 ? -1 : ms + GRACE_MS(ms), control_stop_word(comm->control));

	d.what = what;
	return d;
}

#define SHOW_NS 1000000 /* a wait that takes longer is shown */

static int64_t drain_left(struct drain *p)
{
	int64_t now = process_now();

	if (!p->begin)
		p->begin = now;
	return p->limit == INT64_MAX ? INT64_MAX : MAX_OF(p->limit - (now - p->begin), 0);
}

static int mark_sync(const spmt_comm *comm, const struct mark *mark, struct drain *p, int64_t most)
{
	int64_t left = p->begin || most == INT64_MAX ? drain_left(p) : p->limit;
	int64_t ns = MIN_OF(left, most);
	const uint32_t *stop = p->stopped ? NULL : p->stop;
	int rc;

	if (ns == INT64_MAX)
		ns = -1;
	rc = mark ? comm->backend->event_sync(comm->dev, mark->event, ns, stop)
		  : comm->backend->stream_sync(comm->dev, comm->stream, ns, stop);
	if (rc == -ETIMEDOUT && !p->begin)
		p->begin = process_now() - ns;
	return rc;
}

/* Waits for `mark`; NULL: for comm's own stream. 0, the code of what failed there, or -ETIMEDOUT: still running. */
static int mark_wait_once(spmt_comm *comm, const struct mark *mark, struct drain *p)
{
	struct wait_for wait = { .name = p->what };
	int rc;

	if (!p->what)
		return mark_sync(comm, mark, p, INT64_MAX);
	waits_call_begin(comm, &wait);
	host_patience(p->begin ? drain_left(p) : p->limit);
	rc = mark_sync(comm, mark, p, SHOW_NS);
	host_patience(0);
	if (rc == -ETIMEDOUT && drain_left(p) > 0) {
		waits_call_show(p->begin);
		rc = mark_sync(comm, mark, p, INT64_MAX);
	}
	waits_call_end();
	return rc;
}

/* Library work that has begun reads and writes buffers until it ends, however long that takes. Virtual devices can tell it from work behind a
   user's kernel. -ETIMEDOUT: it is not such work. */
static int mark_linger(spmt_comm *comm, const struct mark *mark, struct drain *p)
{
	device_event event = mark ? mark->event : NULL;
	int rc = -ETIMEDOUT;

	p->linger = p->linger ? p->linger : process_now() + LINGER_NS;
	if (comm->backend != &backend_host || !comm->stop_word)
		return rc;
	while (rc == -ETIMEDOUT && process_now() < p->linger &&
		host_ends(comm->dev, comm->stream, event, &comm->stop_word->dev->stop))
		rc = mark
			? comm->backend->event_sync(comm->dev, event, LINGER_LOOK_NS, NULL)
			: comm->backend->stream_sync(comm->dev, comm->stream, LINGER_LOOK_NS, NULL);
	return rc;
}

/* Work that has not begun by now never will, as it checks the comm's stop word. That is raised after the cause: others tell by it who broke the comm. */
static void stop_the_rest(const spmt_comm *comm)
{
	struct cause cause;
	KEEPS_SENTENCE;

	comm_cause(comm, &cause);
	comm_stop(comm);
}

/* In a broken world the library's kernels end by themselves, and work queued behind them follows at once: waits for it all, half a second at most for
   what has not begun. */
static int mark_wait(spmt_comm *comm, struct mark *mark, struct drain *p)
{
	int rc = mark ? mark_late(comm, mark) : 0;
	int64_t stopped;

	if (rc)
		return rc;
	rc = mark_wait_once(comm, mark, p);
	if (rc == -ECANCELED) {
		p->stopped = p->broken = true;
		stop_the_rest(comm);
		drain_left(p);
		stopped = process_now() - p->begin + DEVICE_STOPPED_NS;
		p->limit = MIN_OF(p->limit, stopped);
		rc = mark_wait_once(comm, mark, p);
	}
	return rc == -ETIMEDOUT && p->broken ? mark_linger(comm, mark, p) : rc;
}

/* All marks in users' streams, the collectives' last; NULL behind them. Callers skip those of users' own work if they do not want them. */
static struct mark *user_mark(spmt_comm *comm, size_t i)
{
	if (i < comm->nused)
		return &comm->used[i];
	return i == comm->nused && !collective_is_own(comm) ? &comm->collective : NULL;
}

/* Waits for the work of all marks, of users' own where that is asked for, and forgets what has ended. A mark whose wait failed stays. */
static int used_wait(spmt_comm *comm, struct drain *p, bool users)
{
	struct first_failure first;
	struct mark *mark;

	first.rc = 0;
	for (size_t i = 0; (mark = user_mark(comm, i)); i++) {
		int one = 0;

		if (mark->users && !users)
			continue;
		if (mark->set)
			one = mark_wait(comm, mark, p);
		mark->set = mark->set && (mark->late || one == -ETIMEDOUT);
		failure_note(&first, one);
	}
	return failure_tell(&first);
}

static int own_wait(spmt_comm *comm, struct drain *p)
{
	int rc = mark_wait(comm, NULL, p);

	comm->streamed_own = rc == -ETIMEDOUT;
	if (collective_is_own(comm))
		comm->collective.set = comm->streamed_own;
	return rc;
}

/* Notes what is left for the next quiet, or for the next look at the end, which includes users' own work. */
static void used_count(spmt_comm *comm, bool users)
{
	const struct mark *mark;

	comm->streamed = comm->streamed_own || comm->lost;
	for (size_t i = 0; (mark = user_mark(comm, i)); i++)
		comm->streamed |= mark->set && (users || !mark->users);
}

/* Adds a sentence to codes that come without one. */
static int streams_failed(spmt_comm *comm, const char *what, const struct drain *p, int rc)
{
	if (p->stopped)
		return comm_broken(comm, what);
	if (rc != -ETIMEDOUT)
		return rc;
	rc = kernel_failure(comm, what);
	if (rc)
		return rc;
	return fail_call(SPMT_ERR_TIMEOUT, what,
		"rank %d: work queued in its streams is not done after %.*f s", comm->rank,
		SECONDS((double)p->limit / 1e9));
}

/* The next quiet waits for work that goes on, whoever queued it. */
int stream_drain(spmt_comm *comm, const char *what)
{
	struct drain p = drain_of(comm, what);
	bool noted = comm->streamed_own;
	int rc = own_wait(comm, &p);

	comm->streamed |= comm->streamed_own;
	comm->streamed_own |= noted;
	return rc || p.stopped ? streams_failed(comm, what, &p, rc) : 0;
}

static int marks_join(spmt_comm *comm, const struct reserved *reserved, bool users)
{
	struct mark *mark;
	int rc = 0;

	for (size_t i = 0; !rc && (mark = user_mark(comm, i)); i++)
		if (mark != reserved->mark /* that was waited for when it was reserved */ &&
			(users || !mark->users))
			rc = mark_join(comm, mark, &reserved->at);
	return rc;
}

int streams_join(spmt_comm *comm, const struct reserved *reserved)
{
	return marks_join(comm, reserved, false);
}

int streams_quiet(spmt_comm *comm, const char *what)
{
	struct first_failure first;
	struct drain p = drain_of(comm, what);
	int rc;

	first.rc = 0;
	failure_note(&first, comm->streamed_own ? own_wait(comm, &p) : 0);
	failure_note(&first, used_wait(comm, &p, false));
	rc = failure_tell(&first);
	used_count(comm, false);
	if (rc || p.stopped)
		rc = streams_failed(comm, what, &p, rc);
	if (!rc)
		rc = kernel_failure(comm, what);
	/* If the world is broken, that is the cause of what failed here. */
	return rc && comm_is_broken(comm) ? comm_broken(comm, what) : rc;
}

/* ---- the end --------------------------------------------------------------------------------- */

int64_t streams_deadline(const spmt_comm *comm)
{
	int64_t ms = comm_timeout(comm);

	ms = ms < 0 ? SETTLE_MS : ms;
	if (comm->stream && comm_cpu_access(comm))
		ms = MIN_OF(ms, SETTLE_HANDOVER_MS);
	return process_now() + ms * 1000000;
}

bool streams_held_back(spmt_comm *comm)
{
	const struct mark *mark;

	for (size_t i = 0; (mark = user_mark(comm, i)); i++)
		if (mark->set && mark->late && comm->backend->capturing(comm->dev, mark->at.stream))
			return true;
	return false;
}

/* A move whose wait was cut short is still in the comm's own stream, whether it was noted or not. */
static int streams_end(spmt_comm *comm, int64_t deadline)
{
	int64_t now = process_now();
	struct drain p = { .begin = now, .limit = deadline - now };
	int own, used;

	/* one half-built has no word to say so */
	p.broken = deadline && comm->control && comm->raised && comm_is_broken(comm);
	if (p.broken)
		stop_the_rest(comm);
	own = own_wait(comm, &p);
	used = used_wait(comm, &p, true);
	used_count(comm, true);
	return own ? own : used;
}

static bool graphs_settle(const spmt_comm *comm, int64_t deadline)
{
	const struct device_graph_ops *graph = comm->backend ? comm->backend->graph : NULL;

	if (!graph || graph->settle(comm, deadline))
		return true;
	log_line(LOG_ERROR, "rank %d: a graph with its work still runs at the end", comm->rank);
	return false;
}

/* From here on users may destroy their streams. What could not be marked there by now is taken for work that never ends. */
static void marks_forget(spmt_comm *comm)
{
	struct mark *mark;

	for (size_t i = 0; (mark = user_mark(comm, i)); i++) {
		comm->lost |= mark->set && mark->late;
		mark->set = mark->set && !mark->late;
		mark->late = mark->kept = false;
	}
	comm->streamed |= comm->lost;
}

/* A registered stream that its user has destroyed all the same takes no event. Virtual devices tell when its work has ended. */
static void marks_gone(spmt_comm *comm, int64_t deadline)
{
	struct mark *mark;

	for (size_t i = 0; comm->backend == &backend_host && (mark = user_mark(comm, i)); i++)
		if (mark->set && mark->late &&
			host_stream_gone(mark->at.stream, mark->at.id, deadline))
			mark->set = mark->late = false;
}

bool streams_settle(spmt_comm *comm, int64_t deadline)
{
	bool graphs = graphs_settle(comm, deadline);
	int rc;

	marks_gone(comm, deadline);
	rc = comm->stream ? streams_end(comm, deadline) : 0;
	marks_forget(comm);
	if (rc)
		log_line(LOG_ERROR, "rank %d: work is still in its streams at the end (%d)",
			comm->rank, rc);
	comm->streamed |= !graphs;
	return !comm->stream || !comm->streamed;
}

bool streams_ended(spmt_comm *comm)
{
	if (comm->stream)
		streams_end(comm, 0);
	return !comm->stream || !comm->streamed;
}

bool streams_hand_over(spmt_comm *comm, void (*release)(void *arg), void *arg)
{
	struct reserved own;
	int rc = comm->lost ? -EBUSY : 0;

	stream_look(comm, comm->stream, &own);
	if (!rc)
		rc = marks_join(comm, &own, true);
	if (!rc && comm->backend->graph)
		rc = comm->backend->graph->join(comm->dev, comm->stream, comm);
	if (!rc)
		rc = comm->backend->call(comm->dev, comm->stream, release, arg);
	if (rc)
		log_line(LOG_ERROR, "rank %d: what goes on there is never released", comm->rank);
	return !rc;
}

void streams_drop(spmt_comm *comm)
{
	for (size_t i = 0; i < comm->nused; i++)
		mark_drop(comm, &comm->used[i]);
	mem_free(comm->used);
	comm->used = NULL;
	comm->nused = 0;
	mark_drop(comm, &comm->collective);
}
