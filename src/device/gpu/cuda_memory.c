/* SPDX-License-Identifier: MIT */
/* NVIDIA: ranges backed on demand, and naming memory to other processes. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cuda_state.h"
#include "src/base/mem.h"
#include "src/base/status.h"

/* ---- ranges backed on demand */

static cu_memory_prop cuda_memory_prop(const struct cuda_device *d)
{
	cu_memory_prop prop;

	memset(&prop, 0, sizeof(prop));
	prop.type = CU_PINNED;
	prop.requestedHandleTypes = d->fds ? CU_FD : 0;
	prop.location.type = CU_ON_DEVICE;
	prop.location.id = d->handle;
	return prop;
}

static int no_vmm(int dev, const char *what)
{
	return fail(-ENOTSUP,
		"cuda: %s: device %d cannot back ranges on demand (SPMT_HEAP_MODE=static)", what,
		dev);
}

static int cuda_granularity(int dev, size_t *bytes)
{
	struct cuda_device *d = cuda_device(dev, "granularity");
	cu_memory_prop prop;
	size_t out;
	cu_result r;

	if (!d)
		return -ENODEV;
	if (!d->vmm)
		return no_vmm(dev, "granularity");
	prop = cuda_memory_prop(d);
	r = cuda_state()->api.MemGranularity(&out, &prop, CU_GRANULARITY_MINIMUM);
	if (r != CU_OK)
		return cuda_fail(r, "granularity of device %d", dev);
	*bytes = out;
	return 0;
}

static int cuda_reserve(size_t size, size_t align, void **base)
{
	struct cuda_state *state = cuda_state();
	cu_pointer p;
	cu_result r;
	int rc;

	if (!state)
		return -ENODEV;
	if (!state->api.MemAddressReserve || !state->api.MemAddressFree)
		return fail(-ENOTSUP,
			"cuda: reserve: this driver reserves no ranges (SPMT_HEAP_MODE=static)");
	rc = vendor_fault(FAULT_MAP, "cuda", "reserve", 0);
	if (rc < 0)
		return rc;
	r = state->api.MemAddressReserve(&p, size, align, 0, 0);
	if (r != CU_OK)
		return cuda_fail(r, "reserving %zu bytes of addresses (ulimit -v)", size);
	*base = cuda_pointer(p);
	return 0;
}

static int cuda_unreserve(void *base, size_t size)
{
	struct cuda_state *state = cuda_state();
	cu_result r;

	if (!state)
		return -ENODEV;
	if (!state->api.MemAddressFree)
		return fail(-EINVAL, "cuda: unreserve: %p was never reserved", base);
	r = state->api.MemAddressFree((uintptr_t)base, size);
	return r == CU_OK ? 0 : cuda_fail(r, "unreserve of %zu bytes at %p", size, base);
}

/* The driver refuses the whole list for one device that cannot reach this one. */
static bool cuda_reaches(const struct cuda_bound *b, int peer)
{
	int can = 0;

	return peer != b->dev && peer >= 0 && peer < b->state->count &&
		(b->api->DeviceCanAccessPeer(
			 &can, b->state->devices[peer].handle, b->device->handle) != CU_OK ||
			can);
}

/* Read and write for the device and its peers, in one call, because each replaces what was
   there. */
static int cuda_set_access(
	const struct cuda_bound *b, cu_pointer ptr, size_t size, const int *peers, int n)
{
	cu_memory_access *access = mem_calloc((size_t)n + 1, sizeof(*access));
	size_t count = 1;
	cu_result r;
	int i;

	if (!access)
		return fail(-ENOMEM, "cuda: no memory for a list of %d peers", n);
	access[0].location.id = b->device->handle;
	for (i = 0; i < n; i++) {
		if (cuda_reaches(b, peers[i]))
			access[count++].location.id = b->state->devices[peers[i]].handle;
	}
	for (i = 0; i < (int)count; i++) {
		access[i].location.type = CU_ON_DEVICE;
		access[i].flags = CU_READ_WRITE;
	}
	r = b->api->MemSetAccess(ptr, size, access, count);
	mem_free(access);
	return r == CU_OK ? 0
			  : cuda_fail(r, "access of %zu devices to %zu bytes of device %d", count,
				    size, b->dev);
}

/* Maps memory, gives access, zeroes if it is new. The handle may be released afterwards: the
   mapping holds on. */
static int map_memory(const struct cuda_bound *b, cu_pointer at, size_t size, cu_memory memory,
	const int *peers, int n, bool zero)
{
	cu_result r = b->api->MemMap(at, size, 0, memory, 0);
	int rc;

	if (r != CU_OK)
		return cuda_fail(
			r, "mapping %zu bytes at %p on device %d", size, cuda_pointer(at), b->dev);
	rc = cuda_set_access(b, at, size, peers, n);
	if (!rc && zero)
		rc = cuda_zero(b, at, size);
	if (rc < 0)
		b->api->MemUnmap(at, size);
	return rc;
}

/* Where the driver has no memory left, the pool may have. */
static cu_result cuda_create_memory(struct cuda_bound *b, size_t size, cu_memory *memory)
{
	cu_memory_prop prop = cuda_memory_prop(b->device);
	cu_result r = b->api->MemCreate(memory, size, &prop, 0);

	if (r == CU_NO_MEMORY && pool_trim(&b->device->kept.pool, &cuda_memory, b, 0))
		r = b->api->MemCreate(memory, size, &prop, 0);
	return r;
}

static int cuda_commit_bound(struct cuda_bound *b, void *ptr, size_t size, const int *peers, int n)
{
	struct vendor_range range = { .base = ptr, .size = size, .dev = b->dev };
	cu_memory memory;
	cu_result r = cuda_create_memory(b, size, &memory);
	int rc;

	if (r != CU_OK)
		return cuda_fail(r, "commit of %zu bytes on device %d", size, b->dev);
	rc = map_memory(b, (uintptr_t)ptr, size, memory, peers, n, true);
	if (!rc) {
		range.handle = memory;
		rc = vendor_range_add(&b->state->ranges, &range);
		if (rc < 0)
			b->api->MemUnmap((uintptr_t)ptr, size);
	}
	if (rc < 0)
		b->api->MemRelease(memory);
	return rc;
}

static int cuda_commit(int dev, void *ptr, size_t size, const int *peers, int n)
{
	struct cuda_bound b;
	int rc = cuda_bind_for(&b, dev, FAULT_MEMORY, "commit");

	if (rc < 0)
		return rc;
	rc = b.device->vmm ? cuda_commit_bound(&b, ptr, size, peers, n) : no_vmm(dev, "commit");
	cuda_unbind(&b);
	return rc;
}

/* Both always, whatever the first says: a range half taken back cannot be taken back again. */
static int unmap_memory(const struct cuda_bound *b, const struct vendor_range *range)
{
	cu_result unmapped = b->api->MemUnmap((uintptr_t)range->base, range->size);
	cu_result released = b->api->MemRelease(range->handle);

	if (unmapped == CU_OK && released == CU_OK)
		return 0;
	return cuda_fail(unmapped != CU_OK ? unmapped : released,
		"taking back %zu bytes at %p of device %d", range->size, (void *)range->base,
		b->dev);
}

static int cuda_decommit(int dev, void *ptr, size_t size)
{
	struct vendor_range range;
	struct cuda_bound b;
	bool found;
	int rc = cuda_bind(&b, dev, "decommit");

	if (rc < 0)
		return rc;
	if (vendor_range_drop(&b.state->ranges, ptr, size, dev, false, &range, &found))
		rc = unmap_memory(&b, &range);
	else
		rc = fail(-EINVAL, "cuda: decommit: %zu bytes at %p are no commit of device %d",
			size, ptr, dev);
	cuda_unbind(&b);
	return rc;
}

/* ---- other processes */

/* The descriptor names all of the memory; its size travels in `handle`, because the importer must
   map all of it. */
static void export_fd(struct device_export *out, uint64_t total)
{
	out->kind = DEVICE_EXPORT_FD;
	out->size = sizeof(total);
	memcpy(out->handle, &total, sizeof(total));
}

static int cuda_export_commit(const struct cuda_bound *b, const struct vendor_range *range,
	const char *ptr, size_t size, struct device_export *out, int *fd)
{
	cu_result r;
	int rc, made = -1;

	out->offset = (uint64_t)(ptr - range->base);
	if (size > range->size - out->offset)
		return fail(-EINVAL, "cuda: export: %zu bytes at %p cross the end of their commit",
			size, (const void *)ptr);
	if (!b->device->fds)
		return fail(-ENOTSUP,
			"cuda: export: device %d shares no backed ranges (SPMT_HEAP_MODE=static)",
			b->dev);
	rc = vendor_fault(FAULT_FD, "cuda", "export", b->dev);
	if (rc < 0)
		return rc;
	r = b->api->MemExport(&made, range->handle, CU_FD, 0);
	if (r != CU_OK)
		return cuda_fail(r, "export of %zu bytes at %p of device %d", size,
			(const void *)ptr, b->dev);
	export_fd(out, range->size);
	return vendor_export_fd("cuda", b->dev, made, fd);
}

/* Memory that a framework has mapped by itself, of which `base` is a mapping of `total` bytes. */
static cu_result export_mapped(const struct cuda_bound *b, cu_pointer base, size_t total,
	struct device_export *out, int *fd)
{
	cu_memory memory;
	cu_result r;
	int made = -1;

	if (!b->api->MemRetain || !b->device->fds)
		return CU_NOT_SUPPORTED;
	r = b->api->MemRetain(&memory, cuda_pointer(base));
	if (r != CU_OK)
		return r;
	r = b->api->MemExport(&made, memory, CU_FD, 0);
	b->api->MemRelease(memory);
	if (r != CU_OK)
		return r;
	export_fd(out, total);
	return vendor_export_fd("cuda", b->dev, made, fd) ? CU_NOT_SUPPORTED : CU_OK;
}

static int cuda_export_block(
	const struct cuda_bound *b, void *ptr, size_t size, struct device_export *out, int *fd)
{
	cu_ipc_handle handle;
	cu_pointer base;
	size_t total;
	cu_result r = b->api->MemGetAddressRange(&base, &total, (uintptr_t)ptr);

	if (r != CU_OK)
		return cuda_fail(r, "export: %p is no device memory", ptr);
	out->offset = (uintptr_t)ptr - base;
	if (size > total - out->offset)
		return fail(-EINVAL,
			"cuda: export: %zu bytes at %p cross the end of their allocation", size,
			ptr);
	r = b->api->IpcGetMemHandle(&handle, base);
	if (r != CU_OK && export_mapped(b, base, total, out, fd) == CU_OK)
		return 0;
	if (r != CU_OK)
		return cuda_fail(r,
			"export of %zu bytes at %p of device %d: neither memory of cuMemAlloc nor of cuMemCreate for descriptors",
			size, ptr, b->dev);
	out->kind = DEVICE_EXPORT_HANDLE;
	out->size = sizeof(handle);
	memcpy(out->handle, &handle, sizeof(handle));
	*fd = -1;
	return 0;
}

static int cuda_export(int dev, void *ptr, size_t size, struct device_export *out, int *fd)
{
	struct device_export made = { .length = size };
	struct vendor_range range;
	struct cuda_bound b;
	int rc = cuda_bind_for(&b, dev, FAULT_REGISTER, "export");

	if (rc < 0)
		return rc;
	if (vendor_range_find(&b.state->ranges, ptr, &range) && !range.import)
		rc = cuda_export_commit(&b, &range, ptr, size, &made, fd);
	else
		rc = cuda_export_block(&b, ptr, size, &made, fd);
	cuda_unbind(&b);
	if (!rc)
		*out = made;
	return rc;
}

static int cuda_import_handle(
	const struct cuda_bound *b, const struct device_export *in, void **base)
{
	struct vendor_range range = {
		.dev = b->dev, .import = true, .size = in->offset + in->length
	};
	cu_ipc_handle handle;
	cu_pointer p;
	cu_result r;
	int rc;

	*base = vendor_range_share(&b->state->ranges, b->dev, in->handle);
	if (*base)
		return 0;
	memcpy(&handle, in->handle, sizeof(handle));
	memcpy(range.key, in->handle, sizeof(range.key));
	r = b->api->IpcOpenMemHandle(&p, handle, CU_IPC_LAZY_PEER);
	if (r != CU_OK)
		return cuda_fail(r, "import of %llu bytes on device %d",
			(unsigned long long)in->length, b->dev);
	range.base = *base = cuda_pointer(p);
	rc = vendor_range_add(&b->state->ranges, &range);
	if (rc < 0)
		b->api->IpcCloseMemHandle(p);
	return rc;
}

static int cuda_import_mapped(
	const struct cuda_bound *b, cu_memory memory, size_t size, void **base)
{
	struct vendor_range range = {
		.dev = b->dev, .import = true, .size = size, .handle = memory
	};
	cu_pointer p;
	cu_result r = b->api->MemAddressReserve(&p, size, 0, 0, 0);
	int rc;

	if (r != CU_OK)
		return cuda_fail(r, "reserving %zu bytes of addresses for an import", size);
	rc = map_memory(b, p, size, memory, NULL, 0, false);
	if (!rc) {
		range.base = cuda_pointer(p);
		rc = vendor_range_add(&b->state->ranges, &range);
		if (rc < 0)
			b->api->MemUnmap(p, size);
	}
	if (rc < 0)
		b->api->MemAddressFree(p, size);
	else
		*base = range.base;
	return rc;
}

/* The memory that a descriptor names, all of it: the driver maps no parts. */
static int cuda_open_fd(const struct cuda_bound *b, const struct device_export *in, int fd,
	cu_memory *memory, size_t *total)
{
	uint64_t size;
	cu_result r;

	memcpy(&size, in->handle, sizeof(size));
	if (in->kind != DEVICE_EXPORT_FD || in->size != sizeof(size) || in->length > size ||
		in->offset > size - in->length)
		return fail(
			-EINVAL, "cuda: import: a descriptor whose range exceeds its allocation");
	if (!b->device->vmm || !b->device->fds)
		return no_vmm(b->dev, "import");
	r = b->api->MemImport(memory, (void *)(intptr_t)fd, CU_FD);
	if (r != CU_OK)
		return cuda_fail(r, "import of descriptor %d on device %d", fd, b->dev);
	*total = size;
	return 0;
}

static int cuda_import_fd(
	const struct cuda_bound *b, const struct device_export *in, int fd, void **base)
{
	cu_memory memory;
	size_t total = 0;
	int rc = cuda_open_fd(b, in, fd, &memory, &total);

	if (rc < 0)
		return rc;
	rc = cuda_import_mapped(b, memory, total, base);
	if (rc < 0)
		b->api->MemRelease(memory);
	return rc;
}

/* Into a range of the caller's, as a commit is. */
static int cuda_map_at(
	const struct cuda_bound *b, void *ptr, const struct device_export *in, int fd)
{
	struct vendor_range range = { .base = ptr, .dev = b->dev };
	cu_memory memory;
	int rc = cuda_open_fd(b, in, fd, &memory, &range.size);

	if (rc < 0)
		return rc;
	if (in->offset || in->length != range.size)
		rc = fail(-EINVAL, "cuda: import: %llu bytes are not the whole commit of %zu",
			(unsigned long long)in->length, range.size);
	if (!rc)
		rc = map_memory(b, (uintptr_t)ptr, range.size, memory, NULL, 0, false);
	if (!rc) {
		range.handle = memory;
		rc = vendor_range_add(&b->state->ranges, &range);
		if (rc < 0)
			b->api->MemUnmap((uintptr_t)ptr, range.size);
	}
	if (rc < 0)
		b->api->MemRelease(memory);
	return rc;
}

static int cuda_import_at(int dev, void *ptr, const struct device_export *in, int fd)
{
	struct cuda_bound b;
	int rc = cuda_bind_for(&b, dev, FAULT_PEER, "import");

	if (rc < 0)
		return rc;
	rc = cuda_map_at(&b, ptr, in, fd);
	cuda_unbind(&b);
	return rc;
}

const struct device_vmm_ops cuda_vmm_ops = {
	.granularity = cuda_granularity,
	.reserve = cuda_reserve,
	.unreserve = cuda_unreserve,
	.commit = cuda_commit,
	.decommit = cuda_decommit,
	.import = cuda_import_at,
};

static int cuda_import(int dev, const struct device_export *in, int fd, void **ptr)
{
	struct cuda_bound b;
	void *base = NULL;
	int rc = cuda_bind_for(&b, dev, FAULT_PEER, "import");

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&b.state->import_lock);
	if (in->kind == DEVICE_EXPORT_HANDLE && in->size == sizeof(cu_ipc_handle))
		rc = cuda_import_handle(&b, in, &base);
	else if (in->kind == DEVICE_EXPORT_FD)
		rc = cuda_import_fd(&b, in, fd, &base);
	else
		rc = fail(-EINVAL,
			"cuda: import: kind %u with %u bytes is no export of this backend",
			in->kind, in->size);
	pthread_mutex_unlock(&b.state->import_lock);
	cuda_unbind(&b);
	if (!rc)
		*ptr = (char *)base + in->offset;
	return rc;
}

static int cuda_release_last(const struct cuda_bound *b, const struct vendor_range *range)
{
	cu_result r;
	int rc;

	if (!range->handle) {
		r = b->api->IpcCloseMemHandle((uintptr_t)range->base);
		return r == CU_OK ? 0
				  : cuda_fail(r, "closing an import at %p", (void *)range->base);
	}
	rc = unmap_memory(b, range);
	r = b->api->MemAddressFree((uintptr_t)range->base, range->size);
	if (!rc && r != CU_OK)
		rc = cuda_fail(
			r, "giving back the addresses of an import at %p", (void *)range->base);
	return rc;
}

static int cuda_release(int dev, void *ptr, const struct device_export *in)
{
	char *base = (char *)ptr - in->offset;
	struct vendor_range range;
	struct cuda_bound b;
	bool found;
	int rc = cuda_bind(&b, dev, "release");

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&b.state->import_lock);
	if (vendor_range_drop(&b.state->ranges, base, 0, dev, true, &range, &found))
		rc = cuda_release_last(&b, &range);
	else if (!found)
		rc = fail(-EINVAL, "cuda: release: %p is no import of device %d", ptr, dev);
	pthread_mutex_unlock(&b.state->import_lock);
	cuda_unbind(&b);
	return rc;
}

const struct device_ipc_ops cuda_ipc_ops = {
	.export_memory = cuda_export,
	.import_memory = cuda_import,
	.release = cuda_release,
};
