/* SPDX-License-Identifier: MIT */
/* Bytes of which each tells the rank that they came from and its place among them. */
#ifndef TESTS_TRANSPORTS_BYTES_H
#define TESTS_TRANSPORTS_BYTES_H

#include "tests/lib/ranks.h"

static inline char value_at(int rank, size_t i)
{
	return (char)(rank * 31 + (int)(i % 251));
}

static inline void fill(char *at, size_t n, int rank)
{
	for (size_t i = 0; i < n; i++)
		at[i] = value_at(rank, i);
}

/* what: of the failure that ranks_message() tells. */
static inline int filled_by(const char *what, const char *at, size_t n, int rank)
{
	for (size_t i = 0; i < n; i++)
		if (at[i] != value_at(rank, i))
			return ranks_fail("%s: byte %zu of %zu is %d", what, i, n, at[i]);
	return 0;
}

static inline int filled(const char *at, size_t n, int rank)
{
	return filled_by("bytes of a rank", at, n, rank);
}

#endif
