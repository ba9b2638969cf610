/* SPDX-License-Identifier: MIT */
/*
 * Worlds over several processes, for tests: children forked before they use the library, a thread a rank in each, the
 * first failure of each child told through a pipe. No child outlives its parent, nor twice its
 * deadline.
 */
#ifndef TESTS_PROCESSES_H
#define TESTS_PROCESSES_H

#include <stdbool.h>
#include <sys/types.h>

#include "ranks.h"

enum { PROCESSES_MOST = 8, PROCESSES_CYCLES = 32 };

struct processes {
	const char *layout; /* "0,2|1,3": ranks 0 and 2 in one process, 1 and 3 in another */
	unsigned killed;    /* bit p: process p has to end by SIGKILL */
	int files;	    /* not 0: RLIMIT_NOFILE of the children */
	bool bare;	    /* the children have no descriptors 0, 1 and 2 */
	int seconds;	    /* not 0: the deadline of a child's ranks */
	int cycles;	    /* times that the ranks run, 0: once; uid[i] is the i-th world's */
	bool leaks;	    /* under ASan a child looks for leaks when its ranks have ended */
	struct usage slack; /* cycles: what a child may grow by after the first three */
	void (*watch)(struct processes *p); /* in the parent, while the children run */
	void *shared;			    /* for watch */
	/* set by processes_run */
	int n, nranks;
	pid_t pid[PROCESSES_MOST];
	spmt_uid uid[PROCESSES_CYCLES];
};

/* fn(rank, arg) on a thread a rank; `arg` is as it was at the fork. 0, or RANKS_FAILED with ranks_message(). */
int processes_run(struct processes *p, int (*fn)(int rank, void *arg), void *arg);
/* The same in a world of 16 MiB heaps: init, fn, finalize. Ranks of a process share devices where there are fewer. */
int processes_world(struct processes *p, int (*fn)(spmt_comm *comm, void *arg), void *arg);

/* From here on this process and its children look at memory and threads (SPMT_CHECK), unless they have made a call before. */
void processes_check(void);
/* So does fn, in worlds of three ranks: of one process, and of two. */
int processes_checked(int (*fn)(spmt_comm *comm, void *arg));
#define CHECKED_OK(fn)                           \
	do {                                     \
		NEEDS_LAYOUT("0,1,2");           \
		RANKS_OK(processes_checked(fn)); \
	} while (0)

/* In a child: which process it is, and which of its cycles; 0 in the parent. */
int processes_self(void);
int processes_cycle(void);

/* Devices for a rank each in the largest process of a layout. */
int processes_widest(const char *layout);
#define NEEDS_LAYOUT(layout) NEEDS_DEVICES(processes_widest(layout))

/* The process of a rank; ranks of that process below it. */
int processes_of(const char *layout, int rank);
int processes_position(const char *layout, int rank);

/* Memory shared by the processes, zeroed; NULL: none. */
void *processes_shared(size_t size);

#endif
