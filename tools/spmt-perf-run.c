/* SPDX-License-Identifier: MIT */
/*
 * One world, one test: for each size verify, find out how many turns fill a round, then time rounds of ours and of the
 * peer in turn, so that both see the same weather.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "spmt-perf.h"

enum { ROUND_NS = 4000000, TRIAL_NS = 500000, ITERS_MAX = 1 << 26 };

int64_t perf_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int perf_wrong(struct rank *r, const char *fmt, ...)
{
	va_list args;

	pthread_mutex_lock(&r->run->lock);
	if (!r->run->wrong[0]) {
		va_start(args, fmt);
		vsnprintf(r->run->wrong, sizeof(r->run->wrong), fmt, args);
		va_end(args);
	}
	pthread_mutex_unlock(&r->run->lock);
	return -EILSEQ;
}

/* Whose clock counts: of pairs every sender, the slowest; of all ranks together rank 0, since all leave at once. */
static double slowest(const struct run *run)
{
	double ns = run->ns[0];

	for (int i = 0; run->bench->paired && i < 2 * run->opt->pairs; i += 2)
		if (run->ns[i] > ns)
			ns = run->ns[i];
	return ns;
}

/* *ns is the same on every rank: nobody writes run->ns again before all have passed the next barrier. */
static int timed(struct rank *r, perf_loop loop, size_t size, uint64_t iters, double *ns)
{
	int rc = spmt_barrier(r->comm);
	int64_t begin;

	if (rc)
		return rc;
	begin = perf_now();
	rc = loop(r, size, iters);
	r->run->ns[r->rank] = (double)(perf_now() - begin);
	if (!rc)
		rc = spmt_barrier(r->comm);
	if (!rc)
		*ns = slowest(r->run);
	return rc;
}

/* As many turns as take ROUND_NS, at least one. */
static int calibrate(struct rank *r, perf_loop loop, size_t size, uint64_t *iters)
{
	uint64_t n = 1;
	double ns = 0;
	int rc;

	*iters = r->run->opt->iters;
	if (*iters)
		return timed(r, loop, size, 1, &ns);
	for (;; n *= 8) {
		rc = timed(r, loop, size, n, &ns);
		if (rc)
			return rc;
		if (ns > TRIAL_NS || n >= ITERS_MAX)
			break;
	}
	*iters = (uint64_t)((double)n * ROUND_NS / (ns + 1));
	if (!*iters)
		*iters = 1;
	return 0;
}

struct side {
	perf_loop loop;
	uint64_t iters;
	double ns[PERF_ROUNDS_MAX]; /* a turn */
};

static int round_of(struct rank *r, struct side *s, size_t size, int i)
{
	double ns = 0;
	int rc;

	if (!s->loop)
		return 0;
	rc = timed(r, s->loop, size, s->iters, &ns);
	s->ns[i] = ns / (double)s->iters / r->run->bench->hops;
	return rc;
}

/* The side that begins changes from round to round: the second finds warmer caches. */
static int rounds(struct rank *r, struct side *sides, size_t size)
{
	int rc = 0;

	for (int s = 0; s < 2 && !rc; s++)
		if (sides[s].loop)
			rc = calibrate(r, sides[s].loop, size, &sides[s].iters);
	for (int i = 0; i < r->run->opt->rounds && !rc; i++) {
		rc = round_of(r, &sides[i % 2], size, i);
		if (!rc)
			rc = round_of(r, &sides[1 - i % 2], size, i);
	}
	return rc;
}

static void summary(const struct run *run, struct side *s, size_t size, struct spread *out)
{
	int pairs = run->bench->paired ? run->opt->pairs : 1;

	for (int i = 0; i < run->opt->rounds; i++)
		s->ns[i] = perf_convert(run->bench->unit, s->ns[i], (double)size * pairs, pairs);
	perf_spread(s->ns, run->opt->rounds, out);
}

static void publish(const struct run *run, struct side *sides, size_t size)
{
	struct figure *f = &run->figures[*run->nfigures];

	if (*run->nfigures == PERF_FIGURES)
		return;
	*f = (struct figure){ .test = run->bench->name,
		.ranks = run->nranks,
		.pairs = run->bench->paired ? run->opt->pairs : 0,
		.size = size,
		.unit = run->bench->unit };
	summary(run, &sides[0], size, &f->ours);
	if (sides[1].loop) {
		f->peer_name = run->bench->peer_name;
		summary(run, &sides[1], size, &f->peer);
	}
	perf_ratio(f);
	perf_progress(NULL, 0, 0);
	perf_print(f);
	++*run->nfigures;
}

static int measure(struct rank *r, size_t size)
{
	const struct bench *b = r->run->bench;
	struct side *sides = calloc(2, sizeof(*sides));
	int rc;

	if (!sides)
		return -ENOMEM;
	if (r->rank == 0)
		perf_progress(b->name, r->run->nranks, size);
	sides[0].loop = b->ours;
	sides[1].loop = r->addressable ? b->peer : NULL;
	rc = b->verify(r, size);
	if (!rc)
		rc = rounds(r, sides, size);
	if (!rc && r->rank == 0)
		publish(r->run, sides, size);
	free(sides);
	return rc;
}

static size_t largest(const struct run *run)
{
	size_t max = 0;

	for (int i = 0; i < run->nsizes; i++)
		max = run->sizes[i] > max ? run->sizes[i] : max;
	return max;
}

static int rank_open(struct rank *r)
{
	size_t room = largest(r->run) + PERF_GUARD;
	size_t words = (size_t)(r->run->nranks + 4) * PERF_WORD;
	int64_t value = 0;
	void *p = NULL;
	int rc = spmt_query(r->comm, SPMT_CAP_HOST_ACCESS, &value);

	r->addressable = value == 1;
	if (!rc)
		rc = spmt_aligned_alloc(r->comm, 4096, room, &p);
	r->src = p;
	if (!rc)
		rc = spmt_aligned_alloc(r->comm, 4096, room, &p);
	r->dst = p;
	if (!rc)
		rc = spmt_calloc(r->comm, 1, words, &p);
	r->words = p;
	if (rc)
		return rc;
	r->scratch = malloc(room);
	return r->scratch ? 0 : -ENOMEM;
}

static int rank_sizes(struct rank *r)
{
	int rc = 0;

	if (r->run->bench->paired && r->rank < 2 * r->run->opt->pairs)
		r->role = r->rank % 2 ? ROLE_RECEIVER : ROLE_SENDER;
	for (int i = 0; i < r->run->nsizes && !rc; i++)
		rc = measure(r, r->run->sizes[i]);
	return rc;
}

static int rank_main(spmt_comm *comm, void *arg)
{
	struct run *run = arg;
	struct rank r = { .run = run, .comm = comm, .rank = spmt_rank(comm) };
	int rc;

	r.peer = r.rank ^ 1;
	rc = rank_open(&r);
	if (!rc)
		rc = rank_sizes(&r);
	free(r.scratch);
	return rc;
}

static int world_run(struct run *run)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	int rc;

	attr.backend = run->opt->backend;
	attr.heap_size = 2 * largest(run) + ((size_t)run->nranks + 64) * PERF_WORD + (4u << 20);
	rc = spmt_run(run->nranks, &attr, rank_main, run);
	perf_progress(NULL, 0, 0);
	if (run->wrong[0])
		fprintf(stderr, "spmt-perf: wrong data: %s\n", run->wrong);
	else if (rc)
		fprintf(stderr, "spmt-perf: %s with %d ranks: %s: %s\n", run->bench->name,
			run->nranks, spmt_strerror(rc), spmt_last_error());
	return rc || run->wrong[0] ? PERF_EXIT_WRONG : 0;
}

int perf_world(struct run *run)
{
	int code = PERF_EXIT_WRONG;

	run->ns = calloc((size_t)run->nranks, sizeof(*run->ns));
	if (!run->ns)
		fprintf(stderr, "spmt-perf: out of memory\n");
	if (run->ns && !pthread_barrier_init(&run->threads, NULL, (unsigned)run->nranks)) {
		code = world_run(run);
		pthread_barrier_destroy(&run->threads);
	}
	free(run->ns);
	return code;
}
