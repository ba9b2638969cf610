/* SPDX-License-Identifier: MIT */
/* All groups that a program has, which is those whose files it has included before this one. */
#ifndef COMPARE_GROUPS_CUH
#define COMPARE_GROUPS_CUH

#include "bench.cuh"

struct group {
	const char *name;
	void (*run)(struct rank *r);
};

static const struct group groups[] = {
#if defined(COMPARE_DEVICE_CALLS)
	{ "bandwidth", group_bandwidth },
	{ "latency", group_latency },
#endif
#if defined(COMPARE_SIGNALS)
	{ "signal", group_signal },
#endif
#if defined(COMPARE_DEVICE_CALLS)
	{ "sync", group_sync },
	{ "atomic", group_atomic },
#endif
#if defined(COMPARE_CALLS)
	{ "stream", group_stream },
	{ "graph", group_graph },
#endif
#if defined(COMPARE_CHANNELS)
	{ "channel", group_channel },
#endif
#if defined(COMPARE_PLANS)
	{ "plan", group_plan },
#endif
};

static bool wanted(const char *list, const char *name)
{
	size_t n = strlen(name);

	if (!list)
		return true;
	for (const char *p = strstr(list, name); p; p = strstr(p + 1, name))
		if ((p == list || p[-1] == ',') && (!p[n] || p[n] == ','))
			return true;
	return false;
}

/* In each rank, its device current, src, dst, words and place set. */
static void bench_run(struct rank *r)
{
	CHECK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
	CHECK(cudaEventCreate(&r->begin));
	CHECK(cudaEventCreate(&r->end));
	CHECK(cudaEventCreateWithFlags(&r->done, cudaEventDisableTiming));
	CHECK(cudaMalloc((void **)&r->code, sizeof(*r->code)));
	CHECK(cudaMalloc((void **)&r->differ, sizeof(*r->differ)));
	/* again and again, so that no program's first rows are those of clocks that have been idle */
	for (double begin = now(); now() - begin < WARM_SECONDS;) {
		fill<<<256, 256, 0, r->stream>>>((uint32_t *)r->src, r->window / 4, r->pe);
		CHECK(cudaGetLastError());
		finish(r, "fill");
	}
	meet(r);
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++) {
		if (!wanted(r->options->groups, groups[i].name))
			continue;
		groups[i].run(r);
		meet(r);
		if (r->pe == 0) {
			printf("done %s\n", groups[i].name);
			fflush(stdout);
		}
	}
	meet(r);
}

#endif
