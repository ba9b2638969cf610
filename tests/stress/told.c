/* SPDX-License-Identifier: MIT */
/* Collectives that end with their world, at any moment: what quiet calls done is right, and buffers are freed as soon as it has
   returned, whatever it said. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { RANKS = 3 };

static const size_t counts[] = { 3000, 7, 20000 };

/* A sum, or what all give: with SPMT_COLL=engine copy engines alone move that. */
struct turn {
	uint32_t *dst, *src;
	size_t count;
	bool gathers;
};

static int turn_make(struct turn *t, int rank, uint32_t nth)
{
	t->count = counts[nth % 3];
	t->gathers = nth % 4 > 1;
	t->dst = malloc((t->gathers ? RANKS : 1) * t->count * sizeof(*t->dst));
	t->src = malloc(t->count * sizeof(*t->src));
	if (!t->dst || !t->src)
		return ranks_fail("no memory for %zu elements", t->count);
	for (size_t i = 0; i < t->count; i++)
		t->src[i] = (uint32_t)rank + (uint32_t)i + nth;
	memset(t->dst, 0, (t->gathers ? RANKS : 1) * t->count * sizeof(*t->dst));
	return 0;
}

static int gathered_check(const struct turn *t, uint32_t nth)
{
	for (size_t i = 0; i < RANKS * t->count; i++)
		if (t->dst[i] != (uint32_t)(i / t->count) + (uint32_t)(i % t->count) + nth)
			return ranks_fail("element %zu of %d times %zu is %u behind a 0", i, RANKS,
				t->count, t->dst[i]);
	return 0;
}

static int exclusive_check(const struct turn *t, uint32_t nth)
{
	for (size_t i = 0; i < t->count; i++)
		if (t->dst[i] != RANKS * (RANKS - 1) / 2 + RANKS * ((uint32_t)i + nth))
			return ranks_fail(
				"element %zu of %zu is %u behind a 0", i, t->count, t->dst[i]);
	return 0;
}

/* The code that ended the turn, or a failure of the test; nobody has the buffers any more. */
static int turn(spmt_comm *comm, uint32_t nth, spmt_stream stream)
{
	struct turn t = { NULL, NULL, 0, false };
	int rc = turn_make(&t, spmt_rank(comm), nth);

	if (!rc)
		rc = t.gathers ? spmt_all_gather(comm, t.dst, t.src, t.count, SPMT_TYPE_U32, stream)
			       : spmt_all_reduce(comm, t.dst, t.src, t.count, SPMT_TYPE_U32,
					 SPMT_OP_SUM, stream);
	if (!rc && nth % 5 == 0)
		rc = spmt_barrier_on_stream(comm, stream);
	if (rc != RANKS_FAILED) {
		int end = spmt_quiet(comm);

		rc = rc ? rc : end;
	}
	if (!rc)
		rc = t.gathers ? gathered_check(&t, nth) : exclusive_check(&t, nth);
	free(t.dst);
	free(t.src);
	return rc;
}

/* ---- aborted --------------------------------------------------------------------------------------------------------------- */

static void *aborts(void *arg)
{
	static _Atomic unsigned seed = 1;
	unsigned mine = atomic_fetch_add(&seed, 1);

	usleep((useconds_t)rand_r(&mine) % 3000);
	spmt_abort(arg, -55);
	return NULL;
}

static int aborted(spmt_comm *comm, void *arg)
{
	pthread_t thread;
	spmt_stream stream;
	int rc = 0;

	(void)arg;
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0)
		REQUIRE(!pthread_create(&thread, NULL, aborts, comm));
	for (uint32_t nth = 0; !rc; nth++)
		rc = turn(comm, nth, nth % 2 ? stream : NULL);
	if (spmt_rank(comm) == 0)
		pthread_join(thread, NULL);
	if (rc == RANKS_FAILED)
		return rc;
	REQUIRE_CODE(rc, -55);
	return stream_end(comm, stream);
}

static int ends_by_abort(void)
{
	for (size_t i = 0; i < test_count(100, 3000); i++)
		TRY(ranks_run(RANKS, NULL, aborted, NULL));
	return 0;
}

/* ---- late --------------------------------------------------------------------------------------------------------------- */

/* The last rank comes when the first gives up, about. */
static int late(spmt_comm *comm, void *arg)
{
	unsigned seed = *(const unsigned *)arg;
	int rank = spmt_rank(comm), rc;

	REQUIRE_OK(spmt_set_timeout(comm, rank ? 10000 : 20));
	rc = spmt_barrier(comm);
	if (rank == RANKS - 1)
		usleep(18000 + (useconds_t)rand_r(&seed) % 4000);
	for (uint32_t nth = 0; !rc && nth < 3; nth++)
		rc = turn(comm, *(const unsigned *)arg + nth, NULL);
	if (rc == RANKS_FAILED)
		return rc;
	REQUIRE(!rc || spmt_status(comm) < 0);
	return 0;
}

static int ends_by_deadline(void)
{
	unsigned seed = 0;

	for (; seed < test_count(60, 2000); seed++)
		TRY(ranks_run(RANKS, NULL, late, &seed));
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = { { "ended by an abort", ends_by_abort },
		{ "ended by a deadline", ends_by_deadline } };

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
