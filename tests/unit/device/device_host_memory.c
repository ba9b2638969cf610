/* SPDX-License-Identifier: MIT */
/* Memory of the host runtime: allocations, ranges, other processes. */
#include <fcntl.h>
#include <sys/mman.h>

#include "host_backend.h"

static void finish(int dev)
{
	OK(b->stream_sync(dev, DEVICE_STREAM_LEGACY, 10 * SECOND, NULL));
}

/* ---- allocations */

Test(device_host_memory, memory_is_zeroed_and_aligned)
{
	void *small, *large, *host, *device;

	start(1);
	OK(b->alloc(0, 1, DEVICE_MEMORY_PLAIN, &small));
	cr_assert_eq((uintptr_t)small % 4096, 0);
	OK(b->alloc(0, 5 * MIB, DEVICE_MEMORY_SYMMETRIC, &large));
	cr_assert_eq((uintptr_t)large % (2 * MIB), 0);
	cr_assert(is_filled(large, 0, 5 * MIB));
	OK(b->host_alloc(0, 5000, &host, &device));
	cr_assert(is_filled(host, 0, 5000));
	memset(host, 3, 5000);
	cr_assert(is_filled(device, 3, 5000));
	OK(b->free(0, small));
	OK(b->free(0, large));
	OK(b->host_free(0, host));
}

Test(device_host_memory, memory_above_4_gib)
{
	size_t size = 6ull << 30;
	char *ptr;
	void *out;

	start(1);
	OK(b->alloc(0, size, DEVICE_MEMORY_PLAIN, &out));
	ptr = out;
	ptr[size - 1] = 1;
	cr_assert_eq(ptr[(size - 1) & 0xffffffff], 0);
	OK(b->free(0, ptr));
	cr_assert_eq(b->alloc(0, SIZE_MAX, DEVICE_MEMORY_PLAIN, &out), -ENOMEM);
	cr_assert_eq(b->alloc(0, 0, DEVICE_MEMORY_PLAIN, &out), -EINVAL);
	cr_assert_eq(out, ptr);
}

Test(device_host_memory, wrong_frees_are_errors)
{
	void *ptr, *host, *device;
	int local;

	start(2);
	OK(b->alloc(0, 8192, DEVICE_MEMORY_PLAIN, &ptr));
	OK(b->host_alloc(0, 64, &host, &device));
	cr_assert_eq(b->free(1, ptr), -EINVAL);
	cr_assert_eq(b->free(0, (char *)ptr + 4096), -EINVAL);
	cr_assert_eq(b->free(0, &local), -EINVAL);
	cr_assert_eq(b->free(0, host), -EINVAL);
	cr_assert_eq(b->host_free(0, ptr), -EINVAL);
	memset(ptr, 1, 8192);
	memset(host, 1, 64);
	OK(b->free(0, ptr));
	SAYS("host_free"); /* success leaves the last sentence */
	cr_assert_eq(b->free(0, ptr), -EINVAL);
	OK(b->host_free(0, host));
	OK(b->free(0, NULL));
}

Test(device_host_memory, freed_memory_goes_back)
{
	int maps, fds = entries("/proc/self/fd");
	void *ptr;

	start(1);
	maps = lines("/proc/self/maps");
	for (int i = 0; i < 300; i++) {
		OK(b->alloc(0, 4 * MIB, DEVICE_MEMORY_PLAIN, &ptr));
		memset(ptr, 1, 4 * MIB);
		OK(b->free(0, ptr));
	}
	cr_assert_leq(lines("/proc/self/maps"), maps + 2);
	cr_assert_eq(entries("/proc/self/fd"), fds);
}

/* ---- ranges */

static char *reserve(size_t size)
{
	void *base;

	OK(b->vmm->reserve(size, 4 * MIB, &base));
	return base;
}

Test(device_host_memory, a_range_is_backed_in_parts)
{
	size_t unit;
	char *base;

	start(2);
	OK(b->vmm->granularity(0, &unit));
	base = reserve(16 * unit);
	cr_assert_eq((uintptr_t)base % (4 * MIB), 0);
	OK(b->vmm->commit(0, base + unit, 2 * unit, NULL, 0));
	OK(b->vmm->commit(1, base + 3 * unit, unit, NULL, 0));
	OK(b->vmm->commit(0, base + 4 * unit, unit, NULL, 0));
	memset(base + unit, 5, 4 * unit);
	cr_assert_eq(b->vmm->commit(0, base + 2 * unit, unit, NULL, 0), -EEXIST);
	cr_assert_eq(b->vmm->commit(1, base + 3 * unit, unit, NULL, 0), -EEXIST);
	cr_assert_eq(b->vmm->decommit(0, base + unit, unit), -EINVAL);
	cr_assert_eq(b->vmm->decommit(0, base + 3 * unit, unit), -EINVAL);
	cr_assert_eq(b->vmm->decommit(0, base + 6 * unit, unit), -EINVAL);
	cr_assert_eq(b->free(0, base + unit), -EINVAL);
	cr_assert_eq(b->vmm->unreserve(base, 16 * unit), -EBUSY);
	OK(b->vmm->decommit(0, base + unit, 2 * unit));
	cr_assert(is_filled(base + 3 * unit, 5, 2 * unit));
	OK(b->vmm->commit(0, base + unit, 2 * unit, NULL, 0));
	cr_assert(is_filled(base + unit, 0, 2 * unit));
	OK(b->vmm->decommit(0, base + unit, 2 * unit));
	OK(b->vmm->decommit(1, base + 3 * unit, unit));
	OK(b->vmm->decommit(0, base + 4 * unit, unit));
	cr_assert_eq(b->vmm->unreserve(base, unit), -EINVAL);
	OK(b->vmm->unreserve(base, 16 * unit));
	cr_assert_eq(b->vmm->unreserve(base, 16 * unit), -EINVAL);
}

Test(device_host_memory, bad_ranges_are_refused)
{
	char *base;
	void *out = NULL;
	int peer = 7;

	start(2);
	base = reserve(8 * MIB);
	cr_assert_eq(b->vmm->reserve(1, 4096, &out), -EINVAL);
	cr_assert_eq(b->vmm->reserve(0, 4096, &out), -EINVAL);
	cr_assert_eq(b->vmm->reserve(2 * MIB, 3, &out), -EINVAL);
	cr_assert_lt(b->vmm->reserve((size_t)1 << 46, 1 << 21, &out), 1);
	if (out)
		OK(b->vmm->unreserve(out, (size_t)1 << 46));
	cr_assert_eq(b->vmm->commit(0, base + 1, 2 * MIB, NULL, 0), -EINVAL);
	cr_assert_eq(b->vmm->commit(0, base, 100, NULL, 0), -EINVAL);
	cr_assert_eq(b->vmm->commit(0, base + 6 * MIB, 4 * MIB, NULL, 0), -EINVAL);
	cr_assert_eq(b->vmm->commit(0, base - 2 * MIB, 2 * MIB, NULL, 0), -EINVAL);
	cr_assert_eq(b->vmm->commit(0, base, 2 * MIB, &peer, 1), -ENODEV);
	cr_assert_eq(b->vmm->commit(2, base, 2 * MIB, NULL, 0), -ENODEV);
	OK(b->vmm->unreserve(base, 8 * MIB));
}

Test(device_host_memory, a_commit_names_who_may_reach_it)
{
	int peers[] = { 2, 100 };
	char *base;

	start(101);
	for (int i = 0; i < 4; i++)
		OK(b->open(i));
	OK(b->open(100));
	base = reserve(16 * MIB);
	OK(b->vmm->commit(1, base, 4 * MIB, peers, 2));
	OK(b->vmm->commit(1, base + 4 * MIB, 2 * MIB, NULL, 0));
	OK(b->fill(1, base, 1, 6 * MIB, DEVICE_STREAM_LEGACY));
	OK(b->fill(2, base, 2, 4 * MIB, DEVICE_STREAM_LEGACY));
	OK(b->fill(100, base, 2, 4 * MIB, DEVICE_STREAM_LEGACY));
	cr_assert_eq(b->fill(2, base, 2, 4 * MIB + 1, DEVICE_STREAM_LEGACY), -EACCES);
	OK(b->peer_enable(3, 1)); /* counts for alloc() only */
	cr_assert_eq(b->fill(3, base, 2, 1, DEVICE_STREAM_LEGACY), -EACCES);
	SAYS("peers of the commit");
	cr_assert_eq(b->fill(1, base, 2, 6 * MIB + 1, DEVICE_STREAM_LEGACY), -EFAULT);
	cr_assert_eq(b->fill(1, base + 8 * MIB, 2, 1, DEVICE_STREAM_LEGACY), -EFAULT);
	finish(1);
	finish(2);
	finish(100);
	OK(b->vmm->decommit(1, base, 4 * MIB));
	OK(b->vmm->decommit(1, base + 4 * MIB, 2 * MIB));
	OK(b->vmm->unreserve(base, 16 * MIB));
	for (int i = 0; i < 4; i++)
		b->close(i);
	b->close(100);
}

static void touch_nothing(const void *args)
{
	(void)args;
}

/* What a thread has found out of its kernels' arguments is asked anew once memory has changed hands. */
Test(device_host_memory, an_address_gets_another_owner)
{
	static const struct kernel kernel = { "nothing", touch_nothing };
	size_t unit;
	char *base, *args[3];

	start(2);
	for (int i = 0; i < 2; i++)
		OK(b->open(i));
	OK(b->vmm->granularity(0, &unit));
	base = reserve(2 * unit);
	args[0] = base + 4096 * 17;
	args[1] = base + unit;
	args[2] = NULL;
	for (int owner = 0; owner < 4; owner++) {
		bool own = owner % 2 == 0;

		OK(b->vmm->commit(owner % 2, base, 2 * unit, NULL, 0));
		for (int again = 0; again < 3; again++)
			cr_expect_eq(b->launch(0, DEVICE_STREAM_LEGACY, &kernel, 1, 1, args,
					     sizeof(args)),
				own ? 0 : -EACCES, "owner %d: %s", owner, status_sentence());
		finish(0);
		OK(b->vmm->decommit(owner % 2, base, 2 * unit));
	}
	OK(b->vmm->unreserve(base, 2 * unit));
	for (int i = 0; i < 2; i++)
		b->close(i);
}

/* A heap that grows in steps must not use up descriptors or mappings. */
Test(device_host_memory, many_commits_are_one_file_and_one_mapping)
{
	char *base;
	int fds, maps;

	start(1);
	base = reserve(1024 * MIB);
	OK(b->vmm->commit(0, base, 2 * MIB, NULL, 0));
	fds = entries("/proc/self/fd");
	maps = lines("/proc/self/maps");
	for (size_t at = 2; at < 1024; at += 2)
		OK(b->vmm->commit(0, base + at * MIB, 2 * MIB, NULL, 0));
	cr_assert_eq(entries("/proc/self/fd"), fds);
	cr_assert_leq(lines("/proc/self/maps"), maps + 2);
	for (size_t at = 0; at < 1024; at += 2)
		OK(b->vmm->decommit(0, base + at * MIB, 2 * MIB));
	OK(b->vmm->unreserve(base, 1024 * MIB));
}

/* ---- other processes */

struct shipment {
	struct device_export export;
	int fd;
	char *memory; /* in the exporting process */
};

static int importer(void *arg)
{
	struct shipment *s = arg;
	void *ptr, *range;
	char *at;

	if (b->load() || b->open(1) || b->ipc->import_memory(1, &s->export, s->fd, &ptr))
		return 1;
	at = ptr;
	if (memcmp(at, "hello", 5))
		return 2;
	if (b->fill(1, at, 'w', 5, DEVICE_STREAM_LEGACY) ||
		b->stream_sync(1, DEVICE_STREAM_LEGACY, SECOND, NULL))
		return 3;
	if (b->open(0) || b->fill(0, at, 'x', 5, DEVICE_STREAM_LEGACY) != -EACCES)
		return 4;
	if (b->ipc->release(0, ptr, &s->export) != -EINVAL || b->ipc->release(1, ptr, &s->export))
		return 5;
	if (b->ipc->release(1, ptr, &s->export) != -EINVAL)
		return 6;
	/* parts of a page cannot be put into a range */
	if (b->vmm->reserve(4 * MIB, 4096, &range) ||
		b->vmm->import(1, range, &s->export, s->fd) != -EINVAL)
		return 7;
	return 0;
}

Test(device_host_memory, memory_is_shared_with_another_process)
{
	struct shipment s;
	void *ptr;

	start(2);
	OK(b->alloc(0, 3 * MIB, DEVICE_MEMORY_SYMMETRIC, &ptr));
	s.memory = (char *)ptr + MIB + 100;
	memcpy(s.memory, "hello", 6);
	OK(b->ipc->export_memory(0, s.memory, 1000, &s.export, &s.fd));
	cr_assert_eq(s.export.kind, DEVICE_EXPORT_FD);
	cr_assert_eq(s.export.offset, MIB + 100);
	cr_assert_eq(s.export.length, 1000);
	cr_assert(fcntl(s.fd, F_GETFD) & FD_CLOEXEC);
	cr_assert_eq(in_child(importer, &s), 0);
	cr_assert_str_eq(s.memory, "wwwww");
	close(s.fd);
	OK(b->free(0, ptr));
}

static int range_importer(void *arg)
{
	struct shipment *s = arg;
	void *out;
	char *range;

	if (b->load() || b->open(0) || b->vmm->reserve(16 * MIB, 4096, &out))
		return 1;
	range = out;
	if (b->vmm->import(0, range + 2 * MIB, &s->export, s->fd))
		return 2;
	if (b->vmm->import(0, range + 4 * MIB, &s->export, s->fd) != -EEXIST)
		return 3;
	if (b->vmm->import(0, range + 14 * MIB, &s->export, s->fd) != -EINVAL)
		return 4;
	if (strcmp(range + 4 * MIB, "second"))
		return 5;
	memcpy(range + 4 * MIB, "answer", 7);
	if (b->vmm->unreserve(range, 16 * MIB) != -EBUSY)
		return 6;
	if (b->vmm->decommit(0, range + 2 * MIB, 4 * MIB))
		return 7;
	return b->vmm->unreserve(range, 16 * MIB) ? 8 : 0;
}

Test(device_host_memory, commits_are_shared_with_another_process)
{
	struct shipment s;
	char *base;

	start(2);
	base = reserve(16 * MIB);
	OK(b->vmm->commit(0, base + 2 * MIB, 2 * MIB, NULL, 0));
	OK(b->vmm->commit(0, base + 4 * MIB, 4 * MIB, NULL, 0));
	memcpy(base + 6 * MIB, "second", 7);
	OK(b->ipc->export_memory(0, base + 4 * MIB, 4 * MIB, &s.export, &s.fd));
	cr_assert_eq(in_child(range_importer, &s), 0);
	cr_assert_str_eq(base + 6 * MIB, "answer");
	close(s.fd);
	OK(b->ipc->export_memory(0, base + 2 * MIB, 6 * MIB, &s.export, &s.fd));
	close(s.fd);
	cr_assert_eq(b->ipc->export_memory(0, base + 2 * MIB, 7 * MIB, &s.export, &s.fd), -EINVAL);
	cr_assert_eq(b->ipc->export_memory(1, base + 2 * MIB, 2 * MIB, &s.export, &s.fd), -EINVAL);
	OK(b->vmm->decommit(0, base + 2 * MIB, 2 * MIB));
	OK(b->vmm->decommit(0, base + 4 * MIB, 4 * MIB));
	OK(b->vmm->unreserve(base, 16 * MIB));
}

Test(device_host_memory, an_export_is_not_imported_at_home)
{
	struct device_export ex;
	void *ptr, *out = NULL;
	int fd;

	start(1);
	OK(b->alloc(0, 4096, DEVICE_MEMORY_PLAIN, &ptr));
	OK(b->ipc->export_memory(0, ptr, 4096, &ex, &fd));
	cr_assert_eq(b->ipc->import_memory(0, &ex, fd, &out), -EINVAL);
	SAYS("this process");
	cr_assert_null(out);
	cr_assert_eq(b->ipc->export_memory(0, &ex, 8, &ex, &fd), -EINVAL);
	cr_assert_eq(b->ipc->export_memory(0, ptr, 4097, &ex, &fd), -EINVAL);
	cr_assert_eq(b->ipc->export_memory(0, ptr, 0, &ex, &fd), -EINVAL);
	close(fd);
	OK(b->free(0, ptr));
}

static int forger(void *arg)
{
	struct shipment *s = arg;
	struct device_export ex = s->export;
	void *ptr;
	int fd;

	if (b->load())
		return 1;
	ex.length = 3 * 4096;
	if (b->ipc->import_memory(0, &ex, s->fd, &ptr) != -EINVAL)
		return 2;
	ex = s->export;
	ex.offset = UINT64_MAX - 8;
	if (b->ipc->import_memory(0, &ex, s->fd, &ptr) != -EINVAL)
		return 3;
	ex = s->export;
	ex.kind = DEVICE_EXPORT_HANDLE;
	if (b->ipc->import_memory(0, &ex, s->fd, &ptr) != -EINVAL)
		return 4;
	if (b->ipc->import_memory(0, &s->export, -1, &ptr) != -EBADF)
		return 5;
	fd = memfd_create("forged", MFD_CLOEXEC);
	if (ftruncate(fd, 8192) || b->ipc->import_memory(0, &s->export, fd, &ptr) != -EINVAL)
		return 6;
	return ftruncate(s->fd, 0) ? 0 : 7; /* nobody can shrink what others have mapped */
}

Test(device_host_memory, what_does_not_fit_is_not_imported)
{
	struct shipment s;
	void *ptr;

	start(1);
	OK(b->alloc(0, 8192, DEVICE_MEMORY_PLAIN, &ptr));
	OK(b->ipc->export_memory(0, ptr, 8192, &s.export, &s.fd));
	cr_assert_eq(in_child(forger, &s), 0);
	close(s.fd);
	OK(b->free(0, ptr));
}
