/* SPDX-License-Identifier: MIT */
/*
 * Bytes drive an arena beside a model: a list of live blocks. Placement is checked in full (lowest
 * offset that fits), then every invariant of the arena itself.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "heap/arena.h"

enum { LIVE = 64 };

struct model {
	uint64_t size;
	size_t n;
	struct {
		uint64_t offset, size;
	} block[LIVE]; /* by offset */
};

struct input {
	const uint8_t *data;
	size_t left;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t take(struct input *in, size_t bytes)
{
	uint64_t x = 0;

	for (; bytes && in->left; bytes--, in->left--)
		x = x << 8 | *in->data++;
	return x;
}

static void require(int holds)
{
	if (!holds)
		abort();
}

/* Sizes and alignments of all magnitudes from two bytes: a mantissa and a shift. */
static uint64_t take_size(struct input *in)
{
	uint64_t mantissa = take(in, 1);

	return mantissa << take(in, 1) % 64;
}

/* The index where a block of `size` goes, its offset in *at, or LIVE: nowhere. Sizes below 2^63
   each, so sums are watched. */
static size_t place(const struct model *m, uint64_t size, uint64_t align, uint64_t *at)
{
	uint64_t begin = 0;

	for (size_t i = 0; i <= m->n; i++) {
		uint64_t end = i < m->n ? m->block[i].offset : m->size;
		uint64_t pad = (0 - begin) & (align - 1);

		if (end - begin >= pad && end - begin - pad >= size) {
			*at = begin + pad;
			return i;
		}
		if (i < m->n)
			begin = end + m->block[i].size;
	}
	return LIVE;
}

static void do_alloc(struct arena *arena, struct model *m, struct input *in)
{
	uint64_t size = take_size(in), align = 1ull << take(in, 1) % 64, want = 0, got = 0,
		 real = 0;
	uint64_t rounded = size <= UINT64_MAX - 63 ? (size + 63) / 64 * 64 : UINT64_MAX;
	size_t i;
	int rc;

	if (m->n == LIVE - 1)
		return;
	rounded = rounded ? rounded : 64;
	i = place(m, rounded, align < 64 ? 64 : align, &want);
	rc = arena_alloc(arena, size, align, &got);
	if (i == LIVE) {
		require(rc == -ENOSPC && got == 0);
		return;
	}
	require(rc == 0 && got == want);
	require(arena_size(arena, got, &real) == 0 && real == rounded);
	memmove(&m->block[i + 1], &m->block[i], (m->n - i) * sizeof(m->block[0]));
	m->block[i].offset = want;
	m->block[i].size = rounded;
	m->n++;
}

static void do_free(struct arena *arena, struct model *m, struct input *in)
{
	size_t i = take(in, 1);

	if (i >= m->n)
		return;
	require(arena_free(arena, m->block[i].offset) == 0);
	require(arena_free(arena, m->block[i].offset) == -EINVAL);
	m->n--;
	memmove(&m->block[i], &m->block[i + 1], (m->n - i) * sizeof(m->block[0]));
}

static void do_bad_free(struct arena *arena, const struct model *m, struct input *in)
{
	uint64_t offset = take_size(in) + take(in, 1);

	for (size_t i = 0; i < m->n; i++) {
		if (m->block[i].offset == offset)
			return;
	}
	require(arena_free(arena, offset) == -EINVAL);
}

static void check(const struct arena *arena, const struct model *m)
{
	uint64_t used = 0;

	for (size_t i = 0; i < m->n; i++)
		used += m->block[i].size;
	require(arena_check(arena) == 0);
	require(arena_used(arena) == used && arena_blocks(arena) == m->n);
	require(arena_high(arena) ==
		(m->n ? m->block[m->n - 1].offset + m->block[m->n - 1].size : 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct model m = { 0 };
	struct arena *arena = NULL;
	uint64_t bytes = take_size(&in);

	m.size = bytes / 64 * 64;
	require(arena_create(bytes, &arena) == 0);
	while (in.left) {
		uint64_t op = take(&in, 1);

		if (op % 8 < 4)
			do_alloc(arena, &m, &in);
		else if (op % 8 < 7)
			do_free(arena, &m, &in);
		else
			do_bad_free(arena, &m, &in);
		check(arena, &m);
	}
	arena_destroy(arena);
	return 0;
}
