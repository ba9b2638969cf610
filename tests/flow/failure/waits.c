/* SPDX-License-Identifier: MIT */
/* Whose deadline passes says what the missing ranks wait in instead, in one process and over several; and what spmt-info --waits is
   told is true. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt/comm/comm.h"
#include "tests/lib/processes.h"

static const char *const layouts[] = { "0,1,2", "0|1,2", "0|1|2" };

enum { LONG_MS = 60000, SHORT_MS = 300, LOOK_S = 40 };

/* What rank 1 does, while the others are in a barrier. */
enum instead {
	SIGNAL_WAIT,
	WAIT_UNTIL_ANY,
	PART,	/* a barrier of another comm */
	MALLOC, /* the same meeting, but of a part again */
	QUIET,	/* behind a wait in a stream */
	KERNEL, /* its thread does not wait */
	GAVE_UP,
	NOTHING,
	INSTEADS
};

static const char *const shown_names[] = { "spmt_signal_wait", "spmt_wait_until_any",
	"spmt_barrier", "spmt_malloc", "spmt_quiet", "a kernel", "spmt_wait_until_all", NULL };
static const char *const sentences[] = { "rank 1 waits in spmt_signal_wait; ",
	"rank 1 waits in spmt_wait_until_any; ", "rank 1 waits in spmt_barrier of another comm; ",
	"rank 1 waits in spmt_malloc of another comm; ", "rank 1 waits in spmt_quiet; ",
	"rank 1 waits in a kernel; ", "rank 1 gave up in spmt_wait_until_all; ", "" };

/* ---- what is shown --------------------------------------------------------------------------------------------------------- */

static bool shows(const spmt_comm *comm, int rank, const char *name, struct wait_seen *seen)
{
	const struct waiting *waits = comm->control->rows[rank].waits;

	for (int i = 0; i < WAITS_MOST; i++)
		if (waiting_read(&waits[i], seen) && !strcmp(seen->name, name))
			return true;
	return false;
}

static int shown(const spmt_comm *comm)
{
	const struct waiting *waits = comm->control->rows[1].waits;
	struct wait_seen seen;
	int n = 0;

	for (int i = 0; i < WAITS_MOST; i++)
		n += waiting_read(&waits[i], &seen) && !seen.until;
	return n;
}

static int see(const spmt_comm *comm, int rank, const char *name, struct wait_seen *seen)
{
	int64_t end = now_ns() + LOOK_S * (int64_t)1000000000;

	while (!shows(comm, rank, name, seen)) {
		if (now_ns() > end)
			return ranks_fail("rank %d does not show %s", rank, name);
		sleep_ms(1);
	}
	return 0;
}

/* ---- a barrier without rank 1 ---------------------------------------------------------------------------------------------- */

struct stage {
	enum instead instead;
	bool stream; /* the barrier is in one */
};

static int until_broken(spmt_comm *comm)
{
	while (!spmt_status(comm))
		sleep_ms(1);
	return 0;
}

static int gives_up(spmt_comm *comm, const uint64_t *words)
{
	struct wait_seen seen;
	uint64_t one = 1;

	TRY(see(comm, 0, "spmt_barrier", &seen));
	REQUIRE_OK(spmt_set_timeout(comm, 50));
	REQUIRE_CODE(spmt_wait_until_all(comm, SPMT_TYPE_U64, words, 2, NULL, SPMT_CMP_EQ, &one),
		SPMT_ERR_TIMEOUT);
	return until_broken(comm);
}

static int instead(spmt_comm *comm, spmt_comm *part, uint64_t *words, enum instead what)
{
	uint64_t one = 1;
	size_t index;
	void *block;

	switch (what) {
	case SIGNAL_WAIT:
		REQUIRE(spmt_signal_wait(comm, words + 3, SPMT_CMP_GE, 7, NULL) < 0);
		return 0;
	case WAIT_UNTIL_ANY:
		REQUIRE(spmt_wait_until_any(comm, SPMT_TYPE_U64, words, 4, NULL, SPMT_CMP_EQ, &one,
				&index) < 0);
		return 0;
	case PART:
		REQUIRE(spmt_barrier(part) < 0);
		return 0;
	case MALLOC:
		REQUIRE(spmt_malloc(part, 64, &block) < 0);
		return 0;
	case QUIET:
		REQUIRE_OK(spmt_signal_wait_on_stream(comm, words, SPMT_CMP_EQ, 1, NULL));
		REQUIRE(spmt_quiet(comm) < 0);
		return 0;
	case KERNEL:
		REQUIRE_OK(spmt_signal_wait_on_stream(comm, words, SPMT_CMP_EQ, 1, NULL));
		return until_broken(comm);
	case GAVE_UP:
		return gives_up(comm, words);
	default:
		return until_broken(comm);
	}
}

static int misses(spmt_comm *comm, const struct stage *stage)
{
	struct wait_seen seen;
	char whole[160];

	if (shown_names[stage->instead] && stage->instead != GAVE_UP)
		TRY(see(comm, 1, shown_names[stage->instead], &seen));
	REQUIRE_OK(spmt_set_timeout(comm, stage->instead == GAVE_UP ? 2500 : SHORT_MS));
	if (stage->stream) {
		REQUIRE_OK(spmt_barrier_on_stream(comm, NULL));
		REQUIRE_OK(spmt_set_timeout(comm, LONG_MS)); /* quiet's own would race with it */
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		snprintf(whole, sizeof(whole), "a barrier in a stream: %s1 of 3 ranks missing ",
			sentences[stage->instead]);
	} else {
		REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
		snprintf(whole, sizeof(whole), "spmt_barrier: %s1 of 3 ranks missing after ",
			sentences[stage->instead]);
	}
	REQUIRE_SAYS(whole);
	REQUIRE(!strcmp(strrchr(spmt_last_error(), ':'), ": 1"));
	return 0;
}

static int missing(spmt_comm *comm, void *arg)
{
	const struct stage *stage = arg;
	int rank = spmt_rank(comm);
	spmt_comm *part;
	void *words;

	REQUIRE_OK(spmt_calloc(comm, 8, sizeof(uint64_t), &words));
	REQUIRE_OK(spmt_split(comm, 5, -rank, &part)); /* other numbers than the world's */
	REQUIRE_OK(spmt_set_timeout(comm, LONG_MS));
	REQUIRE_OK(spmt_set_timeout(part, LONG_MS));
	REQUIRE_OK(spmt_barrier(comm));
	if (rank == 0)
		return misses(comm, stage);
	if (rank == 1)
		return instead(comm, part, words, stage->instead);
	if (stage->stream) {
		REQUIRE_OK(spmt_barrier_on_stream(comm, NULL));
		REQUIRE(spmt_quiet(comm) < 0);
	} else {
		REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS(sentences[stage->instead]);
	}
	return 0;
}

static void everywhere(enum instead instead, bool stream)
{
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		struct processes p = { .layout = layouts[i], .seconds = 3 * LOOK_S };
		struct stage stage = { instead, stream };

		RANKS_OK(processes_world(&p, missing, &stage));
	}
}

Test(waits, for_a_signal)
{
	NEEDS_LAYOUT("0,1,2");
	everywhere(SIGNAL_WAIT, false);
}

Test(waits, for_a_signal_and_the_barrier_is_in_a_stream)
{
	NEEDS_LAYOUT("0,1,2");
	everywhere(SIGNAL_WAIT, true);
}

Test(waits, for_one_of_many_words)
{
	NEEDS_LAYOUT("0,1,2");
	everywhere(WAIT_UNTIL_ANY, false);
}

Test(waits, in_a_barrier_of_another_comm)
{
	NEEDS_LAYOUT("0,1,2");
	everywhere(PART, false);
}

Test(waits, in_a_meeting_of_another_comm)
{
	NEEDS_LAYOUT("0,1,2");
	everywhere(MALLOC, false);
}

Test(waits, for_a_stream)
{
	NEEDS_LAYOUT("0,1,2");
	everywhere(QUIET, false);
}

Test(waits, in_a_kernel)
{
	NEEDS_HOST("kernels of GPUs show nothing to the CPU");
	everywhere(KERNEL, false);
}

Test(waits, no_longer)
{
	NEEDS_LAYOUT("0,1,2");
	everywhere(GAVE_UP, false);
}

Test(waits, for_nothing)
{
	NEEDS_LAYOUT("0,1,2");
	everywhere(NOTHING, false);
}

/* ---- places --------------------------------------------------------------------------------------------------------------- */

enum { KERNELS = WAITS_MOST + 2 };

/* More waits than places, and each place is free again when its wait has ended. */
static int many(spmt_comm *comm, void *arg)
{
	spmt_stream streams[KERNELS];
	struct wait_seen seen;
	void *words;
	uint64_t *word;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, KERNELS + 1, sizeof(uint64_t), &words));
	word = words;
	for (int round = 1; round <= 3; round++) {
		for (int i = 0; i < KERNELS && spmt_rank(comm) == 1; i++) {
			REQUIRE_OK(spmt_host_stream_create(comm, &streams[i]));
			REQUIRE_OK(spmt_signal_wait_on_stream(
				comm, word + i, SPMT_CMP_GE, (uint64_t)round, streams[i]));
		}
		if (spmt_rank(comm) == 0) {
			int64_t end = now_ns() + LOOK_S * (int64_t)1000000000;

			while (shown(comm) < WAITS_MOST && now_ns() < end)
				sleep_ms(1);
			REQUIRE_EQ(shown(comm), WAITS_MOST);
			for (int i = 0; i < KERNELS; i++)
				REQUIRE_OK(spmt_signal(
					comm, word + i, (uint64_t)round, SPMT_SIGNAL_SET, 1));
			TRY(see(comm, 1, "spmt_signal_wait", &seen));
			REQUIRE_EQ(shown(comm), 1);
			REQUIRE_EQ(seen.value, 40 + round);
			REQUIRE_EQ(seen.seen, round > 1 ? 39 + round : 0);
			REQUIRE_EQ(
				seen.offset, (char *)(word + KERNELS) - (char *)comm->heap->base);
			REQUIRE(seen.since <= now_ns() && seen.since > 0 && !seen.epoch);
			REQUIRE_OK(spmt_signal(
				comm, word + KERNELS, (uint64_t)(40 + round), SPMT_SIGNAL_SET, 1));
		} else {
			for (int i = 0; i < KERNELS; i++) {
				REQUIRE_OK(spmt_host_stream_synchronize(streams[i]));
				REQUIRE_OK(spmt_host_stream_destroy(streams[i]));
			}
			REQUIRE_OK(spmt_signal_wait(
				comm, word + KERNELS, SPMT_CMP_EQ, (uint64_t)(40 + round), NULL));
		}
		REQUIRE_OK(spmt_barrier(comm));
	}
	if (spmt_rank(comm) == 1)
		REQUIRE_EQ(shown(comm), 0);
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_free(comm, words);
}

Test(waits, more_than_places)
{
	struct spmt_attr attr = ranks_attr(0, 2, NULL);

	NEEDS_HOST("kernels of GPUs show nothing to the CPU");
	attr.timeout_ms = LONG_MS;
	RANKS_OK(ranks_run(2, &attr, many, NULL));
}

/* ---- a deadline that is set when work is queued ------------------------------------------------------------------------------ */

enum { CALLS = 300 };

/* Of collectives that have no deadline: small ones, which the thread that waits for them does itself. */
static int later_deadline(spmt_comm *comm, void *arg)
{
	uint64_t *words;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*words), (void **)&words));
	for (int i = 0; i < CALLS; i++) {
		REQUIRE_OK(spmt_all_reduce(
			comm, words, words + 1, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_quiet(comm));
	}
	REQUIRE_OK(spmt_barrier(comm));
	while (spmt_rank(comm)) {
		if (spmt_status(comm))
			return 0;
		sleep_ms(1);
	}
	REQUIRE_OK(spmt_all_reduce(comm, words, words + 1, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_set_timeout(comm, SHORT_MS));
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	return spmt_abort(comm, -1);
}

Test(waits, a_deadline_that_is_set_later)
{
	struct spmt_attr attr = ranks_attr(0, 2, NULL);

	NEEDS_DEVICES(2);
	attr.timeout_ms = -1;
	ranks_deadline(30);
	RANKS_OK(ranks_run(2, &attr, later_deadline, NULL));
}

/* ---- a rank that is just opening a meeting ------------------------------------------------------------------------------------- */

/* Rank 1 has come as the last, and is stopped before it lets the others through. */
static int about_to_open(spmt_comm *comm, void *arg)
{
	const struct meet_record sync = { .op = MEET_SYNC };
	struct control *control = comm->control;
	uint64_t epoch;

	(void)arg;
	REQUIRE_OK(spmt_barrier(comm));
	epoch = comm->epoch + 1;
	if (spmt_rank(comm)) {
		for (int i = 0; i < LONG_MS && atomic_load(&control->rows[0].arrived) < epoch; i++)
			sleep_ms(1);
		comm->epoch++;
		REQUIRE(gate_arrive(comm, &sync, comm->nranks));
		for (int i = 0; i < LONG_MS && atomic_load(&control->gate) == 2 * (epoch - 1); i++)
			sleep_ms(1);
	} else {
		REQUIRE_OK(spmt_set_timeout(comm, SHORT_MS));
		REQUIRE_OK(spmt_sync(comm));
		REQUIRE_OK(spmt_set_timeout(comm, LONG_MS));
	}
	return spmt_barrier(comm);
}

Test(waits, nobody_is_missing_who_has_come)
{
	struct spmt_attr attr = ranks_attr(0, 2, NULL);

	NEEDS_DEVICES(2);
	attr.timeout_ms = LONG_MS;
	RANKS_OK(ranks_run(2, &attr, about_to_open, NULL));
}
