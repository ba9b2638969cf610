/* SPDX-License-Identifier: MIT */
#include "look.h"

static bool copied(const struct heap_block *found, struct heap_block *block)
{
	if (found)
		*block = *found;
	return found;
}

void heap_named(struct heap *heap, uint64_t offset, const char *maker, uint64_t made)
{
	struct heap_block *b;

	pthread_mutex_lock(&heap->lock);
	b = check_from(heap->check, offset);
	if (b && b->offset == offset) {
		b->maker = maker;
		b->made = made;
	}
	pthread_mutex_unlock(&heap->lock);
}

int heap_keep(struct heap *heap, uint64_t offset, uint64_t freed)
{
	struct heap_block *b;
	bool keeps;

	pthread_mutex_lock(&heap->lock);
	b = check_from(heap->check, offset);
	/* Two comms may free at the same time: the second may find no room. */
	keeps = b && b->offset == offset && check_keeps(heap->check, b->span) &&
		!check_oldest(heap->check, b->span);
	if (keeps)
		check_keep(heap->check, b, freed);
	pthread_mutex_unlock(&heap->lock);
	return keeps ? 0 : heap_free(heap, offset);
}

bool heap_kept_over(struct heap *heap, uint64_t span, struct heap_block *oldest)
{
	struct heap_block *b = NULL;

	pthread_mutex_lock(&heap->lock);
	if (check_keeps(heap->check, span))
		b = check_oldest(heap->check, span);
	if (b)
		check_leave(heap->check, b);
	copied(b, oldest);
	pthread_mutex_unlock(&heap->lock);
	return b;
}

bool heap_leave(struct heap *heap, uint64_t offset)
{
	struct heap_block *b;
	bool kept;

	pthread_mutex_lock(&heap->lock);
	b = check_from(heap->check, offset);
	kept = b && b->offset == offset && b->freed && !b->leaving;
	if (kept)
		check_leave(heap->check, b);
	pthread_mutex_unlock(&heap->lock);
	return kept;
}

bool heap_block_below(struct heap *heap, uint64_t offset, struct heap_block *block)
{
	bool found;

	pthread_mutex_lock(&heap->lock);
	found = copied(check_below(heap->check, offset), block);
	pthread_mutex_unlock(&heap->lock);
	return found;
}

bool heap_block_from(struct heap *heap, uint64_t offset, struct heap_block *block)
{
	bool found;

	pthread_mutex_lock(&heap->lock);
	found = copied(check_from(heap->check, offset), block);
	pthread_mutex_unlock(&heap->lock);
	return found;
}
