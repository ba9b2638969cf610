/* SPDX-License-Identifier: MIT */
/* Groups of device calls over the kernels of kernels.cuh. */
#ifndef COMPARE_DEVICE_CALLS_CUH
#define COMPARE_DEVICE_CALLS_CUH

#include "launches.cuh"

#define COMPARE_DEVICE_CALLS

/* One call a launch, launches one after the other: what authors of small kernels have. */
static void run_launches(struct rank *r, struct bench *b)
{
	int n = 200, reps = r->options->quick ? 5 : 20;
	double best = 1e9;

	verify(r, b);
	for (int i = 0; i < reps; i++) {
		float ms = 0;

		meet(r);
		if (!(b->active & 1 << r->pe))
			continue;
		CHECK(cudaEventRecord(r->begin, r->stream));
		for (int k = 0; k < n; k++)
			launch(r, b, 1);
		CHECK(cudaEventRecord(r->end, r->stream));
		finish(r, b->row);
		CHECK(cudaEventElapsedTime(&ms, r->begin, r->end));
		if (1e-3 * (double)ms / n < best)
			best = 1e-3 * (double)ms / n;
	}
	meet(r);
	right(r, b->row, b->variant, b->size);
	value(r, b->row, b->variant, b->size, (double)b->size / best * 1e-9, "GB/s");
}

static void group_bandwidth(struct rank *r)
{
	static const struct kernel kernels[] = { KERNEL_OF(k_bw_put), KERNEL_OF(k_bw_get) };
	static const int blocks[] = { 1, 8, 32 };
	struct bench b = {};
	char variant[32];

	for (int k = 0; k < 6; k++) {
		bool get = k >= 3;

		snprintf(variant, sizeof(variant), "%dx1024", blocks[k % 3]);
		b.row = get ? "get_bw" : "put_bw";
		b.variant = variant;
		b.kernel = kernels[get];
		b.blocks = blocks[k % 3];
		b.threads = 1024;
		b.window = r->window;
		b.active = ON_0;
		b.owners = get ? ON_0 : ON_1;
		b.unit = UNIT_GBS;
		b.ops = 1;
		for (uint64_t size = 1024; size <= r->window; size *= 4) {
			b.size = b.step = size;
			run_bench(r, &b);
		}
		b.row = "put_launch";
		for (uint64_t size = 16384; size <= 1 << 20 && !get; size *= 4) {
			b.size = b.step = size;
			run_launches(r, &b);
		}
	}
}

static const char *const scopes[] = { "thread", "warp", "block-256", "block-1024" };
static const int scope_threads[] = { 1, 32, 256, 1024 };

static void group_latency(struct rank *r)
{
	static const struct kernel puts[] = { KERNEL_OF(k_put_thread), KERNEL_OF(k_put_warp),
		KERNEL_OF(k_put_block), KERNEL_OF(k_put_block) };
	static const struct kernel gets[] = { KERNEL_OF(k_get_thread), KERNEL_OF(k_get_warp),
		KERNEL_OF(k_get_block), KERNEL_OF(k_get_block) };
	static const uint64_t sizes[] = { 8, 64, 512, 4096, 16384, 65536 };
	struct bench b = {};

	for (int k = 0; k < 8; k++) {
		bool get = k >= 4;

		b.row = get ? "get" : "put_quiet";
		b.variant = scopes[k % 4];
		b.kernel = get ? gets[k % 4] : puts[k % 4];
		b.blocks = 1;
		b.threads = scope_threads[k % 4];
		b.active = ON_0;
		b.owners = get ? ON_0 : ON_1;
		b.unit = UNIT_US;
		b.ops = 1;
		for (int i = 0; i < 6; i++) {
			spread(&b, sizes[i]);
			run_bench(r, &b);
		}
	}
}

static void group_sync(struct rank *r)
{
	static const struct kernel syncs[] = { KERNEL_OF(k_sync_thread), KERNEL_OF(k_sync_warp),
		KERNEL_OF(k_sync_block), KERNEL_OF(k_sync_block) };
	static const struct kernel barriers[] = { KERNEL_OF(k_barrier_thread),
		KERNEL_OF(k_barrier_warp), KERNEL_OF(k_barrier_block), KERNEL_OF(k_barrier_block) };
	struct bench b = {};

	for (int k = 0; k < 8; k++) {
		b.row = k >= 4 ? "barrier" : "sync";
		b.variant = scopes[k % 4];
		b.kernel = k >= 4 ? barriers[k % 4] : syncs[k % 4];
		b.blocks = 1;
		b.threads = scope_threads[k % 4];
		b.active = ON_ALL;
		b.unit = UNIT_US;
		b.ops = 1;
		spread(&b, 0);
		run_bench(r, &b);
	}
}

static void group_atomic(struct rank *r)
{
	static const struct kernel kernels[] = { KERNEL_OF(k_amo_add), KERNEL_OF(k_amo_fetch_add) };
	struct bench b = {};

	for (int k = 0; k < 4; k++) {
		bool fetch = k >= 2, block = k % 2;

		b.row = fetch ? "atomic_fetch_add" : "atomic_add";
		b.variant = block ? "block-1024" : "thread";
		b.kernel = kernels[fetch];
		b.blocks = 1;
		b.threads = block ? 1024 : 1;
		b.active = ON_0;
		b.counts = true;
		b.unit = block ? UNIT_MOPS : UNIT_US;
		b.ops = b.threads;
		spread(&b, 8);
		run_bench(r, &b);
	}
}

#endif
