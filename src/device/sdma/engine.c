/* SPDX-License-Identifier: MIT */
#include "engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/tsan.h"

#define ADDRESS_BITS 47 /* of a process */

/* A packet being looked at. */
struct sdma_packet {
	const struct sdma_engine *engine;
	const uint32_t *word;
	size_t left; /* words up to the doorbell or the end of the ring */
};

static int sdma_refuse(const struct sdma_packet *p, const char *fmt, ...) PRINTF(2, 3);
static int sdma_refuse(const struct sdma_packet *p, const char *fmt, ...)
{
	struct sdma_queue *q = p->engine->queue;
	uint64_t at = atomic_load_explicit(q->read, memory_order_relaxed) & (q->size - 1);
	int n = snprintf(q->why, sizeof(q->why),
		"packet %#010x at byte %llu of the ring: ", p->word[0], (unsigned long long)at);
	va_list args;

	va_start(args, fmt);
	vsnprintf(q->why + n, sizeof(q->why) - (size_t)n, fmt, args);
	va_end(args);
	atomic_store_explicit(&q->error, -EIO, memory_order_release);
	return -EIO;
}

static uint64_t sdma_pair(const uint32_t *word)
{
	return (uint64_t)word[1] << 32 | word[0];
}

/* A range that the packet names, as a pointer; NULL: refused. */
static char *sdma_range(const struct sdma_packet *p, int word, size_t n, size_t align)
{
	uint64_t at = sdma_pair(p->word + word);

	if (at % align)
		sdma_refuse(p, "%#llx is not a multiple of %zu", (unsigned long long)at, align);
	else if (!at || at >> ADDRESS_BITS || (at + n - 1) >> ADDRESS_BITS)
		sdma_refuse(p, "%zu bytes at %#llx are no memory", n, (unsigned long long)at);
	else if (!p->engine->reach(p->engine->dev, (void *)(uintptr_t)at, n))
		sdma_refuse(p, "device %d does not reach %zu bytes at %#llx", p->engine->dev, n,
			(unsigned long long)at);
	else
		return (char *)(uintptr_t)at;
	return NULL;
}

/* 0, or refused: fewer words are there, or bits of the first one are set beside those of `known`. */
static int sdma_shape(const struct sdma_packet *p, size_t words, uint32_t known)
{
	if (words > p->left)
		return sdma_refuse(p, "%zu words, of which %zu are there", words, p->left);
	if (p->word[0] & ~known)
		return sdma_refuse(p, "bits %#x are not known", p->word[0] & ~known);
	return 0;
}

/* Each returns the words of its packet, 0 to be asked again, or a code. */

static int sdma_do_nop(const struct sdma_packet *p)
{
	size_t words = 1 + (p->word[0] >> SDMA_NOP_SHIFT & (SDMA_NOP_MOST - 1));
	int rc = sdma_shape(p, words, 0xff | (uint32_t)(SDMA_NOP_MOST - 1) << SDMA_NOP_SHIFT);

	return rc ? rc : (int)words;
}

static int sdma_do_copy(const struct sdma_packet *p)
{
	const struct sdma_format *f = &p->engine->queue->format;
	char *src, *dst;
	size_t n;

	if (sdma_shape(p, SDMA_COPY_WORDS, 0xffff))
		return -EIO;
	if (p->word[1] >> f->count_bits || p->word[1] + 1ull > sdma_copy_most(f))
		return sdma_refuse(p, "%llu bytes, at most %zu are moved at once",
			p->word[1] + 1ull, sdma_copy_most(f));
	if (p->word[2])
		return sdma_refuse(p, "parameters %#x", p->word[2]);
	n = (size_t)p->word[1] + 1;
	src = sdma_range(p, 3, n, 1);
	dst = src ? sdma_range(p, 5, n, 1) : NULL;
	if (!dst)
		return -EIO;
	if (dst < src + n && src < dst + n)
		return sdma_refuse(
			p, "%zu bytes from %p to %p overlap", n, (void *)src, (void *)dst);
	p->engine->move(dst, src, n);
	return SDMA_COPY_WORDS;
}

static int sdma_do_fence(const struct sdma_packet *p)
{
	bool v5 = p->engine->queue->format.version >= SDMA_V5;
	uint32_t *word;

	if (sdma_shape(p, SDMA_FENCE_WORDS, 0xffff | (v5 ? 7u << SDMA_FENCE_MTYPE : 0)))
		return -EIO;
	word = (uint32_t *)(void *)sdma_range(p, 1, sizeof(*word), sizeof(*word));
	if (!word)
		return -EIO;
	tsan_release(word);
	__atomic_store_n(word, p->word[3], __ATOMIC_RELEASE);
	return SDMA_FENCE_WORDS;
}

static int sdma_do_atomic(const struct sdma_packet *p)
{
	unsigned op = p->word[0] >> SDMA_ATOMIC_SHIFT;
	uint64_t *word;

	if (sdma_shape(p, SDMA_ATOMIC_WORDS, 0xffff | 0x7fu << SDMA_ATOMIC_SHIFT))
		return -EIO;
	if (op != SDMA_ATOMIC_ADD64 && op != SDMA_ATOMIC_SWAP64)
		return sdma_refuse(p, "atomic operation %u is not done here", op);
	if (p->word[5] | p->word[6] | p->word[7])
		return sdma_refuse(p, "it compares nothing");
	word = (uint64_t *)(void *)sdma_range(p, 1, sizeof(*word), sizeof(*word));
	if (!word)
		return -EIO;
	tsan_release(word);
	if (op == SDMA_ATOMIC_ADD64)
		__atomic_fetch_add(word, sdma_pair(p->word + 3), __ATOMIC_ACQ_REL);
	else
		__atomic_exchange_n(word, sdma_pair(p->word + 3), __ATOMIC_ACQ_REL);
	return SDMA_ATOMIC_WORDS;
}

static bool sdma_compares(enum sdma_compare how, uint32_t have, uint32_t want)
{
	switch (how) {
	case SDMA_ALWAYS:
		return true;
	case SDMA_LESS:
		return have < want;
	case SDMA_LESS_EQUAL:
		return have <= want;
	case SDMA_EQUAL:
		return have == want;
	case SDMA_NOT_EQUAL:
		return have != want;
	case SDMA_GREATER_EQUAL:
		return have >= want;
	case SDMA_GREATER:
		return have > want;
	}
	return false;
}

static int sdma_do_poll(const struct sdma_packet *p)
{
	unsigned how = p->word[0] >> SDMA_POLL_SHIFT & 7;
	uint32_t *word;

	if (sdma_shape(p, SDMA_POLL_WORDS, 0xffff | 7u << SDMA_POLL_SHIFT | SDMA_POLL_MEMORY))
		return -EIO;
	if (!(p->word[0] & SDMA_POLL_MEMORY) || how > SDMA_GREATER)
		return sdma_refuse(p, "only words of memory are polled, by 7 comparisons");
	if (p->word[5] >> SDMA_RETRY_SHIFT != SDMA_RETRY_EVER)
		return sdma_refuse(p, "a poll that gives up is not done here");
	word = (uint32_t *)(void *)sdma_range(p, 1, sizeof(*word), sizeof(*word));
	if (!word)
		return -EIO;
	if (!sdma_compares((enum sdma_compare)how,
		    __atomic_load_n(word, __ATOMIC_ACQUIRE) & p->word[4], p->word[3]))
		return 0;
	tsan_acquire(word);
	return SDMA_POLL_WORDS;
}

/* Caches of a CPU are coherent: there is nothing to do. */
static int sdma_do_cache(const struct sdma_packet *p)
{
	if (p->engine->queue->format.version < SDMA_V5)
		return sdma_refuse(p, "caches are SDMA 5's");
	if (sdma_shape(p, SDMA_CACHE_WORDS, 0xffff))
		return -EIO;
	if (p->word[0] >> SDMA_SUBOP_SHIFT != SDMA_CACHE_USER || p->word[1] || p->word[3] ||
		p->word[4] || p->word[2] & ~(SDMA_CACHE_WRITE | SDMA_CACHE_DROP))
		return sdma_refuse(p, "only all addresses' caches are looked after");
	return SDMA_CACHE_WORDS;
}

static int sdma_do(const struct sdma_packet *p)
{
	unsigned sub = p->word[0] >> SDMA_SUBOP_SHIFT & 0xff;

	if (sub && (p->word[0] & 0xff) != SDMA_CACHE)
		return sdma_refuse(p, "operation %u, %u is unknown", p->word[0] & 0xff, sub);
	switch (p->word[0] & 0xff) {
	case SDMA_NOP:
		return sdma_do_nop(p);
	case SDMA_COPY:
		return sdma_do_copy(p);
	case SDMA_FENCE:
		return sdma_do_fence(p);
	case SDMA_POLL:
		return sdma_do_poll(p);
	case SDMA_ATOMIC:
		return sdma_do_atomic(p);
	case SDMA_CACHE:
		return sdma_do_cache(p);
	default:
		return sdma_refuse(p, "operation %u is unknown", p->word[0] & 0xff);
	}
}

int sdma_engine_step(const struct sdma_engine *e, uint64_t end)
{
	struct sdma_queue *q = e->queue;
	uint64_t at = atomic_load_explicit(q->read, memory_order_relaxed);
	uint64_t off = at & (q->size - 1);
	struct sdma_packet p = { .engine = e, .word = q->ring + off / sizeof(uint32_t) };
	int words;

	if (atomic_load_explicit(&q->error, memory_order_relaxed))
		return -EIO;
	if (at == end)
		return 0;
	if (end - at > q->size || end % q->format.unit)
		return sdma_refuse(&p, "the doorbell says %llu, the engine is at %llu",
			(unsigned long long)end, (unsigned long long)at);
	if ((int64_t)(atomic_load_explicit(q->write, memory_order_acquire) - end) < 0)
		return sdma_refuse(&p, "the doorbell says %llu before the write pointer does",
			(unsigned long long)end);
	p.left = (size_t)MIN_OF(end - at, q->size - off) / sizeof(uint32_t);
	words = sdma_do(&p);
	if (words <= 0)
		return words;
	atomic_store_explicit(
		q->read, at + (uint64_t)words * sizeof(uint32_t), memory_order_release);
	return 1;
}
