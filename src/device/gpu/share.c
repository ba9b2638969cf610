/* SPDX-License-Identifier: MIT */
/* Naming memory to other processes, and mapping what they name. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "include/spmt.h"
#include "ops.h"
#include "src/base/status.h"
#include "vmm.h"

/* The descriptor names all of the memory; its size travels in `handle`, because the importer must
   map all of it. */
static void export_fd(struct device_export *out, uint64_t total)
{
	out->kind = DEVICE_EXPORT_FD;
	out->size = sizeof(total);
	memcpy(out->handle, &total, sizeof(total));
}

/* The driver's, to make a descriptor. */
static int export_failed(
	const struct gpu_bound *b, int r, const char *what, size_t size, const void *ptr)
{
	int rc = vendor_lacks_fd();

	if (rc)
		return fail_errno(
			-rc, "%s: export on device %d: no descriptor", b->vendor->name, b->dev);
	return gpu_fail(
		b->vendor, r, "%s of %zu bytes at %p of device %d", what, size, ptr, b->dev);
}

static int export_commit(const struct gpu_bound *b, const struct vendor_range *range,
	const char *ptr, struct device_export *out, int *fd)
{
	const struct gpu_vendor *v = b->vendor;
	int r, rc, made = -1;

	out->offset = (uint64_t)(ptr - range->base);
	if (out->length > range->size - out->offset)
		return fail(-EINVAL, "%s: export: %zu bytes at %p cross the end of their commit",
			v->name, (size_t)out->length, (const void *)ptr);
	if (gpu_vmm(b) != GPU_VMM_SHARED)
		return fail(SPMT_ERR_UNSUPPORTED,
			"%s: export: device %d shares no backed ranges (SPMT_HEAP_MODE=static)",
			v->name, b->dev);
	rc = vendor_fault(FAULT_FD, v->name, "export", b->dev);
	if (rc < 0)
		return rc;
	r = gpu_memory_export(b, gpu_memory_of(range), &made);
	if (r != GPU_OK)
		return export_failed(b, r, "export", (size_t)out->length, ptr);
	export_fd(out, range->size);
	return vendor_export_fd(v->name, b->dev, made, fd);
}

/* Memory that a framework has mapped by itself, of which `base` is a mapping of `total` bytes. 1, and what sentence there is says nothing:
   it is no such memory, or none to share. */
static int export_mapped(
	const struct gpu_bound *b, void *base, size_t total, struct device_export *out, int *fd)
{
	void *memory;
	int r, rc, made = -1;

	if (!b->calls->MemRetain || gpu_vmm(b) != GPU_VMM_SHARED ||
		b->calls->MemRetain(&memory, base) != GPU_OK)
		return 1;
	r = gpu_memory_export(b, memory, &made);
	gpu_memory_release(b, memory);
	if (r != GPU_OK) {
		rc = export_failed(b, r, "export", (size_t)out->length, base);
		return is_shortage(rc) ? rc : 1;
	}
	export_fd(out, total);
	return vendor_export_fd(b->vendor->name, b->dev, made, fd);
}

static int export_block(const struct gpu_bound *b, void *ptr, struct device_export *out, int *fd)
{
	const struct gpu_vendor *v = b->vendor;
	struct gpu_ipc_handle handle;
	void *base;
	size_t total, size = (size_t)out->length;
	int r = b->calls->MemGetAddressRange(&base, &total, ptr), rc;

	if (r != GPU_OK)
		return gpu_fail(v, r, "export: %p is no device memory", ptr);
	out->offset = (uint64_t)((char *)ptr - (char *)base);
	if (size > total - out->offset)
		return fail(-EINVAL,
			"%s: export: %zu bytes at %p cross the end of their allocation", v->name,
			size, ptr);
	r = b->calls->IpcGetMemHandle(&handle, base);
	if (r != GPU_OK) {
		rc = export_mapped(b, base, total, out, fd);
		return rc <= 0 ? rc
			       : gpu_fail(v, r, "export of %zu bytes at %p of device %d%s", size,
					 ptr, b->dev, v->no_export);
	}
	out->kind = DEVICE_EXPORT_HANDLE;
	out->size = sizeof(handle);
	memcpy(out->handle, &handle, sizeof(handle));
	*fd = -1;
	return 0;
}

int gpu_export(const struct gpu_vendor *v, int dev, void *ptr, size_t size,
	struct device_export *out, int *fd)
{
	struct device_export made = { .length = size };
	struct vendor_range range;
	struct gpu_bound b;
	int rc = gpu_bind_for(&b, v, dev, FAULT_REGISTER, "export");

	if (rc < 0)
		return rc;
	if (vendor_range_find(&b.state->ranges, ptr, &range) && !range.import)
		rc = export_commit(&b, &range, ptr, &made, fd);
	else
		rc = export_block(&b, ptr, &made, fd);
	gpu_unbind(&b);
	if (!rc)
		*out = made;
	return rc;
}

/* Drivers name whole pages. */
int gpu_dmabuf(
	const struct gpu_vendor *v, int dev, void *ptr, size_t size, int *fd, uint64_t *offset)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)ptr & ~(page - 1);
	size_t whole = align_up((uintptr_t)ptr - at + size, page);
	struct gpu_bound b;
	int r, made = -1, rc = gpu_bind_for(&b, v, dev, FAULT_REGISTER, "dmabuf");

	if (rc < 0)
		return rc;
	r = b.calls->MemRangeHandle
		? b.calls->MemRangeHandle(&made, (void *)at, whole, GPU_DMABUF_FD, 0)
		: GPU_NOT_SUPPORTED;
	if (r != GPU_OK)
		rc = export_failed(&b, r, "a dma-buf", size, ptr);
	gpu_unbind(&b);
	if (!rc)
		rc = vendor_export_fd(v->name, dev, made, fd);
	if (!rc)
		*offset = (uintptr_t)ptr - at;
	return rc;
}

static int import_handle(const struct gpu_bound *b, const struct device_export *in, void **base)
{
	struct vendor_range range = {
		.dev = b->dev, .import = true, .size = in->offset + in->length
	};
	struct gpu_ipc_handle handle;
	void *p;
	int r, rc;

	*base = vendor_range_share(&b->state->ranges, b->dev, in->handle);
	if (*base)
		return 0;
	memcpy(&handle, in->handle, sizeof(handle));
	memcpy(range.key, in->handle, sizeof(range.key));
	r = b->calls->IpcOpenMemHandle(&p, handle, b->state->ipc_flags);
	if (r != GPU_OK)
		return gpu_fail(b->vendor, r, "import of %llu bytes on device %d",
			(unsigned long long)in->length, b->dev);
	range.base = *base = p;
	rc = vendor_range_add(&b->state->ranges, &range);
	if (rc < 0)
		b->calls->IpcCloseMemHandle(p);
	return rc;
}

/* Maps memory where *range says, and keeps the record. */
static int map_import(const struct gpu_bound *b, const struct vendor_range *range)
{
	int rc = gpu_range_map(b, range, NULL, 0);

	if (rc < 0)
		return rc;
	rc = vendor_range_add(&b->state->ranges, range);
	if (rc < 0)
		gpu_range_unmap(b, range);
	return rc;
}

static int import_anywhere(const struct gpu_bound *b, struct vendor_range *range)
{
	void *p;
	int rc, r = gpu_range_reserve(b, range->size, 0, &p);

	if (r != GPU_OK)
		return gpu_fail(b->vendor, r, "reserving %zu bytes of addresses for an import",
			range->size);
	range->base = p;
	rc = map_import(b, range);
	if (rc < 0)
		gpu_range_free(b, p, range->size);
	return rc;
}

/* The memory that a descriptor names, all of it, since drivers map no parts: handle and size of
 *range. */
static int open_fd(const struct gpu_bound *b, const struct device_export *in, int fd,
	struct vendor_range *range)
{
	uint64_t size;
	void *memory;
	int r, rc;

	memcpy(&size, in->handle, sizeof(size));
	if (in->kind != DEVICE_EXPORT_FD || in->size != sizeof(size) || in->length > size ||
		in->offset > size - in->length)
		return fail(-EINVAL, "%s: import: a descriptor whose range exceeds its allocation",
			b->vendor->name);
	rc = gpu_vmm_check(b, true, "import");
	if (rc < 0)
		return rc;
	r = gpu_memory_import(b, fd, &memory);
	if (r != GPU_OK)
		return gpu_fail(b->vendor, r, "import of descriptor %d on device %d", fd, b->dev);
	range->handle = (uintptr_t)memory;
	range->size = size;
	return 0;
}

static int import_fd(const struct gpu_bound *b, const struct device_export *in, int fd, void **base)
{
	struct vendor_range range = { .dev = b->dev, .import = true };
	int rc = open_fd(b, in, fd, &range);

	if (rc < 0)
		return rc;
	rc = import_anywhere(b, &range);
	if (rc < 0)
		gpu_memory_release(b, gpu_memory_of(&range));
	else
		*base = range.base;
	return rc;
}

/* Into a range of the caller's, as a commit is. */
static int import_there(
	const struct gpu_bound *b, void *ptr, const struct device_export *in, int fd)
{
	struct vendor_range range = { .base = ptr, .dev = b->dev };
	int rc = open_fd(b, in, fd, &range);

	if (rc < 0)
		return rc;
	if (in->offset || in->length != range.size)
		rc = fail(-EINVAL, "%s: import: %llu bytes are not the whole commit of %zu",
			b->vendor->name, (unsigned long long)in->length, range.size);
	else
		rc = map_import(b, &range);
	if (rc < 0)
		gpu_memory_release(b, gpu_memory_of(&range));
	return rc;
}

int gpu_import_at(
	const struct gpu_vendor *v, int dev, void *ptr, const struct device_export *in, int fd)
{
	struct gpu_bound b;
	int rc = gpu_bind_for(&b, v, dev, FAULT_PEER, "import");

	if (rc < 0)
		return rc;
	rc = import_there(&b, ptr, in, fd);
	gpu_unbind(&b);
	return rc;
}

int gpu_import(
	const struct gpu_vendor *v, int dev, const struct device_export *in, int fd, void **ptr)
{
	struct gpu_bound b;
	void *base = NULL;
	int rc = gpu_bind_for(&b, v, dev, FAULT_PEER, "import");

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&b.state->import_lock);
	if (in->kind == DEVICE_EXPORT_HANDLE && in->size == sizeof(struct gpu_ipc_handle))
		rc = import_handle(&b, in, &base);
	else if (in->kind == DEVICE_EXPORT_FD)
		rc = import_fd(&b, in, fd, &base);
	else
		rc = fail(-EINVAL, "%s: import: kind %u with %u bytes is no export of this backend",
			v->name, in->kind, in->size);
	pthread_mutex_unlock(&b.state->import_lock);
	gpu_unbind(&b);
	if (!rc)
		*ptr = (char *)base + in->offset;
	return rc;
}

static int release_last(const struct gpu_bound *b, const struct vendor_range *range)
{
	int r, rc;

	if (!range->handle) {
		r = b->calls->IpcCloseMemHandle(range->base);
		return r == GPU_OK
			? 0
			: gpu_fail(b->vendor, r, "closing an import at %p", (void *)range->base);
	}
	rc = gpu_range_undo(b, range);
	r = gpu_range_free(b, range->base, range->size);
	if (!rc && r != GPU_OK)
		rc = gpu_fail(b->vendor, r, "giving back the addresses of an import at %p",
			(void *)range->base);
	return rc;
}

int gpu_release(const struct gpu_vendor *v, int dev, void *ptr, const struct device_export *in)
{
	char *base = (char *)ptr - in->offset;
	struct vendor_range range;
	struct gpu_bound b;
	bool found;
	int rc = gpu_bind(&b, v, dev, "release");

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&b.state->import_lock);
	if (vendor_range_drop(&b.state->ranges, base, 0, dev, true, &range, &found))
		rc = release_last(&b, &range);
	else if (!found)
		rc = fail(-EINVAL, "%s: release: %p is no import of device %d", v->name, ptr, dev);
	pthread_mutex_unlock(&b.state->import_lock);
	gpu_unbind(&b);
	return rc;
}
