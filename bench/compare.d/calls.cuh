/* SPDX-License-Identifier: MIT */
/* Calls on streams, one after the other, and the groups that a program has. */
#ifndef COMPARE_CALLS_CUH
#define COMPARE_CALLS_CUH

#include "bench.cuh"

enum call {
	CALL_PUT,
	CALL_BARRIER,
	CALL_ALL_REDUCE,
	CALL_ALL_GATHER,
	CALL_ALL_TO_ALL,
	CALL_RING,
	CALL_PUT_EVENT,	   /* a put with an event behind it, which says when it has ended */
	CALL_LAUNCH,	   /* of a kernel without work: what the host takes, whatever is called */
	CALL_LAUNCH_EVENT, /* likewise */
	CALLS
};

static bool is_put(enum call call)
{
	return call == CALL_PUT || call == CALL_PUT_EVENT;
}

static bool has_bytes(enum call call)
{
	return call != CALL_BARRIER && call < CALL_LAUNCH;
}

/* By each program: one call on r->stream, or the end of the program. `bytes`: of dst. */
static void issue(struct rank *r, enum call call, uint64_t bytes);

static void check_call(struct rank *r, enum call call, uint64_t bytes)
{
	enum expect expect = call == CALL_ALL_REDUCE ? EXPECT_SUM
		: call == CALL_ALL_GATHER	     ? EXPECT_GATHER
		: call == CALL_ALL_TO_ALL	     ? EXPECT_EXCHANGE
						     : EXPECT_COPY;
	int from = is_put(call) ? 0 : (r->pe + r->npes - 1) % r->npes;

	if (!has_bytes(call) || (is_put(call) && r->pe != 1))
		return;
	compare<<<256, 256, 0, r->stream>>>((uint32_t *)r->dst, bytes / 4, bytes / 4, bytes / 4,
		expect, from, r->pe, r->npes, r->differ);
	CHECK(cudaGetLastError());
}

/* Seconds a call, back to back, of the slowest rank. */
static double timed_calls(struct rank *r, enum call call, uint64_t bytes, int n)
{
	bool active = !is_put(call) || r->pe == 0;
	double slowest = 0;
	float ms = 0;

	meet(r);
	if (active) {
		CHECK(cudaEventRecord(r->begin, r->stream));
		for (int i = 0; i < n; i++)
			issue(r, call, bytes);
		CHECK(cudaEventRecord(r->end, r->stream));
		finish(r, "calls on a stream");
		CHECK(cudaEventElapsedTime(&ms, r->begin, r->end));
	}
	r->shared->seconds[r->pe] = 1e-3 * (double)ms;
	meet(r);
	for (int pe = 0; pe < r->npes; pe++)
		if (r->shared->seconds[pe] > slowest)
			slowest = r->shared->seconds[pe];
	meet(r);
	return slowest / n;
}

static void run_call(struct rank *r, enum call call, const char *row, uint64_t bytes)
{
	int n = bytes <= 1 << 20    ? 100
		: bytes <= 16 << 20 ? 20
				    : 8,
	    reps = r->options->quick ? 3 : 5;
	double best = 1e9;

	fresh(r, bytes);
	if (!is_put(call) || r->pe == 0)
		issue(r, call, bytes);
	finish(r, row);
	meet(r);
	check_call(r, call, bytes);
	right(r, row, "stream", bytes);
	for (int i = 0; i < reps; i++) {
		double t = timed_calls(r, call, bytes, n);

		if (t < best)
			best = t;
	}
	if (is_put(call) && bytes >= 4096)
		value(r, row, "stream", bytes, (double)bytes / best * 1e-9, "GB/s");
	else
		value(r, row, "stream", bytes, best * 1e6, "us");
}

/* Bit per enum call of what the program has. */
static unsigned calls_there(void);

static void group_stream(struct rank *r)
{
	static const uint64_t sizes[] = { 8, 4096, 65536, 1 << 20, 16 << 20, 128 << 20, 256 << 20 };
	static const char *const rows[] = { "put_on_stream", "barrier_on_stream", "all_reduce",
		"all_gather", "all_to_all", "ring", "put_event", "launch", "launch_event" };

	for (int call = 0; call < CALLS; call++) {
		if (!(calls_there() & 1u << call))
			continue;
		for (int i = 0; i < 7; i++) {
			bool shares = call == CALL_ALL_GATHER || call == CALL_ALL_TO_ALL;
			uint64_t unit = shares ? 4 * (uint64_t)r->npes : 4;
			uint64_t bytes = (sizes[i] + unit - 1) / unit * unit;

			if (!has_bytes((enum call)call) && i)
				break;
			if (!has_bytes((enum call)call))
				bytes = 0;
			if (bytes <= r->window)
				run_call(r, (enum call)call, rows[call], bytes);
		}
	}
}

/* ---- all -------------------------------------------------------------------------------- */

struct group {
	const char *name;
	void (*run)(struct rank *r);
};

static const struct group groups[] = {
#if !defined(COMPARE_CALLS_ONLY)
	{ "bandwidth", group_bandwidth },
	{ "latency", group_latency },
	{ "signal", group_signal },
	{ "sync", group_sync },
	{ "atomic", group_atomic },
#endif
	{ "stream", group_stream },
#if defined(COMPARE_CHANNELS)
	{ "channel", group_channel },
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
	fill<<<256, 256, 0, r->stream>>>((uint32_t *)r->src, r->window / 4, r->pe);
	CHECK(cudaGetLastError());
	finish(r, "fill");
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
