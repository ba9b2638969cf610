/* SPDX-License-Identifier: MIT */
#include "lives.h"

#include <errno.h>
#include <pthread.h>

struct life {
	_Alignas(CACHE_LINE) pthread_mutex_t mutex;
};

size_t lives_size(int processes)
{
	return (size_t)processes * sizeof(struct life);
}

static pthread_mutex_t *mutex_of(void *lives, int process)
{
	return &((struct life *)lives)[process].mutex;
}

void lives_begin(void *lives, int process)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(mutex_of(lives, process), &attr);
	pthread_mutexattr_destroy(&attr);
	/* Nobody has it yet. Not by lock: it is held beside every other lock, in no order that means
	   anything. */
	(void)pthread_mutex_trylock(mutex_of(lives, process));
}

void lives_end(void *lives, int process)
{
	pthread_mutex_unlock(mutex_of(lives, process));
}

/* Who gets it gives it back at once. Made consistent first: glibc's trylock keeps what it finds to be
   not recoverable, and would show it as held for ever. Two that look at once: one of them may see a
   dead process live, until it looks again. */
bool lives_on(void *lives, int process)
{
	int err = pthread_mutex_trylock(mutex_of(lives, process));

	if (err == EOWNERDEAD)
		pthread_mutex_consistent(mutex_of(lives, process));
	if (!err || err == EOWNERDEAD)
		pthread_mutex_unlock(mutex_of(lives, process));
	return err == EBUSY;
}
