/* SPDX-License-Identifier: MIT */
/*
 * Which calls of a process are for which world of its job, where some of them fail: the other processes count a world once,
 * whatever is wrong with the calls for it.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spmt/job/launch.h"
#include "tests/lib/ranks.h"

enum { THREADS = 4, WORLDS = 8 };

struct step {
	int thread, rank, nranks, world;
};

struct script {
	const struct step *steps;
	int n;
	struct uid seed;
	_Atomic int turn;
};

struct actor {
	struct script *script;
	int thread;
	pthread_t id;
};

static int world_of(const struct uid *seed, const struct uid *got)
{
	for (uint64_t number = 1; number <= WORLDS; number++) {
		struct uid uid;

		uid_derive(seed, &number, sizeof(number), &uid);
		if (!memcmp(uid.id, got->id, sizeof(uid.id)))
			return (int)number;
	}
	return 0;
}

/* Of the script's steps those of one thread, each in its turn. */
static void *acts(void *arg)
{
	struct actor *actor = arg;
	struct script *script = actor->script;

	for (int i = 0; i < script->n; i++) {
		const struct step *step = &script->steps[i];
		struct spmt_attr attr = SPMT_ATTR_INIT;
		struct uid got = { 0 };
		struct job_info launch;
		int world, rc;

		if (step->thread != actor->thread)
			continue;
		while (atomic_load(&script->turn) < i)
			sleep_ms(1);
		attr.rank = step->rank;
		attr.nranks = step->nranks;
		rc = launch_uid(&attr, &got, &launch);
		world = world_of(&script->seed, &got);
		cr_expect(!rc && world == step->world,
			"step %d: rank %d of %d came to world %d, not %d: %s", i, step->rank,
			step->nranks, world, step->world, rc ? spmt_last_error() : "");
		atomic_store(&script->turn, i + 1);
	}
	return NULL;
}

static void play(const char *process, const struct step *steps, size_t n)
{
	struct script script = { .steps = steps, .n = (int)n };
	struct actor actors[THREADS];
	char path[] = "/tmp/spmt-parties-XXXXXX";
	FILE *file = fdopen(mkstemp(path), "w");
	spmt_uid bytes;

	cr_assert(file);
	setenv("SPMT_UID", path, 1); /* before the first call, which reads the environment */
	setenv("SPMT_PROCESS", process, 1);
	cr_assert_eq(spmt_uid_create(&bytes), 0);
	cr_assert_eq(uid_read("test", &bytes, &script.seed), 0);
	for (size_t i = 0; i < sizeof(bytes); i++)
		fprintf(file, "%02x", bytes.bytes[i]);
	fclose(file);
	for (int i = 0; i < THREADS; i++) {
		actors[i] = (struct actor){ .script = &script, .thread = i };
		cr_assert_eq(pthread_create(&actors[i].id, NULL, acts, &actors[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(actors[i].id, NULL);
	unlink(path);
	cr_expect_eq(atomic_load(&script.turn), script.n);
}

#define PLAY(process, ...)                                  \
	play(process, (const struct step[]){ __VA_ARGS__ }, \
		sizeof((const struct step[]){ __VA_ARGS__ }) / sizeof(struct step))

/* Each is { thread, rank, nranks, world }. */
Test(parties, one_of_two_ranks_tells_no_number)
{
	PLAY("0/2", { 0, 0, 5, 1 }, { 1, 1, 4, 1 }, { 0, 0, 4, 2 }, { 1, 1, 4, 2 }, { 1, 1, -1, 3 },
		{ 0, 0, 4, 3 }, { 0, 0, 4, 4 }, { 1, 1, 4, 4 });
}

Test(parties, its_next_call_comes_before_the_others_first)
{
	PLAY("0/2", { 0, 0, 5, 1 }, { 0, 0, 4, 2 }, { 1, 1, 4, 1 }, { 1, 1, 4, 2 });
}

Test(parties, ranks_of_a_later_process)
{
	PLAY("1/2", { 0, 2, 5, 1 }, { 0, 2, 4, 2 }, { 1, 3, 4, 1 }, { 1, 3, 4, 2 }, { 1, 3, -1, 3 },
		{ 1, 3, -1, 4 }, { 0, 2, 40000, 3 }, { 0, 2, 4, 4 }, { 0, 2, 4, 5 },
		{ 1, 3, 4, 5 });
}

Test(parties, both_tell_no_number)
{
	PLAY("0/2", { 0, 0, 5, 1 }, { 1, 1, 5, 1 }, { 0, 0, 4, 2 }, { 1, 1, 4, 2 },
		{ 0, 0, 40000, 3 }, { 1, 1, 40000, 3 }, { 1, 1, 4, 4 }, { 0, 0, 4, 4 });
}

Test(parties, twice_before_the_other_comes)
{
	PLAY("0/2", { 0, 0, 5, 1 }, { 0, 0, -1, 2 }, { 1, 1, 5, 1 }, { 1, 1, 4, 2 }, { 0, 0, 4, 3 },
		{ 1, 1, 4, 3 });
}

/* With 5 ranks the one process had to have three, or two: the next world has two of each. */
Test(parties, ranks_that_are_another_processs_then)
{
	PLAY("1/2", { 0, 3, 5, 1 }, { 1, 4, 5, 1 }, { 0, 2, 4, 2 }, { 1, 3, 4, 2 });
}

Test(parties, one_rank_a_process)
{
	PLAY("0/2", { 0, 0, -1, 1 }, { 0, 0, 5, 2 }, { 0, 1, 0, 3 }, { 0, 0, 2, 4 },
		{ 0, 0, 0, 5 });
}

/* Whose rank cannot be is known by its thread. */
Test(parties, a_rank_that_cannot_be)
{
	PLAY("0/2", { 0, 1, 0, 1 }, { 0, 0, 4, 2 }, { 1, 1, 4, 1 }, { 1, 1, 4, 2 }, { 0, 9, 4, 3 },
		{ 0, -1, 4, 4 }, { 0, 0, 4, 5 }, { 1, 1, 4, 3 }, { 1, 1, 4, 4 }, { 1, 1, 4, 5 });
}

/* Of a process that has one rank, all are that one's, whatever they pass. */
Test(parties, one_thread_with_many_ranks)
{
	PLAY("1/3", { 0, 1, 5, 1 }, { 0, 0, 2, 2 }, { 0, 1, 3, 3 }, { 0, 1, 6, 4 }, { 0, 1, 0, 5 },
		{ 0, 0, -3, 6 }, { 0, -1, 3, 7 }, { 0, 0, 0, 8 });
}

/* A call by which a process had more ranks waits for none of those. */
Test(parties, one_passes_too_many)
{
	PLAY("0/2", { 0, 0, 8, 1 }, { 1, 1, 4, 1 }, { 1, 1, 4, 2 }, { 0, 0, 8, 2 }, { 3, 3, 8, 3 },
		{ 2, 2, 8, 3 }, { 1, 1, 8, 3 }, { 0, 0, 8, 3 }, { 0, 0, 4, 4 }, { 1, 1, 4, 4 });
}

/* The first of process 1 leaves its rank to the job, which is its place in both worlds. */
Test(parties, smaller_worlds_between)
{
	PLAY("1/2", { 0, 2, 4, 1 }, { 0, 0, 0, 2 }, { 1, 3, 4, 1 }, { 0, 1, 2, 3 }, { 1, 3, 4, 4 },
		{ 0, 2, 4, 4 });
}
