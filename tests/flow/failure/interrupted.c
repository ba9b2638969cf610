/* SPDX-License-Identifier: MIT */
/* A caller whose signals interrupt every system call, every 200 us, without SA_RESTART: a profiler's timer, say. Nothing fails or is lost. */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/time.h>

#include "tests/lib/processes.h"

enum { SIGNAL_EVERY_US = 200, ROUNDS = 20, COUNT = 20000 };

static _Atomic int signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
}

static void interrupt_all(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct itimerval every = { { 0, SIGNAL_EVERY_US }, { 0, SIGNAL_EVERY_US } };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}

static void interrupt_none(void)
{
	setitimer(ITIMER_REAL, &(struct itimerval){ { 0, 0 }, { 0, 0 } }, NULL);
}

struct buffers {
	int32_t *from, *sum;
	uint64_t *word;
};

static int one_round(spmt_comm *comm, const struct buffers *b, int round)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm), last = (me + n - 1) % n;
	uint64_t value = (uint64_t)(100 * round + me);
	int32_t base = n * (n - 1) / 2 + n * round;

	REQUIRE_OK(spmt_put(comm, b->word, &value, sizeof(value), (me + 1) % n));
	for (int i = 0; i < COUNT; i++)
		b->from[i] = me + round + i;
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_copy_out(comm, &value, b->word, sizeof(value)));
	REQUIRE_EQ(value, 100 * round + last);
	REQUIRE_OK(spmt_all_reduce(comm, b->sum, b->from, COUNT, SPMT_TYPE_I32, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	for (int i = 0; i < COUNT; i += 777)
		REQUIRE_EQ(b->sum[i], base + n * i);
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static int works(spmt_comm *comm, void *arg)
{
	struct buffers b;
	spmt_comm *part;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, COUNT * sizeof(*b.from), (void **)&b.from));
	REQUIRE_OK(spmt_malloc(comm, COUNT * sizeof(*b.sum), (void **)&b.sum));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*b.word), (void **)&b.word));
	for (int round = 0; round < ROUNDS; round++)
		TRY(one_round(comm, &b, round));
	REQUIRE_OK(spmt_split(comm, spmt_rank(comm) % 2, 0, &part));
	REQUIRE_OK(spmt_barrier(part));
	REQUIRE_OK(spmt_finalize(part));
	return 0;
}

Test(interrupted, a_world_of_threads)
{
	NEEDS_HOST("the CPU writes to the heap");
	interrupt_all();
	RANKS_OK(ranks_run(4, NULL, works, NULL));
	interrupt_none();
	cr_expect_gt(signals, 0);
}

/* A timer is not handed on at fork(). */
static int works_interrupted(spmt_comm *comm, void *arg)
{
	interrupt_all();
	TRY(works(comm, arg));
	interrupt_none();
	REQUIRE(signals > 0);
	return 0;
}

Test(interrupted, a_world_of_processes)
{
	struct processes p = { .layout = "0,1|2,3" };

	NEEDS_HOST("the CPU writes to the heap");
	RANKS_OK(processes_world(&p, works_interrupted, NULL));
}
