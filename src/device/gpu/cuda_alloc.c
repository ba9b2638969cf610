/* SPDX-License-Identifier: MIT */
/* NVIDIA: device and pinned memory, which the pool keeps. */
#include <errno.h>

#include "cuda_state.h"
#include "src/base/status.h"

static int cuda_make_pinned(const struct cuda_bound *b, struct pool_block *block)
{
	cu_pointer seen;
	cu_result r =
		b->api->MemHostAlloc(&block->ptr, block->size, CU_HOST_PORTABLE | CU_HOST_MAPPED);

	if (r == CU_OK) {
		r = b->api->MemHostGetDevicePointer(&seen, block->ptr, 0);
		if (r != CU_OK)
			b->api->MemFreeHost(block->ptr);
	}
	if (r != CU_OK)
		return cuda_fail(r, "host_alloc of %zu bytes (ulimit -l) for device %d",
			block->size, b->dev);
	block->seen = cuda_pointer(seen);
	return 0;
}

static int cuda_make_block(void *ctx, struct pool_block *block)
{
	const struct cuda_bound *b = ctx;
	cu_pointer p;
	cu_result r;

	if (block->kind == POOL_PINNED)
		return cuda_make_pinned(b, block);
	r = b->api->MemAlloc(&p, block->size);
	if (r != CU_OK)
		return cuda_fail(r, "alloc of %zu bytes on device %d", block->size, b->dev);
	block->ptr = cuda_pointer(p);
	return 0;
}

static void cuda_drop_block(void *ctx, const struct pool_block *block)
{
	const struct cuda_bound *b = ctx;

	if (block->kind == POOL_PINNED)
		b->api->MemFreeHost(block->ptr);
	else
		b->api->MemFree((uintptr_t)block->ptr);
}

static int cuda_zero_block(void *ctx, void *ptr, size_t size)
{
	return cuda_zero(ctx, (uintptr_t)ptr, size);
}

const struct pool_source cuda_memory = {
	.make = cuda_make_block, .zero = cuda_zero_block, .drop = cuda_drop_block
};

static int cuda_take(
	int dev, size_t size, enum pool_kind kind, const char *what, struct pool_block *block)
{
	struct cuda_bound b;
	int rc;

	if (!size)
		return fail(-EINVAL, "cuda: %s of 0 bytes on device %d", what, dev);
	rc = cuda_bind_for(&b, dev, FAULT_MEMORY, what);
	if (rc < 0)
		return rc;
	rc = pool_alloc(&b.device->kept.pool, &cuda_memory, &b, kind, size, block);
	cuda_unbind(&b);
	return rc;
}

/* One kind for both: on NVIDIA peers see plain memory while kernels run. */
int cuda_alloc(int dev, size_t size, enum device_memory kind, void **ptr)
{
	struct pool_block block;
	int rc = cuda_take(dev, size, POOL_PLAIN, "alloc", &block);

	(void)kind;
	if (!rc)
		*ptr = block.ptr;
	return rc;
}

int cuda_free(int dev, void *ptr)
{
	struct cuda_device *d = cuda_device(dev, "free");

	return d ? kept_free(&d->kept, ptr) : -ENODEV;
}

int cuda_retire(int dev, void *ptr)
{
	struct cuda_device *d = cuda_device(dev, "retire");

	return d ? kept_retire(&d->kept, ptr) : -ENODEV;
}

int cuda_host_alloc(int dev, size_t size, void **host, void **device)
{
	struct pool_block block;
	int rc = cuda_take(dev, size, POOL_PINNED, "host_alloc", &block);

	if (!rc) {
		*host = block.ptr;
		*device = block.seen;
	}
	return rc;
}

int cuda_host_free(int dev, void *host)
{
	struct cuda_device *d = cuda_device(dev, "host_free");

	return d ? kept_host_free(&d->kept, host) : -ENODEV;
}
