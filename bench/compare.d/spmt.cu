/* SPDX-License-Identifier: MIT */
/* libspmt: one process, a thread a GPU. */
#include "ops_spmt.cuh"

#include "kernels.cuh"

#include "../../include/spmt.h"
#include "device_calls.cuh"

#include "spmt_channels.cuh"

#define COMPARE_PLANS
#define COMPARE_REGISTERED
#include "calls.cuh"
#include "driver_calls.cuh"
#include "groups.cuh"

static struct options options;
static struct shared shared;

struct own {
	struct rank rank; /* first: issue() goes from it to the comm */
	spmt_comm *comm;
	char *there; /* rank 1's dst */
};

static unsigned calls_there(void)
{
	return ((1u << CALL_PUT_EVENT) - 1) | 1u << CALL_LAUNCH | 1u << CALL_LAUNCH_EVENT;
}

static void issue(struct rank *r, enum call call, uint64_t bytes)
{
	spmt_comm *comm = ((struct own *)r)->comm;
	size_t words = bytes / 4, each = words / (size_t)r->npes;
	int to[COMPARE_MAX_PES], rc = -1;

	switch (call) {
	case CALL_PUT:
		rc = spmt_put_on_stream(comm, r->dst, r->src, bytes, 1, r->stream);
		break;
	case CALL_COPY:
		copy_to(r, ((struct own *)r)->there, r->src, bytes);
		return;
	case CALL_LAUNCH:
	case CALL_LAUNCH_EVENT:
		launch_nothing(r, call == CALL_LAUNCH_EVENT);
		return;
	case CALL_BARRIER:
		rc = spmt_barrier_on_stream(comm, r->stream);
		break;
	case CALL_ALL_REDUCE:
		rc = spmt_all_reduce(
			comm, r->dst, r->src, words, SPMT_TYPE_F32, SPMT_OP_SUM, r->stream);
		break;
	case CALL_ALL_GATHER:
		rc = spmt_all_gather(comm, r->dst, r->src, each, SPMT_TYPE_F32, r->stream);
		break;
	case CALL_ALL_TO_ALL:
		rc = spmt_all_to_all(comm, r->dst, r->src, each, SPMT_TYPE_F32, r->stream);
		break;
	case CALL_RING:
		for (int pe = 0; pe < r->npes; pe++)
			to[pe] = (pe + 1) % r->npes;
		rc = spmt_permute(comm, r->dst, r->src, words, SPMT_TYPE_F32, to, r->stream);
		break;
	default:
		break;
	}
	if (rc)
		die("rank %d: %s: %s", r->pe, spmt_strerror(rc), spmt_last_error());
}

static void must(int rc, const char *what)
{
	if (rc < 0)
		die("%s: %s: %s", what, spmt_strerror(rc), spmt_last_error());
}

static void register_stream(struct rank *r, bool is)
{
	spmt_comm *comm = ((struct own *)r)->comm;

	must(is ? spmt_stream_register(comm, r->stream) : spmt_stream_deregister(comm, r->stream),
		"stream");
}

static int rank_main(spmt_comm *comm, void *arg)
{
	struct own own = {};
	struct rank *r = &own.rank;
	struct spmt_route route = {};
	void *p;

	(void)arg;
	own.comm = comm;
	r->shared = &shared;
	r->options = &options;
	r->pe = spmt_rank(comm);
	r->npes = spmt_nranks(comm);
	r->window = window_of(&options);
	CHECK(cudaSetDevice(spmt_device(comm)));
	/* before finish() gives up: who waits for what is said by the library */
	must(spmt_set_timeout(comm, (int64_t)(1e3 * DEADLINE / 2)), "timeout");
	must(spmt_aligned_alloc(comm, 65536, r->window + GUARD, &p), "src");
	r->src = (char *)p;
	must(spmt_aligned_alloc(comm, 65536, r->window + GUARD, &p), "dst");
	r->dst = (char *)p;
	own.there = (char *)spmt_ptr(comm, r->dst, 1);
	must(spmt_aligned_alloc(comm, 65536, WORDS_ALL * sizeof(uint64_t), &p), "words");
	r->words = (uint64_t *)p;
	r->place.view.size = sizeof(r->place.view);
	must(spmt_view_get(comm, &r->place.view), "view");
	if (r->pe < 2) {
		struct spmt_channel_attr attr = {};

		attr.size = sizeof(attr);
		attr.peer = !r->pe;
		r->place.channel.size = sizeof(r->place.channel);
		must(spmt_channel_get(comm, &attr, &r->place.channel), "channel");
	}
	if (options.ptx)
		CHECK(cudaLibraryLoadFromFile(
			&r->library, options.ptx, NULL, NULL, 0, NULL, NULL, 0));
	route.size = sizeof(route);
	if (r->pe == 0 && !spmt_route(comm, 1, &route))
		printf("note route 0 to 1: %s by %s, threshold %llu; heap %s\n", route.map,
			route.movers, (unsigned long long)route.threshold,
			r->place.view.stride ? "of one stride" : "by table");
	bench_run(r);
	return 0;
}

int main(int argc, char **argv)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	int rc;

	parse(&options, argc, argv);
	attr.heap_size = 2 * window_of(&options) + (64 << 20);
	attr.timeout_ms = (int64_t)(1e3 * DEADLINE);
	rc = spmt_run(options.npes, &attr, rank_main, NULL);
	if (rc < 0)
		die("spmt_run: %s: %s", spmt_strerror(rc), spmt_last_error());
	return 0;
}
