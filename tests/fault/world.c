/* SPDX-License-Identifier: MIT */
/*
 * Every request for a resource in a world's life is refused once: the nth of all ranks together, n
 * = 1, 2, .. until none is left. Each time all ranks agree on every collective step, nobody hangs,
 * nothing is left behind, and the next run is clean.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/fault.h"
#include "tests/lib/ranks.h"

#define RANKS 4
#define BIG (1u << 20) /* above the store threshold: copy queues are made */

enum step {
	INIT,
	MALLOC,
	CALLOC,
	REGISTER,
	BARRIER,
	SPLIT,
	PART_MALLOC,
	PART_BARRIER,
	PART_FINALIZE,
	DEREGISTER,
	FREE,
	FINALIZE,
	STEPS
};

static const char *const step_names[] = { "init", "malloc", "calloc", "register", "barrier",
	"split", "part malloc", "part barrier", "part finalize", "deregister", "free", "finalize" };

struct run {
	spmt_uid uid;
	int code[STEPS][RANKS];
	int local[RANKS]; /* first failure of a call that only concerns the rank */
	bool wrong[RANKS];
	char wordless[RANKS][200]; /* a sentence that does not begin with the function */
};

static void note(int *first, int code)
{
	if (!*first)
		*first = code;
}

static int told(struct run *run, int rank, int code)
{
	if (code && strncmp(spmt_last_error(), "spmt_", 5) != 0)
		snprintf(run->wordless[rank], sizeof(run->wordless[rank]), "%d: '%s'", code,
			spmt_last_error());
	return code;
}

/* Calls that need copy queues, streams, events and launches. */
static void move(
	struct run *run, int rank, spmt_comm *comm, char *block, uint64_t *words, char *src)
{
	int right = (rank + 1) % RANKS, *local = &run->local[rank];
	uint64_t old;

	note(local, told(run, rank, spmt_put_nbi(comm, block, src, BIG, right)));
	note(local,
		told(run, rank,
			spmt_put_signal_nbi(
				comm, block, src, BIG, words, 1, SPMT_SIGNAL_ADD, right)));
	note(local,
		told(run, rank,
			spmt_put_on_stream(comm, block, src, 64, right, SPMT_STREAM_LEGACY)));
	note(local,
		told(run, rank,
			spmt_atomic(comm, SPMT_AMO_FETCH_INC, SPMT_TYPE_U64, words + 1, NULL, NULL,
				&old, right)));
	note(local, told(run, rank, spmt_quiet(comm)));
}

/* All ranks, turned round: what a rank gets, all get. */
static void use_part(struct run *run, int rank, spmt_comm *comm, char *src)
{
	spmt_comm *part = NULL;
	char *block = NULL;

	run->code[SPLIT][rank] = told(run, rank, spmt_split(comm, 0, -rank, &part));
	if (!part)
		return;
	run->wrong[rank] |= spmt_rank(part) != RANKS - 1 - rank;
	run->code[PART_MALLOC][rank] = told(run, rank, spmt_malloc(part, BIG, (void **)&block));
	if (block)
		note(&run->local[rank],
			spmt_put_nbi(part, block, src, BIG, (spmt_rank(part) + 1) % RANKS));
	run->code[PART_BARRIER][rank] = told(run, rank, spmt_barrier(part));
	run->code[PART_FINALIZE][rank] = told(run, rank, spmt_finalize(part));
}

static void use(struct run *run, int rank, spmt_comm *comm)
{
	static char src[BIG]; /* only read */
	char own[64], *block = NULL;
	uint64_t *words = NULL;
	spmt_mem *mem = NULL;

	run->code[MALLOC][rank] = told(run, rank, spmt_malloc(comm, BIG, (void **)&block));
	run->code[CALLOC][rank] =
		told(run, rank, spmt_calloc(comm, 8, sizeof(*words), (void **)&words));
	run->code[REGISTER][rank] = told(run, rank, spmt_register(comm, own, sizeof(own), &mem));
	if (block && words)
		move(run, rank, comm, block, words, src);
	run->code[BARRIER][rank] = told(run, rank, spmt_barrier(comm));
	if (!run->code[BARRIER][rank] && !run->local[rank] && words && words[1] != 1 && block)
		run->wrong[rank] = true;
	use_part(run, rank, comm, src);
	if (mem)
		run->code[DEREGISTER][rank] = told(run, rank, spmt_deregister(comm, mem));
	if (block)
		run->code[FREE][rank] = told(run, rank, spmt_free(comm, block));
}

static int rank_main(int rank, void *arg)
{
	struct run *run = arg;
	struct spmt_attr attr = ranks_attr(rank, RANKS, &run->uid);
	spmt_comm *comm = NULL;

	attr.timeout_ms = 1000;
	run->code[INIT][rank] = told(run, rank, spmt_init(&attr, &comm));
	if (run->code[INIT][rank])
		return 0;
	use(run, rank, comm);
	run->code[FINALIZE][rank] = told(run, rank, spmt_finalize(comm));
	return 0;
}

static void run_once(struct run *run)
{
	memset(run, 0, sizeof(*run));
	cr_assert_eq(spmt_uid_create(&run->uid), 0, "%s", spmt_last_error());
	RANKS_OK(ranks_threads(RANKS, rank_main, run));
}

static void check_agreed(const struct run *run, uint64_t n)
{
	/* Who fails before any other rank is there has nobody to tell: the others miss it. */
	for (int r = 1; r < RANKS; r++)
		cr_assert_eq(!run->code[INIT][r], !run->code[INIT][0],
			"fault %llu: init: rank 0 got %d, rank %d got %d", (unsigned long long)n,
			run->code[INIT][0], r, run->code[INIT][r]);
	for (int s = INIT + 1; s < STEPS; s++)
		for (int r = 1; r < RANKS; r++)
			cr_assert_eq(run->code[s][r], run->code[s][0],
				"fault %llu: %s: rank 0 got %d, rank %d got %d",
				(unsigned long long)n, step_names[s], run->code[s][0], r,
				run->code[s][r]);
	for (int r = 0; r < RANKS; r++)
		cr_assert_not(run->wordless[r][0], "fault %llu: rank %d got %s",
			(unsigned long long)n, r, run->wordless[r]);
	for (int r = 0; r < RANKS; r++)
		cr_assert_not(run->wrong[r], "fault %llu: rank %d succeeded with wrong data",
			(unsigned long long)n, r);
}

static void check_clean(const struct run *run, uint64_t n)
{
	for (int s = 0; s < STEPS; s++)
		for (int r = 0; r < RANKS; r++)
			cr_assert_eq(run->code[s][r], 0, "after fault %llu: %s on rank %d: %d",
				(unsigned long long)n, step_names[s], r, run->code[s][r]);
	for (int r = 0; r < RANKS; r++)
		cr_assert(!run->local[r] && !run->wrong[r], "after fault %llu: rank %d: %d",
			(unsigned long long)n, r, run->local[r]);
}

/* Returns how many faults there were. */
static uint64_t sweep(unsigned sites)
{
	const struct usage slack = { .fds = 0, .threads = 0, .maps = 8, .rss_kib = 8192 };
	struct usage before;
	struct run run;
	uint64_t n = 0;
	bool fired = true;

	for (int i = 0; i < 3; i++)
		run_once(&run);
	before = usage_now();
	while (fired) {
		const char *grown;

		fault_arm(sites, ++n);
		run_once(&run);
		fired = fault_fired();
		fault_disarm();
		check_agreed(&run, n);
		run_once(&run);
		check_clean(&run, n);
		grown = usage_grown(&before, &slack);
		cr_assert_null(grown, "fault %llu: %s", (unsigned long long)n, grown);
	}
	return n - 1;
}

/* What the ranks ask for in a run comes in another order each time; a site's own sweep sees it
   more than once. */
Test(world_faults, any_request_refused, .timeout = 240)
{
	uint64_t n = sweep(FAULT_ANY);

	cr_log_info("%llu requests refused", (unsigned long long)n);
	cr_assert_gt(n, 50, "only %llu requests were seen: the sweep does not reach the library",
		(unsigned long long)n);
}

#define SWEEP(name, site, least)                                                                  \
	Test(world_faults, name, .timeout = 120)                                                  \
	{                                                                                         \
		uint64_t n = sweep(1u << (site));                                                 \
                                                                                                  \
		cr_assert_geq(n, (least), "only %llu requests were seen", (unsigned long long)n); \
	}

SWEEP(memory_refused, FAULT_ALLOC, 10)
SWEEP(mappings_refused, FAULT_MAP, 4)
SWEEP(descriptors_refused, FAULT_FD, 4)
SWEEP(threads_refused, FAULT_THREAD, 1)
SWEEP(device_ops_refused, FAULT_DEVICE, 10)
SWEEP(device_memory_refused, FAULT_MEMORY, 4)
SWEEP(registrations_refused, FAULT_REGISTER, 4)
SWEEP(peers_refused, FAULT_PEER, 4)
