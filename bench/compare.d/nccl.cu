/* SPDX-License-Identifier: MIT */
/* NCCL: one process, a thread a GPU. Calls on streams only, of plain buffers or, with --windows, of registered ones, for which it has symmetric kernels. */
#include <nccl.h>
#include <stdint.h>

struct place {
	ncclComm_t comm;
};

#include "job.cuh"

#include "calls.cuh"
#include "groups.cuh"
#include "threads.cuh"

static unsigned calls_there(void)
{
	return 1u << CALL_ALL_REDUCE | 1u << CALL_ALL_GATHER | 1u << CALL_ALL_TO_ALL |
		1u << CALL_RING;
}

static void must(ncclResult_t rc, const char *what)
{
	if (rc != ncclSuccess)
		die("%s: %s", what, ncclGetErrorString(rc));
}

static void all_to_all(struct rank *r, size_t each)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
	must(ncclAlltoAll(r->src, r->dst, each, ncclFloat, r->place.comm, r->stream), "all_to_all");
#else
	must(ncclGroupStart(), "group");
	for (int pe = 0; pe < r->npes; pe++) {
		size_t at = 4 * each * (size_t)pe;

		must(ncclSend(r->src + at, each, ncclFloat, pe, r->place.comm, r->stream), "send");
		must(ncclRecv(r->dst + at, each, ncclFloat, pe, r->place.comm, r->stream), "recv");
	}
	must(ncclGroupEnd(), "group");
#endif
}

static void issue(struct rank *r, enum call call, uint64_t bytes)
{
	size_t words = bytes / 4, each = words / (size_t)r->npes;
	int next = (r->pe + 1) % r->npes, last = (r->pe + r->npes - 1) % r->npes;
	ncclComm_t comm = r->place.comm;

	switch (call) {
	case CALL_ALL_REDUCE:
		must(ncclAllReduce(r->src, r->dst, words, ncclFloat, ncclSum, comm, r->stream),
			"all_reduce");
		break;
	case CALL_ALL_GATHER:
		must(ncclAllGather(r->src, r->dst, each, ncclFloat, comm, r->stream), "all_gather");
		break;
	case CALL_ALL_TO_ALL:
		all_to_all(r, each);
		break;
	case CALL_RING:
		must(ncclGroupStart(), "group");
		must(ncclSend(r->src, words, ncclFloat, next, comm, r->stream), "send");
		must(ncclRecv(r->dst, words, ncclFloat, last, comm, r->stream), "recv");
		must(ncclGroupEnd(), "group");
		break;
	default:
		die("no such call");
	}
}

/* A buffer of each rank, which all register together. */
static char *buffer(struct rank *r)
{
	size_t bytes = (r->window + GUARD + 4095) / 4096 * 4096;
	void *at;

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	ncclWindow_t window;

	if (r->options->windows) {
		must(ncclMemAlloc(&at, bytes), "memory for a window");
		must(ncclCommWindowRegister(
			     r->place.comm, at, bytes, &window, NCCL_WIN_COLL_SYMMETRIC),
			"window");
		return (char *)at;
	}
#else
	if (r->options->windows)
		die("NCCL %d has no windows", NCCL_VERSION_CODE);
#endif
	CHECK(cudaMalloc(&at, bytes));
	return (char *)at;
}

static void rank_main(struct rank *r)
{
	ncclUniqueId id;

	static_assert(sizeof(id) <= sizeof(r->shared->id), "the id fits");
	if (r->pe == 0) {
		int version;

		must(ncclGetVersion(&version), "version");
		printf("note NCCL %d\n", version);
		must(ncclGetUniqueId(&id), "unique id");
		memcpy(r->shared->id, &id, sizeof(id));
	}
	meet(r);
	memcpy(&id, r->shared->id, sizeof(id));
	must(ncclCommInitRank(&r->place.comm, r->npes, id, r->pe), "init");
	r->src = buffer(r);
	r->dst = buffer(r);
	CHECK(cudaMalloc((void **)&r->words, WORDS_ALL * sizeof(uint64_t)));
	bench_run(r);
	fflush(stdout);
	_exit(0); /* the end of comms is not measured, and waits for all that graphs have kept */
}

int main(int argc, char **argv)
{
	return run_threads(argc, argv, rank_main);
}
