/* SPDX-License-Identifier: MIT */
/* Eight ranks on one word: every operation of every type is exact, alone and mixed with signals. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"

enum { RANKS = 8, HOME = 3 }; /* HOME: the rank whose word is the target */

static const enum spmt_type whole[] = { SPMT_TYPE_I32, SPMT_TYPE_U32, SPMT_TYPE_I64,
	SPMT_TYPE_U64 };

struct job {
	spmt_comm *comm;
	enum spmt_type type;
	uint64_t *word; /* symmetric: the target, then a sum a rank */
	uint64_t mask;	/* of the type's bits */
	uint64_t rounds;
	int rank;
};

static int act(
	struct job *j, enum spmt_amo amo, uint64_t operand, uint64_t compare, uint64_t *fetched)
{
	uint64_t old = 0;
	int code;

	code = spmt_atomic(
		j->comm, amo, j->type, j->word, &operand, &compare, fetched ? &old : NULL, HOME);
	if (fetched)
		*fetched = old & j->mask;
	return code;
}

/* The target on HOME becomes `value`; nobody acts before or is still acting. */
static int start(struct job *j, uint64_t value)
{
	REQUIRE_OK(spmt_barrier(j->comm));
	if (j->rank == HOME)
		REQUIRE_OK(spmt_copy_in(j->comm, j->word, &value, sizeof(value)));
	return spmt_barrier(j->comm);
}

/* All have acted: what the target holds, and the sum of what each passed in `mine`. */
static int finish(struct job *j, uint64_t mine, uint64_t *value, uint64_t *sum)
{
	REQUIRE_OK(spmt_copy_in(j->comm, j->word + 1, &mine, sizeof(mine)));
	REQUIRE_OK(spmt_barrier(j->comm));
	REQUIRE_OK(spmt_get(j->comm, value, j->word, sizeof(*value), HOME));
	*value &= j->mask;
	*sum = 0;
	for (int pe = 0; pe < RANKS; pe++) {
		uint64_t part;

		REQUIRE_OK(spmt_get(j->comm, &part, j->word + 1, sizeof(part), pe));
		*sum += part;
	}
	*sum &= j->mask;
	return spmt_barrier(j->comm);
}

/* ---- sums: from just below the type's end, so that they wrap -------------------------------------------------------------- */

static int adds(struct job *j, enum spmt_amo amo)
{
	bool fetch = amo == SPMT_AMO_FETCH_ADD || amo == SPMT_AMO_FETCH_INC;
	bool by_one = amo == SPMT_AMO_INC || amo == SPMT_AMO_FETCH_INC;
	uint64_t first = (j->mask >> 1) - 5, operand = by_one ? 1 : (uint64_t)j->rank + 1;
	uint64_t old, added = 0, value, sum, last = 0;

	TRY(start(j, first));
	for (uint64_t i = 0; i < j->rounds; i++, added += operand) {
		REQUIRE_OK(act(j, amo, by_one ? 12345 : operand, 0, fetch ? &old : NULL));
		if (!fetch)
			continue;
		/* Only rises, by at least what this rank added since it last looked. */
		old = (old - first) & j->mask;
		REQUIRE(i == 0 || old >= last + operand);
		last = old;
	}
	TRY(finish(j, added, &value, &sum));
	REQUIRE_EQ(value, (first + sum) & j->mask);
	return 0;
}

/* Of n fetch-and-increments each sees another number: their sum says so. */
static int tickets(struct job *j)
{
	uint64_t old, seen = 0, value, sum, n = j->rounds * RANKS;

	TRY(start(j, 0));
	for (uint64_t i = 0; i < j->rounds; i++) {
		REQUIRE_OK(act(j, SPMT_AMO_FETCH_INC, 0, 0, &old));
		seen += old;
	}
	TRY(finish(j, seen, &value, &sum));
	REQUIRE_EQ(value, n);
	REQUIRE_EQ(sum, n * (n - 1) / 2 & j->mask);
	return 0;
}

/* ---- bits: each rank owns one and is the only one to change it -------------------------------------------------------------- */

static int bits(struct job *j, enum spmt_amo set, enum spmt_amo clear)
{
	bool fetch = set >= SPMT_AMO_FETCH_INC;
	bool flips = clear == SPMT_AMO_XOR || clear == SPMT_AMO_FETCH_XOR;
	uint64_t mine = (uint64_t)1 << (j->rank * 3 + (j->mask >> 32 ? 40 : 8)), old, value, sum;
	uint64_t off = flips ? mine : ~mine;

	TRY(start(j, 1));
	for (uint64_t i = 0; i < j->rounds / 2 * 2 + 1; i++) {
		REQUIRE_OK(act(j, i % 2 ? clear : set, i % 2 ? off : mine, 0, fetch ? &old : NULL));
		if (fetch)
			REQUIRE_EQ(!!(old & mine), i % 2);
	}
	TRY(finish(j, mine, &value, &sum));
	REQUIRE_EQ(value, sum | 1);
	return 0;
}

/* ---- exchanges ------------------------------------------------------------------------------------------------------------- */

/* What went in has come out or is still there. */
static int swaps(struct job *j)
{
	uint64_t in = 0, out = 0, old, value, sum, next;

	TRY(start(j, 7));
	for (uint64_t i = 0; i < j->rounds; i++) {
		next = (i * RANKS + (uint64_t)j->rank) * 2654435761u & j->mask;
		REQUIRE_OK(act(j, SPMT_AMO_SWAP, next, 0, &old));
		in += next;
		out += old;
	}
	TRY(finish(j, in - out, &value, &sum));
	REQUIRE_EQ((7 + sum) & j->mask, value);
	return 0;
}

/* A counter made of compare-and-swap; one that did not match changes nothing and says what is there. */
static int compare_swaps(struct job *j)
{
	uint64_t old = 0, guess = 0, value, sum, done = 0, rounds = j->rounds / 10;

	TRY(start(j, 0));
	while (done < rounds) {
		REQUIRE_OK(act(j, SPMT_AMO_COMPARE_SWAP, guess + 1, guess, &old));
		done += old == guess;
		guess = old == guess ? guess + 1 : old;
	}
	TRY(finish(j, done, &value, &sum));
	REQUIRE_EQ(value, rounds * RANKS);
	REQUIRE_EQ(sum, value);
	REQUIRE_OK(act(j, SPMT_AMO_COMPARE_SWAP, 5, value + 1, &old));
	REQUIRE_EQ(old, value);
	return spmt_barrier(j->comm);
}

/* Set and fetch: a value seen is one that was set, whole. */
static int sets(struct job *j)
{
	uint64_t old, value, sum, mine = (uint64_t)(j->rank + 1) * 0x0101010101010101;

	TRY(start(j, 0));
	for (uint64_t i = 0; i < j->rounds; i++) {
		REQUIRE_OK(act(j, SPMT_AMO_SET, mine & j->mask, 0, NULL));
		REQUIRE_OK(act(j, SPMT_AMO_FETCH, 0, 0, &old));
		REQUIRE((old & 0xff) >= 1 && (old & 0xff) <= RANKS);
		REQUIRE_EQ(old, (old & 0xff) * 0x0101010101010101 & j->mask);
	}
	TRY(finish(j, 0, &value, &sum));
	REQUIRE_EQ(value, (value & 0xff) * 0x0101010101010101 & j->mask);
	return 0;
}

static int job_open(spmt_comm *comm, struct job *j, enum spmt_type type)
{
	memset(j, 0, sizeof(*j));
	j->comm = comm;
	j->type = type;
	j->mask = type == SPMT_TYPE_I32 || type == SPMT_TYPE_U32 ? UINT32_MAX : UINT64_MAX;
	j->rounds = test_count(100000, 1000000);
	j->rank = spmt_rank(comm);
	return spmt_calloc(comm, 2, sizeof(*j->word), (void **)&j->word);
}

#define EVERY_TYPE(name, body)                                                  \
	static int name##_main(spmt_comm *comm, void *arg)                      \
	{                                                                       \
		struct job job, *j = &job;                                      \
                                                                                \
		TRY(job_open(comm, j, *(const enum spmt_type *)arg));           \
		body;                                                           \
		return 0;                                                       \
	}                                                                       \
	Test(atomics, name)                                                     \
	{                                                                       \
		for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) { \
			enum spmt_type type = whole[i];                         \
                                                                                \
			RANKS_OK(ranks_run(RANKS, NULL, name##_main, &type));   \
		}                                                               \
	}

EVERY_TYPE(inc, TRY(adds(j, SPMT_AMO_INC)))
EVERY_TYPE(add, TRY(adds(j, SPMT_AMO_ADD)))
EVERY_TYPE(fetch_inc, TRY(adds(j, SPMT_AMO_FETCH_INC)); TRY(tickets(j)))
EVERY_TYPE(fetch_add, TRY(adds(j, SPMT_AMO_FETCH_ADD)))
EVERY_TYPE(or_and, TRY(bits(j, SPMT_AMO_OR, SPMT_AMO_AND)))
EVERY_TYPE(xor, TRY(bits(j, SPMT_AMO_XOR, SPMT_AMO_XOR)))
EVERY_TYPE(fetch_or_and, TRY(bits(j, SPMT_AMO_FETCH_OR, SPMT_AMO_FETCH_AND)))
EVERY_TYPE(fetch_xor, TRY(bits(j, SPMT_AMO_FETCH_XOR, SPMT_AMO_FETCH_XOR)))
EVERY_TYPE(swap, TRY(swaps(j)))
EVERY_TYPE(compare_swap, TRY(compare_swaps(j)))
EVERY_TYPE(set_and_fetch, TRY(sets(j)))

/* ---- floats: set, swap, fetch ------------------------------------------------------------------------------------------------ */

static int real_f64(spmt_comm *comm, void *arg)
{
	double *word, next, old, in = 0, sum;
	int rank = spmt_rank(comm);

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1 + RANKS, sizeof(*word), (void **)&word));
	for (size_t i = 0; i < test_count(20000, 200000); i++) {
		next = (double)i + rank * 0.5;
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_SWAP, SPMT_TYPE_F64, word, &next, NULL, &old, HOME));
		in += next - old;
	}
	REQUIRE_OK(spmt_put(comm, word + 1 + rank, &in, sizeof(in), HOME));
	REQUIRE_OK(spmt_barrier(comm));
	sum = 0;
	for (int pe = 0; pe < RANKS; pe++) {
		REQUIRE_OK(spmt_get(comm, &next, word + 1 + pe, sizeof(next), HOME));
		sum += next;
	}
	REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_FETCH, SPMT_TYPE_F64, word, NULL, NULL, &old, HOME));
	REQUIRE(sum == old);
	REQUIRE_OK(spmt_barrier(comm));
	next = -0.0;
	REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_SET, SPMT_TYPE_F64, word, &next, NULL, NULL, rank));
	REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_FETCH, SPMT_TYPE_F64, word, NULL, NULL, &old, rank));
	return memcmp(&old, &next, sizeof(old)) ? ranks_fail("-0.0 is not kept")
						: spmt_barrier(comm);
}

/* Bits that are no number go through unchanged. */
static int real_f32(spmt_comm *comm, void *arg)
{
	static const uint32_t odd[] = { 0x7fc00001, 0xff800000, 0x80000000, 0x00000001, 0x7f800001,
		0x3f800000 };
	uint32_t *word, old, guard;
	int next = (spmt_rank(comm) + 1) % spmt_nranks(comm);

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*word), (void **)&word));
	for (size_t i = 0; i < 6; i++) {
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_SET, SPMT_TYPE_F32, word + 1, &odd[i], NULL, NULL, next));
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_FETCH, SPMT_TYPE_F32, word + 1, NULL, NULL, &old, next));
		REQUIRE_EQ(old, odd[i]);
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_SWAP, SPMT_TYPE_F32, word + 1, &odd[5], NULL, &old, next));
		REQUIRE_EQ(old, odd[i]);
	}
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_copy_out(comm, &guard, word, sizeof(guard)));
	REQUIRE_EQ(guard, 0);
	REQUIRE_OK(spmt_copy_out(comm, &guard, word + 2, sizeof(guard)));
	REQUIRE_EQ(guard, 0);
	return 0;
}

Test(atomics, floats)
{
	RANKS_OK(ranks_run(RANKS, NULL, real_f64, NULL));
	RANKS_OK(ranks_run(RANKS, NULL, real_f32, NULL));
}

/* ---- with signals, and at the edges -------------------------------------------------------------------------------------------- */

/* One word, six ways to add to it. */
static int mixed(spmt_comm *comm, void *arg)
{
	uint64_t *word, one = 1, old, n = test_count(20000, 200000);
	int rank = spmt_rank(comm), code = 0;
	char byte = 0;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*word), (void **)&word));
	for (uint64_t i = 0; i < n && !code; i++)
		switch ((i + (uint64_t)rank) % 6) {
		case 0:
			code = spmt_signal(comm, word, 1, SPMT_SIGNAL_ADD, HOME);
			break;
		case 1:
			code = spmt_atomic(
				comm, SPMT_AMO_ADD, SPMT_TYPE_U64, word, &one, NULL, NULL, HOME);
			break;
		case 2:
			code = spmt_atomic(comm, SPMT_AMO_FETCH_INC, SPMT_TYPE_I64, word, NULL,
				NULL, &old, HOME);
			break;
		case 3:
			code = spmt_put_signal(
				comm, word + 1, &byte, 1, word, 1, SPMT_SIGNAL_ADD, HOME);
			break;
		case 4:
			code = spmt_put_signal_nbi(
				comm, word + 1, &byte, 1, word, 1, SPMT_SIGNAL_ADD, HOME);
			break;
		case 5:
			code = i % 64
				? spmt_signal(comm, word, 1, SPMT_SIGNAL_ADD, HOME)
				: spmt_signal_on_stream(comm, word, 1, SPMT_SIGNAL_ADD, HOME, NULL);
			break;
		}
	REQUIRE_CODE(code, 0);
	REQUIRE_OK(spmt_barrier(comm));
	if (rank == HOME)
		TRY(sym_check_u64(comm, word, n * RANKS));
	return spmt_barrier(comm);
}

Test(atomics, mixed_with_signals)
{
	RANKS_OK(ranks_run(RANKS, NULL, mixed, NULL));
}

static int misaligned(spmt_comm *comm, void *arg)
{
	char *at;
	uint64_t one = 1, old = 77;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, 64, (void **)&at));
	for (int off = 1; off < 8; off++) {
		int code = spmt_atomic(
			comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U32, at + off, &one, NULL, &old, 0);

		REQUIRE_CODE(code, off == 4 ? 0 : -EINVAL);
		REQUIRE_CODE(spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_I64, at + off, &one, NULL,
				     NULL, 0),
			-EINVAL);
		REQUIRE_SAYS("aligned");
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		REQUIRE_OK(spmt_copy_out(comm, &old, at, sizeof(old)));
		REQUIRE_EQ(old, (uint64_t)spmt_nranks(comm) << 32);
		TRY(sym_check_byte(comm, at + 8, 0, 56));
	}
	return spmt_barrier(comm);
}

Test(atomics, misaligned_targets)
{
	RANKS_OK(ranks_run(2, NULL, misaligned, NULL));
}
