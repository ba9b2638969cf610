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

#include "launch.h"
#include "peers.h"

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

uint64_t *perf_word(struct rank *r, int which)
{
	return r->words + (size_t)(r->run->nranks + which) * (PERF_WORD / sizeof(uint64_t));
}

static int clock_of(struct rank *r, int pe, double *ns)
{
	uint64_t *theirs = perf_word(r, WORD_THEIR_CLOCK);
	int rc = spmt_get(r->comm, theirs, perf_word(r, WORD_CLOCK), sizeof(*ns), pe);

	return rc ? rc : spmt_copy_out(r->comm, ns, theirs, sizeof(*ns));
}

/* Whose clock counts: of pairs every sender, the slowest; of all ranks together rank 0, since all leave at once. */
static int slowest(struct rank *r, double *ns)
{
	int pairs = r->run->bench->paired ? r->run->opt->pairs : 1, rc = 0;

	*ns = 0;
	for (int p = 0; p < pairs && !rc; p++) {
		double one = 0;

		rc = clock_of(r, layout_rank(&r->run->layout, 2 * p), &one);
		*ns = one > *ns ? one : *ns;
	}
	return rc;
}

/* *ns is the same on every rank: nobody writes its clock again before all have passed the next barrier. */
static int timed(struct rank *r, perf_loop loop, size_t size, uint64_t iters, double *ns)
{
	int rc = spmt_barrier(r->comm);
	int64_t begin;
	double mine;

	if (rc)
		return rc;
	begin = perf_now();
	rc = loop(r, size, iters);
	mine = (double)(perf_now() - begin);
	if (!rc)
		rc = spmt_copy_in(r->comm, perf_word(r, WORD_CLOCK), &mine, sizeof(mine));
	if (!rc)
		rc = spmt_barrier(r->comm);
	return rc ? rc : slowest(r, ns);
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
		if (ns > (double)TRIAL_NS || n >= ITERS_MAX)
			break;
	}
	*iters = (uint64_t)((double)n * (double)ROUND_NS / (ns + 1));
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

/* The side that begins changes from round to round: the second finds warmer caches. Where rounds are odd, the median of the one
   would be of the rounds in which it was first, that of the other of those in which it was second. */
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
	struct figure f = { .ranks = run->nranks,
		.pairs = run->bench->paired ? run->opt->pairs : 0,
		.size = size,
		.unit = run->bench->unit };

	snprintf(f.test, sizeof(f.test), "%s", run->bench->name);
	snprintf(f.layout, sizeof(f.layout), "%s", run->layout.text);
	summary(run, &sides[0], size, &f.ours);
	if (sides[1].loop) {
		snprintf(f.peer_name, sizeof(f.peer_name), "%s", run->bench->peer_name);
		summary(run, &sides[1], size, &f.peer);
	}
	perf_ratio(&f);
	perf_progress(NULL, 0, 0);
	run->emit(run->ctx, &f);
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

/* Whether each may load and store all others' memory, which all have to know alike: of other nodes, or by a NIC, nobody may. */
static int agree_on_peers(struct rank *r)
{
	uint64_t *mine = perf_word(r, WORD_CLOCK), *all = perf_word(r, WORD_THEIR_CLOCK);
	int64_t yes = 0;
	int rc = spmt_query(r->comm, SPMT_CAP_HOST_ACCESS, &yes);

	for (int pe = 0; pe < r->run->nranks; pe++)
		yes = yes == 1 && spmt_ptr(r->comm, mine, pe);
	if (!rc)
		rc = spmt_copy_in(r->comm, mine, &yes, sizeof(yes));
	if (!rc)
		rc = spmt_all_reduce(r->comm, all, mine, 1, SPMT_TYPE_I64, SPMT_OP_MIN, NULL);
	if (!rc)
		rc = spmt_quiet(r->comm);
	if (!rc)
		rc = spmt_copy_out(r->comm, &yes, all, sizeof(yes));
	r->addressable = yes == 1;
	return rc;
}

static int rank_open(struct rank *r)
{
	size_t room = largest(r->run) + PERF_GUARD;
	size_t words = (size_t)(r->run->nranks + WORDS) * PERF_WORD;
	void *p = NULL;
	int rc = spmt_aligned_alloc(r->comm, 4096, room, &p);

	r->src = p;
	if (!rc)
		rc = spmt_aligned_alloc(r->comm, 4096, room, &p);
	r->dst = p;
	if (!rc)
		rc = spmt_calloc(r->comm, 1, words, &p);
	r->words = p;
	if (!rc)
		rc = agree_on_peers(r);
	if (rc)
		return rc;
	r->scratch = malloc(room);
	if (!r->scratch)
		return -ENOMEM;
	return r->addressable && r->rank == 0 ? peer_barrier_open(r) : 0;
}

static int rank_close(struct rank *r, int rc)
{
	free(r->scratch);
	if (!rc)
		rc = spmt_barrier(r->comm);
	if (!rc && r->addressable && r->rank == 0)
		peer_barrier_close(r);
	if (!rc)
		rc = spmt_free(r->comm, r->words);
	if (!rc)
		rc = spmt_free(r->comm, r->dst);
	return rc ? rc : spmt_free(r->comm, r->src);
}

static int rank_sizes(struct rank *r)
{
	int rc = 0, position = layout_position(&r->run->layout, r->rank);

	r->peer = layout_rank(&r->run->layout, position ^ 1);
	if (r->run->bench->paired && position < 2 * r->run->opt->pairs)
		r->role = position % 2 ? ROLE_RECEIVER : ROLE_SENDER;
	for (int i = 0; i < r->run->nsizes && !rc; i++)
		rc = measure(r, r->run->sizes[i]);
	return rc;
}

static int rank_main(spmt_comm *comm, void *arg)
{
	struct run *run = arg;
	struct rank r = { .run = run, .comm = comm, .rank = spmt_rank(comm) };
	int rc;

	rc = rank_open(&r);
	if (!rc)
		rc = rank_sizes(&r);
	return rank_close(&r, rc);
}

int perf_world(struct run *run)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	int rc;

	attr.backend = run->opt->backend[0] ? run->opt->backend : NULL;
	attr.heap_size = 2 * largest(run) + ((size_t)run->nranks + 64) * PERF_WORD + (4u << 20);
	rc = run->member ? member_run(run->member, &attr, rank_main, run)
			 : spmt_run(run->nranks, &attr, rank_main, run);
	perf_progress(NULL, 0, 0);
	if (run->wrong[0])
		fprintf(stderr, "spmt-perf: wrong data: %s\n", run->wrong);
	else if (rc)
		fprintf(stderr, "spmt-perf: %s with %d ranks: %s: %s\n", run->bench->name,
			run->nranks, spmt_strerror(rc), spmt_last_error());
	return rc || run->wrong[0] ? PERF_EXIT_WRONG : 0;
}
