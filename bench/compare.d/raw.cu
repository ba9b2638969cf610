/* SPDX-License-Identifier: MIT */
/* What the hardware gives: one process, a thread a GPU, plain allocations and peer access. */
#include "ops_raw.cuh"

#include "kernels.cuh"

PING(k_ping_late, block, wait_signal_late)
#define COMPARE_PINGS_MORE                                    \
	{                                                     \
		"block-256-late", KERNEL_OF(k_ping_late), 256 \
	}

#include "device_calls.cuh"

#include "raw_channels.cuh"

#include "calls.cuh"
#include "driver_calls.cuh"
#include "groups.cuh"
#include "plain.cuh"
#include "threads.cuh"

static unsigned calls_there(void)
{
	return 1u << CALL_PUT | 1u << CALL_RING | 1u << CALL_ALL_GATHER | 1u << CALL_ALL_TO_ALL |
		1u << CALL_PUT_EVENT | 1u << CALL_LAUNCH | 1u << CALL_LAUNCH_EVENT;
}

static void copy(struct rank *r, int pe, uint64_t to, uint64_t from, uint64_t bytes)
{
	char *dst = r->place.base[pe] + (r->dst - r->place.base[r->pe]);

	copy_to(r, dst + to, r->src + from, bytes);
}

/* By the copy engines, to others first; nobody knows of the others' streams, so it is no more than copies. */
static void issue(struct rank *r, enum call call, uint64_t bytes)
{
	uint64_t each = bytes / (uint64_t)r->npes;

	if (call == CALL_LAUNCH || call == CALL_LAUNCH_EVENT) {
		launch_nothing(r, call == CALL_LAUNCH_EVENT);
		return;
	}
	if (is_put(call) || call == CALL_RING) {
		copy(r, is_put(call) ? 1 : (r->pe + 1) % r->npes, 0, 0, bytes);
		if (call == CALL_PUT_EVENT)
			CHECK(cudaEventRecord(r->done, r->stream));
		return;
	}
	for (int i = 1; i <= r->npes; i++) {
		int pe = (r->pe + i) % r->npes;

		copy(r, pe, each * (uint64_t)r->pe,
			call == CALL_ALL_TO_ALL ? each * (uint64_t)pe : 0, each);
	}
}

static void rank_main(struct rank *r)
{
	plain_memory(r);
	for (int pe = 0; pe < r->npes; pe++)
		r->place.base[pe] = r->shared->base[pe];
	bench_run(r);
}

int main(int argc, char **argv)
{
	return run_threads(argc, argv, rank_main);
}
