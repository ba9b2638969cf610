/* SPDX-License-Identifier: MIT */
/*
 * Memory that a vendor's runtime has given and that is used again instead of freed: a driver's free
 * waits for every kernel on the device, behind a lock that every launch takes. One pool a device.
 */
#ifndef SPMT_DEVICE_POOL_H
#define SPMT_DEVICE_POOL_H

#include <pthread.h>

#include "src/base/base.h"

enum pool_kind { POOL_PLAIN, POOL_SYMMETRIC, POOL_PINNED };

struct pool_block {
	enum pool_kind kind;
	enum { POOL_EMPTY, POOL_KEPT, POOL_RETIRED, POOL_USED } state;
	size_t size;
	void *ptr;
	void *seen; /* pinned memory as the device sees it */
};

struct device_pool {
	pthread_mutex_t lock; /* guards the records; never held round a driver call */
	struct pool_page *pages;
};

/* The driver's side. make: kind and size are given; a code with a sentence. zero: device memory; a
   code with a sentence. drop may wait. */
struct pool_source {
	int (*make)(void *ctx, struct pool_block *block);
	int (*zero)(void *ctx, void *ptr, size_t size);
	void (*drop)(void *ctx, const struct pool_block *block);
};

/*
 * A kept block of this kind, at least as large and not much larger, else a new one; zeroed. Where
 * the driver has no memory left, all that is kept is given back first: only then may this wait for
 * kernels.
 */
int pool_alloc(struct device_pool *pool, const struct pool_source *source, void *ctx,
	enum pool_kind kind, size_t size, struct pool_block *out);
/* Keeps it. -EINVAL, without a sentence: ptr is not the beginning of a block in use of this kind. */
int pool_free(struct device_pool *pool, enum pool_kind kind, const void *ptr);
/* The same, never to be used again. */
int pool_retire(struct device_pool *pool, enum pool_kind kind, const void *ptr);
/* Gives back what is retired, and the largest until at most `limit` bytes are kept; how many it gave
   back. */
size_t pool_trim(
	struct device_pool *pool, const struct pool_source *source, void *ctx, size_t limit);
/* The driver has taken everything away. */
void pool_forget(struct device_pool *pool);

#endif
