/* SPDX-License-Identifier: MIT */
/*
 * Ranks, data and results, the same for every library. A program includes its ops_*.cuh,
 * kernels.cuh, device_calls.cuh, calls.cuh (calls on streams), groups.cuh, or those of them that it
 * has something for, makes a thread or process a rank, and calls bench_run() in each.
 *
 * Output, one line each, flushed at once:
 *	value ROW VARIANT BYTES NUMBER UNIT	a result; UNIT: GB/s, us, Mop/s
 *	wrong ROW VARIANT BYTES TEXT		the data were not right: no result
 *	done GROUP				all of a group was measured
 *	failed TEXT				the program ends here
 */
#ifndef COMPARE_BENCH_CUH
#define COMPARE_BENCH_CUH

#include <cuda_runtime.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POISON 0xeeeeeeeeu
#define GUARD 4096    /* bytes behind the data that nobody may write */
#define DEADLINE 30.0 /* seconds of any wait */
#define WARM_SECONDS 0.3

/* Shared by the ranks, be they threads or processes. */
struct shared {
	int arrived, turn, iters;
	double seconds[COMPARE_MAX_PES];
	char *base[COMPARE_MAX_PES];
	unsigned char id[128]; /* by which a library finds its ranks */
};

struct options {
	int npes;
	bool quick;
	const char *groups; /* "bandwidth,latency,..": only these; NULL: all */
	const char *ptx;    /* kernels compiled by something else */
	bool windows;	    /* NCCL: buffers are registered windows */
};

struct rank {
	struct shared *shared;
	const struct options *options;
	int pe, npes;
	char *src, *dst;  /* symmetric, of `window` bytes and a guard */
	uint64_t *words;  /* symmetric, WORDS_ALL of them */
	int32_t *code;	  /* on the device: what a kernel failed with */
	uint32_t *differ; /* on the device: how many words were wrong */
	uint64_t window;  /* bytes: the largest size */
	uint64_t epoch;
	cudaStream_t stream;
	cudaEvent_t begin, end, done;
	struct place place;
	cudaLibrary_t library; /* of options->ptx */
};

/* ---- ends ------------------------------------------------------------------------------- */

static void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	printf("failed %s\n", text);
	fflush(stdout);
	_exit(1);
}

#define CHECK(call)                                                                               \
	do {                                                                                      \
		cudaError_t rc_ = (call);                                                         \
		if (rc_ != cudaSuccess)                                                           \
			die("%s:%d: %s: %s", __FILE__, __LINE__, #call, cudaGetErrorString(rc_)); \
	} while (0)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All ranks; by spinning, so that they leave together. */
static void meet(struct rank *r)
{
	struct shared *s = r->shared;
	int turn = __atomic_load_n(&s->turn, __ATOMIC_ACQUIRE);
	double begin = now();

	if (__atomic_add_fetch(&s->arrived, 1, __ATOMIC_ACQ_REL) == r->npes) {
		__atomic_store_n(&s->arrived, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&s->turn, turn + 1, __ATOMIC_RELEASE);
		return;
	}
	while (__atomic_load_n(&s->turn, __ATOMIC_ACQUIRE) == turn)
		if (now() - begin > DEADLINE)
			die("rank %d: the others have not come for %.0f s", r->pe, DEADLINE);
}

static void finish(struct rank *r, const char *what)
{
	double begin = now();
	cudaError_t rc;

	while ((rc = cudaStreamQuery(r->stream)) == cudaErrorNotReady)
		if (now() - begin > DEADLINE)
			die("rank %d: %s: the stream has not come to its end for %.0f s", r->pe,
				what, DEADLINE);
	if (rc != cudaSuccess)
		die("rank %d: %s: %s", r->pe, what, cudaGetErrorString(rc));
}

/* ---- data ------------------------------------------------------------------------------- */

/* Word i of what rank pe sends: a small whole number as a float, so that sums are exact. */
static __host__ __device__ inline uint32_t pattern(int pe, uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)(pe + 1) * 0xd1b54a32d192ed03ull;
	float f;
	uint32_t bits;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 32;
	f = (float)(1 + (x & 4095));
	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static __global__ void fill(uint32_t *words, uint64_t n, int pe)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
		i += (uint64_t)gridDim.x * blockDim.x)
		words[i] = pattern(pe, i);
}

enum expect { EXPECT_COPY, EXPECT_SUM, EXPECT_GATHER, EXPECT_EXCHANGE };

/* What word i of dst has to be. */
static __device__ uint32_t expected(
	enum expect expect, uint64_t i, uint64_t size, int from, int pe, int npes)
{
	uint64_t share = size / (uint64_t)npes;
	float sum = 0;

	if (expect == EXPECT_COPY)
		return pattern(from, i);
	if (expect == EXPECT_GATHER)
		return pattern((int)(i / share), i % share);
	if (expect == EXPECT_EXCHANGE)
		return pattern((int)(i / share), (uint64_t)pe * share + i % share);
	for (int k = 0; k < npes; k++)
		sum += __uint_as_float(pattern(k, i));
	return __float_as_uint(sum);
}

/* In n words at `got`, `size` of every `step` are there; the rest, and a guard behind, are poison.
 */
static __global__ void compare(const uint32_t *got, uint64_t n, uint64_t size, uint64_t step,
	enum expect expect, int from, int pe, int npes, uint32_t *differ)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n + GUARD / 4;
		i += (uint64_t)gridDim.x * blockDim.x) {
		uint32_t want = POISON;

		if (i < n && i % step < size)
			want = expected(expect, i, size, from, pe, npes);
		if (got[i] != want)
			atomicAdd(differ, 1);
	}
}

static __global__ void compare_counts(
	const uint64_t *words, uint32_t n, uint64_t want, uint32_t *differ)
{
	uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n && words[i] != want)
		atomicAdd(differ, 1);
}

/* dst is poison up to `bytes` and a guard, the words are 0, on all ranks. */
static void fresh(struct rank *r, uint64_t bytes)
{
	meet(r); /* nobody is at work on the last */
	CHECK(cudaMemsetAsync(r->dst, (int)(POISON & 0xff), bytes + GUARD, r->stream));
	CHECK(cudaMemsetAsync(r->words, 0, WORDS_ALL * sizeof(uint64_t), r->stream));
	CHECK(cudaMemsetAsync(r->code, 0, sizeof(*r->code), r->stream));
	CHECK(cudaMemsetAsync(r->differ, 0, sizeof(*r->differ), r->stream));
	finish(r, "poison");
	r->epoch = 0;
	meet(r);
}

/* Says so if a kernel failed or data differ. */
static void right(struct rank *r, const char *row, const char *variant, uint64_t size)
{
	uint32_t differ;
	int32_t code;

	finish(r, row);
	CHECK(cudaMemcpy(&differ, r->differ, sizeof(differ), cudaMemcpyDeviceToHost));
	CHECK(cudaMemcpy(&code, r->code, sizeof(code), cudaMemcpyDeviceToHost));
	if (!differ && !code)
		return;
	printf("wrong %s %s %llu rank %d: %u words differ, a wait returned %d\n", row, variant,
		(unsigned long long)size, r->pe, differ, code);
	fflush(stdout);
}

static void value(struct rank *r, const char *row, const char *variant, uint64_t size, double x,
	const char *unit)
{
	if (r->pe)
		return;
	printf("value %s %s %llu %.6g %s\n", row, variant, (unsigned long long)size, x, unit);
	fflush(stdout);
}

/* ---- arguments -------------------------------------------------------------------------- */

static void parse(struct options *o, int argc, char **argv)
{
	memset(o, 0, sizeof(*o));
	o->npes = 2;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--quick"))
			o->quick = true;
		else if (!strcmp(argv[i], "--gpus") && i + 1 < argc)
			o->npes = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--groups") && i + 1 < argc)
			o->groups = argv[++i];
		else if (!strcmp(argv[i], "--ptx") && i + 1 < argc)
			o->ptx = argv[++i];
		else if (!strcmp(argv[i], "--windows"))
			o->windows = true;
		else
			die("usage: %s [--gpus N] [--quick] [--groups A,B] [--ptx FILE] [--windows]",
				argv[0]);
	}
	if (o->npes < 2 || o->npes > COMPARE_MAX_PES)
		die("%d ranks: 2 to %d are possible", o->npes, COMPARE_MAX_PES);
}

static uint64_t window_of(const struct options *o)
{
	return o->quick ? 64ull << 20 : 256ull << 20;
}

#endif
