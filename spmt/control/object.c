/* SPDX-License-Identifier: MIT */
#include "object.h"

#include <string.h>

#include "src/base/process.h"

/* One mapping holds many objects: a mapping for each would cost a system call and a page a rank. */
#define OBJECT_POOL_BLOCK (64u << 10)

static struct object *object_pool_grow(struct object_pool *pool, size_t size)
{
	size_t step = align_up(size, CACHE_LINE);
	size_t n = MAX_OF(OBJECT_POOL_BLOCK / step, 1u);
	char *block = process_pages(n * step);

	if (!block)
		return NULL;
	for (size_t i = 1; i < n; i++) {
		struct object *p = (struct object *)(void *)(block + i * step);

		atomic_store_explicit(&p->state, OBJECT_FREE, memory_order_relaxed);
		p->next = pool->free;
		pool->free = p;
	}
	return (struct object *)(void *)block;
}

void *object_take(struct object_pool *pool, size_t size)
{
	struct object *p;

	pthread_mutex_lock(&pool->lock);
	p = pool->free;
	if (p)
		pool->free = p->next;
	else
		p = object_pool_grow(pool, size);
	pthread_mutex_unlock(&pool->lock);
	if (!p)
		return NULL;
	p->next = NULL;
	atomic_store(&p->owner, 0); /* a call on what was here may still be leaving it */
	memset((char *)p + sizeof(*p), 0, size - sizeof(*p));
	atomic_store_explicit(&p->state, OBJECT_BUSY, memory_order_release);
	return p;
}

void object_give(struct object_pool *pool, void *object)
{
	struct object *p = object;

	atomic_store_explicit(&p->state, OBJECT_FREE, memory_order_release);
	pthread_mutex_lock(&pool->lock);
	p->next = pool->free;
	pool->free = p;
	pthread_mutex_unlock(&pool->lock);
}
