/* SPDX-License-Identifier: MIT */
/*
 * Calls over RDMA devices that fail: what they leave behind. Nothing of a get comes once it has failed; what one call was told no other one
 * is; what was short is said by its own code; a call has one deadline for all peers; and a cancelled thread leaves no lock behind. Ranks as
 * threads, over the stand-in for libibverbs.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmt/comm/comm.h"
#include "tests/lib/clocks.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/bytes.h"
#include "tests/lib/transports/fake_nic.h"
#include "transports/verbs/map.h"

enum { RANKS = 2, CHUNK = 16384, SIZE = 5 * CHUNK, REFUSED = 5, SALT = 3, LOOK_MS = 50 };

struct scene {
	int (*rank0)(spmt_comm *comm, char *block, uint64_t *word);
};

static int plays(spmt_comm *comm, void *arg)
{
	const struct scene *s = arg;
	uint64_t *word;
	char *block;

	REQUIRE_OK(spmt_malloc(comm, SIZE, (void **)&block));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	fill(block, SIZE, SALT + spmt_rank(comm));
	REQUIRE_OK(spmt_barrier(comm));
	if (!spmt_rank(comm))
		TRY(s->rank0(comm, block, word));
	return spmt_barrier(comm);
}

static int play(int (*rank0)(spmt_comm *comm, char *block, uint64_t *word))
{
	struct scene s = { rank0 };

	TRY(ranks_run(RANKS, NULL, plays, &s));
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

/* ---- a get ------------------------------------------------------------------------------------------ */

/* Through chunks of the port, from which the reads that went well would be copied as its thread next looks at what has ended. */
static int get_refused(spmt_comm *comm, char *block, uint64_t *word)
{
	char *own = malloc(SIZE);
	int rc;

	(void)word;
	REQUIRE(own != NULL);
	REQUIRE_OK(spmt_get(comm, own, block, 8, 1)); /* they meet */
	fake.prompt(1);
	fake.fail_named("checked_send", REFUSED);
	rc = spmt_get(comm, own, block, SIZE, 1);
	fake.fail_named("", 0);
	memset(own, 'U', SIZE);
	sleep_ms(LOOK_MS);
	REQUIRE_OK(spmt_quiet(comm));
	fake.prompt(0);
	REQUIRE_EQ(rc, -EIO);
	for (int i = 0; i < SIZE; i++)
		REQUIRE_EQ(own[i], 'U');
	free(own);
	return 0;
}

static int gets(void)
{
	return play(get_refused);
}

/* ---- a fetch ----------------------------------------------------------------------------------------- */

static int fetch(spmt_comm *comm, uint64_t *word, uint64_t *old)
{
	const uint64_t one = 1;

	return spmt_atomic(comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, word, &one, NULL, old, 1);
}

/* By a key that the peer does not know. */
static int fetch_refused(spmt_comm *comm, char *block, uint64_t *word)
{
	struct rdma_peer *peer;
	uint64_t old = 7;

	REQUIRE_OK(spmt_put(comm, block, block, 64, 1));
	REQUIRE_OK(spmt_quiet(comm));
	peer = comm->links[1].attached;
	peer->address.key ^= 1u << 30;
	REQUIRE_CODE(fetch(comm, word, &old), -EFAULT);
	peer->address.key ^= 1u << 30;
	REQUIRE_OK(fetch(comm, word, &old));
	REQUIRE_EQ(old, 0);
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(fetch(comm, word, &old));
	REQUIRE_EQ(old, 1);
	return 0;
}

static int fetches(void)
{
	return play(fetch_refused);
}

/* ---- a shortage ---------------------------------------------------------------------------------------- */

static int put_without_memory(spmt_comm *comm, char *block, uint64_t *word)
{
	(void)word;
	fake.limit(1);
	REQUIRE_CODE(spmt_put(comm, block, block, 64, 1), -ENOMEM);
	fake.limit(0);
	REQUIRE_OK(spmt_put(comm, block, block, 64, 1));
	return 0;
}

static int shortages(void)
{
	return play(put_without_memory);
}

/* ---- a cancelled thread --------------------------------------------------------------------------------- */

enum { CANCELS = 20 };

struct cancelled {
	spmt_comm *comm;
	char *block;
	_Atomic bool through;
};

/* Its move fails as it is posted, so that this thread may be the one that ends the connection. */
static void *move_cancelled(void *arg)
{
	struct cancelled *c = arg;

	pthread_cancel(pthread_self());
	fake.break_work(1, VERBS_WC_RETRY_EXC_ERR);
	spmt_put_nbi(c->comm, c->block + CHUNK, c->block, 64, 1);
	spmt_quiet(c->comm);
	c->through = true;
	pthread_testcancel();
	return NULL;
}

static int cancelled_rank(spmt_comm *comm, void *arg)
{
	struct cancelled c = { .comm = comm };
	pthread_t thread;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, SIZE, (void **)&c.block));
	REQUIRE_OK(spmt_put(comm, c.block + CHUNK, c.block, 64, !spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm))
		return 0;
	fake.prompt(1);
	REQUIRE_EQ(pthread_create(&thread, NULL, move_cancelled, &c), 0);
	pthread_join(thread, NULL);
	fake.prompt(0);
	fake.break_work(0, 0);
	REQUIRE(c.through);
	return 0;
}

/* By whom the end is seen, the port's thread or this one, is not known. */
static int cancels(void)
{
	for (int i = 0; i < CANCELS; i++)
		TRY(ranks_run(RANKS, NULL, cancelled_rank, NULL));
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

/* ---- a deadline ----------------------------------------------------------------------------------------- */

enum { MANY = 6, LATE_MS = 300 };

/* One deadline, not one for each. */
static int late(spmt_comm *comm)
{
	int64_t begin = calm_ns(), ms;

	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	ms = (calm_ns() - begin) / 1000000;
	return ms < 3 * LATE_MS ? 0 : ranks_fail("a quiet of %d ms", (int)ms);
}

/* Moves to all others stand still. */
static int late_rank(spmt_comm *comm, void *arg)
{
	char *block, *to;
	int rc = 0;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, SIZE, (void **)&block));
	to = block + CHUNK + 64 * spmt_rank(comm);
	for (int pe = 0; pe < MANY; pe++)
		REQUIRE_OK(spmt_put(comm, to, block, 64, pe));
	REQUIRE_OK(spmt_barrier(comm));
	if (!spmt_rank(comm)) {
		REQUIRE_OK(spmt_set_timeout(comm, LATE_MS));
		fake.hold(1);
		for (int pe = 1; pe < MANY && !rc; pe++)
			rc = spmt_put_nbi(comm, to, block, 64, pe);
		if (!rc)
			rc = late(comm);
		fake.hold(0);
		spmt_set_timeout(comm, 20000);
		TRY(rc);
		REQUIRE_OK(spmt_quiet(comm));
	}
	return spmt_barrier(comm);
}

static int deadlines(void)
{
	TRY(ranks_run(MANY, NULL, late_rank, NULL));
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "a get that fails writes nothing afterwards", gets },
		{ "a fetch that fails is told once", fetches },
		{ "no memory for a connection", shortages },
		{ "a cancelled thread leaves no lock behind", cancels },
		{ "moves to many that are late", deadlines },
	};

	if (fake_nic(FAKES "/fake-verbs.so"))
		return 1;
	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
