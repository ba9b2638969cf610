/* SPDX-License-Identifier: MIT */
#include "heap.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "include/spmt.h"
#include "src/base/mem.h"
#include "src/base/status.h"

#define RANGE_LIMIT (512ull << 30)
#define STEP_LIMIT (64ull << 20)

int heap_range_open(
	const struct backend *backend, int slices, uint64_t slice_size, struct heap_range *range)
{
	uint64_t count = slices > 0 ? (uint64_t)slices : 0, stride = HEAP_ALIGN, total;
	void *base = NULL;

	if (!count || !slice_size)
		return fail(-EINVAL, "heap range: %d slices of %" PRIu64 " bytes asked", slices,
			slice_size);
	if (!backend->vmm)
		return fail(SPMT_ERR_UNSUPPORTED,
			"heap range: backend %s cannot reserve address ranges", backend->name);
	while (stride < slice_size && stride < RANGE_LIMIT)
		stride *= 2;
	if (stride < slice_size || stride > RANGE_LIMIT / count)
		return fail(SPMT_ERR_UNSUPPORTED,
			"heap range: %d slices of %" PRIu64 " bytes, %" PRIu64
			" apart, are above the limit of %llu"
			" bytes; a lower SPMT_HEAP_SIZE would fit",
			slices, slice_size, stride, RANGE_LIMIT);
	total = stride * count;
	if (backend->vmm->reserve(total, HEAP_ALIGN, &base))
		return fail(SPMT_ERR_UNSUPPORTED,
			"heap range: %" PRIu64 " bytes of addresses refused: %.300s", total,
			status_sentence());
	*range = (struct heap_range){
		.backend = backend, .base = base, .stride = stride, .slices = slices
	};
	return 0;
}

void heap_range_close(struct heap_range *range)
{
	if (range->base)
		range->backend->vmm->unreserve(
			range->base, range->stride * (uint64_t)range->slices);
	*range = (struct heap_range){ 0 };
}

static uint64_t own_part(const struct heap_config *c)
{
	return align_up(c->own_size + c->own_room, HEAP_ROUND);
}

static const char *knob_of(const struct heap_config *c)
{
	return c->knob ? c->knob : "SPMT_HEAP_SIZE";
}

static int check_config(const struct heap_config *c)
{
	const struct heap_range *range = c->range;

	if (!c->size || c->size > HEAP_LIMIT || c->own_size > HEAP_LIMIT ||
		c->own_room > HEAP_LIMIT)
		return fail(-EINVAL,
			"heap: device %d: %" PRIu64 " bytes asked (and %" PRIu64
			" of the library's own), 1 to %llu can be had; see %s",
			c->dev, c->size, c->own_size, HEAP_LIMIT, knob_of(c));
	if (!range)
		return 0;
	if (c->slice < 0 || c->slice >= range->slices)
		return fail(-EINVAL, "heap: device %d: slice %d of a range of %d", c->dev, c->slice,
			range->slices);
	if (align_up(c->size, HEAP_ROUND) + own_part(c) > range->stride)
		return fail(-EINVAL,
			"heap: device %d: %" PRIu64 " + %" PRIu64
			" bytes do not fit a slice of %" PRIu64,
			c->dev, c->size, own_part(c), range->stride);
	return 0;
}

bool heap_holds(const struct heap *heap, const void *ptr, uint64_t n)
{
	uint64_t off = heap_offset(heap, ptr);
	uint64_t end = atomic_load_explicit(&heap->committed, memory_order_relaxed);

	return off <= end && n <= end - off;
}

static int copy_peers(struct heap *heap, const int *peers, int n)
{
	if (n < 1)
		return 0;
	heap->peers = mem_calloc((size_t)n, sizeof(*peers));
	if (!heap->peers)
		return fail(-ENOMEM, "heap: device %d: no memory for the list of its %d peers",
			heap->dev, n);
	memcpy(heap->peers, peers, (size_t)n * sizeof(*peers));
	heap->npeers = n;
	return 0;
}

/* Makes room for one more chunk; doubles at powers of two. The list moves, so nobody keeps
   pointers into it. */
static int reserve_chunk(struct heap *heap)
{
	size_t n = (size_t)heap->nchunks;
	struct heap_chunk *chunks;

	if (n && !is_power_of_two(n))
		return 0;
	chunks = mem_calloc(n ? 2 * n : 1, sizeof(*chunks));
	if (!chunks)
		return fail(-ENOMEM, "heap: device %d: no memory for a list of %zu chunks",
			heap->dev, n + 1);
	if (n)
		memcpy(chunks, heap->chunks, n * sizeof(*chunks));
	mem_free(heap->chunks);
	heap->chunks = chunks;
	return 0;
}

static int commit(struct heap *heap, uint64_t offset, uint64_t length)
{
	int rc = reserve_chunk(heap);

	if (!rc)
		rc = heap->backend->vmm->commit(
			heap->dev, heap->base + offset, length, heap->peers, heap->npeers);
	if (!rc)
		heap->chunks[heap->nchunks++] = (struct heap_chunk){ offset, length };
	return rc;
}

static void committed_to(struct heap *heap, uint64_t end)
{
	atomic_store_explicit(&heap->committed, end, memory_order_relaxed);
	if (!heap->check)
		atomic_store_explicit(&heap->clear, end, memory_order_relaxed);
}

static int open_slice(struct heap *heap, int slice, bool whole)
{
	size_t granularity;
	int rc = heap->backend->vmm->granularity(heap->dev, &granularity);

	if (rc)
		return rc;
	if (!is_power_of_two(granularity) || granularity > HEAP_ROUND)
		return fail(SPMT_ERR_UNSUPPORTED,
			"heap: device %d commits in units of %zu bytes, at most %llu will do",
			heap->dev, granularity, HEAP_ROUND);
	heap->base = heap->range->base + (uint64_t)slice * heap->range->stride;
	heap->own = heap->base + heap->size;
	heap->step = HEAP_ROUND;
	if (!whole)
		return heap->own_size ? commit(heap, heap->size, heap->own_size) : 0;
	rc = commit(heap, 0, heap->size + heap->own_size);
	if (!rc)
		committed_to(heap, heap->size);
	return rc;
}

static int open_static(struct heap *heap)
{
	uint64_t bytes = heap->size + heap->own_size;
	int rc = reserve_chunk(heap);

	if (!rc)
		rc = heap->backend->alloc(
			heap->dev, bytes + HEAP_ALIGN, DEVICE_MEMORY_SYMMETRIC, &heap->block);
	if (rc)
		return rc;
	heap->base = (char *)align_up((uintptr_t)heap->block, HEAP_ALIGN);
	heap->own = heap->base + heap->size;
	heap->chunks[heap->nchunks++] = (struct heap_chunk){ 0, bytes };
	committed_to(heap, heap->size);
	return 0;
}

static int make_arenas(struct heap *heap, uint64_t own_size, bool check)
{
	uint64_t first;
	int rc = arena_create(heap->size, &heap->arena);

	if (!rc && check) {
		heap->check = check_create(heap->size, heap->backend->traits & DEVICE_HOST_ACCESS);
		rc = heap->check ? 0 : -ENOMEM;
	}

	if (!rc)
		rc = arena_create(heap->own_size, &heap->own_arena);
	if (!rc && own_size)
		rc = arena_alloc(heap->own_arena, own_size, 1, &first);
	return rc ? fail(-ENOMEM, "heap: device %d: no memory for its arenas", heap->dev) : 0;
}

int heap_open(const struct heap_config *config, struct heap *heap)
{
	int rc = check_config(config);

	*heap = (struct heap){
		.backend = config->backend, .dev = config->dev, .range = config->range
	};
	if (rc)
		return rc;
	heap->size = align_up(config->size, HEAP_ROUND);
	heap->knob = knob_of(config);
	heap->own_size = own_part(config);
	rc = copy_peers(heap, config->peers, config->npeers);
	if (!rc)
		rc = make_arenas(heap, config->own_size, config->check);
	if (rc)
		goto err;
	rc = heap->range ? open_slice(heap, config->slice, config->whole) : open_static(heap);
	if (rc)
		goto err;
	if (heap->check)
		heap->check->base = heap->base;
	return 0;
err:
	heap_close(heap);
	return rc;
}

void heap_close(struct heap *heap)
{
	KEEPS_SENTENCE;

	check_destroy(heap->check);
	for (int i = heap->nchunks; heap->range && i-- > 0;)
		heap->backend->vmm->decommit(
			heap->dev, heap->base + heap->chunks[i].offset, heap->chunks[i].length);
	if (heap->block && heap->retire)
		heap->backend->retire(heap->dev, heap->block);
	else if (heap->block)
		heap->backend->free(heap->dev, heap->block);
	arena_destroy(heap->arena);
	arena_destroy(heap->own_arena);
	mem_free(heap->chunks);
	mem_free(heap->peers);
	*heap = (struct heap){ 0 };
}

/* Backs [0, end). Commits grow geometrically, so that a heap filled by small blocks has few
   chunks and wastes little. */
static int back(struct heap *heap, uint64_t end)
{
	uint64_t committed = atomic_load_explicit(&heap->committed, memory_order_relaxed);
	uint64_t length;
	int rc;

	if (end <= committed)
		return 0;
	length = MAX_OF(align_up(end - committed, HEAP_ROUND), heap->step);
	length = MIN_OF(length, heap->size - committed);
	rc = commit(heap, committed, length);
	if (rc)
		return rc;
	heap->step = MIN_OF(heap->step * 2, STEP_LIMIT);
	committed_to(heap, committed + length);
	return 0;
}

static int refuse(const struct heap *heap, int code, uint64_t size, uint64_t align)
{
	if (code == -ENOSPC)
		return fail(-ENOMEM,
			"symmetric heap of device %d (%s): no gap for %" PRIu64
			" bytes at alignment %" PRIu64 ": %" PRIu64 " of %" PRIu64
			" bytes are in use, in %" PRIu64 " blocks; %s raises the limit",
			heap->dev, heap->backend->name, size, align, arena_used(heap->arena),
			heap->size, arena_blocks(heap->arena), heap->knob);
	return fail(code,
		"symmetric heap of device %d (%s): no process memory to note a block of %" PRIu64
		" bytes",
		heap->dev, heap->backend->name, size);
}

/* Called with the lock held, like all static functions below. -EINVAL: no block begins there. */
static int release(struct heap *heap, uint64_t offset)
{
	uint64_t size = 0, owner = 0;

	if (heap->check && !arena_owner(heap->arena, offset, &owner)) {
		arena_size(heap->arena, offset, &size);
		if (owner == HEAP_LIBRARY)
			check_own_end(heap->check, offset, size);
		else
			check_remove(heap->check, offset);
	}
	return arena_free(heap->arena, offset);
}

/* A block with its red zone, if any. Kept blocks are freed before the heap counts as full. */
static int take_gap(struct heap *heap, const struct arena_want *want, uint64_t *at)
{
	struct arena_want w = *want;
	uint64_t used;
	int rc;

	if (!heap->check)
		return arena_take(heap->arena, want, at);
	/* The user gets no more room than in a heap that is not checked. */
	used = arena_used(heap->arena) - heap->check->kept_bytes - heap->check->zones;
	if (w.size > heap->size || used + align_up(w.size, ARENA_ALIGN) > heap->size - CHECK_ROOM)
		return -ENOSPC;
	if (w.owner != HEAP_LIBRARY) {
		if (check_reserve(heap->check))
			return -ENOMEM;
		w.size += CHECK_ZONE;
	}
	while ((rc = arena_take(heap->arena, &w, at)) == -ENOSPC &&
		check_oldest(heap->check, UINT64_MAX / 2))
		release(heap, check_oldest(heap->check, UINT64_MAX / 2)->offset);
	return rc;
}

/* Notes what was taken. */
static void looked_at(struct heap *heap, const struct arena_want *want, uint64_t at, uint64_t bytes)
{
	const struct heap_block block = {
		.offset = at, .size = want->size, .span = bytes, .owner = want->owner
	};
	uint64_t end = atomic_load_explicit(&heap->committed, memory_order_relaxed);

	if (!heap->check)
		return;
	if (want->owner == HEAP_LIBRARY)
		check_own(heap->check, at, bytes, end);
	else
		check_add(heap->check, &block, end);
}

/* Under the lock. */
static int take_offset(struct heap *heap, const struct arena_want *want, uint64_t *offset)
{
	uint64_t at, bytes;
	int rc = take_gap(heap, want, &at);

	if (rc)
		return refuse(heap, rc, want->size, want->align);
	rc = arena_size(heap->arena, at, &bytes);
	if (!rc)
		rc = back(heap, at + bytes);
	if (rc) {
		arena_free(heap->arena, at);
		return fail(rc,
			"symmetric heap of device %d (%s): %" PRIu64
			" bytes fit its limit of %" PRIu64
			" (%s), but no memory can be had behind the %" PRIu64
			" that are backed: %.200s",
			heap->dev, heap->backend->name, want->size, heap->size, heap->knob,
			atomic_load_explicit(&heap->committed, memory_order_relaxed),
			status_sentence());
	}
	looked_at(heap, want, at, bytes);
	*offset = at;
	return 0;
}

int heap_take(struct heap *heap, const struct arena_want *want, uint64_t *offset)
{
	int rc;

	if (!is_power_of_two(want->align) || want->align > HEAP_ALIGN)
		return fail(-EINVAL,
			"symmetric heap of device %d (%s): alignment %" PRIu64
			" is not a power of two from 1 to %llu",
			heap->dev, heap->backend->name, want->align, HEAP_ALIGN);
	pthread_mutex_lock(&heap->lock);
	rc = take_offset(heap, want, offset);
	pthread_mutex_unlock(&heap->lock);
	return rc;
}

int heap_alloc(struct heap *heap, uint64_t size, uint64_t align, uint64_t *offset)
{
	return heap_take(heap, &(struct arena_want){ .size = size, .align = align }, offset);
}

int heap_free(struct heap *heap, uint64_t offset)
{
	int rc;

	pthread_mutex_lock(&heap->lock);
	rc = release(heap, offset);
	pthread_mutex_unlock(&heap->lock);
	if (rc)
		return fail(-EINVAL,
			"symmetric heap of device %d (%s): no block begins at offset %" PRIu64,
			heap->dev, heap->backend->name, offset);
	return 0;
}

int heap_owner(struct heap *heap, uint64_t offset, uint64_t *owner)
{
	int rc;

	pthread_mutex_lock(&heap->lock);
	rc = arena_owner(heap->arena, offset, owner);
	pthread_mutex_unlock(&heap->lock);
	return rc;
}

static bool leaving(const struct heap *heap, uint64_t offset)
{
	const struct heap_block *b = heap->check ? check_from(heap->check, offset) : NULL;

	return b && b->offset == offset && b->leaving;
}

void heap_free_owned(struct heap *heap, uint64_t owner)
{
	uint64_t at = 0, whose;

	pthread_mutex_lock(&heap->lock);
	for (; !arena_next(heap->arena, at, &at, &whose); at++)
		if (whose == owner && !leaving(heap, at))
			release(heap, at);
	pthread_mutex_unlock(&heap->lock);
}

/* ---- the library's own blocks ---------------------------------------------------------------- */

int heap_own_alloc(struct heap *heap, uint64_t size, uint64_t *offset)
{
	const struct arena_want want = {
		.size = size, .align = ARENA_ALIGN, .owner = HEAP_LIBRARY
	};
	uint64_t at;
	int rc;

	pthread_mutex_lock(&heap->lock);
	if (!arena_take(heap->own_arena, &want, &at)) {
		*offset = heap->size + at;
		rc = 0;
	} else {
		rc = take_offset(heap, &want, offset);
	}
	pthread_mutex_unlock(&heap->lock);
	return rc;
}

void heap_own_free(struct heap *heap, uint64_t offset)
{
	bool own = offset >= heap->size;

	pthread_mutex_lock(&heap->lock);
	if (own)
		arena_free(heap->own_arena, offset - heap->size);
	else
		release(heap, offset);
	pthread_mutex_unlock(&heap->lock);
}
