/* SPDX-License-Identifier: MIT */
/*
 * Threads that help row `engine`, as on a machine with CPUs for them: each rank's copies are queued once a call, and before the call's end, be
 * the helpers awake, asleep or about to sleep; of several failures the first rank's is told; and they end.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* This program's own, beside the library's. */
#define engine_help_begin help_begin
#define engine_help_end help_end
#define engine_send_all send_all
#define engine_send send_counted
#define engine_ring ring_counted
#include "src/base/process.h"
#define process_cpus() 1000
#include "spmt/collective/engine_help.c"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { RANKS = 5, ROUNDS = 3000 };

static struct engine_meeting meeting;
static struct backend backend;
static uint64_t sent[RANKS]; /* guarded by the turns alone */
static _Atomic int by_others, fails;
static pthread_t caller;

int send_counted(const struct engine_meeting *m, int r, int step)
{
	if (step < m->nranks)
		return 0;
	sent[r]++;
	if (!pthread_equal(pthread_self(), caller))
		atomic_fetch_add(&by_others, 1);
	return atomic_load(&fails) >> r & 1 ? fail(-EIO, "rank %d cannot", r) : 0;
}

void ring_counted(struct engine_meeting *m)
{
	atomic_fetch_add(&m->wakes, 1);
	futex_wake_all(&m->wakes);
}

static void begin(void)
{
	caller = pthread_self();
	meeting = (struct engine_meeting){ .nranks = RANKS, .backend = &backend };
	memset(sent, 0, sizeof(sent));
	atomic_store(&by_others, 0);
	help_begin(&meeting);
}

static void rest(long ns)
{
	const struct timespec t = { .tv_nsec = ns };

	nanosleep(&t, NULL);
}

/* Rung for, as by ranks' calls, and now and then left for about as long as they stay awake. */
static int rounds(void)
{
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		if (round % 10 == 0)
			ring_counted(&meeting);
		if (round % 100 == 0)
			rest(ENGINE_AWAKE_NS - 300000 + (long)(round % 700) * 1000);
		else if (round % 10 == 0)
			rest(100000);
		REQUIRE_OK(send_all(&meeting));
		for (int r = 0; r < RANKS; r++)
			REQUIRE_EQ(sent[r], round);
	}
	return 0;
}

static int once_each(void)
{
	int rc;

	begin();
	rc = rounds();
	help_end(&meeting);
	TRY(rc);
	REQUIRE(!meeting.help);
	REQUIRE(atomic_load(&by_others) > 0);
	return 0;
}

/* Whoever sleeps is not woken for a turn: that would take longer. */
static int asleep(void)
{
	begin();
	rest(50000000);
	for (int i = 0; i < 100 && atomic_load(&meeting.help->asleep) < RANKS - 1; i++)
		rest(10000000);
	REQUIRE_EQ(atomic_load(&meeting.help->asleep), RANKS - 1);
	REQUIRE_OK(send_all(&meeting));
	REQUIRE_EQ(atomic_load(&by_others), 0);
	for (int r = 0; r < RANKS; r++)
		REQUIRE_EQ(sent[r], 1);
	help_end(&meeting);
	return 0;
}

static int failures(void)
{
	begin();
	for (int set = 1; set < 1 << RANKS; set++) {
		char want[32];

		atomic_store(&fails, set);
		REQUIRE_CODE(send_all(&meeting), -EIO);
		snprintf(want, sizeof(want), "rank %d cannot", __builtin_ctz((unsigned)set));
		REQUIRE_SAYS(want);
	}
	atomic_store(&fails, 0);
	REQUIRE_OK(send_all(&meeting));
	help_end(&meeting);
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = { { "once_each", once_each }, { "asleep", asleep },
		{ "failures", failures } };

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
