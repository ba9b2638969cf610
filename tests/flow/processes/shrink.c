/* SPDX-License-Identifier: MIT */
/* What is left of a broken world, or of a part of one, goes on in a world of its own. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/every_call.h"
#include "tests/lib/processes.h"

enum { SOON_MS = SANITIZED ? 5000 : 1000 };

/* Shared by the processes of a play. */
struct scene {
	_Atomic int ready, shrinking, done;
	_Atomic int64_t begin; /* when the last process was killed */
	int victim, delay_us;  /* the first to be killed */
	uint64_t seed;
};

struct play {
	struct processes p;
	struct scene *s;
};

static void scene_make(struct play *play)
{
	play->s = processes_shared(sizeof(*play->s));
	cr_assert_not_null(play->s);
	play->p.shared = play->s;
}

static bool reached(const _Atomic int *count, int n)
{
	int64_t end = now_ns() + (20 + opening_s()) * (int64_t)1000000000;

	for (; atomic_load(count) < n; usleep(200))
		if (now_ns() > end)
			return false;
	return true;
}

static void kill_one(struct processes *p, int victim)
{
	struct scene *s = p->shared;

	atomic_store(&s->begin, calm_ns());
	kill(p->pid[victim], SIGKILL);
}

static bool soon(const struct scene *s)
{
	int ms = on_host() ? SOON_MS : 5000; /* a driver's memory goes before its sockets */

	return calm_ns() - atomic_load(&s->begin) < ms * (int64_t)1000000;
}

/* ---- the world that goes on ---------------------------------------------------------------------------------------- */

static int join(const spmt_uid *uid, int rank, int nranks, spmt_comm **comm)
{
	struct spmt_attr attr = ranks_attr(rank, nranks, uid);

	attr.heap_size = 2u << 20;
	attr.timeout_ms = 20000 + opening_s() * 1000;
	REQUIRE_OK(spmt_init(&attr, comm));
	ranks_watch(*comm);
	return 0;
}

/* Once all have come out of spmt_init, where it would fail. */
static int breaks(spmt_comm *comm, int rank)
{
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_rank(comm) == rank ? spmt_abort(comm, -9) : 0;
}

/* Round the ring, and all together. */
static int works(spmt_comm *comm)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	uint64_t *word, one = 1, mine = 100 + (uint64_t)me;

	REQUIRE_OK(spmt_calloc(comm, 3, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_copy_in(comm, word + 1, &one, sizeof(one)));
	for (int i = 0; i < 3; i++) {
		REQUIRE_OK(spmt_put(comm, word, &mine, sizeof(mine), (me + 1) % n));
		REQUIRE_OK(spmt_barrier(comm));
		TRY(sym_check_u64(comm, word, 100 + (uint64_t)((me + n - 1) % n)));
		REQUIRE_OK(spmt_all_reduce(
			comm, word + 2, word + 1, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		TRY(sym_check_u64(comm, word + 2, (uint64_t)n));
	}
	return spmt_free(comm, word);
}

static int live_and_end(const spmt_uid *uid, int rank, int nranks)
{
	spmt_comm *comm;

	TRY(join(uid, rank, nranks, &comm));
	TRY(works(comm));
	ranks_watch(NULL);
	return spmt_finalize(comm);
}

/* Shrinks, leaves the broken comm and lives on among `want` ranks as number `mine`. */
static int go_on(spmt_comm *broken, int mine, int want)
{
	int rank = -1, nranks = -1;
	spmt_uid next;

	REQUIRE_OK(spmt_shrink(broken, &next, &rank, &nranks));
	REQUIRE_EQ(nranks, want);
	REQUIRE_EQ(rank, mine);
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(broken));
	return live_and_end(&next, rank, nranks);
}

/* ---- a hundred times ------------------------------------------------------------------------------------------------- */

static int below(const char *layout, int rank, int victim)
{
	int n = 0;

	for (int r = 0; r < rank; r++)
		n += processes_of(layout, r) != victim;
	return n;
}

/* Puts, barriers, collectives and waits in some order, until one fails. */
static int busy(spmt_comm *comm, uint64_t *word, uint64_t seed)
{
	int n = spmt_nranks(comm), code = 0;
	uint64_t one = 1;

	while (!code) {
		/* the same everywhere */
		switch (random_next(&seed) % 4) {
		case 0:
			code = spmt_put(comm, word, &one, sizeof(one), (int)(seed % (unsigned)n));
			break;
		case 1:
			code = spmt_barrier(comm);
			break;
		case 2:
			/* may still write when quiet has given up */
			code = spmt_all_reduce(
				comm, word + 2, word + 3, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
			code = code ? code : spmt_quiet(comm);
			break;
		default:
			code = spmt_signal(
				comm, word + 1, 1, SPMT_SIGNAL_ADD, (spmt_rank(comm) + 1) % n);
			code = code ? code : spmt_sync(comm);
		}
	}
	return code;
}

/* A world of eight, until somebody dies in it. */
static int see_a_death(struct play *play, int rank, spmt_comm **comm)
{
	uint64_t *word;

	TRY(join(&play->p.uid[0], rank, 8, comm));
	REQUIRE_OK(spmt_calloc(*comm, 4, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_barrier(*comm));
	atomic_fetch_add(&play->s->ready, 1);
	REQUIRE_CODE(busy(*comm, word, play->s->seed), SPMT_ERR_PEER_DEAD);
	return 0;
}

static int survives(int rank, void *arg)
{
	struct play *play = arg;
	const char *layout = play->p.layout;
	int victim = play->s->victim;
	spmt_comm *comm;

	TRY(see_a_death(play, rank, &comm));
	return go_on(comm, below(layout, rank, victim), below(layout, 8, victim));
}

static void kill_some_time(struct processes *p)
{
	struct scene *s = p->shared;

	if (!reached(&s->ready, 8))
		return;
	usleep((useconds_t)s->delay_us);
	kill_one(p, s->victim);
}

/* Others hear there by messages of a deadline that has passed. */
static bool over_nodes(void)
{
	return getenv("SPMT_SOCKET_IFNAME") != NULL;
}

static void hundred(uint64_t seed, size_t times)
{
	static const char *const all[] = { "0,1,2,3|4,5,6,7", "0|1,2,3|4,5,6,7", "0,4|1,5|2,6|3,7",
		"0|1|2|3|4|5|6|7" };
	int64_t begin = calm_ns();

	for (size_t i = 0; i < times; i++) {
		struct play play = { .p = { .layout = all[i % 4], .watch = kill_some_time } };

		scene_make(&play);
		play.s->seed = random_next(&seed);
		play.s->victim =
			(int)(random_next(&seed) % (unsigned)(processes_of(play.p.layout, 7) + 1));
		play.s->delay_us = (int)(random_next(&seed) % 10000);
		play.p.killed = 1u << play.s->victim;
		RANKS_OK(processes_run(&play.p, survives, &play));
	}
	/* Over nodes it is half of that on a machine at rest, and this is no test of how busy it is. */
	cr_assert(SANITIZED || !on_host() || over_nodes() || calm_ns() - begin < 60000000000,
		"%zu times took %.1f s", times, (double)(calm_ns() - begin) / 1e9);
}

Test(shrink, a_hundred_times_in_a_row, .timeout = 240)
{
	/* Every layout once where each process opens devices of its own, which takes a second or so a device. */
	hundred(2026, opening_s() ? 4 : test_count(over_nodes() ? 30 : 100, 1000));
}

/* ---- twice ------------------------------------------------------------------------------------------------------------ */

/* Ranks 0 and 1 die in the world of eight, the last three of the six in the next. */
static int eight_six_three(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	uint64_t *word;
	spmt_comm *comm;
	spmt_uid next;
	int mine, n;

	TRY(see_a_death(play, rank, &comm));
	REQUIRE_OK(spmt_shrink(comm, &next, &mine, &n));
	REQUIRE(n == 6 && mine == rank - 2);
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(comm));
	TRY(join(&next, mine, n, &comm));
	TRY(works(comm));
	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*word), (void **)&word));
	atomic_fetch_add(&s->shrinking, 1);
	REQUIRE_CODE(busy(comm, word, 4), SPMT_ERR_PEER_DEAD);
	return go_on(comm, mine, 3);
}

/* The first, and another once the six that are left are as far as their test wants. */
static void kill_two(struct processes *p)
{
	struct scene *s = p->shared;
	siginfo_t ended;

	if (reached(&s->ready, 8))
		kill_one(p, 0);
	if (!reached(&s->shrinking, 6))
		return;
	usleep((useconds_t)s->delay_us);
	kill_one(p, s->victim);
	if (!waitid(P_PID, (id_t)p->pid[s->victim], &ended, WEXITED | WNOWAIT))
		atomic_store(&s->done, 1);
}

Test(shrink, eight_six_three)
{
	struct play play = { .p = { .layout = "0,1|2,3,4|5,6,7", .killed = 5, .watch = kill_two } };

	scene_make(&play);
	play.s->victim = 2;
	RANKS_OK(processes_run(&play.p, eight_six_three, &play));
}

/* Ranks 0 and 1 die, by whose process nodes agree, and 2 and 3, whose process is the next to be asked, once they have come. */
static int two_that_lead(int rank, void *arg)
{
	struct play *play = arg;
	spmt_comm *comm;

	TRY(see_a_death(play, rank, &comm));
	atomic_fetch_add(&play->s->shrinking, 1);
	if (rank == 7)
		REQUIRE(reached(&play->s->done, 1));
	return go_on(comm, rank - 4, 4);
}

Test(shrink, two_that_lead)
{
	for (int i = 0; i < 3; i++) {
		struct play play = { .p = { "0,1|2,3|4,5|6,7", 3, .watch = kill_two } };

		scene_make(&play);
		play.s->victim = 1;
		play.s->delay_us = i * 20000;
		RANKS_OK(processes_run(&play.p, two_that_lead, &play));
	}
}

/* ---- deaths on the way ------------------------------------------------------------------------------------------------ */

/* Ranks 4 and 5 do not come, and die while the others wait for them; once 4 has come and dies waiting for 5. */
static int dies_in_shrink(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	int mine, n, code;
	spmt_comm *comm;
	spmt_uid next;

	TRY(join(&play->p.uid[0], rank, 6, &comm));
	REQUIRE_OK(spmt_set_timeout(comm, -1));
	TRY(breaks(comm, 0));
	REQUIRE(spmt_barrier(comm) < 0);
	atomic_fetch_add(&s->shrinking, 1);
	if (rank == 5 || (rank == 4 && s->victim))
		for (;;)
			pause();
	code = spmt_shrink(comm, &next, &mine, &n);
	REQUIRE_CODE(code, 0);
	REQUIRE(atomic_load(&s->begin) && soon(s));
	REQUIRE_EQ(n, 4);
	REQUIRE_EQ(mine, rank);
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(comm));
	return live_and_end(&next, mine, n);
}

static void kill_the_last(struct processes *p)
{
	struct scene *s = p->shared;

	if (!reached(&s->shrinking, 6))
		return;
	usleep(50000);
	kill_one(p, 2);
}

Test(shrink, dies_in_shrink)
{
	for (int comes = 0; comes < 2; comes++) {
		struct play play = {
			.p = { .layout = "0,1|2,3|4,5", .killed = 4, .watch = kill_the_last }
		};

		scene_make(&play);
		play.s->victim = !comes;
		RANKS_OK(processes_run(&play.p, dies_in_shrink, &play));
	}
}

/* Ranks 4 and 5 are to go on and die first: the others miss them, and shrink once more. */
static int dies_behind_shrink(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	struct spmt_attr attr;
	int mine, n;
	spmt_comm *comm, *none = NULL;
	spmt_uid first, next;

	TRY(join(&play->p.uid[0], rank, 6, &comm));
	TRY(breaks(comm, 0));
	REQUIRE(spmt_barrier(comm) < 0);
	REQUIRE_OK(spmt_shrink(comm, &first, &mine, &n));
	REQUIRE_EQ(n, 6);
	atomic_fetch_add(&s->shrinking, 1);
	if (rank >= 4)
		for (;;)
			pause();
	attr = ranks_attr(mine, n, &first);
	attr.timeout_ms = 300;
	REQUIRE(spmt_init(&attr, &none) < 0);
	REQUIRE_OK(spmt_shrink(comm, &next, &mine, &n));
	REQUIRE_EQ(n, 4);
	REQUIRE_EQ(mine, rank);
	REQUIRE(memcmp(&first, &next, sizeof(next)));
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(comm));
	return live_and_end(&next, mine, n);
}

Test(shrink, dies_before_the_next_world)
{
	struct play play = {
		.p = { .layout = "0,1|2,3|4,5", .killed = 4, .watch = kill_the_last }
	};

	scene_make(&play);
	RANKS_OK(processes_run(&play.p, dies_behind_shrink, &play));
}

/* ---- nobody dies ------------------------------------------------------------------------------------------------------- */

static const char *const layouts[] = { "0,1,2,3", "0,1|2,3", "0|1|2|3" };

static void everywhere(int (*fn)(int rank, void *arg))
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
		struct play play = { .p = { .layout = layouts[i] } };

		scene_make(&play);
		RANKS_OK(processes_run(&play.p, fn, &play));
	}
}

/* Rank 2 stays away until the others have gone on: it gets an error, whenever it asks, and no place. */
static int late(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	int mine = -1, n = -1;
	spmt_comm *comm;
	spmt_uid next, before;

	TRY(join(&play->p.uid[0], rank, 4, &comm));
	REQUIRE_OK(spmt_set_timeout(comm, over_nodes() ? 1500 : 150));
	if (rank != 2) {
		REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
		TRY(go_on(comm, rank - (rank > 2), 3));
		atomic_fetch_add(&s->done, 1);
		return 0;
	}
	REQUIRE(reached(&s->done, 3));
	memset(&next, 0x5a, sizeof(next));
	before = next;
	for (int i = 0; i < 2; i++) {
		REQUIRE_CODE(spmt_shrink(comm, &next, &mine, &n), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("spmt_shrink: rank 2 came too late: the others go on without it");
		REQUIRE(mine == -1 && n == -1 && !memcmp(&next, &before, sizeof(next)));
	}
	ranks_watch(NULL);
	return spmt_finalize(comm);
}

Test(shrink, who_comes_late_is_left_out)
{
	everywhere(late);
}

/* Rank 3 lives and does not come: the first shrink waits for it until the deadline, a second one does not, though it would have six
   seconds. The same ranks go on in both, in worlds of two names. */
static int twice_without_one(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	spmt_uid first, next;
	int mine, n;
	spmt_comm *comm;

	TRY(join(&play->p.uid[0], rank, 4, &comm));
	TRY(breaks(comm, 0));
	REQUIRE_CODE(spmt_barrier(comm), -9);
	if (rank < 3) {
		int64_t begin;

		REQUIRE_OK(spmt_set_timeout(comm, over_nodes() ? 1500 : 150));
		REQUIRE_OK(spmt_shrink(comm, &first, &mine, &n));
		REQUIRE(mine == rank && n == 3);
		atomic_fetch_add(&s->ready, 1);
		REQUIRE(reached(&s->ready, 3));
		REQUIRE_OK(spmt_set_timeout(comm, 6000));
		begin = calm_ns();
		REQUIRE_OK(spmt_shrink(comm, &next, &mine, &n));
		atomic_fetch_add(&s->done, 1);
		REQUIRE(calm_ns() - begin < 3000000000);
		REQUIRE(mine == rank && n == 3);
		REQUIRE(memcmp(&first, &next, sizeof(next)));
		ranks_watch(NULL);
		REQUIRE_OK(spmt_finalize(comm));
		return live_and_end(&next, mine, n);
	}
	REQUIRE(reached(&s->done, 3));
	REQUIRE_CODE(spmt_shrink(comm, &next, &mine, &n), SPMT_ERR_TIMEOUT);
	ranks_watch(NULL);
	return spmt_finalize(comm);
}

Test(shrink, who_is_left_out_is_not_waited_for_again)
{
	everywhere(twice_without_one);
}

/* Who finalizes the broken comm is not waited for, though nobody has a deadline. */
static int leaves(int rank, void *arg)
{
	struct play *play = arg;
	spmt_comm *comm;

	TRY(join(&play->p.uid[0], rank, 4, &comm));
	REQUIRE_OK(spmt_set_timeout(comm, -1));
	TRY(breaks(comm, 3));
	REQUIRE_CODE(spmt_barrier(comm), -9);
	if (rank != 1)
		return go_on(comm, rank - (rank > 1), 3);
	sleep_ms(60);
	ranks_watch(NULL);
	return spmt_finalize(comm);
}

Test(shrink, who_finalizes_is_not_waited_for)
{
	everywhere(leaves);
}

/* After an abort all may go on; a whole world cannot shrink. */
static int all_of_them(int rank, void *arg)
{
	struct play *play = arg;
	int mine = -1, n = -1;
	spmt_comm *comm;
	spmt_uid next;

	TRY(join(&play->p.uid[0], rank, 4, &comm));
	REQUIRE_CODE(spmt_shrink(comm, &next, &mine, &n), -EINVAL);
	REQUIRE_SAYS("the world is whole");
	TRY(breaks(comm, 1));
	REQUIRE_CODE(spmt_barrier(comm), -9);
	REQUIRE_CODE(spmt_shrink(comm, NULL, &mine, &n), -EINVAL);
	REQUIRE_SAYS("next is NULL");
	REQUIRE_CODE(spmt_shrink(comm, &next, NULL, &n), -EINVAL);
	REQUIRE_CODE(spmt_shrink(comm, &next, &mine, NULL), -EINVAL);
	return go_on(comm, rank, 4);
}

Test(shrink, after_an_abort)
{
	everywhere(all_of_them);
}

/* A broken part shrinks to a world of its own, beside the world that it is of. */
static int part(int rank, void *arg)
{
	struct play *play = arg;
	spmt_comm *world, *half;
	int mine, n;
	spmt_uid next;

	TRY(join(&play->p.uid[0], rank, 4, &world));
	REQUIRE_OK(spmt_split(world, rank == 3, -rank, &half));
	REQUIRE_OK(spmt_set_timeout(half, over_nodes() ? 1500 : 150));
	if (rank < 2) {
		REQUIRE_CODE(spmt_barrier(half), SPMT_ERR_TIMEOUT);
		REQUIRE_OK(spmt_shrink(half, &next, &mine, &n));
		REQUIRE_EQ(n, 2);
		REQUIRE_EQ(mine, 1 - rank);
		REQUIRE_OK(spmt_finalize(half));
		TRY(live_and_end(&next, mine, n));
		ranks_watch(world);
	}
	TRY(works(world));
	ranks_watch(NULL);
	return spmt_finalize(world);
}

Test(shrink, a_part)
{
	everywhere(part);
}

/* ---- threads that are gone ----------------------------------------------------------------------------------------------- */

static int cancelled(spmt_comm *comm, void *arg)
{
	int mine, n;
	spmt_uid next;

	(void)arg;
	if (spmt_rank(comm) == 1)
		pthread_exit(NULL);
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_PEER_DEAD);
	REQUIRE_OK(spmt_shrink(comm, &next, &mine, &n));
	REQUIRE_EQ(n, spmt_nranks(comm) - 1);
	return live_and_end(&next, mine, n);
}

/* spmt_run tells that a thread has left its function; nobody waits for its rank. */
Test(shrink, without_a_cancelled_thread)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	int n = ranks_here(4);
	char text[64];

	NEEDS_DEVICES(2);
	attr.timeout_ms = -1;
	attr.heap_size = 2u << 20;
	cr_assert_eq(
		spmt_run(n, &attr, cancelled, NULL), SPMT_ERR_PEER_DEAD, "%s", ranks_message());
	snprintf(text, sizeof(text), "1 of %d ranks ended inside fn: 1", n);
	cr_assert(strstr(spmt_last_error(), text), "%s", spmt_last_error());
}
