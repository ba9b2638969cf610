/* SPDX-License-Identifier: MIT */
/* What runs inside one launch of many rounds, timed by events round it; and the group of such that every program with device calls has. */
#ifndef COMPARE_LAUNCHES_CUH
#define COMPARE_LAUNCHES_CUH

#include "bench.cuh"
#include "pings.cuh"

#define COMPARE_SIGNALS

enum { ON_0 = 1, ON_1 = 2, ON_ALL = -1 }; /* ranks, as bits */
enum unit { UNIT_GBS, UNIT_US, UNIT_MOPS };

struct kernel {
	const char *name;
	const void *fn;
};
#define KERNEL_OF(k)                  \
	{                             \
#k, (const void *)(k) \
	}

struct bench {
	const char *row, *variant;
	struct kernel kernel;
	int blocks, threads;
	uint64_t size, step, window;
	int active, owners; /* who launches; whose dst gets data of the other of ranks 0 and 1 */
	bool counts;	    /* it is rank 1's words that count */
	enum unit unit;
	double ops; /* in one round of the loop */
	int room;   /* shared memory of a block, bytes */
};

static void launch(struct rank *r, const struct bench *b, int iters)
{
	const void *kernel = b->kernel.fn;
	struct job job;
	void *args[] = { &job };

	memset(&job, 0, sizeof(job));
	job.place = r->place;
	job.dst = r->dst;
	job.src = r->src;
	job.words = r->words;
	job.size = b->size;
	job.step = b->step;
	job.window = b->window;
	job.base = r->epoch;
	job.iters = (uint32_t)iters;
	job.pe = r->pe;
	job.npes = r->npes;
	job.peer = r->pe == 0 ? 1 : 0;
	job.code = r->code;
	if (r->library) {
		cudaKernel_t k;

		CHECK(cudaLibraryGetKernel(&k, r->library, b->kernel.name));
		kernel = (const void *)k;
	}
	r->epoch += (uint64_t)iters;
	if (b->room)
		CHECK(cudaFuncSetAttribute(
			kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, b->room));
	CHECK(cudaLaunchKernel(kernel, dim3((unsigned)b->blocks), dim3((unsigned)b->threads), args,
		(size_t)b->room, r->stream));
}

/* Seconds between the events round one launch; all ranks call. */
static double timed(struct rank *r, const struct bench *b, int iters)
{
	bool active = b->active & 1 << r->pe;
	float ms = 0;

	meet(r);
	if (active) {
		CHECK(cudaEventRecord(r->begin, r->stream));
		launch(r, b, iters);
		CHECK(cudaEventRecord(r->end, r->stream));
		finish(r, b->row);
		CHECK(cudaEventElapsedTime(&ms, r->begin, r->end));
	}
	return 1e-3 * (double)ms;
}

/* Three rounds onto poison. */
static void verify(struct rank *r, const struct bench *b)
{
	uint64_t bytes = 3 * b->step < b->window ? 3 * b->step : b->window;

	fresh(r, bytes);
	if (b->active & 1 << r->pe) {
		launch(r, b, 3);
		finish(r, b->row);
	}
	meet(r);
	if (b->owners & 1 << r->pe)
		compare<<<256, 256, 0, r->stream>>>((uint32_t *)r->dst, bytes / 4, b->size / 4,
			b->step / 4, EXPECT_COPY, r->pe == 0 ? 1 : 0, r->pe, r->npes, r->differ);
	if (b->counts && r->pe == 1)
		compare_counts<<<4, 256, 0, r->stream>>>(
			r->words + WORDS_AMO, (uint32_t)b->threads, 3, r->differ);
	CHECK(cudaGetLastError());
	right(r, b->row, b->variant, b->size);
	meet(r);
}

static void run_bench(struct rank *r, const struct bench *b)
{
	double target = r->options->quick ? 1.5e-3 : 4e-3, best = 1e9, each;
	int reps = r->options->quick ? 3 : 5, iters;

	verify(r, b);
	each = timed(r, b, 20) / 20;
	if (r->pe == 0) {
		double want = each > 0 ? target / each : 20;

		r->shared->iters = want < 4 ? 4 : want > 8000 ? 8000 : (int)want;
	}
	meet(r);
	iters = r->shared->iters;
	for (int i = 0; i < reps; i++) {
		double t = timed(r, b, iters);

		if (t < best)
			best = t;
	}
	each = best / iters / b->ops;
	right(r, b->row, b->variant, b->size);
	if (b->unit == UNIT_GBS)
		value(r, b->row, b->variant, b->size, (double)b->size / each * 1e-9, "GB/s");
	else if (b->unit == UNIT_US)
		value(r, b->row, b->variant, b->size, each * 1e6, "us");
	else
		value(r, b->row, b->variant, b->size, 1e-6 / each, "Mop/s");
}

/* Each call elsewhere: gets never ask for what the first-level cache still has. */
static void spread(struct bench *b, uint64_t size)
{
	b->size = size;
	b->step = size < 128 ? 128 : size;
	b->window = 4 << 20;
}

static void group_signal(struct rank *r)
{
	static const struct {
		const char *variant;
		struct kernel kernel;
		int threads;
	} pings[] = {
		{ "thread", KERNEL_OF(k_ping_thread), 1 },
		{ "block-256", KERNEL_OF(k_ping_block), 256 },
		{ "block-1024", KERNEL_OF(k_ping_block), 1024 },
#if defined(COMPARE_PINGS_MORE)
		COMPARE_PINGS_MORE
#endif
	};
	static const uint64_t sizes[] = { 8, 512, 4096, 65536 };
	struct bench b = {};

	for (size_t k = 0; k < sizeof(pings) / sizeof(*pings); k++) {
		b.row = "put_signal";
		b.variant = pings[k].variant;
		b.kernel = pings[k].kernel;
		b.blocks = 1;
		b.threads = pings[k].threads;
		b.active = b.owners = ON_0 | ON_1;
		b.unit = UNIT_US;
		b.ops = 2;
		for (int i = 0; i < 4; i++) {
			spread(&b, sizes[i]);
			run_bench(r, &b);
		}
	}
}

/* There and back. */
static inline struct bench ping_of(
	const char *row, const char *variant, struct kernel kernel, int threads, uint64_t size)
{
	struct bench b = {};

	b.row = row;
	b.variant = variant;
	b.kernel = kernel;
	b.blocks = 1;
	b.threads = threads;
	b.active = ON_0 | ON_1;
	b.owners = size ? ON_0 | ON_1 : 0;
	b.unit = UNIT_US;
	b.ops = 2;
	spread(&b, size);
	return b;
}

static inline void run_ping(struct rank *r, const char *row, const char *variant,
	struct kernel kernel, int threads, uint64_t size, int room)
{
	struct bench b = ping_of(row, variant, kernel, threads, size);

	b.room = room;
	run_bench(r, &b);
}

/* The same bytes each time, which caches have from the second on: as what the kernel itself has just computed. */
static inline void run_again(struct rank *r, const char *row, const char *variant,
	struct kernel kernel, int threads, uint64_t size)
{
	struct bench b = ping_of(row, variant, kernel, threads, size);

	b.window = b.step;
	run_bench(r, &b);
}

#endif
