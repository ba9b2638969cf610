/* SPDX-License-Identifier: MIT */
#include "packet.h"

static uint32_t *put_address(uint32_t *at, const void *address)
{
	at[0] = (uint32_t)(uintptr_t)address;
	at[1] = (uint32_t)((uint64_t)(uintptr_t)address >> 32);
	return at + 2;
}

/* Since SDMA 4 the field holds the length less one. */
uint32_t *sdma_put_copy(uint32_t *at, void *dst, const void *src, size_t n)
{
	*at++ = SDMA_COPY | SDMA_COPY_LINEAR << SDMA_SUBOP_SHIFT;
	*at++ = (uint32_t)(n - 1);
	*at++ = 0;
	at = put_address(at, src);
	return put_address(at, dst);
}

uint32_t *sdma_put_fence(const struct sdma_format *f, uint32_t *at, void *word, uint32_t value)
{
	*at++ = SDMA_FENCE | (f->version >= SDMA_V5 ? SDMA_UNCACHED << SDMA_FENCE_MTYPE : 0);
	at = put_address(at, word);
	*at++ = value;
	return at;
}

uint32_t *sdma_put_add(uint32_t *at, void *word, uint64_t value)
{
	*at++ = SDMA_ATOMIC | SDMA_ATOMIC_ADD64 << SDMA_ATOMIC_SHIFT;
	at = put_address(at, word);
	*at++ = (uint32_t)value;
	*at++ = (uint32_t)(value >> 32);
	for (int i = 0; i < 3; i++) /* what a compare-and-swap compares, and how often it tries */
		*at++ = 0;
	return at;
}

uint32_t *sdma_put_poll(
	uint32_t *at, const void *word, enum sdma_compare how, uint32_t value, uint32_t mask)
{
	*at++ = SDMA_POLL | (uint32_t)how << SDMA_POLL_SHIFT | SDMA_POLL_MEMORY;
	at = put_address(at, word);
	*at++ = value;
	*at++ = mask;
	*at++ = SDMA_RETRY_EVER << SDMA_RETRY_SHIFT | 4;
	return at;
}

uint32_t *sdma_put_cache(uint32_t *at, bool drop)
{
	*at++ = SDMA_CACHE | SDMA_CACHE_USER << SDMA_SUBOP_SHIFT;
	*at++ = 0;
	*at++ = SDMA_CACHE_WRITE | (drop ? SDMA_CACHE_DROP : 0);
	*at++ = 0;
	*at++ = 0;
	return at;
}

uint32_t *sdma_put_nop(uint32_t *at, size_t words)
{
	while (words) {
		size_t n = MIN_OF(words, (size_t)SDMA_NOP_MOST);

		*at++ = SDMA_NOP | (uint32_t)(n - 1) << SDMA_NOP_SHIFT;
		for (size_t i = 1; i < n; i++)
			*at++ = 0;
		words -= n;
	}
	return at;
}
