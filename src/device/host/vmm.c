/* SPDX-License-Identifier: MIT */
/*
 * Reserved ranges and what is committed in them. A device has one sparse memfd in a range, as long as the range: a commit's
 * offset in the file is its offset in the range. So a heap that grows chunk by chunk takes one descriptor, not one a chunk,
 * and the kernel merges neighbouring chunks into one mapping.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory.h"
#include "src/base/fault.h"
#include "src/base/status.h"

/* The value that AMD's and NVIDIA's drivers report, so that the same roundings occur here. It
   costs nothing, because pages appear on touch. */
#define GRANULARITY ((size_t)2 << 20)
#define LARGEST_RANGE ((size_t)1 << 46)

static int host_granularity(int dev, size_t *bytes)
{
	int rc = host_check(dev, "granularity");

	if (!rc)
		*bytes = GRANULARITY;
	return rc;
}

static int vmm_reserve(size_t size, size_t align, void **base)
{
	struct host_state *st = host_state();
	struct host_block *b;
	int rc;

	if (!st)
		return fail(-ENODEV, "host: reserve: not loaded in this process");
	if (!size || size % GRANULARITY || size > LARGEST_RANGE)
		return fail(-EINVAL, "host: reserve: size %zu is no multiple of %zu up to %zu",
			size, GRANULARITY, LARGEST_RANGE);
	if (!is_power_of_two(align) || align > LARGEST_RANGE)
		return fail(-EINVAL, "host: reserve: alignment %zu is no power of two up to %zu",
			align, LARGEST_RANGE);
	b = host_block_new(HOST_RANGE, -1, 0);
	if (!b)
		return fail(-ENOMEM, "host: reserve: no memory to note a range");
	rc = host_space(size, MAX_OF(align, GRANULARITY), &b->base);
	if (!rc) {
		b->size = size;
		pthread_rwlock_wrlock(&st->memory);
		rc = host_index_room(&st->ranges);
		if (!rc)
			host_index_insert(&st->ranges, b);
		pthread_rwlock_unlock(&st->memory);
	}
	if (rc) {
		host_block_drop(b);
		return fail_errno(
			-rc, "host: reserve: no range of %zu bytes aligned to %zu", size, align);
	}
	*base = b->base;
	return 0;
}

/* Under the lock: a commit or an import begins in [base, base + size). */
static bool covered(const struct host_state *st, const char *base, size_t size)
{
	size_t i = host_index_at(&st->blocks, base);

	return i < st->blocks.n && (uintptr_t)st->blocks.rows[i]->base < (uintptr_t)base + size;
}

static int vmm_unreserve(void *base, size_t size)
{
	struct host_state *st = host_state();
	struct host_block *b;
	bool busy;

	if (!st)
		return fail(-ENODEV, "host: unreserve: not loaded in this process");
	pthread_rwlock_wrlock(&st->memory);
	b = host_index_exact(&st->ranges, base, HOST_RANGE, -1);
	if (b && b->size != size)
		b = NULL;
	busy = b && covered(st, b->base, size);
	if (b && !busy)
		host_index_remove(&st->ranges, b);
	pthread_rwlock_unlock(&st->memory);
	if (busy)
		return fail(-EBUSY, "host: unreserve: memory is still committed in the range at %p",
			base);
	if (!b)
		return fail(
			-EINVAL, "host: unreserve: no range of %zu bytes begins at %p", size, base);
	host_block_drop(b);
	return 0;
}

/* ---- all below: under the memory lock */

static struct host_block *find_range(struct host_state *st, const void *ptr, size_t size)
{
	size_t i = host_index_at(&st->ranges, ptr);
	struct host_block *r = i < st->ranges.n ? st->ranges.rows[i] : NULL;
	uintptr_t off;

	if (!r || (uintptr_t)r->base > (uintptr_t)ptr)
		return NULL;
	off = (uintptr_t)ptr - (uintptr_t)r->base;
	return size <= r->size - off && off % GRANULARITY == 0 ? r : NULL;
}

/* The file of dev in the range, with one more reference. */
static int file_get(struct host_block *range, int dev, struct host_file **file)
{
	struct host_file *f;
	int rc;

	for (f = range->file; f; f = f->next) {
		if (f->dev != dev)
			continue;
		f->refs++;
		*file = f;
		return 0;
	}
	rc = host_file_open(dev, range->size, &f);
	if (rc)
		return rc;
	f->next = range->file;
	range->file = f;
	*file = f;
	return 0;
}

static void file_put(struct host_block *range, struct host_file *file)
{
	struct host_file **at = &range->file;

	if (file->refs == 1) {
		while (*at != file)
			at = &(*at)->next;
		*at = file->next;
	}
	host_file_drop(file);
}

static int uncover(void *ptr, size_t size, int flag)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flag;

	return mmap(ptr, size, PROT_NONE, flags, -1, 0) == MAP_FAILED ? -errno : 0;
}

static int cover(struct host_block *b, char *ptr, size_t size, int fd, uint64_t offset)
{
	int err;

	if (fault_here(FAULT_MAP))
		return -fault_errno(FAULT_MAP);
	if (mmap(ptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) !=
		MAP_FAILED) {
		b->base = ptr;
		b->size = size;
		return 0;
	}
	err = errno;
	/* the old mapping may be gone; not MAP_FIXED, as somebody else's may be there by now */
	uncover(ptr, size, MAP_FIXED_NOREPLACE);
	return -err;
}

static int commit_locked(struct host_state *st, struct host_block *b, char *ptr, size_t size)
{
	struct host_block *range = find_range(st, ptr, size);
	int rc;

	if (!range)
		return -EINVAL;
	if (covered(st, ptr, size))
		return -EEXIST;
	rc = host_index_room(&st->blocks);
	if (!rc)
		rc = file_get(range, b->dev, &b->file);
	if (rc)
		return rc;
	b->offset = (uint64_t)(ptr - range->base);
	rc = cover(b, ptr, size, b->file->fd, b->offset);
	if (rc) {
		file_put(range, b->file);
		b->file = NULL;
		return rc;
	}
	host_index_insert(&st->blocks, b);
	return 0;
}

/* ---- commit and decommit */

static int commit_block(int dev, const int *peers, int n, struct host_block **block)
{
	int most = dev, i, rc;

	for (i = 0; i < n; i++) {
		rc = host_check(peers[i], "commit for a peer");
		if (rc)
			return rc;
		most = MAX_OF(most, peers[i]);
	}
	*block = host_block_new(HOST_COMMIT, dev, (size_t)most / 64 + 1);
	if (!*block)
		return fail(-ENOMEM, "host: commit on device %d: no memory to note it", dev);
	for (i = 0; i < n; i++)
		(*block)->access[peers[i] / 64] |= (uint64_t)1 << (peers[i] % 64);
	return 0;
}

static int vmm_commit(int dev, void *ptr, size_t size, const int *peers, int n)
{
	struct host_state *st = host_state();
	struct host_block *b;
	int rc = host_check(dev, "commit");

	if (rc)
		return rc;
	if (!size || size % GRANULARITY)
		return fail(-EINVAL, "host: commit on device %d: size %zu is no multiple of %zu",
			dev, size, GRANULARITY);
	if (fault_here(FAULT_MEMORY))
		return fail_errno(fault_errno(FAULT_MEMORY),
			"host: commit of %zu bytes on device %d", size, dev);
	rc = commit_block(dev, peers, n, &b);
	if (rc)
		return rc;
	pthread_rwlock_wrlock(&st->memory);
	rc = commit_locked(st, b, ptr, size);
	host_index_trim(&st->blocks);
	pthread_rwlock_unlock(&st->memory);
	if (!rc)
		return 0;
	host_block_drop(b);
	if (rc == -EINVAL)
		return fail(rc,
			"host: commit on device %d: %zu bytes at %p are not a part of a reserved range",
			dev, size, ptr);
	return fail_errno(-rc, "host: commit of %zu bytes at %p on device %d%s", size, ptr, dev,
		rc == -EFBIG ? " (ulimit -f)" : "");
}

static int decommit_locked(struct host_state *st, int dev, void *ptr, size_t size)
{
	struct host_block *b = host_index_exact(&st->blocks, ptr, HOST_COMMIT, dev);
	struct host_block *range = find_range(st, ptr, size);
	int rc;

	if (!b || b->size != size || !range)
		return -EINVAL;
	/* by file offset, so the memory is given back even where the kernel has no room for one more mapping */
	if (b->file)
		syscall(SYS_fallocate, b->file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)b->offset, (off_t)size);
	rc = uncover(ptr, size, MAP_FIXED);
	host_index_remove(&st->blocks, b);
	if (b->file)
		file_put(range, b->file);
	b->file = NULL;
	b->base = NULL;
	host_block_drop(b);
	return rc;
}

static int vmm_decommit(int dev, void *ptr, size_t size)
{
	struct host_state *st = host_state();
	int rc = host_check(dev, "decommit");

	if (rc)
		return rc;
	pthread_rwlock_wrlock(&st->memory);
	rc = decommit_locked(st, dev, ptr, size);
	pthread_rwlock_unlock(&st->memory);
	if (rc == -EINVAL)
		return fail(rc, "host: decommit on device %d: no commit of %zu bytes at %p", dev,
			size, ptr);
	if (rc)
		return fail_errno(
			-rc, "host: decommit of %zu bytes at %p on device %d", size, ptr, dev);
	return 0;
}

/* ---- memory of another process */

static int import_locked(struct host_state *st, struct host_block *b, char *ptr,
	const struct device_export *in, int fd)
{
	int rc;

	if (!find_range(st, ptr, in->length))
		return -EINVAL;
	if (covered(st, ptr, in->length))
		return -EEXIST;
	rc = host_index_room(&st->blocks);
	if (!rc)
		rc = cover(b, ptr, in->length, fd, in->offset);
	if (!rc)
		host_index_insert(&st->blocks, b);
	return rc;
}

static int vmm_import(int dev, void *ptr, const struct device_export *in, int fd)
{
	struct host_state *st = host_state();
	struct host_block *b;
	int rc = host_check(dev, "import");

	if (!rc)
		rc = host_import_check(dev, in, fd);
	if (rc)
		return rc;
	if (in->length % GRANULARITY || in->offset % HOST_PAGE)
		return fail(-EINVAL,
			"host: import on device %d: %llu bytes at %llu of a memory: no multiples of %zu and %zu",
			dev, (unsigned long long)in->length, (unsigned long long)in->offset,
			GRANULARITY, HOST_PAGE);
	if (fault_here(FAULT_REGISTER))
		return fail_errno(
			fault_errno(FAULT_REGISTER), "host: import at %p on device %d", ptr, dev);
	b = host_block_new(HOST_COMMIT, dev, 0);
	if (!b)
		return fail(-ENOMEM, "host: import on device %d: no memory to note it", dev);
	pthread_rwlock_wrlock(&st->memory);
	rc = import_locked(st, b, ptr, in, fd);
	host_index_trim(&st->blocks);
	pthread_rwlock_unlock(&st->memory);
	if (!rc)
		return 0;
	host_block_drop(b);
	return fail_errno(-rc, "host: import of %llu bytes at %p on device %d",
		(unsigned long long)in->length, ptr, dev);
}

const struct device_vmm_ops host_vmm_ops = {
	.granularity = host_granularity,
	.reserve = vmm_reserve,
	.unreserve = vmm_unreserve,
	.commit = vmm_commit,
	.decommit = vmm_decommit,
	.import = vmm_import,
};
