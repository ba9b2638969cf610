/* SPDX-License-Identifier: MIT */
/*
 * Packets of AMD's SDMA engines, as their user-mode queues take them: 32-bit words, little endian, addresses as two words, the low
 * one first. Facts are those of AMD's public headers: vega10_sdma_pkt_open.h (SDMA 4: gfx9) and navi10_sdma_pkt_open.h (SDMA 5:
 * gfx10 and later) of the Linux driver, and sdma_registers.h of ROCR-Runtime, whose limits and cache flags are taken where the
 * two differ.
 */
#ifndef SPMT_SDMA_PACKET_H
#define SPMT_SDMA_PACKET_H

#include "src/base/base.h"

enum sdma_version { SDMA_V4 = 4, SDMA_V5 = 5 };

struct sdma_format {
	enum sdma_version version;
	unsigned count_bits; /* of a copy's length: 22 or 30 */
	unsigned unit; /* bytes: what is submitted at once is padded to a multiple; power of two */
	bool atomics;  /* the engine's 64-bit atomics reach the CPU's memory */
};

/* The first word of a packet: operation, and what it is in detail. */
enum sdma_op {
	SDMA_NOP = 0,
	SDMA_COPY = 1,
	SDMA_FENCE = 5,
	SDMA_POLL = 8,
	SDMA_ATOMIC = 10,
	SDMA_CACHE = 17 /* SDMA 5 */
};
#define SDMA_SUBOP_SHIFT 8
#define SDMA_COPY_LINEAR 0u
#define SDMA_CACHE_USER 1u
#define SDMA_NOP_SHIFT 16   /* words to skip behind the first one: 14 bits */
#define SDMA_FENCE_MTYPE 16 /* SDMA 5: how the word is cached; 3 is uncached */
#define SDMA_UNCACHED 3u
#define SDMA_ATOMIC_SHIFT 25 /* 7 bits */
#define SDMA_ATOMIC_SWAP64 39u
#define SDMA_ATOMIC_ADD64 47u
#define SDMA_POLL_SHIFT 28 /* the comparison: 3 bits */
#define SDMA_POLL_MEMORY (1u << 31)
#define SDMA_RETRY_SHIFT 16 /* 12 bits in a poll's last word; all set: for ever */
#define SDMA_RETRY_EVER 0xfffu
/* the third word of a packet of caches, for all addresses: what is written back, and what is invalidated as well */
#define SDMA_CACHE_WRITE (1u << 31 | 1u << 22)
#define SDMA_CACHE_DROP (1u << 30 | 1u << 25 | 1u << 24 | 1u << 23)

/* Compares as unsigned: (memory & mask) FUNC value. */
enum sdma_compare {
	SDMA_ALWAYS,
	SDMA_LESS,
	SDMA_LESS_EQUAL,
	SDMA_EQUAL,
	SDMA_NOT_EQUAL,
	SDMA_GREATER_EQUAL,
	SDMA_GREATER
};

/* Words of each. */
enum {
	SDMA_COPY_WORDS = 7,
	SDMA_FENCE_WORDS = 4,
	SDMA_POLL_WORDS = 6,
	SDMA_ATOMIC_WORDS = 8,
	SDMA_CACHE_WORDS = 5,
	SDMA_NOP_MOST = 1 << 14
};

/* Most bytes of one copy: a multiple of 32 below what the field holds. */
static inline size_t sdma_copy_most(const struct sdma_format *f)
{
	return ((size_t)1 << f->count_bits) - 32;
}

/* Copies that n bytes take. */
static inline size_t sdma_copies(const struct sdma_format *f, size_t n)
{
	return n / sdma_copy_most(f) + (n % sdma_copy_most(f) != 0);
}

/* Each writes a packet and returns its end. */

/* n is 1 to sdma_copy_most(). The ranges do not overlap: the engine moves in no particular order. */
uint32_t *sdma_put_copy(uint32_t *at, void *dst, const void *src, size_t n);
/* Stores a word behind everything before it; `word` is aligned. */
uint32_t *sdma_put_fence(const struct sdma_format *f, uint32_t *at, void *word, uint32_t value);
/* Adds to an aligned 64-bit word, behind everything before it. */
uint32_t *sdma_put_add(uint32_t *at, void *word, uint64_t value);
/* Waits for an aligned word. */
uint32_t *sdma_put_poll(
	uint32_t *at, const void *word, enum sdma_compare how, uint32_t value, uint32_t mask);
/* SDMA 5 alone: writes the caches back and, where `drop` says so, forgets what they hold. */
uint32_t *sdma_put_cache(uint32_t *at, bool drop);
/* `words` words of nothing, in as many packets as it takes. */
uint32_t *sdma_put_nop(uint32_t *at, size_t words);

#endif
