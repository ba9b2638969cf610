/* SPDX-License-Identifier: MIT */
/* The heap in both modes, over a small backend of its own that counts, checks its caller and
   fails on request. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "heap/arena.h"
#include "heap/heap.h"
#include "include/spmt.h"
#include "src/base/fault.h"
#include "src/base/status.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

enum { SPANS = 4096 };

struct span {
	char *ptr;
	size_t size;
};

static struct {
	struct span commits[SPANS], blocks[SPANS], ranges[SPANS];
	int ncommits, nblocks, nranges;
	size_t granularity;
	uint64_t limit, used; /* bytes of device memory */
} device;

static int span_add(struct span *spans, int *n, void *ptr, size_t size)
{
	cr_assert_lt(*n, SPANS);
	spans[(*n)++] = (struct span){ ptr, size };
	return 0;
}

/* Size 0: any. What is not there, exactly, is the caller's mistake. */
static size_t span_take(struct span *spans, int *n, const void *ptr, size_t size)
{
	for (int i = 0; i < *n; i++) {
		size_t found = spans[i].size;

		if (spans[i].ptr != ptr || (size && found != size))
			continue;
		spans[i] = spans[--*n];
		return found;
	}
	cr_assert_fail("%p of %zu bytes was not handed out", ptr, size);
	return 0;
}

static int take_memory(size_t size)
{
	if (fault_here(FAULT_MEMORY) || device.used + size > device.limit)
		return fail(-ENOMEM, "test device: no memory");
	device.used += size;
	return 0;
}

static int test_granularity(int dev, size_t *bytes)
{
	(void)dev;
	if (fault_here(FAULT_DEVICE))
		return fail(-EIO, "test device: no answer");
	*bytes = device.granularity;
	return 0;
}

static int test_reserve(size_t size, size_t align, void **base)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	char *p;

	if (fault_here(FAULT_MAP))
		return fail(-ENOMEM, "test device: no addresses");
	p = mmap(NULL, size + align, PROT_NONE, flags, -1, 0);
	cr_assert_neq(p, MAP_FAILED);
	*base = (char *)align_up((uintptr_t)p, align);
	return span_add(device.ranges, &device.nranges, *base, size);
}

static int test_unreserve(void *base, size_t size)
{
	cr_assert_eq(device.ncommits, 0, "decommit comes first");
	span_take(device.ranges, &device.nranges, base, size);
	return munmap(base, size);
}

static int test_commit(int dev, void *ptr, size_t size, const int *peers, int n)
{
	int rc = take_memory(size);

	if (rc)
		return rc;
	cr_assert_eq((uintptr_t)ptr % device.granularity, 0);
	cr_assert_eq(size % device.granularity, 0);
	cr_assert(n == 2 && peers[0] == dev && peers[1] == 7);
	cr_assert_eq(mprotect(ptr, size, PROT_READ | PROT_WRITE), 0);
	return span_add(device.commits, &device.ncommits, ptr, size);
}

static int test_decommit(int dev, void *ptr, size_t size)
{
	(void)dev;
	device.used -= span_take(device.commits, &device.ncommits, ptr, size);
	return fail(-EIO, "test device: a clean-up that complains");
}

/* As crooked as the contract lets it be. */
static int test_alloc(int dev, size_t size, enum device_memory kind, void **ptr)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	int rc = take_memory(size);
	char *p;

	(void)dev;
	cr_assert_eq(kind, DEVICE_MEMORY_SYMMETRIC);
	if (rc)
		return rc;
	p = mmap(NULL, size + 256, PROT_READ | PROT_WRITE, flags, -1, 0);
	cr_assert_neq(p, MAP_FAILED);
	*ptr = p + 256;
	return span_add(device.blocks, &device.nblocks, *ptr, size);
}

static int test_free(int dev, void *ptr)
{
	size_t size = span_take(device.blocks, &device.nblocks, ptr, 0);

	(void)dev;
	device.used -= size;
	return munmap((char *)ptr - 256, size + 256);
}

static const struct device_vmm_ops test_vmm = { test_granularity, test_reserve, test_unreserve,
	test_commit, test_decommit };
static const struct backend with_vmm = {
	.name = "test", .alloc = test_alloc, .free = test_free, .vmm = &test_vmm
};
static const struct backend without_vmm = {
	.name = "plain", .alloc = test_alloc, .free = test_free
};

static void reset(void)
{
	memset(&device, 0, sizeof(device));
	device.granularity = 4096;
	device.limit = UINT64_MAX / 2;
}

static void expect_clean(void)
{
	cr_expect_eq(device.ncommits, 0);
	cr_expect_eq(device.nblocks, 0);
	cr_expect_eq(device.nranges, 0);
	cr_expect_eq(device.used, 0);
}

static const int peers[] = { 3, 7 };

static int open_in(const struct heap_range *range, uint64_t size, uint64_t own, struct heap *heap)
{
	struct heap_config config = { .backend = range ? &with_vmm : &without_vmm,
		.dev = 3,
		.size = size,
		.own_size = own,
		.range = range,
		.slice = range ? range->slices - 1 : 0,
		.peers = peers,
		.npeers = 2 };

	return heap_open(&config, heap);
}

static uint64_t committed(struct heap *heap)
{
	return atomic_load(&heap->committed);
}

static uint64_t alloc(struct heap *heap, uint64_t size, uint64_t align)
{
	uint64_t offset = UINT64_MAX;

	cr_assert_eq(heap_alloc(heap, size, align, &offset), 0, "%s", status_sentence());
	return offset;
}

/* Runs a body on a heap of 64 MiB in both modes. */
static void in_both_modes(void (*body)(struct heap *heap))
{
	struct heap_range range = { 0 };
	struct heap heap;

	reset();
	cr_assert_eq(heap_range_open(&with_vmm, 4, 66 * MIB, &range), 0);
	cr_assert_eq(open_in(&range, 64 * MIB, 2 * MIB, &heap), 0);
	cr_assert_eq(heap.base, range.base + 3 * range.stride);
	body(&heap);
	heap_close(&heap);
	heap_range_close(&range);
	heap_range_close(&range);
	cr_assert_eq(open_in(NULL, 64 * MIB, 2 * MIB, &heap), 0);
	body(&heap);
	heap_close(&heap);
	heap_close(&heap);
	expect_clean();
}

static void layout(struct heap *heap)
{
	cr_expect_eq((uintptr_t)heap->base % HEAP_ALIGN, 0);
	cr_expect_eq(heap->size, 64 * MIB);
	cr_expect_eq(heap->own_size, 2 * MIB);
	cr_expect_eq(heap->own, heap->base + 64 * MIB);
	for (uint64_t i = 0; i < heap->own_size; i++)
		cr_assert_eq(heap->own[i], 0);
	memset(heap->own, 1, heap->own_size);
	cr_expect_eq(heap_offset(heap, heap->base + 77), 77);
}

Test(heap, layout)
{
	in_both_modes(layout);
}

static void fill(struct heap *heap)
{
	uint64_t offset = 9, before = 0;

	for (uint64_t i = 0; i < 1024; i++) {
		cr_assert_eq(alloc(heap, 65536, 64), i * 65536);
		memset(heap->base + i * 65536, 1, 65536);
		cr_assert_geq(committed(heap), before, "it only rises");
		before = committed(heap);
	}
	cr_expect_eq(committed(heap), heap->size, "all of it is the user's");
	cr_expect_eq(heap_alloc(heap, 1, 1, &offset), -ENOMEM);
	cr_expect_eq(offset, 9);
	cr_expect(strstr(status_sentence(), "SPMT_HEAP_SIZE"), "%s", status_sentence());
	cr_expect(strstr(status_sentence(), "67108864 of 67108864"), "%s", status_sentence());
	cr_expect_eq(heap_free(heap, 65536 * 5), 0);
	cr_expect_eq(alloc(heap, 65536, 65536), 65536 * 5);
	cr_expect_eq(committed(heap), heap->size);
}

Test(heap, all_of_it_can_be_had)
{
	in_both_modes(fill);
}

static void alignments(struct heap *heap)
{
	uint64_t offset;

	for (uint64_t align = 1; align <= HEAP_ALIGN; align *= 2) {
		offset = alloc(heap, 100, align);
		cr_expect_eq((uintptr_t)(heap->base + offset) % align, 0, "address at %lu", align);
		cr_expect(heap_holds(heap, heap->base + offset, 100));
	}
	cr_expect_eq(heap_alloc(heap, 1, 0, &offset), -EINVAL);
	cr_expect_eq(heap_alloc(heap, 1, 24, &offset), -EINVAL);
	cr_expect(strstr(status_sentence(), "24"));
	cr_expect_eq(heap_alloc(heap, 1, HEAP_ALIGN * 2, &offset), -EINVAL);
	cr_expect_neq(alloc(heap, 0, 1), alloc(heap, 0, 1), "blocks of size 0 are blocks");
	cr_expect_eq(heap_free(heap, 12345), -EINVAL);
	cr_expect(strstr(status_sentence(), "12345"));
}

Test(heap, alignments_and_refusals)
{
	in_both_modes(alignments);
}

static void holds(struct heap *heap)
{
	char *base = heap->base, *end;
	uint64_t bytes;

	alloc(heap, 3 * MIB, 64);
	bytes = committed(heap);
	end = base + bytes;
	cr_expect(heap_holds(heap, base, bytes));
	cr_expect_not(heap_holds(heap, base, bytes + 1));
	cr_expect(heap_holds(heap, end - 1, 1));
	cr_expect_not(heap_holds(heap, end - 1, 2));
	cr_expect(heap_holds(heap, end, 0), "one past the end, for nothing");
	cr_expect_not(heap_holds(heap, end, 1));
	cr_expect_not(heap_holds(heap, end + 1, 0));
	cr_expect_not(heap_holds(heap, base - 1, 0));
	cr_expect_not(heap_holds(heap, base - 1, 1));
	cr_expect_not(heap_holds(heap, base - 1, bytes));
	cr_expect_not(heap_holds(heap, base, UINT64_MAX));
	cr_expect_not(heap_holds(heap, base + 1, UINT64_MAX), "wraps to base");
	cr_expect_not(heap_holds(heap, base + 64, UINT64_MAX - 63), "wraps to base");
	cr_expect_not(heap_holds(heap, base - 1, UINT64_MAX));
	cr_expect_not(heap_holds(heap, NULL, 0));
	cr_expect_not(heap_holds(heap, (void *)UINTPTR_MAX, 1));
	cr_expect_not(heap_holds(heap, heap->own, 1), "the own part is not the user's");
}

Test(heap, holds)
{
	in_both_modes(holds);
}

Test(heap, commits_in_growing_steps)
{
	struct heap_range range = { 0 };
	struct heap heap;
	uint64_t want[] = { 2, 6, 14, 30, 62, 126, 190, 254, 300 };

	reset();
	cr_assert_eq(heap_range_open(&with_vmm, 2, 302 * MIB, &range), 0);
	cr_assert_eq(open_in(&range, 300 * MIB, 100, &heap), 0);
	cr_expect_eq(committed(&heap), 0);
	cr_expect_eq(device.used, 2 * MIB, "the own part alone");
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		while (arena_high(heap.arena) < want[i] * MIB) {
			alloc(&heap, MIB, 64);
			cr_assert_eq(committed(&heap), want[i] * MIB);
		}
	}
	cr_expect_eq(heap.nchunks, 10);
	cr_expect_eq(device.used, 302 * MIB);
	heap_close(&heap);
	cr_assert_eq(open_in(&range, 300 * MIB, 100, &heap), 0);
	alloc(&heap, 201 * MIB + 1, 64);
	cr_expect_eq(committed(&heap), 202 * MIB, "one step where one block asks for it");
	heap_close(&heap);
	heap_range_close(&range);
	expect_clean();
}

Test(heap, above_4gib)
{
	struct heap_range range = { 0 };
	struct heap heap;
	uint64_t big;

	reset();
	cr_assert_eq(heap_range_open(&with_vmm, 2, 40 * GIB + 2 * MIB, &range), 0);
	cr_assert_eq(range.stride, 64 * GIB);
	cr_assert_eq(open_in(&range, 40 * GIB, 2 * MIB, &heap), 0);
	alloc(&heap, 64, 64);
	big = alloc(&heap, 33 * GIB + 5, HEAP_ALIGN);
	cr_expect_eq(big, HEAP_ALIGN);
	heap.base[big + 33 * GIB + 4] = 1;
	cr_expect(heap_holds(&heap, heap.base + big, 33 * GIB));
	heap_close(&heap);
	heap_range_close(&range);
	cr_assert_eq(open_in(NULL, 40 * GIB, 2 * MIB, &heap), 0);
	big = alloc(&heap, 33 * GIB + 5, HEAP_ALIGN);
	heap.base[big + 33 * GIB + 4] = 1;
	heap_close(&heap);
	expect_clean();
}

Test(heap, rounds_by_2_mib)
{
	struct heap heap;

	reset();
	cr_assert_eq(open_in(NULL, 1, 0, &heap), 0);
	cr_expect_eq(heap.size, 2 * MIB);
	cr_expect_eq(heap.own_size, 0);
	heap_close(&heap);
	cr_assert_eq(open_in(NULL, 2 * MIB + 1, 1, &heap), 0);
	cr_expect_eq(heap.size, 4 * MIB);
	cr_expect_eq(heap.own_size, 2 * MIB);
	heap_close(&heap);
	expect_clean();
}

Test(heap, refuses_bad_sizes)
{
	struct heap_range range = { 0 };
	struct heap heap;

	reset();
	cr_expect_eq(open_in(NULL, 0, 0, &heap), -EINVAL);
	cr_expect_eq(open_in(NULL, UINT64_MAX, 0, &heap), -EINVAL);
	cr_expect(strstr(status_sentence(), "SPMT_HEAP_SIZE"));
	cr_expect_eq(open_in(NULL, 1, UINT64_MAX, &heap), -EINVAL);
	cr_assert_eq(heap_range_open(&with_vmm, 2, 16 * MIB, &range), 0);
	cr_expect_eq(range.stride, 16 * MIB);
	cr_expect_eq(open_in(&range, 15 * MIB, MIB, &heap), -EINVAL, "18 MiB, rounded");
	cr_expect_eq(open_in(&range, 14 * MIB, MIB, &heap), 0);
	heap_close(&heap);
	device.granularity = 4 * MIB;
	cr_expect_eq(open_in(&range, 8 * MIB, MIB, &heap), SPMT_ERR_UNSUPPORTED);
	heap_range_close(&range);
	expect_clean();
}

Test(heap, range)
{
	struct heap_range range = { .slices = 77 };

	reset();
	cr_expect_eq(heap_range_open(&with_vmm, 0, GIB, &range), -EINVAL);
	cr_expect_eq(heap_range_open(&with_vmm, 2, 0, &range), -EINVAL);
	cr_expect_eq(heap_range_open(&without_vmm, 2, GIB, &range), SPMT_ERR_UNSUPPORTED);
	cr_expect(strstr(status_sentence(), "plain"));
	cr_expect_eq(heap_range_open(&with_vmm, 513, GIB, &range), SPMT_ERR_UNSUPPORTED);
	cr_expect_eq(
		heap_range_open(&with_vmm, 300, GIB + 1, &range), SPMT_ERR_UNSUPPORTED, "600 GiB");
	cr_expect_eq(heap_range_open(&with_vmm, 2, UINT64_MAX, &range), SPMT_ERR_UNSUPPORTED);
	fault_arm(1u << FAULT_MAP, 1);
	cr_expect_eq(heap_range_open(&with_vmm, 2, GIB, &range), SPMT_ERR_UNSUPPORTED);
	cr_expect(strstr(status_sentence(), "test device: no addresses"), "%s", status_sentence());
	fault_disarm();
	cr_expect_eq(range.slices, 77, "unwritten on failure");
	cr_expect_eq(heap_range_open(&with_vmm, 3, 1, &range), 0);
	cr_expect_eq(range.stride, HEAP_ALIGN);
	heap_range_close(&range);
	cr_expect_eq(heap_range_open(&with_vmm, 144, 2 * GIB, &range), 0);
	cr_expect_eq(range.stride, 2 * GIB);
	cr_expect_eq((uintptr_t)range.base % HEAP_ALIGN, 0);
	heap_range_close(&range);
	expect_clean();
}

Test(heap, the_range_ends_with_its_last_slice)
{
	static const struct {
		int slice, code;
	} rows[] = { { -1, -EINVAL }, { 0, 0 }, { 2, 0 }, { 3, -EINVAL }, { 4, -EINVAL } };
	struct heap_range range = { 0 };

	reset();
	cr_assert_eq(heap_range_open(&with_vmm, 3, 4 * MIB, &range), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct heap_config config = { .backend = &with_vmm,
			.dev = 3,
			.size = 2 * MIB,
			.range = &range,
			.slice = rows[i].slice,
			.peers = peers,
			.npeers = 2 };
		struct heap heap;
		int rc = heap_open(&config, &heap);

		cr_expect_eq(rc, rows[i].code, "slice %d: %d", rows[i].slice, rc);
		if (rc)
			continue;
		cr_expect_geq(heap.base, range.base);
		cr_expect_leq(heap.base + range.stride, range.base + 3 * range.stride);
		heap_close(&heap);
	}
	heap_range_close(&range);
	expect_clean();
}

Test(heap, goes_on_after_a_refused_commit)
{
	struct heap_range range = { 0 };
	struct heap heap;
	uint64_t offset = 5;

	reset();
	cr_assert_eq(heap_range_open(&with_vmm, 2, 66 * MIB, &range), 0);
	cr_assert_eq(open_in(&range, 64 * MIB, 2 * MIB, &heap), 0);
	device.limit = 8 * MIB;
	alloc(&heap, 2 * MIB, 64);
	cr_expect_eq(heap_alloc(&heap, 6 * MIB, 64, &offset), -ENOMEM);
	cr_expect(strstr(status_sentence(), "6291456"), "%s", status_sentence());
	cr_expect(strstr(status_sentence(), "test device: no memory"), "%s", status_sentence());
	cr_expect_eq(offset, 5);
	cr_expect_eq(arena_used(heap.arena), 2 * MIB, "the block went back");
	cr_expect_eq(committed(&heap), 2 * MIB);
	cr_expect_eq(alloc(&heap, MIB, 64), 2 * MIB);
	cr_expect_eq(heap_free(&heap, 0), 0);
	cr_expect_eq(alloc(&heap, 2 * MIB, 64), 0, "backed memory is used again");
	device.limit = UINT64_MAX / 2;
	alloc(&heap, 40 * MIB, 64);
	heap_close(&heap);
	heap_range_close(&range);
	expect_clean();
}

Test(heap, its_limit_has_the_name_by_which_it_was_set)
{
	struct heap_range range = { 0 };
	struct heap_config config = { .backend = &with_vmm,
		.dev = 3,
		.size = 64 * MIB,
		.range = &range,
		.knob = "attr.heap_size" };
	struct heap heap;
	uint64_t offset;

	reset();
	cr_assert_eq(heap_range_open(&with_vmm, 1, 64 * MIB, &range), 0);
	cr_assert_eq(heap_open(&config, &heap), 0);
	device.limit = 8 * MIB;
	for (uint64_t size = 16 * MIB; size <= 256 * MIB; size *= 16) {
		cr_expect_eq(heap_alloc(&heap, size, 64, &offset), -ENOMEM);
		cr_expect(strstr(status_sentence(), "attr.heap_size"), "%s", status_sentence());
		cr_expect_null(
			strstr(status_sentence(), "SPMT_HEAP_SIZE"), "%s", status_sentence());
	}
	heap_close(&heap);
	heap_range_close(&range);
	expect_clean();
}

/* Open, ten blocks of which some need commits, close. */
static int life(bool vmm)
{
	struct heap_range range = { 0 };
	struct heap heap = { 0 };
	uint64_t offset;
	int rc = vmm ? heap_range_open(&with_vmm, 2, 66 * MIB, &range) : 0;

	if (!rc)
		rc = open_in(vmm ? &range : NULL, 64 * MIB, 2 * MIB, &heap);
	for (int i = 0; !rc && i < 10; i++)
		rc = heap_alloc(&heap, 5 * MIB, 4096, &offset);
	if (heap.arena)
		cr_assert_eq(arena_check(heap.arena), 0);
	heap_close(&heap);
	heap_range_close(&range);
	expect_clean();
	return rc;
}

static void sweep(bool vmm, uint64_t least)
{
	uint64_t n = 0;
	bool fired = true;

	while (fired) {
		fault_arm(FAULT_ANY, ++n);
		cr_assert_eq(life(vmm) != 0, fault_fired(), "failure %lu", n);
		fired = fault_fired();
		cr_assert(!fired || status_sentence()[0]);
		fault_disarm();
		cr_assert_eq(life(vmm), 0, "a clean run follows");
	}
	cr_expect_gt(n, least);
}

Test(heap, every_failure)
{
	reset();
	sweep(true, 20);
	sweep(false, 14);
}

Test(heap, close_keeps_the_cause)
{
	struct heap_range range = { 0 };
	struct heap heap;

	reset();
	cr_assert_eq(heap_range_open(&with_vmm, 2, 66 * MIB, &range), 0);
	cr_assert_eq(open_in(&range, 64 * MIB, 2 * MIB, &heap), 0);
	fail(-EIO, "the cause");
	heap_close(&heap);
	cr_expect_str_eq(status_sentence(), "the cause");
	heap_range_close(&range);
}
