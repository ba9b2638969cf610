/* SPDX-License-Identifier: MIT */
/* stuck one|two|init [DEADLINE_MS]: a program to be looked at by `spmt-info --waits`: its ranks stand still, each somewhere else, until it is killed or 100 s are over. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "spmt/control/control.h"

enum { RANKS = 5, SECONDS = 100 };

/* A part gives up before its world does. */
static int stands(spmt_comm *comm, uint64_t *words, int64_t ms)
{
	spmt_comm *part;
	double real = 2.5;
	int rc = spmt_split(comm, spmt_rank(comm) % 2, -spmt_rank(comm), &part);

	if (!rc)
		rc = spmt_set_timeout(part, ms - ms / 3);
	if (rc)
		return rc;
	switch (spmt_rank(comm)) {
	case 0:
		return spmt_barrier(comm);
	case 1:
		return spmt_signal_wait(comm, words + 1, SPMT_CMP_GE, 7, NULL);
	case 2:
		return spmt_malloc(part, 64, (void **)&words);
	case 3:
		rc = spmt_signal_wait_on_stream(comm, words, SPMT_CMP_EQ, 1, NULL);
		return rc ? rc
			  : spmt_wait_until(comm, SPMT_TYPE_F64, words + 2, SPMT_CMP_GT, &real);
	default:
		return (int)sleep(SECONDS);
	}
}

static void *rank(void *attr)
{
	spmt_comm *comm;
	void *words;
	int rc = spmt_init(attr, &comm);

	if (!rc)
		rc = spmt_calloc(comm, 8, sizeof(uint64_t), &words);
	if (!rc)
		rc = stands(comm, words, ((struct spmt_attr *)attr)->timeout_ms);
	fprintf(stderr, "stuck: %s\n", rc ? spmt_last_error() : "nothing held it");
	return NULL;
}

/* Ranks first .. last - 1. */
static int process(const spmt_uid *uid, int first, int last, int64_t ms)
{
	struct spmt_attr attrs[RANKS];
	pthread_t threads[RANKS];

	for (int r = first; r < last; r++) {
		attrs[r] = (struct spmt_attr)SPMT_ATTR_INIT;
		attrs[r].rank = r;
		attrs[r].nranks = RANKS;
		attrs[r].backend = "host";
		attrs[r].heap_size = 1 << 20;
		attrs[r].uid = uid;
		attrs[r].timeout_ms = ms;
		if (pthread_create(&threads[r], NULL, rank, &attrs[r]))
			return 1;
	}
	for (int r = first; r < last; r++)
		pthread_join(threads[r], NULL);
	return 0;
}

/* A control block that is none, or no longer: what the kind says, and `seed` says which noise. */
static int forged(const char *kind, long seed)
{
	size_t size = 1 << 20,
	       at = strcmp(kind, "short") ? 0 : size - sizeof(struct control) - 4096;
	char *room = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct control *control = (void *)(room + (at & ~(size_t)4095));
	bool noise = !strcmp(kind, "noise");

	if (room == MAP_FAILED || madvise(room, size, MADV_WIPEONFORK))
		return 1;
	srand48(seed);
	for (size_t i = 0; noise && i < size; i++)
		room[i] = (char)(mrand48() >> 8);
	control_begin(control, strcmp(kind, "short") ? 3 : 30000, 42);
	atomic_store(&control->mark.moved, 0);
	for (int i = 0; noise && i < 3 * WAITS_MOST; i++) {
		struct waiting *w = &control->rows[i / WAITS_MOST].waits[i % WAITS_MOST];

		atomic_store(&w->state, 2);
		if (mrand48() & 1)
			atomic_store(&w->until, 0);
		if (mrand48() & 1)
			atomic_store(&w->part, (uint64_t)(lrand48() & 0x3ffff) / 64 * 64);
	}
	if (!strcmp(kind, "version"))
		control->mark.version++;
	if (!strcmp(kind, "cell"))
		control->mark.row += 64;
	if (!strcmp(kind, "none"))
		control->nranks = 0;
	if (!strcmp(kind, "many"))
		control->nranks = 0xffffffff;
	if (!strcmp(kind, "moved"))
		atomic_store(&control->mark.moved, 1);
	fprintf(stderr, "made\n");
	return (int)sleep(SECONDS);
}

int main(int argc, char **argv)
{
	spmt_uid uid;
	int64_t ms;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (argc == 4 && !strcmp(argv[1], "forged"))
		return forged(argv[2], atol(argv[3]));
	if (argc < 2 || argc > 3 || spmt_uid_create(&uid))
		return 2;
	ms = argc > 2 ? atol(argv[2]) : SECONDS * 1000;
	if (!strcmp(argv[1], "one"))
		return process(&uid, 0, RANKS, ms);
	if (!strcmp(argv[1], "init"))
		return process(&uid, 0, 2, ms);
	if (strcmp(argv[1], "two") != 0)
		return 2;
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		return process(&uid, 3, RANKS, ms);
	}
	ms = process(&uid, 0, 3, ms);
	sleep(SECONDS); /* the other process ends with this one */
	return (int)ms;
}
