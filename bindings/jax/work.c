/* SPDX-License-Identifier: MIT */
/*
 * Completing a future goes on with the program that waits for it, on the thread that completes it: until its next call of ours,
 * its end, or for as long as it blocks in a collective of XLA's own, which waits for the other devices. So nobody completes one
 * inside a call of XLA's, whose device would be missing there, and each gets a thread that may block: whoever takes one of
 * several wakes or makes another thread for the rest.
 */
#include "bindings/jax/work.h"

#include <pthread.h>

enum { WORKERS_MAX = 1024 };

static struct {
	pthread_mutex_t lock; /* guards all of it */
	pthread_cond_t came;
	struct work *first, **last;
	int workers, idle, woken;
} work_queue = { .lock = PTHREAD_MUTEX_INITIALIZER,
	.came = PTHREAD_COND_INITIALIZER,
	.last = &work_queue.first };

static struct work *take(void)
{
	struct work *work = work_queue.first;

	if (work) {
		work_queue.first = work->next;
		if (!work_queue.first)
			work_queue.last = &work_queue.first;
	}
	return work;
}

static void *worker(void *unused);

/* Under the lock: one more thread for what is queued. Without threads what there are do it, and who brought it. */
static void wake(void)
{
	if (!work_queue.first)
		return;
	if (work_queue.woken < work_queue.idle) {
		work_queue.woken++;
		pthread_cond_signal(&work_queue.came);
	} else if (!work_queue.woken && work_queue.workers < WORKERS_MAX && !work_thread(worker)) {
		work_queue.workers++;
	}
}

static void *worker(void *unused)
{
	pthread_mutex_lock(&work_queue.lock);
	for (;;) {
		struct work *work;

		while (!work_queue.first) {
			work_queue.idle++;
			pthread_cond_wait(&work_queue.came, &work_queue.lock);
			work_queue.idle--;
			if (work_queue.woken)
				work_queue.woken--;
		}
		work = take();
		wake();
		pthread_mutex_unlock(&work_queue.lock);
		work->fn(work->arg);
		pthread_mutex_lock(&work_queue.lock);
	}
	return unused;
}

int work_thread(void *(*fn)(void *))
{
	pthread_attr_t attr;
	pthread_t thread;
	int rc = pthread_attr_init(&attr);

	if (rc)
		return -rc;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, fn, NULL);
	pthread_attr_destroy(&attr);
	return -rc;
}

int work_start(void)
{
	int rc = 0;

	pthread_mutex_lock(&work_queue.lock);
	if (!work_queue.workers) {
		rc = work_thread(worker);
		work_queue.workers += !rc;
	}
	pthread_mutex_unlock(&work_queue.lock);
	return rc;
}

void work_later(struct work *work, void (*fn)(void *arg), void *arg)
{
	*work = (struct work){ NULL, fn, arg };
	pthread_mutex_lock(&work_queue.lock);
	*work_queue.last = work;
	work_queue.last = &work->next;
	wake();
	pthread_mutex_unlock(&work_queue.lock);
}
