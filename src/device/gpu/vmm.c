/* SPDX-License-Identifier: MIT */
/* Address ranges backed on demand. */
#include "vmm.h"

#include <errno.h>
#include <string.h>

#include "include/spmt.h"
#include "ops.h"
#include "src/base/mem.h"
#include "src/base/status.h"

static void lock_mappings(const struct gpu_bound *b)
{
	if (b->vendor->one_mapping_a_time)
		pthread_mutex_lock(&b->state->vmm_lock);
}

static void unlock_mappings(const struct gpu_bound *b)
{
	if (b->vendor->one_mapping_a_time)
		pthread_mutex_unlock(&b->state->vmm_lock);
}

struct gpu_memory_prop gpu_memory_prop(const struct gpu_bound *b, bool shared)
{
	struct gpu_memory_prop prop;

	memset(&prop, 0, sizeof(prop));
	prop.type = b->vendor->memory_type;
	prop.handle_type = shared ? GPU_FD : 0;
	prop.location.type = GPU_ON_DEVICE;
	prop.location.id = b->device->handle;
	return prop;
}

enum gpu_vmm gpu_vmm(const struct gpu_bound *b)
{
	enum gpu_vmm answer;

	pthread_mutex_lock(&b->state->vmm_lock);
	if (b->device->vmm == GPU_VMM_UNASKED)
		b->device->vmm = b->vendor->ask_vmm(b);
	answer = b->device->vmm;
	pthread_mutex_unlock(&b->state->vmm_lock);
	return answer;
}

int gpu_vmm_check(const struct gpu_bound *b, bool shared, const char *what)
{
	enum gpu_vmm answer = gpu_vmm(b);

	if (answer == GPU_VMM_SHARED || (answer == GPU_VMM_PRIVATE && !shared))
		return 0;
	return fail(SPMT_ERR_UNSUPPORTED, "%s: %s: device %d %s (SPMT_HEAP_MODE=static)",
		b->vendor->name, what, b->dev, b->vendor->no_vmm);
}

int gpu_granularity(const struct gpu_vendor *v, int dev, size_t *bytes)
{
	struct gpu_memory_prop prop;
	struct gpu_bound b;
	size_t out = 0;
	int rc = gpu_bind_closed(&b, v, dev, "granularity");

	if (rc < 0)
		return rc;
	rc = gpu_vmm_check(&b, false, "granularity");
	if (!rc) {
		int r;

		prop = gpu_memory_prop(&b, gpu_vmm(&b) == GPU_VMM_SHARED);
		r = b.calls->MemGranularity(&out, &prop, GPU_GRANULARITY_MINIMUM);
		rc = r == GPU_OK ? 0 : gpu_fail(v, r, "granularity of device %d", dev);
	}
	gpu_unbind(&b);
	if (!rc)
		*bytes = out;
	return rc;
}

static int reserve_once(const struct gpu_bound *b, size_t size, size_t align, void **base)
{
	void *p = NULL;
	int r;

	lock_mappings(b);
	r = b->calls->MemAddressReserve(&p, size, align, NULL, 0);
	unlock_mappings(b);
	if (r == GPU_OK && !p)
		return GPU_NOT_SUPPORTED;
	if (r == GPU_OK)
		*base = p;
	return r;
}

static int free_once(const struct gpu_bound *b, void *base, size_t size)
{
	int r;

	lock_mappings(b);
	r = b->calls->MemAddressFree(base, size);
	unlock_mappings(b);
	return r;
}

static int reserve_padded(const struct gpu_bound *b, size_t size, size_t align, void **base)
{
	struct vendor_range range = { .dev = -1, .size = size + align };
	void *p;
	int r = reserve_once(b, range.size, align, &p);

	if (r != GPU_OK)
		return r;
	range.base = (char *)(((uintptr_t)p + align - 1) & ~(uintptr_t)(align - 1));
	range.handle = (uintptr_t)p;
	if (vendor_range_add(&b->state->padded, &range) < 0) {
		free_once(b, p, range.size);
		return GPU_NO_MEMORY;
	}
	*base = range.base;
	return GPU_OK;
}

/* HIP takes an alignment and aligns to 2 MiB at most. */
int gpu_range_reserve(const struct gpu_bound *b, size_t size, size_t align, void **base)
{
	void *p;
	int r = reserve_once(b, size, align, &p);

	if (r == GPU_OK && align && (uintptr_t)p % align) {
		free_once(b, p, size);
		r = reserve_padded(b, size, align, &p);
	}
	if (r == GPU_OK)
		*base = p;
	return r;
}

int gpu_range_free(const struct gpu_bound *b, void *base, size_t size)
{
	struct vendor_range range;
	bool found;

	if (vendor_range_drop(&b->state->padded, base, 0, -1, false, &range, &found))
		return free_once(b, (void *)(uintptr_t)range.handle, range.size);
	return free_once(b, base, size);
}

static int reserves(const struct gpu_bound *b, const char *what)
{
	if (b->vendor->reserve_needs_vmm)
		return gpu_vmm_check(b, false, what);
	if (b->calls->MemAddressReserve && b->calls->MemAddressFree)
		return 0;
	return fail(SPMT_ERR_UNSUPPORTED,
		"%s: %s: this %s reserves no ranges (SPMT_HEAP_MODE=static)", b->vendor->name, what,
		b->vendor->kind);
}

int gpu_reserve(const struct gpu_vendor *v, size_t size, size_t align, void **base)
{
	struct gpu_bound b;
	int rc = gpu_bind_closed(&b, v, 0, "reserve");

	if (rc < 0)
		return rc;
	rc = reserves(&b, "reserve");
	if (!rc)
		rc = vendor_fault(FAULT_MAP, v->name, "reserve", 0);
	if (!rc) {
		int r = gpu_range_reserve(&b, size, align, base);

		if (r != GPU_OK)
			rc = gpu_fail(v, r, "reserving %zu bytes of addresses (ulimit -v)", size);
	}
	gpu_unbind(&b);
	return rc;
}

int gpu_unreserve(const struct gpu_vendor *v, void *base, size_t size)
{
	struct gpu_bound b;
	int rc = gpu_bind_closed(&b, v, 0, "unreserve");

	if (rc < 0)
		return rc;
	rc = reserves(&b, "unreserve");
	if (!rc) {
		int r = gpu_range_free(&b, base, size);

		if (r != GPU_OK)
			rc = gpu_fail(v, r, "unreserve of %zu bytes at %p", size, base);
	}
	gpu_unbind(&b);
	return rc;
}

/* The driver refuses the whole list for one device that cannot reach this one. */
static bool reaches(const struct gpu_bound *b, int peer)
{
	int can = 0;

	return peer != b->dev && peer >= 0 && peer < b->state->count &&
		(b->calls->DeviceCanAccessPeer(
			 &can, b->state->devices[peer].handle, b->device->handle) != GPU_OK ||
			can);
}

/* Read and write for the device and its peers, in one call, because each replaces what was
   there. The lock is held. */
static int set_access(
	const struct gpu_bound *b, const struct vendor_range *range, const int *peers, int n)
{
	struct gpu_memory_access *access = mem_calloc((size_t)n + 1, sizeof(*access));
	size_t count = 1, i;
	int r;

	if (!access)
		return fail(-ENOMEM, "%s: no memory for a list of %d peers", b->vendor->name, n);
	access[0].location.id = b->device->handle;
	for (i = 0; i < (size_t)n; i++) {
		if (reaches(b, peers[i]))
			access[count++].location.id = b->state->devices[peers[i]].handle;
	}
	for (i = 0; i < count; i++) {
		access[i].location.type = GPU_ON_DEVICE;
		access[i].flags = GPU_READ_WRITE;
	}
	r = b->calls->MemSetAccess(range->base, range->size, access, count);
	mem_free(access);
	return r == GPU_OK
		? 0
		: gpu_fail(b->vendor, r, "access of %zu devices to %zu bytes of device %d", count,
			  range->size, b->dev);
}

int gpu_range_map(
	const struct gpu_bound *b, const struct vendor_range *range, const int *peers, int n)
{
	int r, rc;

	lock_mappings(b);
	r = b->calls->MemMap(range->base, range->size, 0, gpu_memory_of(range), 0);
	if (r != GPU_OK) {
		rc = gpu_fail(b->vendor, r, "mapping %zu bytes at %p on device %d", range->size,
			(void *)range->base, b->dev);
	} else {
		rc = set_access(b, range, peers, n);
		if (rc < 0)
			b->calls->MemUnmap(range->base, range->size);
	}
	unlock_mappings(b);
	return rc;
}

int gpu_range_unmap(const struct gpu_bound *b, const struct vendor_range *range)
{
	int r;

	lock_mappings(b);
	r = b->calls->MemUnmap(range->base, range->size);
	unlock_mappings(b);
	return r;
}

int gpu_memory_release(const struct gpu_bound *b, void *memory)
{
	int r;

	lock_mappings(b);
	r = b->calls->MemRelease(memory);
	unlock_mappings(b);
	return r;
}

int gpu_memory_export(const struct gpu_bound *b, void *memory, int *fd)
{
	int r;

	lock_mappings(b);
	r = b->calls->MemExport(fd, memory, GPU_FD, 0);
	unlock_mappings(b);
	return r;
}

int gpu_memory_import(const struct gpu_bound *b, int fd, void **memory)
{
	void *handle = b->state->import_by_address ? (void *)&fd : (void *)(intptr_t)fd;
	int r;

	lock_mappings(b);
	r = b->calls->MemImport(memory, handle, GPU_FD);
	unlock_mappings(b);
	return r;
}

static int create_memory(const struct gpu_bound *b, size_t size, void **memory)
{
	struct gpu_memory_prop prop = gpu_memory_prop(b, gpu_vmm(b) == GPU_VMM_SHARED);
	int r;

	lock_mappings(b);
	r = b->calls->MemCreate(memory, size, &prop, 0);
	unlock_mappings(b);
	return r;
}

/* Where the driver has no memory left, the pool may have. */
static int commit_bound(struct gpu_bound *b, struct vendor_range *range, const int *peers, int n)
{
	void *memory;
	int rc, r = create_memory(b, range->size, &memory);

	if (r == GPU_NO_MEMORY && pool_trim(&b->device->kept.pool, &gpu_memory, b, 0))
		r = create_memory(b, range->size, &memory);
	if (r != GPU_OK)
		return gpu_fail(
			b->vendor, r, "commit of %zu bytes on device %d", range->size, b->dev);
	range->handle = (uintptr_t)memory;
	rc = gpu_range_map(b, range, peers, n);
	if (!rc) {
		rc = gpu_zero(b, range->base, range->size);
		if (!rc)
			rc = vendor_range_add(&b->state->ranges, range);
		if (rc < 0)
			gpu_range_unmap(b, range);
	}
	if (rc < 0)
		gpu_memory_release(b, memory);
	return rc;
}

int gpu_commit(const struct gpu_vendor *v, int dev, void *ptr, size_t size, const int *peers, int n)
{
	struct vendor_range range = { .base = ptr, .size = size, .dev = dev };
	struct gpu_bound b;
	int rc = gpu_bind_for(&b, v, dev, FAULT_MEMORY, "commit");

	if (rc < 0)
		return rc;
	rc = gpu_vmm_check(&b, false, "commit");
	if (!rc)
		rc = commit_bound(&b, &range, peers, n);
	gpu_unbind(&b);
	return rc;
}

/* Both always, whatever the first says: a range half taken back cannot be taken back again. */
int gpu_range_undo(const struct gpu_bound *b, const struct vendor_range *range)
{
	int unmapped = gpu_range_unmap(b, range);
	int released = gpu_memory_release(b, gpu_memory_of(range));

	if (unmapped == GPU_OK && released == GPU_OK)
		return 0;
	return gpu_fail(b->vendor, unmapped != GPU_OK ? unmapped : released,
		"taking back %zu bytes at %p of device %d", range->size, (void *)range->base,
		b->dev);
}

int gpu_decommit(const struct gpu_vendor *v, int dev, void *ptr, size_t size)
{
	struct vendor_range range;
	struct gpu_bound b;
	bool found;
	int rc = gpu_bind(&b, v, dev, "decommit");

	if (rc < 0)
		return rc;
	if (vendor_range_drop(&b.state->ranges, ptr, size, dev, false, &range, &found))
		rc = gpu_range_undo(&b, &range);
	else
		rc = fail(-EINVAL, "%s: decommit: %zu bytes at %p are no commit of device %d",
			v->name, size, ptr, dev);
	gpu_unbind(&b);
	return rc;
}
