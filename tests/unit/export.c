/* SPDX-License-Identifier: MIT */
/* A heap published piece by piece and put together again, over a backend of memfds that knows
   what it handed out. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "heap/export.h"
#include "include/spmt.h"
#include "src/base/fault.h"
#include "src/base/status.h"
#include "tests/lib/transports/device_links.h"
#include "transports/ipc.h"
#include "transports/transport.h"

#define MIB (1ull << 20)

enum { BLOCKS = 64 };

/* One mapping: of alloc, commit, import, or a range (fd -1). */
static struct {
	struct {
		char *ptr;
		size_t size;
		int fd;
	} block[BLOCKS];
	int n, exports;
} device;

static int add(void *ptr, size_t size, int fd)
{
	cr_assert_lt(device.n, BLOCKS);
	device.block[device.n].ptr = ptr;
	device.block[device.n].size = size;
	device.block[device.n++].fd = fd;
	return 0;
}

static int find(const void *ptr, size_t size)
{
	for (int i = 0; i < device.n; i++) {
		if (device.block[i].ptr == ptr && device.block[i].size == size)
			return i;
	}
	cr_assert_fail("%p of %zu bytes was not handed out", ptr, size);
	return -1;
}

static int drop(void *ptr, size_t size)
{
	int i = find(ptr, size);

	if (device.block[i].fd >= 0)
		close(device.block[i].fd);
	device.block[i] = device.block[--device.n];
	return 0;
}

static void *map(void *at, size_t size, int fd)
{
	void *p = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);

	cr_assert_neq(p, MAP_FAILED);
	return p;
}

static int memory(size_t size)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, (off_t)size), 0);
	return fd;
}

static int test_granularity(int dev, size_t *bytes)
{
	(void)dev;
	*bytes = 4096;
	return 0;
}

static int test_reserve(size_t size, size_t align, void **base)
{
	char *p;

	if (fault_here(FAULT_MAP))
		return fail(-ENOMEM, "test device: no addresses");
	p = mmap(NULL, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	cr_assert_neq(p, MAP_FAILED);
	*base = (char *)align_up((uintptr_t)p, align);
	return add(*base, size, -1);
}

static int test_unreserve(void *base, size_t size)
{
	return drop(base, size);
}

static int test_commit(int dev, void *ptr, size_t size, const int *peers, int n)
{
	int fd = memory(size);

	(void)dev, (void)peers, (void)n;
	return add(map(ptr, size, fd), size, fd);
}

static int test_decommit(int dev, void *ptr, size_t size)
{
	(void)dev;
	ptr = mmap(ptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	cr_assert_neq(ptr, MAP_FAILED);
	return drop(ptr, size);
}

static int test_import(int dev, void *ptr, const struct device_export *in, int fd)
{
	(void)dev;
	if (fault_here(FAULT_REGISTER))
		return fail(-ENOMEM, "test device: no import");
	return add(map(ptr, in->length, fd), in->length, -1);
}

static int test_alloc(int dev, size_t size, enum device_memory kind, void **ptr)
{
	int fd = memory(size);

	(void)dev, (void)kind;
	*ptr = map(NULL, size, fd);
	return add(*ptr, size, fd);
}

static int test_free(int dev, void *ptr)
{
	(void)dev;
	for (int i = 0; i < device.n; i++) {
		if (device.block[i].ptr == ptr) {
			munmap(ptr, device.block[i].size);
			return drop(ptr, device.block[i].size);
		}
	}
	cr_assert_fail("free of what was not allocated");
	return -EINVAL;
}

static int test_export(int dev, void *ptr, size_t size, struct device_export *out, int *fd)
{
	char *p = ptr;

	(void)dev;
	if (fault_here(FAULT_REGISTER))
		return fail(-ENOMEM, "test device: no export");
	for (int i = 0; i < device.n; i++) {
		char *begin = device.block[i].ptr;

		if (device.block[i].fd < 0 || p < begin || p + size > begin + device.block[i].size)
			continue;
		device.exports++;
		*out = (struct device_export){
			.kind = DEVICE_EXPORT_FD, .offset = (uint64_t)(p - begin), .length = size
		};
		*fd = dup(device.block[i].fd);
		return 0;
	}
	cr_assert_fail("export of what is no memory");
	return -EINVAL;
}

static int test_import_memory(int dev, const struct device_export *in, int fd, void **ptr)
{
	char *p;

	(void)dev;
	if (fault_here(FAULT_REGISTER))
		return fail(-ENOMEM, "test device: no import");
	p = map(NULL, in->offset + in->length, fd);
	*ptr = p + in->offset;
	return add(*ptr, in->length, -1);
}

static int test_release(int dev, void *ptr, const struct device_export *in)
{
	(void)dev;
	munmap((char *)ptr - in->offset, in->offset + in->length);
	return drop(ptr, in->length);
}

static const struct device_vmm_ops vmm = { .granularity = test_granularity,
	.reserve = test_reserve,
	.unreserve = test_unreserve,
	.commit = test_commit,
	.decommit = test_decommit,
	.import = test_import };
static const struct device_ipc_ops ipc = { test_export, test_import_memory, test_release };
static const struct backend backend = {
	.name = "test", .alloc = test_alloc, .free = test_free, .vmm = &vmm, .ipc = &ipc
};
static const struct backend deaf = { .name = "deaf", .alloc = test_alloc, .free = test_free };

/* A heap of 16 MiB and 2 of its own, in vmm mode if range is given. */
static int open_heap(struct heap_range *range, struct heap *heap)
{
	struct heap_config config = {
		.backend = &backend, .size = 16 * MIB, .own_size = 2 * MIB, .range = range
	};
	int rc = range ? heap_range_open(&backend, 1, 18 * MIB, range) : 0;

	return rc ? rc : heap_open(&config, heap);
}

/* What a map does at each growth: pieces that the peer has not got. */
static int pass_on(const struct heap *heap, struct heap_export *e, struct heap_import *in)
{
	int rc = heap_export_update(heap, e);

	while (!rc && in->n < e->n)
		rc = heap_import_add(in, &e->pieces[in->n], e->fds[in->n]);
	return rc;
}

struct both {
	struct heap_range range;
	struct heap heap;
	struct heap_export e;
	struct heap_import in;
};

/* All steps of a life; what stands is closed by close_both(). */
static int live(struct both *b, bool growing)
{
	uint64_t offset;
	int rc = open_heap(growing ? &b->range : NULL, &b->heap);

	if (!rc)
		rc = heap_import_open(&backend, 1, b->heap.size, b->heap.own_size, &b->in);
	for (int i = 0; !rc && i < 15; i++) {
		rc = heap_alloc(&b->heap, MIB, 64, &offset);
		if (!rc)
			rc = pass_on(&b->heap, &b->e, &b->in);
	}
	return rc;
}

static void close_both(struct both *b)
{
	heap_import_close(&b->in);
	heap_export_close(&b->e);
	heap_close(&b->heap);
	heap_range_close(&b->range);
}

static void same_memory(bool growing)
{
	struct both b = { 0 };

	cr_assert_eq(live(&b, growing), 0, "%s", status_sentence());
	cr_expect_eq(b.e.n, b.heap.nchunks);
	cr_expect_eq(device.exports, b.heap.nchunks, "each chunk once");
	cr_expect_neq(b.in.base, b.heap.base);
	for (uint64_t at = 0; at < 15 * MIB; at += 4096)
		memcpy(b.heap.base + at, &at, sizeof(at));
	for (uint64_t at = 0; at < 15 * MIB; at += 4096)
		cr_assert_eq(memcmp(b.in.base + at, &at, sizeof(at)), 0, "offset %lu", at);
	b.in.base[b.heap.size + 5] = 77;
	cr_expect_eq(b.heap.own[5], 77);
	close_both(&b);
	close_both(&b);
	cr_expect_eq(device.n, 0);
}

Test(export, static_heap_is_one_piece)
{
	int before = links_count("fd");

	same_memory(false);
	cr_expect_eq(device.exports, 1);
	cr_expect_eq(links_count("fd"), before);
}

Test(export, growing_heap_comes_piece_by_piece)
{
	int before = links_count("fd");

	same_memory(true);
	cr_expect_eq(device.exports, 5, "the own part, then 2, 4, 8 and the last 2 MiB");
	cr_expect_eq(links_count("fd"), before);
}

Test(export, a_later_call_goes_on)
{
	struct both b = { 0 };
	uint64_t offset;

	cr_assert_eq(open_heap(&b.range, &b.heap), 0);
	cr_assert_eq(heap_alloc(&b.heap, 2 * MIB, 64, &offset), 0);
	cr_assert_eq(heap_alloc(&b.heap, 2 * MIB, 64, &offset), 0);
	fault_arm(1u << FAULT_REGISTER, 2);
	cr_expect_eq(heap_export_update(&b.heap, &b.e), -ENOMEM);
	cr_expect_eq(b.e.n, 1);
	fault_disarm();
	cr_expect_eq(heap_export_update(&b.heap, &b.e), 0);
	cr_expect_eq(b.e.n, 3);
	cr_expect_eq(heap_export_update(&b.heap, &b.e), 0);
	cr_expect_eq(device.exports, 3);
	close_both(&b);
}

Test(export, every_failure)
{
	int before = links_count("fd");

	for (int growing = 0; growing < 2; growing++) {
		bool fired = true;

		for (uint64_t n = 1; fired; n++) {
			struct both b = { 0 };
			int rc;

			fault_arm(FAULT_ANY, n);
			rc = live(&b, growing);
			fired = fault_fired();
			fault_disarm();
			cr_assert_eq(rc != 0, fired, "failure %lu", n);
			cr_assert_eq(b.in.n <= b.e.n && b.e.n <= b.heap.nchunks, 1);
			close_both(&b);
			cr_assert_eq(device.n, 0);
			cr_assert_eq(links_count("fd"), before);
			cr_assert(fired || n > 6);
		}
	}
}

/* A heap in parts is mapped in two steps, a range and what goes into it: where the second is refused the first is undone. */
Test(export, a_map_that_fails_half_way_leaves_nothing)
{
	struct ipc_memory memories[] = {
		{ .piece = { 5 * MIB, 3 * MIB, { .length = 3 * MIB } }, .fd = memory(3 * MIB) },
		{ .piece = { 0, 18 * MIB, { .length = 18 * MIB } }, .fd = memory(18 * MIB) },
	};
	struct rank_info peer = { .rank = 4, .heap_size = 16 * MIB, .own_size = 2 * MIB };

	for (size_t i = 0; i < ARRAY_SIZE(memories); i++) {
		struct link link = { .backend = &backend, .rank = 3, .memory = &memories[i] };

		fault_arm(1u << FAULT_REGISTER, 1);
		cr_expect_eq(map_ipc.attach(&link, &backend, 1, &peer), -ENOMEM);
		cr_expect(fault_fired());
		fault_disarm();
		cr_expect_eq(device.n, 0, "%d mappings are left", device.n);
		cr_expect(!link.base && !link.attached);
		map_ipc.detach(&link, &backend, 1);
		cr_assert_eq(map_ipc.attach(&link, &backend, 1, &peer), 0, "%s", status_sentence());
		cr_expect_eq(link.own, 16 * MIB);
		map_ipc.detach(&link, &backend, 1);
		cr_expect_eq(device.n, 0);
		close(memories[i].fd);
	}
}

Test(export, backend_without_ipc)
{
	struct heap_import in = { 0 };
	struct heap_export e = { 0 };
	struct heap heap = { .backend = &deaf };

	cr_expect_eq(heap_export_update(&heap, &e), SPMT_ERR_UNSUPPORTED);
	cr_expect(strstr(status_sentence(), "deaf"));
	cr_expect_eq(heap_import_open(&deaf, 0, 2 * MIB, 0, &in), SPMT_ERR_UNSUPPORTED);
	heap_export_close(&e);
	heap_import_close(&in);
}

Test(export, pieces_are_not_trusted)
{
	static const struct heap_piece bad[] = {
		{ 0, 0, { .length = 0 } },
		{ 18 * MIB, 1, { .length = 1 } },
		{ 0, 18 * MIB + 1, { .length = 18 * MIB + 1 } },
		{ UINT64_MAX, 2, { .length = 2 } },
		{ 2 * MIB, UINT64_MAX - MIB, { .length = UINT64_MAX - MIB } },
		{ 0, 2 * MIB, { .length = 4 * MIB } },
		{ 0, 2 * MIB, { .length = 2 * MIB, .size = 65 } },
		{ 4 * MIB, 4 * MIB, { .length = 4 * MIB } },
		{ 6 * MIB, MIB, { .length = MIB } },
		{ 0, 18 * MIB, { .length = 18 * MIB } },
	};
	const struct heap_piece good = { 5 * MIB, 3 * MIB, { .length = 3 * MIB } };
	struct heap_import in = { 0 };
	int fd = memory(18 * MIB);

	cr_expect_eq(heap_import_open(&backend, 0, 0, 0, &in), -EPROTO);
	cr_expect_eq(heap_import_open(&backend, 0, MIB, 0, &in), -EPROTO);
	cr_expect_eq(
		heap_import_open(&backend, 0, 2 * MIB, UINT64_MAX - 2 * MIB + 1, &in), -EPROTO);
	cr_assert_eq(heap_import_open(&backend, 0, 16 * MIB, 2 * MIB, &in), 0);
	cr_assert_eq(heap_import_add(&in, &good, fd), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		cr_expect_eq(heap_import_add(&in, &bad[i], fd), -EPROTO, "piece %zu", i);
		cr_expect_eq(in.n, 1);
	}
	heap_import_close(&in);
	cr_expect_eq(device.n, 0);
	close(fd);
}
