/* SPDX-License-Identifier: MIT */
/* Packets, signals of channels, bulk copies: by libspmt, by MSCCL++ and by instructions alone. */
#ifndef COMPARE_CHANNELS_CUH
#define COMPARE_CHANNELS_CUH

#include "launches.cuh"

#define COMPARE_CHANNELS

enum {
	BULK_CHUNK = 16384,
	BULK_STAGES = 8,
	BULK_ROOM = BULK_CHUNK * BULK_STAGES + 64 /* spmtd_bulk_room */
};

/* Packets, signals of channels and bulk copies of one program; without a function: it has none. */
struct channel_kernels {
	struct kernel packets, each, packet, ordered, relaxed, bulk, bulk_quiet, bulk_bw;
};

static void run_bulk_quiet(struct rank *r, struct kernel kernel)
{
	for (uint64_t size = 4096; size <= 65536; size *= 16) {
		struct bench b = {};

		b.row = "bulk_quiet";
		b.variant = "thread";
		b.kernel = kernel;
		b.blocks = b.threads = 1;
		b.active = ON_0;
		b.owners = ON_1;
		b.unit = UNIT_US;
		b.ops = 1;
		b.room = BULK_ROOM;
		spread(&b, size);
		run_bench(r, &b);
	}
}

static void run_bulk_bw(struct rank *r, struct kernel kernel)
{
	static const int blocks[] = { 1, 2, 4, 8, 16, 32 };
	static const char *const warps[] = { "1x32", "2x32", "4x32", "8x32", "16x32", "32x32" };

	for (int k = 0; k < 6; k++) {
		struct bench b = {};

		b.row = "bulk_bw";
		b.variant = warps[k];
		b.kernel = kernel;
		b.blocks = blocks[k];
		b.threads = 32;
		b.window = r->window;
		b.active = ON_0;
		b.owners = ON_1;
		b.unit = UNIT_GBS;
		b.ops = 1;
		b.size = b.step = 16 << 20;
		b.room = BULK_ROOM;
		run_bench(r, &b);
	}
}

/* By a block, from memory that no cache has and from what they have; many also by as many threads as a block may have. */
static void run_packets(struct rank *r, struct kernel kernel)
{
	static const uint64_t sizes[] = { 8, 4096, PACKETS_MOST };

	for (int i = 0; i < 3; i++) {
		run_ping(r, "packets", "block-256", kernel, 256, sizes[i], 0);
		run_again(r, "packets", "cached-256", kernel, 256, sizes[i]);
	}
	run_ping(r, "packets", "block-1024", kernel, 1024, PACKETS_MOST, 0);
	run_again(r, "packets", "cached-1024", kernel, 1024, PACKETS_MOST);
}

/* Each thread its own packets, which it answers without waiting for others. */
static void run_packets_each(struct rank *r, struct kernel kernel)
{
	run_again(r, "packets", "each-256", kernel, 256, 8);
	run_again(r, "packets", "each-256", kernel, 256, 4096);
	run_again(r, "packets", "each-256", kernel, 256, PACKETS_MOST);
	run_again(r, "packets", "each-1024", kernel, 1024, PACKETS_MOST);
}

static void run_channels(struct rank *r, const struct channel_kernels *k)
{
	run_packets(r, k->packets);
	run_packets_each(r, k->each);
	run_again(r, "packets", "by-value", k->packet, 1, 8);
	run_ping(r, "channel_signal", "thread", k->ordered, 1, 0, 0);
	run_ping(r, "channel_signal", "relaxed", k->relaxed, 1, 0, 0);
	if (k->bulk.fn) {
		run_ping(r, "bulk_put", "thread", k->bulk, 1, 4096, BULK_ROOM);
		run_ping(r, "bulk_put", "thread", k->bulk, 1, 65536, BULK_ROOM);
	}
	if (k->bulk_quiet.fn)
		run_bulk_quiet(r, k->bulk_quiet);
	if (k->bulk_bw.fn)
		run_bulk_bw(r, k->bulk_bw);
}

#endif
