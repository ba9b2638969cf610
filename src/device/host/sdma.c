/* SPDX-License-Identifier: MIT */
/*
 * User-mode queues of virtual devices: the packets, the ring and the counters are those of AMD's engines, and a thread of software
 * (sdma/engine.c) is the engine. Devices differ, so that programs meet every kind: those with an odd number take SDMA 5's packets,
 * the others SDMA 4's; in 2, 3, 6, 7 and so on atomics do not reach the CPU's memory, in 1, 2, 5, 6 and so on not that of other devices.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "queue.h"
#include "src/base/fault.h"
#include "src/base/futex.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/base/tsan.h"
#include "src/device/sdma/engine.h"
#include "state.h"

#define SDMA_RING ((uint64_t)64 << 10)
#define SDMA_STACK ((size_t)256 << 10)

struct host_engine {
	struct sdma_queue queue; /* first: what users hold */
	struct sdma_engine engine;
	pthread_t thread;
	_Atomic uint64_t doorbell, write;
	char apart[CACHE_LINE]; /* what users write from what the engine writes */
	_Atomic uint64_t read, completed;
	_Atomic uint32_t wakes, asleep;
	_Atomic bool closing;
};

static struct sdma_format host_format(int dev)
{
	return (struct sdma_format){
		.version = dev & 1 ? SDMA_V5 : SDMA_V4,
		.count_bits = dev & 1 ? 30 : 22,
		.unit = 64,
		.atomics = !(dev & 2),
	};
}

/*
 * What is in the table is looked up there; other memory of the process is asked of the kernel, for it may be gone since the copy was
 * submitted.
 */
static bool host_engine_reach(int dev, const void *ptr, size_t n)
{
	uintptr_t first = (uintptr_t)ptr & ~(HOST_PAGE - 1);
	bool device;

	if (!host_may_touch(dev, ptr, n, &device))
		return false;
	return device || !msync((void *)first, (uintptr_t)ptr + n - first, MS_ASYNC);
}

/* Sleeps until the doorbell says something else than `end`, or it closes. */
static void engine_rest(struct host_engine *h, uint64_t end)
{
	uint32_t seen = atomic_load(&h->wakes);

	atomic_store(&h->asleep, 1);
	if (atomic_load(&h->doorbell) == end && !atomic_load(&h->closing))
		futex_sleep(&h->wakes, seen, -1);
	atomic_store(&h->asleep, 0);
}

static void engine_wake(struct host_engine *h)
{
	atomic_fetch_add(&h->wakes, 1);
	futex_wake_all(&h->wakes);
}

static void *engine_run(void *arg)
{
	struct host_engine *h = arg;
	char name[16];

	snprintf(name, sizeof(name), "spmt-sdma-%d", h->engine.dev);
	pthread_setname_np(pthread_self(), name);
	while (!atomic_load(&h->closing)) {
		uint64_t end = atomic_load(&h->doorbell);
		int rc;

		tsan_acquire(&h->doorbell);
		rc = sdma_engine_step(&h->engine, end);
		if (rc < 0 || (!rc && atomic_load(&h->read) == end))
			engine_rest(h, end);
		else if (!rc)
			sched_yield(); /* a poll: nobody rings when its word changes */
	}
	return NULL;
}

static int engine_start(struct host_engine *h)
{
	if (fault_here(FAULT_THREAD))
		return -fault_errno(FAULT_THREAD);
	return -process_thread(&h->thread, SDMA_STACK, engine_run, h);
}

static int host_sdma_check(int src, int dst, char reason[DEVICE_REASON])
{
	snprintf(reason, DEVICE_REASON, "a software model of SDMA %d, device %d to %d",
		(int)host_format(src).version, src, dst);
	return 0;
}

/* Behind a store to the doorbell by a kernel: the exchange lets no look come before it. */
static void host_engine_rung(uint64_t queue)
{
	struct host_engine *h = (struct host_engine *)(uintptr_t)queue;

	if (atomic_fetch_add(&h->asleep, 0))
		engine_wake(h);
}

static void host_engine_init(struct host_engine *h, int src, int dst)
{
	uint64_t start = 0 - 4 * SDMA_RING; /* so that every program sees the numbers wrap */

	h->queue.format = host_format(src);
	h->queue.size = SDMA_RING;
	h->queue.read = &h->read;
	h->queue.write = &h->write;
	h->queue.doorbell = &h->doorbell;
	h->queue.rung = host_engine_rung;
	h->queue.completed = &h->completed;
	h->queue.signals = !((src ^ src >> 1) & 1);
	host_sdma_check(src, dst, h->queue.engine);
	h->engine = (struct sdma_engine){
		.queue = &h->queue, .dev = src, .reach = host_engine_reach, .move = host_move
	};
	atomic_init(&h->doorbell, start);
	atomic_init(&h->write, start);
	atomic_init(&h->read, start);
	atomic_init(&h->completed, start);
}

static int host_sdma_open(int src, int dst, struct sdma_queue **queue)
{
	struct host_engine *h;
	int rc = host_check(src, "sdma");

	if (!rc)
		rc = host_check(dst, "sdma");
	if (rc)
		return rc;
	h = mem_aligned(CACHE_LINE, sizeof(*h));
	if (h)
		h->queue.ring = mem_aligned(HOST_PAGE, SDMA_RING);
	if (!h || !h->queue.ring) {
		mem_free(h);
		return fail(-ENOMEM, "host: sdma on device %d: no memory for a ring", src);
	}
	host_engine_init(h, src, dst);
	rc = engine_start(h);
	if (rc) {
		mem_free(h->queue.ring);
		mem_free(h);
		return fail_errno(-rc, "host: sdma on device %d: no thread for the engine", src);
	}
	*queue = &h->queue;
	return 0;
}

static void host_sdma_close(struct sdma_queue *queue)
{
	struct host_engine *h = (struct host_engine *)queue;
	UNCANCELLED;

	atomic_store(&h->closing, true);
	engine_wake(h);
	pthread_join(h->thread, NULL);
	mem_free(h->queue.ring);
	mem_free(h);
}

static void host_sdma_doorbell(struct sdma_queue *queue, uint64_t end)
{
	struct host_engine *h = (struct host_engine *)queue;

	atomic_store_explicit(&h->write, end, memory_order_relaxed);
	tsan_release(&h->doorbell);
	atomic_store(&h->doorbell, end);
	if (atomic_load(&h->asleep))
		engine_wake(h);
}

static bool host_sdma_reaches(int src, const void *ptr, size_t n)
{
	bool device;

	return host_may_touch(src, ptr, n, &device);
}

const struct device_sdma_ops host_sdma_ops = {
	.check = host_sdma_check,
	.open = host_sdma_open,
	.close = host_sdma_close,
	.doorbell = host_sdma_doorbell,
	.reaches = host_sdma_reaches,
};
