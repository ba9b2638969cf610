/* SPDX-License-Identifier: MIT */
#include "kmt.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "abi_hsakmt.h"
#include "include/spmt.h"
#include "src/base/env.h"
#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/gpu/vendor.h"

#define KMT_RING ((uint64_t)1 << 20)
#define KMT_PAGE ((uint64_t)4096)

struct kmt_state {
	pthread_mutex_t lock; /* guards loading */
	bool tried;
	int verdict;
	struct status_saved why;
	struct kmt_api api;
	uint32_t counted;	 /* nodes */
	_Atomic unsigned opened; /* queues, ever */
};

static void *_Atomic kmt_slot;

struct kmt_queue {
	struct sdma_queue queue; /* first: what users hold */
	const struct kmt_api *api;
	HSA_QUEUEID id;
	void *ring, *words; /* mapped memory */
	_Atomic uint64_t *doorbell;
};

/* ---- the library */

static int kmt_find(struct kmt_api *api)
{
	static const char *const names[] = { "libhsakmt.so.1" };
	static const struct vendor_symbol symbols[] = {
#define X(field, symbol, result, args) { #symbol, offsetof(struct kmt_api, field), false },
		KMT_CALLS(X)
#undef X
			{ "hsaKmtCreateQueueExt", offsetof(struct kmt_api, create_on), true },
	};
	char reason[VENDOR_REASON];
	const struct env *env;
	const char *missing;
	void *library;
	int rc = env_get(&env);

	if (rc)
		return rc;
	rc = vendor_open(env->hsakmt_lib, names, ARRAY_SIZE(names), reason, &library);
	if (rc < 0)
		return fail(rc, "no libhsakmt: %s", reason);
	missing = vendor_bind(library, symbols, ARRAY_SIZE(symbols), api);
	return missing ? fail(SPMT_ERR_UNSUPPORTED, "libhsakmt lacks %s", missing) : 0;
}

/* It stays open: HIP's runtime may use the same. */
static int kmt_start(struct kmt_state *state)
{
	HsaSystemProperties properties;
	HSAKMT_STATUS status;
	int rc = kmt_find(&state->api);

	if (rc)
		return rc;
	status = state->api.open();
	if (status != KMT_OK && status != KMT_ALREADY_OPENED)
		return fail(
			-ENODEV, "libhsakmt does not open /dev/kfd: status %u", (unsigned)status);
	status = state->api.acquire(&properties);
	if (status != KMT_OK)
		return fail(-ENODEV, "libhsakmt lists no nodes: status %u", (unsigned)status);
	state->counted = properties.NumNodes;
	return 0;
}

int kmt_load(void)
{
	struct kmt_state *state = process_state(&kmt_slot, sizeof(*state));
	int rc;

	if (!state)
		return fail(-ENOMEM, "no memory for libhsakmt");
	pthread_mutex_lock(&state->lock);
	if (!state->tried) {
		state->verdict = kmt_start(state);
		status_save(&state->why);
		state->tried = !is_shortage(state->verdict);
	}
	rc = state->verdict ? fail_again(state->verdict, &state->why) : 0;
	pthread_mutex_unlock(&state->lock);
	return rc;
}

/* By other numbers a queue would be another device's. */
int kmt_check(const struct kfd_engine *e, char reason[DEVICE_REASON])
{
	const struct kmt_state *state = kmt_slot;

	if (state->counted == e->counted)
		return 0;
	snprintf(reason, DEVICE_REASON,
		"libhsakmt counts %u nodes, and the driver lists %u for this process",
		(unsigned)state->counted, e->counted);
	return -ENODEV;
}

void kmt_describe(const struct kfd_engine *e, char text[DEVICE_REASON])
{
	snprintf(text, DEVICE_REASON, "SDMA %d engine for %s, node %d to %d",
		(int)e->format.version, e->xgmi ? "xGMI" : "PCIe", e->src.node, e->dst.node);
}

/* ---- queues */

static int kmt_failed(const char *what, HSAKMT_STATUS status)
{
	return fail(-EIO, "libhsakmt: %s: status %u", what, (unsigned)status);
}

/* Memory of the CPU that every GPU reaches at the same address, of this size alone: the driver insists. Zeroed. */
static int kmt_memory(const struct kmt_api *api, int node, uint64_t size, void **ptr)
{
	HsaMemFlags flags = { .Value = KMT_MEMORY_HOST | KMT_MEMORY_EXECUTE | KMT_MEMORY_ANYWHERE };
	uint64_t elsewhere;
	void *memory = NULL;
	HSAKMT_STATUS status;

	if (fault_here(FAULT_MEMORY))
		return fail(-ENOMEM, "libhsakmt: no memory for a ring (SPMT_FAULT)");
	status = api->alloc((uint32_t)node, size, flags, &memory);
	if (status != KMT_OK)
		return kmt_failed("hsaKmtAllocMemory", status);
	status = api->map(memory, size, &elsewhere);
	if (status != KMT_OK) {
		api->free(memory, size);
		return kmt_failed("hsaKmtMapMemoryToGPU", status);
	}
	memset(memory, 0, size);
	*ptr = memory;
	return 0;
}

static void kmt_memory_free(const struct kmt_api *api, void *ptr, uint64_t size)
{
	if (!ptr)
		return;
	api->unmap(ptr);
	api->free(ptr, size);
}

/* The engines that the driver recommends take turns; where it names none, or refuses, it chooses one of the link's kind. */
static HSAKMT_STATUS kmt_create(struct kmt_state *state, struct kmt_queue *k,
	const struct kfd_engine *e, HsaQueueResource *r)
{
	const struct kmt_api *api = k->api;
	uint32_t node = (uint32_t)e->src.number, left = e->engines;
	unsigned n = (unsigned)__builtin_popcount(left);
	HSAKMT_STATUS status = KMT_OK;

	if (n && api->create_on) {
		for (n = atomic_fetch_add(&state->opened, 1) % n; n; n--)
			left &= left - 1;
		status = api->create_on(node, KMT_QUEUE_SDMA_ENGINE, 100, KMT_PRIORITY_MOST,
			(uint32_t)__builtin_ctz(left), k->ring, KMT_RING, NULL, r);
		if (status == KMT_OK)
			return status;
		*r = (HsaQueueResource){ 0 };
	}
	return api->create(node, e->xgmi ? KMT_QUEUE_SDMA_XGMI : KMT_QUEUE_SDMA, 100,
		KMT_PRIORITY_MOST, k->ring, KMT_RING, NULL, r);
}

static void kmt_undo(struct kmt_queue *k)
{
	kmt_memory_free(k->api, k->ring, KMT_RING);
	kmt_memory_free(k->api, k->words, KMT_PAGE);
	mem_free(k);
}

static void kmt_adopt(struct kmt_queue *k, const struct kfd_engine *e, const HsaQueueResource *r)
{
	struct sdma_queue *q = &k->queue;

	k->id = r->QueueId;
	k->doorbell = (_Atomic uint64_t *)(void *)r->Queue_DoorBell_aql;
	q->format = e->format;
	q->ring = k->ring;
	q->size = KMT_RING;
	q->read = (_Atomic uint64_t *)(void *)r->Queue_read_ptr_aql;
	q->write = (_Atomic uint64_t *)(void *)r->Queue_write_ptr_aql;
	q->doorbell = k->doorbell;
	q->signals = e->signals;
	q->completed = k->words;
	atomic_store(q->completed, atomic_load(q->write));
	kmt_describe(e, q->engine);
}

int kmt_open(const struct kfd_engine *engine, struct sdma_queue **queue)
{
	struct kmt_state *state = kmt_slot;
	struct kmt_queue *k = mem_calloc(1, sizeof(*k));
	HsaQueueResource resource = { 0 };
	HSAKMT_STATUS status;
	int rc;

	if (!k)
		return fail(-ENOMEM, "no memory for a user-mode queue");
	k->api = &state->api;
	rc = kmt_memory(k->api, engine->cpu.number, KMT_RING, &k->ring);
	if (!rc)
		rc = kmt_memory(k->api, engine->cpu.number, KMT_PAGE, &k->words);
	if (!rc) {
		status = kmt_create(state, k, engine, &resource);
		if (status != KMT_OK)
			rc = kmt_failed("hsaKmtCreateQueue", status);
	}
	if (rc) {
		kmt_undo(k);
		return rc;
	}
	kmt_adopt(k, engine, &resource);
	*queue = &k->queue;
	return 0;
}

void kmt_close(struct sdma_queue *queue)
{
	struct kmt_queue *k = (struct kmt_queue *)queue;

	k->api->destroy(k->id);
	kmt_undo(k);
}

/*
 * The doorbell is a register: what it announces has to be in memory before. A plain store rings it, behind a fence: a store that is
 * sequentially consistent is an exchange on x86, which locks, reads and writes, and a register's page need not take that.
 */
void kmt_doorbell(struct sdma_queue *queue, uint64_t end)
{
	const struct kmt_queue *k = (const struct kmt_queue *)queue;

	atomic_store_explicit(queue->write, end, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store_explicit(k->doorbell, end, memory_order_release);
}
