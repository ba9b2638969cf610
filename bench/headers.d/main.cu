// SPDX-License-Identifier: MIT
// Two versions of the device header between GPUs 0 and 1: the same calls, one after the other, in one
// process. What a call takes depends on where its words lie, so each is measured in ten places.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../include/spmt_device.h"
#include "calls.h"

enum { GPUS = 2, PLACES = 10, TURNS = 3 };

static const size_t heap = 64u << 20, own_room = 64u << 10;
static char *heaps[GPUS];
static job jobs[GPUS];
static cudaStream_t streams[GPUS];

#define CHECK(call)                                                           \
	do {                                                                  \
		cudaError_t error = (call);                                   \
		if (error) {                                                  \
			printf("%s: %s\n", #call, cudaGetErrorString(error)); \
			exit(1);                                              \
		}                                                             \
	} while (0)

static const struct row {
	const char *name;
	call what;
	unsigned threads;
	size_t size;
	int per_round; // messages one after the other
} rows[] = {
	{ "sync, thread", SYNC, 1, 0, 1 },
	{ "sync, warp", SYNC_WARP, 32, 0, 1 },
	{ "sync, block of 256", SYNC_BLOCK, 256, 0, 1 },
	{ "sync, block of 1024", SYNC_BLOCK, 1024, 0, 1 },
	{ "barrier, thread", BARRIER, 1, 0, 1 },
	{ "barrier, warp", BARRIER_WARP, 32, 0, 1 },
	{ "barrier, block of 256", BARRIER_BLOCK, 256, 0, 1 },
	{ "barrier, block of 1024", BARRIER_BLOCK, 1024, 0, 1 },
	{ "put with signal, thread", PING, 1, 8, 2 },
	{ "put with signal, block of 256", PING_BLOCK, 256, 8, 2 },
	{ "put with signal, block of 256", PING_BLOCK, 256, 4096, 2 },
	{ "put with signal, block of 256", PING_BLOCK, 256, 65536, 2 },
	{ "put with signal, block of 1024", PING_BLOCK, 1024, 8, 2 },
	{ "put with signal, block of 1024", PING_BLOCK, 1024, 4096, 2 },
	{ "put with signal, block of 1024", PING_BLOCK, 1024, 65536, 2 },
	{ "put + quiet, thread", PUT, 1, 8, 1 },
	{ "put + quiet, thread", PUT, 1, 4096, 1 },
	{ "put + quiet, warp", PUT_WARP, 32, 2048, 1 },
	{ "put + quiet, warp", PUT_WARP, 32, 65536, 1 },
	{ "put + quiet, block of 128", PUT_BLOCK, 128, 1 << 20, 1 },
	{ "put + quiet, block of 256", PUT_BLOCK, 256, 4000, 1 },
	{ "put + quiet, block of 256", PUT_BLOCK, 256, 65536, 1 },
	{ "put + quiet, block of 1024", PUT_BLOCK, 1024, 32768, 1 },
	{ "put + quiet, block of 1024", PUT_BLOCK, 1024, 65536, 1 },
	{ "put + quiet, block of 1024", PUT_BLOCK, 1024, 100000, 1 },
	{ "put + quiet, block of 1024", PUT_BLOCK, 1024, 1 << 20, 1 },
	{ "puts, block of 1024", PUTS_BLOCK, 1024, 1024, 1 },
	{ "puts, block of 1024", PUTS_BLOCK, 1024, 65536, 1 },
	{ "puts, block of 1024", PUTS_BLOCK, 1024, 1 << 20, 1 },
	{ "get, warp", GET_WARP, 32, 2048, 1 },
	{ "get, warp", GET_WARP, 32, 65536, 1 },
	{ "get, block of 256", GET_BLOCK, 256, 16384, 1 },
	{ "get, block of 1024", GET_BLOCK, 1024, 8, 1 },
	{ "get, block of 1024", GET_BLOCK, 1024, 16384, 1 },
	{ "get, block of 1024", GET_BLOCK, 1024, 65536, 1 },
	{ "get, block of 1024", GET_BLOCK, 1024, 1 << 20, 1 },
};

static void open_gpus(void)
{
	for (int i = 0; i < GPUS; i++) {
		CHECK(cudaSetDevice(i));
		CHECK(cudaDeviceEnablePeerAccess(1 - i, 0));
		CHECK(cudaMalloc(&heaps[i], heap));
		CHECK(cudaMemset(heaps[i], 0, heap));
		CHECK(cudaStreamCreate(&streams[i]));
		CHECK(cudaMalloc(&jobs[i].code, sizeof(int)));
		CHECK(cudaMemset(jobs[i].code, 0, sizeof(int)));
		CHECK(cudaMalloc(&jobs[i].ns, sizeof(uint64_t)));
		jobs[i].dst = heaps[i] + heap / 2;
		jobs[i].src = heaps[i] + heap / 4 * 3;
		jobs[i].room = heap / 4;
	}
}

/* The library's words, a record and a signal at `at` of each heap, all zero. */
static void prepare(const row &r, size_t at)
{
	for (int i = 0; i < GPUS; i++) {
		spmt_view v = {};

		CHECK(cudaSetDevice(i));
		CHECK(cudaMemset(heaps[i] + at, 0, own_room));
		v.pe = i;
		v.npes = GPUS;
		v.base = (uint64_t)heaps[i];
		v.heap_size = heap;
		v.flat = (uint64_t)heaps[0];
		v.stride = (uint64_t)heaps[1] - v.flat; // also where it is below
		v.own = (spmtd_own *)(heaps[i] + at);
		v.record = (spmtd_record *)(heaps[i] + at + own_room / 2);
		v.timeout_ns = 2000000000;
		static_assert(sizeof(v) <= sizeof(jobs[i].view), "a view fits");
		memcpy(jobs[i].view, &v, sizeof(v));
		jobs[i].sig = (uint64_t *)(heaps[i] + at + own_room / 4);
		jobs[i].size = r.size;
		jobs[i].rounds = r.size >= 1 << 20 ? 100 : 1000;
	}
	for (int i = 0; i < GPUS; i++) {
		CHECK(cudaSetDevice(i));
		CHECK(cudaDeviceSynchronize());
	}
}

/* Microseconds of one call, by the slower rank. */
static double turn(kernel_fn *kernel, const row &r)
{
	double most = 0;

	for (int i = 0; i < GPUS; i++) {
		CHECK(cudaSetDevice(i));
		kernel<<<1, r.threads, 0, streams[i]>>>(jobs[i]);
		CHECK(cudaGetLastError());
	}
	for (int i = 0; i < GPUS; i++) {
		uint64_t ns;
		int code;
		double us;

		CHECK(cudaSetDevice(i));
		CHECK(cudaDeviceSynchronize());
		CHECK(cudaMemcpy(&ns, jobs[i].ns, sizeof(ns), cudaMemcpyDefault));
		CHECK(cudaMemcpy(&code, jobs[i].code, sizeof(code), cudaMemcpyDefault));
		if (code) {
			printf("%s, %zu bytes: rank %d: code %d\n", r.name, r.size, i, code);
			exit(1);
		}
		us = (double)ns / 1e3 / jobs[i].rounds / r.per_round;
		most = us > most ? us : most;
	}
	return most;
}

static double best(kernel_fn *kernel, const row &r, size_t at)
{
	double least = 1e9;

	for (int i = 0; i < TURNS; i++) {
		double us;

		prepare(r, at);
		us = turn(kernel, r);
		least = us < least ? us : least;
	}
	return least;
}

int main(void)
{
	kernel_fn *const *const versions[] = { calls_of_old, calls_of_new };
	int n;

	CHECK(cudaGetDeviceCount(&n));
	if (n < GPUS) {
		printf("needs 2 GPUs, there are %d\n", n);
		return 1;
	}
	open_gpus();
	printf("us, mean of %d places (least to most)\n", PLACES);
	printf("%-32s %8s %24s %24s %6s\n", "", "bytes", "old", "new", "ratio");
	for (const row &r : rows) {
		double sum[2] = {}, least[2] = { 1e9, 1e9 }, most[2] = {};

		for (size_t place = 0; place < PLACES; place++)
			for (int k = 0; k < 2; k++) {
				size_t at =
					((place + 1) << 20) + place * (place % 2 ? 4352 : 65536);
				double us = best(versions[k][r.what], r, at);

				sum[k] += us;
				least[k] = us < least[k] ? us : least[k];
				most[k] = us > most[k] ? us : most[k];
			}
		printf("%-32s %8zu", r.name, r.size);
		for (int k = 0; k < 2; k++)
			printf(" %8.3f (%5.3f to %5.3f)", sum[k] / PLACES, least[k], most[k]);
		printf(" %6.2f\n", sum[0] / sum[1]);
		fflush(stdout);
	}
	return 0;
}
