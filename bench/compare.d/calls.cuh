/* SPDX-License-Identifier: MIT */
/* Groups of calls on streams. */
#ifndef COMPARE_CALLS_CUH
#define COMPARE_CALLS_CUH

#include "work.cuh"

#define COMPARE_CALLS

/* Bit per enum call of what the program has. */
static unsigned calls_there(void);

#if defined(COMPARE_REGISTERED)
/* r->stream: by programs whose library records no event behind calls in a stream that is. */
static void register_stream(struct rank *r, bool is);
#endif

/* Its name in results; NULL: the program does not have it. */
static const char *row_of(enum call call)
{
	static const char *const rows[] = { "put_on_stream", "put_copy", "barrier_on_stream",
		"all_reduce", "all_gather", "all_to_all", "ring", "put_event", "launch",
		"launch_event" };

	return calls_there() & 1u << call ? rows[call] : NULL;
}

/* As many as all ranks have a share of. */
static uint64_t bytes_of(const struct rank *r, enum call call, uint64_t size)
{
	bool shares = call == CALL_ALL_GATHER || call == CALL_ALL_TO_ALL;
	uint64_t unit = shares ? 4 * (uint64_t)r->npes : 4;

	return has_bytes(call) ? (size + unit - 1) / unit * unit : 0;
}

/* A put beside its copy, where the program has that. The put is timed last, so that what is looked at then is its own. */
static void run_put(struct rank *r, const char *row, const char *variant, uint64_t bytes)
{
	struct work w[] = { { CALL_COPY, row_of(CALL_COPY), variant, bytes, NULL, 0 },
		{ CALL_PUT, row, variant, bytes, NULL, 0 } };
	int first = !w[0].row;

	run_works(r, w + first, 2 - first);
}

static void run_calls(struct rank *r, const char *variant, uint64_t most)
{
	static const uint64_t sizes[] = { 8, 4096, 32768, 65536, 1 << 20, 16 << 20, 128 << 20,
		256 << 20 };
	const int n = sizeof(sizes) / sizeof(*sizes);

	for (int call = 0; call < CALLS; call++) {
		const char *row = row_of((enum call)call);

		for (int i = 0; i < (has_bytes((enum call)call) ? n : 1) && row; i++) {
			uint64_t bytes = bytes_of(r, (enum call)call, sizes[i]);

			if (bytes > r->window || sizes[i] > most || call == CALL_COPY)
				continue;
			if (call == CALL_PUT)
				run_put(r, row, variant, bytes);
			else
				run_call(r, (enum call)call, row, variant, bytes);
		}
	}
}

static void group_stream(struct rank *r)
{
	run_calls(r, "stream", UINT64_MAX);
#if defined(COMPARE_REGISTERED)
	/* Small ones once more, of which an event is a part that one sees. */
	register_stream(r, true);
	run_calls(r, "registered", 1 << 20);
	register_stream(r, false);
#endif
}

/* Small ones, where a launch of the host's for each is most of what they take. */
static void group_graph(struct rank *r)
{
	static const uint64_t sizes[] = { 8, 4096, 32768, 65536 };
	static const struct {
		enum call call;
		int sizes;
	} calls[] = { { CALL_BARRIER, 1 }, { CALL_ALL_REDUCE, 4 }, { CALL_ALL_GATHER, 3 },
		{ CALL_ALL_TO_ALL, 3 }, { CALL_RING, 3 }, { CALL_LAUNCH, 1 } };

	for (size_t k = 0; k < sizeof(calls) / sizeof(*calls); k++) {
		const char *row = row_of(calls[k].call);

		for (int i = 0; i < calls[k].sizes && row; i++)
			run_graph(r, calls[k].call, row, bytes_of(r, calls[k].call, sizes[i]));
	}
}

#if defined(COMPARE_PLANS)
/* An all_reduce alone, by whatever SPMT_COLL names: on a stream, and up to 1 MiB in graphs, where it is not the host that is timed. */
static void group_plan(struct rank *r)
{
	static const uint64_t sizes[] = { 8, 4096, 65536, 1 << 20, 16 << 20, 128 << 20 };

	for (int i = 0; i < 6; i++) {
		uint64_t unit = sizes[i] < 65536 ? 8 : 8 * (uint64_t)r->npes; /* whole chunks */
		uint64_t bytes = (sizes[i] + unit - 1) / unit * unit;

		if (bytes > r->window)
			continue;
		run_call(r, CALL_ALL_REDUCE, "all_reduce_plan", "stream", bytes);
		if (bytes <= 1 << 20)
			run_graph(r, CALL_ALL_REDUCE, "all_reduce_plan", bytes);
	}
}
#endif

#endif
