/* SPDX-License-Identifier: MIT */
/*
 * Completing a future goes on with the program that waits for it, on the thread that completes it: until its next call of ours,
 * its end, or for as long as it blocks in a collective of XLA's own, which waits for the other devices. So nobody completes one
 * inside a call of XLA's, whose device would be missing there, and each has a thread in the end that may block.
 *
 * To wake a thread takes longer than most programs to their next call. So one worker does all, one after the other, while
 * each is brief. Where nobody has taken anything for a while, the watch wakes another one. Once that or works that took long have
 * come several times, and not only as a thread lost its CPU, whoever takes one of several wakes or makes another thread for the
 * rest, until all have been brief for long.
 */
#include "bindings/jax/work.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { WORKERS_MAX = 1024, IDLE_LOOKS = 100 };
enum { LONG_ONE = 8, LONG_SPREADS = 32, LONG_MOST = 256 }; /* of work_queue.longs */
enum { BRIEF_NS = 50000, WATCH_NS = 200000 };

static struct {
	pthread_mutex_t lock; /* guards all of it */
	pthread_cond_t came, look;
	struct work *first, **last;
	int workers, idle, woken;
	bool watch, asleep; /* the watch is there; it waits for work */
	bool spread;	    /* each that is queued gets a thread */
	unsigned taken;	    /* so far */
	int longs; /* LONG_ONE up with each that took long, one down with each that was brief */
} work_queue = { .lock = PTHREAD_MUTEX_INITIALIZER,
	.came = PTHREAD_COND_INITIALIZER,
	.last = &work_queue.first };

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct work *take(void)
{
	struct work *work = work_queue.first;

	work_queue.first = work->next;
	if (!work_queue.first)
		work_queue.last = &work_queue.first;
	work_queue.taken++;
	return work;
}

static void *worker(void *unused);

/* Under the lock: one more thread for what is queued. Without new ones those that there are do it. */
static void wake(void)
{
	if (work_queue.woken < work_queue.idle) {
		work_queue.woken++;
		pthread_cond_signal(&work_queue.came);
	} else if (!work_queue.woken && work_queue.workers < WORKERS_MAX && !work_thread(worker)) {
		work_queue.workers++;
	}
}

/* Under the lock, where something is queued or was taken: wakes a thread more if what is queued wants one. */
static void wake_wanted(void)
{
	if (!work_queue.first)
		return;
	if (work_queue.spread || (work_queue.idle == work_queue.workers && !work_queue.woken))
		wake();
	else if (work_queue.asleep)
		pthread_cond_signal(&work_queue.look);
}

/* Under the lock. */
static void work_count(bool took_long)
{
	int longs = work_queue.longs + (took_long ? LONG_ONE : -1);

	work_queue.longs = longs < 0 ? 0 : longs > LONG_MOST ? LONG_MOST : longs;
	if (work_queue.longs >= LONG_SPREADS || !work_queue.watch)
		work_queue.spread = true;
	else if (!work_queue.longs)
		work_queue.spread = false;
}

/* A worker may be blocked in what it does, with more behind it. */
static void *watch(void *unused)
{
	unsigned taken = 0, idle = 0;
	bool waits = false; /* something is queued, and nothing was taken since the last look */

	pthread_mutex_lock(&work_queue.lock);
	for (;;) {
		bool waited = waits;
		int64_t until = now_ns() + WATCH_NS;
		struct timespec t = { until / 1000000000, until % 1000000000 };

		work_queue.asleep = idle >= IDLE_LOOKS;
		if (work_queue.asleep)
			pthread_cond_wait(&work_queue.look, &work_queue.lock);
		else
			pthread_cond_timedwait(&work_queue.look, &work_queue.lock, &t);
		waits = work_queue.first && work_queue.taken == taken;
		if (waits && waited) {
			work_count(true);
			wake();
		}
		idle = work_queue.first || work_queue.taken != taken ? 0 : idle + 1;
		taken = work_queue.taken;
	}
	return unused;
}

void work_cond(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

static void watch_start(void)
{
	work_cond(&work_queue.look);
	work_queue.watch = !work_thread(watch);
	work_queue.spread = !work_queue.watch;
}

/* Under the lock, which it lets go. */
static void work_do(struct work *work)
{
	int64_t begin, took;

	pthread_mutex_unlock(&work_queue.lock);
	begin = now_ns();
	work->fn(work->arg);
	took = now_ns() - begin;
	pthread_mutex_lock(&work_queue.lock);
	work_count(took > BRIEF_NS);
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
		wake_wanted();
		work_do(work);
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
		if (!rc)
			watch_start();
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
	wake_wanted();
	pthread_mutex_unlock(&work_queue.lock);
}
