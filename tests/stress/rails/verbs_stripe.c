/* SPDX-License-Identifier: MIT */
/*
 * Large moves in pieces by two devices of a rank (SPMT_RDMA_STRIPE), over the stand-in for libibverbs: data of sizes round where
 * moves are cut, from heaps, registered and other memory; what has to come behind pieces while one device is late, or comes and goes;
 * a device that fails, of which the sentence tells; ranks of which one has a device less. Nothing is left.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/bytes.h"
#include "tests/lib/transports/fake_nic.h"

enum { PAIR = 2, RANKS = 3, FROM = 64 << 10, BIG = (3 << 20) + 12345, NAP_MS = 50, TAIL = 8 };

static const struct spmt_attr attr = { .size = sizeof(attr), .heap_size = 16 << 20 };

/* Their first devices are the same, so that each connects with its like. Of 0 and 1 the first of one is the second of the other, and in one
   process they have one connection for both. */
static const int apart[PAIR] = { 0, 2 }, crossed[PAIR] = { 0, 1 };

/* Nobody else's memory for as long as worlds are: devices keep knowing it. */
static char own[RANKS][BIG], shared[RANKS][BIG];

static int nothing_left(int rc)
{
	TRY(rc);
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

/* ---- data ----------------------------------------------------------------------------------- */

/* From mine to the next rank, and back from there. */
static int moved(spmt_comm *comm, spmt_mem *mem, char *block, char *mine, size_t n)
{
	int rank = spmt_rank(comm), all = spmt_nranks(comm), next = (rank + 1) % all;
	int last = (rank + all - 1) % all;

	fill(mine, n, rank);
	mine[n] = block[n] = 77;
	REQUIRE_OK(spmt_put(comm, block, mine, n, next));
	REQUIRE_OK(spmt_mem_put(comm, mem, 3, mine, n, next));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(filled_by("put", block, n, last));
	TRY(filled_by("put to a registered buffer", shared[rank] + 3, n, last));
	REQUIRE_EQ(block[n], 77);
	memset(mine, 0, n);
	REQUIRE_OK(spmt_get_nbi(comm, mine, block, n, next));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(filled_by("get", mine, n, rank));
	REQUIRE_EQ(mine[n], 77);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_put_on_stream(comm, block, mine, n, last, NULL));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(filled_by("put on a stream", block, n, next));
	REQUIRE_OK(spmt_get_on_stream(comm, mine, block, n, next, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(filled_by("get on a stream", mine, n, (rank + 2) % all));
	return spmt_barrier(comm);
}

/* arg: not NULL: a few sizes alone. */
static int sizes_rank(spmt_comm *comm, void *arg)
{
	static const size_t sizes[] = { 2 * FROM - 1, 2 * FROM, 3 * FROM + 4095, 2 * FROM + 1, FROM,
		2 * FROM + 4097, 1, 1 << 20, BIG - 13 };
	size_t few = 3, all = sizeof(sizes) / sizeof(sizes[0]);
	int rank = spmt_rank(comm);
	char *block, *heap;
	spmt_mem *mem;

	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&block));
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&heap));
	REQUIRE_OK(spmt_register(comm, shared[rank], BIG, &mem));
	for (size_t i = 0; i < (arg ? few : all); i++) {
		TRY(moved(comm, mem, block + 5, heap + 1, sizes[i]));
		TRY(moved(comm, mem, block, own[rank] + 7, sizes[i]));
	}
	return spmt_deregister(comm, mem);
}

static int sizes(void)
{
	return nothing_left(ranks_run(RANKS, &attr, sizes_rank, NULL));
}

/* ---- order ---------------------------------------------------------------------------------- */

static _Atomic int posted;
static _Atomic bool stops;

static int wait_for(spmt_comm *comm, uint64_t *word, uint64_t value)
{
	return spmt_wait_until(comm, SPMT_TYPE_U64, word, SPMT_CMP_GE, &value);
}

/* How a rank says that its data is there; it may not be waited for before the device goes on. */
enum say { SAY_SIGNAL, SAY_ADD, SAY_FENCED, SAYS };
static int say(spmt_comm *comm, enum say how, uint64_t *word, uint64_t value)
{
	uint64_t one = 1;

	if (how == SAY_SIGNAL)
		return spmt_signal(comm, word, value, SPMT_SIGNAL_SET, 1);
	if (how == SAY_ADD)
		return spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, word, &one, NULL, NULL, 1);
	REQUIRE_OK(spmt_fence(comm));
	return spmt_put(comm, word, &value, sizeof(value), 1);
}

/* The second device of rank 0 stands still: nothing that comes behind the pieces may be there before it goes on. */
static int late_rank(spmt_comm *comm, void *arg)
{
	enum say how = *(const enum say *)arg;
	uint64_t *word, one = 1, zero = 0;
	char *block;

	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_malloc(comm, 2 * (size_t)BIG, (void **)&block));
	fill(block, BIG, 1);
	/* all connections are there */
	REQUIRE_OK(spmt_put(comm, block + BIG, block, BIG, !spmt_rank(comm)));
	REQUIRE_OK(spmt_atomic(
		comm, SPMT_AMO_ADD, SPMT_TYPE_U64, word, &zero, NULL, NULL, !spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	if (!spmt_rank(comm)) {
		fill(block, BIG, 9);
		fake.congest(1);
		REQUIRE_OK(spmt_put_nbi(comm, block + BIG, block, BIG, 1));
		posted = 1;
		TRY(say(comm, how, word, 1));
		return spmt_barrier(comm);
	}
	while (!posted)
		sleep_ms(1);
	sleep_ms(NAP_MS);
	one = __atomic_load_n(word, __ATOMIC_ACQUIRE);
	fake.congest(-1);
	REQUIRE_EQ((int)one, 0);
	REQUIRE_OK(wait_for(comm, word, 1));
	TRY(filled_by("behind a signal", block + BIG, BIG, 9));
	return spmt_barrier(comm);
}

static int late(void)
{
	for (int how = 0; how < SAYS; how++) {
		enum say one = (enum say)how;

		posted = 0;
		TRY(nothing_left(ranks_run_on(PAIR, &attr, apart, late_rank, &one)));
		posted = 0;
		TRY(nothing_left(ranks_run_on(PAIR, &attr, crossed, late_rank, &one)));
	}
	return 0;
}

/* The other way round: the first device stands still, and pieces may not overtake what went there before a fence. */
static int fence_rank(spmt_comm *comm, void *arg)
{
	char *block, *mine;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&block));
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&mine));
	REQUIRE_OK(spmt_put(comm, block, mine, BIG, !spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	if (!spmt_rank(comm)) {
		fill(mine, BIG, 4);
		fake.congest(0);
		REQUIRE_OK(spmt_put_nbi(comm, block + BIG - TAIL, mine, TAIL, 1));
		REQUIRE_OK(spmt_fence(comm));
		posted = 1;
		REQUIRE_OK(spmt_put_nbi(comm, block, mine, BIG, 1));
		return spmt_barrier(comm);
	}
	while (!posted)
		sleep_ms(1);
	sleep_ms(NAP_MS);
	fake.congest(-1);
	REQUIRE_OK(spmt_barrier(comm));
	return filled_by("behind a fence", block, BIG, 4);
}

static int fenced(void)
{
	posted = 0;
	return nothing_left(ranks_run_on(PAIR, &attr, apart, fence_rank, NULL));
}

static spmt_uid uid;

static int round_to(spmt_comm *comm, char *block, char *mine, uint64_t *words, uint64_t i)
{
	size_t n = 2 * FROM + (size_t)(i * 7919 % (4 * FROM));

	fill(mine, n, (int)(i % 100));
	switch (i % 4) {
	case 0:
		REQUIRE_OK(spmt_put_nbi(comm, block, mine, n, 1));
		REQUIRE_OK(spmt_signal(comm, words, i, SPMT_SIGNAL_SET, 1));
		break;
	case 1:
		REQUIRE_OK(spmt_put_signal(comm, block, mine, n, words, i, SPMT_SIGNAL_SET, 1));
		break;
	case 2:
		REQUIRE_OK(spmt_put_signal_nbi(comm, block, mine, n, words, i, SPMT_SIGNAL_SET, 1));
		break;
	default:
		REQUIRE_OK(spmt_put_nbi(comm, block, mine, n, 1));
		REQUIRE_OK(spmt_fence(comm));
		REQUIRE_OK(spmt_put(comm, words, &i, sizeof(i), 1));
	}
	return wait_for(comm, words + 1, i);
}

static int round_from(spmt_comm *comm, const char *block, uint64_t *words, uint64_t i)
{
	size_t n = 2 * FROM + (size_t)(i * 7919 % (4 * FROM));

	REQUIRE_OK(wait_for(comm, words, i));
	TRY(filled_by("a round", block, n, (int)(i % 100)));
	return spmt_signal(comm, words + 1, i, SPMT_SIGNAL_SET, 0);
}

static int rounds_rank(int rank, void *arg)
{
	struct spmt_attr a = ranks_attr(rank, PAIR, &uid);
	uint64_t *words, n = test_count(60, 3000);
	char *block, *mine;
	spmt_comm *comm;

	(void)arg;
	a.device = apart[rank];
	REQUIRE_OK(spmt_init(&a, &comm));
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_malloc(comm, 6 * FROM, (void **)&block));
	REQUIRE_OK(spmt_malloc(comm, 6 * FROM, (void **)&mine));
	for (uint64_t i = 1; i <= n; i++)
		TRY(rank ? round_from(comm, block, words, i)
			 : round_to(comm, block, mine, words, i));
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_finalize(comm);
}

/* Devices come and go. */
static int storm(int index, void *arg)
{
	uint32_t dice = 1;

	if (index < PAIR) {
		int rc = rounds_rank(index, arg);

		stops = true;
		return rc;
	}
	while (!stops) {
		dice = dice * 1664525 + 1013904223;
		fake.congest((int)(dice >> 30) - 1);
		sleep_ms(dice >> 20 & 1);
	}
	fake.congest(-1);
	return 0;
}

static int rounds(void)
{
	stops = false;
	REQUIRE_OK(spmt_uid_create(&uid));
	return nothing_left(ranks_threads(PAIR + 1, storm, NULL));
}

/* ---- a device that fails -------------------------------------------------------------------- */

/* Of the two pieces the second one's request fails: the first has gone by then, as the other device stands still until it is armed. */
static int dies_rank(spmt_comm *comm, void *arg)
{
	const bool blocking = *(const bool *)arg;
	uint64_t *word;
	char *block;
	int rc;

	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&block));
	REQUIRE_OK(spmt_put(comm, block, block, BIG, !spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm)) {
		while (!posted)
			sleep_ms(1);
		sleep_ms(NAP_MS);
		if (blocking) {
			fake.break_work(1, VERBS_WC_RETRY_EXC_ERR);
			fake.congest(-1);
		}
		while (posted < 2)
			sleep_ms(1);
		REQUIRE_EQ(__atomic_load_n(word, __ATOMIC_ACQUIRE), 0);
		return 0;
	}
	fake.congest(1);
	posted = 1;
	if (blocking) {
		rc = spmt_put(comm, block, block, BIG, 1);
	} else {
		REQUIRE_OK(spmt_put_nbi(comm, block, block, BIG, 1));
		sleep_ms(NAP_MS);
		fake.break_work(1, VERBS_WC_RETRY_EXC_ERR);
		fake.congest(-1);
		/* nothing may say that the data is there */
		REQUIRE_CODE(spmt_signal(comm, word, 1, SPMT_SIGNAL_SET, 1), SPMT_ERR_PEER_DEAD);
		rc = spmt_quiet(comm);
	}
	REQUIRE_EQ(rc, SPMT_ERR_PEER_DEAD);
	REQUIRE_SAYS("fake1 port 2");
	REQUIRE_SAYS("transport retry counter exceeded (verbs status 12");
	spmt_quiet(comm); /* nothing is to be told any more */
	REQUIRE_CODE(spmt_put(comm, block, block, BIG, 1), SPMT_ERR_PEER_DEAD);
	REQUIRE_SAYS("fake1 port 2");
	REQUIRE_OK(spmt_put(comm, block, block, FROM, 1)); /* by the first device */
	sleep_ms(NAP_MS);
	posted = 2;
	return 0;
}

static int dies(void)
{
	for (int blocking = 0; blocking < 2; blocking++) {
		bool waits = blocking;

		posted = 0;
		TRY(nothing_left(ranks_run_on(PAIR, &attr, apart, dies_rank, &waits)));
		fake.break_work(0, 0);
	}
	return nothing_left(ranks_run_on(PAIR, &attr, apart, sizes_rank, &posted));
}

/* The second device refuses its piece while the first stands still, beyond the deadline: what that has may still come, which counts for
   more; quiet waits for it, and tells why the move has failed. */
static int refuses_rank(spmt_comm *comm, void *arg)
{
	char *block, *mine;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&block));
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&mine));
	REQUIRE_OK(spmt_put(comm, block, mine, BIG, !spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm))
		return 0;
	REQUIRE_OK(spmt_set_timeout(comm, NAP_MS));
	fake.congest(0);
	fake.fail_named("checked_send", 2);
	REQUIRE_CODE(spmt_get(comm, mine, block, 2 * FROM, 1), SPMT_ERR_TIMEOUT);
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	fake.congest(-1);
	REQUIRE_OK(spmt_set_timeout(comm, 20000));
	REQUIRE_CODE(spmt_quiet(comm), -EIO);
	return 0;
}

/* The device refuses what would tell of the end of moves that it has: they end with their connection, and buffers are the user's behind quiet. */
static int deaf_rank(spmt_comm *comm, void *arg)
{
	char *block, *mine;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, FROM, (void **)&block));
	REQUIRE_OK(spmt_malloc(comm, FROM, (void **)&mine));
	fill(mine, FROM, 4);
	REQUIRE_OK(spmt_put(comm, block, mine, FROM, !spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm)) {
		while (!posted)
			sleep_ms(1);
		return filled_by("a put that has failed", block, FROM, 4);
	}
	fake.congest(0);
	REQUIRE_OK(spmt_put_nbi(comm, block, mine, FROM, 1));
	REQUIRE_OK(spmt_put_nbi(comm, block, mine, FROM, 1));
	fake.fail_named("checked_send", 1);
	REQUIRE_CODE(spmt_quiet(comm), -EIO);
	REQUIRE_OK(spmt_quiet(comm));
	fill(mine, FROM, 5);
	fake.congest(-1);
	sleep_ms(NAP_MS);
	posted = 1;
	return 0;
}

static int refuses(void)
{
	int rc = ranks_run_on(PAIR, &attr, apart, refuses_rank, NULL);

	fake.congest(-1);
	fake.fail_named("", 0);
	TRY(nothing_left(rc));
	posted = 0;
	rc = ranks_run_on(PAIR, &attr, apart, deaf_rank, NULL);
	fake.congest(-1);
	fake.fail_named("", 0);
	return nothing_left(rc);
}

/* ---- how many there are --------------------------------------------------------------------- */

static _Atomic int mixed;

static int route_rank(spmt_comm *comm, void *arg)
{
	struct spmt_route route = { .size = sizeof(route) };

	REQUIRE_OK(spmt_route(comm, !spmt_rank(comm), &route));
	if (!arg)
		REQUIRE(strstr(route.reason, "large moves by 2 devices here, 2 there"));
	else if (strstr(route.reason, "large moves by 2 devices here, 1 there"))
		mixed++;
	else if (strstr(route.reason, "large moves by 1 devices here, 2 there"))
		mixed += 10;
	else
		return ranks_fail("%s", route.reason);
	return sizes_rank(comm, &mixed);
}

/* Each of the two opens both devices, one after the other: the one that comes second does not get its second. */
static int one_less(void)
{
	int rc;

	TRY(nothing_left(ranks_run_on(PAIR, &attr, crossed, route_rank, NULL)));
	fake.fail_named("ibv_open_device", 4);
	rc = ranks_run_on(PAIR, &attr, crossed, route_rank, &mixed);
	fake.fail_named("", 0);
	TRY(nothing_left(rc));
	REQUIRE_EQ(mixed, 11);
	return 0;
}

/* The second device stands still, and small moves do not mind. */
static int small_rank(spmt_comm *comm, void *arg)
{
	char *block;
	int rc = 0;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&block));
	REQUIRE_OK(spmt_put(comm, block, block, BIG, !spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	if (!spmt_rank(comm)) {
		fake.congest(1);
		rc = spmt_put(comm, block, block, 2 * FROM - 1, 1);
		if (!rc)
			rc = spmt_get(comm, block, block, 2 * FROM - 1, 1);
		fake.congest(-1);
	}
	REQUIRE_OK(rc);
	return spmt_barrier(comm);
}

static int small(void)
{
	return nothing_left(ranks_run_on(PAIR, &attr, apart, small_rank, NULL));
}

/* The second device of rank 0 does not take its buffer: the first moves it, whole, and nobody waits for the second. */
static int unknown_rank(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), rc;
	char *mine = shared[rank];
	spmt_mem *mem;

	(void)arg;
	REQUIRE_OK(spmt_barrier(comm));
	if (!rank)
		fake.fail_named("ibv_reg_mr", 2);
	rc = spmt_register(comm, rank ? NULL : mine, rank ? 0 : BIG, &mem);
	if (!rank)
		fake.fail_named("", 0);
	REQUIRE_OK(rc);
	if (rank) {
		fill(mine, BIG, 6);
		fake.congest(1);
		rc = spmt_mem_put(comm, mem, 0, mine, BIG, 0);
		if (!rc)
			rc = spmt_mem_get(comm, own[rank], mem, 0, BIG, 0);
		fake.congest(-1);
		REQUIRE_OK(rc);
		TRY(filled_by("fetched", own[rank], BIG, 6));
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (!rank)
		TRY(filled_by("put", mine, BIG, 6));
	return spmt_deregister(comm, mem);
}

static int unknown(void)
{
	return nothing_left(ranks_run_on(PAIR, &attr, apart, unknown_rank, NULL));
}

/* Nor does the most of it, registered once more, which all take, make it go in pieces, or by the key of that. */
static int most_known_rank(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), rc;
	char *mine = shared[rank], *block;
	spmt_mem *all, *most;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&block));
	if (!rank)
		fake.fail_named("ibv_reg_mr", 2);
	rc = spmt_register(comm, rank ? NULL : mine, rank ? 0 : BIG, &all);
	if (!rank)
		fake.fail_named("", 0);
	REQUIRE_OK(rc);
	REQUIRE_OK(spmt_register(comm, rank ? NULL : mine, rank ? 0 : BIG - 1, &most));
	if (rank) {
		fill(block, BIG, 8);
		REQUIRE_OK(spmt_mem_put(comm, all, 0, block, BIG, 0));
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (!rank)
		TRY(filled_by("put", mine, BIG, 8));
	REQUIRE_OK(spmt_deregister(comm, most));
	return spmt_deregister(comm, all);
}

static int most_known(void)
{
	return nothing_left(ranks_run_on(PAIR, &attr, apart, most_known_rank, NULL));
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "sizes round where moves are cut", sizes },
		{ "small moves go by one device", small },
		{ "what comes behind pieces waits for a late device", late },
		{ "pieces wait behind a fence", fenced },
		{ "order while devices come and go", rounds },
		{ "a device fails", dies },
		{ "a device refuses its piece, or to tell", refuses },
		{ "one rank has a device less", one_less },
		{ "a device does not take a buffer", unknown },
		{ "a device takes all but its last byte", most_known },
	};

	setenv("SPMT_RDMA_CACHE", "trust", 1);
	setenv("SPMT_RDMA_CACHE_FROM", "64K", 1);
	setenv("SPMT_RDMA_STRIPE", "4", 1);
	setenv("SPMT_RDMA_STRIPE_FROM", "64K", 1);
	if (fake_nic(FAKES "/fake-verbs.so"))
		return 1;
	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
