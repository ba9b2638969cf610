/* SPDX-License-Identifier: MIT */
/* AMD: naming memory to other processes. */
#include <errno.h>
#include <string.h>

#include "hip_vmm.h"
#include "src/base/status.h"

/* The descriptor names the whole commit; its size travels in `handle`, because the importer must
   map all of it. */
static int hip_export_commit(const struct hip_bound *b, const struct vendor_range *range,
	const char *ptr, size_t size, struct device_export *out, int *fd)
{
	uint64_t total = range->size;
	hip_result r;
	int rc, made = -1;

	out->offset = (uint64_t)(ptr - range->base);
	if (size > range->size - out->offset)
		return fail(-EINVAL, "hip: export: %zu bytes at %p cross the end of their commit",
			size, (const void *)ptr);
	rc = vendor_fault(FAULT_FD, "hip", "export", b->dev);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&b->state->vmm_lock);
	r = b->api->MemExport(&made, hip_memory_of(range), HIP_FD, 0);
	pthread_mutex_unlock(&b->state->vmm_lock);
	if (r != HIP_OK)
		return hip_fail(r, "export of %zu bytes at %p of device %d", size,
			(const void *)ptr, b->dev);
	out->kind = DEVICE_EXPORT_FD;
	out->size = sizeof(total);
	memcpy(out->handle, &total, sizeof(total));
	return vendor_export_fd("hip", b->dev, made, fd);
}

static int hip_export_block(
	const struct hip_bound *b, void *ptr, size_t size, struct device_export *out, int *fd)
{
	hip_ipc_handle handle;
	void *base;
	size_t total;
	hip_result r = b->api->MemGetAddressRange(&base, &total, ptr);

	if (r == HIP_OK)
		r = b->api->IpcGetMemHandle(&handle, base);
	if (r != HIP_OK)
		return hip_fail(r, "export of %zu bytes at %p of device %d", size, ptr, b->dev);
	out->offset = (uint64_t)((char *)ptr - (char *)base);
	if (size > total - out->offset)
		return fail(-EINVAL,
			"hip: export: %zu bytes at %p cross the end of their allocation", size,
			ptr);
	out->kind = DEVICE_EXPORT_HANDLE;
	out->size = sizeof(handle);
	memcpy(out->handle, &handle, sizeof(handle));
	*fd = -1;
	return 0;
}

static int hip_export(int dev, void *ptr, size_t size, struct device_export *out, int *fd)
{
	struct device_export made = { .length = size };
	struct vendor_range range;
	struct hip_bound b;
	int rc = hip_bind_for(&b, dev, FAULT_REGISTER, "export");

	if (rc < 0)
		return rc;
	if (vendor_range_find(&b.state->ranges, ptr, &range) && !range.import)
		rc = hip_export_commit(&b, &range, ptr, size, &made, fd);
	else
		rc = hip_export_block(&b, ptr, size, &made, fd);
	hip_unbind(&b);
	if (!rc)
		*out = made;
	return rc;
}

static int hip_import_handle(const struct hip_bound *b, const struct device_export *in, void **base)
{
	struct vendor_range range = {
		.dev = b->dev, .import = true, .size = in->offset + in->length
	};
	hip_ipc_handle handle;
	hip_result r;
	void *p;
	int rc;

	*base = vendor_range_share(&b->state->ranges, b->dev, in->handle);
	if (*base)
		return 0;
	memcpy(&handle, in->handle, sizeof(handle));
	memcpy(range.key, in->handle, sizeof(range.key));
	/* lazy peer access: 0 up to version 5, which refuses anything else; 1 from 6 on, which
	   refuse 0 */
	r = b->api->IpcOpenMemHandle(&p, handle, b->state->version >= HIP_VERSION_OF(6, 0));
	if (r != HIP_OK)
		return hip_fail(r, "import of %llu bytes on device %d",
			(unsigned long long)in->length, b->dev);
	range.base = *base = p;
	rc = vendor_range_add(&b->state->ranges, &range);
	if (rc < 0)
		b->api->IpcCloseMemHandle(p);
	return rc;
}

static int hip_import_mapped(const struct hip_bound *b, hip_memory memory, size_t size, void **base)
{
	struct vendor_range range = { .dev = b->dev, .import = true, .size = size };
	void *p;
	hip_result r = hip_range_reserve(b->state, size, 0, &p);
	int rc;

	if (r != HIP_OK)
		return hip_fail(r, "reserving %zu bytes of addresses for an import", size);
	range.base = p;
	range.handle = (uintptr_t)memory;
	rc = hip_range_map(b, p, size, memory, NULL, 0);
	if (!rc) {
		rc = vendor_range_add(&b->state->ranges, &range);
		if (rc < 0)
			hip_range_unmap(b, p, size);
	}
	if (rc < 0)
		hip_range_free(b->state, p, size);
	else
		*base = p;
	return rc;
}

/* The descriptor's address up to version 7.0, the descriptor itself from 7.1 on. */
static hip_result import_memory(const struct hip_bound *b, int fd, hip_memory *memory)
{
	void *handle =
		b->state->version < HIP_VERSION_OF(7, 1) ? (void *)&fd : (void *)(intptr_t)fd;
	hip_result r;

	pthread_mutex_lock(&b->state->vmm_lock);
	r = b->api->MemImport(memory, handle, HIP_FD);
	pthread_mutex_unlock(&b->state->vmm_lock);
	return r;
}

static int hip_open_fd(const struct hip_bound *b, const struct device_export *in, int fd,
	hip_memory *memory, size_t *total)
{
	uint64_t size;
	hip_result r;
	int rc;

	memcpy(&size, in->handle, sizeof(size));
	if (in->kind != DEVICE_EXPORT_FD || in->size != sizeof(size) || in->length > size ||
		in->offset > size - in->length)
		return fail(
			-EINVAL, "hip: import: a descriptor whose range exceeds its allocation");
	rc = hip_vmm_check(b, "import");
	if (rc < 0)
		return rc;
	r = import_memory(b, fd, memory);
	if (r != HIP_OK)
		return hip_fail(r, "import of descriptor %d on device %d", fd, b->dev);
	*total = size;
	return 0;
}

static int hip_import_fd(
	const struct hip_bound *b, const struct device_export *in, int fd, void **base)
{
	hip_memory memory;
	size_t total;
	int rc = hip_open_fd(b, in, fd, &memory, &total);

	if (rc < 0)
		return rc;
	rc = hip_import_mapped(b, memory, total, base);
	if (rc < 0)
		hip_memory_release(b, memory);
	return rc;
}

/* Into a range of the caller's, as a commit is. */
static int hip_map_at(const struct hip_bound *b, void *ptr, const struct device_export *in, int fd)
{
	struct vendor_range range = { .base = ptr, .dev = b->dev };
	hip_memory memory;
	int rc = hip_open_fd(b, in, fd, &memory, &range.size);

	if (rc < 0)
		return rc;
	if (in->offset || in->length != range.size)
		rc = fail(-EINVAL, "hip: import: %llu bytes are not the whole commit of %zu",
			(unsigned long long)in->length, range.size);
	if (!rc)
		rc = hip_range_map(b, ptr, range.size, memory, NULL, 0);
	if (!rc) {
		range.handle = (uintptr_t)memory;
		rc = vendor_range_add(&b->state->ranges, &range);
		if (rc < 0)
			hip_range_unmap(b, ptr, range.size);
	}
	if (rc < 0)
		hip_memory_release(b, memory);
	return rc;
}

int hip_import_at(int dev, void *ptr, const struct device_export *in, int fd)
{
	struct hip_bound b;
	int rc = hip_bind_for(&b, dev, FAULT_PEER, "import");

	if (rc < 0)
		return rc;
	rc = hip_map_at(&b, ptr, in, fd);
	hip_unbind(&b);
	return rc;
}

static int hip_import(int dev, const struct device_export *in, int fd, void **ptr)
{
	struct hip_bound b;
	void *base = NULL;
	int rc = hip_bind_for(&b, dev, FAULT_PEER, "import");

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&b.state->import_lock);
	if (in->kind == DEVICE_EXPORT_HANDLE && in->size == sizeof(hip_ipc_handle))
		rc = hip_import_handle(&b, in, &base);
	else if (in->kind == DEVICE_EXPORT_FD)
		rc = hip_import_fd(&b, in, fd, &base);
	else
		rc = fail(-EINVAL,
			"hip: import: kind %u with %u bytes is no export of this backend", in->kind,
			in->size);
	pthread_mutex_unlock(&b.state->import_lock);
	hip_unbind(&b);
	if (!rc)
		*ptr = (char *)base + in->offset;
	return rc;
}

static int hip_release_last(const struct hip_bound *b, const struct vendor_range *range)
{
	hip_result r;
	int rc;

	if (!range->handle) {
		r = b->api->IpcCloseMemHandle(range->base);
		return r == HIP_OK ? 0
				   : hip_fail(r, "closing an import at %p", (void *)range->base);
	}
	rc = hip_range_undo(b, range);
	r = hip_range_free(b->state, range->base, range->size);
	if (!rc && r != HIP_OK)
		rc = hip_fail(
			r, "giving back the addresses of an import at %p", (void *)range->base);
	return rc;
}

static int hip_release(int dev, void *ptr, const struct device_export *in)
{
	char *base = (char *)ptr - in->offset;
	struct vendor_range range;
	struct hip_bound b;
	bool found;
	int rc = hip_bind(&b, dev, "release");

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&b.state->import_lock);
	if (vendor_range_drop(&b.state->ranges, base, 0, dev, true, &range, &found))
		rc = hip_release_last(&b, &range);
	else if (!found)
		rc = fail(-EINVAL, "hip: release: %p is no import of device %d", ptr, dev);
	pthread_mutex_unlock(&b.state->import_lock);
	hip_unbind(&b);
	return rc;
}

const struct device_ipc_ops hip_ipc_ops = {
	.export_memory = hip_export,
	.import_memory = hip_import,
	.release = hip_release,
};
