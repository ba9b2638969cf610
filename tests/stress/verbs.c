/* SPDX-License-Identifier: MIT */
/*
 * Ranks as threads that reach each other by verbs alone, over the stand-in for libibverbs: between two ports and over one, moves of all
 * sizes, from registered memory and from other, atomics, signals; and everything that fails there: each call and each work request in
 * turn, lost and wrong datagrams, a device. Nobody hangs, the sentence names the port, nothing is left, and the next world works.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/bytes.h"
#include "tests/lib/transports/fake_nic.h"

enum { RANKS = 4, BIG = 3 << 20, SWEPT = 2, CALLS_MOST = 400 };

static const struct spmt_attr attr = { .heap_size = 8 << 20 };

/* ---- moves ---------------------------------------------------------------------------------- */

/* Of one size, from and to memory that the port knows and that it does not. */
static int one_size(spmt_comm *comm, char *block, char *own, size_t n)
{
	int rank = spmt_rank(comm), next = (rank + 1) % spmt_nranks(comm);
	int last = (rank + spmt_nranks(comm) - 1) % spmt_nranks(comm);

	fill(own, n, rank);
	REQUIRE_OK(spmt_put(comm, block, own, n, next));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(filled(block, n, last));
	memset(own, 0, n);
	REQUIRE_OK(spmt_get(comm, own, block, n, next));
	TRY(filled(own, n, rank));
	REQUIRE_OK(spmt_put_nbi(comm, block + BIG, block, n, next));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(filled(block + BIG, n, (last + spmt_nranks(comm) - 1) % spmt_nranks(comm)));
	REQUIRE_OK(spmt_get_nbi(comm, own, block, n, next));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(filled(own, n, rank));
	return spmt_barrier(comm);
}

static int all_sizes(spmt_comm *comm, void *arg)
{
	static const size_t sizes[] = { 1, 8, 191, 192, 193, 4096, 4097, 16384, 100001, BIG };
	char *block, *own = malloc(BIG);
	int rc = 0;

	(void)arg;
	REQUIRE(own != NULL);
	REQUIRE_OK(spmt_malloc(comm, 2 * (size_t)BIG, (void **)&block));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !rc; i++)
		rc = one_size(comm, block, own, sizes[i]);
	free(own);
	return rc;
}

static int sizes_world(void)
{
	struct spmt_attr a = attr;

	a.size = sizeof(a);
	return ranks_run(RANKS, &a, all_sizes, NULL);
}

/* Both of a port's connections want all of its chunks. */
static int crowd(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), next = (rank + 1) % RANKS, over = (rank + 2) % RANKS;
	char *block, *own = malloc(2 * (size_t)BIG);

	(void)arg;
	REQUIRE(own != NULL);
	REQUIRE_OK(spmt_malloc(comm, 3 * (size_t)BIG, (void **)&block));
	fill(block, BIG, rank);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_get_nbi(comm, own, block, BIG, next));
	REQUIRE_OK(spmt_get_nbi(comm, own + BIG, block, BIG, over));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(filled(own, BIG, next));
	TRY(filled(own + BIG, BIG, over));
	REQUIRE_OK(spmt_put_nbi(comm, block + BIG, own, BIG, next));
	REQUIRE_OK(spmt_put_nbi(comm, block + 2 * (size_t)BIG, own + BIG, BIG, over));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(filled(block + BIG, BIG, rank));
	TRY(filled(block + 2 * (size_t)BIG, BIG, rank));
	free(own);
	return spmt_barrier(comm);
}

static int crowded(void)
{
	struct spmt_attr a = attr;

	a.size = sizeof(a);
	a.heap_size = 12 << 20;
	return ranks_run(RANKS, &a, crowd, NULL);
}

static int without_inline(void)
{
	int rc;

	fake.inline_most(0);
	rc = sizes_world();
	fake.inline_most(256);
	return rc;
}

/* Words of one line, with all ways of changing them at once: the CPU's of the rank itself, and all others'. */
static int counters(spmt_comm *comm, void *arg)
{
	uint64_t *words, one = 1, old, last = 0, rounds = test_count(300, 20000);
	int n = spmt_nranks(comm);

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*words), (void **)&words));
	for (uint64_t i = 0; i < rounds; i++) {
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, words, &one, NULL, &old, 0));
		REQUIRE(!i || old > last);
		last = old;
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_INC, SPMT_TYPE_U64, words + 1, NULL, NULL, NULL, 0));
		REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U32, words + 2, &one, NULL,
			NULL, (int)(i % (uint64_t)n)));
		REQUIRE_OK(spmt_signal(comm, words + 3, 1, SPMT_SIGNAL_ADD, 0));
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm))
		return 0;
	REQUIRE_EQ(words[0], rounds * (uint64_t)n);
	REQUIRE_EQ(words[1], rounds * (uint64_t)n);
	REQUIRE_EQ(words[3], rounds * (uint64_t)n);
	return 0;
}

static int counters_world(void)
{
	struct spmt_attr a = attr;

	a.size = sizeof(a);
	return ranks_run(RANKS, &a, counters, NULL);
}

/* Of two ports each way, with themselves too. Of SPMT_RDMA_CONNECTIONS=3, which pairs of ranks share out, these ranks have two between the ports. */
static int joined_at_init(spmt_comm *comm, void *arg)
{
	const char *lazy = getenv("SPMT_RDMA_LAZY"), *several = getenv("SPMT_RDMA_CONNECTIONS");
	int all = several ? 6 : 4;
	char *block;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 64, (void **)&block)); /* all ranks are behind init */
	REQUIRE_EQ(fake.joined(), lazy && lazy[0] == '0' ? all : 0);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_put(comm, block, "word", 5, (spmt_rank(comm) + 1) % RANKS));
	return spmt_barrier(comm);
}

static int connections(void)
{
	return ranks_run(RANKS, NULL, joined_at_init, NULL);
}

/* ---- a world in which something fails ------------------------------------------------------- */

struct swept {
	spmt_uid uid;
	int code[SWEPT];
	char said[SWEPT][512];
};

static int told(struct swept *run, int rank, int code)
{
	if (code && !run->code[rank]) {
		run->code[rank] = code;
		snprintf(run->said[rank], sizeof(run->said[rank]), "%s", spmt_last_error());
	}
	return code;
}

static void every_way(struct swept *run, int rank, spmt_comm *comm, char *block, char *own)
{
	uint64_t *words = (uint64_t *)(void *)block, one = 1, old;
	int peer = (rank + 1) % SWEPT;
	spmt_mem *mem = NULL;

	told(run, rank, spmt_put(comm, block + 64, own, 100, peer));
	told(run, rank, spmt_put_nbi(comm, block + 4096, own, 100000, peer));
	told(run, rank, spmt_get(comm, own, block + 4096, 5000, peer));
	told(run, rank, spmt_signal(comm, words, 1, SPMT_SIGNAL_ADD, peer));
	told(run, rank,
		spmt_atomic(comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, words + 1, &one, NULL, &old,
			peer));
	told(run, rank, spmt_quiet(comm));
	if (told(run, rank, spmt_register(comm, own, 100000, &mem)))
		return;
	told(run, rank, spmt_mem_put(comm, mem, 50000, block, 1000, peer));
	told(run, rank, spmt_quiet(comm));
	told(run, rank, spmt_deregister(comm, mem));
}

static int swept_rank(int rank, void *arg)
{
	struct swept *run = arg;
	struct spmt_attr a = ranks_attr(rank, SWEPT, &run->uid);
	char *block, *own = calloc(1, 100000);
	spmt_comm *comm;

	REQUIRE(own != NULL);
	if (!told(run, rank, spmt_init(&a, &comm))) {
		if (!told(run, rank, spmt_malloc(comm, 1 << 20, (void **)&block))) {
			every_way(run, rank, comm, block, own);
			told(run, rank, spmt_barrier(comm));
		}
		told(run, rank, spmt_finalize(comm));
	}
	free(own);
	return 0;
}

static int sweep_world(struct swept *run)
{
	*run = (struct swept){ .code = { 0 } };
	if (spmt_uid_create(&run->uid))
		return ranks_fail("%s", spmt_last_error());
	return ranks_threads(SWEPT, swept_rank, run);
}

static bool anyone(const struct swept *run)
{
	bool any = false;

	for (int r = 0; r < SWEPT; r++)
		any |= run->code[r] != 0;
	return any;
}

static int works_again(void)
{
	struct swept run;

	fake.fail(0);
	fake.break_work(0, 0);
	TRY(sweep_world(&run));
	if (anyone(&run))
		return ranks_fail("a world behind it: %s%s", run.said[0], run.said[1]);
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

/* n = 1, 2, ..; how often a world polls is not said, so that the last ones are left out. */
static int each_call(void)
{
	uint64_t most = CALLS_MOST;

	for (uint64_t n = 1; n <= most && n <= CALLS_MOST; n++) {
		struct swept run;

		fake.fail(n);
		TRY(sweep_world(&run));
		most = fake.fail(0);
		for (int r = 0; r < SWEPT; r++)
			if (run.code[r] > 0 ||
				(run.code[r] && strncmp(run.said[r], "spmt_", 5) != 0))
				return ranks_fail("call %llu: %d, '%s'", (unsigned long long)n,
					run.code[r], run.said[r]);
		if (fake.live())
			return ranks_fail("call %llu: %d objects are left", (unsigned long long)n,
				fake.live());
	}
	return works_again();
}

/* The peer's end is gone: as the device says it. */
static int each_work(void)
{
	int broken = 0;

	for (uint64_t n = 1; n <= 40; n++) {
		struct swept run;
		bool said = false;

		fake.break_work(n, VERBS_WC_RETRY_EXC_ERR);
		TRY(sweep_world(&run));
		if (fake.break_work(0, 0) < n)
			break;
		for (int r = 0; r < SWEPT; r++)
			said |= run.code[r] == SPMT_ERR_PEER_DEAD &&
				strstr(run.said[r], "port 2: transport retry counter exceeded") &&
				strstr(run.said[r], "verbs status 12");
		broken += said;
		if (!said && anyone(&run))
			return ranks_fail("work %llu: '%s' and '%s'", (unsigned long long)n,
				run.said[0], run.said[1]);
		if (fake.live())
			return ranks_fail("work %llu: %d objects are left", (unsigned long long)n,
				fake.live());
	}
	REQUIRE(broken > 5);
	return works_again();
}

/* ---- datagrams, devices --------------------------------------------------------------------- */

static int lost(void)
{
	fake.lose(5);
	return works_again();
}

static int lies(spmt_comm *comm, void *arg)
{
	static const char noise[214] = "no hello";
	uint64_t *word, one = 1;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	for (size_t n = 0; n <= sizeof(noise); n += 107)
		fake.shout(noise, (uint32_t)n);
	REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, word, &one, NULL, NULL, 0));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE(spmt_rank(comm) || *word == RANKS);
	return 0;
}

static int wrong_hellos(void)
{
	return ranks_run(RANKS, NULL, lies, NULL);
}

static _Atomic int failed_ranks;

static int dying(int rank, void *arg)
{
	struct swept *run = arg;
	struct spmt_attr a = ranks_attr(rank, SWEPT, &run->uid);
	uint64_t *word, one = 1;
	spmt_comm *comm;
	int rc = 0;

	REQUIRE_OK(spmt_init(&a, &comm));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_put(comm, word, &one, sizeof(one), !rank));
	REQUIRE_OK(spmt_barrier(comm));
	if (!rank)
		fake.event(VERBS_EVENT_DEVICE_FATAL);
	while (!rc)
		rc = spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, word, &one, NULL, NULL, !rank);
	/* by its own device's word, or because the peer's was first */
	REQUIRE(rc == -EIO || rc == SPMT_ERR_PEER_DEAD);
	REQUIRE_SAYS(rc == -EIO ? "port 2: the device has failed" : "port 2: transport retry");
	failed_ranks++;
	while (failed_ranks < SWEPT) /* whoever ends first breaks the world */
		sleep_ms(1);
	spmt_quiet(comm);
	spmt_finalize(comm);
	return 0;
}

static int device_dies(void)
{
	struct swept run = { .code = { 0 } };

	failed_ranks = 0;
	REQUIRE_OK(spmt_uid_create(&run.uid));
	TRY(ranks_threads(SWEPT, dying, &run));
	return works_again();
}

/* ---- what waits ------------------------------------------------------------------------------ */

enum { ASKED = 12, NAP_MS = 50, SOON_S = 8 };

static uint64_t *_Atomic far_word;
static _Atomic int ended, calm;

/* Its thread serves alone, and sleeps when the answers that had no room may go. */
static int answers(spmt_comm *comm, void *arg)
{
	uint64_t *word, one = 1;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_atomic(
		comm, SPMT_AMO_ADD, SPMT_TYPE_U64, word, &one, NULL, NULL, !spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm)) {
		far_word = word;
		while (!ended)
			sleep_ms(1);
		return spmt_barrier(comm);
	}
	while (!far_word)
		sleep_ms(1);
	fake.congest(1);
	for (uint64_t i = 1; i <= ASKED; i++) {
		REQUIRE_OK(
			spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, word, &one, NULL, NULL, 1));
		while (__atomic_load_n(far_word, __ATOMIC_ACQUIRE) != 1 + i)
			sleep_ms(1);
	}
	sleep_ms(NAP_MS);
	fake.congest(-1);
	one = (uint64_t)spmt_quiet(comm);
	ended = 1;
	REQUIRE_EQ((int)one, 0);
	return spmt_barrier(comm);
}

static int late_answers(void)
{
	far_word = NULL;
	ended = 0;
	return ranks_run(2, NULL, answers, NULL);
}

/* Behind quiet its buffer is the user's again, and finalize has nobody to wait for. */
static int breaks(int rank, void *arg)
{
	struct swept *run = arg;
	struct spmt_attr a = ranks_attr(rank, SWEPT, &run->uid);
	char *block, *own = calloc(1, 100000);
	uint64_t one = 1;
	spmt_mem *mem = NULL;
	spmt_comm *comm;
	int64_t begin;

	REQUIRE(own != NULL);
	REQUIRE_OK(spmt_init(&a, &comm));
	REQUIRE_OK(spmt_malloc(comm, 100000, (void **)&block));
	memset(block, 7, 100000);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_put(comm, block, &one, 8, !rank));
	if (run->code[1])
		REQUIRE_OK(spmt_register(comm, own, 100000, &mem));
	REQUIRE_OK(spmt_barrier(comm));
	if (!rank) {
		fake.hold(1);
		calm = 2;
	}
	while (calm < 2)
		sleep_ms(1);
	REQUIRE_OK(spmt_get_nbi(comm, own, block, 100000, !rank));
	REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, block, &one, NULL, NULL, !rank));
	calm++;
	while (calm < 2 + SWEPT)
		sleep_ms(1);
	begin = now_ns();
	if (!rank)
		REQUIRE_OK(spmt_abort(comm, -5));
	REQUIRE(spmt_quiet(comm) != 0);
	calm++;
	while (calm < 2 + 2 * SWEPT)
		sleep_ms(1);
	if (run->code[0])
		fake.hold(0);
	if (mem)
		sleep_ms(NAP_MS);
	spmt_finalize(comm);
	if (!run->code[0])
		REQUIRE(now_ns() - begin < SOON_S * 1000000000ll);
	for (size_t i = 0; i < 100000; i++)
		REQUIRE(own[i] == 0);
	free(own);
	return 0;
}

static int broken_in_flight(void)
{
	for (int goes_on = 0; goes_on < 2; goes_on++) {
		struct swept run = { .code = { goes_on } };

		calm = 0;
		REQUIRE_OK(spmt_uid_create(&run.uid));
		TRY(ranks_threads(SWEPT, breaks, &run));
		fake.hold(0);
		TRY(works_again());
	}
	return 0;
}

/* The device has the user's buffer itself: it must let go of it before quiet is through. */
static int broken_direct(void)
{
	struct swept run = { .code = { 1, 1 } };

	calm = 0;
	REQUIRE_OK(spmt_uid_create(&run.uid));
	TRY(ranks_threads(SWEPT, breaks, &run));
	fake.hold(0);
	return works_again();
}

/* One after the other, the second with the control block of the first: what is in flight gets its half second each time. */
static int part_breaks(spmt_comm *comm, void *arg)
{
	static char own[100000];
	int rank = spmt_rank(comm);
	spmt_comm *part;
	int64_t begin;
	char *block;

	REQUIRE_OK(spmt_malloc(comm, sizeof(own), (void **)&block));
	for (int i = 0; i < 2; i++) {
		REQUIRE_OK(spmt_split(comm, 0, 0, &part));
		REQUIRE_OK(
			spmt_put(part, block + 64, block, 8, !rank)); /* the peer reads its own */
		REQUIRE_OK(spmt_barrier(part));
		if (!rank) {
			fake.hold(1);
			REQUIRE_OK(spmt_get_nbi(part, own, block, sizeof(own), 1));
			REQUIRE_OK(spmt_abort(part, -5));
			begin = now_ns();
			REQUIRE(spmt_quiet(part) != 0);
			REQUIRE(now_ns() - begin >= 500000000);
			fake.hold(0);
		}
		spmt_finalize(part);
		REQUIRE_OK(spmt_barrier(comm));
	}
	(void)arg;
	return 0;
}

static int parts_break(void)
{
	return ranks_run(2, NULL, part_breaks, NULL);
}

/* ---- all -------------------------------------------------------------------------------------- */

static int over_one_port(void)
{
	return counters_world();
}

/* eager: what differs with SPMT_RDMA_LAZY=0 */
int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "connections at init, or on first use", connections },
		{ "moves of all sizes", sizes_world },
		{ "moves by two connections of a port at once", crowded },
		{ "the same where nothing is written inline", without_inline },
		{ "atomics of all ranks on one word", over_one_port },
		{ "lost datagrams", lost },
		{ "datagrams that are no hellos", wrong_hellos },
		{ "each call fails in turn", each_call },
		{ "each work request fails in turn", each_work },
		{ "the device fails", device_dies },
		{ "answers that the network keeps waiting", late_answers },
		{ "a world that breaks over moves in flight", broken_in_flight },
		{ "a world that breaks over moves that the device has", broken_direct },
		{ "parts that break over moves in flight", parts_break },
	};

	if (argc > 1)
		setenv("SPMT_RDMA_LAZY", strcmp(argv[1], "eager") ? "1" : "0", 1);
	if (fake_nic(FAKES "/fake-verbs.so"))
		return 1;
	return tap_run(cases, argc > 1 ? 2 : sizeof(cases) / sizeof(cases[0]));
}
