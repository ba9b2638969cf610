/* SPDX-License-Identifier: MIT */
#include "kernel_queue.h"

#include "src/base/status.h"
#include "src/base/tsan.h"

_Static_assert((int)SPMTD_SDMA_COPY_WORDS_ == (int)SDMA_COPY_WORDS &&
		(int)SPMTD_SDMA_FENCE_WORDS_ == (int)SDMA_FENCE_WORDS &&
		(int)SPMTD_SDMA_ATOMIC_WORDS_ == (int)SDMA_ATOMIC_WORDS &&
		(int)SPMTD_SDMA_CACHE_WORDS_ == (int)SDMA_CACHE_WORDS,
	"kernels write the packets of packet.h");

size_t kernel_queue_room(const struct sdma_queue *q)
{
	return (size_t)(q->size / q->format.unit) * sizeof(uint64_t);
}

/* A copy takes at most a quarter of the ring. An end ahead would be believed: there is none yet. */
void kernel_queue_fill(
	const struct sdma_queue *q, struct spmtd_sdma *entry, uint64_t *ends, uint64_t there)
{
	const struct sdma_format *f = &q->format;
	size_t around = 2 * SDMA_CACHE_WORDS + SDMA_ATOMIC_WORDS;
	size_t copies = ((size_t)q->size / 4 / sizeof(uint32_t) - around) / SDMA_COPY_WORDS;
	uint64_t begin = atomic_load(q->write);

	*entry = (struct spmtd_sdma){
		.ring = (uintptr_t)q->ring,
		.size = q->size,
		.most = copies * sdma_copy_most(f),
		.read = (uintptr_t)q->read,
		.write = (uintptr_t)q->write,
		.doorbell = (uintptr_t)q->doorbell,
		.completed = (uintptr_t)q->completed,
		.ends = there,
		.version = (uint32_t)f->version,
		.count_bits = f->count_bits,
		.unit = f->unit,
		.atomics = (f->atomics ? (uint32_t)SPMTD_SDMA_COUNTS : 0) |
			(q->signals ? (uint32_t)SPMTD_SDMA_SIGNALS : 0),
		.rung = q->rung,
		.queue = (uintptr_t)q,
		.claimed = begin,
		.told = begin,
		.seen = begin,
	};
	for (size_t i = 0; i < kernel_queue_room(q) / sizeof(*ends); i++)
		ends[i] = begin;
}

uint64_t kernel_queue_told(const struct sdma_queue *q)
{
	return atomic_load_explicit(q->write, memory_order_acquire);
}

/* Without its atomics the engine stores the lower half alone, which was never ahead of what it has been told by now. */
static uint64_t queue_completed(const struct sdma_queue *q)
{
	uint32_t low;
	uint64_t told;

	if (q->format.atomics)
		return atomic_load_explicit(q->completed, memory_order_acquire);
	low = __atomic_load_n((const uint32_t *)(uintptr_t)q->completed, __ATOMIC_ACQUIRE);
	told = kernel_queue_told(q);
	return told - (uint32_t)((uint32_t)told - low);
}

/* The error is looked at first: what was completed before the engine stopped is done. */
int kernel_queue_query(struct sdma_queue *q, uint64_t told)
{
	int error = atomic_load_explicit(&q->error, memory_order_acquire);

	if ((int64_t)(queue_completed(q) - told) >= 0) {
		tsan_acquire(q->completed);
		return 1;
	}
	return error ? fail(error, "%s: %s", q->engine, q->why) : 0;
}
