/* SPDX-License-Identifier: MIT */
#include "sdma.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "track.h"

#define FIRST_ROOM 16		    /* moves a track remembers at first */
#define FIRST_TICKET ((uint64_t)-8) /* so that every program sees the counters wrap */

/* ---- a link's share of a copy queue */

static void slot_free(const struct link *link, struct track_slot *slot)
{
	if (slot->before)
		link->backend->event_destroy(link->dev, slot->before);
	if (slot->behind)
		link->backend->event_destroy(link->dev, slot->behind);
}

static void state_free(struct link *link, struct sdma *st, bool inherited)
{
	for (int i = 0; i < st->ntracks; i++) {
		struct track *track = &st->tracks[i];

		for (uint64_t k = 0; k < track->room && !inherited; k++)
			slot_free(link, &track->slots[k]);
		mem_free(track->slots);
	}
	if (!inherited)
		copy_queue_drop(st->queue);
	mem_free(st);
}

static int track_make(struct track *track, struct sdma_ring *ring)
{
	track->ring = ring;
	track->issued = track->done = FIRST_TICKET;
	track->last[0] = track->last[1] = FIRST_TICKET - 1;
	track->slots = mem_calloc(FIRST_ROOM, sizeof(*track->slots));
	if (!track->slots)
		return fail(-ENOMEM, "no memory for the moves of a copy queue");
	track->room = FIRST_ROOM;
	return 0;
}

static int state_make(struct link *link, struct sdma **state)
{
	const struct env *env;
	struct copy_queue *q;
	struct sdma *st;
	int rc = env_get(&env);

	if (!rc)
		rc = copy_queue_get(link->backend, link->dev, link->peer_dev,
			(int)MIN_OF(env->channels, COPY_QUEUE_TRACKS), &q);
	if (rc)
		return rc;
	st = mem_calloc(1, sizeof(*st) + (size_t)q->ntracks * sizeof(st->tracks[0]));
	if (!st) {
		copy_queue_drop(q);
		return fail(-ENOMEM, "no memory for a link's share of a copy queue");
	}
	st->queue = q;
	st->most = SIZE_MAX;
	while (!rc && st->ntracks < q->ntracks) {
		struct sdma_ring *ring = q->rings[st->ntracks];

		st->most = ring ? MIN_OF(st->most, ring->most) : st->most;
		rc = track_make(&st->tracks[st->ntracks++], ring);
	}
	if (rc) {
		state_free(link, st, false);
		return rc;
	}
	if (q->why[0])
		link_fall(link, LINK_FELL_TO_STREAMS, q->why);
	*state = st;
	return 0;
}

/* The move that asked is made by other means, so the thread's sentence is left as it was. */
static void fall_back(struct mover *m)
{
	struct link *link = m->link;

	link_fall(link, LINK_FELL_TO_STORE, status_sentence());
	m->ops = &mover_store;
}

void link_route(const struct link *link, struct route *route)
{
	size_t used = strnlen(link->route.reason, sizeof(link->route.reason) - 1);
	int fell = atomic_load_explicit(&link->fell_back, memory_order_acquire);

	*route = link->route;
	if (fell == LINK_STANDS)
		return;
	snprintf(route->reason + used, sizeof(route->reason) - used, "; %s", link->why);
	if (fell != LINK_FELL_TO_STORE)
		return;
	route->movers[0] = MOVER_STORE;
	route->nmovers = 1;
	route->threshold = UINT64_MAX;
}

/* The first failure. In a broken world the other queues are waited for all the same. */
static int settle_all(struct link *link, struct sdma *st, const char *what, struct move_wait *wait)
{
	struct first_failure first;

	first.rc = 0;
	for (int i = 0; i < st->ntracks && (!first.rc || first.rc == -ECANCELED); i++) {
		int one = track_settle(link, st, i, wait);

		failure_note(&first, one ? link_wait_failed(link, what, one) : 0);
	}
	return failure_tell(&first);
}

/* ---- moving */

/* Moves in a stream that the copy queue has since given up are settled first. */
static int track_ready(struct link *link, struct sdma *st, int i)
{
	device_stream now = atomic_load_explicit(&st->queue->tracks[i], memory_order_acquire);
	struct track *track = &st->tracks[i];
	struct move_wait wait = link_wait_of(link);
	int rc = track->stream == now ? track_room(link, st, i, &wait)
				      : track_settle(link, st, i, &wait);

	if (!rc)
		track->stream = now;
	return rc;
}

/* False where there is no event to be had. */
static bool mark_event(const struct link *link, const struct track *track, device_event *event)
{
	const struct backend *b = link->backend;

	if (!*event && b->event_create(link->dev, event))
		return false;
	return !b->event_record(link->dev, *event, track->stream);
}

/* Packets are for what the engine reaches by itself, and for ranges that do not overlap. */
static bool ring_takes(
	const struct link *link, const struct sdma_ring *r, const struct sdma_move *m)
{
	const struct device_sdma_ops *ops = link->backend->sdma;
	uintptr_t to = (uintptr_t)m->dst, from = (uintptr_t)m->src;

	return r && !atomic_load_explicit(&r->queue->error, memory_order_relaxed) &&
		(to > from ? to - from : from - to) >= m->n &&
		ops->reaches(link->dev, m->dst, m->n) && ops->reaches(link->dev, m->src, m->n);
}

/* An engine that has stopped takes no more: then the stream does it. */
static int track_by_ring(struct link *link, const struct track *track, struct track_slot *slot,
	const struct sdma_move *m)
{
	int64_t ms = *link->timeout_ms;
	int rc = sdma_ring_copy(track->ring, m->dst, m->src, m->n, ms < 0 ? -1 : ms * 1000000,
		link->stop, &slot->span);

	slot->ringed = !rc;
	return rc == -ETIMEDOUT || rc == -ECANCELED ? link_wait_failed(link, "sdma", rc) : 0;
}

/* Alone in a copy queue a link needs no proof of whose fault a failure is. */
static int track_by_stream(const struct link *link, const struct sdma *st,
	const struct track *track, struct track_slot *slot, const struct sdma_move *m)
{
	int rc;

	slot->guarded = copy_queue_shared(st->queue) && mark_event(link, track, &slot->before);
	rc = link->backend->copy(link->dev, m->dst, m->src, m->n, track->stream);
	if (!rc)
		slot->marked = mark_event(link, track, &slot->behind);
	return rc;
}

static int track_copy(struct link *link, struct sdma *st, int i, const struct sdma_move *m)
{
	struct track *track = &st->tracks[i];
	struct track_slot *slot = track_slot(track, track->issued);
	int rc = 0;

	slot->ringed = false;
	if (ring_takes(link, track->ring, m))
		rc = track_by_ring(link, track, slot, m);
	if (!rc && !slot->ringed)
		rc = track_by_stream(link, st, track, slot, m);
	if (rc)
		return rc;
	slot->move = *m;
	track->last[slot->ringed] = track->issued++;
	link->pending = true;
	return 0;
}

/* A failed stream may refuse new work; then it goes into the one that takes its place. */
static int submit(struct link *link, struct sdma *st, int i, const struct sdma_move *m)
{
	int rc = link_wait_failed(link, "sdma", track_ready(link, st, i));
	device_stream stream = st->tracks[i].stream;

	if (rc)
		return rc;
	rc = track_copy(link, st, i, m);
	if (!rc || link->backend->stream_query(link->dev, stream) >= 0)
		return rc;
	rc = copy_queue_renew(st->queue, i, stream);
	if (!rc)
		rc = link_wait_failed(link, "sdma", track_ready(link, st, i));
	return rc ? rc : track_copy(link, st, i, m);
}

/* Settled before as well, so that a failure found behind it can only be this move's. */
static int submit_and_wait(struct link *link, struct sdma *st, int i, const struct sdma_move *m)
{
	struct status_saved why;
	bool pending = link->pending;
	struct move_wait wait = link_wait_of(link);
	int rc = link_wait_failed(link, "sdma", track_settle(link, st, i, &wait));
	int before = st->error;

	if (rc)
		return rc;
	why = st->why;
	st->error = 0;
	rc = submit(link, st, i, m);
	if (!rc)
		rc = link_wait_failed(link, "sdma", track_settle(link, st, i, &wait));
	if (!rc)
		link->pending = pending;
	if (!rc && st->error)
		rc = fail_again(st->error, &st->why);
	st->error = before;
	st->why = why;
	return rc;
}

/* Made by the first move that needs it. NULL: the mover has fallen back, and the thread's sentence is as it was. */
static struct sdma *state_of(struct mover *m)
{
	struct status_saved saved;
	struct sdma *st = m->state;

	if (LIKELY(st))
		return st;
	status_save(&saved);
	if (state_make(m->link, &st)) {
		fall_back(m);
		status_restore(&saved);
		return NULL;
	}
	m->state = st;
	return st;
}

static int sdma_stream_move(
	struct link *link, void *dst, const void *src, size_t n, device_stream stream)
{
	int rc = link_stream_copy(link, dst, src, n, stream);

	if (!rc)
		link_count(link, MOVER_SDMA, n);
	return rc;
}

/* In parts where a ring does not take it at once. */
static int sdma_move(struct mover *m, const struct sdma_move *move, enum move_mode mode)
{
	struct sdma *st = m->state;
	int rc = 0;

	for (size_t at = 0; at < move->n && !rc; at += st->most) {
		struct sdma_move part = { .dst = (char *)move->dst + at,
			.src = (const char *)move->src + at,
			.n = MIN_OF(move->n - at, st->most) };
		int i = copy_queue_reserve(st->queue);

		rc = mode == MOVE_NBI ? submit(m->link, st, i, &part)
				      : submit_and_wait(m->link, st, i, &part);
		if (st->most >= move->n - at)
			break;
	}
	if (!rc)
		link_count(m->link, MOVER_SDMA, move->n);
	return rc;
}

static int sdma_put(struct mover *m, uint64_t offset, const void *local, size_t n,
	enum move_mode mode, device_stream stream)
{
	struct sdma_move move = { .dst = link_at(m->link, offset), .src = local, .n = n };

	if (mode == MOVE_STREAM)
		return sdma_stream_move(m->link, move.dst, local, n, stream);
	if (!state_of(m))
		return mover_store.put(m, offset, local, n, mode, stream);
	return sdma_move(m, &move, mode);
}

static int sdma_get(struct mover *m, void *local, uint64_t offset, size_t n, enum move_mode mode,
	device_stream stream)
{
	struct sdma_move move = { .dst = local, .src = link_at(m->link, offset), .n = n };

	if (mode == MOVE_STREAM)
		return sdma_stream_move(m->link, local, move.src, n, stream);
	if (!state_of(m))
		return mover_store.get(m, local, offset, n, mode, stream);
	return sdma_move(m, &move, mode);
}

static int sdma_fence(struct mover *m, struct move_wait *wait)
{
	struct sdma *st = m->state;
	int rc = st ? settle_all(m->link, st, "fence", wait) : 0;

	return !rc && st && st->error ? fail_again(st->error, &st->why) : rc;
}

static int sdma_quiet(struct mover *m, struct move_wait *wait)
{
	struct sdma *st = m->state;
	int rc = st ? settle_all(m->link, st, "quiet", wait) : 0;

	if (rc || !st || !st->error)
		return rc;
	rc = fail_again(st->error, &st->why);
	st->error = 0;
	return rc;
}

static void sdma_close(struct mover *m)
{
	struct sdma *st = m->state;
	bool inherited = st && copy_queue_inherited(st->queue);

	if (!st)
		return;
	m->state = NULL;
	if (!inherited)
		lanes_drain(m->link, st);
	state_free(m->link, st, inherited);
}

const struct mover_ops mover_sdma = {
	.name = "sdma",
	.put = sdma_put,
	.get = sdma_get,
	.signal = store_signal,
	.atomic = store_atomic,
	.fence = sdma_fence,
	.quiet = sdma_quiet,
	.close = sdma_close,
};

static const struct sdma *state_in(const struct link *link)
{
	for (int i = 0; i < link->nmovers; i++)
		if (link->movers[i].ops == &mover_sdma)
			return link->movers[i].state;
	return NULL;
}

int sdma_stream(const struct link *link, int i, device_stream *stream)
{
	const struct sdma *st = state_in(link);

	if (!st || i < 0 || i >= st->ntracks)
		return -ENOENT;
	*stream = atomic_load_explicit(&st->queue->tracks[i], memory_order_acquire);
	return 0;
}

uint64_t sdma_pending(const struct link *link)
{
	const struct sdma *st = state_in(link);
	uint64_t n = 0;

	for (int i = 0; st && i < st->ntracks; i++)
		n += st->tracks[i].issued - st->tracks[i].done;
	return n;
}
