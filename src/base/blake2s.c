/* SPDX-License-Identifier: MIT */
#include "blake2s.h"

#include <string.h>

#define BLOCK 64

static const uint32_t iv[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
	0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

/* The order in which each round takes the words of the block. */
static const unsigned char message_order[10][16] = {
	{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
	{ 14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3 },
	{ 11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4 },
	{ 7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8 },
	{ 9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13 },
	{ 2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9 },
	{ 12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11 },
	{ 13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10 },
	{ 6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5 },
	{ 10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0 },
};

struct state {
	uint32_t h[8];
	uint64_t counted;
	size_t used; /* bytes of block */
	unsigned char block[BLOCK];
};

static uint32_t rotate_right(uint32_t x, int bits)
{
	return x >> bits | x << (32 - bits);
}

static uint32_t load32(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void mix(uint32_t v[16], int a, int b, int c, int d, uint32_t x, uint32_t y)
{
	v[a] += v[b] + x;
	v[d] = rotate_right(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = rotate_right(v[b] ^ v[c], 12);
	v[a] += v[b] + y;
	v[d] = rotate_right(v[d] ^ v[a], 8);
	v[c] += v[d];
	v[b] = rotate_right(v[b] ^ v[c], 7);
}

static void compress(struct state *s, bool last)
{
	uint32_t v[16];

	memcpy(v, s->h, sizeof(s->h));
	memcpy(v + 8, iv, sizeof(iv));
	v[12] ^= (uint32_t)s->counted;
	v[13] ^= (uint32_t)(s->counted >> 32);
	if (last)
		v[14] = ~v[14];
	for (int round = 0; round < 10; round++) {
		uint32_t m[16];

		for (int i = 0; i < 16; i++)
			m[i] = load32(s->block + 4 * (ptrdiff_t)message_order[round][i]);
		for (int i = 0; i < 4; i++)
			mix(v, i, 4 + i, 8 + i, 12 + i, m[2 * i], m[2 * i + 1]);
		for (int i = 0; i < 4; i++)
			mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[8 + 2 * i],
				m[9 + 2 * i]);
	}
	for (int i = 0; i < 8; i++)
		s->h[i] ^= v[i] ^ v[8 + i];
}

/* A full block is kept until more comes, because the last one is compressed differently. */
static void feed(struct state *s, const void *bytes, size_t size)
{
	const unsigned char *p = bytes;

	while (size) {
		size_t n;

		if (s->used == BLOCK) {
			s->counted += BLOCK;
			compress(s, false);
			s->used = 0;
		}
		n = MIN_OF(size, BLOCK - s->used);
		memcpy(s->block + s->used, p, n);
		s->used += n;
		p += n;
		size -= n;
	}
}

void blake2s(const void *key, size_t key_size, const struct blake2s_part *parts, size_t n,
	void *digest, size_t size)
{
	unsigned char *out = digest, first[BLOCK] = { 0 };
	struct state s = { .used = 0 };

	memcpy(s.h, iv, sizeof(iv));
	s.h[0] ^= 0x01010000u ^ (uint32_t)key_size << 8 ^ (uint32_t)size;
	if (key_size) {
		memcpy(first, key, key_size);
		feed(&s, first, BLOCK);
	}
	for (size_t i = 0; i < n; i++)
		feed(&s, parts[i].bytes, parts[i].size);
	s.counted += s.used;
	memset(s.block + s.used, 0, BLOCK - s.used);
	compress(&s, true);
	for (size_t i = 0; i < size; i++)
		out[i] = (unsigned char)(s.h[i / 4] >> 8 * (i % 4));
	explicit_bzero(&s, sizeof(s));
	explicit_bzero(first, sizeof(first));
}

bool equal_secrets(const void *a, const void *b, size_t size)
{
	const volatile unsigned char *x = a, *y = b;
	unsigned char difference = 0;

	for (size_t i = 0; i < size; i++)
		difference = (unsigned char)(difference | (x[i] ^ y[i]));
	return !difference;
}
