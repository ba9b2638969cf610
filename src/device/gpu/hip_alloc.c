/* SPDX-License-Identifier: MIT */
/* AMD: device and pinned memory, which the pool keeps. */
#include <errno.h>

#include "hip_state.h"
#include "src/base/status.h"

/*
 * Uncached where the runtime knows it, else fine-grained: only of these kinds do a peer's loads see
 * stores while both kernels run. Version 5.2 refuses uncached as a bad value.
 */
static hip_result malloc_symmetric(const struct hip_api *api, size_t size, void **ptr)
{
	hip_result r = api->ExtMallocWithFlags(ptr, size, HIP_UNCACHED);

	if (r == HIP_INVALID_VALUE || r == HIP_NOT_SUPPORTED)
		r = api->ExtMallocWithFlags(ptr, size, HIP_FINE_GRAINED);
	return r;
}

static int hip_make_pinned(const struct hip_bound *b, struct pool_block *block)
{
	hip_result r = b->api->HostMalloc(
		&block->ptr, block->size, HIP_HOST_PORTABLE | HIP_HOST_MAPPED | HIP_HOST_COHERENT);

	if (r == HIP_OK) {
		r = b->api->HostGetDevicePointer(&block->seen, block->ptr, 0);
		if (r != HIP_OK)
			b->api->HostFree(block->ptr);
	}
	return r == HIP_OK ? 0
			   : hip_fail(r, "host_alloc of %zu bytes (ulimit -l) for device %d",
				     block->size, b->dev);
}

static int hip_make_block(void *ctx, struct pool_block *block)
{
	const struct hip_bound *b = ctx;
	hip_result r;

	if (block->kind == POOL_PINNED)
		return hip_make_pinned(b, block);
	r = block->kind == POOL_SYMMETRIC ? malloc_symmetric(b->api, block->size, &block->ptr)
					  : b->api->Malloc(&block->ptr, block->size);
	return r == HIP_OK ? 0
			   : hip_fail(r, "alloc of %zu bytes on device %d", block->size, b->dev);
}

static void hip_drop_block(void *ctx, const struct pool_block *block)
{
	const struct hip_bound *b = ctx;

	if (block->kind == POOL_PINNED)
		b->api->HostFree(block->ptr);
	else
		b->api->Free(block->ptr);
}

static int hip_zero_block(void *ctx, void *ptr, size_t size)
{
	return hip_zero(ctx, ptr, size);
}

const struct pool_source hip_memory_source = {
	.make = hip_make_block, .zero = hip_zero_block, .drop = hip_drop_block
};

static int hip_take(
	int dev, size_t size, enum pool_kind kind, const char *what, struct pool_block *block)
{
	struct hip_bound b;
	int rc;

	if (!size)
		return fail(-EINVAL, "hip: %s of 0 bytes on device %d", what, dev);
	rc = hip_bind_for(&b, dev, FAULT_MEMORY, what);
	if (rc < 0)
		return rc;
	rc = pool_alloc(&b.device->kept.pool, &hip_memory_source, &b, kind, size, block);
	hip_unbind(&b);
	return rc;
}

int hip_alloc(int dev, size_t size, enum device_memory kind, void **ptr)
{
	enum pool_kind from = kind == DEVICE_MEMORY_SYMMETRIC ? POOL_SYMMETRIC : POOL_PLAIN;
	struct pool_block block;
	int rc = hip_take(dev, size, from, "alloc", &block);

	if (!rc)
		*ptr = block.ptr;
	return rc;
}

int hip_free(int dev, void *ptr)
{
	struct hip_device *d = hip_device(dev, "free");

	return d ? kept_free(&d->kept, ptr) : -ENODEV;
}

int hip_retire(int dev, void *ptr)
{
	struct hip_device *d = hip_device(dev, "retire");

	return d ? kept_retire(&d->kept, ptr) : -ENODEV;
}

int hip_host_alloc(int dev, size_t size, void **host, void **device)
{
	struct pool_block block;
	int rc = hip_take(dev, size, POOL_PINNED, "host_alloc", &block);

	if (!rc) {
		*host = block.ptr;
		*device = block.seen;
	}
	return rc;
}

int hip_host_free(int dev, void *host)
{
	struct hip_device *d = hip_device(dev, "host_free");

	return d ? kept_host_free(&d->kept, host) : -ENODEV;
}
