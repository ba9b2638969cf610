/* SPDX-License-Identifier: MIT */
#include "copy_queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "include/spmt.h"
#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define BUCKETS 512

/* A forked child sees an empty map. The copy queues it has inherited stay in memory, but no stream of theirs is touched. */
struct copy_queue_map {
	pthread_mutex_t
		lock; /* guards the map and next, refs, retired and writes to tracks of all copy queues */
	size_t live;
	struct copy_queue *buckets[BUCKETS];
};

static void *_Atomic map_slot;

static struct copy_queue **bucket(
	struct copy_queue_map *map, const struct backend *b, int src, int dst)
{
	uint64_t h = (uint64_t)(uintptr_t)b ^ (uint64_t)src << 20 ^ (uint64_t)dst;

	return &map->buckets[(h * 0x9E3779B97F4A7C15u) >> 32 & (BUCKETS - 1)];
}

/* Takes half-made ones. Queued work still runs. */
static void copy_queue_destroy(struct copy_queue *q)
{
	for (int i = 0; i < q->ntracks; i++) {
		sdma_ring_close(q->rings[i]);
		if (q->tracks[i])
			q->backend->stream_destroy(q->src, q->tracks[i]);
	}
	while (q->retired) {
		struct retired *r = q->retired;

		q->retired = r->next;
		q->backend->stream_destroy(q->src, r->stream);
		mem_free(r);
	}
	mem_free(q);
}

/* A queue also works without rings: notes why there are none, and leaves the thread's sentence as it was. */
static void copy_queue_rings(struct copy_queue *q)
{
	const struct backend *b = q->backend;
	int rc = 0;
	KEEPS_SENTENCE;

	if (!b->sdma)
		rc = fail(SPMT_ERR_UNSUPPORTED, "there are no user-mode queues for %s", b->name);
	for (int i = 0; i < q->ntracks && !rc; i++)
		rc = sdma_ring_open(b, q->src, q->dst, &q->rings[i]);
	if (rc)
		snprintf(
			q->why, sizeof(q->why), "%.*s", (int)sizeof(q->why) - 1, status_sentence());
}

static int copy_queue_make(
	const struct backend *b, int src, int dst, int ntracks, struct copy_queue **queue)
{
	struct copy_queue *q = mem_calloc(1, sizeof(*q));
	const struct env *env;
	int rc = env_get(&env);

	if (!q)
		return fail(-ENOMEM, "no memory for a copy queue");
	*q = (struct copy_queue){ .backend = b, .src = src, .dst = dst, .ntracks = ntracks };
	for (int i = 0; i < ntracks && !rc; i++) {
		device_stream s;

		rc = b->stream_create(src, &s);
		if (!rc)
			q->tracks[i] = s;
	}
	if (rc) {
		copy_queue_destroy(q);
		return rc;
	}
	if (env->sdma == ENV_SDMA_QUEUES)
		copy_queue_rings(q);
	*queue = q;
	return 0;
}

int copy_queue_get(
	const struct backend *b, int src, int dst, int ntracks, struct copy_queue **queue)
{
	struct copy_queue_map *map = process_state(&map_slot, sizeof(*map));
	struct copy_queue **head, *q;
	int rc = 0;

	if (!map)
		return fail(-ENOMEM, "no memory for the map of copy queues");
	head = bucket(map, b, src, dst);
	pthread_mutex_lock(&map->lock);
	for (q = *head; q; q = q->next)
		if (q->backend == b && q->src == src && q->dst == dst)
			break;
	if (!q) {
		rc = copy_queue_make(b, src, dst, ntracks, &q);
		if (q) {
			q->next = *head;
			*head = q;
			map->live++;
		}
	}
	if (q) {
		q->refs++;
		*queue = q;
	}
	pthread_mutex_unlock(&map->lock);
	return rc;
}

/* Where the map points to q; NULL in a forked child that inherited it. Under the lock. */
static struct copy_queue **copy_queue_place(struct copy_queue_map *map, const struct copy_queue *q)
{
	struct copy_queue **at = bucket(map, q->backend, q->src, q->dst);

	while (*at && *at != q)
		at = &(*at)->next;
	return *at ? at : NULL;
}

bool copy_queue_inherited(const struct copy_queue *q)
{
	struct copy_queue_map *map = map_slot;
	bool ours;

	pthread_mutex_lock(&map->lock);
	ours = copy_queue_place(map, q);
	pthread_mutex_unlock(&map->lock);
	return !ours;
}

void copy_queue_drop(struct copy_queue *q)
{
	struct copy_queue_map *map = map_slot;
	struct copy_queue **at;
	bool last;

	pthread_mutex_lock(&map->lock);
	at = copy_queue_place(map, q);
	last = at && --q->refs == 0;
	if (last) {
		*at = q->next;
		map->live--;
	}
	pthread_mutex_unlock(&map->lock);
	if (last)
		copy_queue_destroy(q);
}

int copy_queue_renew(struct copy_queue *q, int track, device_stream dead)
{
	struct copy_queue_map *map = map_slot;
	struct retired *r = mem_calloc(1, sizeof(*r));
	device_stream fresh;
	int rc = 0;

	if (!r)
		return fail(-ENOMEM, "no memory to replace a failed copy stream");
	pthread_mutex_lock(&map->lock);
	if (q->tracks[track] == dead)
		rc = q->backend->stream_create(q->src, &fresh);
	if (!rc && q->tracks[track] == dead) {
		*r = (struct retired){ .next = q->retired, .stream = dead };
		q->retired = r;
		r = NULL;
		atomic_store_explicit(&q->tracks[track], fresh, memory_order_release);
	}
	pthread_mutex_unlock(&map->lock);
	mem_free(r);
	return rc;
}

size_t copy_queues_live(void)
{
	struct copy_queue_map *map = map_slot;
	size_t n = 0;

	if (map) {
		pthread_mutex_lock(&map->lock);
		n = map->live;
		pthread_mutex_unlock(&map->lock);
	}
	return n;
}
