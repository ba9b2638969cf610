/* SPDX-License-Identifier: MIT */
/*
 * What is said of a meeting between nodes (tests/lib/transports/parcel.h) that nobody is missing in any more once the others have told who
 * has come: of ranks that came behind the deadline, and of processes that do not answer.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spmt/bootstrap/bootstrap.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/nodes/notes.h"
#include "src/base/status.h"
#include "tests/lib/processes.h"

enum { DEADLINE_MS = 300, TRIES = 5 };

/* Shared by the processes. */
struct scene {
	int late;	   /* the rank that comes when the first's deadline has passed */
	_Atomic int asks;  /* it has, and the hub is about to be asked */
	_Atomic int come;  /* the late one has */
	_Atomic int heard; /* ranks that have their sentence */
	_Atomic int named; /* .. with the late one in it */
	_Atomic int stopped;
};

static struct scene *scene;	 /* NULL: nothing is held up in this process */
static spmt_comm *_Atomic held;	 /* the comm whose leader comes no further, or stops */
static _Atomic bool stops, deaf; /* deaf: the next word of a deadline does not get to the hub */

static void until(const _Atomic int *word, int least)
{
	for (int i = 0; i < 40000 && atomic_load(word) < least; i++)
		usleep(500);
}

int __real_notes_go(spmt_comm *comm);
int __wrap_notes_go(spmt_comm *comm);
int __wrap_notes_go(spmt_comm *comm)
{
	if (comm == atomic_load(&held) && atomic_exchange(&stops, false))
		raise(SIGSTOP);
	else if (comm == atomic_load(&held)) {
		atomic_store(&scene->come, 1);
		until(&scene->heard, 1);
	}
	return __real_notes_go(comm);
}

/* The late one has come before the hub is asked. */
static void let_come(const spmt_comm *comm)
{
	atomic_store(&scene->asks, 1);
	for (int i = 0; comm_is_local(comm, scene->late) && i < 40000 &&
		atomic_load(&comm->control->rows[scene->late].arrived) < comm->epoch;
		i++)
		usleep(500);
	if (!comm_is_local(comm, scene->late))
		until(&scene->come, 1);
}

static spmt_comm *_Atomic asker;

int __real_bootstrap_say(
	struct bootstrap *b, const struct bootstrap_word *word, const void *data, size_t size);
int __wrap_bootstrap_say(
	struct bootstrap *b, const struct bootstrap_word *word, const void *data, size_t size);
int __wrap_bootstrap_say(
	struct bootstrap *b, const struct bootstrap_word *word, const void *data, size_t size)
{
	if (word->kind == WORD_MISS && atomic_exchange(&deaf, false))
		return fail(-EIO, "a hub that hears nothing");
	if (word->kind == WORD_MISS && atomic_load(&asker))
		let_come(atomic_exchange(&asker, NULL));
	return __real_bootstrap_say(b, word, data, size);
}

struct play {
	struct processes p;
	struct scene *s;
};

static struct play play_make(const char *layout, int late)
{
	struct play play = { .p = { .layout = layout } };

	play.s = processes_shared(sizeof(*play.s));
	cr_assert_not_null(play.s);
	play.p.shared = play.s;
	play.s->late = late;
	return play;
}

static int init(spmt_comm **comm, const struct play *play, int rank)
{
	struct spmt_attr attr = ranks_attr(rank, play->p.nranks, &play->p.uid[0]);

	attr.timeout_ms = 20000;
	REQUIRE_OK(spmt_init(&attr, comm));
	ranks_watch(*comm);
	REQUIRE_OK(spmt_barrier(*comm));
	scene = play->s;
	return 0;
}

static int end(spmt_comm *comm)
{
	ranks_watch(NULL);
	(void)spmt_finalize(comm);
	return 0;
}

static bool ends_with(const char *tail)
{
	const char *have = spmt_last_error();
	size_t n = strlen(have), m = strlen(tail);

	return n >= m && !strcmp(have + n - m, tail);
}

/* ---- who comes late ------------------------------------------------------------------------------------------------------------ */

static int comes_late(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	spmt_comm *comm;

	TRY(init(&comm, play, rank));
	if (rank == 0) {
		atomic_store(&asker, comm);
		REQUIRE_OK(spmt_set_timeout(comm, DEADLINE_MS));
	}
	if (rank == s->late) {
		until(&s->asks, 1);
		if (!comm_is_local(comm, 0))
			atomic_store(&held, comm);
	}
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
	REQUIRE(!strstr(spmt_last_error(), "0 of 3 ranks"));
	if (comm_is_local(comm, s->late) && comm_is_local(comm, 0))
		REQUIRE_SAYS("1 of 3 ranks missing after ");
	else if (!strstr(spmt_last_error(), "1 of 3 ranks missing after "))
		REQUIRE_SAYS("spmt_barrier: all 3 ranks have come, ");
	atomic_fetch_add(&s->named, ends_with(": 1"));
	atomic_fetch_add(&s->heard, 1);
	return end(comm);
}

/* A neighbour is missing that had not come by the deadline, whether or not it has since. */
Test(missing, a_neighbour_behind_the_deadline)
{
	struct play play = play_make("0,1|2", 1);

	NEEDS_LAYOUT(play.p.layout);
	RANKS_OK(processes_run(&play.p, comes_late, &play));
	cr_expect_eq(play.s->named, 3);
}

/* Of another node's it is not known when they came, but which was the last, unless the machine stood still. */
Test(missing, of_another_node_behind_the_deadline)
{
	int named = 0;

	NEEDS_LAYOUT("0|1|2");
	for (int i = 0; i < TRIES && named < 3; i++) {
		struct play play = play_make("0|1|2", 1);

		RANKS_OK(processes_run(&play.p, comes_late, &play));
		named = play.s->named;
	}
	cr_expect_eq(named, 3);
}

/* ---- who does not answer ------------------------------------------------------------------------------------------------------- */

static int stands_still(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	spmt_comm *comm;

	TRY(init(&comm, play, rank));
	if (rank == 2) {
		atomic_store(&stops, true);
		atomic_store(&held, comm);
		REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
		return end(comm);
	}
	until(&s->stopped, 1);
	REQUIRE_OK(spmt_set_timeout(comm, DEADLINE_MS));
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("spmt_barrier: all 4 ranks have come, but after ");
	REQUIRE(ends_with(" s the processes of these do not answer: 2"));
	atomic_fetch_add(&s->heard, 1);
	return end(comm);
}

static void stands(struct processes *p)
{
	struct scene *s = p->shared;

	waitpid(p->pid[2], NULL, WUNTRACED);
	atomic_store(&s->stopped, 1);
	until(&s->heard, 3);
	kill(p->pid[2], SIGCONT);
}

/* It has come, and would have sent its node's notes. */
Test(missing, a_leader_that_is_stopped)
{
	struct play play = play_make("0|1|2|3", -1);

	NEEDS_LAYOUT(play.p.layout);
	cr_assert_eq(setenv("SPMT_TEST_NODES", "0122", 1), 0);
	play.p.watch = stands;
	RANKS_OK(processes_run(&play.p, stands_still, &play));
}

/* The last rank knows of no other node; of its own one is missing, or none. */
static int hears_nothing(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	spmt_comm *comm;

	TRY(init(&comm, play, rank));
	if (rank < play->p.nranks - 1) {
		until(&s->heard, 1);
		REQUIRE(spmt_barrier(comm) < 0);
		return end(comm);
	}
	atomic_store(&deaf, true);
	REQUIRE_OK(spmt_set_timeout(comm, DEADLINE_MS));
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
	if (rank == 1) {
		REQUIRE_SAYS("spmt_barrier: no rank of this node is missing after ");
		REQUIRE(ends_with(
			" s, and the process that leads the rendezvous, that of these ranks, has not told of others: 0"));
	} else {
		REQUIRE_SAYS("spmt_barrier: 1 of 4 ranks missing after ");
		REQUIRE(ends_with(
			" s on this node, and the process that leads the rendezvous has not told of others: 2"));
	}
	atomic_store(&s->heard, 1);
	return end(comm);
}

Test(missing, a_hub_that_does_not_answer)
{
	struct play two = play_make("0|1", -1), four = play_make("0|1|2,3", -1);

	NEEDS_LAYOUT(four.p.layout);
	RANKS_OK(processes_run(&two.p, hears_nothing, &two));
	RANKS_OK(processes_run(&four.p, hears_nothing, &four));
}

/* ---- how long a hub that says nothing is waited for ------------------------------------------------------------------------- */

enum { ANSWER_MS = 3000, SLACK_MS = 2000 };

static int outlasts(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	spmt_comm *comm;
	int64_t begin;

	TRY(init(&comm, play, rank));
	REQUIRE_OK(spmt_set_timeout(comm, DEADLINE_MS));
	atomic_fetch_add(&s->come, 1);
	while (!rank || !atomic_load(&s->stopped))
		usleep(1000);
	begin = calm_ns();
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
	/* the last one's note goes to the first, which takes none */
	REQUIRE(rank == 2 || ms_since(begin) < DEADLINE_MS + ANSWER_MS + SLACK_MS);
	return end(comm);
}

static void stop_the_first(struct processes *p)
{
	struct scene *s = p->shared;
	siginfo_t ended;

	until(&s->come, p->nranks);
	kill(p->pid[0], SIGSTOP);
	waitpid(p->pid[0], NULL, WUNTRACED); /* all of its threads */
	atomic_store(&s->stopped, 1);
	for (int i = 1; i < p->n; i++)
		waitid(P_PID, (id_t)p->pid[i], &ended, WEXITED | WNOWAIT);
	kill(p->pid[0], SIGKILL);
}

/* Who gives up on a meeting has asked it, and does not wait for it once more as the comm breaks of that. */
Test(missing, a_stopped_hub_is_waited_for_once)
{
	struct play play = play_make("0|1|2", 0);

	play.p.killed = 1u << 0;
	play.p.watch = stop_the_first;
	RANKS_OK(processes_run(&play.p, outlasts, &play));
}
