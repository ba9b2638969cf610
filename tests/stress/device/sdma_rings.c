/* SPDX-License-Identifier: MIT */
/*
 * Rings of packets from many threads at once: random copies through the rings of virtual devices, whose engines are software and read
 * these very packets, beside a model in plain memory. Every format, spans that meet the end of the ring, rings that are full.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/status.h"
#include "tests/lib/patterns.h"
#include "transports/sdma/ring.h"

enum { DEVICES = 4, THREADS = 6, AREA = 1 << 16, COPIES = 64, SECONDS = 60 };

static struct sdma_ring *rings[DEVICES];

struct worker {
	pthread_t thread;
	int index, rounds;
	uint64_t seed;
	unsigned char *src, *dst, *model; /* AREA each */
	struct sdma_span spans[DEVICES];
	char wrong[256];
};

static int complain(struct worker *w, const char *what, int rc)
{
	snprintf(w->wrong, sizeof(w->wrong), "thread %d: %s: %d, %.128s", w->index, what, rc,
		status_sentence());
	return 1;
}

static int wait_for(const struct sdma_ring *r, uint64_t ticket)
{
	int rc;

	while (!(rc = sdma_ring_query(r, ticket)))
		sched_yield();
	return rc;
}

/* Pieces of one area that do not overlap, so that rings may race: random in place, size and ring. */
static int copy_some(struct worker *w)
{
	const size_t step = AREA / COPIES;
	int used = 0;

	for (size_t i = 0; i < COPIES; i++) {
		size_t n = 1 + random_next(&w->seed) % (step - 1);
		size_t at = i * step + random_next(&w->seed) % (step - n);
		size_t from = random_next(&w->seed) % (AREA - n);
		int dev = (int)(random_next(&w->seed) % DEVICES);
		int rc = sdma_ring_copy(rings[dev], w->dst + at, w->src + from, n,
			SECONDS * 1000000000ll, NULL, &w->spans[dev]);

		if (rc)
			return complain(w, "copy", rc);
		memcpy(w->model + at, w->src + from, n);
		used |= 1 << dev;
	}
	for (int dev = 0; dev < DEVICES; dev++) {
		int rc = used >> dev & 1 ? wait_for(rings[dev], w->spans[dev].end) : 1;

		if (rc != 1)
			return complain(w, "wait", rc);
	}
	return memcmp(w->dst, w->model, AREA) ? complain(w, "wrong bytes", 0) : 0;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int round = 0; round < w->rounds; round++) {
		for (size_t i = 0; i < AREA; i++)
			w->src[i] = (unsigned char)(random_next(&w->seed) >> 24);
		if (copy_some(w))
			return w->wrong;
	}
	return NULL;
}

static const char *run(struct worker *workers, int rounds)
{
	const char *wrong = "";

	for (int i = 0; i < THREADS; i++) {
		struct worker *w = &workers[i];

		w->index = i;
		w->rounds = rounds;
		w->seed = (uint64_t)i * 7919 + 1;
		w->src = malloc(AREA);
		w->dst = calloc(1, AREA);
		w->model = calloc(1, AREA);
		if (!w->src || !w->dst || !w->model)
			return "no memory";
		if (pthread_create(&w->thread, NULL, work, w))
			return "no thread";
	}
	for (int i = 0; i < THREADS; i++) {
		void *said;

		pthread_join(workers[i].thread, &said);
		if (said)
			wrong = said;
		free(workers[i].src);
		free(workers[i].dst);
		free(workers[i].model);
	}
	return wrong;
}

/* What the counters have to say when all is done: everything was told, read and completed. */
static const char *at_rest(void)
{
	for (int dev = 0; dev < DEVICES; dev++) {
		const struct sdma_queue *q = rings[dev]->queue;
		uint64_t end = atomic_load(&rings[dev]->reserved), done = atomic_load(q->completed);

		if (atomic_load(&rings[dev]->doorbell) != end || atomic_load(q->write) != end)
			return "not all was told";
		while (atomic_load(q->read) !=
			end) /* the last packet has been done, its end not yet */
			sched_yield();
		if (q->format.atomics ? done != end : (uint32_t)done != (uint32_t)end)
			return "not all was completed";
	}
	return "";
}

static int report(int number, const char *what, const char *wrong)
{
	printf("%sok %d - %s%s%s\n", *wrong ? "not " : "", number, what, *wrong ? " # " : "",
		wrong);
	return *wrong != 0;
}

int main(void)
{
	static struct worker workers[THREADS];
	int bad = 0, rounds = getenv("SPMT_TEST_LONG") ? 2000 : 60;

	printf("1..2\n");
	for (int dev = 0; dev < DEVICES; dev++)
		if (backend_host.load() ||
			sdma_ring_open(&backend_host, dev, (dev + 1) % DEVICES, &rings[dev])) {
			printf("Bail out! %s\n", status_sentence());
			return 1;
		}
	bad += report(1, "all threads on all rings at once", run(workers, rounds));
	bad += report(2, "nothing is left in the rings", at_rest());
	for (int dev = 0; dev < DEVICES; dev++)
		sdma_ring_close(rings[dev]);
	return bad != 0;
}
