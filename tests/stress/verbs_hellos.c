/* SPDX-License-Identifier: MIT */
/*
 * Who listens in on the hellos by which queue pairs are joined, over the stand-in for libibverbs, learns no endpoint, and what that
 * one then says joins nothing and ends nothing: a hello again, changed in any byte, cut off, too long, or of an earlier world.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/process.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/fake_nic.h"
#include "transports/verbs/nic.h"

enum { RANKS = 2, MOST = 256, PORTS = 2 };

static const struct spmt_attr attr = { .size = sizeof(attr), .heap_size = 1 << 20 };
static unsigned char hello[MOST], earlier[MOST]; /* of this world, of the one before */
static uint32_t hello_n, earlier_n;

static int ports(int *connections)
{
	struct verbs_state *state = verbs_state();
	int n = 0;

	*connections = 0;
	pthread_mutex_lock(&state->lock);
	for (struct nic *nic = state->nics; nic; nic = nic->next, n++) {
		pthread_mutex_lock(&nic->lock);
		*connections += nic->nconns;
		pthread_mutex_unlock(&nic->lock);
	}
	pthread_mutex_unlock(&state->lock);
	return n;
}

/* No four bytes of an endpoint. */
static int shows_nothing(const unsigned char *said, uint32_t n)
{
	struct verbs_state *state = verbs_state();
	bool shown = false;

	pthread_mutex_lock(&state->lock);
	for (struct nic *nic = state->nics; nic; nic = nic->next)
		for (size_t i = 0; i + 4 <= sizeof(nic->endpoint); i++)
			shown |= memmem(said, n, nic->endpoint + i, 4) != NULL;
	pthread_mutex_unlock(&state->lock);
	REQUIRE(!shown);
	return 0;
}

/* Until every port has had room for it, at least once. */
static int say(const unsigned char *said, uint32_t n)
{
	int64_t end = process_now() + 60 * 1000000000ll;

	while (fake.shout(said, n) < PORTS) {
		REQUIRE(process_now() < end);
		sched_yield();
	}
	return 0;
}

static int lie(void)
{
	unsigned char changed[MOST];

	for (int i = 0; i < 20; i++)
		TRY(say(hello, hello_n));
	for (uint32_t i = 0; i < hello_n; i++) {
		memcpy(changed, hello, sizeof(changed));
		changed[i] ^= 1;
		TRY(say(changed, hello_n));
	}
	for (uint32_t n = 0; n < hello_n; n += 7)
		TRY(say(hello, n));
	TRY(say(hello, hello_n - 1));
	for (uint32_t n = hello_n + 1; n <= hello_n + 8; n++)
		TRY(say(hello, n));
	return earlier_n ? say(earlier, earlier_n) : 0;
}

static int moves(spmt_comm *comm, uint64_t *word, uint64_t value)
{
	uint64_t seen;

	REQUIRE_OK(spmt_put(comm, word, &value, sizeof(value), !spmt_rank(comm)));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_get(comm, &seen, word, sizeof(seen), !spmt_rank(comm)));
	REQUIRE_EQ(seen, value);
	return spmt_barrier(comm);
}

static int listens_in(spmt_comm *comm, void *arg)
{
	int before = 0, after;
	uint64_t *word;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	TRY(moves(comm, word, 1));
	if (!spmt_rank(comm)) {
		hello_n = fake.overheard(hello, MOST);
		REQUIRE(hello_n > 64 && hello_n <= MOST);
		REQUIRE_EQ(ports(&before), PORTS);
		TRY(shows_nothing(hello, hello_n));
		TRY(lie());
	}
	REQUIRE_OK(spmt_barrier(comm));
	/* completions come in order: behind these all that was said has been heard */
	for (uint64_t value = 2; value < 5; value++)
		TRY(moves(comm, word, value));
	if (!spmt_rank(comm)) {
		ports(&after);
		REQUIRE_EQ(after, before);
	}
	return spmt_barrier(comm);
}

static int in_one_world(void)
{
	TRY(ranks_run(RANKS, &attr, listens_in, NULL));
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

static int in_the_next(void)
{
	memcpy(earlier, hello, sizeof(earlier));
	earlier_n = hello_n;
	return in_one_world();
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "hellos of strangers", in_one_world },
		{ "hellos of an earlier world", in_the_next },
	};

	setenv("SPMT_TIMEOUT_MS", "60000", 1);
	if (fake_nic(FAKES "/fake-verbs.so"))
		return 1;
	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
