/* SPDX-License-Identifier: MIT */
/*
 * Processes of several ranks that reach each other by verbs alone, over the stand-in for libibverbs with its wires from process to
 * process: data of all sizes, words that all change at once, collectives, worlds one after the other; a process that is killed,
 * of which the device's status tells those that move data to it; and a connection that fails once, of which one end alone knows as the
 * next world begins.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/fake_verbs.h"
#include "tests/lib/processes.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/bytes.h"

enum { BIG = 3 << 20, WORLDS = 4 };

/* ---- data ----------------------------------------------------------------------------------- */

static int all_sizes(spmt_comm *comm, void *arg)
{
	static const size_t sizes[] = { 1, 8, 192, 193, 4097, 16384, 100001, BIG };
	int rank = spmt_rank(comm), n = spmt_nranks(comm), next = (rank + 1) % n;
	char *block, *own = malloc(BIG);
	int rc = 0;

	(void)arg;
	REQUIRE(own != NULL);
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&block));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !rc; i++) {
		fill(own, sizes[i], rank);
		REQUIRE_OK(spmt_put(comm, block, own, sizes[i], next));
		REQUIRE_OK(spmt_barrier(comm));
		rc = filled(block, sizes[i], (rank + n - 1) % n);
		REQUIRE_OK(spmt_get(comm, own, block, sizes[i], next));
		rc = rc ? rc : filled(own, sizes[i], rank);
		REQUIRE_OK(spmt_barrier(comm));
	}
	free(own);
	return rc;
}

/* Neither the put in the beginning nor that the words are fetched is for the library: ThreadSanitizer does not see what orders accesses
   by way of another process, but it does see that all of them have had the port's lock. */
static int counters(spmt_comm *comm, void *arg)
{
	uint64_t *words, one = 1, old, last = 0, rounds = test_count(100, 5000);
	int n = spmt_nranks(comm);

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_put(comm, words + 3, &one, sizeof(one), (spmt_rank(comm) + 1) % n));
	REQUIRE_OK(spmt_barrier(comm));
	for (uint64_t i = 0; i < rounds; i++) {
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, words, &one, NULL, &old, 0));
		REQUIRE(!i || old > last);
		last = old;
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_INC, SPMT_TYPE_U64, words + 1, NULL, NULL, NULL, 0));
		REQUIRE_OK(spmt_signal(comm, words + 2, 1, SPMT_SIGNAL_ADD, 0));
	}
	REQUIRE_OK(spmt_barrier(comm));
	for (int i = 0; i < 3 && !spmt_rank(comm); i++) {
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_FETCH, SPMT_TYPE_U64, words + i, NULL, NULL, &old, 0));
		REQUIRE_EQ(old, rounds * (uint64_t)n);
	}
	return 0;
}

static int sums(spmt_comm *comm, void *arg)
{
	uint64_t own[512], sum[512], n = (uint64_t)spmt_nranks(comm);

	(void)arg;
	for (int round = 0; round < 8; round++) {
		for (uint64_t i = 0; i < 512; i++)
			own[i] = i * ((uint64_t)spmt_rank(comm) + 1);
		REQUIRE_OK(spmt_all_reduce(comm, sum, own, 512, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		for (uint64_t i = 0; i < 512; i++)
			REQUIRE_EQ(sum[i], i * n * (n + 1) / 2);
	}
	return 0;
}

static int routes_are_rdma(spmt_comm *comm)
{
	struct spmt_route route = { .size = sizeof(route) };

	for (int pe = 0; pe < spmt_nranks(comm); pe++) {
		REQUIRE_OK(spmt_route(comm, pe, &route));
		REQUIRE(pe == spmt_rank(comm) || !strcmp(route.map, "rdma"));
	}
	return 0;
}

static int everything(spmt_comm *comm, void *arg)
{
	TRY(routes_are_rdma(comm));
	TRY(all_sizes(comm, arg));
	TRY(counters(comm, arg));
	return sums(comm, arg);
}

static int over(const char *layout, int cycles)
{
	/* the stand-in's own requests for memory scatter */
	struct processes p = {
		.layout = layout, .cycles = cycles, .leaks = true, .slack = { .rss_kib = 16384 }
	};

	return processes_world(&p, everything, &p);
}

static int two_of_two(void)
{
	return over("0,1|2,3", 1);
}

static int in_turns(void)
{
	return over("0,2|1,3", 1);
}

static int one_each(void)
{
	return over("0|1|2", 1);
}

static int worlds(void)
{
	return over("0,1|2,3", WORLDS);
}

/* ---- a process that is gone ------------------------------------------------------------------ */

/* No meeting is under way, so that the device may be the first to tell. */
static int puts_until(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr a = ranks_attr(rank, p->nranks, p->uid);
	uint64_t *word, value = 0;
	spmt_comm *comm;
	int rc = 0;

	REQUIRE_OK(spmt_init(&a, &comm));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_put(comm, word, &value, sizeof(value), (rank + 2) % 4));
	REQUIRE_OK(spmt_barrier(comm));
	if (rank == 3)
		kill(getpid(), SIGKILL);
	while (!rc) {
		value++;
		rc = spmt_put(comm, word, &value, sizeof(value), (rank + 2) % 4);
		if (!rc)
			rc = spmt_quiet(comm);
	}
	REQUIRE_EQ(rc, SPMT_ERR_PEER_DEAD);
	if (!strstr(spmt_last_error(), "2 of 4 ranks died: 2, 3"))
		REQUIRE_SAYS(
			rank ? "to rank 3: fake1 port 2 to fake1 port 2: transport retry counter exceeded (verbs status 12"
			     : "to rank 2: fake0 port 2 to fake0 port 2: transport retry counter exceeded (verbs status 12");
	spmt_finalize(comm);
	return 0;
}

static int killed(void)
{
	struct processes p = { .layout = "0,1|2,3", .killed = 2, .leaks = true };

	return processes_run(&p, puts_until, &p);
}

/* ---- a connection that fails ----------------------------------------------------------------- */

static int put_to(spmt_comm *comm, uint64_t *words, uint64_t value, int pe)
{
	words[1] = value;
	REQUIRE_OK(spmt_put(comm, words, words + 1, sizeof(value), pe));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_EQ(words[0], value);
	return spmt_barrier(comm);
}

/* The stand-in is its process's own. */
static int put_fails(spmt_comm *comm, uint64_t *words)
{
	void *library = dlopen(FAKES "/fake-verbs.so", RTLD_NOW | RTLD_NOLOAD);
	__typeof__(&fake_verbs_break) break_work;
	int rc;

	REQUIRE(library != NULL);
	*(void **)&break_work = dlsym(library, "fake_verbs_break");
	break_work(1, VERBS_WC_FATAL_ERR);
	rc = spmt_put(comm, words, words + 1, sizeof(*words), 2);
	if (!rc)
		rc = spmt_quiet(comm);
	break_work(0, 0);
	REQUIRE_EQ(rc, -EIO);
	return spmt_abort(comm, -EIO);
}

static int next_world(spmt_comm *broken)
{
	struct spmt_attr a = ranks_attr(0, 0, NULL);
	uint64_t *words;
	spmt_comm *comm;
	spmt_uid next;

	REQUIRE_OK(spmt_shrink(broken, &next, &a.rank, &a.nranks));
	REQUIRE_EQ(a.nranks, 4);
	a.uid = &next;
	a.device = device_of(a.rank);
	REQUIRE_OK(spmt_init(&a, &comm));
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*words), (void **)&words));
	TRY(put_to(comm, words, 2, (a.rank + 2) % 4));
	return spmt_finalize(comm);
}

/* Rank 0's to rank 2, which the ranks beside them have as well, or another one. The broken comm stays until the end. */
static int fails_once(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr a = ranks_attr(rank, p->nranks, p->uid);
	uint64_t *words;
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&a, &comm));
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*words), (void **)&words));
	TRY(put_to(comm, words, 1, (rank + 2) % 4));
	if (!rank)
		TRY(put_fails(comm, words));
	while (!spmt_status(comm))
		sleep_ms(1);
	TRY(next_world(comm));
	spmt_finalize(comm);
	return 0;
}

static int failed(void)
{
	struct processes p = { .layout = "0,1|2,3", .leaks = true };

	return processes_run(&p, fails_once, &p);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "two processes of two ranks", two_of_two },
		{ "neighbours in other processes", in_turns },
		{ "three processes of a rank", one_each },
		{ "world after world", worlds },
		{ "a process that is killed", killed },
		{ "a connection that fails, and the next world", failed },
	};
	char folder[] = "/tmp/spmt-wire.XXXXXX";
	int rc;

	if (!mkdtemp(folder)) {
		perror("mkdtemp");
		return 1;
	}
	setenv("SPMT_FAKE_WIRE", folder, 1);
	setenv("SPMT_MAPS", "rdma", 1);
	setenv("SPMT_VERBS_LIB", FAKES "/fake-verbs.so", 1);
	rc = tap_run(cases, sizeof(cases) / sizeof(cases[0]));
	for (int i = 1; i < 128; i++) { /* that of the killed process */
		char name[sizeof(folder) + 4];

		snprintf(name, sizeof(name), "%s/%d", folder, i);
		unlink(name);
	}
	return rmdir(folder) || rc;
}
