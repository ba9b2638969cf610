/* SPDX-License-Identifier: MIT */
/* The arena against a model that is too simple to be wrong: one byte a unit of the range. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "heap/arena.h"
#include "src/base/fault.h"

enum { UNITS = 4096, LIVE = 512 };

struct model {
	uint64_t unit; /* bytes a unit: ARENA_ALIGN, or so many that sizes pass 4 GiB */
	unsigned char taken[UNITS];
	uint64_t used, blocks;
};

struct block {
	uint64_t offset, size; /* in units */
	uint64_t owner;
};

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

/* First fit not below `from`, in units. */
static int model_alloc(struct model *m, uint64_t size, uint64_t align, uint64_t from, uint64_t *at)
{
	for (uint64_t o = (from + align - 1) / align * align; o + size <= UNITS; o += align) {
		uint64_t n = 0;

		while (n < size && !m->taken[o + n])
			n++;
		if (n < size)
			continue;
		memset(m->taken + o, 1, size);
		m->used += size;
		m->blocks++;
		*at = o;
		return 0;
	}
	return -ENOSPC;
}

static void model_free(struct model *m, const struct block *b)
{
	memset(m->taken + b->offset, 0, b->size);
	m->used -= b->size;
	m->blocks--;
}

static uint64_t model_high(const struct model *m)
{
	uint64_t n = UNITS;

	while (n && !m->taken[n - 1])
		n--;
	return n;
}

static struct arena *create(uint64_t size)
{
	struct arena *arena = NULL;

	cr_assert_eq(arena_create(size, &arena), 0);
	return arena;
}

static uint64_t alloc(struct arena *arena, uint64_t size, uint64_t align)
{
	uint64_t offset = UINT64_MAX;

	cr_assert_eq(arena_alloc(arena, size, align, &offset), 0);
	return offset;
}

static void expect_same(const struct arena *arena, const struct model *m)
{
	cr_assert_eq(arena_check(arena), 0);
	cr_assert_eq(arena_used(arena), m->used * m->unit);
	cr_assert_eq(arena_blocks(arena), m->blocks);
	cr_assert_eq(arena_high(arena), model_high(m) * m->unit);
}

/* One random step; blocks[] holds the live ones, tightly. */
static void step(struct arena *arena, struct model *m, struct block *blocks, uint64_t *seed)
{
	uint64_t r = next_random(seed), size, align, from, want = 0, got = 0;
	struct block *b = &blocks[m->blocks];
	int rc;

	if (m->blocks == LIVE || (m->blocks && r % 16 < 7)) {
		b = &blocks[next_random(seed) % m->blocks];
		cr_assert_eq(arena_size(arena, b->offset * m->unit, &got), 0);
		cr_assert_eq(got, b->size * m->unit);
		cr_assert_eq(arena_owner(arena, b->offset * m->unit, &got), 0);
		cr_assert_eq(got, b->owner);
		cr_assert_eq(arena_free(arena, b->offset * m->unit), 0);
		model_free(m, b);
		*b = blocks[m->blocks];
		return;
	}
	size = 1 + next_random(seed) % (r % 5 ? 16 : 400);
	align = r % 3 ? 1 : 1ull << next_random(seed) % 10;
	from = r % 4 ? 0 : next_random(seed) % UNITS;
	rc = model_alloc(m, size, align, from, &want);
	cr_assert_eq(
		arena_take(arena,
			&(struct arena_want){ .size = size * m->unit - (m->unit > 64 ? 0 : r % 64),
				.align = align * m->unit,
				.from = from * m->unit,
				.owner = r },
			&got),
		rc);
	if (rc)
		return;
	cr_assert_eq(got, want * m->unit, "%lu at %lu: %lu, not %lu", size, align, got, want);
	*b = (struct block){ want, size, r };
}

/* Every live block in order, and nothing else. */
static void expect_walk(
	const struct arena *arena, const struct model *m, const struct block *blocks)
{
	uint64_t at = 0, owner, n = 0;

	for (; !arena_next(arena, at, &at, &owner); at++, n++) {
		uint64_t i = 0;

		while (i < m->blocks && blocks[i].offset * m->unit != at)
			i++;
		cr_assert_lt(i, m->blocks, "no block begins at %lu", at);
		cr_assert_eq(owner, blocks[i].owner);
	}
	cr_assert_eq(n, m->blocks);
}

static void compare(uint64_t unit, int steps, uint64_t seed)
{
	struct model m = { .unit = unit };
	struct block blocks[LIVE + 1];
	struct arena *arena = create(UNITS * unit);

	for (int i = 0; i < steps; i++) {
		step(arena, &m, blocks, &seed);
		if (i % 16 == 0)
			expect_same(arena, &m);
		if (i % 256 == 0)
			expect_walk(arena, &m, blocks);
	}
	cr_assert_gt(m.blocks, 50);
	while (m.blocks) {
		model_free(&m, &blocks[m.blocks - 1]);
		cr_assert_eq(arena_free(arena, blocks[m.blocks].offset * unit), 0);
	}
	expect_same(arena, &m);
	cr_assert_eq(alloc(arena, UNITS * unit, 1), 0, "all of it is one gap again");
	arena_destroy(arena);
}

Test(arena, random_against_model)
{
	for (uint64_t seed = 1; seed <= 4; seed++)
		compare(ARENA_ALIGN, 10000, seed * 7919);
}

Test(arena, random_above_4gib)
{
	compare(1ull << 32, 10000, 42);
	compare(1ull << 20, 10000, 43); /* alignments on both sides of the last exact class */
	compare(1ull << 50, 2000, 44);	/* 2^62 bytes in all */
}

Test(arena, equal_calls_give_equal_offsets)
{
	struct arena *a = create(64 << 20), *b = create(64 << 20);
	uint64_t live[1000], seed = 99;
	size_t n = 0;

	for (int i = 0; i < 20000; i++) {
		uint64_t r = next_random(&seed), x = 1, y = 2;
		int rc;

		if (n == ARRAY_SIZE(live) || (n && r & 1)) {
			size_t k = (r >> 8) % n;

			cr_assert_eq(arena_free(a, live[k]), 0);
			cr_assert_eq(arena_free(b, live[k]), 0);
			live[k] = live[--n];
			continue;
		}
		rc = arena_alloc(a, (r >> 8) % 200000, 1ull << (r >> 40) % 20, &x);
		cr_assert_eq(arena_alloc(b, (r >> 8) % 200000, 1ull << (r >> 40) % 20, &y), rc);
		if (rc)
			continue;
		cr_assert_eq(x, y);
		live[n++] = x;
	}
	arena_destroy(a);
	arena_destroy(b);
}

Test(arena, sizes_and_zero)
{
	struct arena *arena = create(1000); /* 960 */
	uint64_t size = 0;

	cr_expect_eq(alloc(arena, 0, 1), 0);
	cr_expect_eq(alloc(arena, 1, 1), 64);
	cr_expect_eq(alloc(arena, 64, 1), 128);
	cr_expect_eq(alloc(arena, 65, 64), 192);
	cr_expect_eq(arena_size(arena, 0, &size), 0);
	cr_expect_eq(size, 64);
	cr_expect_eq(arena_size(arena, 192, &size), 0);
	cr_expect_eq(size, 128);
	cr_expect_eq(arena_used(arena), 320);
	cr_expect_eq(arena_high(arena), 320);
	cr_expect_eq(arena_blocks(arena), 4);
	arena_destroy(arena);
}

Test(arena, exhausted_exactly)
{
	struct arena *arena = create(100 << 20);
	uint64_t offset = 12345;

	for (uint64_t i = 0; i < 1600; i++)
		cr_assert_eq(alloc(arena, 65536, 65536), i * 65536);
	cr_expect_eq(arena_alloc(arena, 1, 1, &offset), -ENOSPC);
	cr_expect_eq(offset, 12345, "an output is unwritten on failure");
	cr_expect_eq(arena_check(arena), 0);
	for (uint64_t i = 0; i < 1600; i += 2)
		cr_assert_eq(arena_free(arena, i * 65536), 0);
	cr_expect_eq(arena_alloc(arena, 65537, 1, &offset), -ENOSPC);
	for (uint64_t i = 0; i < 1600; i += 2)
		cr_assert_eq(alloc(arena, 65536, 65536), i * 65536);
	arena_destroy(arena);
}

Test(arena, empty)
{
	struct arena *arena = create(63);
	uint64_t offset;

	cr_expect_eq(arena_alloc(arena, 0, 1, &offset), -ENOSPC);
	cr_expect_eq(arena_free(arena, 0), -EINVAL);
	cr_expect_eq(arena_high(arena), 0);
	cr_expect_eq(arena_check(arena), 0);
	arena_destroy(arena);
	arena_destroy(NULL);
}

Test(arena, padding_stays_free)
{
	struct arena *arena = create(16 << 20);

	cr_expect_eq(alloc(arena, 64, 1), 0);
	cr_expect_eq(alloc(arena, 100, 8 << 20), 8 << 20);
	cr_expect_eq(arena_used(arena), 64 + 128);
	cr_expect_eq(alloc(arena, (8 << 20) - 64, 1), 64, "the gap before is whole");
	cr_expect_eq(alloc(arena, (8 << 20) - 128, 1), (8 << 20) + 128);
	cr_expect_eq(arena_used(arena), 16 << 20);
	arena_destroy(arena);
}

Test(arena, every_alignment)
{
	struct arena *arena = create(UINT64_MAX);

	cr_expect_eq(alloc(arena, 1, 1), 0);
	for (unsigned k = 6; k < 64; k++)
		cr_expect_eq(alloc(arena, 1, 1ull << k), 1ull << k);
	cr_expect_eq(arena_check(arena), 0);
	for (unsigned k = 6; k < 64; k++)
		cr_expect_eq(arena_free(arena, 1ull << k), 0);
	cr_expect_eq(alloc(arena, UINT64_MAX - 127, 1), 64);
	arena_destroy(arena);
}

Test(arena, refuses)
{
	struct arena *arena = create(1 << 20);
	uint64_t out = 7, a = alloc(arena, 1000, 64);

	cr_expect_eq(arena_alloc(arena, 64, 0, &out), -EINVAL);
	cr_expect_eq(arena_alloc(arena, 64, 96, &out), -EINVAL);
	cr_expect_eq(arena_alloc(arena, UINT64_MAX, 64, &out), -ENOSPC);
	cr_expect_eq(arena_alloc(arena, UINT64_MAX - 63, 64, &out), -ENOSPC);
	cr_expect_eq(arena_alloc(arena, 64, 1ull << 63, &out), -ENOSPC, "only 0 is a multiple");
	cr_expect_eq(arena_free(arena, a + 64), -EINVAL, "inside a block");
	cr_expect_eq(arena_free(arena, a + 1), -EINVAL);
	cr_expect_eq(arena_free(arena, 1024), -EINVAL, "a gap begins there");
	cr_expect_eq(arena_free(arena, 1 << 20), -EINVAL);
	cr_expect_eq(arena_free(arena, UINT64_MAX), -EINVAL);
	cr_expect_eq(arena_size(arena, 1024, &out), -EINVAL);
	cr_expect_eq(out, 7);
	cr_expect_eq(arena_free(arena, a), 0);
	cr_expect_eq(arena_free(arena, a), -EINVAL, "twice");
	cr_expect_eq(arena_used(arena), 0);
	cr_expect_eq(arena_check(arena), 0);
	arena_destroy(arena);
}

/* Fails every request for memory in turn, through each way of cutting a gap. */
Test(arena, without_memory)
{
	struct arena *arena = NULL;
	uint64_t offset = 7;

	fault_arm(1u << FAULT_ALLOC, 1);
	cr_expect_eq(arena_create(1 << 20, &arena), -ENOMEM);
	fault_arm(1u << FAULT_ALLOC, 2);
	cr_expect_eq(arena_create(1 << 20, &arena), -ENOMEM);
	cr_expect_null(arena);
	fault_disarm();
	arena = create(1 << 20);
	alloc(arena, 64, 64);
	for (uint64_t n = 1; n <= 2; n++) {
		fault_arm(1u << FAULT_ALLOC, n);
		cr_expect_eq(arena_alloc(arena, 64, 4096, &offset), -ENOMEM);
		cr_expect(fault_fired());
		cr_expect_eq(offset, 7);
		cr_expect_eq(arena_used(arena), 64);
		cr_expect_eq(arena_high(arena), 64);
		cr_expect_eq(arena_check(arena), 0);
	}
	fault_disarm();
	cr_expect_eq(alloc(arena, 64, 4096), 4096);
	fault_arm(1u << FAULT_ALLOC, 0);
	cr_expect_eq(arena_free(arena, 0), 0);
	cr_expect_eq(arena_free(arena, 4096), 0);
	cr_expect_eq(fault_seen(), 0, "free needs no memory");
	fault_disarm();
	arena_destroy(arena);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * Seconds for 2000 pairs of alloc and free in an arena of n blocks, almost every other one freed
 * before: the gaps are too small for what is asked, or lie crookedly, so a list would be walked to
 * its end.
 */
static double churn(uint64_t n, uint64_t size, uint64_t align)
{
	struct arena *arena = create((n * 2 + 4096) * 4160);
	double start, end;

	for (uint64_t i = 0; i < n; i++)
		cr_assert_eq(alloc(arena, 4160, 64), i * 4160);
	for (uint64_t i = 0; i < n; i += 2)
		cr_assert_eq(i % 64 ? arena_free(arena, i * 4160) : 0, 0);
	start = now();
	for (int i = 0; i < 2000; i++) {
		uint64_t offset = alloc(arena, size, align);

		cr_assert_geq(offset, n * 4160);
		cr_assert_eq(arena_free(arena, offset), 0);
	}
	end = now();
	arena_destroy(arena);
	return end - start;
}

/* 256 times the blocks: a logarithm makes about twice the work, a list 256 times. Caches are
   allowed for. */
Test(arena, time_grows_as_a_logarithm)
{
	const uint64_t asks[][2] = { { 4224, 64 }, { 4096, 4096 } };

	for (size_t a = 0; a < ARRAY_SIZE(asks); a++) {
		double best = 1e9;

		for (int i = 0; i < 5 && best >= 32; i++) {
			double large = churn(1 << 18, asks[a][0], asks[a][1]);

			best = MIN_OF(best, large / churn(1 << 10, asks[a][0], asks[a][1]));
		}
		cr_expect_lt(best, 32, "alignment %lu: %.1f times", asks[a][1], best);
	}
}
