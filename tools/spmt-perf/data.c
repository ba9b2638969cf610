/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>

#include "perf.h"

enum { POISON = 0xa5 };

uint64_t perf_random(uint64_t seed, uint64_t i)
{
	uint64_t z = seed * 0xd1342543de82ef95u + (i + 1) * 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

int perf_fill(struct rank *r, void *sym, size_t size, uint64_t seed)
{
	for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
		uint64_t word = perf_random(seed, at / sizeof(word));
		size_t n = size - at < sizeof(word) ? size - at : sizeof(word);

		memcpy(r->scratch + at, &word, n);
	}
	return spmt_copy_in(r->comm, sym, r->scratch, size);
}

int perf_poison(struct rank *r, void *sym, size_t size)
{
	memset(r->scratch, POISON, size + PERF_GUARD);
	return spmt_copy_in(r->comm, sym, r->scratch, size + PERF_GUARD);
}

static int compare_byte(struct rank *r, const char *what, size_t size, size_t at, unsigned want)
{
	return perf_wrong(r, "%s of %zu bytes, rank %d: byte %zu is %02x, want %02x", what, size,
		r->rank, at, r->scratch[at], want);
}

int perf_compare(struct rank *r, const char *what, const void *sym, size_t size, uint64_t seed)
{
	int rc = spmt_copy_out(r->comm, r->scratch, sym, size + PERF_GUARD);

	if (rc)
		return rc;
	for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
		uint64_t word = perf_random(seed, at / sizeof(word));
		size_t n = size - at < sizeof(word) ? size - at : sizeof(word);
		const unsigned char *want = (const unsigned char *)&word;

		if (!memcmp(r->scratch + at, want, n))
			continue;
		for (size_t i = 0; i < n; i++)
			if (r->scratch[at + i] != want[i])
				return compare_byte(r, what, size, at + i, want[i]);
	}
	for (size_t at = size; at < size + PERF_GUARD; at++)
		if (r->scratch[at] != POISON)
			return compare_byte(r, what, size, at, POISON);
	return 0;
}
