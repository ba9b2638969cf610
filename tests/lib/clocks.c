/* SPDX-License-Identifier: MIT */
#include "clocks.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "rounds.h"

enum { NAP_NS = 2000000, LATE_NS = 3000000 };

static struct {
	_Atomic int64_t stood, nap; /* the latter: when the last nap began */
	atomic_bool watched;
} * calm; /* shared with children */

__attribute__((constructor)) static void calm_map(void)
{
	calm = mmap(NULL, sizeof(*calm), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (calm == MAP_FAILED)
		calm = NULL;
}

static int64_t overslept(int64_t now)
{
	int64_t nap = atomic_load(&calm->nap), over = now - nap - NAP_NS;

	return nap && over > LATE_NS ? over : 0;
}

static void *watch(void *unused)
{
	struct timespec nap = { .tv_nsec = NAP_NS };

	(void)unused;
	for (;;) {
		int64_t now;

		nanosleep(&nap, NULL);
		now = now_ns();
		atomic_fetch_add(&calm->stood, overslept(now));
		atomic_store(&calm->nap, now);
	}
	return NULL;
}

static void watch_start(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	atomic_store(&calm->nap, now_ns());
	pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the test's own threads */
	pthread_create(&thread, &attr, watch, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
}

int64_t calm_ns(void)
{
	int64_t now;

	if (SANITIZED || !calm)
		return now_ns();
	if (!atomic_exchange(&calm->watched, true))
		watch_start();
	now = now_ns();
	return now - overslept(now) - atomic_load(&calm->stood);
}

bool calm_says(const char *text, const char *head, double seconds, const char *tail)
{
	const char *at = strstr(text, head);
	char *end;
	double have;

	if (!at)
		return false;
	have = strtod(at + strlen(head), &end);
	return have > seconds - 0.05 && have < seconds + 4 && end[-2] == '.' &&
		strncmp(end, tail, strlen(tail)) == 0;
}

static int64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

int64_t cpu_ns(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

void sleep_ms(int ms)
{
	int64_t end = now_ns() + (int64_t)ms * 1000000, left;

	while ((left = end - now_ns()) > 0) {
		struct timespec t = { .tv_sec = left / 1000000000, .tv_nsec = left % 1000000000 };

		nanosleep(&t, NULL);
	}
}

int ms_since(int64_t begin)
{
	return (int)((calm_ns() - begin) / 1000000);
}
