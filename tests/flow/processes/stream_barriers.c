/* SPDX-License-Identifier: MIT */
/* spmt_barrier_on_stream among ranks of several processes, and, built for it, of several nodes: nobody passes early, who is missing is named. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spmt/collective/far_state.h"
#include "tests/lib/processes.h"

enum { MOST = 8, ROUNDS = 40, LATE_MS = 1500, NOTED_MS = 300 };

/* Shared by the processes. */
struct scene {
	_Atomic int come[MOST], queued;
	size_t words; /* of a collective; 0: a barrier */
};

/* Of processes, each of which is a node in a build for nodes: as many as a power of two and not. */
static const char *const layouts[] = { "0,1|2,3", "0,1|2|3,4", "0|1,2,3|4|5|6", "0|1|2|3",
	"1,0,2" };

static void in_layouts(
	size_t first, size_t end, size_t words, int (*fn)(spmt_comm *comm, void *arg))
{
	for (size_t i = first; i < end; i++) {
		struct processes p = { .layout = layouts[i] };
		struct scene *s = processes_shared(sizeof(*s));

		NEEDS_LAYOUT(p.layout);
		cr_assert_not_null(s);
		s->words = words;
		RANKS_OK(processes_world(&p, fn, s));
	}
}

static void everywhere(int (*fn)(spmt_comm *comm, void *arg))
{
	in_layouts(0, sizeof(layouts) / sizeof(*layouts), 0, fn);
}

/* ---- together ------------------------------------------------------------------------------------------------------------ */

static int together(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	struct scene *s = arg;
	uint64_t seed = 11;

	for (int i = 1; i <= ROUNDS; i++) {
		/* the same one everywhere */
		if (random_next(&seed) % (unsigned)n == (unsigned)me)
			usleep(2000);
		atomic_store(&s->come[me], i);
		REQUIRE_OK(spmt_barrier_on_stream(comm, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		for (int pe = 0; pe < n; pe++)
			REQUIRE(atomic_load(&s->come[pe]) >= i);
	}
	return 0;
}

Test(stream_barriers, nobody_passes_early)
{
	everywhere(together);
}

/* Between collectives, whose rounds they share, and with nothing to wait for in between. */
static int between(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm);
	uint64_t *sum, one = 1;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, ROUNDS + 1, sizeof(*sum), (void **)&sum));
	REQUIRE_OK(spmt_copy_in(comm, sum + ROUNDS, &one, sizeof(one)));
	for (int i = 0; i < ROUNDS; i++) {
		for (int k = 0; k < i % 4; k++)
			REQUIRE_OK(spmt_barrier_on_stream(comm, NULL));
		REQUIRE_OK(spmt_all_reduce(
			comm, sum + i, sum + ROUNDS, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	}
	REQUIRE_OK(spmt_quiet(comm));
	for (int i = 0; i < ROUNDS; i++)
		TRY(sym_check_u64(comm, sum + i, (uint64_t)n));
	return spmt_barrier(comm);
}

Test(stream_barriers, between_collectives)
{
	everywhere(between);
}

/* ---- not all ------------------------------------------------------------------------------------------------------------- */

/* Until the others could learn that this rank has come. */
static void wait_noted(const spmt_comm *comm, int64_t end)
{
	if (!comm->far.map)
		sleep_ms(NOTED_MS);
	while (comm->far.map && calm_ns() < end &&
		__atomic_load_n(&far_told(comm, 1, comm->rank)->round, __ATOMIC_ACQUIRE) < 1)
		usleep(500);
}

/* The last rank does not come. Rank 0 gives up, the others would wait on. */
static int missing(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	int64_t end = calm_ns() + 20000000000;
	struct scene *s = arg;
	uint64_t *words;
	char text[64];

	REQUIRE_OK(spmt_calloc(comm, 2 * s->words + 1, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_set_timeout(comm, me ? -1 : LATE_MS));
	while (me == 0 && atomic_load(&s->queued) < n - 2 && calm_ns() < end)
		usleep(500);
	if (me == n - 1) {
		while (!spmt_status(comm) && calm_ns() < end)
			usleep(500);
		REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
		return 0;
	}
	if (s->words)
		REQUIRE_OK(spmt_all_reduce(
			comm, words, words + s->words, s->words, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	else
		REQUIRE_OK(spmt_barrier_on_stream(comm, NULL));
	wait_noted(comm, end);
	atomic_fetch_add(&s->queued, 1);
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	snprintf(text, sizeof(text), "1 of %d ranks missing", n);
	REQUIRE_SAYS(text);
	snprintf(text, sizeof(text), "s: %d", n - 1);
	REQUIRE_SAYS(text);
	return 0;
}

Test(stream_barriers, who_is_missing_is_named)
{
	in_layouts(1, 3, 0, missing);
}

/* Small ones meet as barriers do, larger ones each with each. */
Test(stream_barriers, who_is_missing_in_a_collective_is_named)
{
	if (!getenv("SPMT_SOCKET_IFNAME"))
		cr_skip_test("over several nodes alone");
	in_layouts(1, 2, 5, missing);
	in_layouts(2, 3, 100000, missing);
}

/* The last rank calls something else. */
static int differs(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm), code;
	uint64_t *word;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*word), (void **)&word));
	if (me == n - 1)
		code = spmt_all_reduce(comm, word, word + 1, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
	else
		code = spmt_barrier_on_stream(comm, NULL);
	REQUIRE_CODE(code, code ? SPMT_ERR_BROKEN : 0); /* it may have broken by now */
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_MISMATCH);
	return 0;
}

Test(stream_barriers, who_calls_something_else)
{
	if (!getenv("SPMT_SOCKET_IFNAME"))
		cr_skip_test("over several nodes alone");
	in_layouts(0, 4, 0, differs);
}
