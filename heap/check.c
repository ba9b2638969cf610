/* SPDX-License-Identifier: MIT */
#include "check.h"

#include <errno.h>
#include <string.h>

#include "arena.h"
#include "src/base/mem.h"

/* Not NULL in a program under AddressSanitizer, even if this library was built without it. */
void asan_poison(const volatile void *at, size_t n) __asm__("__asan_poison_memory_region")
	__attribute__((weak));
void asan_unpoison(const volatile void *at, size_t n) __asm__("__asan_unpoison_memory_region")
	__attribute__((weak));

static void forbid(const struct heap_check *c, uint64_t from, uint64_t n)
{
	if (c->poisons && asan_poison && n)
		asan_poison(c->base + from, n);
}

static void allow(const struct heap_check *c, uint64_t from, uint64_t n)
{
	if (c->poisons && asan_unpoison && n)
		asan_unpoison(c->base + from, n);
}

/* Poisoning costs an eighth of the memory, so only the range of blocks and a little beyond it is
   poisoned. */
static void forbid_up_to(struct heap_check *c, uint64_t last, uint64_t end)
{
	uint64_t to = MIN_OF(last + CHECK_POISON, end);

	if (to <= c->poisoned)
		return;
	forbid(c, c->poisoned, to - c->poisoned);
	c->poisoned = to;
}

struct heap_check *check_create(uint64_t size, bool poisons)
{
	struct heap_check *c = mem_calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->poisons = poisons;
	c->kept_most = size / CHECK_KEPT_SHARE;
	return c;
}

/* Unpoisons everything for the next user of these addresses. */
void check_destroy(struct heap_check *c)
{
	if (!c)
		return;
	allow(c, 0, c->poisoned);
	mem_free(c->blocks);
	mem_free(c);
}

/* ---- blocks by offset ---------------------------------------------------------------------- */

/* The position of the first block that begins at or above the offset. */
static size_t position(const struct heap_check *c, uint64_t offset)
{
	size_t low = 0, high = c->n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (c->blocks[mid].offset >= offset)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

struct heap_block *check_from(const struct heap_check *c, uint64_t offset)
{
	size_t at = position(c, offset);

	return at < c->n ? &c->blocks[at] : NULL;
}

struct heap_block *check_below(const struct heap_check *c, uint64_t offset)
{
	size_t at = position(c, offset);

	if (at < c->n && c->blocks[at].offset == offset)
		return &c->blocks[at];
	return at ? &c->blocks[at - 1] : NULL;
}

int check_reserve(struct heap_check *c)
{
	size_t room = c->room ? 2 * c->room : 64;
	struct heap_block *blocks;

	if (c->n < c->room)
		return 0;
	blocks = mem_calloc(room, sizeof(*blocks));
	if (!blocks)
		return -ENOMEM;
	if (c->n)
		memcpy(blocks, c->blocks, c->n * sizeof(*blocks));
	mem_free(c->blocks);
	c->blocks = blocks;
	c->room = room;
	return 0;
}

/* More than the arena would have taken for the block alone. */
static uint64_t zone(const struct heap_block *b)
{
	return b->span - align_up(MAX_OF(b->size, 1u), ARENA_ALIGN);
}

void check_add(struct heap_check *c, const struct heap_block *block, uint64_t end)
{
	size_t at = position(c, block->offset);

	memmove(&c->blocks[at + 1], &c->blocks[at], (c->n - at) * sizeof(*c->blocks));
	c->blocks[at] = *block;
	c->n++;
	c->zones += zone(block);
	forbid_up_to(c, block->offset + block->span, end);
	allow(c, block->offset, block->size);
}

static void forget(struct heap_check *c, uint64_t offset)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < c->nkept; i++) {
		uint64_t at = c->kept[(c->first + i) % CHECK_KEPT];

		if (at != offset)
			c->kept[(c->first + kept++) % CHECK_KEPT] = at;
	}
	c->nkept = kept;
}

void check_remove(struct heap_check *c, uint64_t offset)
{
	size_t at = position(c, offset);
	struct heap_block *b = &c->blocks[at];

	if (at == c->n || b->offset != offset)
		return;
	forbid(c, b->offset, b->span);
	if (b->freed) {
		c->kept_bytes -= b->span;
		forget(c, offset);
	} else {
		c->zones -= zone(b);
	}
	c->n--;
	memmove(b, b + 1, (c->n - at) * sizeof(*b));
}

/* ---- those that were freed ----------------------------------------------------------------- */

bool check_keeps(const struct heap_check *c, uint64_t span)
{
	return span <= c->kept_most;
}

struct heap_block *check_oldest(const struct heap_check *c, uint64_t span)
{
	if (!c->nkept || (c->nkept < CHECK_KEPT && c->kept_bytes + span <= c->kept_most))
		return NULL;
	return check_from(c, c->kept[c->first]);
}

void check_leave(struct heap_check *c, struct heap_block *b)
{
	forget(c, b->offset);
	b->leaving = true;
}

void check_keep(struct heap_check *c, struct heap_block *b, uint64_t freed)
{
	b->freed = freed;
	c->zones -= zone(b);
	c->kept[(c->first + c->nkept++) % CHECK_KEPT] = b->offset;
	c->kept_bytes += b->span;
	forbid(c, b->offset, b->span);
}

/* ---- the library's own --------------------------------------------------------------------- */

void check_own(struct heap_check *c, uint64_t offset, uint64_t size, uint64_t end)
{
	forbid_up_to(c, offset + size, end);
	allow(c, offset, size);
}

void check_own_end(struct heap_check *c, uint64_t offset, uint64_t size)
{
	forbid(c, offset, size);
}
