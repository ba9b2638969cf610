/* SPDX-License-Identifier: MIT */
/* One call on a stream, or a graph of some: checked, then timed back to back. */
#ifndef COMPARE_WORK_CUH
#define COMPARE_WORK_CUH

#include "bench.cuh"

enum call {
	CALL_PUT,
	CALL_COPY, /* what a put is at the least: the driver's copy, from and to the same places by the same thread */
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

enum { LINKS = 20 }; /* calls in a graph */

/* What is timed. */
struct work {
	enum call call;
	const char *row, *variant;
	uint64_t bytes;	       /* of dst */
	cudaGraphExec_t graph; /* of LINKS calls; NULL: the call itself */
	double best;	       /* seconds a call; 0: none yet */
};

static bool is_put(enum call call)
{
	return call == CALL_PUT || call == CALL_COPY || call == CALL_PUT_EVENT;
}

static bool has_bytes(enum call call)
{
	return call != CALL_BARRIER && call < CALL_LAUNCH;
}

static bool takes_part(const struct rank *r, enum call call)
{
	return !is_put(call) || r->pe == 0;
}

/* By each program: one call on r->stream, or the end of the program. `bytes`: of dst. */
static void issue(struct rank *r, enum call call, uint64_t bytes);

static void begin_work(struct rank *r, const struct work *w)
{
	if (w->graph)
		CHECK(cudaGraphLaunch(w->graph, r->stream));
	else
		issue(r, w->call, w->bytes);
}

static void check_work(struct rank *r, const struct work *w)
{
	enum expect expect = w->call == CALL_ALL_REDUCE ? EXPECT_SUM
		: w->call == CALL_ALL_GATHER		? EXPECT_GATHER
		: w->call == CALL_ALL_TO_ALL		? EXPECT_EXCHANGE
							: EXPECT_COPY;
	int from = is_put(w->call) ? 0 : (r->pe + r->npes - 1) % r->npes;
	uint64_t words = w->bytes / 4;

	if (has_bytes(w->call) && (!is_put(w->call) || r->pe == 1)) {
		compare<<<256, 256, 0, r->stream>>>((uint32_t *)r->dst, words, words, words, expect,
			from, r->pe, r->npes, r->differ);
		CHECK(cudaGetLastError());
	}
	right(r, w->row, w->variant, w->bytes);
}

/* Once, onto poison. */
static void verify_work(struct rank *r, const struct work *w)
{
	fresh(r, w->bytes);
	if (takes_part(r, w->call))
		begin_work(r, w);
	finish(r, w->row);
	meet(r);
	check_work(r, w);
}

/* Seconds a call, back to back, of the slowest rank. */
static double timed_work(struct rank *r, const struct work *w, int n)
{
	double slowest = 0;
	float ms = 0;

	meet(r);
	if (takes_part(r, w->call)) {
		CHECK(cudaEventRecord(r->begin, r->stream));
		for (int i = 0; i < n; i++)
			begin_work(r, w);
		CHECK(cudaEventRecord(r->end, r->stream));
		finish(r, w->row);
		CHECK(cudaEventElapsedTime(&ms, r->begin, r->end));
	}
	r->shared->seconds[r->pe] = 1e-3 * (double)ms;
	meet(r);
	for (int pe = 0; pe < r->npes; pe++)
		if (r->shared->seconds[pe] > slowest)
			slowest = r->shared->seconds[pe];
	meet(r);
	return slowest / n / (w->graph ? LINKS : 1);
}

static void tell_work(struct rank *r, const struct work *w)
{
	if (is_put(w->call) && w->bytes >= 4096)
		value(r, w->row, w->variant, w->bytes, (double)w->bytes / w->best * 1e-9, "GB/s");
	else
		value(r, w->row, w->variant, w->bytes, w->best * 1e6, "us");
}

/* The best of some; what all of them have left is looked at, too. Several are timed in turns, as the machine's host takes half as long again from
   one moment to the next, and then more often. */
static void run_works(struct rank *r, struct work *w, int works)
{
	int n = w->graph	       ? 50
		: w->bytes <= 1 << 20  ? 100
		: w->bytes <= 16 << 20 ? 20
				       : 8,
	    reps = r->options->quick ? 3 : 5;

	if (works > 1 && w->bytes <= 1 << 20)
		reps *= 5;
	for (int i = 0; i < works; i++)
		verify_work(r, &w[i]);
	for (int i = 0; i < reps * works; i++) {
		struct work *one = &w[i % works];
		double t = timed_work(r, one, n);

		if (!one->best || t < one->best)
			one->best = t;
	}
	for (int i = 0; i < works; i++) {
		check_work(r, &w[i]);
		tell_work(r, &w[i]);
	}
}

static void run_call(
	struct rank *r, enum call call, const char *row, const char *variant, uint64_t bytes)
{
	struct work w = { call, row, variant, bytes, NULL, 0 };

	run_works(r, &w, 1);
}

/* On the device before any rank launches it: a launch that first had to bring it there could wait for a kernel that waits for that rank. */
static cudaGraphExec_t captured(struct rank *r, const struct work *w)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	CHECK(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < LINKS; i++)
		issue(r, w->call, w->bytes);
	CHECK(cudaStreamEndCapture(r->stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaGraphUpload(exec, r->stream));
	finish(r, "a graph that goes to the device");
	return exec;
}

/* The call by itself comes first, with all that a library makes for the first of a kind: a capture allows less. */
static void run_graph(struct rank *r, enum call call, const char *row, uint64_t bytes)
{
	struct work w = { call, row, "graph-20", bytes, NULL, 0 };

	static_assert(LINKS == 20, "the variant says how many");
	verify_work(r, &w);
	w.graph = captured(r, &w);
	run_works(r, &w, 1);
	CHECK(cudaGraphExecDestroy(w.graph));
}

#endif
