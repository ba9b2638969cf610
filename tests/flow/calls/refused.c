/* SPDX-License-Identifier: MIT */
/*
 * Worlds with devices that a driver keeps apart, over the stand-ins (SPMT_BACKEND and its SPMT_*_LIB name one): a pair without
 * a route is told on every rank with the driver's reason, and the devices that do reach each other are none the worse for it.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/processes.h"
#include "tests/lib/ranks.h"

enum { RANKS = 3, LONE = 1 };

/* Asked at the call, so that a test may set it before its first one. */
static void apart(void)
{
	setenv("SPMT_FAKE_NOPEER", "1", 1);
}

struct world {
	spmt_uid uid;
	int n;
	const int *devices;
	const char *word; /* of the sentence, besides the ranks */
};

static struct world world_of(int n, const int *devices, const char *word)
{
	struct world w = { .n = n, .devices = devices, .word = word };

	cr_assert_eq(spmt_uid_create(&w.uid), 0, "%s", spmt_last_error());
	return w;
}

static int begin(const struct world *w, int rank, spmt_comm **comm)
{
	struct spmt_attr attr = ranks_attr(rank, w->n, &w->uid);

	attr.device = w->devices[rank];
	attr.timeout_ms = 20000;
	return spmt_init(&attr, comm);
}

/* The ranks of a pair say why; one that reaches everybody says which rank did not come in, and why. */
static int no_world(int rank, void *arg)
{
	const struct world *w = arg;
	int64_t start = now_ns();
	spmt_comm *comm = NULL;

	REQUIRE_CODE(begin(w, rank, &comm), -EHOSTUNREACH);
	REQUIRE(!comm);
	REQUIRE_SAYS("spmt_init: ");
	REQUIRE_SAYS("no route to rank ");
	REQUIRE_SAYS(w->word);
	REQUIRE((now_ns() - start) / 1000000 < 5000);
	return 0;
}

static int works(int rank, void *arg)
{
	const struct world *w = arg;
	uint64_t sent = 40 + (uint64_t)rank, seen[2] = { 0, 0 };
	int next = (rank + 1) % w->n, prev = (rank + w->n - 1) % w->n;
	struct spmt_route route = { .size = sizeof(route) };
	spmt_comm *comm;
	uint64_t *words;
	void *p;

	REQUIRE_OK(begin(w, rank, &comm));
	ranks_watch(comm);
	REQUIRE_OK(spmt_route(comm, next, &route));
	REQUIRE(!strcmp(route.map, "p2p"));
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*words), &p));
	words = p;
	REQUIRE_OK(spmt_put(comm, words, &sent, sizeof(sent), next));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_all_reduce(comm, words + 1, words, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_copy_out(comm, seen, words, sizeof(seen)));
	REQUIRE_EQ(seen[0], 40 + prev);
	REQUIRE_EQ(seen[1], 40 * w->n + w->n * (w->n - 1) / 2);
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

/* Fails a call of the stand-in's the nth time that it is made; later ones pass. */
static void stand_in_fails(const char *call, int nth, int result)
{
	const char *path =
		getenv(strcmp(getenv("SPMT_BACKEND"), "hip") ? "SPMT_CUDA_LIB" : "SPMT_HIP_LIB");
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *address;
	void (*fail)(const char *name, int nth, int result);

	cr_assert_not_null(library, "%s", path);
	address = dlsym(library, "fake_fail");
	cr_assert_not_null(address);
	memcpy(&fail, &address, sizeof(address));
	fail(call, nth, result);
}

/* ---- what is known before anything is tried ---- */

Test(refused, peers_that_the_driver_keeps_apart, .init = apart)
{
	static const int all[] = { 0, LONE, 2 }, others[] = { 2, 0, 3 };

	for (int i = 0; i < 3; i++) {
		struct world none = world_of(RANKS, all, "no access"),
			     some = world_of(RANKS, others, "");

		RANKS_OK(ranks_threads(RANKS, no_world, &none));
		RANKS_OK(ranks_threads(RANKS, works, &some));
	}
}

static void without_atomics(void)
{
	setenv("SPMT_FAKE_NOATOMICS", "1", 1);
}

/* Signals and barriers would lie. */
Test(refused, peers_without_atomics, .init = without_atomics)
{
	static const int two[] = { 0, 1 };
	struct world none = world_of(2, two, "atomics");

	RANKS_OK(ranks_threads(2, no_world, &none));
}

Test(refused, ranks_on_the_lone_device_reach_each_other, .init = apart)
{
	static const int same[] = { LONE, LONE };
	struct world w = world_of(2, same, "");

	RANKS_OK(ranks_threads(2, works, &w));
}

/* One device of the world that backs no ranges on demand is enough for static heaps, and no reason to fail where nothing else
   was asked for. */
static void older(void)
{
	setenv("SPMT_FAKE_WITHOUT", "vmm", 1);
	setenv("SPMT_FAKE_OLD", "2", 1);
	unsetenv("SPMT_HEAP_MODE");
}

Test(refused, heaps_of_devices_that_back_no_ranges, .init = older)
{
	static const int all[] = { 0, 1, 2 }, others[] = { 3, 0, 1 };
	struct world old = world_of(3, all, ""), rest = world_of(3, others, "");

	RANKS_OK(ranks_threads(3, works, &old));
	RANKS_OK(ranks_threads(3, works, &rest));
}

static void older_and_asked(void)
{
	older();
	setenv("SPMT_HEAP_MODE", "vmm", 1);
}

static int no_ranges(int rank, void *arg)
{
	const struct world *w = arg;
	spmt_comm *comm = NULL;

	REQUIRE_CODE(begin(w, rank, &comm), SPMT_ERR_UNSUPPORTED);
	REQUIRE(!comm);
	REQUIRE_SAYS("spmt_init: ");
	REQUIRE_SAYS(w->word);
	return 0;
}

Test(refused, ranges_of_a_device_that_backs_none, .init = older_and_asked)
{
	static const int one[] = { 2 };
	struct world w = world_of(1, one, "SPMT_HEAP_MODE");

	RANKS_OK(ranks_threads(1, no_ranges, &w));
}

/* One device whose streams wait for no words is enough: all ranks take another row. */
static void no_words(void)
{
	setenv("SPMT_FAKE_WITHOUT", "words", 1);
	setenv("SPMT_FAKE_OLD", "2", 1);
	setenv("SPMT_COLL", "engine", 1);
}

static int gathers(int rank, void *arg)
{
	const struct world *w = arg;
	uint64_t *dst, *src, mine = 100 + (uint64_t)rank, seen[RANKS] = { 0 };
	spmt_comm *comm;

	REQUIRE_OK(begin(w, rank, &comm));
	REQUIRE_OK(spmt_calloc(comm, RANKS, 8, (void **)&dst));
	REQUIRE_OK(spmt_calloc(comm, 1, 8, (void **)&src));
	REQUIRE_OK(spmt_put(comm, src, &mine, 8, rank));
	REQUIRE_OK(spmt_all_gather(comm, dst, src, 1, SPMT_TYPE_U64, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_get(comm, seen, dst, (size_t)w->n * 8, rank));
	for (int i = 0; i < w->n; i++)
		REQUIRE_EQ(seen[i], 100 + (uint64_t)i);
	return spmt_finalize(comm);
}

Test(refused, collectives_of_devices_whose_streams_wait_for_no_words, .init = no_words)
{
	static const int all[] = { 0, 1, 2 }, others[] = { 3, 0, 1 };
	struct world old = world_of(3, all, ""), rest = world_of(3, others, "");

	RANKS_OK(ranks_threads(3, gathers, &old));
	RANKS_OK(ranks_threads(3, gathers, &rest));
}

/* ---- what is known when it is tried ---- */

Test(refused, access_that_is_granted_and_then_not_enabled)
{
	static const int two[] = { 0, 1 };
	bool hip = !strcmp(getenv("SPMT_BACKEND"), "hip");

	for (int nth = 1; nth <= 2; nth++) {
		struct world none = world_of(2, two, "refused"), again = world_of(2, two, "");

		stand_in_fails(
			hip ? "hipDeviceEnablePeerAccess" : "cuCtxEnablePeerAccess", nth, 217);
		RANKS_OK(ranks_threads(2, no_world, &none));
		stand_in_fails("", 0, 0);
		RANKS_OK(ranks_threads(2, works, &again));
	}
}

/* ---- words that cannot be read ---- */

#define MANY ((size_t)1 << 17) /* no room for so many is there before they are asked for */

/* The nth way to ask for words; all of them hold 0, and that is what is waited for. */
static int ask(spmt_comm *comm, const uint64_t *words, int nth, const char **what)
{
	static const char *const names[] = { "spmt_signal_fetch", "spmt_signal_wait", "spmt_test",
		"spmt_wait_until", "spmt_wait_until_all" };
	uint64_t zero = 0, seen;
	int result;

	*what = names[nth];
	switch (nth) {
	case 0:
		return spmt_signal_fetch(comm, words, &seen);
	case 1:
		return spmt_signal_wait(comm, words, SPMT_CMP_EQ, 0, &seen);
	case 2:
		return spmt_test(comm, SPMT_TYPE_U64, words, SPMT_CMP_EQ, &zero, &result);
	case 3:
		return spmt_wait_until(comm, SPMT_TYPE_U64, words, SPMT_CMP_EQ, &zero);
	default:
		return spmt_wait_until_all(
			comm, SPMT_TYPE_U64, words, MANY, NULL, SPMT_CMP_EQ, &zero);
	}
}

/* Code and sentence are the driver's, behind the function and the rank; asked again it is there. */
static int asks(int rank, void *arg)
{
	const struct world *w = arg;
	bool hip = !strcmp(getenv("SPMT_BACKEND"), "hip");
	const char *copy = hip ? "hipMemcpyAsync" : "cuMemcpyAsync", *what;
	char begin_of[64];
	spmt_comm *comm;
	void *words;

	REQUIRE_OK(begin(w, rank, &comm));
	REQUIRE_OK(spmt_calloc(comm, MANY, sizeof(uint64_t), &words));
	for (int i = 0; i < 5; i++) {
		stand_in_fails(i < 4 ? copy : hip ? "hipHostMalloc" : "cuMemHostAlloc", -1, 2);
		REQUIRE_CODE(ask(comm, words, i, &what), -ENOMEM);
		snprintf(
			begin_of, sizeof(begin_of), "%s: rank 0: %s: ", what, hip ? "hip" : "cuda");
		REQUIRE(!strncmp(spmt_last_error(), begin_of, strlen(begin_of)));
		stand_in_fails("", 0, 0);
		REQUIRE_OK(ask(comm, words, i, &what));
	}
	return spmt_finalize(comm);
}

Test(refused, words_that_the_driver_does_not_copy)
{
	static const int one[] = { 0 };
	struct world w = world_of(1, one, "");

	RANKS_OK(ranks_threads(1, asks, &w));
}

/* ---- between processes ---- */

static int apart_in_processes(int rank, void *arg)
{
	static const int two[] = { 0, LONE };
	const struct processes *p = arg;
	struct world w = { .uid = p->uid[0], .n = 2, .devices = two, .word = "no access" };

	return no_world(rank, &w);
}

Test(refused, peers_of_processes, .init = apart)
{
	struct processes p = { .layout = "0|1" };

	RANKS_OK(processes_run(&p, apart_in_processes, &p));
}
