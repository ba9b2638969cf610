/* SPDX-License-Identifier: MIT */
/* Rendezvous from many threads at once: each thread is a rank, several share a bootstrap, and some
   leave, break or knock while others join. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "spmt/bootstrap/bootstrap.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "tests/lib/tap.h"

#define PARTIES 4
#define EACH 3
#define NRANKS (PARTIES * EACH)
#define ROUNDS 30

struct world {
	struct uid uid;
	struct bootstrap *parties[PARTIES];
	struct teller {
		struct world *world;
		atomic_int told;
	} tellers[PARTIES];
	atomic_int bad;
	pthread_barrier_t barrier;
	int breakers; /* so many parties break it */
};

struct rank {
	struct world *world;
	int rank;
};

static void told(void *ctx, const struct cause *cause)
{
	struct teller *t = ctx;
	struct world *w = t->world;

	atomic_fetch_add(&t->told, 1);
	if (cause->code != -5 || strcmp(cause->sentence, "on purpose"))
		atomic_fetch_add(&w->bad, 1);
}

static int open_party(struct world *w, int i)
{
	struct bootstrap_config config = { .uid = &w->uid,
		.nranks = NRANKS,
		.rank = -1,
		.blob_size = sizeof(int),
		.control_size = 4096,
		.broken = told,
		.ctx = &w->tellers[i] };

	return bootstrap_open(&config, NULL, &w->parties[i]);
}

static int use(struct rank *r, struct bootstrap *b)
{
	struct world *w = r->world;
	const struct patience patience = { process_now(), 20000 };
	const void *blobs;
	const int *process;
	int all[PARTIES], fds[PARTIES], self, bad = 0, rc;
	void *control;

	rc = bootstrap_wait(b, &patience, &blobs, &process, &control);
	for (int i = 0; !rc && i < NRANKS; i++)
		bad += ((const int *)blobs)[i] != i * i;
	if (!rc)
		atomic_fetch_add((atomic_int *)control, 1);
	for (int round = 0; !rc && r->rank < PARTIES && round < 5; round++) {
		bad += bootstrap_processes(b, &self) != PARTIES;
		self += round;
		rc = bootstrap_exchange(b, &self, sizeof(self), 0, all, fds, 20000);
		for (int i = 0; !rc && i < PARTIES; i++)
			bad += all[i] != i + round || fds[i] < 0 || close(fds[i]);
	}
	pthread_barrier_wait(&w->barrier);
	bad += !rc && atomic_load((atomic_int *)control) != NRANKS;
	return bad + (rc != 0);
}

/* Who has said it knows; the others are told in a moment. */
static bool hears(const struct world *w, int mine)
{
	struct bootstrap *b = w->parties[mine];
	const struct patience none = { process_now(), 0 };
	int64_t end = process_now() + 10000000000ll;
	const void *blobs;
	const int *process;
	void *control;

	while (!bootstrap_wait(b, &none, &blobs, &process, &control))
		if (process_now() > end)
			return false;
		else
			usleep(1000);
	while (mine >= w->breakers && !atomic_load(&w->tellers[mine].told))
		if (process_now() > end)
			return false;
		else
			usleep(1000);
	return bootstrap_wait(b, &none, &blobs, &process, &control) == -5;
}

/* Ranks r, r + PARTIES, .. share a party; the first of them opens and closes it. */
static void *live(void *arg)
{
	struct rank *r = arg;
	struct world *w = r->world;
	const struct patience patience = { process_now(), 20000 };
	int mine = r->rank % PARTIES, square = r->rank * r->rank, bad = 0;

	if (r->rank < PARTIES)
		bad += open_party(w, mine) != 0;
	pthread_barrier_wait(&w->barrier);
	if (!w->parties[mine])
		return NULL;
	bad += bootstrap_add(w->parties[mine], r->rank, &square, &patience) != 0;
	bad += use(r, w->parties[mine]);
	if (mine < w->breakers)
		bootstrap_break(w->parties[mine], &(struct cause){ -5, 0, "on purpose" });
	if (w->breakers)
		bad += !hears(w, mine);
	pthread_barrier_wait(&w->barrier);
	if (r->rank < PARTIES)
		bootstrap_close(w->parties[mine]);
	atomic_fetch_add(&w->bad, bad);
	return NULL;
}

/* All that did not break it are told once; of several that do, the first is not, and others may have been before they could. */
static bool told_right(const struct world *w)
{
	int sum = 0;

	for (int i = 0; i < PARTIES; i++) {
		int n = atomic_load(&w->tellers[i].told);

		if (n > 1 || (!w->breakers && n) || (w->breakers && i >= w->breakers && n != 1))
			return false;
		sum += n;
	}
	return !w->breakers || sum < PARTIES;
}

static int run(int breakers)
{
	struct world w = { .breakers = breakers };
	struct rank ranks[NRANKS];
	pthread_t threads[NRANKS];
	spmt_uid uid;

	if (spmt_uid_create(&uid) || uid_read("stress", &uid, &w.uid) ||
		pthread_barrier_init(&w.barrier, NULL, NRANKS))
		return 0;
	for (int i = 0; i < PARTIES; i++)
		w.tellers[i].world = &w;
	for (int i = 0; i < NRANKS; i++) {
		ranks[i] = (struct rank){ &w, i };
		if (pthread_create(&threads[i], NULL, live, &ranks[i]))
			return 0;
	}
	for (int i = 0; i < NRANKS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&w.barrier);
	return !w.bad && told_right(&w);
}

int main(void)
{
	int good = 1, failed = 0;
	int64_t begin;

	puts("1..3");
	for (int i = 0; good && i < ROUNDS; i++)
		good = run(0);
	failed += tap_report(1, !good, "ranks join, exchange and leave");
	begin = process_now();
	for (int i = 0; good && i < ROUNDS; i++)
		good = run(PARTIES);
	failed += tap_report(
		2, !good || process_now() - begin >= 60000000000ll, "all break it at once");
	for (int i = 0; good && i < ROUNDS; i++)
		good = run(1);
	failed += tap_report(3, !good, "one breaks it, and all others are told");
	return failed != 0;
}
