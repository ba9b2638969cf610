/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include <errno.h>
#include <unistd.h>

#include "cache.h"
#include "hello.h"
#include "include/spmt.h"
#include "src/base/env.h"
#include "src/base/fault.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "stage.h"

#define KEPT_NS \
	15000000000ll /* for peers: they give moves of a broken world ten seconds (mover.c) */
#define ACCESS_ALL (VERBS_ACCESS_LOCAL_WRITE | VERBS_ACCESS_REMOTE_WRITE | VERBS_ACCESS_REMOTE_READ)

static void mr_drop(struct nic *nic, struct verbs_mr *mr)
{
	int rc = mr ? nic->api->dereg_mr(mr) : 0;

	if (rc)
		log_line(LOG_ERROR, "%s: ibv_dereg_mr: %d", nic->place.name, rc);
}

static void region_free(struct nic *nic, struct region *r)
{
	mr_drop(nic, r->mr);
	mem_free(r);
}

/* ---- what peers of a broken world may still have moves in flight to ------------------------------ */

/* The oldest, out of the list, while there are more than `most` bytes, or it has been there for long enough. NULL: neither. */
static struct region *kept_take(struct nic *nic, size_t most, int64_t now)
{
	struct region *r;

	pthread_mutex_lock(&nic->kept_lock);
	r = nic->kept;
	if (r && (nic->kept_bytes > most || r->until <= now)) {
		nic->kept = r->next;
		nic->kept_bytes -= r->size;
	} else {
		r = NULL;
	}
	pthread_mutex_unlock(&nic->kept_lock);
	return r;
}

static bool kept_shed(struct nic *nic, size_t most)
{
	struct region *r;
	bool some = false;

	while ((r = kept_take(nic, most, INT64_MIN))) {
		region_free(nic, r);
		some = true;
	}
	return some;
}

static void region_keep_for_peers(struct nic *nic, struct region *region)
{
	const struct env *env = env_loaded();
	size_t most = env ? env->rdma_cache_size : 0, size = region->size;
	struct region **at = &nic->kept;

	if (!most) {
		region_free(nic, region);
		return;
	}
	region->next = NULL;
	region->until = process_now() + KEPT_NS;
	pthread_mutex_lock(&nic->kept_lock);
	while (*at)
		at = &(*at)->next;
	*at = region;
	nic->kept_bytes += size;
	pthread_mutex_unlock(&nic->kept_lock);
	kept_shed(nic, MAX_OF(most, size)); /* not itself: a heap may be larger */
	nic_wake(nic);
}

int retired_free(struct nic *nic)
{
	int64_t now, left = -1;
	struct region *r;

	pthread_mutex_lock(&nic->kept_lock);
	r = nic->kept;
	pthread_mutex_unlock(&nic->kept_lock);
	if (!r)
		return -1;
	now = process_now();
	while ((r = kept_take(nic, SIZE_MAX, now)))
		region_free(nic, r);
	pthread_mutex_lock(&nic->kept_lock);
	if (nic->kept)
		left = (nic->kept->until - now) / 1000000 + 1;
	pthread_mutex_unlock(&nic->kept_lock);
	return (int)left;
}

/* ---- the port's own ----------------------------------------------------------------------------- */

/* What is kept for later goes first where no more may be registered. */
struct verbs_mr *mr_make(struct nic *nic, void *base, size_t size, int access)
{
	struct verbs_mr *mr = NULL;
	bool again;

	do {
		errno = ENOMEM;
		if (!fault_here(FAULT_REGISTER))
			mr = nic->api->reg_mr(nic->pd, base, size, access);
		again = !mr && errno == ENOMEM && (kept_shed(nic, 0) || caches_shed());
	} while (again);
	return mr;
}

/* In pages that a fork leaves alone: where the kernel has a child share pinned ones, the next write of this process would go to a copy, and the
   device would keep the old one. */
static int own_open(struct nic *nic, size_t size, int access, char **at, struct verbs_mr **mr)
{
	*at = process_pages(size);
	if (!*at)
		return fail(
			-ENOMEM, "%s: no memory for %zu bytes of buffers", nic->place.name, size);
	*mr = mr_make(nic, *at, size, access);
	if (!*mr)
		return fail_errno(errno,
			"%s: ibv_reg_mr of %zu bytes of buffers (limits of locked memory: ulimit -l)",
			nic->place.name, size);
	return 0;
}

int chunks_open(struct nic *nic, size_t size, char **at, struct verbs_mr **mr)
{
	return own_open(nic, size, ACCESS_ALL, at, mr);
}

int memory_open(struct nic *nic)
{
	int rc = chunks_open(nic, NIC_CHUNKS * NIC_CHUNK, &nic->chunks, &nic->bounce);

	if (rc)
		return rc;
	for (int i = 0; i < NIC_CHUNKS; i++)
		nic->free_chunks[nic->nfree++] = NIC_CHUNKS - 1 - i;
	return own_open(nic, HELLO_BYTES, VERBS_ACCESS_LOCAL_WRITE, &nic->hellos, &nic->words);
}

/* Nothing is in flight any more, whether told or not. */
static void dropped_free(struct nic *nic)
{
	while (nic->dropped) {
		struct region *r = nic->dropped;

		nic->dropped = r->next;
		region_free(nic, r);
	}
}

void memory_close(struct nic *nic)
{
	dropped_free(nic);
	kept_shed(nic, 0);
	mr_drop(nic, nic->bounce);
	mr_drop(nic, nic->words);
	process_pages_free(nic->chunks, NIC_CHUNKS * NIC_CHUNK);
	process_pages_free(nic->hellos, HELLO_BYTES);
}

/* ---- registering ------------------------------------------------------------------------------ */

static struct verbs_mr *register_host(struct nic *nic, void *base, size_t size)
{
	return mr_make(nic, base, size, ACCESS_ALL | (int)nic_atomic_access(nic));
}

/* The memory is the device's; NULL with a sentence: driver or NIC do not know dma-bufs, or not of this. */
static struct verbs_mr *register_dmabuf(
	struct nic *nic, const struct stage *stage, void *base, size_t size)
{
	const struct device_dmabuf_ops *ops = stage->backend->dmabuf;
	struct verbs_mr *mr;
	uint64_t offset;
	int fd;

	if (!ops || !nic->api->reg_dmabuf) {
		fail(SPMT_ERR_UNSUPPORTED, "libibverbs or backend %s knows no dma-bufs",
			stage->backend->name);
		return NULL;
	}
	if (ops->name(stage->dev, base, size, &fd, &offset))
		return NULL;
	mr = nic->api->reg_dmabuf(nic->pd, offset, size, (uintptr_t)base, fd, ACCESS_ALL);
	if (!mr)
		fail_errno(errno, "%s: ibv_reg_dmabuf_mr of %zu bytes", nic->place.name, size);
	close(fd); /* the registration holds the memory */
	return mr;
}

/* By the best way that there is; the last one always is. */
static void register_device(struct nic *nic, struct region *r)
{
	KEEPS_SENTENCE;

	r->memory = RDMA_DMABUF;
	r->mr = register_dmabuf(nic, r->stage, r->base, r->size);
	if (!r->mr) {
		log_line(LOG_INFO, "%s: no dma-buf: %s", nic->place.name, status_sentence());
		r->memory = RDMA_PEER;
		r->mr = register_host(nic, r->base, r->size);
	}
	if (!r->mr) {
		log_line(LOG_INFO, "%s: no peer memory (errno %d): moves of %zu bytes at %p bounce",
			nic->place.name, errno, r->size, (void *)r->base);
		r->memory = RDMA_BOUNCE;
	}
}

void region_know(struct nic *nic, struct region *r)
{
	if (r->stage) {
		register_device(nic, r);
		return;
	}
	r->memory = RDMA_HOST;
	r->mr = register_host(nic, r->base, r->size);
}

void region_unknow(struct nic *nic, struct region *r)
{
	mr_drop(nic, r->mr);
	r->mr = NULL;
}

static int region_register(struct nic *nic, struct region *r)
{
	region_know(nic, r);
	return r->mr || r->stage
		? 0
		: fail_errno(errno,
			  "%s: ibv_reg_mr of %zu bytes (limits of locked memory: ulimit -l)",
			  nic->place.name, r->size);
}

int region_add(struct nic *nic, struct stage *stage, void *base, size_t size, struct region **out)
{
	struct region *r = mem_calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return fail(-ENOMEM, "%s: out of memory for a registration", nic->place.name);
	r->base = base;
	r->size = size;
	r->stage = stage;
	rc = region_register(nic, r);
	if (rc) {
		mem_free(r);
		return rc;
	}
	pthread_mutex_lock(&nic->lock);
	r->key = r->mr ? r->mr->rkey : ++nic->staged;
	r->next = nic->regions;
	nic->regions = r;
	pthread_mutex_unlock(&nic->lock);
	*out = r;
	return 0;
}

/* Under the lock. */
static void region_unlink(struct region **at, const struct region *region)
{
	while (*at != region)
		at = &(*at)->next;
	*at = region->next;
}

/* Out of sight. */
static void region_end(struct nic *nic, struct region *region)
{
	if (region->retires && region->mr)
		region_keep_for_peers(nic, region);
	else
		region_free(nic, region);
}

void region_drop(struct nic *nic, struct region *region)
{
	bool used;

	pthread_mutex_lock(&nic->lock);
	region_unlink(&nic->regions, region);
	stage_leave(nic, region);
	used = region->uses != 0;
	if (used) {
		region->dropped = true;
		region->next = nic->dropped;
		nic->dropped = region;
	}
	pthread_mutex_unlock(&nic->lock);
	if (!used)
		region_end(nic, region);
}

void region_retire(struct nic *nic, struct region *region)
{
	region->retires = true;
	region_drop(nic, region);
}

void region_keep_slow(struct region *region)
{
	cache_keep(region->cached);
}

/* Drivers give registrations back by calls that may be cancellation points. */
void region_let_go_slow(struct nic *nic, struct region *region)
{
	UNCANCELLED;

	if (region->cached) {
		cache_let_go(region->cached);
	} else if (!--region->uses) {
		region_unlink(&nic->dropped, region);
		region_end(nic, region);
	}
}

bool region_holds(const struct region *r, uint64_t at, size_t n)
{
	uint64_t offset = at - (uintptr_t)r->base;

	return offset <= r->size && n <= r->size - offset;
}

struct region *region_of(const struct nic *nic, const void *at, size_t n)
{
	struct region *r = nic->regions;

	while (r && (!r->mr || !region_holds(r, (uintptr_t)at, n)))
		r = r->next;
	return r;
}

const struct region *region_keyed(const struct nic *nic, uint32_t key, uint64_t at, size_t n)
{
	const struct region *r = nic->regions;

	while (r && (r->key != key || !region_holds(r, at, n)))
		r = r->next;
	return r;
}

int chunk_take(struct nic *nic)
{
	return nic->nfree ? nic->free_chunks[--nic->nfree] : -1;
}

void chunk_give(struct nic *nic, int chunk)
{
	if (chunk >= 0)
		nic->free_chunks[nic->nfree++] = chunk;
}
