/* SPDX-License-Identifier: MIT */
#include "src/device/device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "graph.h"
#include "queue.h"
#include "src/base/env.h"
#include "src/base/fault.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "state.h"
#include "stream.h"

#define SLAB ((size_t)64 << 10)
/* To queue a copy and wake the worker takes the caller 6 to 8 us, as long as a memcpy of 256 KiB
   (2 cores, 45 GB/s). */
#define THRESHOLD ((uint64_t)256 << 10)

struct host_slab {
	struct host_slab *next;
};

/* The one thing a forked child inherits: it leads to zeros there. */
static void *_Atomic host_slot;

struct host_state *host_state(void)
{
	return atomic_load_explicit(&host_slot, memory_order_acquire);
}

int host_load(void)
{
	struct host_state *st = process_state(&host_slot, sizeof(*st));
	const struct env *env;
	int rc;

	if (!st)
		return fail(-ENOMEM, "host: load: no memory for the state of the runtime");
	if (atomic_load(&st->known))
		return 0;
	rc = env_get(&env);
	if (rc)
		return rc;
	if (env->host_devices < 0 || env->host_devices > HOST_DEVICES)
		return fail(-EINVAL, "host: load: SPMT_HOST_DEVICES=%lld: 0 to %d are possible",
			(long long)env->host_devices, HOST_DEVICES);
	atomic_store(&st->blocks.changes, (uint64_t)(uint32_t)getpid() << 32 | 1);
	atomic_store(&st->known, (int)env->host_devices + 1);
	return 0;
}

int host_check(int dev, const char *op)
{
	struct host_state *st = host_state();
	int known = st ? atomic_load(&st->known) : 0;

	if (dev >= 0 && dev < known - 1)
		return 0;
	if (!known)
		return fail(-ENODEV, "host: %s on device %d: not loaded in this process", op, dev);
	return fail(-ENODEV,
		"host: %s: no device %d: there are %d, numbered from 0 (SPMT_HOST_DEVICES)", op,
		dev, known - 1);
}

/* ---- the pools */

static int host_pool_grow(struct host_pool *pool, size_t stride)
{
	struct host_slab *slab = process_pages(SLAB);
	char *at;

	if (!slab)
		return -ENOMEM;
	for (at = (char *)slab + CACHE_LINE; at + stride <= (char *)slab + SLAB; at += stride)
		host_pool_put(pool, at);
	slab->next = atomic_load(&pool->slabs);
	atomic_store(&pool->slabs, slab);
	return 0;
}

void *host_pool_get(struct host_pool *pool, size_t size)
{
	void *object;

	if (!pool->free && host_pool_grow(pool, align_up(size, CACHE_LINE)))
		return NULL;
	object = pool->free;
	memcpy(&pool->free, object, sizeof(void *));
	return object;
}

void host_pool_put(struct host_pool *pool, void *object)
{
	memcpy(object, &pool->free, sizeof(void *));
	pool->free = object;
}

bool host_pool_holds(const struct host_pool *pool, const void *object, size_t size)
{
	size_t stride = align_up(size, CACHE_LINE);
	const struct host_slab *slab;

	for (slab = atomic_load(&pool->slabs); slab; slab = slab->next) {
		uintptr_t off = (uintptr_t)object - (uintptr_t)slab - CACHE_LINE;

		if (off < SLAB - CACHE_LINE && off % stride == 0)
			return true;
	}
	return false;
}

void *host_pool_next(const struct host_pool *pool, void *after, size_t size)
{
	size_t stride = align_up(size, CACHE_LINE);
	char *slab = (char *)atomic_load(&pool->slabs);

	if (!after)
		return slab ? slab + CACHE_LINE : NULL;
	while ((uintptr_t)after - (uintptr_t)slab >= SLAB)
		slab = (char *)((struct host_slab *)(void *)slab)->next;
	if ((char *)after + 2 * stride <= slab + SLAB)
		return (char *)after + stride;
	slab = (char *)((struct host_slab *)(void *)slab)->next;
	return slab ? slab + CACHE_LINE : NULL;
}

/* ---- devices */

static int host_count(int *n)
{
	struct host_state *st = host_state();
	int known = st ? atomic_load(&st->known) : 0;

	if (!known)
		return fail(-ENODEV, "host: count: not loaded in this process");
	*n = known - 1;
	return 0;
}

static int host_describe(int dev, struct device_desc *desc)
{
	struct sysinfo info;
	int rc = host_check(dev, "describe");

	if (rc)
		return rc;
	if (sysinfo(&info))
		return fail_errno(errno, "host: describe device %d: sysinfo", dev);
	memset(desc, 0, sizeof(*desc));
	desc->ordinal = dev;
	snprintf(desc->name, sizeof(desc->name), "virtual device %d", dev);
	snprintf(desc->arch, sizeof(desc->arch), "host");
	desc->memory = (uint64_t)info.totalram * info.mem_unit;
	desc->units = process_cpus();
	desc->numa = -1;
	return 0;
}

static int host_open(int dev)
{
	struct host_state *st = host_state();
	int rc = host_check(dev, "open");

	if (rc)
		return rc;
	if (fault_here(FAULT_DEVICE))
		return fail_errno(fault_errno(FAULT_DEVICE), "host: open device %d", dev);
	pthread_mutex_lock(&st->lock);
	st->devices[dev].opens++;
	st->opened++;
	pthread_mutex_unlock(&st->lock);
	return 0;
}

static void host_close(int dev)
{
	struct host_state *st = host_state();
	struct host_stream *list = NULL;

	if (host_check(dev, "close"))
		return;
	pthread_mutex_lock(&st->lock);
	if (st->devices[dev].opens) {
		st->opened--;
		if (--st->devices[dev].opens == 0)
			host_stream_collect(st, dev, NULL, &list);
		/* no default stream is left, so no thread's end has anything to release */
		if (!st->opened && st->keyed) {
			pthread_key_delete(st->key);
			st->keyed = false;
		}
	}
	pthread_mutex_unlock(&st->lock);
	host_stream_end_all(list);
}

/* ---- peers */

static bool bit_get(const _Atomic uint64_t *row, int i)
{
	return atomic_load_explicit(&row[i / 64], memory_order_acquire) >> (i % 64) & 1;
}

static void bit_put(_Atomic uint64_t *row, int i, bool on)
{
	uint64_t bit = (uint64_t)1 << (i % 64);

	if (on)
		atomic_fetch_or(&row[i / 64], bit);
	else
		atomic_fetch_and(&row[i / 64], ~bit);
}

bool host_enabled(const struct host_state *st, int from, int to)
{
	return from == to || bit_get(st->enabled[from], to);
}

static int host_peer_check(int from, int to, char reason[DEVICE_REASON])
{
	struct host_state *st = host_state();
	int n = st ? atomic_load(&st->known) - 1 : 0;

	if (from < 0 || from >= n || to < 0 || to >= n) {
		snprintf(reason, DEVICE_REASON, "no such pair of devices: %d and %d of %d", from,
			to, n);
		return -ENODEV;
	}
	if (from == to || !bit_get(st->forbidden[from], to))
		return 0;
	snprintf(reason, DEVICE_REASON, "device %d may not reach device %d: access was forbidden",
		from, to);
	return -EACCES;
}

/* -EALREADY comes without a sentence: to the table's op it is success. */
static int enable(int from, int to)
{
	struct host_state *st = host_state();
	char reason[DEVICE_REASON];
	int rc = host_peer_check(from, to, reason);

	if (rc)
		return fail(
			rc, "host: peer_enable from device %d to device %d: %s", from, to, reason);
	if (from == to)
		return 0;
	if (fault_here(FAULT_PEER))
		return fail_errno(fault_errno(FAULT_PEER),
			"host: peer_enable from device %d to device %d", from, to);
	if (bit_get(st->enabled[from], to))
		return -EALREADY;
	bit_put(st->enabled[from], to, true);
	return 0;
}

static int host_enable(int from, int to)
{
	int rc = enable(from, to);

	return rc == -EALREADY ? 0 : rc;
}

int host_peer_enable(int from, int to)
{
	int rc = enable(from, to);

	if (rc == -EALREADY)
		fail(rc, "host: peer access from device %d to device %d is already enabled", from,
			to);
	return host_raise(rc);
}

void host_forbid_peer(int from, int to, bool forbid)
{
	struct host_state *st = host_state();

	if (host_check(from, "forbid_peer") || host_check(to, "forbid_peer"))
		return;
	bit_put(st->forbidden[from], to, forbid);
	if (forbid)
		bit_put(st->enabled[from], to, false);
}

static int host_words_check(int dev, char reason[DEVICE_REASON])
{
	(void)dev;
	(void)reason;
	return 0;
}

static const struct device_word_ops host_word_ops = { .check = host_words_check,
	.stream_create = host_stream_create,
	.write = host_word_write,
	.wait = host_word_wait };

const struct backend backend_host = {
	.name = "host",
	.traits = DEVICE_HOST_ACCESS | DEVICE_WHOLE_UNITS,
	.store_threshold = THRESHOLD,
	.load = host_load,
	.count = host_count,
	.describe = host_describe,
	.enter = host_enter,
	.leave = host_leave,
	.open = host_open,
	.close = host_close,
	.peer_check = host_peer_check,
	.peer_enable = host_enable,
	.alloc = host_mem_alloc,
	.free = host_mem_free,
	.retire = host_mem_free, /* who has mapped it keeps it */
	.host_alloc = host_pinned_alloc,
	.host_free = host_pinned_free,
	.stream_create = host_stream_create,
	.stream_destroy = host_stream_destroy,
	.stream_query = host_stream_query,
	.stream_sync = host_stream_sync,
	.stream_id = host_stream_id,
	.event_create = host_event_create,
	.event_destroy = host_event_destroy,
	.event_record = host_event_record,
	.event_query = host_event_query,
	.event_sync = host_event_sync,
	.stream_wait_event = host_stream_wait_event,
	.copy = host_queue_copy,
	.fill = host_queue_fill,
	.call = host_queue_call,
	.launch = host_queue_launch,
	.capturing = host_graph_capturing,
	.vmm = &host_vmm_ops,
	.ipc = &host_ipc_ops,
	.sdma = &host_sdma_ops,
	.words = &host_word_ops,
	.graph = &host_graph_ops,
};
