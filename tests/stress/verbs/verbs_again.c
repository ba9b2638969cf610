/* SPDX-License-Identifier: MIT */
/*
 * A connection that has failed: worlds that have it are told so for as long as they are, in every way of moving data, also by comms that
 * were split from them later. A world that begins behind the failure has another one, while the first ones are still there; likewise where
 * the devices are gone. Two ranks as threads, over the stand-in for libibverbs, each with a device of its own; verbs_processes.c has it between processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmt/comm/comm.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/fake_nic.h"
#include "transports/verbs/map.h"

#define FATAL "a status of the stand-in's (verbs status 19, vendor's 0)"

enum { RANKS = 2, WORLDS = 4, BLOCK = 4096, NAP_MS = 100, CALLS = 4 };

static spmt_uid uids[WORLDS];

/* This rank in one of the worlds. */
struct place {
	spmt_comm *comm;
	uint64_t *words; /* the peer's value, the own one */
};

static int enter(int rank, int number, struct place *w)
{
	struct spmt_attr a = ranks_attr(rank, RANKS, &uids[number]);

	REQUIRE_OK(spmt_init(&a, &w->comm));
	return spmt_calloc(w->comm, 2, sizeof(*w->words), (void **)&w->words);
}

/* Both to each other. */
static int moves(const struct place *w, uint64_t value)
{
	int peer = !spmt_rank(w->comm);

	w->words[1] = value;
	REQUIRE_OK(spmt_put(w->comm, w->words, w->words + 1, sizeof(value), peer));
	REQUIRE_OK(spmt_barrier(w->comm));
	REQUIRE_EQ(w->words[0], value);
	return spmt_barrier(w->comm);
}

static int breaks(const struct place *w)
{
	int rc;

	fake.break_work(1, VERBS_WC_FATAL_ERR);
	rc = spmt_put(w->comm, w->words, w->words + 1, sizeof(*w->words), 1);
	if (!rc)
		rc = spmt_quiet(w->comm);
	fake.break_work(0, 0);
	REQUIRE_EQ(rc, -EIO);
	REQUIRE_SAYS(FATAL);
	return 0;
}

/* Nothing of it goes by a new connection, behind what was lost. */
static int stays_failed(spmt_comm *comm, uint64_t *words)
{
	spmt_stream stream;
	int rc;

	REQUIRE_EQ(spmt_put(comm, words, words + 1, sizeof(*words), 1), -EIO);
	REQUIRE_SAYS(FATAL);
	REQUIRE_EQ(spmt_get(comm, words + 1, words, sizeof(*words), 1), -EIO);
	REQUIRE_EQ(spmt_signal(comm, words, 1, SPMT_SIGNAL_SET, 1), -EIO);
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	rc = spmt_put_on_stream(comm, words, words + 1, sizeof(*words), 1, stream);
	if (!rc)
		rc = spmt_host_stream_synchronize(stream);
	REQUIRE_EQ(rc, -EIO);
	REQUIRE_SAYS(FATAL);
	REQUIRE_OK(spmt_host_stream_destroy(stream));
	return 0;
}

/* Rank 0's; the other one meets it. */
static int comm_stays_failed(const struct place *w)
{
	int rank = spmt_rank(w->comm);
	spmt_comm *part;

	if (!rank)
		TRY(stays_failed(w->comm, w->words));
	REQUIRE_OK(spmt_split(w->comm, 0, 0, &part));
	if (!rank)
		TRY(stays_failed(part, w->words));
	REQUIRE_OK(spmt_sync(part));
	return 0;
}

/* Worlds 0 and 1 have the connection that fails, 2 and 3 another one in common. */
static int again_rank(int rank, void *arg)
{
	struct place w[WORLDS];

	(void)arg;
	TRY(enter(rank, 0, &w[0]));
	TRY(moves(&w[0], 1));
	TRY(enter(rank, 1, &w[1]));
	TRY(moves(&w[1], 2));
	if (!rank) {
		REQUIRE_EQ(fake.joined(), 2); /* both ends */
		TRY(breaks(&w[0]));
	}
	REQUIRE_OK(spmt_sync(w[0].comm));
	TRY(comm_stays_failed(&w[0]));
	TRY(enter(rank, 2, &w[2]));
	TRY(moves(&w[2], 3));
	TRY(enter(rank, 3, &w[3]));
	TRY(moves(&w[3], 4));
	if (!rank)
		REQUIRE_EQ(fake.joined(), 3); /* and of the first the peer's, which has not heard */
	TRY(comm_stays_failed(&w[1]));
	TRY(moves(&w[2], 5));
	for (int i = 0; i < WORLDS; i++)
		spmt_finalize(w[i].comm); /* tells once more of what failed */
	return 0;
}

static int again(void)
{
	for (int i = 0; i < WORLDS; i++)
		REQUIRE_OK(spmt_uid_create(&uids[i]));
	TRY(ranks_threads(RANKS, again_rank, NULL));
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

/* ---- a connection that others end -------------------------------------------------------------- */

/* What the end of a broken part does whose moves do not end. */
static int part_ends(spmt_comm *part, char *block)
{
	struct verbs_wait soon = { .ns = 1000000 };
	const struct stripe *stripe;

	REQUIRE_OK(spmt_quiet(part));
	fake.hold(1);
	REQUIRE_OK(spmt_put_nbi(part, block, block, BLOCK, 1));
	stripe = part->links[1].movers[0].state;
	REQUIRE(stripe && stripe->lanes[0]);
	sender_part(stripe->lanes[0], &soon);
	fake.hold(0);
	return 0;
}

static int shares_rank(spmt_comm *comm, void *arg)
{
	spmt_comm *part;
	char *block;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, BLOCK, (void **)&block));
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	if (spmt_rank(comm))
		return 0;
	REQUIRE_OK(spmt_put(comm, block, block, BLOCK, 1));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_put(part, block, block, BLOCK, 1));
	TRY(part_ends(part, block));
	REQUIRE_EQ(spmt_put(comm, block, block, BLOCK, 1), -EIO);
	REQUIRE_SAYS("fake0 port 2 to fake1 port 2: moves of a broken comm do not end");
	REQUIRE_EQ(spmt_put(comm, block, block, 1, 1), -EIO);
	REQUIRE_EQ(spmt_get(comm, block, block, BLOCK, 1), -EIO);
	REQUIRE_EQ(spmt_signal(comm, (uint64_t *)(void *)block, 1, SPMT_SIGNAL_SET, 1), -EIO);
	REQUIRE_EQ(spmt_quiet(part), -EIO);
	return 0;
}

static int ends_with_a_comm(void)
{
	TRY(ranks_run(RANKS, NULL, shares_rank, NULL));
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

/* ---- devices that are gone --------------------------------------------------------------------- */

/* Nobody looks again and again at what tells of nothing more. */
static int rests(const char *call)
{
	uint64_t calls;

	fake.fail_named(call, 0);
	sleep_ms(NAP_MS);
	calls = fake.fail_named("", 0);
	if (calls > CALLS)
		return ranks_fail("%s: %llu calls", call, (unsigned long long)calls);
	return 0;
}

/* The world has no more moves; one that begins then opens what is there by then. */
static int gone_rank(int rank, void *arg)
{
	struct place w[2];

	(void)arg;
	TRY(enter(rank, 0, &w[0]));
	TRY(moves(&w[0], 1));
	if (!rank) {
		fake.unplug();
		TRY(rests("ibv_get_async_event"));
		TRY(rests("ibv_get_cq_event"));
		TRY(rests("checked_notify"));
		REQUIRE_EQ(spmt_put(w[0].comm, w[0].words, w[0].words + 1, 8, 1), -EIO);
		REQUIRE_SAYS("fake0 port 2 to fake1 port 2: the device is gone");
		REQUIRE_EQ(spmt_get(w[0].comm, w[0].words, w[0].words + 1, 8, 1), -EIO);
	}
	REQUIRE_OK(spmt_sync(w[0].comm));
	TRY(enter(rank, 1, &w[1]));
	TRY(moves(&w[1], 2));
	spmt_finalize(w[0].comm);
	return spmt_finalize(w[1].comm);
}

static int gone(void)
{
	int rc;

	for (int i = 0; i < 2; i++)
		REQUIRE_OK(spmt_uid_create(&uids[i]));
	setenv("SPMT_FAKE_UNPLUG", "1", 1);
	rc = ranks_threads(RANKS, gone_rank, NULL);
	unsetenv("SPMT_FAKE_UNPLUG");
	TRY(rc);
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "worlds with a connection that failed, and worlds behind them", again },
		{ "a connection that ends with a broken comm", ends_with_a_comm },
		{ "devices that are gone, and worlds behind that", gone },
		{ "once more, by ports that are opened anew", again },
	};

	if (fake_nic(FAKES "/fake-verbs.so"))
		return 1;
	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
