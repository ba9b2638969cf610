/* SPDX-License-Identifier: MIT */
/* Worlds whose uid travels through the user's own all-gather; and one that fails, lies, hangs or is not there. */
#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spmt/job/user.h"
#include "tests/fakes/pmix_job.h"

enum { SHORT_MS = LAUNCH_SHORT_MS, LONG_MS = LAUNCH_LONG_MS, VICTIM = 2, BYTES = 1024 };

enum lie {
	HONEST,
	UNTOUCHED,   /* success, and nothing gathered */
	ALL_MINE,    /* every place has one's own */
	SWAPPED,     /* two others have changed places */
	OWN_CHANGED, /* one's own came back otherwise */
	FLIPPED,     /* a bit of process 0's uid */
	NO_UID,
	OTHER_LIBRARY,
	MAGICLESS,
	WRONG_COUNT,
	GIVES_UP, /* process 0 says that it failed, in words nobody should print */
	POSITIVE_CODE,
	LIES
};

/* The framework: memory that the processes share. */
struct gather {
	_Atomic int calls[8], came[256], size_wrong;
	_Atomic int code, lie, whom; /* what goes wrong in process `whom` */
	_Atomic int hang, ready;
	unsigned char bytes[256][8][BYTES];
};

struct framework {
	struct job job;
	struct gather *g;
	struct spmt_bootstrap user[8]; /* by process */
	int process;		       /* in a child: which it is */
};

static void bend(enum lie lie, struct card *all, const struct card *mine)
{
	struct card other;

	switch (lie) {
	case UNTOUCHED:
		memset(all, 0, (size_t)mine->processes * sizeof(*all));
		break;
	case ALL_MINE:
		for (int p = 0; p < mine->processes; p++)
			all[p] = *mine;
		break;
	case SWAPPED:
		other = all[0];
		all[0] = all[1];
		all[1] = other;
		break;
	case OWN_CHANGED:
		all[mine->process].why[3] ^= 1;
		break;
	case FLIPPED:
		all[0].uid.bytes[40] ^= 4;
		break;
	case NO_UID:
		memset(&all[0].uid, 0, sizeof(all[0].uid));
		break;
	case OTHER_LIBRARY:
		all[1].version++;
		break;
	case MAGICLESS:
		all[1].magic = 0;
		break;
	case WRONG_COUNT:
		all[0].processes = INT_MAX;
		break;
	case GIVES_UP:
		all[0].code = -ENOSPC;
		memset(all[0].why, '\a', sizeof(all[0].why));
		break;
	case POSITIVE_CODE:
		all[0].code = 5;
		break;
	default:
		break;
	}
}

static int all_gather(void *ctx, const void *mine, size_t size, void *all)
{
	struct framework *f = ctx;
	struct gather *g = f->g;
	int me = f->process, n = f->user[0].processes, turn = atomic_fetch_add(&g->calls[me], 1);
	int64_t end = now_ns() + LONG_MS * (int64_t)1000000;
	bool victim = atomic_load(&g->whom) == me;

	if (size > BYTES || size != sizeof(struct card))
		atomic_store(&g->size_wrong, 1);
	while (victim && atomic_load(&g->hang))
		sleep_ms(1);
	memcpy(g->bytes[turn % 256][me], mine, size);
	atomic_fetch_add(&g->came[turn % 256], 1);
	while (atomic_load(&g->came[turn % 256]) < n)
		if (now_ns() > end)
			return -ETIME;
		else
			sleep_ms(1);
	for (int p = 0; p < n; p++)
		memcpy((char *)all + (size_t)p * size, g->bytes[turn % 256][p], size);
	if (victim)
		bend((enum lie)atomic_load(&g->lie), all, mine);
	return victim ? atomic_load(&g->code) : 0;
}

static void framework_make(struct framework *f, const char *layout, int processes)
{
	*f = (struct framework){ .job = { .p.layout = layout, .timeout_ms = LONG_MS } };
	f->g = processes_shared(sizeof(*f->g));
	f->job.shared = processes_shared(4096);
	cr_assert(f->g && f->job.shared);
	atomic_store(&f->g->whom, -1);
	for (int p = 0; p < processes; p++)
		f->user[p] = (struct spmt_bootstrap){ .size = sizeof(f->user[p]),
			.process = p,
			.processes = processes,
			.all_gather = all_gather,
			.ctx = f };
}

static struct spmt_attr framework_attr(struct framework *f, int rank)
{
	struct spmt_attr attr = job_attr(&f->job, rank);
	int process = processes_of(f->job.p.layout, rank);

	__atomic_store_n(&f->process, process, __ATOMIC_RELAXED);
	attr.bootstrap = &f->user[process];
	return attr;
}

/* ---- worlds that come about ------------------------------------------------------------------------------------- */

static int works(int rank, void *arg)
{
	struct framework *f = arg;
	struct spmt_attr attr = framework_attr(f, rank);

	return worlds_in_a_row(&attr, rank, f->job.arg);
}

static void layout_works(const char *layout, int processes, int nranks, int worlds)
{
	struct framework f;

	framework_make(&f, layout, processes);
	f.job.nranks = nranks;
	f.job.arg = worlds;
	RANKS_OK(processes_run(&f.job.p, works, &f));
	for (int p = 0; p < processes; p++)
		cr_expect_eq(atomic_load(&f.g->calls[p]), worlds, "%s: process %d: %d calls",
			layout, p, atomic_load(&f.g->calls[p]));
	cr_expect_not(atomic_load(&f.g->size_wrong));
}

Test(bootstrap_user, layouts)
{
	layout_works("0|1|2|3", 4, 0, 1);
	layout_works("0|1|2|3", 4, 4, 3);
	layout_works("0,1|2,3", 2, 4, 3);
	layout_works("0,1,2,3", 1, 4, 3);
	layout_works("0", 1, 1, 2);
}

Test(bootstrap_user, a_hundred_worlds, .timeout = 120)
{
	layout_works("0|1|2", 3, 0, 100);
	layout_works("0,1|2,3", 2, 4, 100);
}

static int uid_given(int rank, void *arg)
{
	struct framework *f = arg;
	struct spmt_attr attr = framework_attr(f, rank);

	attr.uid = &f->job.p.uid[0];
	return world_once(&attr);
}

Test(bootstrap_user, not_asked_where_there_is_a_uid)
{
	struct framework f;

	framework_make(&f, "0|1", 2);
	f.job.nranks = 2;
	RANKS_OK(processes_run(&f.job.p, uid_given, &f));
	cr_expect_eq(atomic_load(&f.g->calls[0]), 0);
}

/* ---- the struct --------------------------------------------------------------------------------------------------- */

static void refused(struct spmt_bootstrap *user, const char *word)
{
	static const char begins[] = "spmt_init: rank 3: attr.bootstrap: ";
	struct spmt_attr attr = SPMT_ATTR_INIT;
	const char *said;
	spmt_comm *comm;

	attr.backend = "host";
	attr.rank = 3;
	attr.nranks = 4;
	attr.bootstrap = user;
	cr_expect_eq(spmt_init(&attr, &comm), -EINVAL);
	said = spmt_last_error();
	cr_expect(!strncmp(said, begins, strlen(begins)) && strstr(said, word), "no %s in: %s",
		word, said);
}

Test(bootstrap_user, the_struct_is_checked)
{
	struct {
		struct spmt_bootstrap user;
		unsigned char tail[16];
	} later = { 0 };
	struct spmt_attr attr = SPMT_ATTR_INIT;
	struct framework f;
	spmt_comm *comm;

	framework_make(&f, "0", 1);
	later.user = f.user[0];
	later.user.size = 0;
	refused(&later.user, "size 0 is below");
	later.user.size = sizeof(later.user) - 1;
	refused(&later.user, "is below");
	later.user.size = SIZE_MAX / 2;
	refused(&later.user, "is above 4096");
	later.user.size = sizeof(later);
	later.tail[15] = 1;
	refused(&later.user, "byte");
	later.tail[15] = 0;
	later.user.process = 1;
	refused(&later.user, "process 1 is not in 0 .. 0");
	later.user.process = -1;
	refused(&later.user, "process -1 is not in 0 .. 0");
	later.user.process = later.user.processes = 0;
	refused(&later.user, "processes 0: a job has at least one");
	later.user.processes = -7;
	refused(&later.user, "processes -7");
	later.user = f.user[0];
	later.user.all_gather = NULL;
	refused(&later.user, "NULL");
	later.user = f.user[0];
	later.user.size = sizeof(later);
	attr.backend = "host";
	attr.bootstrap = &later.user;
	cr_assert_eq(spmt_init(&attr, &comm), 0, "%s", spmt_last_error());
	cr_expect_eq(spmt_finalize(comm), 0);
}

/* ---- what can go wrong -------------------------------------------------------------------------------------------- */

static const struct {
	int code;
	const char *word;
} lies[LIES] = { [UNTOUCHED] = { -EPROTO, "other bytes" },
	[ALL_MINE] = { -EPROTO, "place 0" },
	[SWAPPED] = { -EPROTO, "place 0" },
	[OWN_CHANGED] = { -EPROTO, "other bytes" },
	[FLIPPED] = { -EINVAL, "damaged" },
	[NO_UID] = { -EINVAL, "not a uid" },
	[OTHER_LIBRARY] = { -EPROTO, "another library" },
	[MAGICLESS] = { -EPROTO, "place 1" },
	[WRONG_COUNT] = { -EPROTO, "place 0" },
	[GIVES_UP] = { -ENOSPC, "process 0 failed: ????" },
	[POSITIVE_CODE] = { -EPROTO, "place 0" } };

/* The victim is told what is wrong; the others miss it at their deadline, and hear its number. */
static int lied_to(int rank, void *arg)
{
	struct framework *f = arg;
	struct spmt_attr attr = framework_attr(f, rank);
	enum lie lie = (enum lie)atomic_load(&f->g->lie);
	spmt_comm *comm;
	int64_t begin = calm_ns();
	int code = spmt_init(&attr, &comm);

	REQUIRE(ms_since(begin) < 3 * SHORT_MS + 1000);
	if (f->process != VICTIM) {
		REQUIRE_EQ(code, SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS(": 2");
		return 0;
	}
	REQUIRE_EQ(code, lie ? lies[lie].code : atomic_load(&f->g->code) < 0 ? -EPERM : -EIO);
	REQUIRE_SAYS(lie ? lies[lie].word : "process 2 of 3 failed");
	return 0;
}

Test(bootstrap_user, what_comes_back_is_not_trusted, .timeout = 120)
{
	for (int lie = HONEST + 1; lie < LIES; lie++) {
		struct framework f;

		framework_make(&f, "0|1|2", 3);
		f.job.timeout_ms = SHORT_MS;
		atomic_store(&f.g->whom, VICTIM);
		atomic_store(&f.g->lie, lie);
		cr_assert_eq(processes_run(&f.job.p, lied_to, &f), 0, "lie %d: %s", lie,
			ranks_message());
	}
}

Test(bootstrap_user, a_callback_fails)
{
	static const int codes[] = { -EPERM, 17 };

	for (int i = 0; i < 2; i++) {
		struct framework f;

		framework_make(&f, "0|1|2", 3);
		f.job.timeout_ms = SHORT_MS;
		atomic_store(&f.g->whom, VICTIM);
		atomic_store(&f.g->code, codes[i]);
		RANKS_OK(processes_run(&f.job.p, lied_to, &f));
	}
}

/* The rank whose thread is in the callback cannot be helped; the other of its process goes at its deadline. */
static int hangs(int rank, void *arg)
{
	struct framework *f = arg;
	struct spmt_attr attr = framework_attr(f, rank);
	int64_t begin = calm_ns();
	spmt_comm *comm;
	int code;

	if (rank == 1)
		sleep_ms(100);
	code = spmt_init(&attr, &comm);
	REQUIRE_EQ(code, SPMT_ERR_TIMEOUT);
	if (rank == 1) {
		REQUIRE(ms_since(begin) < 2 * SHORT_MS + 500);
		REQUIRE_SAYS("all_gather");
		atomic_store(&f->g->hang, 0);
	}
	return 0;
}

Test(bootstrap_user, a_callback_hangs)
{
	struct framework f;

	framework_make(&f, "0,1", 1);
	f.job.nranks = 2;
	f.job.timeout_ms = SHORT_MS;
	atomic_store(&f.g->whom, 0);
	atomic_store(&f.g->hang, 1);
	RANKS_OK(processes_run(&f.job.p, hangs, &f));
}

static int counts_differ(int rank, void *arg)
{
	struct framework *f = arg;
	struct spmt_attr attr = framework_attr(f, rank);
	spmt_comm *comm;

	attr.nranks = f->process ? 4 : 8;
	attr.rank = f->process ? f->process : 0;
	REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("process 0 passed 8");
	return 0;
}

Test(bootstrap_user, nranks_differs)
{
	struct framework f;

	framework_make(&f, "0|1|2|3", 4);
	RANKS_OK(processes_run(&f.job.p, counts_differ, &f));
}

/* Ranks and sizes that do not fit the processes, of all or of one, are told to all; the next world comes about. */
static int misfits(int rank, void *arg)
{
	static const struct {
		int nranks, rank, whose; /* whose: -1: all */
		const char *word;
	} bad[] = { { 5, 0, -1, "multiple" }, { -4, 0, -1, "nranks -4" }, { 0, 1, -1, "nranks 0" },
		{ 3, 0, VICTIM, "has the ranks" }, { 3, 3, VICTIM, "has the ranks" },
		{ 3, INT_MIN, VICTIM, "has the ranks" } };
	struct framework *f = arg;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct spmt_attr attr = framework_attr(f, rank);
		int64_t begin = calm_ns();
		spmt_comm *comm;

		if (bad[i].whose < 0 || bad[i].whose == rank) {
			attr.nranks = bad[i].nranks;
			attr.rank = bad[i].rank;
		}
		REQUIRE_CODE(spmt_init(&attr, &comm), -EINVAL);
		REQUIRE_SAYS(bad[i].word);
		REQUIRE(ms_since(begin) < LONG_MS / 2);
		attr = framework_attr(f, rank);
		TRY(world_once(&attr));
	}
	return 0;
}

Test(bootstrap_user, misfits_are_told)
{
	struct framework f;

	framework_make(&f, "0|1|2", 3);
	f.job.nranks = 3;
	RANKS_OK(processes_run(&f.job.p, misfits, &f));
}

/* A rank that fails once the uid is known is heard of by those who wait for it. For ranks that come more than a moment later nobody
   keeps its failure, so it comes last. */
static int one_fails(int rank, void *arg)
{
	struct framework *f = arg;
	struct spmt_attr attr = framework_attr(f, rank);
	int64_t begin = calm_ns(), end = now_ns() + 20000000000;
	spmt_comm *comm;

	atomic_fetch_add(&f->g->ready, 1);
	if (rank == 2) {
		attr.device = -7;
		while (atomic_load(&f->g->ready) < 4 && now_ns() < end)
			sleep_ms(1);
		sleep_ms(200);
	}
	REQUIRE_CODE(spmt_init(&attr, &comm), -EINVAL);
	REQUIRE_SAYS("-7");
	REQUIRE(ms_since(begin) < LONG_MS / 2);
	attr.device = -1;
	return world_once(&attr);
}

Test(bootstrap_user, one_rank_fails)
{
	struct framework f;

	framework_make(&f, "0,1|2,3", 2);
	f.job.nranks = 4;
	RANKS_OK(processes_run(&f.job.p, one_fails, &f));
}

/* Rank 2 fails, and is in its second call before rank 3 comes to its first: that is for the first world all the same, where nobody
   is left. Its second is for the others' second. */
static int one_is_late(int rank, void *arg)
{
	struct framework *f = arg;
	struct spmt_attr attr = framework_attr(f, rank);
	int64_t end = now_ns() + 10000000000;
	spmt_comm *comm;

	if (rank == 3) {
		while ((atomic_load(&f->g->ready) < 3 || atomic_load(&f->g->calls[1]) < 2) &&
			now_ns() < end)
			sleep_ms(1);
		REQUIRE_EQ(atomic_load(&f->g->calls[1]), 2);
		attr.timeout_ms = 100;
		REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_TIMEOUT);
	} else {
		attr.device = -7;
		REQUIRE_CODE(spmt_init(&attr, &comm), -EINVAL);
		atomic_fetch_add(&f->g->ready, 1);
	}
	attr.timeout_ms = LONG_MS / 4;
	attr.device = -1;
	TRY(world_once(&attr));
	return world_once(&attr);
}

Test(bootstrap_user, a_late_rank_is_in_the_world_of_its_call)
{
	struct framework f;

	framework_make(&f, "0,1|2,3", 2);
	f.job.nranks = 4;
	RANKS_OK(processes_run(&f.job.p, one_is_late, &f));
}

/* Rank 0 fails by what it passes, and rank 1 with it: theirs is one call of all_gather, as the other process's. */
static int one_fits_no_job(int rank, void *arg)
{
	struct framework *f = arg;
	struct spmt_attr attr = framework_attr(f, rank), odd = attr;
	int64_t end = now_ns() + LONG_MS * (int64_t)1000000;
	spmt_comm *comm;

	if (rank == 0)
		odd.nranks = 5;
	while (rank == 1 && !atomic_load(&f->g->calls[0]) && now_ns() < end)
		sleep_ms(1);
	REQUIRE_CODE(spmt_init(&odd, &comm), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("attr.nranks differs");
	return worlds_in_a_row(&attr, rank, 2);
}

Test(bootstrap_user, a_rank_that_fits_no_job)
{
	struct framework f;

	framework_make(&f, "0,1|2,3", 2);
	f.job.nranks = 4;
	f.job.timeout_ms = LONG_MS / 4;
	RANKS_OK(processes_run(&f.job.p, one_fits_no_job, &f));
	for (int p = 0; p < 2; p++)
		cr_expect_eq(atomic_load(&f.g->calls[p]), 3);
}
