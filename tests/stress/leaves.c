/* SPDX-License-Identifier: MIT */
/* The leaves from many threads at once: what is made once is made once, and nobody sees it half made. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "tests/lib/tap.h"

#define THREADS 8
#define ROUNDS 200

static pthread_barrier_t start;
static void *_Atomic slots[ROUNDS];

static void *once_environment(void *arg)
{
	const struct env *env = NULL;

	(void)arg;
	pthread_barrier_wait(&start);
	return env_get(&env) || env->host_devices < 0 || env_loaded() != env
		? NULL
		: (void *)(uintptr_t)env;
}

static void *once_nonce(void *arg)
{
	unsigned char *nonce = arg;

	pthread_barrier_wait(&start);
	return process_nonce(nonce) ? NULL : &start;
}

static void *once_state(void *arg)
{
	void *first = NULL;

	(void)arg;
	pthread_barrier_wait(&start);
	for (int i = 0; i < ROUNDS; i++) {
		_Atomic int *counter = process_state(&slots[i], 64);

		if (!counter)
			return NULL;
		atomic_fetch_add(counter, 1);
		first = first ? first : counter;
	}
	return first;
}

static void *count_faults(void *arg)
{
	size_t *fired = arg;

	pthread_barrier_wait(&start);
	for (int i = 0; i < ROUNDS; i++)
		*fired += fault_here(FAULT_ALLOC);
	return fired;
}

static void *own_sentences(void *arg)
{
	char want[32];

	snprintf(want, sizeof(want), "thread %p", arg);
	pthread_barrier_wait(&start);
	for (int i = 0; i < ROUNDS; i++) {
		fail(-1, "thread %p", arg);
		if (strcmp(status_sentence(), want))
			return NULL;
	}
	return arg;
}

/* Runs fn on all threads with args[i]; the results, NULL for a failure, in out. */
static int together(void *(*fn)(void *), void *args, size_t size, void **out)
{
	pthread_t threads[THREADS];
	int good = 1;

	for (size_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, fn, (char *)args + i * size))
			return 0;
	for (size_t i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &out[i]);
		good &= out[i] != NULL;
	}
	return good;
}

static int same(void **out)
{
	for (int i = 1; i < THREADS; i++)
		if (out[i] != out[0])
			return 0;
	return 1;
}

static int one_nonce(void **out)
{
	static const unsigned char none[16];
	unsigned char nonces[THREADS][16] = { { 0 } };
	int good = together(once_nonce, nonces, 16, out) && memcmp(nonces[0], none, 16) != 0;

	for (int i = 1; i < THREADS; i++)
		good &= !memcmp(nonces[i], nonces[0], 16);
	return good;
}

static int one_state(void **out)
{
	char names[THREADS];
	int good = together(once_state, names, 1, out) && same(out);

	for (int i = 0; good && i < ROUNDS; i++)
		good = *(_Atomic int *)slots[i] == THREADS;
	return good;
}

static int one_fault(void **out)
{
	size_t fired[THREADS] = { 0 }, sum = 0;
	int good;

	fault_arm(1u << FAULT_ALLOC, THREADS * ROUNDS / 2);
	good = together(count_faults, fired, sizeof(fired[0]), out);
	fault_disarm();
	for (int i = 0; i < THREADS; i++)
		sum += fired[i];
	return good && sum == 1 && fault_seen() == THREADS * ROUNDS;
}

int main(void)
{
	char names[THREADS];
	void *out[THREADS];
	int failed = 0;

	puts("1..5");
	if (pthread_barrier_init(&start, NULL, THREADS))
		return 1;
	failed += tap_report(1, !together(once_environment, names, 1, out) || !same(out),
		"the environment is read once");
	failed += tap_report(2, !one_nonce(out), "one nonce for all threads");
	failed += tap_report(3, !one_state(out), "one state for all threads");
	failed += tap_report(4, !one_fault(out), "one thread is hit by the fault");
	failed += tap_report(
		5, !together(own_sentences, names, 1, out), "each thread has its own sentence");
	return failed != 0;
}
