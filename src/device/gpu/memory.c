/* SPDX-License-Identifier: MIT */
/* Device and pinned memory, which the pool keeps. */
#include <errno.h>

#include "bind.h"
#include "ops.h"
#include "src/base/status.h"

static int make_pinned(const struct gpu_bound *b, struct pool_block *block)
{
	int r = b->calls->MemHostAlloc(&block->ptr, block->size, b->vendor->host_flags);

	if (r == GPU_OK) {
		r = b->calls->MemHostGetDevicePointer(&block->seen, block->ptr, 0);
		if (r != GPU_OK)
			b->calls->MemFreeHost(block->ptr);
	}
	return r == GPU_OK
		? 0
		: gpu_fail(b->vendor, r, "host_alloc of %zu bytes (ulimit -l) for device %d",
			  block->size, b->dev);
}

static int make_block(void *ctx, struct pool_block *block)
{
	const struct gpu_bound *b = ctx;
	int r;

	if (block->kind == POOL_PINNED)
		return make_pinned(b, block);
	r = block->kind == POOL_SYMMETRIC
		? b->vendor->alloc_symmetric(b->state, block->size, &block->ptr)
		: b->calls->MemAlloc(&block->ptr, block->size);
	return r == GPU_OK
		? 0
		: gpu_fail(b->vendor, r, "alloc of %zu bytes on device %d", block->size, b->dev);
}

static void drop_block(void *ctx, const struct pool_block *block)
{
	const struct gpu_bound *b = ctx;

	if (block->kind == POOL_PINNED)
		b->calls->MemFreeHost(block->ptr);
	else
		b->calls->MemFree(block->ptr);
}

static int zero_block(void *ctx, void *ptr, size_t size)
{
	return gpu_zero(ctx, ptr, size);
}

const struct pool_source gpu_memory = {
	.make = make_block, .zero = zero_block, .drop = drop_block
};

static int take_block(const struct gpu_vendor *v, int dev, enum pool_kind kind, const char *what,
	struct pool_block *block, size_t size)
{
	struct gpu_bound b;
	int rc;

	if (!size)
		return fail(-EINVAL, "%s: %s of 0 bytes on device %d", v->name, what, dev);
	rc = gpu_bind_for(&b, v, dev, FAULT_MEMORY, what);
	if (rc < 0)
		return rc;
	rc = pool_alloc(&b.device->kept.pool, &gpu_memory, &b, kind, size, block);
	gpu_unbind(&b);
	return rc;
}

/* One kind for both where peers see plain memory while kernels run. */
int gpu_alloc(const struct gpu_vendor *v, int dev, size_t size, enum device_memory kind, void **ptr)
{
	bool symmetric = kind == DEVICE_MEMORY_SYMMETRIC && v->alloc_symmetric;
	struct pool_block block;
	int rc = take_block(v, dev, symmetric ? POOL_SYMMETRIC : POOL_PLAIN, "alloc", &block, size);

	if (!rc)
		*ptr = block.ptr;
	return rc;
}

int gpu_free(const struct gpu_vendor *v, int dev, void *ptr)
{
	struct gpu_device *d = gpu_device(v, dev, "free");

	return d ? kept_free(&d->kept, ptr) : -ENODEV;
}

int gpu_retire(const struct gpu_vendor *v, int dev, void *ptr)
{
	struct gpu_device *d = gpu_device(v, dev, "retire");

	return d ? kept_retire(&d->kept, ptr) : -ENODEV;
}

int gpu_host_alloc(const struct gpu_vendor *v, int dev, size_t size, void **host, void **device)
{
	struct pool_block block;
	int rc = take_block(v, dev, POOL_PINNED, "host_alloc", &block, size);

	if (!rc) {
		*host = block.ptr;
		*device = block.seen;
	}
	return rc;
}

int gpu_host_free(const struct gpu_vendor *v, int dev, void *host)
{
	struct gpu_device *d = gpu_device(v, dev, "host_free");

	return d ? kept_host_free(&d->kept, host) : -ENODEV;
}
