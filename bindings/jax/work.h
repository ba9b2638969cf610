/* SPDX-License-Identifier: MIT */
/* Threads of ours, which sleep while there is nothing, and what they do. */
#ifndef SPMT_XLA_WORK_H
#define SPMT_XLA_WORK_H

#include <pthread.h>

struct work {
	struct work *next;
	void (*fn)(void *arg);
	void *arg;
};

/* The first worker, so that there is one. 0 or a code. */
int work_start(void);
/* fn(arg) on a worker, beside others; *work is the queue's until fn begins. */
void work_later(struct work *work, void (*fn)(void *arg), void *arg);
/* A detached thread that runs fn(NULL). 0 or a code. */
int work_thread(void *(*fn)(void *arg));
/* A condition whose waits end by the clock that nobody sets. */
void work_cond(pthread_cond_t *cond);

#endif
