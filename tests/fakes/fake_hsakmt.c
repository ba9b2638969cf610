/* SPDX-License-Identifier: MIT */
/*
 * A stand-in for libhsakmt over host memory: a queue is served by an engine of software that looks at the doorbell, a word of memory,
 * now and then, as an engine of hardware learns of a store to its register and of nothing else. Where the stand-in for libamdhip64 is
 * in the process, its engines are those of that one's devices: they reach what the device reaches, and of other memory the queues'
 * own alone.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "fake.h"
#include "fake_hsakmt.h"
#include "src/device/sdma/abi_hsakmt.h"
#include "src/device/sdma/engine.h"

#define EXPORT __attribute__((visibility("default")))

struct fake_queue {
	struct sdma_queue queue;
	struct sdma_engine engine;
	_Atomic uint64_t read, write, completed, bell;
	_Atomic bool closing;
	pthread_t thread;
};

EXPORT extern struct fake_hsakmt fake_hsakmt;
struct fake_hsakmt fake_hsakmt = {
	.format = { SDMA_V4, 22, 64, true }, .counted = 6, .hidden = -1
};

/* ---- what engines reach */

static struct {
	pthread_mutex_t lock;
	struct fake_own {
		const char *base;
		size_t size;
	} own[1024];		   /* memory of queues */
	void (*work)(bool begins); /* the devices'; NULL: there is no stand-in for libamdhip64 */
	bool (*find)(const void *ptr, struct fake_block *out);
	bool (*reaches)(int dev, const void *ptr, size_t n);
} here = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Opened before this library is, as the real one opens it. */
static void meet_devices(void)
{
	const char *path = getenv("SPMT_HIP_LIB");
	void *hip = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;

	if (!hip)
		return;
	*(void **)&here.find = dlsym(hip, "fake_block_find");
	*(void **)&here.reaches = dlsym(hip, "fake_reaches");
	*(void **)&here.work = dlsym(hip, "fake_work");
	if (!here.find || !here.reaches || !here.work)
		abort();
}

/* Replaces `was` by `is`; false: there is none. */
static bool own_change(const char *was, const char *is, size_t size)
{
	size_t i;

	pthread_mutex_lock(&here.lock);
	for (i = 0; i < ARRAY_SIZE(here.own) && here.own[i].base != was; i++)
		;
	if (i < ARRAY_SIZE(here.own))
		here.own[i] = (struct fake_own){ is, size };
	pthread_mutex_unlock(&here.lock);
	return i < ARRAY_SIZE(here.own);
}

static bool is_own(const char *ptr, size_t n)
{
	bool found = false;

	pthread_mutex_lock(&here.lock);
	for (size_t i = 0; i < ARRAY_SIZE(here.own) && !found; i++) {
		size_t off = (uintptr_t)ptr - (uintptr_t)here.own[i].base;

		found = here.own[i].base && off < here.own[i].size && n <= here.own[i].size - off;
	}
	pthread_mutex_unlock(&here.lock);
	return found;
}

static bool fake_reach(int dev, const void *ptr, size_t n)
{
	struct fake_block block;

	if (!here.reaches || is_own(ptr, n))
		return true;
	return here.find(ptr, &block) && here.reaches(dev, ptr, n);
}

static void fake_move(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
}

/* ---- engines */

static bool refused(void)
{
	return fake_hsakmt.fail_at && !--fake_hsakmt.fail_at;
}

/* What has nothing to do looks less and less often. */
static void *fake_serve(void *arg)
{
	struct fake_queue *q = arg;
	long rest = 50000;

	while (!atomic_load(&q->closing)) {
		uint64_t end = atomic_load(&q->bell);
		bool works = end != atomic_load(&q->read);
		int rc;

		if (works && here.work)
			here.work(true);
		rc = sdma_engine_step(&q->engine, end);
		if (works && here.work)
			here.work(false);
		if (rc > 0) {
			atomic_fetch_add(&fake_hsakmt.packets, 1);
			rest = 50000;
			continue;
		}
		nanosleep(&(struct timespec){ .tv_nsec = rest }, NULL);
		rest = works && !rc ? 50000 : MIN_OF(2 * rest, 2000000);
	}
	return NULL;
}

static int device_at(uint32_t number)
{
	int dev = (int)number - 2;

	return fake_hsakmt.hidden >= 0 && dev >= fake_hsakmt.hidden ? dev + 1 : dev;
}

/* ---- the library */

EXPORT HSAKMT_STATUS hsaKmtOpenKFD(void);
HSAKMT_STATUS hsaKmtOpenKFD(void)
{
	return (HSAKMT_STATUS)fake_hsakmt.open_status;
}

EXPORT HSAKMT_STATUS hsaKmtAcquireSystemProperties(HsaSystemProperties *properties);
HSAKMT_STATUS hsaKmtAcquireSystemProperties(HsaSystemProperties *properties)
{
	meet_devices();
	*properties = (HsaSystemProperties){ .NumNodes = fake_hsakmt.counted };
	return KMT_OK;
}

EXPORT HSAKMT_STATUS hsaKmtAllocMemory(uint32_t node, uint64_t size, HsaMemFlags flags, void **ptr);
HSAKMT_STATUS hsaKmtAllocMemory(uint32_t node, uint64_t size, HsaMemFlags flags, void **ptr)
{
	void *memory;

	if (refused() || node != 0 || size % 4096)
		return 6;
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 6;
	if (!own_change(NULL, memory, size))
		abort();
	memset(memory, 0xEE, 64);
	fake_hsakmt.flags = flags.Value;
	fake_hsakmt.memory++;
	*ptr = memory;
	return KMT_OK;
}

EXPORT HSAKMT_STATUS hsaKmtFreeMemory(void *ptr, uint64_t size);
HSAKMT_STATUS hsaKmtFreeMemory(void *ptr, uint64_t size)
{
	fake_hsakmt.memory--;
	own_change(ptr, NULL, 0);
	return munmap(ptr, size) ? 3 : KMT_OK;
}

EXPORT HSAKMT_STATUS hsaKmtMapMemoryToGPU(void *ptr, uint64_t size, uint64_t *elsewhere);
HSAKMT_STATUS hsaKmtMapMemoryToGPU(void *ptr, uint64_t size, uint64_t *elsewhere)
{
	(void)ptr;
	(void)size;
	if (refused())
		return 1;
	*elsewhere = 0;
	fake_hsakmt.mapped++;
	return KMT_OK;
}

EXPORT HSAKMT_STATUS hsaKmtUnmapMemoryToGPU(void *ptr);
HSAKMT_STATUS hsaKmtUnmapMemoryToGPU(void *ptr)
{
	(void)ptr;
	fake_hsakmt.mapped--;
	return KMT_OK;
}

EXPORT HSAKMT_STATUS hsaKmtCreateQueueExt(uint32_t node, HSA_QUEUE_TYPE type, uint32_t percent,
	HSA_QUEUE_PRIORITY priority, uint32_t engine, void *ring, uint64_t size, HsaEvent *event,
	HsaQueueResource *out);
HSAKMT_STATUS hsaKmtCreateQueueExt(uint32_t node, HSA_QUEUE_TYPE type, uint32_t percent,
	HSA_QUEUE_PRIORITY priority, uint32_t engine, void *ring, uint64_t size, HsaEvent *event,
	HsaQueueResource *out)
{
	struct fake_queue *q;

	if (node >= fake_hsakmt.counted)
		return 4;
	if (refused() || fake_hsakmt.no_queues ||
		(type == KMT_QUEUE_SDMA_ENGINE && fake_hsakmt.no_engine))
		return 13;
	if (percent != 100 || priority != KMT_PRIORITY_MOST || event || size & (size - 1))
		return 3;
	q = calloc(1, sizeof(*q));
	if (!q)
		return 6;
	q->queue = (struct sdma_queue){ .format = fake_hsakmt.format, .ring = ring, .size = size };
	q->queue.read = &q->read;
	q->queue.write = &q->write;
	q->queue.completed = &q->completed;
	q->engine = (struct sdma_engine){ &q->queue, device_at(node), fake_reach, fake_move };
	if (pthread_create(&q->thread, NULL, fake_serve, q)) {
		free(q);
		return 13;
	}
	if (q->engine.dev >= 0)
		fake_hsakmt.asked |= 1u << q->engine.dev;
	fake_hsakmt.node = node;
	fake_hsakmt.type = type;
	fake_hsakmt.engine = engine;
	fake_hsakmt.size = size;
	fake_hsakmt.queues++;
	out->QueueId = (uint64_t)(uintptr_t)q;
	out->Queue_DoorBell_aql = (uint64_t *)(uintptr_t)&q->bell;
	out->Queue_write_ptr_aql = (uint64_t *)(uintptr_t)&q->write;
	out->Queue_read_ptr_aql = (uint64_t *)(uintptr_t)&q->read;
	return KMT_OK;
}

EXPORT HSAKMT_STATUS hsaKmtCreateQueue(uint32_t node, HSA_QUEUE_TYPE type, uint32_t percent,
	HSA_QUEUE_PRIORITY priority, void *ring, uint64_t size, HsaEvent *event,
	HsaQueueResource *out);
HSAKMT_STATUS hsaKmtCreateQueue(uint32_t node, HSA_QUEUE_TYPE type, uint32_t percent,
	HSA_QUEUE_PRIORITY priority, void *ring, uint64_t size, HsaEvent *event,
	HsaQueueResource *out)
{
	return hsaKmtCreateQueueExt(node, type, percent, priority, ~0u, ring, size, event, out);
}

EXPORT HSAKMT_STATUS hsaKmtDestroyQueue(HSA_QUEUEID id);
HSAKMT_STATUS hsaKmtDestroyQueue(HSA_QUEUEID id)
{
	struct fake_queue *q = (struct fake_queue *)(uintptr_t)id;

	atomic_store(&q->closing, true);
	pthread_join(q->thread, NULL);
	free(q);
	fake_hsakmt.queues--;
	return KMT_OK;
}
