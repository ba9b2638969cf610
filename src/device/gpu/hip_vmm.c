/* SPDX-License-Identifier: MIT */
/* AMD: address ranges backed on demand. */
#include <errno.h>
#include <string.h>

#include "hip_vmm.h"
#include "src/base/mem.h"
#include "src/base/status.h"

static hip_memory_prop memory_prop(int dev)
{
	hip_memory_prop prop;

	memset(&prop, 0, sizeof(prop));
	prop.type = HIP_MEMORY_UNCACHED;
	prop.requestedHandleType = HIP_FD;
	prop.location.type = HIP_ON_DEVICE;
	prop.location.id = dev;
	return prop;
}

static bool has_calls(const struct hip_api *api)
{
	return api->MemGranularity && api->MemAddressReserve && api->MemAddressFree &&
		api->MemCreate && api->MemRelease && api->MemMap && api->MemUnmap &&
		api->MemSetAccess && api->MemExport && api->MemImport;
}

/*
 * Before 6.2 the calls are there and do not work: reserve gives success and NULL. Later ones are
 * asked for one block of uncached memory; where there is none (before 7.2) what they give is
 * cached, and unfit for a symmetric heap.
 */
static enum hip_vmm ask_vmm(const struct hip_bound *b)
{
	hip_memory_prop prop = memory_prop(b->dev);
	hip_memory memory;
	size_t size;
	int can = 0;

	if (b->state->version < HIP_VERSION_OF(6, 2) || !has_calls(b->api))
		return HIP_VMM_NO;
	if (b->api->DeviceGetAttribute(&can, HIP_ATTR_VMM, b->dev) != HIP_OK || !can)
		return HIP_VMM_NO;
	if (b->api->MemGranularity(&size, &prop, HIP_GRANULARITY_MINIMUM) != HIP_OK)
		return HIP_VMM_NO;
	if (b->api->MemCreate(&memory, size, &prop, 0) != HIP_OK)
		return HIP_VMM_NO;
	b->api->MemRelease(memory);
	return HIP_VMM_YES;
}

int hip_vmm_check(const struct hip_bound *b, const char *what)
{
	enum hip_vmm answer;

	pthread_mutex_lock(&b->state->vmm_lock);
	if (b->device->vmm == HIP_VMM_UNASKED)
		b->device->vmm = ask_vmm(b);
	answer = b->device->vmm;
	pthread_mutex_unlock(&b->state->vmm_lock);
	if (answer == HIP_VMM_YES)
		return 0;
	return fail(-ENOTSUP,
		"hip: %s: device %d backs no ranges with uncached memory (SPMT_HEAP_MODE=static)",
		what, b->dev);
}

static int hip_granularity(int dev, size_t *bytes)
{
	hip_memory_prop prop = memory_prop(dev);
	struct hip_bound b;
	size_t out = 0;
	int rc = hip_bind_closed(&b, dev, "granularity");

	if (rc < 0)
		return rc;
	rc = hip_vmm_check(&b, "granularity");
	if (!rc) {
		hip_result r = b.api->MemGranularity(&out, &prop, HIP_GRANULARITY_MINIMUM);

		rc = r == HIP_OK ? 0 : hip_fail(r, "granularity of device %d", dev);
	}
	hip_unbind(&b);
	if (!rc)
		*bytes = out;
	return rc;
}

static hip_result reserve(struct hip_state *state, size_t size, size_t align, void **base)
{
	void *p = NULL;
	hip_result r;

	pthread_mutex_lock(&state->vmm_lock);
	r = state->api.MemAddressReserve(&p, size, align, NULL, 0);
	pthread_mutex_unlock(&state->vmm_lock);
	if (r == HIP_OK && !p)
		return (hip_result)HIP_NOT_SUPPORTED;
	if (r == HIP_OK)
		*base = p;
	return r;
}

static hip_result unreserve(struct hip_state *state, void *base, size_t size)
{
	hip_result r;

	pthread_mutex_lock(&state->vmm_lock);
	r = state->api.MemAddressFree(base, size);
	pthread_mutex_unlock(&state->vmm_lock);
	return r;
}

static hip_result reserve_padded(struct hip_state *state, size_t size, size_t align, void **base)
{
	struct vendor_range range = { .dev = -1, .size = size + align };
	void *p;
	hip_result r = reserve(state, range.size, align, &p);

	if (r != HIP_OK)
		return r;
	range.base = (char *)(((uintptr_t)p + align - 1) & ~(uintptr_t)(align - 1));
	range.handle = (uintptr_t)p;
	if (vendor_range_add(&state->padded, &range) < 0) {
		unreserve(state, p, range.size);
		return (hip_result)HIP_NO_MEMORY;
	}
	*base = range.base;
	return HIP_OK;
}

/* The runtime takes an alignment and aligns to 2 MiB at most. */
hip_result hip_range_reserve(struct hip_state *state, size_t size, size_t align, void **base)
{
	void *p;
	hip_result r = reserve(state, size, align, &p);

	if (r == HIP_OK && align && (uintptr_t)p % align) {
		unreserve(state, p, size);
		r = reserve_padded(state, size, align, &p);
	}
	if (r == HIP_OK)
		*base = p;
	return r;
}

hip_result hip_range_free(struct hip_state *state, void *base, size_t size)
{
	struct vendor_range range;
	bool found;

	if (vendor_range_drop(&state->padded, base, 0, -1, false, &range, &found))
		return unreserve(state, (void *)(uintptr_t)range.handle, range.size);
	return unreserve(state, base, size);
}

static int hip_reserve(size_t size, size_t align, void **base)
{
	struct hip_bound b;
	int rc = hip_bind_closed(&b, 0, "reserve");

	if (rc < 0)
		return rc;
	rc = hip_vmm_check(&b, "reserve");
	if (!rc)
		rc = vendor_fault(FAULT_MAP, "hip", "reserve", 0);
	if (!rc) {
		hip_result r = hip_range_reserve(b.state, size, align, base);

		rc = r == HIP_OK
			? 0
			: hip_fail(r, "reserving %zu bytes of addresses (ulimit -v)", size);
	}
	hip_unbind(&b);
	return rc;
}

static int hip_unreserve(void *base, size_t size)
{
	struct hip_bound b;
	int rc = hip_bind_closed(&b, 0, "unreserve");

	if (rc < 0)
		return rc;
	rc = hip_vmm_check(&b, "unreserve");
	if (!rc)
		return hip_done(&b, hip_range_free(b.state, base, size), "unreserve");
	hip_unbind(&b);
	return rc;
}

/* The runtime refuses the whole list for one device that cannot reach this one. */
static bool hip_reaches(const struct hip_bound *b, int peer)
{
	int can = 0;

	return peer != b->dev && peer >= 0 && peer < b->state->count &&
		(b->api->DeviceCanAccessPeer(&can, peer, b->dev) != HIP_OK || can);
}

/* Read and write for the device and its peers, in one call, because each replaces what was
   there. The lock is held. */
static int hip_set_access(
	const struct hip_bound *b, void *ptr, size_t size, const int *peers, int n)
{
	hip_memory_access *access = mem_calloc((size_t)n + 1, sizeof(*access));
	size_t count = 1, i;
	hip_result r;

	if (!access)
		return fail(-ENOMEM, "hip: no memory for a list of %d peers", n);
	access[0].location.id = b->dev;
	for (i = 0; i < (size_t)n; i++) {
		if (hip_reaches(b, peers[i]))
			access[count++].location.id = peers[i];
	}
	for (i = 0; i < count; i++) {
		access[i].location.type = HIP_ON_DEVICE;
		access[i].flags = HIP_READ_WRITE;
	}
	r = b->api->MemSetAccess(ptr, size, access, count);
	mem_free(access);
	return r == HIP_OK ? 0
			   : hip_fail(r, "access of %zu devices to %zu bytes of device %d", count,
				     size, b->dev);
}

int hip_range_map(const struct hip_bound *b, void *at, size_t size, hip_memory memory,
	const int *peers, int n)
{
	hip_result r;
	int rc;

	pthread_mutex_lock(&b->state->vmm_lock);
	r = b->api->MemMap(at, size, 0, memory, 0);
	if (r != HIP_OK) {
		rc = hip_fail(r, "mapping %zu bytes at %p on device %d", size, at, b->dev);
	} else {
		rc = hip_set_access(b, at, size, peers, n);
		if (rc < 0)
			b->api->MemUnmap(at, size);
	}
	pthread_mutex_unlock(&b->state->vmm_lock);
	return rc;
}

hip_result hip_range_unmap(const struct hip_bound *b, void *at, size_t size)
{
	hip_result r;

	pthread_mutex_lock(&b->state->vmm_lock);
	r = b->api->MemUnmap(at, size);
	pthread_mutex_unlock(&b->state->vmm_lock);
	return r;
}

hip_result hip_memory_release(const struct hip_bound *b, hip_memory memory)
{
	hip_result r;

	pthread_mutex_lock(&b->state->vmm_lock);
	r = b->api->MemRelease(memory);
	pthread_mutex_unlock(&b->state->vmm_lock);
	return r;
}

static hip_result hip_create_memory(const struct hip_bound *b, size_t size, hip_memory *memory)
{
	hip_memory_prop prop = memory_prop(b->dev);
	hip_result r;

	pthread_mutex_lock(&b->state->vmm_lock);
	r = b->api->MemCreate(memory, size, &prop, 0);
	pthread_mutex_unlock(&b->state->vmm_lock);
	return r;
}

/* Where the runtime has no memory left, the pool may have. */
static int hip_commit_bound(struct hip_bound *b, void *ptr, size_t size, const int *peers, int n)
{
	struct vendor_range range = { .base = ptr, .size = size, .dev = b->dev };
	hip_memory memory;
	hip_result r = hip_create_memory(b, size, &memory);
	int rc;

	if (r == HIP_NO_MEMORY && pool_trim(&b->device->kept.pool, &hip_memory_source, b, 0))
		r = hip_create_memory(b, size, &memory);
	if (r != HIP_OK)
		return hip_fail(r, "commit of %zu bytes on device %d", size, b->dev);
	rc = hip_range_map(b, ptr, size, memory, peers, n);
	if (!rc) {
		range.handle = (uintptr_t)memory;
		rc = hip_zero(b, ptr, size);
		if (!rc)
			rc = vendor_range_add(&b->state->ranges, &range);
		if (rc < 0)
			hip_range_unmap(b, ptr, size);
	}
	if (rc < 0)
		hip_memory_release(b, memory);
	return rc;
}

static int hip_commit(int dev, void *ptr, size_t size, const int *peers, int n)
{
	struct hip_bound b;
	int rc = hip_bind_for(&b, dev, FAULT_MEMORY, "commit");

	if (rc < 0)
		return rc;
	rc = hip_vmm_check(&b, "commit");
	if (!rc)
		rc = hip_commit_bound(&b, ptr, size, peers, n);
	hip_unbind(&b);
	return rc;
}

/* Both always, whatever the first says: a range half taken back cannot be taken back again. */
int hip_range_undo(const struct hip_bound *b, const struct vendor_range *range)
{
	hip_result unmapped = hip_range_unmap(b, range->base, range->size);
	hip_result released = hip_memory_release(b, hip_memory_of(range));

	if (unmapped == HIP_OK && released == HIP_OK)
		return 0;
	return hip_fail(unmapped != HIP_OK ? unmapped : released,
		"taking back %zu bytes at %p of device %d", range->size, (void *)range->base,
		b->dev);
}

static int hip_decommit(int dev, void *ptr, size_t size)
{
	struct vendor_range range;
	struct hip_bound b;
	bool found;
	int rc = hip_bind(&b, dev, "decommit");

	if (rc < 0)
		return rc;
	if (vendor_range_drop(&b.state->ranges, ptr, size, dev, false, &range, &found))
		rc = hip_range_undo(&b, &range);
	else
		rc = fail(-EINVAL, "hip: decommit: %zu bytes at %p are no commit of device %d",
			size, ptr, dev);
	hip_unbind(&b);
	return rc;
}

const struct device_vmm_ops hip_vmm_ops = {
	.granularity = hip_granularity,
	.reserve = hip_reserve,
	.unreserve = hip_unreserve,
	.commit = hip_commit,
	.decommit = hip_decommit,
	.import = hip_import_at,
};
