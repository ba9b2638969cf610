/* SPDX-License-Identifier: MIT */
/*
 * Private to spmt-perf: a world whose ranks live in several processes. The process that was started holds no rank: it
 * starts itself anew for each process of the layout, and all talk over one socket each. What they say goes nowhere else:
 * a uid holds the world's secret.
 */
#ifndef SPMT_PERF_LAUNCH_H
#define SPMT_PERF_LAUNCH_H

#include <sys/types.h>

#include "perf.h"

/* To each process, first of all. */
struct job {
	struct options opt;
	int index; /* of the process in the layout */
	pid_t parent;
};

/* From a process. READY asks for a uid, which comes when all processes have asked: so they also wait for each other. */
struct said {
	enum { SAID_READY, SAID_FIGURE, SAID_INIT } kind;
	struct figure figure;
	int64_t begin, end; /* of init; one clock for all */
};

/* spmt-perf-launch.c: does opt's tests in processes of opt's layout; figures in the order in which they come. An exit code. */
int launch(const struct options *opt, void (*emit)(void *ctx, const struct figure *f), void *ctx);
/* The first init of `rounds` worlds of fresh processes, and the same from the start of the processes on. */
int launch_init(
	const struct options *opt, void (*emit)(void *ctx, const struct figure *f), void *ctx);

/* ---- in one of the processes: spmt-perf-member.c */

struct member {
	int fd;
	struct job job;
};

/* Reads the job from fd. False: there is none, or its sender is gone. */
bool member_open(struct member *m, int fd);
/* As spmt_run, for the ranks of this process. */
int member_run(struct member *m, const struct spmt_attr *common, int (*fn)(spmt_comm *, void *),
	void *arg);
int member_init(struct member *m);
void member_emit(void *member, const struct figure *f);

#endif
