/* SPDX-License-Identifier: MIT */
/*
 * The tests of spmt-perf on OpenSHMEM 1.4, for bench/perf-oshmem: processes in place of threads. Data of each size is compared
 * before it is timed. A line a figure: "<test> <ranks> <size> <value> <unit>"; medians of five rounds.
 */
#include <shmem.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	ROUNDS = 5,
	LARGEST = 16 << 20,
	WORK = LARGEST / sizeof(float) / 2 + SHMEM_REDUCE_MIN_WRKDATA_SIZE
};

struct pe {
	int rank, n;
	char *src, *dst;
	long *signal, *counter, *sync;
	float *work;
	long epoch;
};

typedef void (*loop)(struct pe *pe, size_t size, int turns);

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "perf-oshmem: wrong data: %s\n", what);
	fflush(stderr);
	shmem_global_exit(1);
}

static void put_loop(struct pe *pe, size_t size, int turns)
{
	for (int i = 0; i < turns && pe->rank == 0; i++)
		shmem_putmem(pe->dst, pe->src, size, 1);
	shmem_quiet();
}

static void get_loop(struct pe *pe, size_t size, int turns)
{
	for (int i = 0; i < turns && pe->rank == 0; i++)
		shmem_getmem(pe->dst, pe->src, size, 1);
}

static void pong(struct pe *pe, size_t size)
{
	shmem_putmem(pe->dst, pe->src, size, pe->rank ^ 1);
	shmem_fence();
	shmem_long_p(pe->signal, pe->epoch, pe->rank ^ 1);
}

static void pingpong_loop(struct pe *pe, size_t size, int turns)
{
	for (int i = 0; i < turns && pe->rank < 2; i++) {
		pe->epoch++;
		if (pe->rank == 0)
			pong(pe, size);
		shmem_long_wait_until(pe->signal, SHMEM_CMP_GE, pe->epoch);
		if (pe->rank == 1)
			pong(pe, size);
	}
}

static void barrier_loop(struct pe *pe, size_t size, int turns)
{
	(void)pe;
	(void)size;
	for (int i = 0; i < turns; i++)
		shmem_barrier_all();
}

static void fetch_add_loop(struct pe *pe, size_t size, int turns)
{
	(void)size;
	for (int i = 0; i < turns && pe->rank == 0; i++)
		shmem_long_atomic_fetch_add(pe->counter, 1, 1);
}

static void all_reduce_loop(struct pe *pe, size_t size, int turns)
{
	float *dst = (float *)(void *)pe->dst, *src = (float *)(void *)pe->src;

	for (int i = 0; i < turns; i++) {
		shmem_float_sum_to_all(
			dst, src, (int)(size / sizeof(float)), 0, 0, pe->n, pe->work, pe->sync);
		shmem_barrier_all(); /* the work arrays may be used again only behind one */
	}
}

/* ---- data */

static void data_verify(struct pe *pe, loop fn, size_t size)
{
	srand((unsigned)size);
	for (size_t i = 0; i < size; i++)
		pe->src[i] = (char)rand();
	memset(pe->dst, 0x5a, size);
	shmem_barrier_all();
	fn(pe, size, 1);
	shmem_barrier_all();
	if (pe->rank == (fn == get_loop ? 0 : 1) && memcmp(pe->dst, pe->src, size))
		die("put or get");
}

static void sum_verify(struct pe *pe, size_t size)
{
	float *dst = (float *)(void *)pe->dst, *src = (float *)(void *)pe->src;

	for (size_t i = 0; i < size / sizeof(float); i++)
		src[i] = (float)(i % 1000) + (float)pe->rank;
	memset(dst, 0x5a, size);
	shmem_barrier_all();
	all_reduce_loop(pe, size, 1);
	for (size_t i = 0; i < size / sizeof(float); i++)
		if (dst[i] != (float)(i % 1000) * (float)pe->n + (float)(pe->n * (pe->n - 1) / 2))
			die("all_reduce");
}

/* ---- figures */

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median_ns(struct pe *pe, loop fn, size_t size, int turns)
{
	double ns[ROUNDS];

	fn(pe, size, turns);
	for (int i = 0; i < ROUNDS; i++) {
		double begin;

		shmem_barrier_all();
		begin = now_ns();
		fn(pe, size, turns);
		ns[i] = (now_ns() - begin) / turns;
		shmem_barrier_all();
	}
	qsort(ns, ROUNDS, sizeof(ns[0]), compare);
	return ns[ROUNDS / 2];
}

static void figure(struct pe *pe, const char *test, size_t size, double value, const char *unit)
{
	if (pe->rank == 0)
		printf("%s %d %zu %.5g %s\n", test, pe->n, size, value, unit);
}

/* From the first process's call of shmem_init to the last one's return; `at` is symmetric. */
static void init_figure(struct pe *pe, double begin, double end)
{
	double *at = shmem_malloc(2 * (size_t)pe->n * sizeof(*at)), first = begin, last = end;

	if (!at)
		die("no memory");
	shmem_double_p(&at[2 * pe->rank], begin, 0);
	shmem_double_p(&at[2 * pe->rank + 1], end, 0);
	shmem_barrier_all();
	for (int i = 0; i < pe->n && pe->rank == 0; i++) {
		first = at[2 * i] < first ? at[2 * i] : first;
		last = at[2 * i + 1] > last ? at[2 * i + 1] : last;
	}
	figure(pe, "init", 0, (last - first) / 1e6, "ms");
}

/* A put that has arrived, as a NIC makes it. */
static void put_quiet_loop(struct pe *pe, size_t size, int turns)
{
	for (int i = 0; i < turns && pe->rank == 0; i++) {
		shmem_putmem(pe->dst, pe->src, size, 1);
		shmem_quiet();
	}
}

/* The rows of bench/verbs, in as few turns as an emulated NIC takes. */
static void nic_figures(struct pe *pe)
{
	static const size_t sizes[] = { 65536, 1 << 20 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t n = sizes[i];

		data_verify(pe, put_loop, n);
		figure(pe, "put_bw", n, 1e3 * (double)n / median_ns(pe, put_loop, n, 20), "MB/s");
		data_verify(pe, get_loop, n);
		figure(pe, "get_bw", n, 1e3 * (double)n / median_ns(pe, get_loop, n, 20), "MB/s");
	}
	figure(pe, "put_lat", 8, median_ns(pe, put_quiet_loop, 8, 100) / 1e3, "us");
	figure(pe, "get_lat", 8, median_ns(pe, get_loop, 8, 100) / 1e3, "us");
	figure(pe, "fetch_add", 8, median_ns(pe, fetch_add_loop, 0, 100) / 1e3, "us");
}

static int turns_for(size_t size)
{
	size_t n = ((size_t)64 << 20) / (size + 256);

	return n > 20000 ? 20000 : n < 4 ? 4 : (int)n;
}

static void pair_figures(struct pe *pe)
{
	static const size_t sizes[] = { 8, 512, 4096, 32768, 1 << 20, LARGEST };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t n = sizes[i];

		data_verify(pe, put_loop, n);
		figure(pe, "put", n, (double)n / median_ns(pe, put_loop, n, turns_for(n)), "GB/s");
		data_verify(pe, get_loop, n);
		figure(pe, "get", n, (double)n / median_ns(pe, get_loop, n, turns_for(n)), "GB/s");
	}
	data_verify(pe, pingpong_loop, 8);
	figure(pe, "pingpong", 8, median_ns(pe, pingpong_loop, 8, 10000) / 2e3, "us");
	figure(pe, "fetch_add", 0, 1e3 / median_ns(pe, fetch_add_loop, 0, 20000), "Mop/s");
}

static void sum_figure(struct pe *pe, size_t size, int turns)
{
	sum_verify(pe, size);
	figure(pe, "all_reduce", size, median_ns(pe, all_reduce_loop, size, turns) / 1e3, "us");
}

static void world_figures(struct pe *pe, bool large, double begin, double end)
{
	/* processes that outnumber the CPUs take milliseconds a turn */
	int turns = pe->n == 2 ? 10000 : pe->n <= 8 ? 500 : 50;

	if (large)
		init_figure(pe, begin, end);
	if (pe->n == 2 || large)
		pair_figures(pe);
	figure(pe, "barrier", 0, median_ns(pe, barrier_loop, 0, turns) / 1e3, "us");
	if (pe->n <= 8) {
		sum_figure(pe, 8, turns / 4);
		sum_figure(pe, 64 << 10, turns / 16 + 20);
		sum_figure(pe, 1 << 20, 20);
	}
}

/* "nic": what bench/verbs compares, and no more. Any other argument: the figures of ranks 0 and 1 in a larger world, too, and of init. */
int main(int argc, char **argv)
{
	double begin = now_ns(), end;
	struct pe pe;

	shmem_init();
	end = now_ns();
	pe = (struct pe){ .rank = shmem_my_pe(), .n = shmem_n_pes() };
	pe.src = shmem_align(4096, LARGEST);
	pe.dst = shmem_align(4096, LARGEST);
	pe.work = shmem_malloc(WORK * sizeof(float));
	pe.signal = shmem_calloc(8, sizeof(long));
	pe.counter = shmem_calloc(8, sizeof(long));
	pe.sync = shmem_malloc(SHMEM_REDUCE_SYNC_SIZE * sizeof(long));
	if (!pe.src || !pe.dst || !pe.work || !pe.signal || !pe.counter || !pe.sync)
		die("no memory");
	for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
		pe.sync[i] = SHMEM_SYNC_VALUE;
	shmem_barrier_all();
	if (argc > 1 && !strcmp(argv[1], "nic"))
		nic_figures(&pe);
	else
		world_figures(&pe, argc > 1, begin, end);
	fflush(stdout);
	shmem_barrier_all();
	/* not shmem_finalize: in Debian 12's Open MPI 4.1.4 it can crash, and a crash would look like a failed measurement */
	shmem_global_exit(0);
	return 0;
}
