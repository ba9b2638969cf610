/* SPDX-License-Identifier: MIT */
/* Memory of the host runtime in another process: the descriptor of its memfd travels beside a
   handle that names the exporter. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory.h"
#include "src/base/fault.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define MAGIC 0x54534f48u

struct host_ipc_handle {
	uint32_t magic, zero;
	uint64_t size; /* of the file */
	unsigned char nonce[16];
};

_Static_assert(sizeof(struct host_ipc_handle) <= sizeof(((struct device_export *)0)->handle),
	"a handle fits");

/* Under the lock: the block at ptr if it and those behind it, in the same file, hold all of [ptr, ptr + size). */
static const struct host_block *exported(
	const struct host_state *st, int dev, const char *ptr, size_t size)
{
	size_t i = host_index_at(&st->blocks, ptr);
	const struct host_block *first = i < st->blocks.n ? st->blocks.rows[i] : NULL;
	uintptr_t at = (uintptr_t)ptr, end = at + size;

	if (!first || !first->file || first->dev != dev || end < at)
		return NULL;
	for (; at < end; i++) {
		const struct host_block *b = i < st->blocks.n ? st->blocks.rows[i] : NULL;

		if (!b || (uintptr_t)b->base > at || b->file != first->file)
			return NULL;
		at = (uintptr_t)b->base + b->size;
	}
	return first;
}

static int ipc_export(int dev, void *ptr, size_t size, struct device_export *out, int *fd)
{
	struct host_state *st = host_state();
	struct host_ipc_handle handle = { .magic = MAGIC };
	const struct host_block *b;
	uint64_t offset = 0;
	int copy = -1, err = 0, rc = host_check(dev, "export");

	if (!rc)
		rc = process_nonce(handle.nonce);
	if (rc)
		return rc;
	if (fault_here(FAULT_REGISTER))
		return fail_errno(
			fault_errno(FAULT_REGISTER), "host: export of %p on device %d", ptr, dev);
	pthread_rwlock_rdlock(&st->memory);
	b = size ? exported(st, dev, ptr, size) : NULL;
	if (b) {
		offset = b->offset + ((uintptr_t)ptr - (uintptr_t)b->base);
		handle.size = b->file->size;
		err = fault_here(FAULT_FD) ? fault_errno(FAULT_FD) : 0;
		copy = err ? -1 : process_fd(fcntl(b->file->fd, F_DUPFD_CLOEXEC, 0));
		if (!err && copy < 0)
			err = errno;
	}
	pthread_rwlock_unlock(&st->memory);
	if (!b)
		return fail(-EINVAL,
			"host: export: %zu bytes at %p are not all memory of device %d", size, ptr,
			dev);
	if (err)
		return fail_errno(err, "host: export of %p on device %d: no descriptor", ptr, dev);
	memset(out, 0, sizeof(*out));
	out->kind = DEVICE_EXPORT_FD;
	out->size = sizeof(handle);
	out->offset = offset;
	out->length = size;
	memcpy(out->handle, &handle, sizeof(handle));
	*fd = copy;
	return 0;
}

int host_import_check(int dev, const struct device_export *in, int fd)
{
	unsigned char nonce[16];
	struct host_ipc_handle handle;
	struct stat stat;
	int seals, rc;

	memcpy(&handle, in->handle, sizeof(handle));
	if (in->kind != DEVICE_EXPORT_FD || in->size != sizeof(handle) || handle.magic != MAGIC)
		return fail(-EINVAL,
			"host: import on device %d: not an export of the host backend (kind %u)",
			dev, in->kind);
	rc = process_nonce(nonce);
	if (rc)
		return rc;
	if (!memcmp(nonce, handle.nonce, sizeof(nonce)))
		return fail(-EINVAL,
			"host: import on device %d: exported by this process: use the address",
			dev);
	if (!in->length || in->offset > handle.size || in->length > handle.size - in->offset)
		return fail(-EINVAL,
			"host: import on device %d: %llu bytes at %llu of a memory of %llu", dev,
			(unsigned long long)in->length, (unsigned long long)in->offset,
			(unsigned long long)handle.size);
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || fstat(fd, &stat))
		return fail_errno(errno, "host: import on device %d: descriptor %d", dev, fd);
	if (!(seals & F_SEAL_SHRINK) || (uint64_t)stat.st_size != handle.size)
		return fail(-EINVAL,
			"host: import on device %d: descriptor %d is not the memory exported", dev,
			fd);
	return 0;
}

/* Where the mapping begins, a page; the rest of the offset is added to its address. */
static uint64_t page_of(const struct device_export *in)
{
	return in->offset & ~(uint64_t)(HOST_PAGE - 1);
}

static int import_map(const struct device_export *in, int fd, struct host_block *b)
{
	size_t size = align_up(in->offset + in->length - page_of(in), HOST_PAGE);
	void *base;

	if (fault_here(FAULT_MAP))
		return -fault_errno(FAULT_MAP);
	base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)page_of(in));
	if (base == MAP_FAILED)
		return -errno;
	b->base = base;
	b->size = size;
	return 0;
}

static int ipc_import(int dev, const struct device_export *in, int fd, void **ptr)
{
	struct host_state *st = host_state();
	struct host_block *b;
	int rc = host_check(dev, "import");

	if (!rc)
		rc = host_import_check(dev, in, fd);
	if (rc)
		return rc;
	if (fault_here(FAULT_REGISTER))
		return fail_errno(fault_errno(FAULT_REGISTER), "host: import on device %d", dev);
	b = host_block_new(HOST_IMPORT, dev, 0);
	rc = b ? import_map(in, fd, b) : -ENOMEM;
	if (!rc) {
		pthread_rwlock_wrlock(&st->memory);
		rc = host_index_room(&st->blocks);
		if (!rc)
			host_index_insert(&st->blocks, b);
		pthread_rwlock_unlock(&st->memory);
	}
	if (rc) {
		host_block_drop(b);
		return fail_errno(-rc, "host: import of %llu bytes on device %d",
			(unsigned long long)in->length, dev);
	}
	*ptr = b->base + (in->offset - page_of(in));
	return 0;
}

static int ipc_release(int dev, void *ptr, const struct device_export *in)
{
	struct host_state *st = host_state();
	char *base = (char *)ptr - (in->offset - page_of(in));
	struct host_block *b;
	int rc = host_check(dev, "release");

	if (rc)
		return rc;
	pthread_rwlock_wrlock(&st->memory);
	b = host_index_exact(&st->blocks, base, HOST_IMPORT, dev);
	if (b)
		host_index_remove(&st->blocks, b);
	pthread_rwlock_unlock(&st->memory);
	if (!b)
		return fail(-EINVAL, "host: release on device %d: nothing imported for it at %p",
			dev, ptr);
	host_block_drop(b);
	return 0;
}

const struct device_ipc_ops host_ipc_ops = {
	.export_memory = ipc_export,
	.import_memory = ipc_import,
	.release = ipc_release,
};
