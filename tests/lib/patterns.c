/* SPDX-License-Identifier: MIT */
#include "patterns.h"

#include <stdlib.h>
#include <string.h>

#include "ranks.h"

uint64_t random_next(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

static unsigned char pattern_byte(uint64_t seed, size_t i)
{
	uint64_t x = (seed + i / 8 + 1) * 0x9e3779b97f4a7c15u;

	x ^= x >> 29;
	return (unsigned char)(x >> (i % 8 * 8));
}

void pattern_fill(void *p, size_t n, uint64_t seed)
{
	unsigned char *b = p;

	for (size_t i = 0; i < n; i++)
		b[i] = pattern_byte(seed, i);
}

size_t pattern_differs(const void *p, size_t n, uint64_t seed)
{
	const unsigned char *b = p;

	for (size_t i = 0; i < n; i++)
		if (b[i] != pattern_byte(seed, i))
			return i;
	return SIZE_MAX;
}

bool host_access(spmt_comm *comm)
{
	int64_t yes = 0;

	return spmt_query(comm, SPMT_CAP_HOST_ACCESS, &yes) == 0 && yes == 1;
}

static int sym_write(spmt_comm *comm, void *sym, void *host, size_t n)
{
	int code = spmt_copy_in(comm, sym, host, n);

	free(host);
	return code ? ranks_fail("spmt_copy_in: %d: %s", code, spmt_last_error()) : 0;
}

int sym_fill(spmt_comm *comm, void *sym, size_t n, uint64_t seed)
{
	void *host = malloc(n ? n : 1);

	if (!host)
		return ranks_fail("out of memory");
	pattern_fill(host, n, seed);
	return sym_write(comm, sym, host, n);
}

int sym_set(spmt_comm *comm, void *sym, int byte, size_t n)
{
	void *host = malloc(n ? n : 1);

	if (!host)
		return ranks_fail("out of memory");
	memset(host, byte, n);
	return sym_write(comm, sym, host, n);
}

static void *sym_read(spmt_comm *comm, const void *sym, size_t n)
{
	void *host = malloc(n ? n : 1);
	int code = host ? spmt_copy_out(comm, host, sym, n) : -ENOMEM;

	if (!code)
		return host;
	ranks_fail("spmt_copy_out: %d: %s", code, spmt_last_error());
	free(host);
	return NULL;
}

int sym_check(spmt_comm *comm, const void *sym, size_t n, uint64_t seed)
{
	unsigned char *host = sym_read(comm, sym, n);
	size_t at;
	int code = 0;

	if (!host)
		return RANKS_FAILED;
	at = pattern_differs(host, n, seed);
	if (at != SIZE_MAX)
		code = ranks_fail("byte %zu of %zu is 0x%02x, not 0x%02x", at, n, host[at],
			pattern_byte(seed, at));
	free(host);
	return code;
}

int sym_check_byte(spmt_comm *comm, const void *sym, int byte, size_t n)
{
	unsigned char *host = sym_read(comm, sym, n);
	int code = 0;

	if (!host)
		return RANKS_FAILED;
	for (size_t i = 0; i < n && !code; i++)
		if (host[i] != (unsigned char)byte)
			code = ranks_fail("byte %zu of %zu is 0x%02x, not 0x%02x", i, n, host[i],
				(unsigned)byte & 0xff);
	free(host);
	return code;
}

int sym_check_u64(spmt_comm *comm, const uint64_t *sym, uint64_t want)
{
	uint64_t got = ~want;
	int code = spmt_copy_out(comm, &got, sym, sizeof(got));

	if (code)
		return ranks_fail("spmt_copy_out: %d: %s", code, spmt_last_error());
	return got == want ? 0
			   : ranks_fail("word is %#jx, not %#jx", (uintmax_t)got, (uintmax_t)want);
}
