/* SPDX-License-Identifier: MIT */
#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

enum { CACHE_CHECKED, CACHE_OFF, CACHE_TRUSTED }; /* SPMT_RDMA_CACHE */
#define CACHED_MOST 256
#define FRAMES_AT_ONCE 512
#define PAGE_IS_THERE (1ull << 63)
#define PAGE_FRAME ((1ull << 55) - 1)

struct cached {
	struct cached *next;
	struct cache *cache;
	struct region
		region; /* whole pages; mr NULL: it cannot be registered, which need not be tried again */
	uint64_t *frames; /* of its pages; NULL: not asked for */
	int uses;
};

struct region *cached_region(struct cached *cached)
{
	return &cached->region;
}

/* ---- pages ------------------------------------------------------------------------------------ */

/* The page frames of n pages. False: not all are there, or the kernel does not say. */
static bool frames_read(const struct cache *cache, uint64_t first, size_t n, uint64_t *frames)
{
	UNCANCELLED;
	size_t done = 0, all = n * sizeof(*frames);

	while (done < all) {
		ssize_t some = pread(cache->pagemap, (char *)frames + done, all - done,
			(off_t)(first * sizeof(*frames) + done));

		if (some < 0 && errno == EINTR)
			continue;
		if (some <= 0)
			return false;
		done += (size_t)some;
	}
	for (size_t i = 0; i < n; i++) {
		if (!(frames[i] & PAGE_IS_THERE) || !(frames[i] & PAGE_FRAME))
			return false;
		frames[i] &= PAGE_FRAME;
	}
	return true;
}

/*
 * Whether the addresses name the pages that the device has. A registration holds its pages, so that none of them is another memory's
 * meanwhile, and the kernel moves none of them: the same frame is the same page. Whoever passes the range to a move does not
 * change what is mapped there before the move has ended.
 */
static bool frames_are_the_same(const struct cached *e, uint64_t at, size_t n)
{
	size_t page = e->cache->page;
	uint64_t frames[FRAMES_AT_ONCE];
	uint64_t first = at / page, end = (at + n - 1) / page + 1;
	const uint64_t *known = e->frames + (first - (uintptr_t)e->region.base / page);

	while (first < end) {
		size_t some = MIN_OF(end - first, FRAMES_AT_ONCE);

		if (!frames_read(e->cache, first, some, frames) ||
			memcmp(frames, known, some * sizeof(*frames)) != 0)
			return false;
		first += some;
		known += some;
	}
	return true;
}

/* The process's page map; -1: it does not tell this process of frames. */
static int pagemap_open(size_t page)
{
	struct cache probe = { .pagemap = process_fd(
				       open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) };
	uint64_t frame;

	if (probe.pagemap < 0 || frames_read(&probe, (uintptr_t)&probe / page, 1, &frame))
		return probe.pagemap;
	close(probe.pagemap);
	return -1;
}

/* ---- entries ---------------------------------------------------------------------------------- */

static void cached_free(struct cached *e)
{
	region_unknow(e->cache->nic, &e->region);
	mem_free(e->frames);
	mem_free(e);
}

/* Gives back what is dismissed and not in use, or all of it. Not under the lock. */
static void dismissed_free(struct cache *cache, bool all)
{
	struct cached *free = NULL, *e;

	pthread_mutex_lock(&cache->lock);
	for (struct cached **at = &cache->dismissed; *at;) {
		e = *at;
		if (e->uses && !all) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		e->next = free;
		free = e;
	}
	pthread_mutex_unlock(&cache->lock);
	while (free) {
		e = free;
		free = e->next;
		cached_free(e);
	}
}

/* Under the lock: no longer to be found. */
static void cached_dismiss(struct cached **at)
{
	struct cached *e = *at;
	struct cache *cache = e->cache;

	*at = e->next;
	cache->bytes -= e->region.mr ? e->region.size : 0;
	cache->count--;
	e->next = cache->dismissed;
	cache->dismissed = e;
}

/* Under the lock: whether n bytes more fit beside what is in use. */
static bool cache_could_take(const struct cache *cache, size_t n)
{
	size_t bytes = cache->bytes;
	int count = cache->count;

	for (const struct cached *e = cache->entries; e; e = e->next)
		if (!e->uses) {
			bytes -= e->region.mr ? e->region.size : 0;
			count--;
		}
	return n <= cache->most && bytes <= cache->most - n && count < CACHED_MOST;
}

/* Under the lock: of those not in use the one that was used before all others, NULL: there is none. */
static struct cached **cache_oldest(struct cache *cache)
{
	struct cached **oldest = NULL;

	for (struct cached **at = &cache->entries; *at; at = &(*at)->next)
		if (!(*at)->uses)
			oldest = at;
	return oldest;
}

/* Room for one more, of those not in use, the last used last; none of them goes where that is not enough. False: there is none. */
static bool cache_reserve(struct cache *cache, size_t n)
{
	bool fits;

	pthread_mutex_lock(&cache->lock);
	fits = cache_could_take(cache, n);
	while (fits && (cache->bytes + n > cache->most || cache->count >= CACHED_MOST))
		cached_dismiss(cache_oldest(cache));
	cache->bytes += fits ? n : 0;
	cache->count += fits;
	pthread_mutex_unlock(&cache->lock);
	dismissed_free(cache, false);
	return fits;
}

/* Under the lock: to the front. */
static void cached_insert(struct cached *e)
{
	e->next = e->cache->entries;
	e->cache->entries = e;
}

/* Under the lock, and in use from here on. */
static struct cached *cache_find(
	struct cache *cache, const struct stage *stage, uint64_t at, size_t n)
{
	for (struct cached **link = &cache->entries; *link; link = &(*link)->next) {
		struct cached *e = *link;

		if (e->region.stage != stage || !region_holds(&e->region, at, n))
			continue;
		*link = e->next;
		cached_insert(e);
		e->uses++;
		return e;
	}
	return NULL;
}

/* Its pages are others by now. */
static void cached_refuse(struct cached *e)
{
	pthread_mutex_lock(&e->cache->lock);
	for (struct cached **at = &e->cache->entries; *at; at = &(*at)->next)
		if (*at == e) {
			cached_dismiss(at);
			break;
		}
	pthread_mutex_unlock(&e->cache->lock);
	cache_let_go(e);
}

void cache_keep(struct cached *cached)
{
	if (!cached)
		return;
	pthread_mutex_lock(&cached->cache->lock);
	cached->uses++;
	pthread_mutex_unlock(&cached->cache->lock);
}

void cache_let_go(struct cached *cached)
{
	if (!cached)
		return;
	pthread_mutex_lock(&cached->cache->lock);
	cached->uses--;
	pthread_mutex_unlock(&cached->cache->lock);
}

/* ---- looking up ------------------------------------------------------------------------------- */

/* What the device has is what the addresses name now, as far as somebody asks. */
static void cached_know(struct cached *e)
{
	struct cache *cache = e->cache;
	size_t pages = e->region.size / cache->page;

	region_know(cache->nic, &e->region);
	if (!e->region.mr || cache->pagemap < 0)
		return;
	e->frames = mem_calloc(pages, sizeof(*e->frames));
	if (!e->frames ||
		!frames_read(cache, (uintptr_t)e->region.base / cache->page, pages, e->frames))
		region_unknow(cache->nic, &e->region);
}

/* For what has been reserved. NULL: no more may be registered now, or there is no memory. */
static struct cached *cached_new(
	struct cache *cache, struct stage *stage, uint64_t base, size_t size)
{
	struct cached *e = mem_calloc(1, sizeof(*e));
	bool known = false;

	if (e) {
		*e = (struct cached){ .cache = cache,
			.uses = 1,
			.region = { .base = (char *)(uintptr_t)base,
				.size = size,
				.stage = stage,
				.cached = e } };
		errno = 0;
		cached_know(e);
		known = e->region.mr || errno != ENOMEM;
	}
	pthread_mutex_lock(&cache->lock);
	if (!known || !e->region.mr)
		cache->bytes -= size;
	if (known)
		cached_insert(e);
	else
		cache->count--;
	pthread_mutex_unlock(&cache->lock);
	if (e && !known)
		cached_free(e);
	return known ? e : NULL;
}

/* Registers the pages of the range. An entry may also say that it cannot be. */
static struct cached *cached_make(struct cache *cache, struct stage *stage, uint64_t at, size_t n)
{
	UNCANCELLED;
	uint64_t base = at / cache->page * cache->page;
	size_t size = ((at - base + n - 1) / cache->page + 1) * cache->page;

	return cache_reserve(cache, size) ? cached_new(cache, stage, base, size) : NULL;
}

static bool is_registered(struct nic *nic, const void *at, size_t n)
{
	bool is;

	pthread_mutex_lock(&nic->lock);
	is = region_of(nic, at, n) != NULL;
	pthread_mutex_unlock(&nic->lock);
	return is;
}

struct cached *cache_hold(
	struct nic *nic, struct stage *stage, const void *at, size_t n, bool makes)
{
	struct cache *cache = nic->cache;
	struct cached *e;

	/* which memory of a device's is still the same nobody says */
	if ((stage && cache->pagemap >= 0) || is_registered(nic, at, n))
		return NULL;
	pthread_mutex_lock(&cache->lock);
	e = cache_find(cache, stage, (uintptr_t)at, n);
	pthread_mutex_unlock(&cache->lock);
	if (e && e->frames && !frames_are_the_same(e, (uintptr_t)at, n)) {
		cached_refuse(e);
		e = NULL;
	}
	if (!e && makes)
		e = cached_make(cache, stage, (uintptr_t)at, n);
	if (e && !e->region.mr) {
		cache_let_go(e);
		e = NULL;
	}
	return e;
}

/* ---- all -------------------------------------------------------------------------------------- */

int cache_open(struct nic *nic)
{
	const struct env *env = env_loaded();
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct verbs_state *state = verbs_state();
	struct cache *cache;
	int pagemap = -1;

	if (!env || env->rdma_cache == CACHE_OFF)
		return 0;
	if (env->rdma_cache == CACHE_CHECKED) {
		pagemap = pagemap_open(page);
		if (pagemap < 0) {
			log_line(LOG_INFO,
				"%s: buffers that nobody has registered bounce: the kernel does not say which pages they are (SPMT_RDMA_CACHE)",
				nic->place.name);
			return 0;
		}
	}
	cache = mem_calloc(1, sizeof(*cache));
	if (!cache) {
		if (pagemap >= 0)
			close(pagemap);
		return fail(-ENOMEM, "%s: out of memory for a cache", nic->place.name);
	}
	*cache = (struct cache){ .nic = nic,
		.pagemap = pagemap,
		.page = page,
		.from = MAX_OF(env->rdma_cache_from, 1u),
		.most = env->rdma_cache_size };
	pthread_mutex_init(&cache->lock, NULL);
	pthread_mutex_lock(&state->caches_lock);
	cache->next = state->caches;
	state->caches = cache;
	pthread_mutex_unlock(&state->caches_lock);
	nic->cache = cache;
	return 0;
}

void cache_close(struct nic *nic)
{
	struct verbs_state *state = verbs_state();
	struct cache *cache = nic->cache, **at = &state->caches;

	if (!cache)
		return;
	pthread_mutex_lock(&state->caches_lock);
	while (*at != cache)
		at = &(*at)->next;
	*at = cache->next;
	pthread_mutex_unlock(&state->caches_lock);
	while (cache->entries)
		cached_dismiss(&cache->entries);
	dismissed_free(cache, true);
	if (cache->pagemap >= 0)
		close(cache->pagemap);
	pthread_mutex_destroy(&cache->lock);
	mem_free(cache);
	nic->cache = NULL;
}

void cache_forget(struct nic *nic, const struct stage *stage)
{
	struct cache *cache = nic->cache;

	if (!cache)
		return;
	pthread_mutex_lock(&cache->lock);
	for (struct cached **at = &cache->entries; *at;)
		if ((*at)->region.stage == stage)
			cached_dismiss(at);
		else
			at = &(*at)->next;
	pthread_mutex_unlock(&cache->lock);
	dismissed_free(cache, false);
}

static bool cache_shed(struct cache *cache)
{
	size_t held = 0;
	bool some = false;

	pthread_mutex_lock(&cache->lock);
	for (struct cached **at = &cache->entries; *at;) {
		held += (*at)->region.mr ? (*at)->region.size : 0;
		if ((*at)->region.mr && !(*at)->uses) {
			cached_dismiss(at);
			some = true;
		} else {
			at = &(*at)->next;
		}
	}
	if (some)
		cache->most = MIN_OF(cache->most, held);
	pthread_mutex_unlock(&cache->lock);
	dismissed_free(cache, false);
	return some;
}

bool caches_shed(void)
{
	struct verbs_state *state = verbs_state();
	bool some = false;

	pthread_mutex_lock(&state->caches_lock);
	for (struct cache *cache = state->caches; cache; cache = cache->next)
		some |= cache_shed(cache);
	pthread_mutex_unlock(&state->caches_lock);
	return some;
}
