/* SPDX-License-Identifier: MIT */
/* Processes that die, leave, stop, fail or never come: all others hear of it within a second, go on in a new world, and
   leave nothing. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/fault.h"
#include "tests/lib/processes.h"

enum { NOTICE_MS = SANITIZED ? 5000 : 1000 };

/* How the victims spend their last moments. */
enum last { IN_INIT, IN_BARRIER, IN_WAIT, IN_RMA, BY_EXIT, LASTS };

struct scene {
	_Atomic int ready;     /* ranks that are where they should be */
	_Atomic int64_t begin; /* when it happened */
	enum last last;
	int victim;	 /* a process */
	_Atomic int pid; /* its id, in init */
};

struct play {
	struct processes p;
	struct scene *s;
};

static struct scene *scene_of(const struct processes *p)
{
	return p->shared;
}

static void scene_make(struct play *play, enum last last, int victim)
{
	play->s = processes_shared(sizeof(*play->s));
	cr_assert_not_null(play->s);
	play->s->last = last;
	play->s->victim = victim;
	play->p.shared = play->s;
}

/* True when n ranks are ready, false when they would have had 20 s. */
static bool all_ready(struct scene *s, int n)
{
	int64_t end = now_ns() + (20 + opening_s()) * (int64_t)1000000000;

	for (; atomic_load(&s->ready) < n; sleep_ms(1))
		if (now_ns() > end)
			return false;
	return true;
}

static bool in_time(const struct scene *s)
{
	/* a driver's memory goes before the sockets that tell of a death */
	int ms = opening_s() ? 5000 : NOTICE_MS;

	return calm_ns() - atomic_load(&s->begin) < ms * (int64_t)1000000;
}

static struct spmt_attr endless(int rank, int nranks, const spmt_uid *uid)
{
	struct spmt_attr attr = ranks_attr(rank, nranks, uid);

	attr.timeout_ms = -1;
	return attr;
}

/* ---- killed -------------------------------------------------------------------------------------------------------- */

/* Six ranks in three processes; in init a seventh never comes. */
static const char three[] = "0,1|2,3|4,5";

static void kill_victim(struct processes *p)
{
	struct scene *s = scene_of(p);

	if (!all_ready(s, 6))
		return;
	sleep_ms(s->last != IN_INIT ? 30 : opening_s() ? 1000 : 200);
	atomic_store(&s->begin, calm_ns());
	if (s->last != BY_EXIT)
		kill(p->pid[s->victim], SIGKILL);
}

/* Calls that hang until the world breaks, another one by each rank; `to` is a rank of the victim. */
static int hang(spmt_comm *comm, uint64_t *word, int which, int to)
{
	char *block = (char *)(word + 8);
	int code = 0;

	switch (which) {
	case 0:
		return spmt_barrier(comm);
	case 1:
		return spmt_signal_wait(comm, word, SPMT_CMP_EQ, 77, NULL);
	case 2:
		while (!code)
			code = spmt_put(comm, block, block, 4096, to);
		return code;
	case 3:
		while (!code) {
			code = spmt_put_nbi(comm, block, block, 1u << 20, to);
			code = code ? code : spmt_quiet(comm);
		}
		return code;
	case 4:
		code = spmt_signal_wait_on_stream(comm, word, SPMT_CMP_EQ, 77, NULL);
		return code ? code : spmt_quiet(comm);
	default:
		code = spmt_all_reduce(comm, word, word, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
		return code ? code : spmt_quiet(comm);
	}
}

static int victim_ends(spmt_comm *comm, struct scene *s, uint64_t *word, int first)
{
	if (s->last == BY_EXIT) {
		while (!atomic_load(&s->begin))
			sleep_ms(1);
		exit(0);
	}
	return hang(comm, word,
		s->last == IN_BARRIER	     ? 0
			: s->last == IN_WAIT ? 1
					     : 2,
		(first + 2) % 6);
}

/* The survivors, numbered anew, in a world of their own. */
static int go_on(int rank, struct play *play)
{
	int victim = play->s->victim, mine = rank - 2 * (rank / 2 > victim);
	struct spmt_attr attr = ranks_attr(mine, 4, &play->p.uid[1]);
	uint64_t *words, one = 1;
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_copy_in(comm, words, &one, sizeof(one)));
	REQUIRE_OK(spmt_all_reduce(comm, words + 1, words, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(sym_check_u64(comm, words + 1, 4));
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

static int names_the_dead(int victim)
{
	char list[32];

	snprintf(list, sizeof(list), ": %d, %d", 2 * victim, 2 * victim + 1);
	REQUIRE_SAYS("2 of ");
	REQUIRE_SAYS(list);
	return 0;
}

/* In init one of the two may not have joined yet: then the other is named alone. If it led, it may have told of none: then it is itself. */
static int names_who_joined(const struct scene *s)
{
	const char *died = strstr(spmt_last_error(), " died: ");
	char leader[64];
	int a = 0, b = 0, n = died ? sscanf(died, " died: %d, %d", &a, &b) : 0;

	snprintf(leader, sizeof(leader), "process %d, which led the rendezvous, died",
		atomic_load(&s->pid));
	if (strstr(spmt_last_error(), leader))
		return 0;
	if (n == 2)
		return names_the_dead(s->victim);
	REQUIRE_SAYS("1 of 7 ranks died: ");
	REQUIRE_EQ(n, 1);
	REQUIRE_EQ(a / 2, s->victim);
	return 0;
}

static int dies_in_init(int rank, struct play *play)
{
	struct spmt_attr attr = endless(rank, 7, &play->p.uid[0]);
	spmt_comm *comm;
	int count;

	/* starts the driver: a process that is killed before it joins is nobody's peer, and nobody tells of it */
	REQUIRE_OK(spmt_device_count(NULL, &count));
	if (rank / 2 == play->s->victim)
		atomic_store(&play->s->pid, getpid());
	atomic_fetch_add(&play->s->ready, 1);
	REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_PEER_DEAD);
	REQUIRE(in_time(play->s));
	REQUIRE_SAYS("spmt_init: ");
	TRY(names_who_joined(play->s));
	return go_on(rank, play);
}

static int survives(spmt_comm *comm, struct play *play, uint64_t *word, int which)
{
	void *theirs = spmt_ptr(comm, word, 2 * play->s->victim);
	int code = hang(comm, word, which, 2 * play->s->victim);
	bool soon = in_time(play->s);

	REQUIRE_CODE(code, SPMT_ERR_PEER_DEAD);
	TRY(names_the_dead(play->s->victim));
	REQUIRE(soon);
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_PEER_DEAD);
	REQUIRE(spmt_barrier(comm) < 0);
	TRY(names_the_dead(play->s->victim));
	/* What was mapped stays so until finalize. */
	REQUIRE(theirs);
	if (on_host())
		memset(theirs, 1, 4096);
	return 0;
}

static int dies(int rank, void *arg)
{
	struct play *play = arg;
	struct spmt_attr attr = endless(rank, 6, &play->p.uid[0]);
	struct scene *s = play->s;
	bool dying = rank / 2 == s->victim;
	spmt_comm *comm;
	uint64_t *word;

	if (s->last == IN_INIT)
		return dies_in_init(rank, play);
	attr.heap_size = 4u << 20;
	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_calloc(comm, 1, 2u << 20, (void **)&word));
	REQUIRE_OK(spmt_barrier(comm));
	ranks_watch(comm);
	atomic_fetch_add(&s->ready, 1);
	if (dying)
		return victim_ends(comm, s, word, 2 * s->victim);
	TRY(survives(comm, play, word, (rank + (int)s->last) % 6));
	ranks_watch(NULL);
	spmt_finalize(comm);
	return go_on(rank, play);
}

static void killed(enum last last)
{
	for (int victim = 0; victim < 3; victim++) {
		struct play play = { .p = { .layout = three, .watch = kill_victim } };

		/* opening devices takes long: each dies in one way or another */
		if (opening_s() && victim != (int)last % 3)
			continue;
		scene_make(&play, last, victim);
		play.p.killed = last == BY_EXIT ? 0 : 1u << victim;
		RANKS_OK(processes_run(&play.p, dies, &play));
	}
}

Test(process_ends, killed_in_init)
{
	killed(IN_INIT);
}

Test(process_ends, killed_in_barrier)
{
	killed(IN_BARRIER);
}

Test(process_ends, killed_in_wait)
{
	killed(IN_WAIT);
}

Test(process_ends, killed_in_rma)
{
	killed(IN_RMA);
}

Test(process_ends, exit_without_finalize)
{
	killed(BY_EXIT);
}

/* A quiet that fails for a death gives buffers back: what is still queued writes nothing to them afterwards, also where the world
   broke before the quiet. */
static int gives_back(int rank, void *arg)
{
	enum { COUNT = 1 << 16, QUEUED = 200 };
	static uint64_t src[COUNT], all[6][COUNT];
	struct play *play = arg;
	struct spmt_attr attr = endless(rank, 6, &play->p.uid[0]);
	uint64_t *dst = all[rank];
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	if (rank / 2 != play->s->victim)
		for (int i = 0; i < QUEUED; i++)
			REQUIRE_OK(spmt_all_reduce(
				comm, dst, src, COUNT, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	atomic_fetch_add(&play->s->ready, 1);
	while (rank / 2 == play->s->victim)
		sleep_ms(1000);
	while (rank % 2 && !spmt_status(comm))
		sleep_ms(1);
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_PEER_DEAD);
	memset(dst, 0x55, sizeof(all[0]));
	REQUIRE(in_time(play->s));
	TRY(names_the_dead(play->s->victim));
	sleep_ms(50);
	for (int i = 0; i < COUNT; i++)
		REQUIRE(dst[i] == 0x5555555555555555);
	ranks_watch(NULL);
	spmt_finalize(comm);
	return 0;
}

Test(process_ends, quiet_gives_buffers_back)
{
	struct play play = { .p = { .layout = three, .watch = kill_victim, .killed = 2 } };

	NEEDS_HOST("its collectives take any memory of the process");
	scene_make(&play, IN_WAIT, 1);
	RANKS_OK(processes_run(&play.p, gives_back, &play));
}

/* ---- stopped ------------------------------------------------------------------------------------------------------- */

static void stop_and_go(struct processes *p)
{
	if (!all_ready(scene_of(p), 4))
		return;
	kill(p->pid[1], SIGSTOP);
	sleep_ms(3000);
	kill(p->pid[1], SIGCONT);
	atomic_store(&scene_of(p)->begin, calm_ns());
}

/* Barriers all the while: the longest of them takes the three seconds. */
static int goes_on(spmt_comm *comm, void *arg)
{
	struct scene *s = ((struct play *)arg)->s;
	uint64_t *word, any = 0;
	int64_t longest = 0;

	REQUIRE_OK(spmt_malloc(comm, sizeof(*word), (void **)&word));
	atomic_fetch_add(&s->ready, 1);
	while (!any) {
		int64_t begin = now_ns();

		any = atomic_load(&s->begin) != 0;
		REQUIRE_OK(spmt_copy_in(comm, word, &any, sizeof(any)));
		REQUIRE_OK(spmt_all_reduce(comm, word, word, 1, SPMT_TYPE_U64, SPMT_OP_MAX, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_copy_out(comm, &any, word, sizeof(any)));
		REQUIRE_OK(spmt_barrier(comm));
		longest = now_ns() - begin > longest ? now_ns() - begin : longest;
	}
	REQUIRE(longest > 2500000000);
	return 0;
}

Test(process_ends, a_stop_is_no_death)
{
	struct play play = { .p = { .layout = "0|1,2|3", .watch = stop_and_go } };

	scene_make(&play, 0, 1);
	RANKS_OK(processes_world(&play.p, goes_on, &play));
}

/* ---- aborted ------------------------------------------------------------------------------------------------------- */

static int aborted(int rank, void *arg)
{
	struct play *play = arg;
	struct spmt_attr attr = endless(rank, 7, &play->p.uid[0]);
	struct scene *s = play->s;
	spmt_comm *comm;
	uint64_t *word;

	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_calloc(comm, 1, 2u << 20, (void **)&word));
	REQUIRE_OK(spmt_barrier(comm));
	ranks_watch(comm);
	if (rank == 0) {
		REQUIRE(all_ready(s, 6));
		sleep_ms(30);
		atomic_store(&s->begin, calm_ns());
		REQUIRE_OK(spmt_abort(comm, -77));
	} else {
		atomic_fetch_add(&s->ready, 1);
		REQUIRE_CODE(hang(comm, word, rank - 1, 0), -77);
		REQUIRE(in_time(s));
	}
	REQUIRE_CODE(spmt_status(comm), -77);
	ranks_watch(NULL);
	spmt_finalize(comm);
	return 0;
}

Test(process_ends, abort_reaches_all)
{
	struct play play = { .p = { .layout = "0|1,2,3|4,5,6" } };

	scene_make(&play, 0, 0);
	RANKS_OK(processes_run(&play.p, aborted, &play));
}

/* ---- worlds that do not come about ----------------------------------------------------------------------------------- */

/* A world that fails while it gathers tells those who have come: the odd one is the last. */
enum { LATE_MS = 300 };

static int refused(const struct spmt_attr *attr, int code, const char *word, const char *list)
{
	spmt_comm *comm = NULL;
	int64_t begin = calm_ns();

	REQUIRE_CODE(spmt_init(attr, &comm), code);
	REQUIRE_SAYS(word);
	REQUIRE_SAYS(list);
	REQUIRE(!comm && calm_ns() - begin < (4 + opening_s()) * (int64_t)1000000000);
	return 0;
}

static int another_heap(int rank, void *arg)
{
	struct play *play = arg;
	struct spmt_attr attr = ranks_attr(rank, 4, &play->p.uid[0]);

	attr.heap_size = rank == 3 ? 8u << 20 : 4u << 20;
	return refused(&attr, SPMT_ERR_MISMATCH, "heap_size differs", "ranks: 3");
}

static int another_world_size(int rank, void *arg)
{
	struct play *play = arg;
	struct spmt_attr attr = ranks_attr(rank, rank == 2 ? 5 : 4, &play->p.uid[0]);

	if (rank == 2)
		sleep_ms(LATE_MS);
	return refused(&attr, SPMT_ERR_MISMATCH, "nranks differs", "passed 5");
}

static int same_rank_twice(int rank, void *arg)
{
	struct play *play = arg;
	struct spmt_attr attr = ranks_attr(rank == 3 ? 0 : rank, 5, &play->p.uid[0]);

	if (rank == 3)
		sleep_ms(LATE_MS);
	return refused(&attr, -EEXIST, "rank 0 of 5 is taken", "process");
}

static int missing(int rank, void *arg)
{
	struct play *play = arg;
	struct spmt_attr attr = ranks_attr(rank, 6, &play->p.uid[0]);

	/* in which all have come, though they may have a driver to start */
	attr.timeout_ms = opening_s() ? 5000 : 1000;
	TRY(refused(&attr, SPMT_ERR_TIMEOUT, "2 of 6 ranks", ": 4, 5"));
	REQUIRE(calm_says(
		spmt_last_error(), "missing after ", (double)attr.timeout_ms / 1e3, " s: 4, 5"));
	return 0;
}

/* The last rank cannot allocate its heap; the others are told so, not left to wait. */
static int no_memory(int rank, void *arg)
{
	struct play *play = arg;
	struct spmt_attr attr = ranks_attr(rank, 3, &play->p.uid[0]);

	if (rank == 2)
		fault_arm(1u << FAULT_MEMORY, 1);
	return refused(&attr, -ENOMEM, on_host() ? "no memory" : "refused", "");
}

/* What cannot join posts its failure: those who wait in other processes hear of it at once. */
static int bad_argument(int rank, void *arg)
{
	struct play *play = arg;
	struct spmt_attr attr = ranks_attr(rank, 4, &play->p.uid[0]);

	if (rank == 3) {
		sleep_ms(LATE_MS);
		attr.device = -2;
	}
	return refused(&attr, -EINVAL, "rank 3: attr.device -2", "");
}

static int bad_device(int rank, void *arg)
{
	struct play *play = arg;
	struct spmt_attr attr = ranks_attr(rank, 4, &play->p.uid[0]);

	if (rank == 3) {
		sleep_ms(LATE_MS);
		attr.device = 1000;
	}
	return refused(&attr, -ENODEV, "rank 3: device 1000", "");
}

static void nobody_gets_in(const char *layout, int (*fn)(int rank, void *arg))
{
	struct play play = { .p = { .layout = layout } };

	RANKS_OK(processes_run(&play.p, fn, &play));
}

Test(process_ends, differing_heaps)
{
	nobody_gets_in("0,1|2,3", another_heap);
}

Test(process_ends, differing_world_sizes)
{
	nobody_gets_in("0,1|2|3", another_world_size);
}

Test(process_ends, a_rank_twice)
{
	nobody_gets_in("0,1|2|3", same_rank_twice);
}

Test(process_ends, missing_process)
{
	nobody_gets_in("0,1|2|3", missing);
}

Test(process_ends, bad_arguments_are_everybodys)
{
	nobody_gets_in("0,1|2|3", bad_argument);
	nobody_gets_in("0,1|2|3", bad_device);
}

Test(process_ends, a_failure_in_init_is_everybodys)
{
	nobody_gets_in("0|1|2", no_memory);
}

/* ---- what must not be there ---------------------------------------------------------------------------------------- */

/* Descriptors and mappings with a name in a file system: they would outlive a killed process. */
static int named(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	for (struct dirent *e; d && (e = readdir(d));) {
		char path[600], to[256];
		ssize_t len;

		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		len = readlink(path, to, sizeof(to) - 1);
		to[len > 0 ? len : 0] = 0;
		n += to[0] == '/' && strncmp(to, "/memfd:", 7) != 0 &&
			strncmp(to, "/proc/", 6) != 0;
	}
	if (d)
		closedir(d);
	return n;
}

struct names {
	struct processes p;
	int files, maps;
};

static int names_are_few(spmt_comm *comm, void *arg)
{
	const struct names *before = arg;

	if (strcmp(spmt_backend(comm), "host") != 0)
		return 0; /* a vendor's driver has files of its own */
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_EQ(named("/proc/self/fd"), before->files);
	REQUIRE_EQ(named("/proc/self/map_files"), before->maps);
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

Test(process_ends, nothing_has_a_name)
{
	struct names n = { .p = { .layout = "0,1|2|3" } };

	n.files = named("/proc/self/fd");
	n.maps = named("/proc/self/map_files");
	RANKS_OK(processes_world(&n.p, names_are_few, &n));
}
