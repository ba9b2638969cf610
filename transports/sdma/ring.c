/* SPDX-License-Identifier: MIT */
#include "ring.h"

#include <errno.h>

#include "src/base/mem.h"
#include "src/base/status.h"
#include "src/base/tsan.h"
#include "src/device/gpu/vendor.h"

#define RING_WORD sizeof(uint32_t)

/* Words of one submission beside its copies. */
static size_t ring_around(const struct sdma_format *f)
{
	size_t caches = f->version >= SDMA_V5 ? 2 * SDMA_CACHE_WORDS : 0;

	return caches + (f->atomics ? SDMA_ATOMIC_WORDS : SDMA_FENCE_WORDS);
}

static uint64_t ring_bytes(const struct sdma_format *f, size_t n)
{
	return align_up(
		(sdma_copies(f, n) * SDMA_COPY_WORDS + ring_around(f)) * RING_WORD, f->unit);
}

/* ---- life */

int sdma_ring_open(const struct backend *b, int src, int dst, struct sdma_ring **ring)
{
	struct sdma_queue *q;
	struct sdma_ring *r;
	size_t units, copies;
	int rc = b->sdma->open(src, dst, &q);

	if (rc)
		return rc;
	units = (size_t)(q->size / q->format.unit);
	r = mem_aligned(CACHE_LINE, sizeof(*r) + units * sizeof(r->ends[0]));
	if (!r) {
		b->sdma->close(q);
		return fail(-ENOMEM, "no memory for the ring of a copy queue");
	}
	r->ops = b->sdma;
	r->queue = q;
	copies = ((size_t)q->size / 4 / RING_WORD - ring_around(&q->format)) / SDMA_COPY_WORDS;
	r->most = copies * sdma_copy_most(&q->format);
	r->reserved = r->doorbell = atomic_load(q->write);
	for (size_t i = 0; i < units;
		i++) /* nothing is written yet: an end ahead would be believed */
		r->ends[i] = r->doorbell;
	*ring = r;
	return 0;
}

void sdma_ring_close(struct sdma_ring *r)
{
	if (!r)
		return;
	r->ops->close(r->queue);
	mem_free(r);
}

/* ---- progress */

static bool ring_reached(uint64_t position, uint64_t ticket)
{
	return (int64_t)(position - ticket) >= 0;
}

/*
 * Without atomics the engine stores only the lower half of the position. The position is never more than the ring's size behind
 * what is reserved, which gives the upper half.
 */
static uint64_t ring_completed(const struct sdma_ring *r)
{
	const struct sdma_queue *q = r->queue;
	uint32_t low;
	uint64_t ahead;

	if (q->format.atomics)
		return atomic_load_explicit(q->completed, memory_order_acquire);
	low = __atomic_load_n((const uint32_t *)(uintptr_t)q->completed, __ATOMIC_ACQUIRE);
	ahead = atomic_load_explicit(&r->reserved, memory_order_relaxed);
	return ahead - (uint32_t)(ahead - low);
}

/* The error is looked at first: what was completed before the engine stopped is done. */
int sdma_ring_query(const struct sdma_ring *r, uint64_t ticket)
{
	struct sdma_queue *q = r->queue;
	int error = atomic_load_explicit(&q->error, memory_order_acquire);

	if (ring_reached(ring_completed(r), ticket)) {
		tsan_acquire(q->completed);
		return 1;
	}
	return error ? fail(error, "%s: %s", q->engine, q->why) : 0;
}

bool sdma_ring_culprit(const struct sdma_ring *r, const struct sdma_span *span)
{
	uint64_t at = ring_completed(r);

	return atomic_load_explicit(&r->queue->error, memory_order_acquire) &&
		ring_reached(at, span->begin) && !ring_reached(at, span->end);
}

/* ---- submitting */

/* A place for `bytes` that does not reach over the ring's end: what is left before the end is part of the span. */
static struct sdma_span ring_place(const struct sdma_ring *r, uint64_t begin, uint64_t bytes)
{
	uint64_t left = r->queue->size - (begin & (r->queue->size - 1));

	return (struct sdma_span){ begin, begin + bytes + (left < bytes ? left : 0) };
}

/* The ring is never quite full, so that a full one does not look empty to an engine. */
static bool ring_fits(const struct sdma_ring *r, uint64_t end)
{
	uint64_t read = atomic_load_explicit(r->queue->read, memory_order_acquire);

	return end - read < r->queue->size;
}

struct ring_reservation {
	struct sdma_ring *ring;
	uint64_t bytes;
	struct sdma_span span;
};

/* 1 reserved, 0 no room. */
static int ring_reserve(void *ctx)
{
	struct ring_reservation *want = ctx;
	struct sdma_ring *r = want->ring;
	int error = atomic_load_explicit(&r->queue->error, memory_order_acquire);
	uint64_t begin = atomic_load_explicit(&r->reserved, memory_order_relaxed);

	do {
		if (error)
			return fail(error, "%s: %s", r->queue->engine, r->queue->why);
		want->span = ring_place(r, begin, want->bytes);
		if (!ring_fits(r, want->span.end))
			return 0;
	} while (!atomic_compare_exchange_weak_explicit(
		&r->reserved, &begin, want->span.end, memory_order_relaxed, memory_order_relaxed));
	return 1;
}

static uint32_t *ring_at(const struct sdma_ring *r, uint64_t position)
{
	return r->queue->ring + (position & (r->queue->size - 1)) / RING_WORD;
}

static uint32_t *ring_write_copies(
	const struct sdma_format *f, uint32_t *at, char *dst, const char *src, size_t n)
{
	while (n) {
		size_t piece = MIN_OF(n, sdma_copy_most(f));

		at = sdma_put_copy(at, dst, src, piece);
		dst += piece;
		src += piece;
		n -= piece;
	}
	return at;
}

static void ring_write(const struct sdma_ring *r, const struct ring_reservation *in, void *dst,
	const void *src, size_t n)
{
	const struct sdma_format *f = &r->queue->format;
	uint64_t begin = in->span.end - in->bytes;
	uint32_t *at = ring_at(r, begin), *end = at + in->bytes / RING_WORD;

	sdma_put_nop(ring_at(r, in->span.begin), (size_t)(begin - in->span.begin) / RING_WORD);
	if (f->version >= SDMA_V5)
		at = sdma_put_cache(at, true);
	at = ring_write_copies(f, at, dst, src, n);
	if (f->version >= SDMA_V5)
		at = sdma_put_cache(at, false);
	if (f->atomics)
		at = sdma_put_add(
			at, (void *)(uintptr_t)r->queue->completed, in->span.end - in->span.begin);
	else
		at = sdma_put_fence(
			f, at, (void *)(uintptr_t)r->queue->completed, (uint32_t)in->span.end);
	sdma_put_nop(at, (size_t)(end - at));
}

static _Atomic uint64_t *ring_end(struct sdma_ring *r, uint64_t begin)
{
	return &r->ends[(begin & (r->queue->size - 1)) / r->queue->format.unit];
}

/* How far everything is written. An end left from the previous lap is not ahead of its beginning. */
static uint64_t ring_written(struct sdma_ring *r, uint64_t from)
{
	uint64_t end;

	while (end = atomic_load(ring_end(r, from)), (int64_t)(end - from) > 0)
		from = end;
	return from;
}

/*
 * Whoever finds nobody telling the engine does so, for others too: a thread that has written its packets while another tells the
 * engine may leave, as that one looks again afterwards.
 */
static void ring_tell(struct sdma_ring *r)
{
	uint64_t told;

	do {
		if (atomic_exchange(&r->telling, true))
			return;
		tsan_acquire(r);
		told = ring_written(r, atomic_load(&r->doorbell));
		if (told != atomic_load(&r->doorbell)) {
			r->ops->doorbell(r->queue, told);
			atomic_store(&r->doorbell, told);
		}
		atomic_store(&r->telling, false);
	} while (ring_written(r, told) != told);
}

int sdma_ring_copy(struct sdma_ring *r, void *dst, const void *src, size_t n, int64_t timeout_ns,
	const uint32_t *stop, struct sdma_span *span)
{
	struct ring_reservation in = { .ring = r, .bytes = ring_bytes(&r->queue->format, n) };
	int rc = vendor_wait(ring_reserve, &in, timeout_ns, stop);

	if (rc)
		return rc;
	ring_write(r, &in, dst, src, n);
	tsan_release(r);
	atomic_store(ring_end(r, in.span.begin), in.span.end);
	ring_tell(r);
	*span = in.span;
	return 0;
}
