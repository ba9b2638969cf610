/* SPDX-License-Identifier: MIT */
/*
 * A process that is killed at any point: from its first moments in spmt_init on, in calls, between calls, in finalize. The others
 * hear of it within a second, by rank or process, though their deadlines are far.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spmt/bootstrap/wire.h"
#include "spmt/comm/comm.h"
#include "tests/lib/processes.h"

enum {
	NOTICE_MS = SANITIZED ? 5000 : 1000,
	DEADLINE_MS = 15000, /* of every call: who waits for it has not heard */
	RANKS = 6,
	POSTED = -EINVAL
};

/* Six ranks in three processes; the fourth ends rounds in which nobody could know of the victim. */
static const char stage[] = "0,1|2,3|4,5|6";

/* When a victim is killed in init. */
enum when { ANY_TIME, CONNECTED, LEADING, WHENS };
/* What the ranks do when one dies later. */
enum act { MALLOC, REGISTER, SPLIT, REDUCE, PUT, BARRIER, FINALIZE, NOTHING, ACTS };

struct scene {
	_Atomic bool go[3]; /* by process */
	_Atomic bool post;  /* the fourth is to fail for all */
	_Atomic int ready, inside, ended;
	_Atomic int64_t begin; /* of the kill */
	bool known;	       /* the victim was connected, or the others to it */
	int victim;
	int pid; /* the victim's */
	enum when when;
	enum act act;
	bool half; /* the victim's second rank stays out of the act */
	int us;	   /* before the kill */
};

struct play {
	struct processes p;
	struct scene *s;
};

static bool within(_Atomic int *count, int n, int ms)
{
	int64_t end = now_ns() + ms * (int64_t)1000000;

	while (atomic_load(count) < n && now_ns() < end)
		usleep(50);
	return atomic_load(count) >= n;
}

static bool in_time(const struct scene *s)
{
	return calm_ns() - atomic_load(&s->begin) < NOTICE_MS * (int64_t)1000000;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* Ranks of the victim that had come, at least the first of them to do so. */
static bool names_victim(const struct play *play, bool both)
{
	const char *said = spmt_last_error();
	char list[60];

	for (int r = 2 * play->s->victim; r < 2 * play->s->victim + 2; r++) {
		snprintf(list, sizeof(list), "1 of 6 ranks died: %d", r);
		if (!both && ends_with(said, list))
			return true;
	}
	snprintf(list, sizeof(list), "2 of 6 ranks died: %d, %d", 2 * play->s->victim,
		2 * play->s->victim + 1);
	return strstr(said, list);
}

/* Or the process itself, which had the rendezvous and had told nothing. */
static bool names_process(const struct play *play)
{
	char process[40];

	snprintf(process, sizeof(process), "process %d, ", play->s->pid);
	return strstr(spmt_last_error(), process);
}

static struct spmt_attr patient(const struct play *play, int rank)
{
	struct spmt_attr attr = ranks_attr(rank, RANKS, &play->p.uid[0]);

	attr.timeout_ms = DEADLINE_MS;
	return attr;
}

static void kill_now(struct play *play)
{
	play->s->pid = (int)play->p.pid[play->s->victim];
	atomic_store(&play->s->begin, calm_ns());
	kill(play->p.pid[play->s->victim], SIGKILL);
}

static struct play play_make(int victim)
{
	struct play play = { .p = { .layout = stage, .killed = 1u << victim } };

	play.s = processes_shared(sizeof(*play.s));
	cr_assert_not_null(play.s);
	play.s->victim = victim;
	play.p.shared = play.s;
	return play;
}

/* ---- in init ----------------------------------------------------------------------------------------------------- */

/* What the kernel shows of a world's rendezvous. */
struct door {
	bool open; /* somebody listens */
	int connections;
};

static struct door look(const spmt_uid *bytes)
{
	struct door door = { false, 0 };
	char name[WIRE_NAME + 1], line[300];
	FILE *f = fopen("/proc/net/unix", "re");
	struct uid uid;

	uid_read("test", bytes, &uid);
	name[0] = '@';
	wire_name(&uid, -1, 0, name + 1);
	while (f && fgets(line, sizeof(line), f)) {
		char *at = strchr(line, '@');
		unsigned flags = 0;

		if (!at || strncmp(at, name, strlen(name)) != 0 || at[strlen(name)] != '\n')
			continue;
		sscanf(line, "%*x: %*x %*x %x", &flags);
		door.open |= flags != 0;
		door.connections += !flags;
	}
	if (f)
		fclose(f);
	return door;
}

/* Up to so long, until the door is as wanted. */
static bool see(const struct play *play, bool open, int connections, int ms)
{
	int64_t end = now_ns() + ms * (int64_t)1000000;
	struct door door;

	do {
		door = look(&play->p.uid[0]);
	} while ((door.connections < connections || (open && !door.open)) && now_ns() < end);
	return door.connections >= connections && (!open || door.open);
}

static void go(struct scene *s, bool victim, bool others)
{
	for (int p = 0; p < 3; p++)
		if (p == s->victim ? victim : others)
			atomic_store(&s->go[p], true);
}

/* The victim stands still while it is looked who is connected: two of the three to the third, and all
   know each other. */
static void kill_in_init(struct processes *p)
{
	struct play *play = (struct play *)p;
	struct scene *s = play->s;

	if (!within(&s->ready, RANKS, 20000))
		return;
	if (s->when == CONNECTED) {
		go(s, false, true);
		see(play, false, 1, 5000);
		go(s, true, false);
		see(play, false, 2, 5000);
	} else if (s->when == LEADING) {
		go(s, true, false);
		see(play, true, 0, 5000);
		go(s, false, true);
		see(play, false, 2, 5000);
	} else {
		go(s, true, true);
		usleep((useconds_t)s->us);
	}
	kill(p->pid[s->victim], SIGSTOP);
	waitpid(p->pid[s->victim], NULL, WUNTRACED);
	s->known = see(play, false, 2, 30);
	kill_now(play);
	if (!s->known)
		sleep_ms(30);
	atomic_store(&s->post, !s->known);
}

/* Fails for all, as long as somebody has not heard. */
static int posts(const struct play *play)
{
	struct spmt_attr attr = patient(play, 0);
	struct scene *s = play->s;
	spmt_comm *comm;

	attr.device = -2;
	while (atomic_load(&s->ended) < RANKS - 2) {
		if (atomic_load(&s->post))
			REQUIRE_CODE(spmt_init(&attr, &comm), -EINVAL);
		sleep_ms(1);
	}
	return 0;
}

static int judge(struct play *play, int code)
{
	struct scene *s = play->s;
	bool soon = in_time(s) || !s->known;

	if (code == POSTED && !s->known)
		return 0;
	REQUIRE_CODE(code, SPMT_ERR_PEER_DEAD);
	REQUIRE(names_victim(play, false) || names_process(play) ||
		!ranks_fail("not named: %s", spmt_last_error()));
	REQUIRE(soon);
	return 0;
}

static int joins(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	struct spmt_attr attr;
	spmt_comm *comm;
	bool joined;
	int code;

	if (rank == RANKS)
		return posts(play);
	attr = patient(play, rank);
	atomic_fetch_add(&s->ready, 1);
	while (!atomic_load(&s->go[rank / 2]))
		usleep(50);
	code = spmt_init(&attr, &comm);
	ranks_watch(code ? NULL : comm);
	joined = !code;
	while (!code)
		code = spmt_barrier(comm);
	atomic_fetch_add(&s->ended, 1);
	TRY(judge(play, code));
	ranks_watch(NULL);
	if (joined)
		spmt_finalize(comm);
	return 0;
}

/* True: the victim was known. */
static bool killed_in_init(enum when when, int victim, int us)
{
	struct play play = play_make(victim);

	play.p.watch = kill_in_init;
	play.s->when = when;
	play.s->us = us;
	RANKS_OK(processes_run(&play.p, joins, &play));
	return play.s->known;
}

Test(process_deaths, at_any_time_of_init)
{
	int rounds = (int)test_count(24, 1000), known = 0;
	uint64_t seed = 17;

	NEEDS_HOST("opening devices takes longer than all that is looked at here");
	for (int i = 0; i < rounds; i++)
		known += killed_in_init(
			ANY_TIME, i % 3, (int)(random_next(&seed) % (i % 4 ? 5000 : 20000)));
	cr_log_info("%d of %d victims were known", known, rounds);
	cr_assert_gt(known, rounds / 4);
}

Test(process_deaths, as_soon_as_it_is_connected)
{
	NEEDS_HOST("opening devices takes longer than all that is looked at here");
	for (int i = 0; i < (int)test_count(6, 100); i++)
		cr_assert(killed_in_init(CONNECTED, i % 3, 0));
}

Test(process_deaths, as_soon_as_others_are_connected_to_it)
{
	NEEDS_HOST("opening devices takes longer than all that is looked at here");
	for (int i = 0; i < (int)test_count(6, 100); i++)
		cr_assert(killed_in_init(LEADING, i % 3, 0));
}

/* ---- stopped in init --------------------------------------------------------------------------------------------- */

enum { STOPPED_MS = 700 };

static void stop_leader(struct processes *p)
{
	struct play *play = (struct play *)p;
	struct scene *s = play->s;

	if (!within(&s->ready, RANKS, 20000))
		return;
	go(s, true, false);
	see(play, true, 0, 5000);
	kill(p->pid[s->victim], SIGSTOP);
	waitpid(p->pid[s->victim], NULL, WUNTRACED);
	s->pid = (int)p->pid[s->victim];
	go(s, false, true);
	within(&s->ended, RANKS - 2, 20000);
	kill_now(play);
}

/* It is no death: who waits does so as long as it wants to, and not for ten seconds. */
static int waits_in_vain(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	struct spmt_attr attr;
	char leader[64];
	spmt_comm *comm;
	int64_t begin;

	if (rank == RANKS)
		return 0;
	attr = patient(play, rank);
	atomic_fetch_add(&s->ready, 1);
	while (!atomic_load(&s->go[rank / 2]))
		usleep(50);
	if (rank / 2 != s->victim)
		attr.timeout_ms = STOPPED_MS;
	begin = calm_ns();
	REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_TIMEOUT);
	REQUIRE(calm_ns() - begin < (STOPPED_MS + NOTICE_MS) * (int64_t)1000000);
	snprintf(leader, sizeof(leader), "process %d, which leads the rendezvous", s->pid);
	REQUIRE_SAYS(leader);
	atomic_fetch_add(&s->ended, 1);
	return 0;
}

Test(process_deaths, a_stopped_leader_is_waited_for_until_the_deadline)
{
	for (int victim = 0; victim < 3; victim++) {
		struct play play = play_make(victim);

		play.p.watch = stop_leader;
		RANKS_OK(processes_run(&play.p, waits_in_vain, &play));
	}
}

/* ---- later ------------------------------------------------------------------------------------------------------- */

static int reduce(spmt_comm *comm, uint64_t *word)
{
	int code = spmt_all_reduce(comm, word + 1, word, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);

	return code ? code : spmt_quiet(comm);
}

/* One of the acts, from its first call to its last. */
static int play_act(spmt_comm **comm, enum act act, uint64_t *word)
{
	spmt_comm *part, *whole = *comm;
	spmt_mem *mem;
	void *block;
	int code;

	switch (act) {
	case MALLOC:
		code = spmt_malloc(*comm, 100000, &block);
		return code ? code : spmt_free(*comm, block);
	case REGISTER:
		code = spmt_register(*comm, word, 64, &mem);
		return code ? code : spmt_deregister(*comm, mem);
	case SPLIT:
		code = spmt_split(*comm, spmt_rank(*comm) % 2, 0, &part);
		return code ? code : spmt_finalize(part);
	case REDUCE:
		return reduce(*comm, word);
	case PUT:
		code = spmt_put_nbi(
			*comm, word + 2, word, 8, (spmt_rank(*comm) + 3) % spmt_nranks(*comm));
		return code ? code : spmt_quiet(*comm);
	case BARRIER:
		return spmt_barrier(*comm);
	case FINALIZE:
		*comm = NULL;
		return spmt_finalize(whole);
	default:
		usleep(100);
		return spmt_status(*comm);
	}
}

static void kill_later(struct processes *p)
{
	struct play *play = (struct play *)p;
	struct scene *s = play->s;

	if (!within(&s->ready, RANKS, 20000))
		return;
	go(s, true, true);
	within(&s->inside, s->half ? RANKS - 1 : RANKS, 5000);
	usleep((useconds_t)s->us);
	kill_now(play);
}

static void stay(void)
{
	for (;;)
		sleep_ms(1000);
}

static int acts(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	struct spmt_attr attr;
	uint64_t *word;
	spmt_comm *comm;
	int code = 0;
	bool soon;

	if (rank == RANKS)
		return 0;
	attr = patient(play, rank);
	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_calloc(comm, 8, sizeof(*word), (void **)&word));
	ranks_watch(comm);
	atomic_fetch_add(&s->ready, 1);
	while (!atomic_load(&s->go[rank / 2]))
		usleep(50);
	if (s->half && rank == 2 * s->victim + 1)
		stay();
	atomic_fetch_add(&s->inside, 1);
	if (s->act == FINALIZE)
		ranks_watch(NULL);
	while (!code && comm)
		code = play_act(&comm, s->act, word);
	if (rank / 2 == s->victim)
		stay();
	/* who is out of finalize before the kill owes nobody a word */
	if (!code && !s->half)
		return 0;
	soon = in_time(s);
	REQUIRE_CODE(code, SPMT_ERR_PEER_DEAD);
	if (s->act == NOTHING)
		REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_PEER_DEAD);
	REQUIRE(names_victim(play, true) || !ranks_fail("not named: %s", spmt_last_error()));
	REQUIRE(soon);
	ranks_watch(NULL);
	if (comm)
		spmt_finalize(comm);
	return 0;
}

static void killed_in(enum act act, bool half, int victim, int us)
{
	struct play play = play_make(victim);

	play.p.watch = kill_later;
	play.s->act = act;
	play.s->half = half;
	play.s->us = us;
	RANKS_OK(processes_run(&play.p, acts, &play));
}

/* All wait for one rank of the victim, which never comes. */
Test(process_deaths, inside_a_call)
{
	static const enum act collective[] = { MALLOC, REGISTER, SPLIT, REDUCE, BARRIER, FINALIZE };

	NEEDS_HOST("opening devices takes longer than all that is looked at here");
	for (int i = 0; i < 6; i++)
		/* finalize gives 0 in a world that is broken when it begins: it gets time to begin */
		killed_in(collective[i], true, i % 3, collective[i] == FINALIZE ? 100000 : 2000);
}

/* Nobody is in a call; or in one of a long row of them. */
Test(process_deaths, at_any_time_between_calls)
{
	int rounds = (int)test_count(2, 60);
	uint64_t seed = 23;

	NEEDS_HOST("opening devices takes longer than all that is looked at here");
	for (int i = 0; i < rounds * ACTS; i++) {
		int most = i % ACTS == FINALIZE ? 500 : 8000;

		killed_in((enum act)(i % ACTS), false, i % 3,
			(int)(random_next(&seed) % (unsigned)most));
	}
}

/* ---- inside a collective's kernel --------------------------------------------------------------------------------- */

enum { WORDS = 32 << 10, PAGE = 4096 };

static struct scene *held;

static void stand_still(int number)
{
	(void)number;
	atomic_fetch_add(&held->inside, 1);
	stay();
}

static void kill_held(struct processes *p)
{
	struct play *play = (struct play *)p;

	within(&play->s->inside, 1, 20000);
	usleep(20000); /* the others are through with their part, and wait for it */
	kill_now(play);
}

/* Where its kernel stores, behind what it has of its peers' buffers. */
static int hold(const spmt_comm *comm, struct scene *s)
{
	const struct sigaction still = { .sa_handler = stand_still };
	uintptr_t begin = (uintptr_t)comm->stage + comm->stage_size;
	uintptr_t end = (begin + comm->stage_size) & ~(uintptr_t)(PAGE - 1);

	held = s;
	begin = (begin + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
	REQUIRE_EQ(sigaction(SIGSEGV, &still, NULL), 0);
	REQUIRE_EQ(mprotect((void *)begin, end - begin, PROT_NONE), 0);
	return 0;
}

/* The victim stands still while it has its peers' buffers: they wait until it lets go of them, and it never does. */
static int held_inside(int rank, void *arg)
{
	struct play *play = arg;
	struct spmt_attr attr = ranks_attr(rank, play->p.nranks, &play->p.uid[0]);
	uint64_t *words;
	spmt_comm *comm;
	int code;

	attr.timeout_ms = DEADLINE_MS;
	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	REQUIRE_OK(spmt_calloc(comm, 2 * WORDS, sizeof(*words), (void **)&words));
	if (rank == play->s->victim)
		TRY(hold(comm, play->s));
	code = spmt_all_reduce(comm, words, words + WORDS, WORDS, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
	if (!code)
		code = spmt_quiet(comm);
	REQUIRE_CODE(code, SPMT_ERR_PEER_DEAD);
	REQUIRE(in_time(play->s));
	ranks_watch(NULL);
	return spmt_finalize(comm);
}

Test(process_deaths, inside_a_collective_s_kernel)
{
	struct play play = { .p = { .layout = "0|1|2", .killed = 1u << 1, .watch = kill_held } };

	NEEDS_HOST("kernels of GPUs do not stand still");
	play.s = processes_shared(sizeof(*play.s));
	cr_assert_not_null(play.s);
	play.p.shared = play.s;
	play.s->victim = 1;
	RANKS_OK(processes_run(&play.p, held_inside, &play));
}
