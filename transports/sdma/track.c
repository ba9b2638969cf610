/* SPDX-License-Identifier: MIT */
#include "track.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/device/gpu/vendor.h"

#define MOST_ROOM 65536 /* moves a track remembers at most: then it waits */
#define YIELDS 16
#define SLICE_NS 1000000 /* longest sleep between two looks at an event */
#define CLOSE_WAIT_MS 10000

/* ---- waiting */

/* 1 done, 0 not yet, or the code of a stream or engine in which this move, or an earlier one of some link, failed. */
static int slot_query(
	const struct link *link, const struct track *track, const struct track_slot *slot)
{
	if (slot->ringed)
		return sdma_ring_query(track->ring, slot->span.end);
	return slot->marked ? link->backend->event_query(link->dev, slot->behind)
			    : link->backend->stream_query(link->dev, track->stream);
}

/*
 * Sleeps in the stream's own wait, which wakes when all that is queued is served; other links may have queued more behind ours,
 * hence the slices.
 */
static int stream_wait(const struct link *link, const struct track *track, int64_t end,
	const uint32_t *stop, int *verdict)
{
	const struct track_slot *last = track_slot(track, track->last[0]);
	int yields = 0, rc;

	while (!(*verdict = slot_query(link, track, last))) {
		int64_t left = end - process_now();

		if (left <= 0)
			return -ETIMEDOUT;
		if (yields++ < YIELDS) {
			sched_yield();
			continue;
		}
		rc = link->backend->stream_sync(
			link->dev, track->stream, MIN_OF(left, SLICE_NS), stop);
		if (rc == -ECANCELED)
			return rc;
	}
	return 0;
}

static int ring_asked(void *ctx)
{
	const struct track *track = ctx;

	return sdma_ring_query(track->ring, track_slot(track, track->last[1])->span.end);
}

static int ring_wait(struct track *track, int64_t end, const uint32_t *stop, int *verdict)
{
	int rc = vendor_wait(ring_asked, track, process_left(end), stop);

	*verdict = rc ? rc : 1;
	return rc == -ETIMEDOUT || rc == -ECANCELED ? rc : 0;
}

/*
 * Until the last moves of a track are served, in its stream and in its ring: 1 or a code of each in verdict[]. -ETIMEDOUT or
 * -ECANCELED: they are not.
 */
static int track_wait(const struct link *link, struct track *track, struct move_wait *wait,
	const uint32_t *stop, int verdict[2])
{
	int64_t end = move_wait_end(wait);
	int rc = 0;

	verdict[0] = verdict[1] = 1;
	if ((int64_t)(track->last[1] - track->done) >= 0)
		rc = ring_wait(track, end, stop, &verdict[1]);
	if (!rc && (int64_t)(track->last[0] - track->done) >= 0)
		rc = stream_wait(link, track, end, stop, &verdict[0]);
	return rc;
}

/* ---- what failed */

static int redo(const struct link *link, const struct sdma_move *m)
{
	const struct backend *b = link->backend;
	int64_t ms = *link->timeout_ms;
	device_stream s;
	int rc = b->stream_create(link->dev, &s);

	if (rc)
		return rc;
	rc = b->copy(link->dev, m->dst, m->src, m->n, s);
	if (!rc)
		rc = b->stream_sync(link->dev, s, ms < 0 ? -1 : ms * 1000000, link->stop);
	rc = link_wait_failed(link, "sdma", rc);
	b->stream_destroy(link->dev, s);
	return rc;
}

static void note_failure(
	const struct link *link, struct sdma *st, const struct sdma_move *m, int rc)
{
	if (st->error)
		return;
	st->error = fail_rank(rc, link->rank, "copy of %zu bytes between %p and rank %d failed: %s",
		m->n, m->dst, link->pe, status_sentence());
	status_save(&st->why);
}

/*
 * Whether this move is the one that failed. After a failure neither stream nor engine runs anything more. An engine tells where it
 * has stopped; of this link's moves in a stream only the first that failed can be the cause: it is if the stream was still sound
 * before it. (Two links that submit at the same moment may both be blamed.)
 */
static bool is_cause(const struct link *link, const struct track *track,
	const struct track_slot *slot, bool first)
{
	if (slot->ringed)
		return sdma_ring_culprit(track->ring, &slot->span);
	return first &&
		!(slot->guarded && link->backend->event_query(link->dev, slot->before) != 1);
}

/* The cause is not tried again, since its addresses may be no longer valid. The others never ran, and are made now, in a stream of
   their own. */
static void recover(struct link *link, struct sdma *st, int i, const int verdict[2])
{
	struct track *track = &st->tracks[i];
	bool first = true;

	if (verdict[0] < 0)
		copy_queue_renew(st->queue, i, track->stream);
	for (uint64_t t = track->done; t != track->issued; t++) {
		const struct track_slot *slot = track_slot(track, t);
		int rc = slot_query(link, track, slot);

		if (rc == 1)
			continue;
		rc = verdict[slot->ringed];
		if (!is_cause(link, track, slot, first))
			rc = redo(link, &slot->move);
		first = first && slot->ringed;
		if (rc)
			note_failure(link, st, &slot->move, rc);
	}
}

/* The track's failure in words, and for good if it is the engine's. */
static void tell_failure(struct link *link, const int verdict[2])
{
	log_line(LOG_WARN, "rank %d: a copy stream to rank %d failed: %s", link->rank, link->pe,
		status_sentence());
	if (verdict[1] < 0)
		link_fall(link, LINK_FELL_TO_STREAMS, status_sentence());
}

int track_settle(struct link *link, struct sdma *st, int i, struct move_wait *wait)
{
	struct move_wait last = { .ms = CLOSE_WAIT_MS };
	struct track *track = &st->tracks[i];
	int rc, verdict[2];

	if (track->issued == track->done)
		return 0;
	rc = track_wait(link, track, wait, link->stop, verdict);
	if (rc == -ECANCELED && track_wait(link, track, &last, NULL, verdict))
		return rc;
	if (rc && rc != -ECANCELED)
		return rc;
	if (verdict[0] < 0 || verdict[1] < 0) {
		tell_failure(link, verdict);
		recover(link, st, i, verdict);
	}
	track->done = track->issued;
	return 0;
}

/* ---- room */

static void track_grow(struct track *track)
{
	uint64_t room = 2 * track->room;
	struct track_slot *more = mem_calloc(room, sizeof(*more));

	if (!more)
		return;
	for (uint64_t t = track->done; t != track->issued; t++)
		more[t & (room - 1)] = *track_slot(track, t);
	mem_free(track->slots);
	track->slots = more;
	track->room = room;
}

int track_room(struct link *link, struct sdma *st, int i, struct move_wait *wait)
{
	struct track *track = &st->tracks[i];

	if (track->issued - track->done < track->room)
		return 0;
	while (track->done != track->issued &&
		slot_query(link, track, track_slot(track, track->done)) == 1)
		track->done++;
	if (track->issued - track->done == track->room && track->room < MOST_ROOM)
		track_grow(track);
	return track->issued - track->done < track->room ? 0 : track_settle(link, st, i, wait);
}

/* ---- ends */

void lanes_drain(const struct link *link, const struct sdma *st)
{
	struct move_wait wait = link_wait_of(link);
	int verdict[2];

	if (wait.ms < 0)
		wait.ms = CLOSE_WAIT_MS;
	for (int i = 0; i < st->ntracks; i++) {
		struct track track = st->tracks[i];

		if (track.issued != track.done && track_wait(link, &track, &wait, NULL, verdict))
			log_line(LOG_ERROR, "rank %d: copies to rank %d still in flight at the end",
				link->rank, link->pe);
	}
}

void link_fall(struct link *link, enum link_fall fall, const char *why)
{
	int fell = atomic_load_explicit(&link->fell_back, memory_order_relaxed);

	if (fell >= (int)fall)
		return;
	if (fell == LINK_STANDS)
		snprintf(link->why, sizeof(link->why), "sdma: %s%.*s",
			fall == LINK_FELL_TO_STREAMS ? "streams: " : "",
			(int)sizeof(link->why) - 16, why);
	log_line(LOG_WARN, "rank %d: no %s queue to rank %d; %s", link->rank,
		fall == LINK_FELL_TO_STREAMS ? "user-mode" : "copy", link->pe, link->why);
	atomic_store_explicit(&link->fell_back, (int)fall, memory_order_release);
}
