/* SPDX-License-Identifier: MIT */
/* Copy engines fed by kernels as a program gets them: with SPMT_SDMA=queues and without the results are the same; in one process and in
   several, on parts of a comm; what host calls cover, and an engine that stops. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "spmt_device.h"
#include "src/base/base.h"
#include "tests/lib/device/kernel_checks.h"
#include "tests/lib/processes.h"
#include "tests/lib/ranks.h"

#define KERNELS "kernels that are C functions (tests/gpu has them as images)"

enum { ROUNDS = 12, LARGE = 700001, HALF = 1 << 20, ROOM = 2 * HALF, WORDS = 64 };

struct args {
	struct spmt_view view;
	char *own, *came;	    /* HALF bytes each of a symmetric block */
	uint64_t *sig, *back, *sum; /* symmetric */
	const void *bad;
	int *line;
	int code;
};

static void queues(void)
{
	setenv("SPMT_SDMA", "queues", 1);
}

/* None, some and many bytes, at odd places. */
static size_t bytes_of(uint32_t round)
{
	static const size_t sizes[] = { 0, 1, 7, 4096, 65, LARGE };

	return sizes[round % 6];
}

static int put(const struct args *a, size_t off, size_t n, int to, uint32_t round)
{
	const struct spmt_view *v = &a->view;

	if (round % 3 == 0)
		return spmtd_sdma_put(v, a->came + off, a->own + 2 * off, n, to);
	if (round % 3 == 1)
		return spmtd_sdma_put_warp(v, a->came + off, a->own + 2 * off, n, to);
	return spmtd_sdma_put_block(v, a->came + off, a->own + 2 * off, n, to);
}

static int told(const struct args *a, int to, uint32_t round)
{
	const struct spmt_view *v = &a->view;
	int rc;

	if (round % 3 == 0)
		rc = spmtd_sdma_signal(v, a->sig, round, SPMT_SIGNAL_SET, to);
	else if (round % 3 == 1)
		rc = spmtd_sdma_signal_warp(v, a->sig, 1, SPMT_SIGNAL_ADD, to);
	else
		rc = spmtd_sdma_signal_block(v, a->sig, round, SPMT_SIGNAL_SET, to);
	return rc ? rc : spmtd_sdma_signal(v, a->sum, round, SPMT_SIGNAL_ADD, 0);
}

static int quiet(const struct args *a, int to, uint32_t round)
{
	const struct spmt_view *v = &a->view;

	if (round % 4 == 0)
		return spmtd_sdma_quiet(v, to);
	if (round % 4 == 1)
		return spmtd_sdma_quiet_warp(v, -1);
	return round % 4 == 2 ? spmtd_sdma_quiet_block(v, to) : spmtd_quiet(v);
}

/* Data round the ring; `back` tells that the place is free again. */
static void ring(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int n = spmtd_n_pes(v), me = spmtd_my_pe(v), from = (me + n - 1) % n, to = (me + 1) % n;

	for (uint32_t round = 1; round <= ROUNDS; round++) {
		size_t size = bytes_of(round), off = round % 5;

		pattern_fill((unsigned char *)a->own + 2 * off, size, round * 100 + (unsigned)me);
		CHECK(put(a, off, size, to, round) == 0);
		CHECK(told(a, to, round) == 0);
		CHECK(spmtd_signal_wait_until(v, a->sig, SPMT_CMP_GE, round) == 0);
		CHECK(pattern_differs((unsigned char *)a->came + off, size,
			      round * 100 + (unsigned)from) == SIZE_MAX);
		CHECK(spmtd_sdma_signal(v, a->back, round, SPMT_SIGNAL_SET, from) == 0);
		CHECK(spmtd_signal_wait_until(v, a->back, SPMT_CMP_GE, round) == 0);
		CHECK(quiet(a, to, round) == 0);
	}
}

static int run_kernel(spmt_comm *comm, void (*kernel)(void *), struct args *a)
{
	int line = 0;

	a->line = &line;
	REQUIRE_OK(spmt_host_launch(comm, NULL, kernel, a, sizeof(*a)));
	REQUIRE_OK(spmt_quiet(comm));
	return line ? ranks_fail("the kernel failed at line %d", line) : 0;
}

static int get_args(spmt_comm *comm, struct args *a, char **block)
{
	void *memory;

	REQUIRE_OK(spmt_calloc(comm, 1, ROOM + 64, &memory));
	*block = memory;
	*a = (struct args){ .own = *block, .came = *block + HALF };
	a->sig = (uint64_t *)(void *)(*block + ROOM);
	a->back = a->sig + 1;
	a->sum = a->sig + 2;
	a->view.size = sizeof(a->view);
	REQUIRE_OK(spmt_view_get(comm, &a->view));
	return 0;
}

static int fed(const struct args *a)
{
	int n = 0;

	for (int pe = 0; a->view.sdma && pe < a->view.npes; pe++)
		n += a->view.sdma[pe].ring != 0;
	return n;
}

static int by_ring(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm), wanted = arg ? MIN_OF(*(int *)arg, n - 1) : 0;
	struct args a;
	char *block;

	TRY(get_args(comm, &a, &block));
	REQUIRE_EQ(fed(&a), wanted);
	TRY(run_kernel(comm, ring, &a));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_EQ(*a.sum, spmt_rank(comm) ? 0 : (uint64_t)n * ROUNDS * (ROUNDS + 1) / 2);
	REQUIRE_OK(spmt_free(comm, block));
	return 0;
}

static const struct spmt_attr large = { .size = sizeof(large), .heap_size = 16 << 20 };

Test(kernel_queues, data_round_a_ring)
{
	NEEDS_HOST(KERNELS);
	queues();
	for (int n = 1; n <= 4; n++)
		RANKS_OK(ranks_run(n, &large, by_ring, &(int){ 9 }));
}

/* Virtual devices of another process are not seen here: to ranks there it is the ordinary way. */
Test(kernel_queues, between_processes)
{
	struct processes p = { .layout = "0,2|1,3" };

	NEEDS_HOST(KERNELS);
	queues();
	RANKS_OK(processes_world(&p, by_ring, &(int){ 1 }));
}

Test(kernel_queues, the_same_by_the_ordinary_way)
{
	NEEDS_HOST(KERNELS);
	for (int n = 1; n <= 4; n++)
		RANKS_OK(ranks_run(n, &large, by_ring, NULL));
}

static int by_halves(spmt_comm *comm, void *arg)
{
	return ranks_halves(comm, by_ring, arg);
}

Test(kernel_queues, of_parts_of_a_comm)
{
	NEEDS_HOST(KERNELS);
	queues();
	RANKS_OK(ranks_run(4, &large, by_halves, &(int){ 9 }));
}

/* ---- what covers it on the host */

/* Each rank has a part of every `came`; the last words, which come last, are looked at. */
enum {
	BY_QUIET,
	BY_BARRIER,
	BY_STREAM,
	COVERS,
	PART = HALF / 4,
	LAST = PART - 8 * WORDS,
	TIMES = 64
};

static uint64_t *words_of(char *came, int pe)
{
	return (uint64_t *)(void *)(came + (size_t)pe * PART + LAST);
}

/* Its end completes nothing, and engines have to do for longer than it takes to hear of that: then come the last words. */
static void put_and_end(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;

	for (int i = 0; i < TIMES * v->npes; i++)
		if (i % v->npes != v->pe)
			CHECK(spmtd_sdma_put(v, a->came + (size_t)v->pe * PART, a->own,
				      i < (TIMES - 1) * v->npes ? LAST : PART, i % v->npes) == 0);
}

static int has_come(const uint64_t *words, uint64_t round, int pe)
{
	for (int i = 0; i < WORDS; i++)
		REQUIRE_EQ(words[i], word_of(round, pe, i));
	return 0;
}

static int cover(spmt_comm *comm, struct args *a, uint64_t round, spmt_stream s)
{
	int me = spmt_rank(comm);

	REQUIRE_OK(spmt_host_launch(comm, s, put_and_end, a, sizeof(*a)));
	if (round % COVERS == BY_STREAM) {
		REQUIRE_OK(spmt_barrier_on_stream(comm, s));
		REQUIRE_OK(stream_wait(comm, s));
		return 0;
	}
	REQUIRE_OK(stream_wait(comm, s));
	if (round % COVERS == BY_BARRIER) {
		REQUIRE_OK(spmt_barrier(comm));
		return 0;
	}
	REQUIRE_OK(spmt_quiet(comm));
	for (int pe = 0; pe < spmt_nranks(comm); pe++) /* it is there already */
		if (pe != me)
			TRY(has_come(spmt_ptr(comm, words_of(a->came, me), pe), round, me));
	REQUIRE_OK(spmt_sync(comm));
	return 0;
}

static int covered(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm);
	struct args a;
	spmt_stream s;
	char *block;

	(void)arg;
	TRY(get_args(comm, &a, &block));
	REQUIRE_OK(stream_make(comm, &s));
	for (uint64_t round = 0; round < 20 * COVERS; round++) {
		uint64_t *last = (uint64_t *)(void *)(a.own + LAST);
		int line = 0;

		a.line = &line;
		for (int i = 0; i < WORDS; i++)
			last[i] = word_of(round, me, i);
		REQUIRE_OK(spmt_barrier(comm));
		TRY(cover(comm, &a, round, s));
		REQUIRE_EQ(line, 0);
		for (int pe = 0; pe < spmt_nranks(comm); pe++)
			if (pe != me)
				TRY(has_come(words_of(a.came, pe), round, pe));
	}
	REQUIRE_OK(stream_end(comm, s));
	REQUIRE_OK(spmt_free(comm, block));
	return 0;
}

Test(kernel_queues, host_calls_cover_what_a_kernel_has_submitted)
{
	NEEDS_HOST(KERNELS);
	queues();
	RANKS_OK(ranks_run(4, &large, covered, NULL));
}

/* ---- an engine that stops */

static void from_nowhere(void *args)
{
	struct args *a = args;

	CHECK(spmtd_sdma_put(&a->view, a->came, a->bad, 64, 1) == 0);
	CHECK(spmtd_sdma_quiet(&a->view, 1) == SPMTD_TIMEOUT);
}

static int stopped(spmt_comm *comm, void *arg)
{
	struct args a;
	char *block;
	int line = 0;

	(void)arg;
	REQUIRE_OK(spmt_set_timeout(comm, 100));
	TRY(get_args(comm, &a, &block));
	REQUIRE_OK(spmt_set_timeout(comm, 20000));
	if (spmt_rank(comm) == 0) {
		a.bad = (const char *)4096; /* where nothing is ever mapped */
		a.line = &line;
		REQUIRE_OK(spmt_host_launch(comm, NULL, from_nowhere, &a, sizeof(a)));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("a kernel waited for the copy engine for rank 1");
		REQUIRE_EQ(line, 0);
		REQUIRE_CODE(spmt_quiet(comm), -EIO);
		REQUIRE_SAYS("device 0 does not reach 64 bytes");
		REQUIRE_CODE(spmt_status(comm), -EIO);
	} else { /* what was submitted is lost: nobody is to go on without it */
		REQUIRE_CODE(spmt_barrier(comm), -EIO);
		REQUIRE_SAYS("device 0 does not reach 64 bytes");
	}
	return 0;
}

Test(kernel_queues, an_engine_that_stops_is_told)
{
	NEEDS_HOST(KERNELS);
	queues();
	RANKS_OK(ranks_run(2, &large, stopped, NULL));
}

/* Of what rank 0's first queue has been promised some never comes, so its barrier does not either: that is why the world breaks. */
static int unmoved(spmt_comm *comm, void *arg)
{
	struct spmt_view v = { .size = sizeof(v) };
	int64_t begin;

	(void)arg;
	REQUIRE_OK(spmt_set_timeout(comm, 400));
	REQUIRE_OK(spmt_view_get(comm, &v));
	REQUIRE(v.sdma && v.sdma[1 - v.pe].ring);
	REQUIRE_OK(spmt_barrier(comm));
	begin = now_ns();
	if (v.pe == 0) {
		__atomic_fetch_add(&v.sdma[1].claimed, 4096, __ATOMIC_RELAXED);
		REQUIRE_OK(spmt_barrier_on_stream(comm, NULL));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	} else {
		while (!spmt_status(comm) && now_ns() - begin < 5000000000)
			sleep_ms(1);
	}
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("rank 0: a barrier in a stream waited for the copy engine for rank 1");
	REQUIRE(now_ns() - begin < 5000000000);
	REQUIRE_CODE(spmt_barrier_on_stream(comm, NULL), SPMT_ERR_BROKEN);
	return 0;
}

Test(kernel_queues, a_barrier_on_a_stream_behind_an_engine_that_stops)
{
	NEEDS_HOST(KERNELS);
	queues();
	RANKS_OK(ranks_run(2, &large, unmoved, NULL));
}

/* ---- where there is no queue */

static int no_queue(spmt_comm *comm, void *arg)
{
	struct args a;
	char *block;

	(void)arg;
	TRY(get_args(comm, &a, &block));
	REQUIRE_EQ(fed(&a), 0);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_free(comm, block));
	return 0;
}

Test(kernel_queues, a_backend_without_engines_gives_none)
{
	if (on_host())
		cr_skip_test("the host backend has engines");
	queues();
	RANKS_OK(ranks_run(2, &large, no_queue, NULL));
}
