/* SPDX-License-Identifier: MIT */
/*
 * Eight threads, two a device, each with links of its own to every device: random puts and gets that are in flight at once over
 * copy queues that the pairs share, quiet, and a look at every byte. Then the same while links open and close.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/status.h"
#include "tests/lib/transports/device_links.h"
#include "transports/sdma/copy_queue.h"
#include "transports/sdma/sdma.h"

enum { DEVICES = 4, THREADS = 8, AREA = 16384, MOVES = 24, MOST = 2048 };

static struct links sets[2]; /* as of two worlds */

struct worker {
	pthread_t thread;
	int index, rounds;
	bool churn; /* let go of the copy queues between rounds */
	uint64_t seed;
	unsigned char model[DEVICES][AREA]; /* what this thread has put to each device */
	unsigned char back[DEVICES][AREA];
	char wrong[128];
};

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Each thread owns an area in every device's memory, and one for what it sends. */
static char *area(struct links *set, int dev, int index)
{
	return set->mem[dev] + (size_t)index * AREA;
}

static int complain(struct worker *w, const char *what, int to)
{
	snprintf(w->wrong, sizeof(w->wrong), "thread %d, device %d: %s: %s", w->index, to, what,
		status_sentence());
	return 1;
}

/* Pieces that do not overlap, in random order and of random size, put and read back with nothing waited for but quiet. */
static int put_some(struct worker *w, struct links *set, int to)
{
	struct link *link = links_at(set, w->index % DEVICES, to);
	char *src = area(set, w->index % DEVICES, THREADS + w->index);
	size_t step = AREA / MOVES;
	int rc = 0;

	for (int i = 0; i < MOVES && !rc; i++) {
		size_t n = 1 + random_next(&w->seed) % (step - 1);
		size_t at = (size_t)i * step + random_next(&w->seed) % (step - n);

		for (size_t k = 0; k < n; k++)
			src[at + k] = (char)random_next(&w->seed);
		memcpy(w->model[to] + at, src + at, n);
		rc = links_put(links_sdma(link), area(set, to, w->index) + at, src + at, n,
			MOVE_NBI, NULL);
	}
	if (!rc)
		rc = links_quiet(links_sdma(link));
	return rc ? complain(w, "put", to) : 0;
}

static int get_all(struct worker *w, struct links *set)
{
	int me = w->index % DEVICES, rc = 0;

	for (int to = 0; to < DEVICES && !rc; to++)
		for (size_t at = 0, n; at < AREA && !rc; at += n) {
			n = 1 + random_next(&w->seed) % MOST;
			n = n < AREA - at ? n : AREA - at;
			rc = links_get(links_sdma(links_at(set, me, to)), w->back[to] + at,
				area(set, to, w->index) + at, n, MOVE_NBI, NULL);
		}
	for (int to = 0; to < DEVICES && !rc; to++)
		rc = links_quiet(links_sdma(links_at(set, me, to)));
	if (rc)
		return complain(w, "get", -1);
	for (int to = 0; to < DEVICES; to++)
		if (memcmp(w->back[to], w->model[to], AREA))
			return complain(w, "wrong bytes", to);
	return 0;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct links *set = &sets[w->index / DEVICES];
	int me = w->index % DEVICES;

	for (int round = 0; round < w->rounds; round++) {
		for (int k = 0; k < DEVICES; k++)
			if (put_some(w, set, (k + w->index) % DEVICES))
				return w->wrong;
		if (get_all(w, set))
			return w->wrong;
		for (int to = 0; w->churn && to < DEVICES; to++)
			mover_sdma.close(links_sdma(links_at(set, me, to)));
	}
	return NULL;
}

/* What one thread has to complain of, in workers that the caller frees; "" if none. */
static const char *run(struct worker *workers, bool churn, int rounds)
{
	const char *wrong = "";
	void *said;

	for (int i = 0; i < THREADS; i++) {
		struct worker *w = &workers[i];

		w->index = i;
		w->rounds = rounds;
		w->churn = churn;
		w->seed = (uint64_t)i + 1;
		for (int dev = 0; dev < DEVICES; dev++)
			memset(area(&sets[i / DEVICES], dev, i), 0, AREA);
		if (pthread_create(&w->thread, NULL, work, w))
			return "no thread";
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, &said);
		if (said)
			wrong = said;
	}
	return wrong;
}

static int report(int number, const char *what, const char *wrong)
{
	printf("%sok %d - %s%s%s\n", *wrong ? "not " : "", number, what, *wrong ? " # " : "",
		wrong);
	return *wrong != 0;
}

int main(void)
{
	struct worker *workers = calloc(2 * THREADS, sizeof(*workers));
	int bad = 0, rounds = getenv("SPMT_TEST_LONG") ? 1000 : 40;
	char live[64] = "";

	printf("1..3\n");
	for (int i = 0; i < 2; i++)
		if (!workers || links_open(&sets[i], &backend_host, DEVICES, 2 * THREADS * AREA)) {
			printf("Bail out! %s\n", status_sentence());
			free(workers);
			return 1;
		}
	bad += report(1, "all pairs at once, two links a copy queue", run(workers, false, rounds));
	bad += report(2, "copy queues made and freed all the while",
		run(workers + THREADS, true, rounds));
	for (int i = 0; i < 2; i++)
		links_close(&sets[i]);
	if (copy_queues_live())
		snprintf(live, sizeof(live), "%zu live", copy_queues_live());
	bad += report(3, "no copy queue is left", live);
	free(workers);
	return bad != 0;
}
