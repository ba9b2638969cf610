/* SPDX-License-Identifier: MIT */
/*
 * Atomics over NICs, of ranks as threads over the stand-in for libibverbs: every operation, by whatever the devices can and
 * SPMT_RDMA_ATOMICS says, and all at once on the same words. A stand-in whose atomics are not atomic with the CPU's loses what the CPU
 * does in between, so that who mixes them is found out.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/fake_nic.h"
#include "transports/amo.h"

enum { RANKS = 4 };

struct mode {
	const char *device; /* SPMT_FAKE_NIC_ATOMICS */
	bool native;	    /* it does some */
	bool own;	    /* ranks may change words of their own as well */
};

/* ---- every operation ------------------------------------------------------------------------ */

static bool fetches(enum spmt_amo op)
{
	return op == SPMT_AMO_FETCH || op == SPMT_AMO_SWAP || op == SPMT_AMO_COMPARE_SWAP ||
		op >= SPMT_AMO_FETCH_INC;
}

/* Beside what the CPU does of the same to a word of its own. */
static int one_op(spmt_comm *comm, uint64_t *word, struct amo amo, uint64_t first)
{
	enum spmt_type type = amo.size == 4 ? SPMT_TYPE_U32 : SPMT_TYPE_U64;
	uint64_t want = first, old, was = 0, now = 0;

	REQUIRE_OK(spmt_put(comm, word, &first, sizeof(first), 1));
	REQUIRE_OK(spmt_quiet(comm));
	old = amo_do(&want, &amo);
	REQUIRE_OK(spmt_atomic(comm, amo.op, type, word, &amo.operand, &amo.compare,
		fetches(amo.op) ? &was : NULL, 1));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_get(comm, &now, word, sizeof(now), 1));
	if (now != want || (fetches(amo.op) && was != old))
		return ranks_fail("operation %d of %zu bytes: %llx, found %llx", (int)amo.op,
			amo.size, (unsigned long long)now, (unsigned long long)was);
	return 0;
}

static int ops_rank(spmt_comm *comm, void *arg)
{
	uint64_t *word, found = 0;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	for (int op = 0; !spmt_rank(comm) && op <= SPMT_AMO_FETCH_XOR; op++) {
		struct amo amo = { .op = (enum spmt_amo)op,
			.size = 8,
			.operand = 0xff00ff00ff00ff11,
			.compare = 0xfffffffffffffff0 };

		TRY(one_op(comm, word, amo, 0xfffffffffffffff0)); /* wraps, compares true */
		TRY(one_op(comm, word, amo, 0x0123456789abcdef));
		amo.size = 4;
		TRY(one_op(comm, word, amo, 0x0123456789abcdef));
	}
	/* one rank's go in order, whoever does them */
	for (uint64_t i = 1; !spmt_rank(comm) && i <= test_count(200, 5000); i++) {
		REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_SET, SPMT_TYPE_U64, word, &i, NULL, NULL, 1));
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_FETCH, SPMT_TYPE_U64, word, NULL, NULL, &found, 1));
		REQUIRE_EQ(found, i);
	}
	if (!spmt_rank(comm)) {
		REQUIRE_OK(spmt_signal(comm, word, 40, SPMT_SIGNAL_SET, 1));
		REQUIRE_OK(spmt_fence(comm));
		REQUIRE_OK(spmt_signal(comm, word, 2, SPMT_SIGNAL_ADD, 1));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_get(comm, &found, word, sizeof(found), 1));
		REQUIRE_EQ(found, 42);
	}
	return spmt_barrier(comm);
}

/* ---- all at once ---------------------------------------------------------------------------- */

static int at_once(spmt_comm *comm, void *arg)
{
	const struct mode *mode = arg;
	uint64_t *words, one = 1, high = 1ull << 32, bit, old, last = 0;
	uint64_t rounds = test_count(100, 5000);
	uint64_t n = (uint64_t)RANKS - !mode->own;

	REQUIRE_OK(spmt_calloc(comm, 3, sizeof(*words), (void **)&words));
	bit = 1ull << (8 + spmt_rank(comm));
	for (uint64_t i = 0; i < rounds && (mode->own || spmt_rank(comm)); i++) {
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, words, &one, NULL, &old, 0));
		REQUIRE(!i || old > last);
		last = old;
		/* one word: what a device does, and what none can in one go */
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_ADD, SPMT_TYPE_U64, words + 1, &high, NULL, NULL, 0));
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_XOR, SPMT_TYPE_U64, words + 1, &bit, NULL, NULL, 0));
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_FETCH_XOR, SPMT_TYPE_U64, words + 1, &bit, NULL, &old, 0));
		REQUIRE(old & bit);
		REQUIRE_OK(spmt_signal(comm, words + 2, 1, SPMT_SIGNAL_ADD, 0));
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm))
		return 0;
	REQUIRE_EQ(words[0], rounds * n);
	REQUIRE_EQ(words[1], (rounds * n) << 32);
	REQUIRE_EQ(words[2], rounds * n);
	return 0;
}

/* ---- in order ------------------------------------------------------------------------------- */

/* What was put is there when the signal is, whoever does that; and what is in flight is there after fence and quiet. */
static int in_order(spmt_comm *comm, void *arg)
{
	uint64_t *data, *sig, rounds = test_count(50, 2000), seen;
	int rank = spmt_rank(comm), next = (rank + 1) % RANKS;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1000, sizeof(*data), (void **)&data));
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*sig), (void **)&sig));
	for (uint64_t i = 1; i <= rounds; i++) {
		uint64_t own[1000];

		for (size_t k = 0; k < 1000; k++)
			own[k] = i;
		REQUIRE_OK(spmt_put_signal(
			comm, data, own, sizeof(own), sig, 1, SPMT_SIGNAL_ADD, next));
		REQUIRE_OK(spmt_signal_wait(comm, sig, SPMT_CMP_GE, i, &seen));
		for (size_t k = 0; k < 1000; k++)
			REQUIRE_EQ(data[k], i);
		/* the buffer is free again */
		REQUIRE_OK(
			spmt_signal(comm, sig + 1, 1, SPMT_SIGNAL_ADD, (rank + RANKS - 1) % RANKS));
		REQUIRE_OK(spmt_signal_wait(comm, sig + 1, SPMT_CMP_GE, i, &seen));
	}
	return spmt_barrier(comm);
}

/* ---- fetches beside others ------------------------------------------------------------------ */

enum { FETCHES = 20, NAP_MS = 2 };

/* Two ports of two ranks: two ranks fetch without a pause, and take what comes for the other two, who sleep until it is there. */
static int beside_sleepers(spmt_comm *comm, void *arg)
{
	const struct mode *mode = arg;
	uint64_t *words, one = 1, old, rounds = test_count(60, 1000);
	int rank = spmt_rank(comm), over = rank ^ 1;

	REQUIRE_OK(spmt_calloc(comm, 3, sizeof(*words), (void **)&words));
	for (uint64_t i = 0; i < rounds && rank < 2; i++)
		for (uint64_t k = 0; k < FETCHES; k++) {
			REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, words, &one,
				NULL, &old, over));
			REQUIRE_EQ(old, i * FETCHES + k);
		}
	for (uint64_t i = 0; i < rounds && rank >= 2; i++) {
		old = 0; /* of 32 bit: the thread's of a peer that sleeps, or fetches */
		REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U32, words + 1, &one,
			NULL, &old, over));
		REQUIRE_EQ(old, i);
		REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U32, words + 2, &one,
			NULL, &old, over - 2));
		REQUIRE_EQ((uint32_t)old, i);
		if (mode->native && !(i % 16))
			sleep_ms(NAP_MS);
	}
	return spmt_barrier(comm);
}

/* What the device has done before the post returns is not waited for: one look each, and those of the port's thread as it falls asleep. */
static int looks(spmt_comm *comm, void *arg)
{
	uint64_t *word, one = 1, old, looked;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	if (!spmt_rank(comm)) {
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, word, &one, NULL, &old, 1));
		sleep_ms(50 * NAP_MS);
		fake.fail_named("checked_poll", 0);
		for (uint64_t i = 1; i <= 1000; i++) {
			REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, word, &one,
				NULL, &old, 1));
			REQUIRE_EQ(old, i);
		}
		looked = fake.fail_named("", 0);
		if (looked < 1000 || looked > 1500)
			return ranks_fail("%llu looks", (unsigned long long)looked);
	}
	return spmt_barrier(comm);
}

/* ---- modes ---------------------------------------------------------------------------------- */

static const char *wish = "auto"; /* SPMT_RDMA_ATOMICS */

static int in_mode(const struct mode *mode)
{
	int (*const tests[])(
		spmt_comm *, void *) = { ops_rank, at_once, in_order, beside_sleepers };

	setenv("SPMT_FAKE_NIC_ATOMICS", mode->device, 1);
	fake.atomics();
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		TRY(ranks_run(i ? RANKS : 2, NULL, tests[i], (void *)(uintptr_t)mode));
	fake.prompt(1);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		TRY(ranks_run(i ? RANKS : 2, NULL, tests[i], (void *)(uintptr_t)mode));
	if (mode->native)
		TRY(ranks_run(2, NULL, looks, NULL));
	fake.prompt(0);
	REQUIRE_EQ(fake.live(), 0);
	REQUIRE((fake.atomics() != 0) == mode->native);
	return 0;
}

static int without(void)
{
	return in_mode(&(struct mode){ "none", false, true });
}

static int apart(void)
{
	bool alone = !strcmp(wish, "nic");

	return in_mode(&(struct mode){ "hca", alone, !alone });
}

static int with_the_cpu(void)
{
	return in_mode(&(struct mode){ "glob", strcmp(wish, "cpu") != 0, true });
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "devices without atomics", without },
		{ "devices whose atomics are apart from the CPU's", apart },
		{ "devices whose atomics are atomic with the CPU's", with_the_cpu },
	};

	if (argc > 1)
		wish = argv[1];
	setenv("SPMT_RDMA_ATOMICS", wish, 1);
	if (fake_nic(FAKES "/fake-verbs.so"))
		return 1;
	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
