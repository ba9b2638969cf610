/* SPDX-License-Identifier: MIT */
/* Two ranks give and take blocks of all kinds of sizes up to 64 MiB, at odd places, and look at every byte; small ones three ways. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { ODD = 3 };
#define MOST ((size_t)64 << 20)

static const size_t sizes[] = { 1, 8, 191, 4097, 65537, (1 << 20) + 5, (8 << 20) + 1, MOST };

struct blocks {
	char *dst;
	uint64_t *sig; /* data is there; it may be overwritten */
	char *own;     /* not symmetric */
	uint64_t turn;
	bool slow; /* the largest is not taken back */
};

static int blocks_open(spmt_comm *comm, struct blocks *b, char *own)
{
	*b = (struct blocks){ .own = own, .slow = getenv("SPMT_TEST_SLOW") };
	REQUIRE_OK(spmt_malloc(comm, MOST + 64, (void **)&b->dst));
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*b->sig), (void **)&b->sig));
	return 0;
}

static int put_by(spmt_comm *comm, struct blocks *b, const char *src, size_t n, int pe)
{
	switch (b->turn % 3) {
	case 0:
		REQUIRE_OK(spmt_put(comm, b->dst + ODD, src, n, pe));
		REQUIRE_OK(spmt_fence(comm));
		return spmt_signal(comm, b->sig, b->turn, SPMT_SIGNAL_SET, pe);
	case 1:
		return spmt_put_signal(
			comm, b->dst + ODD, src, n, b->sig, b->turn, SPMT_SIGNAL_SET, pe);
	default:
		REQUIRE_OK(spmt_put_signal_nbi(
			comm, b->dst + ODD, src, n, b->sig, b->turn, SPMT_SIGNAL_SET, pe));
		return spmt_quiet(comm);
	}
}

/* Both at once, each to the other; then each takes back what it gave. */
static int exchange(spmt_comm *comm, struct blocks *b, size_t n)
{
	int me = spmt_rank(comm), pe = 1 - me;
	uint64_t mine = 2 * b->turn + (uint64_t)me, theirs = 2 * b->turn + (uint64_t)pe;

	b->turn++;
	pattern_fill(b->own, n, mine);
	REQUIRE_OK(put_by(comm, b, b->own, n, pe));
	REQUIRE_OK(spmt_signal_wait(comm, b->sig, SPMT_CMP_EQ, b->turn, NULL));
	TRY(sym_check(comm, b->dst + ODD, n, theirs));
	if (n < MOST || !b->slow) {
		memset(b->own, 0, n);
		REQUIRE_OK(spmt_get(comm, b->own, b->dst + ODD, n, pe));
		REQUIRE(pattern_differs(b->own, n, mine) == SIZE_MAX);
	}
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static int all_sizes(spmt_comm *comm, void *arg)
{
	char *own = malloc(MOST);
	struct blocks b;
	int code;

	(void)arg;
	REQUIRE(own);
	code = blocks_open(comm, &b, own);
	for (size_t i = 0; i < 3 * sizeof(sizes) / sizeof(sizes[0]) && !code; i++)
		if (i % 3 == 0 || sizes[i / 3] <= 1 << 20)
			code = exchange(comm, &b, sizes[i / 3]);
	if (code) { /* what ran out of time may still go to and from it */
		spmt_abort(comm, code);
		spmt_quiet(comm);
	}
	free(own);
	return code;
}

static int up_to_64_mib(void)
{
	struct spmt_attr attr = ranks_attr(0, 2, NULL);

	attr.heap_size = MOST + (8u << 20);
	return ranks_run(2, &attr, all_sizes, NULL);
}

int main(void)
{
	static const struct test_case cases[] = { { "up to 64 MiB", up_to_64_mib } };

	return tap_run(cases, 1);
}
