/* SPDX-License-Identifier: MIT */
#include "copy_queue.h"

#include <errno.h>
#include <pthread.h>

#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define BUCKETS 512

/* A forked child sees an empty map. The channels it has inherited stay in memory, but no stream of theirs is touched. */
struct channel_map {
	pthread_mutex_t
		lock; /* guards the map and next, refs, retired and writes to lanes of all channels */
	size_t live;
	struct channel *buckets[BUCKETS];
};

static void *_Atomic map_slot;

static struct channel **bucket(struct channel_map *map, const struct backend *b, int src, int dst)
{
	uint64_t h = (uint64_t)(uintptr_t)b ^ (uint64_t)src << 20 ^ (uint64_t)dst;

	return &map->buckets[(h * 0x9E3779B97F4A7C15u) >> 32 & (BUCKETS - 1)];
}

/* Takes half-made ones. Queued work still runs. */
static void channel_destroy(struct channel *ch)
{
	for (int i = 0; i < ch->nlanes; i++)
		if (ch->lanes[i])
			ch->backend->stream_destroy(ch->src, ch->lanes[i]);
	while (ch->retired) {
		struct retired *r = ch->retired;

		ch->retired = r->next;
		ch->backend->stream_destroy(ch->src, r->stream);
		mem_free(r);
	}
	mem_free(ch);
}

static int channel_make(
	const struct backend *b, int src, int dst, int nlanes, struct channel **channel)
{
	struct channel *ch = mem_calloc(1, sizeof(*ch));
	int rc = 0;

	if (!ch)
		return fail(-ENOMEM, "no memory for a copy channel");
	*ch = (struct channel){ .backend = b, .src = src, .dst = dst, .nlanes = nlanes };
	for (int i = 0; i < nlanes && !rc; i++) {
		device_stream s;

		rc = b->stream_create(src, &s);
		if (!rc)
			ch->lanes[i] = s;
	}
	if (rc) {
		channel_destroy(ch);
		return rc;
	}
	*channel = ch;
	return 0;
}

int channel_get(const struct backend *b, int src, int dst, int nlanes, struct channel **channel)
{
	struct channel_map *map = process_state(&map_slot, sizeof(*map));
	struct channel **head, *ch;
	int rc = 0;

	if (!map)
		return fail(-ENOMEM, "no memory for the map of copy channels");
	head = bucket(map, b, src, dst);
	pthread_mutex_lock(&map->lock);
	for (ch = *head; ch; ch = ch->next)
		if (ch->backend == b && ch->src == src && ch->dst == dst)
			break;
	if (!ch) {
		rc = channel_make(b, src, dst, nlanes, &ch);
		if (ch) {
			ch->next = *head;
			*head = ch;
			map->live++;
		}
	}
	if (ch) {
		ch->refs++;
		*channel = ch;
	}
	pthread_mutex_unlock(&map->lock);
	return rc;
}

/* Where the map points to ch; NULL in a forked child that inherited it. Under the lock. */
static struct channel **channel_place(struct channel_map *map, const struct channel *ch)
{
	struct channel **at = bucket(map, ch->backend, ch->src, ch->dst);

	while (*at && *at != ch)
		at = &(*at)->next;
	return *at ? at : NULL;
}

bool channel_inherited(const struct channel *ch)
{
	struct channel_map *map = map_slot;
	bool ours;

	pthread_mutex_lock(&map->lock);
	ours = channel_place(map, ch);
	pthread_mutex_unlock(&map->lock);
	return !ours;
}

void channel_drop(struct channel *ch)
{
	struct channel_map *map = map_slot;
	struct channel **at;
	bool last;

	pthread_mutex_lock(&map->lock);
	at = channel_place(map, ch);
	last = at && --ch->refs == 0;
	if (last) {
		*at = ch->next;
		map->live--;
	}
	pthread_mutex_unlock(&map->lock);
	if (last)
		channel_destroy(ch);
}

int channel_renew(struct channel *ch, int lane, device_stream dead)
{
	struct channel_map *map = map_slot;
	struct retired *r = mem_calloc(1, sizeof(*r));
	device_stream fresh;
	int rc = 0;

	if (!r)
		return fail(-ENOMEM, "no memory to replace a failed copy stream");
	pthread_mutex_lock(&map->lock);
	if (ch->lanes[lane] == dead)
		rc = ch->backend->stream_create(ch->src, &fresh);
	if (!rc && ch->lanes[lane] == dead) {
		*r = (struct retired){ .next = ch->retired, .stream = dead };
		ch->retired = r;
		r = NULL;
		atomic_store_explicit(&ch->lanes[lane], fresh, memory_order_release);
	}
	pthread_mutex_unlock(&map->lock);
	mem_free(r);
	return rc;
}

size_t channels_live(void)
{
	struct channel_map *map = map_slot;
	size_t n = 0;

	if (map) {
		pthread_mutex_lock(&map->lock);
		n = map->live;
		pthread_mutex_unlock(&map->lock);
	}
	return n;
}
