/* SPDX-License-Identifier: MIT */
/*
 * xla_streams [host|cuda|hip]: XLA's handlers in the streams of programs, as on GPUs (tests/xla/xla.h): on virtual devices, or over the
 * stand-ins for the vendors' drivers. One thread drives all devices, one behind the other, so that whoever waited for another
 * device would wait for ever.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/device/device.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/xla/xla.h"

enum { DEVICES = 4, COUNT = 24, ROWS = 4, COLS = 2, KINDS_HERE = 9, WHOLE = COUNT * DEVICES };

static const struct backend *backend;
static int64_t worlds = 500, runs = 5000;
static device_stream streams[DEVICES];

static int open_world(int64_t *id, int64_t timeout_ms)
{
	static const int32_t devices[DEVICES] = { 0, 1, 2, 3 };
	struct spmt_xla_attr attr = { sizeof(attr), ++worlds, 1, DEVICES, devices, backend->name,
		2 << 20, timeout_ms, 1 };

	*id = attr.id;
	if (spmt_xla_open(&attr))
		return ranks_fail("%s", spmt_xla_last_error());
	return 0;
}

/* ---- memory of the devices, which this CPU reaches ---------------------------------------------------- */

struct buffers {
	int32_t *in[DEVICES], *out[DEVICES], *more[DEVICES];
};

static int buffers_open(struct buffers *b)
{
	for (int d = 0; d < DEVICES; d++) {
		int32_t **each[] = { &b->in[d], &b->out[d], &b->more[d] };

		for (int i = 0; i < 3; i++)
			REQUIRE_OK(backend->alloc(
				d, WHOLE * sizeof(int32_t), DEVICE_MEMORY_PLAIN, (void **)each[i]));
	}
	return 0;
}

static void buffers_close(const struct buffers *b)
{
	for (int d = 0; d < DEVICES; d++) {
		backend->free(d, b->in[d]);
		backend->free(d, b->out[d]);
		backend->free(d, b->more[d]);
	}
}

static int settle(void)
{
	for (int d = 0; d < DEVICES; d++)
		REQUIRE_OK(backend->stream_sync(d, streams[d], 60000000000, NULL));
	return 0;
}

/* ---- every kind ------------------------------------------------------------------------------------------- */

enum { REDUCE, PERMUTE, BROADCAST, GATHER, ALL_TO_ALL, SCATTER, BARRIER, PUT, GET };

static const int64_t to[DEVICES] = { 1, 2, -1, 0 }, start[DEVICES] = { 3, 0, 5, 8 },
		     of[DEVICES] = { 2, 0, -1, 2 };

static int open_sites(struct xla_site *sites, int64_t world)
{
	static ffi_handler *const handlers[] = { spmt_xla_all_reduce_graph, spmt_xla_permute_graph,
		spmt_xla_broadcast_graph, spmt_xla_all_gather_graph, spmt_xla_all_to_all_graph,
		spmt_xla_reduce_scatter_graph, spmt_xla_barrier_graph };

	for (int i = 0; i <= BARRIER; i++)
		REQUIRE_EQ(
			xla_instantiate(&sites[i], handlers[i], world, SPMT_OP_SUM, 1, to, DEVICES),
			0);
	REQUIRE_EQ(xla_instantiate_slice(
			   &sites[PUT], spmt_xla_put_graph, world, "to", to, start, DEVICES),
		0);
	REQUIRE_EQ(xla_instantiate_slice(
			   &sites[GET], spmt_xla_get_graph, world, "of", of, start, DEVICES),
		0);
	return 0;
}

static void forget_sites(struct xla_site *sites)
{
	for (int i = 0; i < KINDS_HERE; i++)
		xla_forget(&sites[i]);
}

static int32_t given(int device, int salt, int i)
{
	return device * 10000 + salt * 1000 + i;
}

/* What result and second argument hold before. */
static int32_t before(int device, int i)
{
	return -device * 100 - i - 1;
}

static void fill(const struct buffers *b, int salt)
{
	for (int d = 0; d < DEVICES; d++)
		for (int i = 0; i < WHOLE; i++) {
			b->in[d][i] = given(d, salt, i);
			b->out[d][i] = before(d, i);
			b->more[d][i] = -given(d, salt, i);
		}
}

/* As XLA numbers runs: by 32 bits that begin anywhere, so that one number is above another for no reason. */
static int64_t run_id(int64_t run)
{
	return (int32_t)((uint32_t)run * 2654435761u);
}

static struct xla_call call_of(
	const struct buffers *b, struct xla_site *sites, int kind, int device, int64_t run)
{
	int64_t in = kind == ALL_TO_ALL || kind == SCATTER ? WHOLE : COUNT;
	int64_t out = kind == ALL_TO_ALL || kind == GATHER ? WHOLE : COUNT;
	struct xla_call call = { &sites[kind], device, run_id(run),
		{ { FFI_S32, b->in[device], in, 0 }, { FFI_S32, b->out[device], out, 0 } },
		{ FFI_S32, b->out[device], out, 0 }, kind == PERMUTE ? 2 : 1, streams[device] };

	if (kind == PUT) {
		call.nargs = 2;
		call.args[0] = (struct xla_array){ FFI_S32, b->out[device], COUNT / COLS, COLS };
		call.args[1] = (struct xla_array){ FFI_S32, b->more[device], ROWS, COLS };
		call.ret = call.args[0];
	} else if (kind == GET) {
		call.nargs = 2;
		call.args[0] = (struct xla_array){ FFI_S32, b->in[device], COUNT / COLS, COLS };
		call.args[1] = (struct xla_array){ FFI_S32, b->out[device], ROWS, COLS };
		call.ret = call.args[1];
	}
	return call;
}

static int expected_count(int kind)
{
	return kind == ALL_TO_ALL || kind == GATHER ? WHOLE : kind == GET ? ROWS * COLS : COUNT;
}

static int32_t put_here(int device, int salt, int i)
{
	for (int s = 0; s < DEVICES; s++) {
		int at = i - (int)start[s] * COLS;

		if (to[s] == device && at >= 0 && at < ROWS * COLS)
			return -given(s, salt, at);
	}
	return before(device, i);
}

static int32_t expected(int kind, int device, int salt, int i)
{
	int32_t sum = 0;

	switch (kind) {
	case REDUCE:
	case SCATTER:
		for (int d = 0; d < DEVICES; d++)
			sum += given(d, salt, kind == REDUCE ? i : device * COUNT + i);
		return sum;
	case PERMUTE:
		for (int d = 0; d < DEVICES; d++)
			if (to[d] == device)
				return given(d, salt, i);
		return before(device, i);
	case BROADCAST:
		return given(1, salt, i);
	case GATHER:
		return given(i / COUNT, salt, i % COUNT);
	case ALL_TO_ALL:
		return given(i / COUNT, salt, device * COUNT + i % COUNT);
	case PUT:
		return put_here(device, salt, i);
	case GET:
		return of[device] < 0 ? before(device, i)
				      : given((int)of[device], salt, (int)start[device] * COLS + i);
	default:
		return given(device, salt, i);
	}
}

static int results(const struct buffers *b, int kind, int salt)
{
	for (int d = 0; d < DEVICES; d++)
		for (int i = 0; i < expected_count(kind); i++)
			if (b->out[d][i] != expected(kind, d, salt, i))
				return ranks_fail("kind %d, device %d, element %d: %d, not %d",
					kind, d, i, b->out[d][i], expected(kind, d, salt, i));
	return 0;
}

static int call_device(
	const struct buffers *b, struct xla_site *sites, int kind, int device, int64_t run)
{
	const struct xla_call call = call_of(b, sites, kind, device, run);

	if (xla_wait(&call))
		return ranks_fail("kind %d, device %d: %s", kind, device, xla_sentence());
	return 0;
}

/* Each device enqueues all there is, rounds of each kind, before the next one does anything. */
static int every_kind(void)
{
	struct xla_site sites[KINDS_HERE];
	struct buffers b[KINDS_HERE];
	int64_t world;

	TRY(open_world(&world, 60000));
	TRY(open_sites(sites, world));
	for (int kind = 0; kind < KINDS_HERE; kind++) {
		TRY(buffers_open(&b[kind]));
		fill(&b[kind], kind);
	}
	for (int d = 0; d < DEVICES; d++)
		for (int round = 0; round < 4; round++)
			for (int kind = 0; kind < KINDS_HERE; kind++)
				TRY(call_device(&b[kind], sites, kind, d, runs + round));
	runs += 4;
	TRY(settle());
	for (int kind = 0; kind < KINDS_HERE; kind++) {
		TRY(results(&b[kind], kind, kind));
		buffers_close(&b[kind]);
	}
	REQUIRE_EQ(spmt_xla_status(world), 0);
	REQUIRE_EQ(spmt_xla_close(world), 0);
	forget_sites(sites);
	return 0;
}

/* Captured once, launched with other data each time. */
static int graphs(void)
{
	struct xla_site sites[KINDS_HERE];
	struct buffers b[KINDS_HERE];
	spmt_host_graph *graph[DEVICES];
	int64_t world;

	TRY(open_world(&world, 60000));
	TRY(open_sites(sites, world));
	for (int kind = 0; kind < KINDS_HERE; kind++)
		TRY(buffers_open(&b[kind]));
	runs++;
	for (int d = 0; d < DEVICES; d++) {
		REQUIRE_OK(spmt_host_graph_begin(streams[d]));
		for (int kind = 0; kind < KINDS_HERE; kind++)
			TRY(call_device(&b[kind], sites, kind, d, runs));
		REQUIRE_OK(spmt_host_graph_end(streams[d], &graph[d]));
	}
	for (int salt = 0; salt < 5; salt++) {
		for (int kind = 0; kind < KINDS_HERE; kind++)
			fill(&b[kind], salt);
		for (int d = 0; d < DEVICES; d++)
			REQUIRE_OK(spmt_host_graph_launch(graph[d], streams[d]));
		TRY(settle());
		for (int kind = 0; kind < KINDS_HERE; kind++)
			TRY(results(&b[kind], kind, salt));
	}
	for (int d = 0; d < DEVICES; d++)
		REQUIRE_OK(spmt_host_graph_destroy(graph[d]));
	for (int kind = 0; kind < KINDS_HERE; kind++)
		buffers_close(&b[kind]);
	REQUIRE_EQ(spmt_xla_close(world), 0);
	forget_sites(sites);
	return 0;
}

/* ---- failures ---------------------------------------------------------------------------------------------- */

static int all_fine(const struct buffers *b, struct xla_site *sites)
{
	runs++;
	fill(b, 3);
	for (int d = 0; d < DEVICES; d++)
		TRY(call_device(b, sites, REDUCE, d, runs));
	TRY(settle());
	return results(b, REDUCE, 3);
}

/* This run fails on all devices, with that sentence. */
static int all_told(const struct buffers *b, struct xla_site *sites, int code, const char *word)
{
	runs++;
	for (int d = 0; d < DEVICES; d++) {
		const struct xla_call call = call_of(b, sites, REDUCE, d, runs);

		REQUIRE_EQ(xla_wait(&call), code);
		if (!strstr(xla_sentence(), word))
			return ranks_fail("device %d: no \"%s\": %s", d, word, xla_sentence());
	}
	return 0;
}

/* One device does not come: the others' results are not touched, the next run is told, and the one behind it works. */
static int late(void)
{
	struct xla_site sites[KINDS_HERE];
	struct buffers b;
	int64_t world;

	TRY(open_world(&world, 300));
	TRY(open_sites(sites, world));
	TRY(buffers_open(&b));
	fill(&b, 1);
	runs++;
	for (int d = 0; d < DEVICES - 1; d++)
		TRY(call_device(&b, sites, REDUCE, d, runs));
	for (int d = 0; d < DEVICES; d++)
		backend->stream_sync(d, streams[d], 60000000000, NULL); /* may tell of it */
	for (int d = 0; d < DEVICES; d++)
		for (int i = 0; i < COUNT; i++)
			REQUIRE_EQ(b.out[d][i], before(d, i));
	REQUIRE_EQ(spmt_xla_status(world), SPMT_ERR_TIMEOUT);
	REQUIRE(strstr(spmt_xla_last_error(), "1 of 4 ranks missing after 0.3 s: 3"));
	TRY(all_told(&b, sites, FFI_DEADLINE_EXCEEDED, "1 of 4 ranks missing after 0.3 s: 3"));
	REQUIRE_EQ(spmt_xla_status(world), 0);
	REQUIRE_EQ(spmt_xla_close(world), 0);
	forget_sites(sites);
	buffers_close(&b);
	return 0;
}

/* A device whose call is refused ends the kernels of the others, long before the deadline. */
static int refused(void)
{
	struct xla_site sites[KINDS_HERE];
	struct buffers b;
	struct xla_call wrong;
	int64_t world;

	TRY(open_world(&world, 600000));
	TRY(open_sites(sites, world));
	TRY(buffers_open(&b));
	fill(&b, 1);
	for (int round = 0; round < 3; round++) {
		runs++;
		for (int d = 0; d < DEVICES - 1; d++)
			TRY(call_device(&b, sites, REDUCE, d, runs));
		wrong = call_of(&b, sites, REDUCE, DEVICES - 1, runs);
		wrong.ret.dtype = FFI_F32;
		REQUIRE_EQ(xla_wait(&wrong), FFI_INVALID_ARGUMENT);
		REQUIRE(strstr(xla_sentence(), "differ"));
		for (int d = 0; d < DEVICES; d++)
			backend->stream_sync(d, streams[d], 60000000000, NULL);
		/* Late for a run that has failed. */
		wrong = call_of(&b, sites, REDUCE, 0, runs);
		REQUIRE_EQ(xla_wait(&wrong), FFI_ABORTED);
		REQUIRE(strstr(xla_sentence(), "device 3 did not take part"));
		/* And after the comms were made anew. */
		runs++;
		fill(&b, 3);
		TRY(call_device(&b, sites, REDUCE, 0, runs));
		wrong = call_of(&b, sites, REDUCE, 1, runs - 1);
		REQUIRE_EQ(xla_wait(&wrong), FFI_ABORTED);
		REQUIRE(strstr(xla_sentence(), "device 3 did not take part"));
		for (int d = 1; d < DEVICES; d++)
			TRY(call_device(&b, sites, REDUCE, d, runs));
		TRY(settle());
		TRY(results(&b, REDUCE, 3));
		/* A program that is compiled again has the numbers of its runs again. */
		runs -= 2;
		TRY(all_fine(&b, sites));
		runs++;
	}
	REQUIRE_EQ(spmt_xla_close(world), 0);
	forget_sites(sites);
	buffers_close(&b);
	return 0;
}

/* What only streams refuse. */
static int wrong(void)
{
	struct xla_site sites[KINDS_HERE], ragged;
	struct xla_call call;
	struct buffers b;
	int64_t world;

	TRY(open_world(&world, 60000));
	TRY(open_sites(sites, world));
	TRY(buffers_open(&b));
	fill(&b, 1);
	REQUIRE_EQ(
		xla_instantiate(&ragged, spmt_xla_ragged_all_to_all_graph, world, -1, -1, NULL, 0),
		0);
	call = call_of(&b, sites, REDUCE, 0, ++runs);
	call.site = &ragged;
	REQUIRE_EQ(xla_wait(&call), FFI_UNIMPLEMENTED);
	REQUIRE(strstr(xla_sentence(), "its tables are in the GPU's memory"));
	TRY(all_fine(&b, sites));
	call = call_of(&b, sites, GET, 0, ++runs);
	call.args[1].data = b.more[0];
	REQUIRE_EQ(xla_wait(&call), FFI_INVALID_ARGUMENT);
	REQUIRE(strstr(xla_sentence(), "operand_output_aliases"));
	runs--; /* the same run, of the others */
	TRY(all_told(&b, sites, FFI_ABORTED, "device 0 did not take part"));
	TRY(all_fine(&b, sites));
	REQUIRE_EQ(spmt_xla_close(world), 0);
	call = call_of(&b, sites, REDUCE, 0, ++runs);
	REQUIRE_EQ(xla_wait(&call), FFI_FAILED_PRECONDITION);
	REQUIRE_EQ(spmt_xla_status(world), -EBADF);
	forget_sites(sites);
	xla_forget(&ragged);
	buffers_close(&b);
	return 0;
}

/* ---- a thread a device, as XLA has --------------------------------------------------------------------------- */

struct driven {
	const struct buffers *b;
	struct xla_site *sites;
	int device, code;
	int64_t first;
};

static void *driven_main(void *arg)
{
	struct driven *d = arg;

	for (int i = 0; i < 200 && !d->code; i++)
		d->code = call_device(d->b, d->sites, i % KINDS_HERE == PUT ? GET : i % KINDS_HERE,
			d->device, d->first + i);
	return NULL;
}

static int threads(void)
{
	struct xla_site sites[KINDS_HERE];
	struct driven driven[DEVICES];
	pthread_t each[DEVICES];
	struct buffers b;
	int64_t world;

	TRY(open_world(&world, 60000));
	TRY(open_sites(sites, world));
	TRY(buffers_open(&b));
	fill(&b, 0);
	for (int d = 0; d < DEVICES; d++) {
		driven[d] = (struct driven){ &b, sites, d, 0, runs + 1 };
		REQUIRE_EQ(pthread_create(&each[d], NULL, driven_main, &driven[d]), 0);
	}
	for (int d = 0; d < DEVICES; d++)
		pthread_join(each[d], NULL);
	runs += 201;
	TRY(settle());
	for (int d = 0; d < DEVICES; d++)
		REQUIRE_EQ(driven[d].code, 0);
	TRY(all_fine(&b, sites));
	REQUIRE_EQ(spmt_xla_close(world), 0);
	forget_sites(sites);
	buffers_close(&b);
	return 0;
}

static int devices_open(const char *name)
{
	char path[512];
	int n;

	if (strcmp(name, "host") != 0) {
		bool cuda = !strcmp(name, "cuda");

		snprintf(path, sizeof(path), "%s/fake-%s.so", FAKES, cuda ? "cuda" : "hip7");
		setenv(cuda ? "SPMT_CUDA_LIB" : "SPMT_HIP_LIB", path, 1);
		setenv("SPMT_FAKE_DEVICES", "4", 1);
		setenv("SPMT_FAKE_BLIND", "0", 1);
	}
	setenv("SPMT_BACKEND", name, 1);
	if (device_select(name, &backend) || backend->count(&n) || n < DEVICES)
		return -1;
	for (int d = 0; d < DEVICES; d++)
		if (backend->open(d) || backend->stream_create(d, &streams[d]))
			return -1;
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "host";
	static const struct test_case cases[] = { { "every kind, far ahead, by one thread",
							  every_kind },
		{ "a thread a device", threads }, { "a late device", late },
		{ "a device that is refused", refused }, { "what streams refuse", wrong },
		{ "in graphs", graphs } };
	size_t n = sizeof(cases) / sizeof(cases[0]);

	if (strcmp(name, "host") != 0 && !strcmp(IMAGES, "0")) {
		printf("1..1\nok 1 - handlers in streams # SKIP no device images were built\n");
		return 0;
	}
	if (devices_open(name)) {
		printf("Bail out! no backend %s: %s\n", name, spmt_last_error());
		return 1;
	}
	/* Drivers' stand-ins have no graphs. */
	return tap_run(cases, strcmp(name, "host") ? n - 1 : n);
}
