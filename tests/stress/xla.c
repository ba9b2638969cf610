/* SPDX-License-Identifier: MIT */
/* XLA's handlers, called as XLA calls them (tests/xla/xla.h): by few threads for many devices, far ahead, late, wrongly. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/xla/closes.h"
#include "tests/xla/slices.h"
#include "tests/xla/xla.h"

enum { DEVICES = 8, THREADS = 2, SMALL = 16, LARGE = 128 << 10, SITES = 8 };

static int64_t worlds = 100, runs = 1000;

static int open_world(int64_t *id, int groups, int64_t timeout_ms)
{
	int32_t devices[DEVICES];
	struct spmt_xla_attr attr = { .size = sizeof(attr),
		.id = ++worlds,
		.groups = groups,
		.nranks = DEVICES / groups,
		.devices = devices,
		.backend = "host",
		.heap_size = 2 << 20,
		.timeout_ms = timeout_ms };

	for (int i = 0; i < DEVICES; i++)
		devices[i] = i;
	*id = attr.id;
	if (spmt_xla_open(&attr))
		return ranks_fail("%s", spmt_xla_last_error());
	return 0;
}

/* SPMT_HOST_DEVICES=0, in a process of its own, as the environment is read once. */
static int no_devices(void)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		int64_t world;

		setenv("SPMT_HOST_DEVICES", "0", 1);
		_exit(open_world(&world, 1, 0) == 0 ||
			!strstr(spmt_xla_last_error(), "backend host has 0 (SPMT_HOST_DEVICES)"));
	}
	REQUIRE_EQ(waitpid(child, &status, 0), child);
	REQUIRE_EQ(status, 0);
	return 0;
}

static int too_many(void)
{
	static const int wrong[][2] = { { 1, 1025 }, { 1025, 1 }, { 0, 8 }, { 8, 0 }, { -1, 8 } };
	int32_t devices[DEVICES];
	struct spmt_xla_attr attr = { .size = sizeof(attr), .backend = "host", .devices = devices };

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		attr.groups = wrong[i][0];
		attr.nranks = wrong[i][1];
		REQUIRE_EQ(spmt_xla_open(&attr), -EINVAL);
		REQUIRE(strstr(spmt_xla_last_error(), "a world has 1 to 1024 groups of 1 to 1024"));
	}
	attr.groups = attr.nranks = 1;
	attr.devices = NULL;
	REQUIRE_EQ(spmt_xla_open(&attr), -EINVAL);
	REQUIRE(strstr(spmt_xla_last_error(), "devices is NULL"));
	return 0;
}

static int metadata(void)
{
	ffi_handler *plain[] = { spmt_xla_instantiate, spmt_xla_all_reduce, spmt_xla_permute,
		spmt_xla_broadcast, spmt_xla_all_gather, spmt_xla_all_to_all,
		spmt_xla_reduce_scatter, spmt_xla_barrier, spmt_xla_ragged_all_to_all, spmt_xla_put,
		spmt_xla_get };
	ffi_handler *graph[] = { spmt_xla_all_reduce_graph, spmt_xla_permute_graph,
		spmt_xla_broadcast_graph, spmt_xla_all_gather_graph, spmt_xla_all_to_all_graph,
		spmt_xla_reduce_scatter_graph, spmt_xla_barrier_graph,
		spmt_xla_ragged_all_to_all_graph, spmt_xla_put_graph, spmt_xla_get_graph };

	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		REQUIRE_EQ(xla_metadata(plain[i], 0), 0);
	for (size_t i = 0; i < sizeof(graph) / sizeof(graph[0]); i++)
		REQUIRE_EQ(xla_metadata(graph[i], FFI_IN_COMMAND_BUFFERS), 0);
	return 0;
}

/* ---- programs: every kind in turn, over and over, all devices at once */

struct program {
	const struct xla_site *sites;
	int device, ranks, rounds, count, at; /* at: calls done */
	int64_t run;
	int32_t *in, *out;
	struct xla_call call;
	int failed; /* of calls */
	_Atomic int *left;
};

static int32_t value(const struct program *p, int device, int i)
{
	return device * 1000 + p->at * 7 + i;
}

/* How many elements this kind takes and gives where a part is `count`. */
static void sizes(const struct program *p, int kind, int64_t *in, int64_t *out)
{
	*in = kind == 4 || kind == 5 ? (int64_t)p->count * p->ranks : p->count;
	*out = kind == 3 || kind == 4 ? (int64_t)p->count * p->ranks : p->count;
}

/* What element i of the result is. */
static int32_t expected(const struct program *p, int kind, int i)
{
	int n = p->ranks, first = p->device / n * n, rank = p->device % n;
	int32_t sum = 0;

	switch (kind) {
	case 0:
		for (int d = 0; d < n; d++)
			sum += value(p, first + d, i);
		return sum;
	case 1:
		return value(p, first + (rank + n - 1) % n, i);
	case 2:
		return value(p, first + 1, i);
	case 3:
		return value(p, first + i / p->count, i % p->count);
	case 4:
		return value(p, first + i / p->count, rank * p->count + i % p->count);
	case 5:
		for (int d = 0; d < n; d++)
			sum += value(p, first + d, rank * p->count + i);
		return sum;
	default:
		return value(p, p->device, i);
	}
}

static void program_step(struct program *p);

static void program_next(void *arg, int code, const char *sentence)
{
	struct program *p = arg;
	int kind = p->at % 7;
	int64_t in, out;

	(void)sentence;
	sizes(p, kind, &in, &out);
	p->failed += code != 0;
	for (int64_t i = 0; i < in; i++)
		p->in[i] = -1; /* what is used again when the call has ended */
	for (int i = 0; i < out; i++)
		p->failed += p->out[i] != expected(p, kind, i);
	p->at++;
	program_step(p);
}

static void program_step(struct program *p)
{
	int kind = p->at % 7;
	int64_t in, out;

	if (p->at == 7 * p->rounds) {
		free(p->in);
		free(p->out);
		atomic_fetch_sub(p->left, 1);
		return;
	}
	sizes(p, kind, &in, &out);
	for (int i = 0; i < in; i++)
		p->in[i] = value(p, p->device, i);
	p->call = (struct xla_call){ &p->sites[kind], p->device, p->run,
		{ { FFI_S32, p->in, in, 0 } }, { FFI_S32, p->out, out, 0 }, 1 };
	xla_execute(&p->call, program_next, p);
}

static void program_begin(void *arg)
{
	struct program *p = arg;
	size_t size = sizeof(*p->in) * (size_t)p->count * (size_t)p->ranks;

	p->in = malloc(size);
	p->out = malloc(size);
	program_step(p);
}

static ffi_handler *const handlers[SITES] = { spmt_xla_all_reduce, spmt_xla_permute,
	spmt_xla_broadcast, spmt_xla_all_gather, spmt_xla_all_to_all, spmt_xla_reduce_scatter,
	spmt_xla_barrier, spmt_xla_ragged_all_to_all };

static int open_sites(struct xla_site *sites, int64_t world, int ranks)
{
	int64_t to[DEVICES];

	for (int i = 0; i < ranks; i++)
		to[i] = (i + 1) % ranks;
	for (int i = 0; i < SITES; i++)
		if (xla_instantiate(
			    &sites[i], handlers[i], world, SPMT_OP_SUM, 1, to, (size_t)ranks))
			return ranks_fail("instantiate %d: %s", i, xla_sentence());
	return 0;
}

static void forget_sites(struct xla_site *sites)
{
	for (int i = 0; i < SITES; i++)
		xla_forget(&sites[i]);
}

/* All devices run all programs, in another order each, on few threads. */
static int programs(int groups, int count, int ahead, int rounds)
{
	struct xla_site sites[SITES];
	struct program *all = calloc((size_t)(ahead * DEVICES), sizeof(*all));
	_Atomic int left = ahead * DEVICES;
	int64_t world;
	int failed = 0;

	TRY(open_world(&world, groups, 60000));
	TRY(open_sites(sites, world, DEVICES / groups));
	xla_pool(THREADS);
	for (int a = 0; a < ahead; a++) {
		runs++;
		for (int d = 0; d < DEVICES; d++) {
			struct program *p = &all[a * DEVICES + d];

			*p = (struct program){ sites, (d * 3 + a) % DEVICES, DEVICES / groups,
				rounds, count, 0, runs, NULL, NULL, { 0 }, 0, &left };
			xla_pool_run(program_begin, p);
		}
	}
	while (atomic_load(&left))
		sleep_ms(1);
	xla_pool_end();
	for (int i = 0; i < ahead * DEVICES; i++)
		failed += all[i].failed;
	REQUIRE_EQ(spmt_xla_close(world), 0);
	forget_sites(sites);
	free(all);
	REQUIRE_EQ(failed, 0);
	return 0;
}

static int programs_small(void)
{
	return programs(1, SMALL, (int)test_count(40, 200), 3);
}

static int programs_large(void)
{
	return programs(1, LARGE, (int)test_count(2, 20), 1);
}

static int programs_grouped(void)
{
	return programs(2, SMALL, (int)test_count(20, 200), 3);
}

/* ---- a device at a time, by threads that wait */

struct device {
	struct xla_site *site;
	int32_t in[2 * DEVICES], out[2 * DEVICES], tables[4][DEVICES];
	int64_t run, n;
	int index, code;
	char sentence[256];
};

static void device_call(struct device *d)
{
	struct xla_call call = { d->site, d->index, d->run, { { FFI_S32, d->in, d->n, 0 } },
		{ FFI_S32, d->out, d->n, 0 }, 1 };

	for (int i = 0; i < d->n; i++)
		d->in[i] = d->index + i;
	d->code = xla_wait(&call);
	snprintf(d->sentence, sizeof(d->sentence), "%s", xla_sentence());
}

static void *device_main(void *device)
{
	device_call(device);
	return NULL;
}

/* The first n devices at once. */
static void devices_call(struct device *devices, int n, struct xla_site *site)
{
	pthread_t threads[DEVICES];

	runs++;
	for (int i = 0; i < n; i++) {
		devices[i].site = site;
		devices[i].index = i;
		devices[i].run = runs;
		devices[i].n = SMALL;
		if (pthread_create(&threads[i], NULL, device_main, &devices[i]))
			abort();
	}
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

static int all_fine(struct device *devices, struct xla_site *sum)
{
	devices_call(devices, DEVICES, sum);
	for (int i = 0; i < DEVICES; i++) {
		if (devices[i].code)
			return ranks_fail("device %d: %s", i, devices[i].sentence);
		REQUIRE_EQ(devices[i].out[1], DEVICES * (DEVICES - 1) / 2 + DEVICES);
	}
	return 0;
}

static int late(void)
{
	static struct device devices[DEVICES];
	struct xla_site sites[SITES];
	struct device after;
	int64_t world;

	TRY(open_world(&world, 1, 300));
	TRY(open_sites(sites, world, DEVICES));
	devices_call(devices, DEVICES - 1, &sites[0]);
	for (int i = 0; i < DEVICES - 1; i++) {
		REQUIRE_EQ(devices[i].code, FFI_DEADLINE_EXCEEDED);
		REQUIRE(strstr(devices[i].sentence, "1 of 8 devices missing after 0.3 s: 7"));
	}
	after = devices[0];
	after.index = DEVICES - 1;
	device_call(&after);
	REQUIRE_EQ(after.code, FFI_ABORTED);
	REQUIRE(strstr(after.sentence, "missing"));
	REQUIRE_EQ(spmt_xla_close(world), 0);
	forget_sites(sites);
	/* A world whose deadline a slow machine keeps. */
	TRY(open_world(&world, 1, 60000));
	TRY(open_sites(sites, world, DEVICES));
	TRY(all_fine(devices, &sites[0]));
	REQUIRE_EQ(spmt_xla_close(world), 0);
	forget_sites(sites);
	return 0;
}

/* More than the sentence has room for: it names whole devices, and says that there are others. */
static int many_late(void)
{
	enum { MANY = 64 };
	static struct device first;
	int32_t devices[MANY];
	struct spmt_xla_attr attr = { .size = sizeof(attr),
		.id = ++worlds,
		.groups = 1,
		.nranks = MANY,
		.devices = devices,
		.backend = "host",
		.heap_size = 2 << 20,
		.timeout_ms = 100 };
	struct xla_site site;
	const char *more;

	for (int i = 0; i < MANY; i++)
		devices[i] = 100 + i;
	if (spmt_xla_open(&attr))
		return ranks_fail("%s", spmt_xla_last_error());
	REQUIRE_EQ(
		xla_instantiate(&site, spmt_xla_all_reduce, attr.id, SPMT_OP_SUM, 0, NULL, 0), 0);
	first = (struct device){ &site, .run = ++runs, .n = SMALL, .index = 100 };
	device_call(&first);
	REQUIRE(strstr(first.sentence, "63 of 64 devices missing after 0.1 s: 101, 102, 103"));
	more = strstr(first.sentence, ", ..");
	REQUIRE(more && !more[4]);
	REQUIRE(more[-5] == ',' && more[-3] == '1'); /* ", 12x" */
	REQUIRE_EQ(spmt_xla_close(attr.id), 0);
	xla_forget(&site);
	return 0;
}

static int injected(void)
{
	static struct device devices[DEVICES];
	struct xla_site sites[SITES];
	int64_t world;

	TRY(open_world(&world, 1, 60000));
	TRY(open_sites(sites, world, DEVICES));
	for (int round = 0; round < 3; round++) {
		spmt_xla_inject(1);
		devices_call(devices, DEVICES, &sites[0]);
		for (int i = 0; i < DEVICES; i++) {
			REQUIRE_EQ(devices[i].code, FFI_ABORTED);
			REQUIRE(devices[i].sentence[0]);
		}
		TRY(all_fine(devices, &sites[0]));
	}
	REQUIRE_EQ(spmt_xla_close(world), 0);
	forget_sites(sites);
	return 0;
}

/* One device's call is wrong: it says why, and the others end at once with its name. */
static int refused(void)
{
	static struct device devices[DEVICES];
	struct xla_site sites[SITES];
	struct xla_call wrong;
	int64_t world;

	TRY(open_world(&world, 1, 60000));
	TRY(open_sites(sites, world, DEVICES));
	devices[7] = (struct device){ .site = &sites[0] };
	wrong = (struct xla_call){ &sites[0], 7, runs + 1, { { FFI_S32, devices[7].in, SMALL, 0 } },
		{ FFI_F32, devices[7].out, SMALL, 0 }, 1 };
	REQUIRE_EQ(xla_wait(&wrong), FFI_INVALID_ARGUMENT);
	REQUIRE(strstr(xla_sentence(), "differ"));
	devices_call(devices, DEVICES - 1, &sites[0]);
	for (int i = 0; i < DEVICES - 1; i++) {
		REQUIRE_EQ(devices[i].code, FFI_ABORTED);
		REQUIRE(strstr(devices[i].sentence, "device 7 did not take part"));
	}
	TRY(all_fine(devices, &sites[0]));
	REQUIRE_EQ(spmt_xla_close(world), 0);
	forget_sites(sites);
	return 0;
}

static int wrong_call(struct xla_site *site, int nargs, int in_type, int64_t in, int out_type,
	int64_t out, const char *word)
{
	static int64_t data[64];
	struct xla_call call = { site, 0, ++runs, { { in_type, data, in, 0 } },
		{ out_type, data + 32, out, 0 }, nargs };

	for (int i = 1; i < XLA_BUFFERS - 1; i++)
		call.args[i] = call.args[0];
	REQUIRE_EQ(xla_wait(&call), FFI_INVALID_ARGUMENT);
	if (!strstr(xla_sentence(), word))
		return ranks_fail("no \"%s\": %s", word, xla_sentence());
	return 0;
}

static int wrong(void)
{
	struct xla_site sites[SITES], site;
	int64_t world, twice[DEVICES] = { 1, 1, 2, 3, 4, 5, 6, 7 },
		       outside[DEVICES] = { 8, 1, 2, 3, 4, 5, 6, 7 };

	TRY(open_world(&world, 1, 60000));
	TRY(open_sites(sites, world, DEVICES));
	TRY(wrong_call(&sites[0], 2, FFI_S32, 8, FFI_S32, 8, "takes 1 argument"));
	TRY(wrong_call(&sites[7], 1, FFI_S32, 8, FFI_S32, 8, "takes 6 arguments"));
	TRY(wrong_call(&sites[0], 1, FFI_S32, 8, FFI_S32, 9, "do not fit"));
	TRY(wrong_call(&sites[0], 1, FFI_S32, 8, FFI_F32, 8, "types s32 and f32 of"));
	TRY(wrong_call(&sites[0], 1, FFI_S4, 8, FFI_S4, 8,
		"types s4 and s4 of argument and result are not"));
	TRY(wrong_call(&sites[0], 1, 99, 8, 99, 8, "types unknown and unknown of"));
	TRY(wrong_call(&sites[0], 1, FFI_F8E3M4, 8, FFI_F8E3M4, 8, "f8e3m4 has no op sum"));
	TRY(wrong_call(&sites[0], 1, FFI_PRED, 8, FFI_PRED, 8, "pred has no op sum"));
	TRY(wrong_call(&sites[3], 1, FFI_S32, 2, FFI_S32, 8, "do not fit"));
	TRY(wrong_call(&sites[4], 1, FFI_S32, 9, FFI_S32, 9, "do not fit"));
	TRY(wrong_call(&sites[5], 1, FFI_S32, 9, FFI_S32, 1, "do not fit"));
	TRY(wrong_call(&sites[7], 6, FFI_S32, 4, FFI_S32, 4, "table of 8 entries"));
	REQUIRE_EQ(
		xla_instantiate(&site, spmt_xla_permute, 0, -1, -1, NULL, 0), FFI_INVALID_ARGUMENT);
	REQUIRE(strstr(xla_sentence(), "no attribute world"));
	for (int i = 0; i < 5; i++) {
		static const char *const words[] = { "is a target twice", "is no rank",
			"7 entries for 8", "attribute root is -1", "attribute op is 7" };
		const int64_t *to = i == 0 ? twice : i == 1 ? outside : i == 2 ? twice : NULL;

		REQUIRE_EQ(xla_instantiate(&site,
				   handlers[i < 3	    ? 1
						   : i == 3 ? 2
							    : 0],
				   world, i == 4 ? 7 : -1, -1, to, to ? DEVICES - (i == 2) : 0),
			0);
		TRY(wrong_call(&site, 1, FFI_S32, 8, FFI_S32, 8, words[i]));
		xla_forget(&site);
	}
	REQUIRE_EQ(spmt_xla_close(world), 0);
	forget_sites(sites);
	return 0;
}

static void *close_main(void *world)
{
	sleep_ms(20); /* mostly behind the calls; right wherever it falls */
	spmt_xla_close(*(int64_t *)world);
	return NULL;
}

static int closed(void)
{
	static struct device devices[DEVICES];
	struct xla_site sites[SITES];
	pthread_t thread;
	int64_t world;

	TRY(open_world(&world, 1, 60000));
	TRY(open_sites(sites, world, DEVICES));
	REQUIRE_EQ(pthread_create(&thread, NULL, close_main, &world), 0);
	devices_call(devices, DEVICES - 1, &sites[0]);
	pthread_join(thread, NULL);
	devices_call(devices + 7, 1, &sites[0]);
	for (int i = 0; i < DEVICES; i++) {
		REQUIRE_EQ(devices[i].code, FFI_FAILED_PRECONDITION);
		REQUIRE(strstr(devices[i].sentence, "close"));
	}
	REQUIRE_EQ(spmt_xla_close(world), -EBADF);
	forget_sites(sites);
	return 0;
}

/* ---- two calls of a program that no data orders, in another order on another device */

struct pair {
	struct program programs[2];
	int first;
};

static void pair_begin(void *arg)
{
	struct pair *pair = arg;

	program_begin(&pair->programs[pair->first]);
	program_begin(&pair->programs[!pair->first]);
}

static int reordered(void)
{
	static struct pair pairs[DEVICES];
	struct xla_site sites[2][SITES];
	_Atomic int left = 2 * DEVICES;
	int64_t world;
	int failed = 0;

	TRY(open_world(&world, 1, 60000));
	TRY(open_sites(sites[0], world, DEVICES));
	TRY(open_sites(sites[1], world, DEVICES));
	runs++;
	xla_pool(THREADS);
	for (int d = 0; d < DEVICES; d++) {
		for (int k = 0; k < 2; k++)
			pairs[d].programs[k] = (struct program){ sites[k], d, DEVICES, 20,
				SMALL + k, 0, runs, NULL, NULL, { 0 }, 0, &left };
		pairs[d].first = d % 2;
		xla_pool_run(pair_begin, &pairs[d]);
	}
	while (atomic_load(&left))
		sleep_ms(1);
	xla_pool_end();
	for (int d = 0; d < DEVICES; d++)
		failed += pairs[d].programs[0].failed + pairs[d].programs[1].failed;
	REQUIRE_EQ(spmt_xla_close(world), 0);
	forget_sites(sites[0]);
	forget_sites(sites[1]);
	REQUIRE_EQ(failed, 0);
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = { { "no devices for a world", no_devices },
		{ "too many devices, or none", too_many },
		{ "every handler says its version", metadata },
		{ "many runs ahead on two threads", programs_small },
		{ "the same of data that the library moves", programs_large },
		{ "in groups", programs_grouped }, { "two calls in any order", reordered },
		{ "a late device", late }, { "many late devices", many_late },
		{ "an injected failure", injected }, { "a device that is refused", refused },
		{ "wrong calls", wrong }, { "put and get of slices", slices_move },
		{ "wrong slices", slices_wrong }, { "a world that is closed", closed },
		{ "one that is closed as a call fails", closed_as_a_call_fails } };

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
