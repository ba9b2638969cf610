/* SPDX-License-Identifier: MIT */
/* Streams of the host runtime from many threads at once, as a plain TAP program: it is what runs under ThreadSanitizer. */
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/status.h"
#include "src/device/host/host.h"

#define THREADS 8
#define ROUNDS 40
#define WORDS ((size_t)1024)
#define SECOND 1000000000ll

static const struct backend *const b = &backend_host;

/* A failed step ends its thread; the first one is printed. */
struct run {
	_Atomic int failures;
	uint64_t *memory[THREADS]; /* of device i */
	pthread_barrier_t barrier;
};

struct job {
	struct run *run;
	int index;
};

static bool step(struct run *run, int rc, const char *what)
{
	if (!rc)
		return true;
	if (!atomic_fetch_add(&run->failures, 1))
		printf("# %s: %d: %s\n", what, rc, status_sentence());
	return false;
}

static bool check(struct run *run, bool right, const char *what)
{
	if (!right && !atomic_fetch_add(&run->failures, 1))
		printf("# wrong: %s\n", what);
	return right;
}

/* ---- each thread writes to its neighbour's memory, round a ring, through streams that come and go */

static void ring_round(struct run *run, int i, int round, uint64_t *mine, device_event e)
{
	uint64_t *to = run->memory[(i + 1) % THREADS], base = (uint64_t)round * THREADS;
	device_stream s = NULL, t = NULL;
	size_t k;

	for (k = 0; k < WORDS; k++)
		mine[k] = base + (uint64_t)i;
	if (!step(run, b->stream_create(i, &s), "stream_create") ||
		!step(run, b->stream_create(i, &t), "stream_create"))
		return;
	step(run, b->copy(i, to, mine, WORDS * 8, s), "copy");
	step(run, b->event_record(i, e, s), "event_record");
	step(run, b->stream_wait_event(i, t, e), "stream_wait_event");
	step(run, b->copy(i, mine, to, WORDS * 8, t), "copy back");
	step(run, b->stream_sync(i, t, 20 * SECOND, NULL), "stream_sync");
	check(run, mine[0] == base + (uint64_t)i && mine[WORDS - 1] == base + (uint64_t)i,
		"copied back");
	pthread_barrier_wait(&run->barrier);
	check(run, run->memory[i][WORDS / 2] == base + (uint64_t)((i + THREADS - 1) % THREADS),
		"from the left");
	pthread_barrier_wait(&run->barrier);
	step(run, b->stream_destroy(i, s), "stream_destroy");
	step(run, b->stream_destroy(i, t), "stream_destroy");
}

static void *ring(void *arg)
{
	struct job *job = arg;
	uint64_t *mine = malloc(WORDS * 8);
	device_event e = NULL;
	int round;

	step(job->run, b->event_create(job->index, &e), "event_create");
	for (round = 0; round < ROUNDS; round++)
		ring_round(job->run, job->index, round, mine, e);
	step(job->run, b->event_destroy(job->index, e), "event_destroy");
	free(mine);
	return NULL;
}

/* ---- one stream of device 0, fed by all threads */

static void count(void *arg)
{
	++*(uint64_t *)arg; /* plain: a stream runs one piece of work at a time */
}

static void *feed(void *arg)
{
	struct job *job = arg;
	int i;

	for (i = 0; i < ROUNDS * 10; i++)
		step(job->run, b->call(0, DEVICE_STREAM_LEGACY, count, job->run->memory[0]),
			"call");
	step(job->run, b->stream_sync(0, DEVICE_STREAM_LEGACY, 20 * SECOND, NULL), "stream_sync");
	return NULL;
}

/* ---- the same, of work that whoever waits may do */

/* Long enough for a second thread to be seen. */
static void count_own(const void *args)
{
	uint64_t *at = *(uint64_t *const *)args, value = *at;

	sched_yield();
	*at = value + 1;
}

static void *wait_all(void *arg)
{
	static const struct kernel own = { .name = "own", .host = count_own, .bounded = true };
	struct job *job = arg;
	void *at = job->run->memory[0];

	for (int i = 0; i < ROUNDS * 10; i++) {
		step(job->run, b->launch(0, DEVICE_STREAM_LEGACY, &own, 1, 1, &at, sizeof(at)),
			"launch");
		if (i % 8 == job->index)
			step(job->run, b->call(0, DEVICE_STREAM_LEGACY, count, at), "call");
		if (i % 3)
			step(job->run, b->stream_sync(0, DEVICE_STREAM_LEGACY, 20 * SECOND, NULL),
				"stream_sync");
	}
	step(job->run, b->stream_sync(0, DEVICE_STREAM_LEGACY, 20 * SECOND, NULL), "stream_sync");
	return NULL;
}

/* ---- memory comes and goes while copies look addresses up */

static void *churn(void *arg)
{
	struct job *job = arg;
	void *range, *ptr;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		if (!step(job->run, b->alloc(job->index, 10000, DEVICE_MEMORY_PLAIN, &ptr),
			    "alloc") ||
			!step(job->run, b->vmm->reserve((size_t)8 << 20, 4096, &range),
				"reserve") ||
			!step(job->run, b->vmm->commit(job->index, range, (size_t)2 << 20, NULL, 0),
				"commit"))
			return NULL;
		step(job->run, b->fill(job->index, range, i, 10000, DEVICE_STREAM_PER_THREAD),
			"fill");
		step(job->run, b->copy(job->index, ptr, range, 10000, DEVICE_STREAM_PER_THREAD),
			"copy");
		step(job->run,
			b->stream_sync(job->index, DEVICE_STREAM_PER_THREAD, 20 * SECOND, NULL),
			"stream_sync");
		check(job->run, ((unsigned char *)ptr)[9999] == i, "what was filled");
		step(job->run, b->vmm->decommit(job->index, range, (size_t)2 << 20), "decommit");
		step(job->run, b->vmm->unreserve(range, (size_t)8 << 20), "unreserve");
		step(job->run, b->free(job->index, ptr), "free");
	}
	return NULL;
}

static void threads(struct run *run, void *(*fn)(void *arg))
{
	struct job jobs[THREADS];
	pthread_t ids[THREADS];
	int i;

	for (i = 0; i < THREADS; i++)
		memset(run->memory[i], 0, WORDS * 8);
	for (i = 0; i < THREADS; i++) {
		jobs[i] = (struct job){ run, i };
		if (pthread_create(&ids[i], NULL, fn, &jobs[i]))
			exit(2);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
}

static bool prepare(struct run *run)
{
	void *ptr;
	int i, j;

	if (!step(run, b->load(), "load"))
		return false;
	for (i = 0; i < THREADS; i++) {
		if (!step(run, b->open(i), "open") ||
			!step(run, b->alloc(i, WORDS * 8, DEVICE_MEMORY_SYMMETRIC, &ptr), "alloc"))
			return false;
		run->memory[i] = ptr;
		for (j = 0; j < THREADS; j++)
			step(run, b->peer_enable(i, j), "peer_enable");
	}
	return true;
}

static int report(struct run *run, int number, const char *what)
{
	int bad = atomic_exchange(&run->failures, 0);

	printf("%sok %d - %s\n", bad ? "not " : "", number, what);
	return bad;
}

int main(void)
{
	static struct run run;
	int i, bad;

	printf("1..5\n");
	setenv("SPMT_HOST_DEVICES", "8", 1);
	pthread_barrier_init(&run.barrier, NULL, THREADS);
	if (!prepare(&run))
		return 1;
	bad = report(&run, 1, "devices are open");
	threads(&run, ring);
	bad += report(&run, 2, "a ring of copies");
	threads(&run, feed);
	check(&run, *run.memory[0] == THREADS * ROUNDS * 10, "each call counted once");
	bad += report(&run, 3, "one stream fed by all");
	threads(&run, wait_all);
	check(&run, *run.memory[0] == THREADS * ROUNDS * 10 + ROUNDS * 10,
		"each piece of work counted once");
	bad += report(&run, 4, "one stream served by all");
	threads(&run, churn);
	for (i = 0; i < THREADS; i++) {
		step(&run, b->free(i, run.memory[i]), "free");
		b->close(i);
	}
	bad += report(&run, 5, "memory comes and goes");
	pthread_barrier_destroy(&run.barrier);
	return bad != 0;
}
