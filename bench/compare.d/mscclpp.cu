/* SPDX-License-Identifier: MIT */
/* MSCCL++: one process, a thread a GPU, plain allocations and peer access. No calls on streams. */
#include "ops_mscclpp.cuh"

#include "launches.cuh"

#include "mscclpp_channels.cuh"

#include "groups.cuh"
#include "plain.cuh"
#include "threads.cuh"

/* What rank pe has where this one has `mine`. */
static char *there(const struct rank *r, void *mine, int pe)
{
	return r->shared->base[pe] + ((char *)mine - r->shared->base[r->pe]);
}

static void rank_main(struct rank *r)
{
	mscclpp::MemoryDevice2DeviceSemaphoreDeviceHandle semaphore;
	uint64_t *room;

	plain_memory(r);
	room = r->words + WORDS_AMO;
	if (r->pe < 2) {
		semaphore.inboundToken = r->words + WORDS_SIGNAL;
		semaphore.remoteInboundToken =
			(uint64_t *)there(r, r->words + WORDS_SIGNAL, !r->pe);
		semaphore.expectedInboundToken = r->words + WORDS_EXPECTED;
		r->place.data = mscclpp::MemoryChannelDeviceHandle(
			semaphore, there(r, r->dst, !r->pe), r->src, NULL);
		r->place.packets = mscclpp::MemoryChannelDeviceHandle(
			semaphore, there(r, room, !r->pe), r->src, room);
	}
	if (r->pe == 0)
		printf("note MSCCL++ %s\n", MSCCLPP_IS);
	bench_run(r);
}

int main(int argc, char **argv)
{
	return run_threads(argc, argv, rank_main);
}
