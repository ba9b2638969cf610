/* SPDX-License-Identifier: MIT */
#include "pool.h"

#include <errno.h>
#include <string.h>

#include "src/base/process.h"
#include "src/base/status.h"

#define PAGE_BYTES 4096

/* Records never move and are never unmapped; a forked child finds none. */
struct pool_page {
	struct pool_page *next;
	struct pool_block blocks[(PAGE_BYTES - sizeof(void *)) / sizeof(struct pool_block)];
};
_Static_assert(sizeof(struct pool_page) <= PAGE_BYTES, "a page");

/* A quarter of a large block, or a page of a small one, may lie idle. */
static bool fits(const struct pool_block *b, size_t size)
{
	return b->size >= size && b->size - size <= MAX_OF(size / 4, 4096);
}

/* What is looked for, and the best so far. */
struct pool_search {
	bool (*better)(const struct pool_search *s, const struct pool_block *b);
	enum pool_kind kind;
	size_t size;
	const void *ptr;
	struct pool_block *found;
};

static struct pool_block *search(struct device_pool *pool, struct pool_search s)
{
	struct pool_page *page;
	size_t i;

	for (page = pool->pages; page; page = page->next) {
		for (i = 0; i < ARRAY_SIZE(page->blocks); i++) {
			if (s.better(&s, &page->blocks[i]))
				s.found = &page->blocks[i];
		}
	}
	return s.found;
}

static bool smallest_that_fits(const struct pool_search *s, const struct pool_block *b)
{
	return b->state == POOL_KEPT && b->kind == s->kind && fits(b, s->size) &&
		(!s->found || b->size < s->found->size);
}

static bool largest_kept(const struct pool_search *s, const struct pool_block *b)
{
	return b->state == POOL_KEPT && (!s->found || b->size > s->found->size);
}

static bool retired(const struct pool_search *s, const struct pool_block *b)
{
	(void)s;
	return b->state == POOL_RETIRED;
}

static bool in_use(const struct pool_search *s, const struct pool_block *b)
{
	return b->state == POOL_USED && b->kind == s->kind && b->ptr == s->ptr;
}

static bool empty(const struct pool_search *s, const struct pool_block *b)
{
	return !s->found && b->state == POOL_EMPTY;
}

static struct pool_block *empty_record(struct device_pool *pool)
{
	struct pool_block *b = search(pool, (struct pool_search){ .better = empty });
	struct pool_page *page;

	if (b)
		return b;
	page = process_pages(sizeof(*page));
	if (!page)
		return NULL;
	page->next = pool->pages;
	pool->pages = page;
	return &page->blocks[0];
}

static int add(struct device_pool *pool, const struct pool_block *block)
{
	struct pool_block *record;

	pthread_mutex_lock(&pool->lock);
	record = empty_record(pool);
	if (record) {
		*record = *block;
		record->state = POOL_USED;
	}
	pthread_mutex_unlock(&pool->lock);
	return record ? 0 : fail(-ENOMEM, "no memory for the record of %zu bytes", block->size);
}

static int take_kept(struct device_pool *pool, const struct pool_source *source, void *ctx,
	enum pool_kind kind, size_t size, struct pool_block *out)
{
	struct pool_block made = { .kind = kind, .size = size }, *kept;
	struct status_saved before;
	int rc;

	pthread_mutex_lock(&pool->lock);
	kept = search(pool,
		(struct pool_search){ .better = smallest_that_fits, .kind = kind, .size = size });
	if (kept) {
		kept->state = POOL_USED;
		*out = *kept;
	}
	pthread_mutex_unlock(&pool->lock);
	if (kept)
		return 0;
	status_save(&before);
	rc = source->make(ctx, &made);
	if (rc == -ENOMEM && pool_trim(pool, source, ctx, 0)) {
		status_restore(&before);
		rc = source->make(ctx, &made);
	}
	if (rc < 0)
		return rc;
	rc = add(pool, &made);
	if (rc < 0)
		source->drop(ctx, &made);
	else
		*out = made;
	return rc;
}

int pool_alloc(struct device_pool *pool, const struct pool_source *source, void *ctx,
	enum pool_kind kind, size_t size, struct pool_block *out)
{
	int rc = take_kept(pool, source, ctx, kind, size, out);

	if (rc < 0)
		return rc;
	if (kind == POOL_PINNED)
		memset(out->ptr, 0, size);
	else
		rc = source->zero(ctx, out->ptr, size);
	if (rc < 0)
		pool_free(pool, kind, out->ptr);
	return rc;
}

static int leave_block(struct device_pool *pool, enum pool_kind kind, const void *ptr, bool again)
{
	struct pool_block *b;

	pthread_mutex_lock(&pool->lock);
	b = search(pool, (struct pool_search){ .better = in_use, .kind = kind, .ptr = ptr });
	if (b)
		b->state = again ? POOL_KEPT : POOL_RETIRED;
	pthread_mutex_unlock(&pool->lock);
	return b ? 0 : -EINVAL;
}

int pool_free(struct device_pool *pool, enum pool_kind kind, const void *ptr)
{
	return leave_block(pool, kind, ptr, true);
}

int pool_retire(struct device_pool *pool, enum pool_kind kind, const void *ptr)
{
	return leave_block(pool, kind, ptr, false);
}

static size_t kept_bytes(struct device_pool *pool)
{
	struct pool_page *page;
	size_t sum = 0, i;

	for (page = pool->pages; page; page = page->next) {
		for (i = 0; i < ARRAY_SIZE(page->blocks); i++)
			sum += page->blocks[i].state == POOL_KEPT ? page->blocks[i].size : 0;
	}
	return sum;
}

/* A retired block, or the largest kept one while they are above the limit, taken out of the records. */
static bool take_spare(struct device_pool *pool, size_t limit, struct pool_block *out)
{
	struct pool_block *b;

	pthread_mutex_lock(&pool->lock);
	b = search(pool, (struct pool_search){ .better = retired });
	if (!b && kept_bytes(pool) > limit)
		b = search(pool, (struct pool_search){ .better = largest_kept });
	if (b) {
		*out = *b;
		b->state = POOL_EMPTY;
	}
	pthread_mutex_unlock(&pool->lock);
	return b != NULL;
}

size_t pool_trim(
	struct device_pool *pool, const struct pool_source *source, void *ctx, size_t limit)
{
	struct pool_block block;
	size_t given = 0;

	while (take_spare(pool, limit, &block)) {
		source->drop(ctx, &block);
		given += block.size;
	}
	return given;
}

void pool_forget(struct device_pool *pool)
{
	struct pool_page *page;
	size_t i;

	pthread_mutex_lock(&pool->lock);
	for (page = pool->pages; page; page = page->next) {
		for (i = 0; i < ARRAY_SIZE(page->blocks); i++)
			page->blocks[i].state = POOL_EMPTY;
	}
	pthread_mutex_unlock(&pool->lock);
}
