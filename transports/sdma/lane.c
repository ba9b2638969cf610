/* SPDX-License-Identifier: MIT */
#include "lane.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/device/gpu/vendor.h"

#define MOST_ROOM 65536 /* moves a lane remembers at most: then it waits */
#define YIELDS 16
#define SLICE_NS 1000000 /* longest sleep between two looks at an event */
#define CLOSE_WAIT_MS 10000

/* ---- waiting */

/* 1 done, 0 not yet, or the code of a stream or engine in which this move failed, or some link's before it. */
static int slot_query(
	const struct link *link, const struct lane *lane, const struct lane_slot *slot)
{
	if (slot->ringed)
		return sdma_ring_query(lane->ring, slot->span.end);
	return slot->marked ? link->backend->event_query(link->dev, slot->behind)
			    : link->backend->stream_query(link->dev, lane->stream);
}

/*
 * Sleeps in the stream's own wait, which wakes when all that is queued is served; other links may have queued more behind ours,
 * hence the slices.
 */
static int stream_wait(const struct link *link, const struct lane *lane, int64_t end,
	const uint32_t *stop, int *verdict)
{
	const struct lane_slot *last = lane_slot(lane, lane->last[0]);
	int yields = 0, rc;

	while (!(*verdict = slot_query(link, lane, last))) {
		int64_t left = end - process_now();

		if (left <= 0)
			return -ETIMEDOUT;
		if (yields++ < YIELDS) {
			sched_yield();
			continue;
		}
		rc = link->backend->stream_sync(
			link->dev, lane->stream, MIN_OF(left, SLICE_NS), stop);
		if (rc == -ECANCELED)
			return rc;
	}
	return 0;
}

static int ring_asked(void *ctx)
{
	const struct lane *lane = ctx;

	return sdma_ring_query(lane->ring, lane_slot(lane, lane->last[1])->span.end);
}

static int ring_wait(struct lane *lane, int64_t end, const uint32_t *stop, int *verdict)
{
	int rc = vendor_wait(ring_asked, lane, MAX_OF(end - process_now(), 0), stop);

	*verdict = rc ? rc : 1;
	return rc == -ETIMEDOUT || rc == -ECANCELED ? rc : 0;
}

/*
 * Until the last moves of a lane are served, in its stream and in its ring: 1 or a code of each in verdict[]. -ETIMEDOUT or
 * -ECANCELED: they are not.
 */
static int lane_wait(const struct link *link, struct lane *lane, int64_t timeout_ms,
	const uint32_t *stop, int verdict[2])
{
	bool forever = timeout_ms < 0 || timeout_ms > INT64_MAX / 4000000;
	int64_t end = forever ? INT64_MAX : process_now() + timeout_ms * 1000000;
	int rc = 0;

	verdict[0] = verdict[1] = 1;
	if ((int64_t)(lane->last[1] - lane->done) >= 0)
		rc = ring_wait(lane, end, stop, &verdict[1]);
	if (!rc && (int64_t)(lane->last[0] - lane->done) >= 0)
		rc = stream_wait(link, lane, end, stop, &verdict[0]);
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
static bool is_cause(
	const struct link *link, const struct lane *lane, const struct lane_slot *slot, bool first)
{
	if (slot->ringed)
		return sdma_ring_culprit(lane->ring, &slot->span);
	return first &&
		!(slot->guarded && link->backend->event_query(link->dev, slot->before) != 1);
}

/* The cause is not tried again, since its addresses may be no longer valid. The others never ran, and are made now, in a stream of
   their own. */
static void recover(struct link *link, struct sdma *st, int i, const int verdict[2])
{
	struct lane *lane = &st->lanes[i];
	bool first = true;

	if (verdict[0] < 0)
		copy_queue_renew(st->queue, i, lane->stream);
	for (uint64_t t = lane->done; t != lane->issued; t++) {
		const struct lane_slot *slot = lane_slot(lane, t);
		int rc = slot_query(link, lane, slot);

		if (rc == 1)
			continue;
		rc = verdict[slot->ringed];
		if (!is_cause(link, lane, slot, first))
			rc = redo(link, &slot->move);
		first = first && slot->ringed;
		if (rc)
			note_failure(link, st, &slot->move, rc);
	}
}

/* The lane's failure in words, and for good if it is the engine's. */
static void tell_failure(struct link *link, const int verdict[2])
{
	log_line(LOG_WARN, "rank %d: a copy stream to rank %d failed: %s", link->rank, link->pe,
		status_sentence());
	if (verdict[1] < 0)
		link_fall(link, LINK_FELL_TO_STREAMS, status_sentence());
}

int lane_settle(struct link *link, struct sdma *st, int i)
{
	struct lane *lane = &st->lanes[i];
	int rc, verdict[2];

	if (lane->issued == lane->done)
		return 0;
	rc = lane_wait(link, lane, *link->timeout_ms, link->stop, verdict);
	if (rc == -ECANCELED && lane_wait(link, lane, CLOSE_WAIT_MS, NULL, verdict))
		return rc;
	if (rc && rc != -ECANCELED)
		return rc;
	if (verdict[0] < 0 || verdict[1] < 0) {
		tell_failure(link, verdict);
		recover(link, st, i, verdict);
	}
	lane->done = lane->issued;
	return 0;
}

/* ---- room */

static void lane_grow(struct lane *lane)
{
	uint64_t room = 2 * lane->room;
	struct lane_slot *more = mem_calloc(room, sizeof(*more));

	if (!more)
		return;
	for (uint64_t t = lane->done; t != lane->issued; t++)
		more[t & (room - 1)] = *lane_slot(lane, t);
	mem_free(lane->slots);
	lane->slots = more;
	lane->room = room;
}

int lane_room(struct link *link, struct sdma *st, int i)
{
	struct lane *lane = &st->lanes[i];

	if (lane->issued - lane->done < lane->room)
		return 0;
	while (lane->done != lane->issued &&
		slot_query(link, lane, lane_slot(lane, lane->done)) == 1)
		lane->done++;
	if (lane->issued - lane->done == lane->room && lane->room < MOST_ROOM)
		lane_grow(lane);
	return lane->issued - lane->done < lane->room ? 0 : lane_settle(link, st, i);
}

/* ---- ends */

void lanes_drain(const struct link *link, const struct sdma *st)
{
	int64_t ms = *link->timeout_ms;
	int verdict[2];

	for (int i = 0; i < st->nlanes; i++) {
		struct lane lane = st->lanes[i];

		if (lane.issued != lane.done &&
			lane_wait(link, &lane, ms < 0 ? CLOSE_WAIT_MS : ms, NULL, verdict))
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
