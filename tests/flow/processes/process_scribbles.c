/* SPDX-License-Identifier: MIT */
/*
 * A process that overwrites the memory in which the ranks of all processes meet, and dies of it, or not. The others do not follow what
 * they find there, and hear who has died; where nobody has, they hear that.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/lib/processes.h"

enum { NOTICE_MS = SANITIZED ? 8000 : 4000, RANKS = 5, VICTIM = 1 };

static const char layout[] = "0,1|2,3|4";

/* What the ranks do meanwhile, over and over. */
enum act { BARRIER, WAIT, MALLOC, SPLIT, REGISTER, REDUCE, STATUS, LATE, ACTS };
/* What is written: a byte everywhere, or any words, most or a few of them. */
enum { RANDOM = 256, SPARSE = 257 };

struct scene {
	_Atomic int ready;
	_Atomic bool spoiled; /* it has been done */
	_Atomic int64_t begin;
	enum act act;
	int pattern;
	bool lives; /* who did it goes on */
	uint64_t seed;
};

struct play {
	struct processes p;
	struct scene *s;
};

/* ---- the one who does it ------------------------------------------------------------------------------------------- */

static void scribble(char *from, const char *to, int pattern, uint64_t *seed)
{
	if (pattern < RANDOM) {
		memset(from, pattern, (size_t)(to - from));
		return;
	}
	for (size_t gap; from < to; from += 4 * gap) {
		uint64_t any = random_next(seed);

		memcpy(from, &any, 4);
		gap = 1 + random_next(seed) % (pattern == SPARSE ? 64 : 4);
	}
}

static void find_shared(unsigned long *from, unsigned long *to)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512] = "";

	while (maps && fgets(line, sizeof(line), maps) && !strstr(line, "spmt-control"))
		;
	sscanf(line, "%lx-%lx", from, to);
	if (maps)
		fclose(maps);
}

static void *go_wrong(void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	unsigned long from = 0, to = 0;

	find_shared(&from, &to);
	usleep((useconds_t)(random_next(&s->seed) % 3000));
	atomic_store(&s->begin, calm_ns());
	scribble((char *)from, (const char *)to, s->pattern, &s->seed);
	atomic_store(&s->spoiled, true);
	if (!s->lives)
		kill(getpid(), SIGKILL);
	return NULL;
}

/* ---- all ----------------------------------------------------------------------------------------------------------- */

static int play_act(spmt_comm *comm, const struct scene *s, uint64_t *word)
{
	spmt_comm *part;
	spmt_mem *mem;
	void *block;
	int code;

	switch (s->act) {
	case WAIT:
		return spmt_signal_wait(comm, word, SPMT_CMP_EQ, 77, NULL);
	case MALLOC:
		code = spmt_malloc(comm, 1000, &block);
		return code ? code : spmt_free(comm, block);
	case SPLIT:
		code = spmt_split(comm, spmt_rank(comm) % 2, -spmt_rank(comm), &part);
		return code ? code : spmt_finalize(part);
	case REGISTER:
		code = spmt_register(comm, word, 64, &mem);
		return code ? code : spmt_deregister(comm, mem);
	case REDUCE:
		code = spmt_all_reduce(comm, word + 1, word, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
		return code ? code : spmt_quiet(comm);
	case STATUS:
		usleep(100);
		return spmt_status(comm);
	case LATE:
		while (!atomic_load(&s->spoiled))
			sleep_ms(1);
		sleep_ms(5);
		return spmt_barrier(comm);
	default:
		return spmt_barrier(comm);
	}
}

static int judge(spmt_comm *comm, const struct scene *s)
{
	spmt_uid next;
	int rank, nranks, code, want = s->lives ? SPMT_ERR_BROKEN : SPMT_ERR_PEER_DEAD;

	REQUIRE(calm_ns() - atomic_load(&s->begin) < NOTICE_MS * (int64_t)1000000);
	REQUIRE_CODE(spmt_status(comm), want);
	REQUIRE_SAYS(s->lives ? "has overwritten the memory" : "2 of 5 ranks died: 2, 3");
	REQUIRE_CODE(spmt_barrier(comm), want);
	code = spmt_shrink(comm, &next, &rank, &nranks);
	/* a few words may be others than those by which it sees that */
	if (s->pattern == SPARSE)
		return 0;
	REQUIRE_CODE(code, SPMT_ERR_BROKEN);
	REQUIRE_SAYS("has been overwritten: ");
	return 0;
}

static int acts(spmt_comm *comm, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	pthread_t thread;
	uint64_t *word;
	int64_t end;

	REQUIRE_OK(spmt_calloc(comm, 8, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_barrier(comm));
	atomic_fetch_add(&s->ready, 1);
	if (spmt_rank(comm) == 2) {
		while (atomic_load(&s->ready) < RANKS)
			usleep(50);
		REQUIRE(!pthread_create(&thread, NULL, go_wrong, play));
		pthread_detach(thread);
	}
	/* what a call says before anybody has heard of the death may be anything */
	end = now_ns() + 20000000000;
	while (!play_act(comm, s, word) || (!spmt_status(comm) && now_ns() < end))
		;
	while (!atomic_load(&s->spoiled) || (spmt_rank(comm) / 2 == VICTIM && !s->lives))
		sleep_ms(1);
	while (!spmt_status(comm) && now_ns() < end)
		sleep_ms(1);
	return judge(comm, s);
}

static void played(enum act act, int pattern, bool lives, uint64_t seed)
{
	struct play play = { .p = { .layout = layout, .killed = lives ? 0 : 1u << VICTIM } };

	play.s = processes_shared(sizeof(*play.s));
	cr_assert_not_null(play.s);
	play.p.shared = play.s;
	play.s->act = act;
	play.s->pattern = pattern;
	play.s->lives = lives;
	play.s->seed = seed;
	RANKS_OK(processes_world(&play.p, acts, &play));
}

static const int patterns[] = { 0, 1, 0x7f, 0x80, 0xff, RANDOM, RANDOM, SPARSE, SPARSE };
enum { PATTERNS = sizeof(patterns) / sizeof(*patterns) };

Test(process_scribbles, and_dies, .timeout = 280)
{
	int rounds = (int)test_count(1, 20);

	NEEDS_HOST("opening devices takes longer than all that is looked at here");
	for (int i = 0; i < rounds * ACTS * PATTERNS; i++)
		played((enum act)(i % ACTS), patterns[i / ACTS % PATTERNS], false,
			77 + (uint64_t)i);
}

Test(process_scribbles, and_goes_on)
{
	/* A wait looks at one word, which a pattern of few may leave alone. */
	static const struct {
		enum act act;
		int pattern;
	} some[] = { { BARRIER, RANDOM }, { WAIT, 0xff } };

	NEEDS_HOST("opening devices takes longer than all that is looked at here");
	for (int i = 0; i < 2; i++)
		played(some[i].act, some[i].pattern, true, 99 + (uint64_t)i);
}

/* First what lies behind the control block, the table of lanes too, for which rank 1 then waits; then all. */
static int lane_waits(spmt_comm *comm, void *arg)
{
	struct scene *s = arg;
	unsigned long from = 0, to = 0;
	enum { CONTROL = 64 << 10 };
	spmt_comm *lane;

	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		find_shared(&from, &to);
		REQUIRE(to - from > 2 * CONTROL);
		memset((char *)from + CONTROL, 0xff, to - from - CONTROL);
		atomic_store(&s->spoiled, true);
		sleep_ms(100);
		memset((char *)from, 0xff, CONTROL);
	} else {
		while (!atomic_load(&s->spoiled))
			sleep_ms(1);
		REQUIRE_CODE(spmt_lane(comm, 7, &lane), SPMT_ERR_BROKEN);
		REQUIRE_SAYS("has overwritten the memory");
	}
	while (!spmt_status(comm))
		sleep_ms(1);
	REQUIRE_CODE(spmt_lane(comm, 8, &lane), SPMT_ERR_BROKEN);
	return 0;
}

Test(process_scribbles, while_a_rank_waits_for_the_table_of_lanes)
{
	struct processes p = { .layout = "0|1" };
	struct scene *s = processes_shared(sizeof(*s));

	NEEDS_HOST("opening devices takes longer than all that is looked at here");
	cr_assert_not_null(s);
	p.shared = s;
	RANKS_OK(processes_world(&p, lane_waits, s));
}
