/* SPDX-License-Identifier: MIT */
/* A heap whose blocks are looked at, against a model: what is a block and what is none, what becomes of those that are freed, and
   that equal calls leave equal heaps. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "heap/look.h"
#include "src/base/fault.h"
#include "src/base/status.h"
#include "tests/lib/ranks.h"

#define MIB (1ull << 20)
#define KIB (1ull << 10)

/* Addresses alone: nothing here touches the memory. */
static int test_alloc(int dev, size_t size, enum device_memory kind, void **ptr)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	size_t *p = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, flags, -1, 0);

	(void)dev;
	(void)kind;
	cr_assert_neq(p, MAP_FAILED);
	*p = size + 4096;
	*ptr = (char *)p + 4096;
	return 0;
}

static int test_free(int dev, void *ptr)
{
	size_t *p = (void *)((char *)ptr - 4096);

	(void)dev;
	return munmap(p, *p);
}

static const struct backend plain = { .name = "plain", .alloc = test_alloc, .free = test_free };

static void open_checked(uint64_t size, struct heap *heap)
{
	struct heap_config config = {
		.backend = &plain, .size = size + CHECK_ROOM, .own_size = 4 * KIB, .check = true
	};

	cr_assert_eq(heap_open(&config, heap), 0, "%s", status_sentence());
	cr_assert(heap->check);
}

static uint64_t alloc(struct heap *heap, uint64_t size)
{
	uint64_t offset = UINT64_MAX;

	cr_assert_eq(heap_alloc(heap, size, 1, &offset), 0, "%s", status_sentence());
	return offset;
}

/* ---- blocks by offset ---------------------------------------------------------------------- */

Test(check, exact_sizes_and_red_zones)
{
	static const uint64_t sizes[] = { 0, 1, 48, 63, 64, 65, 4096 };
	struct heap heap;
	struct heap_block b;
	uint64_t at, end = 0;

	open_checked(2 * MIB, &heap);
	cr_expect_not(heap_block_below(&heap, 0, &b));
	cr_expect_not(heap_block_from(&heap, 0, &b));
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		at = alloc(&heap, sizes[i]);
		cr_expect_geq(at, end, "blocks and their zones lie apart");
		cr_assert(heap_block_below(&heap, at + sizes[i], &b));
		cr_expect(b.offset == at && b.size == sizes[i] && !b.freed && !b.maker);
		cr_expect_geq(b.span - b.size, CHECK_ZONE);
		cr_expect_lt(b.span - b.size, CHECK_ZONE + 64u + !sizes[i]);
		end = at + b.span;
	}
	cr_expect(heap_block_below(&heap, UINT64_MAX, &b) && b.offset == at);
	cr_expect_not(heap_block_from(&heap, at + 1, &b));
	cr_expect(heap_block_from(&heap, 1, &b) && b.size == 1);
	heap_named(&heap, at, "spmt_malloc", 7);
	cr_expect(heap_block_from(&heap, at, &b) && b.made == 7 && !strcmp(b.maker, "spmt_malloc"));
	cr_expect_not(heap_clear(&heap, heap.base + at, 1), "everything is looked at");
	cr_expect(heap_holds(&heap, heap.base + at, 1));
	heap_close(&heap);
}

/* The user gets what there is without red zones, and no more. */
Test(check, all_of_it_can_be_had)
{
	static const uint64_t sizes[] = { 64 * MIB, 32 * MIB, MIB, 64 * KIB, 4 * KIB };
	struct heap heap;
	uint64_t offset = 0;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		open_checked(64 * MIB, &heap);
		for (uint64_t n = 64 * MIB / sizes[i]; n; n--)
			offset = alloc(&heap, sizes[i]);
		cr_expect_eq(heap_alloc(&heap, 1, 1, &offset), -ENOMEM);
		cr_expect_eq(heap_free(&heap, offset), 0);
		cr_expect_eq(heap_alloc(&heap, sizes[i] + 1, 1, &offset), -ENOMEM);
		cr_expect_eq(heap_alloc(&heap, UINT64_MAX, 1, &offset), -ENOMEM);
		cr_expect_eq(heap_alloc(&heap, UINT64_MAX - 64, 1, &offset), -ENOMEM);
		cr_expect_eq(alloc(&heap, sizes[i]), offset);
		heap_close(&heap);
	}
}

/* ---- those that were freed ----------------------------------------------------------------- */

Test(check, freed_blocks_are_kept_for_a_while)
{
	uint64_t first[3 * CHECK_KEPT];
	struct heap_block b, oldest;
	struct heap heap;

	open_checked(64 * MIB, &heap);
	for (size_t i = 0; i < ARRAY_SIZE(first); i++)
		first[i] = alloc(&heap, 100);
	for (size_t i = 0; i < ARRAY_SIZE(first); i++) {
		bool over = heap_kept_over(&heap, 192, &oldest);

		cr_assert_eq(over, i >= CHECK_KEPT, "%zu", i);
		if (over) {
			cr_expect_eq(oldest.offset, first[i - CHECK_KEPT], "in order");
			cr_assert_eq(heap_free(&heap, oldest.offset), 0);
			cr_assert_not(heap_kept_over(&heap, 192, &oldest));
		}
		cr_assert_eq(heap_keep(&heap, first[i], i + 1), 0);
		cr_assert(heap_block_below(&heap, first[i] + 50, &b));
		cr_expect(b.offset == first[i] && b.freed == i + 1);
	}
	cr_expect_eq(alloc(&heap, 100), first[0], "the first gap is free again");
	heap_close(&heap);
}

/* Comms of one rank may free at once: who goes is one's alone, and nobody is kept without room. */
Test(check, who_leaves_is_freed_once)
{
	struct arena_want want = { .size = 64, .align = 64, .owner = 5 };
	uint64_t at[CHECK_KEPT + 2];
	struct heap_block oldest, b;
	struct heap heap;

	open_checked(64 * MIB, &heap);
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		cr_assert_eq(heap_take(&heap, &want, &at[i]), 0);
		cr_assert_eq(heap_keep(&heap, at[i], i + 1), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		cr_expect_eq(heap_block_from(&heap, at[i], &b) && b.offset == at[i], i < CHECK_KEPT,
			"%zu", i);
	cr_assert(heap_kept_over(&heap, 128, &oldest));
	cr_expect_eq(oldest.offset, at[0]);
	cr_assert(heap_leave(&heap, at[1]));
	cr_expect_not(heap_leave(&heap, at[1]), "somebody else's");
	cr_expect_not(heap_leave(&heap, at[0]), "likewise");
	cr_expect_not(heap_kept_over(&heap, 128, &oldest), "there is room");
	heap_free_owned(&heap, 5);
	for (int i = 0; i < 2; i++) {
		cr_assert(heap_block_from(&heap, at[i], &b) && b.offset == at[i],
			"left to who has it");
		cr_assert_eq(heap_free(&heap, at[i]), 0);
	}
	cr_expect_not(heap_block_from(&heap, 0, &b));
	cr_expect_eq(arena_used(heap.arena), 0);
	cr_expect_eq(heap.check->kept_bytes, 0);
	cr_expect_eq(heap.check->nkept, 0);
	heap_close(&heap);
}

/* Small blocks up to the last byte of the user's: their red zones need all the room there is. */
Test(check, kept_blocks_go_before_there_is_no_room)
{
	struct heap heap;
	struct heap_block b;
	uint64_t at;

	open_checked(2 * MIB, &heap);
	for (uint64_t i = 1; i <= 8; i++) {
		at = alloc(&heap, 64 * KIB - CHECK_ZONE);
		cr_assert_eq(heap_keep(&heap, at, i), 0);
		cr_assert(heap_block_from(&heap, at, &b) && b.freed == i);
	}
	for (uint64_t n = 0; n < 2 * MIB / 64; n++)
		alloc(&heap, 64);
	cr_expect_eq(heap_alloc(&heap, 1, 1, &at), -ENOMEM);
	for (at = 0; heap_block_from(&heap, at, &b); at = b.offset + 1)
		cr_assert_not(b.freed);
	heap_close(&heap);
}

Test(check, long_blocks_are_kept_up_to_a_part_of_the_heap)
{
	struct heap_block b, oldest;
	struct heap heap;
	uint64_t at, small;

	open_checked(64 * MIB, &heap);
	small = alloc(&heap, 48);
	cr_assert_eq(heap_keep(&heap, small, 1), 0);
	at = alloc(&heap, 16 * MIB);
	cr_expect_not(
		heap_kept_over(&heap, 16 * MIB + 64, &oldest), "nothing goes for what is not kept");
	cr_assert_eq(heap_keep(&heap, at, 2), 0);
	cr_expect_not(heap_block_from(&heap, at, &b), "freed at once");
	at = alloc(&heap, 66 * MIB / CHECK_KEPT_SHARE - CHECK_ZONE);
	cr_assert(heap_kept_over(&heap, 66 * MIB / CHECK_KEPT_SHARE, &oldest));
	cr_expect_eq(oldest.offset, small);
	cr_assert_eq(heap_keep(&heap, at, 3), 0);
	cr_expect(heap_block_from(&heap, at, &b) && b.freed == 3);
	heap_close(&heap);
}

/* ---- equal calls, equal heaps -------------------------------------------------------------- */

enum { LIVE = 200, STEPS = 6000 };

struct model {
	size_t n;
	struct {
		uint64_t offset, size;
	} live[LIVE];
	uint64_t freed;
};

static void step(struct heap *heap, struct model *m, uint64_t random)
{
	uint64_t size = random % 16 ? random >> 8 & 511 : random >> 8 & 65535;
	size_t i = m->n ? (size_t)(random >> 32) % m->n : 0;
	struct heap_block b;

	if (m->n < LIVE && (random & 64 || !m->n)) {
		m->live[m->n].offset = alloc(heap, size);
		m->live[m->n++].size = size;
		return;
	}
	while (heap_kept_over(heap, m->live[i].size + CHECK_ZONE, &b))
		cr_assert_eq(heap_free(heap, b.offset), 0);
	cr_assert_eq(heap_keep(heap, m->live[i].offset, ++m->freed), 0);
	m->live[i] = m->live[--m->n];
}

static void expect_model(struct heap *heap, const struct model *m)
{
	struct heap_block b;
	size_t live = 0, kept = 0;

	for (size_t i = 0; i < m->n; i++)
		cr_assert(heap_block_from(heap, m->live[i].offset, &b) &&
			b.offset == m->live[i].offset && b.size == m->live[i].size && !b.freed);
	for (uint64_t at = 0, end = 0; heap_block_from(heap, at, &b); at = b.offset + 1) {
		cr_assert_geq(b.offset, end);
		end = b.offset + b.span;
		live += !b.freed;
		kept += b.freed != 0;
	}
	cr_assert_eq(live, m->n);
	cr_assert_leq(kept, CHECK_KEPT);
	cr_assert_eq(arena_blocks(heap->arena), live + kept);
	cr_assert_eq(arena_check(heap->arena), 0, "%s", status_sentence());
}

Test(check, equal_calls_leave_equal_heaps)
{
	struct heap heap[2];
	struct model m[2] = { { .n = 0 }, { .n = 0 } };
	uint64_t state = 42;

	for (int i = 0; i < 2; i++)
		open_checked(2 * MIB, &heap[i]);
	for (int s = 0; s < STEPS; s++) {
		uint64_t random = random_next(&state);

		for (int i = 0; i < 2; i++)
			step(&heap[i], &m[i], random);
		cr_assert_eq(memcmp(&m[0], &m[1], sizeof(m[0])), 0, "after %d steps", s);
		if (s % 100 == 0)
			expect_model(&heap[0], &m[0]);
	}
	expect_model(&heap[1], &m[1]);
	for (int i = 0; i < 2; i++)
		heap_close(&heap[i]);
}

/* ---- owners, the library's own, no memory -------------------------------------------------- */

Test(check, owners_and_the_librarys_own)
{
	struct arena_want want = { .size = 48, .align = 64, .owner = 5 };
	struct heap_block b;
	struct heap heap;
	uint64_t mine, theirs, own;

	open_checked(2 * MIB, &heap);
	theirs = alloc(&heap, 48);
	cr_assert_eq(heap_take(&heap, &want, &mine), 0);
	cr_assert_eq(heap_keep(&heap, mine, 1), 0);
	cr_assert_eq(heap_take(&heap, &want, &mine), 0);
	cr_expect(heap_block_from(&heap, mine, &b) && b.owner == 5);
	heap_free_owned(&heap, 5);
	cr_expect(heap_block_from(&heap, 0, &b) && b.offset == theirs);
	cr_expect_not(heap_block_from(&heap, theirs + 1, &b), "kept ones have gone as well");
	do /* until the library's own part is full */
		cr_assert_eq(heap_own_alloc(&heap, 4 * KIB, &own), 0);
	while (own >= heap.size);
	cr_expect_not(heap_block_from(&heap, theirs + 1, &b), "no block of a user's");
	cr_expect_eq(alloc(&heap, 48), own + 4 * KIB);
	heap_own_free(&heap, own);
	cr_expect_eq(alloc(&heap, 48), own);
	heap_close(&heap);
}

/* Every request for memory refused in turn: nothing is taken then, and the next call goes on. */
Test(check, without_memory)
{
	struct heap heap;
	uint64_t at = 0;
	int refused = 0;

	open_checked(2 * MIB, &heap);
	for (int i = 0; i < 300; i++) {
		uint64_t used = arena_used(heap.arena);

		fault_arm(1u << FAULT_ALLOC, 1 + (uint64_t)i % 3);
		if (heap_alloc(&heap, 48, 1, &at)) {
			refused++;
			cr_assert_eq(arena_used(heap.arena), used);
		}
		fault_disarm();
		alloc(&heap, 48);
	}
	cr_expect_gt(refused, 100);
	heap_close(&heap);
}
