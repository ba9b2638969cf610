/* SPDX-License-Identifier: MIT */
/*
 * verbs_gpu BACKEND: ranks with memory that the CPU does not reach, over the stand-ins for the vendor's driver and for libibverbs. By
 * dma-buf, by peer memory, and where the NIC knows neither, by bounce buffers: the same data, signals and atomics, and the
 * route says which. What fails in a device is told to who asked, and the next world works.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fakes/control.h"
#include "tests/fakes/fake_verbs.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/bytes.h"

enum { RANKS = 3, BIG = 50001, PAIR = 2, FAULTS_MOST = 20 };

static __typeof__(&fake_verbs_live) live;
static __typeof__(&fake_verbs_fail) fail_call_of_nic;
static __typeof__(&fake_verbs_break) break_work;
static __typeof__(&fake_verbs_congest) congest;
static __typeof__(&fake_verbs_shout) shout;

static __typeof__(&fake_verbs_limit) registrations;
static __typeof__(&fake_set_capturing) set_capturing;
static int (*device_malloc)(void **at, size_t n);
static int (*device_free)(void *at);
static int (*set_device)(int device); /* HIP's; the rest are CUDA's */
static int (*primary)(void **context, int device);
static int (*release)(int device);
static int (*stream_create)(void **stream, unsigned flags);
static int (*set_context)(void *context);

static const struct spmt_attr attr = { .size = sizeof(attr), .heap_size = 1 << 20 };
static const char *wanted; /* what the route is to say */

/* ---- data ------------------------------------------------------------------------------------- */

/* From and to memory of the host; heap to heap, which is the devices' alone; all of it seen by copies of the rank's own. */
static int one_size(spmt_comm *comm, char *block, char *own, size_t n)
{
	int ranks = spmt_nranks(comm), rank = spmt_rank(comm), next = (rank + 1) % ranks;
	int last = (rank + ranks - 1) % ranks;

	fill(own, n, rank);
	REQUIRE_OK(spmt_put(comm, block, own, n, next));
	REQUIRE_OK(spmt_barrier(comm));
	memset(own, 0, n);
	REQUIRE_OK(spmt_get(comm, own, block, n, rank));
	TRY(filled_by("put", own, n, last));
	memset(own, 0, n);
	REQUIRE_OK(spmt_get(comm, own, block, n, next));
	TRY(filled_by("get", own, n, rank));
	REQUIRE_OK(spmt_put_nbi(comm, block + BIG, block, n, next));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_get(comm, own, block + BIG, n, rank));
	TRY(filled_by("put_nbi of the heap", own, n, (last + ranks - 1) % ranks));
	REQUIRE_OK(spmt_get_nbi(comm, block + 2 * (size_t)BIG, block, n, last));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_get(comm, own, block + 2 * (size_t)BIG, n, rank));
	TRY(filled_by("get_nbi to the heap", own, n, (last + ranks - 1) % ranks));
	return spmt_barrier(comm);
}

static int route_says(spmt_comm *comm)
{
	struct spmt_route route = { .size = sizeof(route) };

	REQUIRE_OK(spmt_route(comm, !spmt_rank(comm), &route));
	if (!strstr(route.reason, wanted))
		return ranks_fail("'%s' is not in '%s'", wanted, route.reason);
	return 0;
}

static int all_sizes(spmt_comm *comm, void *arg)
{
	static const size_t sizes[] = { 8, 4097, 16385, BIG };
	char *block, *own = malloc(BIG);
	int rc = 0;

	(void)arg;
	REQUIRE(own != NULL);
	TRY(route_says(comm));
	REQUIRE_OK(spmt_malloc(comm, 3 * (size_t)BIG, (void **)&block));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !rc; i++)
		rc = one_size(comm, block, own, sizes[i]);
	free(own);
	return rc;
}

/* In order of a stream, by a thread of the driver's, which may make no call of a device. */
static int in_streams(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), next = (rank + 1) % RANKS, last = (rank + RANKS - 1) % RANKS;
	char *own = malloc(2 * (size_t)BIG), *block;

	(void)arg;
	REQUIRE(own != NULL);
	REQUIRE_OK(spmt_malloc(comm, 2 * (size_t)BIG, (void **)&block));
	fill(own, BIG, rank);
	REQUIRE_OK(spmt_put_on_stream(comm, block, own, BIG, rank, NULL));
	REQUIRE_OK(spmt_put_on_stream(comm, block + BIG, block, BIG, next, NULL));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_get_on_stream(comm, own, block + BIG, BIG, next, NULL));
	REQUIRE_OK(spmt_get_on_stream(comm, own + BIG, block + BIG, BIG, rank, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(filled_by("get in a stream", own, BIG, rank));
	TRY(filled_by("put in a stream", own + BIG, BIG, last));
	free(own);
	return spmt_barrier(comm);
}

/* A buffer of the host's, registered: its own NIC knows it, and its peers are told of it. */
static int registered(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), next = (rank + 1) % RANKS, last = (rank + RANKS - 1) % RANKS;
	char *own = malloc(BIG), *block;
	spmt_mem *mem;

	(void)arg;
	REQUIRE(own != NULL);
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&block));
	REQUIRE_OK(spmt_register(comm, own, BIG, &mem));
	fill(own, BIG, rank);
	REQUIRE_OK(spmt_put(comm, block, own, BIG, next));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_mem_put(comm, mem, 0, block, BIG, next));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(filled_by("a registered buffer", own, BIG, (last + RANKS - 1) % RANKS));
	REQUIRE_OK(spmt_deregister(comm, mem));
	free(own);
	return 0;
}

/* The rank's device is the vendor's current one in this thread. */
static int device_take(int device)
{
	void *context;

	if (set_device)
		return set_device(device);
	return primary(&context, device) ? -1 : set_context(context);
}

/* Memory of the device's that nobody has registered, from the vendor's own call. */
static int unregistered(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), next = (rank + 1) % RANKS, last = (rank + RANKS - 1) % RANKS;
	char *own = malloc(2 * (size_t)BIG), *block;
	void *dev = NULL;

	(void)arg;
	REQUIRE(own != NULL);
	REQUIRE_EQ(device_take(spmt_device(comm)), 0);
	REQUIRE_EQ(device_malloc(&dev, BIG), 0);
	REQUIRE_OK(spmt_malloc(comm, 2 * (size_t)BIG, (void **)&block));
	fill(own, BIG, rank);
	REQUIRE_OK(spmt_put(comm, block, own, BIG, rank));
	REQUIRE_OK(spmt_barrier(comm));
	for (int round = 0; round < 3; round++) {
		uint64_t before = registrations(0);

		REQUIRE_OK(spmt_get(comm, dev, block, BIG, next));
		REQUIRE_OK(spmt_put(comm, block + BIG, dev, BIG, last));
		REQUIRE_OK(spmt_put_on_stream(comm, block + BIG, dev, BIG, last, NULL));
		REQUIRE_OK(spmt_get_on_stream(comm, dev, block, BIG, next, NULL));
		REQUIRE_OK(spmt_barrier(comm));
		REQUIRE_OK(spmt_get(comm, own, block + BIG, BIG, rank));
		/* what comes to rank n is what n + 1 has from n + 2 */
		TRY(filled_by("by way of the device", own, BIG, (rank + 2) % RANKS));
		REQUIRE_OK(spmt_barrier(comm));
		if (round == 2) /* all is known by now */
			REQUIRE_EQ(registrations(0) - before, 0);
	}
	REQUIRE_EQ(device_free(dev), 0);
	if (!set_device)
		REQUIRE_EQ(release(spmt_device(comm)), 0);
	free(own);
	return spmt_barrier(comm);
}

/* ---- words ------------------------------------------------------------------------------------ */

/* By all ranks at once, and by the rank's own device. */
static int counters(spmt_comm *comm, void *arg)
{
	uint64_t *words, one = 1, old = 0, last = 0, found[3], rounds = test_count(8, 1000);

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 3, sizeof(*words), (void **)&words));
	for (uint64_t i = 0; i < rounds; i++) {
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, words, &one, NULL, &old, 0));
		REQUIRE(!i || old > last);
		last = old;
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_INC, SPMT_TYPE_U32, words + 1, NULL, NULL, NULL, 0));
		REQUIRE_OK(spmt_signal(comm, words + 2, 1, SPMT_SIGNAL_ADD, 0));
	}
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_get(comm, found, words, sizeof(found), 0));
	for (int i = 0; i < 3; i++)
		REQUIRE_EQ(found[i], rounds * RANKS);
	return spmt_barrier(comm);
}

/* The flag is seen behind the data. */
static int flags(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), next = (rank + 1) % RANKS, last = (rank + RANKS - 1) % RANKS;
	char *block, *own = malloc(BIG), *got = malloc(BIG);
	uint64_t *word;

	(void)arg;
	REQUIRE(own != NULL && got != NULL);
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&block));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	for (uint64_t round = 1; round <= 3; round++) {
		fill(own, BIG, rank + (int)round);
		REQUIRE_OK(spmt_put_nbi(comm, block, own, BIG, next));
		REQUIRE_OK(spmt_fence(comm));
		REQUIRE_OK(spmt_signal(comm, word, round, SPMT_SIGNAL_SET, next));
		REQUIRE_OK(spmt_signal_wait(comm, word, SPMT_CMP_GE, round, NULL));
		REQUIRE_OK(spmt_get(comm, got, block, BIG, rank));
		TRY(filled_by("behind a flag", got, BIG, last + (int)round));
		REQUIRE_OK(spmt_barrier(comm));
	}
	free(own);
	free(got);
	return 0;
}

static int world_of(int (*body)(spmt_comm *comm, void *arg))
{
	TRY(ranks_run(RANKS, &attr, body, NULL));
	REQUIRE_EQ(live(), 0);
	return 0;
}

/* ---- the ways --------------------------------------------------------------------------------- */

static int all_of(const char *without, const char *way)
{
	setenv("SPMT_FAKE_NIC_WITHOUT", without, 1);
	wanted = way;
	TRY(world_of(all_sizes));
	TRY(world_of(in_streams));
	TRY(world_of(registered));
	if (!strcmp(IMAGES, "0"))
		return 0;
	TRY(world_of(counters));
	return world_of(flags);
}

static int by_dmabuf(void)
{
	return all_of("", "memory here by dma-buf, there by dma-buf");
}

static int by_peer_memory(void)
{
	return all_of("dmabuf", "memory here by peer memory, there by peer memory");
}

static int by_bouncing(void)
{
	return all_of("dmabuf,peer", "memory here by bounce buffers, there by bounce buffers");
}

/* ---- failures --------------------------------------------------------------------------------- */

struct pair {
	spmt_uid uid;
	_Atomic int failed;
};

static int pair_rank(int rank, void *arg)
{
	struct pair *run = arg;
	struct spmt_attr a = ranks_attr(rank, PAIR, &run->uid);
	char *block, *own = calloc(1, 50000);
	spmt_comm *comm;
	int rc;

	REQUIRE(own != NULL);
	rc = spmt_init(&a, &comm);
	if (!rc) {
		rc = spmt_malloc(comm, 50000, (void **)&block);
		rc = rc ? rc : spmt_put(comm, block, own, 50000, !rank);
		rc = rc ? rc : spmt_get(comm, own, block, 50000, !rank);
		rc = rc ? rc : spmt_quiet(comm);
		rc = rc ? rc : spmt_barrier(comm);
		if (rc && !strlen(spmt_last_error()))
			return ranks_fail("%d without a sentence", rc);
		spmt_finalize(comm);
	}
	run->failed += rc != 0;
	free(own);
	return 0;
}

static int pair_world(struct pair *run)
{
	run->failed = 0;
	REQUIRE_OK(spmt_uid_create(&run->uid));
	TRY(ranks_threads(PAIR, pair_rank, run));
	REQUIRE_EQ(live(), 0);
	return 0;
}

/* Each call of the NIC's library in turn, while everything bounces; polls are among them. */
static int each_call(void)
{
	struct pair run;
	int failed = 0;

	setenv("SPMT_FAKE_NIC_WITHOUT", "dmabuf,peer", 1);
	for (uint64_t n = 1; n <= FAULTS_MOST; n++) {
		fail_call_of_nic(n);
		TRY(pair_world(&run));
		failed += run.failed != 0;
	}
	fail_call_of_nic(0);
	REQUIRE(failed > FAULTS_MOST / 4);
	TRY(pair_world(&run));
	REQUIRE_EQ(run.failed, 0);
	return 0;
}

/* ---- a move for a peer, which the peer's port fetches -------------------------------------------- */

enum { NAP_MS = 50 };

static _Atomic int turn;

static void until(int when)
{
	while (turn < when)
		sleep_ms(1);
}

/* In a world of two, whose NICs lack something. */
static int turns(int (*fn)(spmt_comm *comm, void *arg), const char *without)
{
	turn = 0;
	setenv("SPMT_FAKE_NIC_WITHOUT", without, 1);
	TRY(ranks_run(PAIR, &attr, fn, NULL));
	REQUIRE_EQ(live(), 0);
	return 0;
}

/* What rank 0 gives is on its way, and its bytes are not fetched yet. */
static int fetched_late(spmt_comm *comm, char *own)
{
	char *block;

	REQUIRE_OK(spmt_malloc(comm, 4096, (void **)&block));
	REQUIRE_OK(spmt_put(comm, block, own, 4096, !spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm))
		return 0;
	congest(1);
	REQUIRE_OK(spmt_put_nbi(comm, block, own, 4096, 1));
	sleep_ms(NAP_MS);
	return 0;
}

/* Something else wakes the thread of the port, which sleeps again before the bytes have come. */
static int woken_between(spmt_comm *comm, void *arg)
{
	static char own[4096];
	int rc;

	(void)arg;
	TRY(fetched_late(comm, own));
	if (spmt_rank(comm)) {
		until(1);
		return spmt_barrier(comm);
	}
	shout("no hello", 9);
	sleep_ms(NAP_MS);
	congest(-1);
	rc = spmt_quiet(comm);
	turn = 1;
	REQUIRE_EQ(rc, 0);
	return spmt_barrier(comm);
}

static int late_fetch(void)
{
	return turns(woken_between, "dmabuf,peer");
}

/* ---- captures ---------------------------------------------------------------------------------- */

static int refused_in_a_capture(const char *what, int rc)
{
	REQUIRE_EQ(rc, SPMT_ERR_UNSUPPORTED);
	if (!strstr(spmt_last_error(), what) || !strstr(spmt_last_error(), "captured"))
		return ranks_fail("%s: %s", what, spmt_last_error());
	return 0;
}

/* A graph would call again what is gone with its first run. */
static int calls_in_a_capture(spmt_comm *comm, char *block, uint64_t *word, spmt_stream stream)
{
	TRY(refused_in_a_capture("spmt_put_on_stream",
		spmt_put_on_stream(comm, block, block + BIG, BIG, 1, stream)));
	TRY(refused_in_a_capture("spmt_get_on_stream",
		spmt_get_on_stream(comm, block, block + BIG, BIG, 1, stream)));
	TRY(refused_in_a_capture("spmt_signal_on_stream",
		spmt_signal_on_stream(comm, word, 1, SPMT_SIGNAL_ADD, 1, stream)));
	return refused_in_a_capture("spmt_put_signal_on_stream",
		spmt_put_signal_on_stream(
			comm, block, block + BIG, BIG, word, 1, SPMT_SIGNAL_ADD, 1, stream));
}

/* What is refused has left nothing behind: the same goes in the stream behind the capture. */
static int captures(spmt_comm *comm, void *arg)
{
	char *block, *own = malloc(BIG);
	spmt_stream stream;
	uint64_t *word;
	int rc;

	(void)arg;
	REQUIRE(own != NULL);
	REQUIRE_OK(spmt_malloc(comm, 2 * (size_t)BIG, (void **)&block));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	fill(own, BIG, 5);
	REQUIRE_OK(spmt_put(comm, block + BIG, own, BIG, spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	if (!spmt_rank(comm)) {
		REQUIRE_EQ(device_take(spmt_device(comm)), 0);
		REQUIRE_EQ(stream_create(&stream, 1), 0);
		set_capturing(true);
		rc = calls_in_a_capture(comm, block, word, stream);
		set_capturing(false);
		turn = 1;
		TRY(rc);
		REQUIRE_OK(spmt_put_on_stream(comm, block, block + BIG, BIG, 1, stream));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_EQ(release(spmt_device(comm)), 0);
	}
	until(1);
	REQUIRE_OK(spmt_barrier(comm));
	memset(own, 0, BIG);
	REQUIRE_OK(spmt_get(comm, own, block, BIG, 1));
	TRY(filled_by("put behind a capture", own, BIG, 5));
	free(own);
	return spmt_barrier(comm);
}

static int in_captures(void)
{
	return turns(captures, "");
}

/* ---- failures in streams ------------------------------------------------------------------------ */

/* A put with a signal goes by the comm's stream here, which does not tell: the call says so, and quiet does, once. */
static int fails_in_stream(spmt_comm *comm, void *arg)
{
	static char own[BIG];
	char *block;
	uint64_t *word;
	int rc;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&block));
	REQUIRE_OK(spmt_malloc(comm, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_put(comm, block, own, BIG, !spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm)) {
		until(1);
		return 0;
	}
	break_work(1, VERBS_WC_REM_ACCESS_ERR);
	rc = spmt_put_signal(comm, block, own, BIG, word, 1, SPMT_SIGNAL_SET, 1);
	break_work(0, 0);
	turn = 1;
	REQUIRE_EQ(rc, -EIO);
	REQUIRE_SAYS("spmt_put_signal: rank 0: put to rank 1: ");
	REQUIRE_CODE(spmt_quiet(comm), -EIO);
	REQUIRE_OK(spmt_quiet(comm));
	return 0;
}

/* What shares the connection fails, but not of a deadline that is not its own. */
static int late_in_a_part(spmt_comm *comm, void *arg)
{
	spmt_comm *part;
	char *block;
	int rc;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, BIG, (void **)&block));
	REQUIRE_OK(spmt_put(comm, block, block, BIG, !spmt_rank(comm)));
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	if (spmt_rank(comm)) {
		until(1);
		return 0;
	}
	REQUIRE_OK(spmt_set_timeout(part, NAP_MS));
	congest(0);
	REQUIRE_OK(spmt_put_on_stream(part, block, block, BIG, 1, NULL));
	REQUIRE_CODE(spmt_quiet(part), SPMT_ERR_TIMEOUT);
	congest(-1);
	rc = spmt_put(comm, block, block, BIG, 1);
	turn = 1;
	REQUIRE_CODE(rc, -EIO);
	return 0;
}

static int failing(void)
{
	TRY(turns(fails_in_stream, ""));
	return turns(late_in_a_part, "");
}

/* Where the user has promised that memory stays (SPMT_RDMA_CACHE=trust) ports come to know it: nothing bounces the second time. */
static int kept_by_dmabuf(void)
{
	TRY(by_dmabuf());
	return world_of(unregistered);
}

static int kept_by_peer_memory(void)
{
	TRY(by_peer_memory());
	return world_of(unregistered);
}

static int kept_by_none(void)
{
	TRY(by_bouncing());
	return world_of(unregistered);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "memory by dma-buf", by_dmabuf },
		{ "memory by peer memory", by_peer_memory },
		{ "memory that bounces", by_bouncing },
		{ "each call fails in turn where memory bounces", each_call },
		{ "a move for a peer that the network keeps waiting", late_fetch },
		{ "moves in a stream that is being captured", in_captures },
		{ "failures in streams", failing },
	};
	static const struct test_case kept[] = {
		{ "memory that is kept, by dma-buf", kept_by_dmabuf },
		{ "memory that is kept, by peer memory", kept_by_peer_memory },
		{ "memory that cannot be kept", kept_by_none },
	};
	static const char nic[] = FAKES "/fake-verbs.so";
	bool hip = argc > 1 && !strcmp(argv[1], "hip"), keeps = argc > 2;
	const char *driver = hip ? FAKES "/fake-hip7.so" : FAKES "/fake-cuda.so";
	void *library, *vendor;

	setenv("SPMT_BACKEND", hip ? "hip" : "cuda", 1);
	setenv(hip ? "SPMT_HIP_LIB" : "SPMT_CUDA_LIB", driver, 1);
	if (keeps) {
		setenv("SPMT_RDMA_CACHE", "trust", 1);
		setenv("SPMT_RDMA_CACHE_FROM", "4K", 1);
	}
	setenv("SPMT_FAKE_BLIND", "1", 1);
	setenv("SPMT_FAKE_DEVICES", "4", 1);
	setenv("SPMT_MAPS", "rdma", 1);
	/* three threads take turns at each chunk: on a loaded machine that is no matter of seconds */
	setenv("SPMT_TIMEOUT_MS", "50000", 1);
	setenv("SPMT_VERBS_LIB", nic, 1);
	vendor = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
	library = dlopen(nic, RTLD_NOW | RTLD_LOCAL);
	if (!library || !vendor) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&live = dlsym(library, "fake_verbs_live");
	*(void **)&fail_call_of_nic = dlsym(library, "fake_verbs_fail");
	*(void **)&break_work = dlsym(library, "fake_verbs_break");
	*(void **)&congest = dlsym(library, "fake_verbs_congest");
	*(void **)&shout = dlsym(library, "fake_verbs_shout");
	*(void **)&registrations = dlsym(library, "fake_verbs_limit");
	*(void **)&set_capturing = dlsym(vendor, "fake_set_capturing");
	*(void **)&stream_create = dlsym(vendor, "cuStreamCreate");
	*(void **)&device_malloc = dlsym(vendor, hip ? "hipMalloc" : "cuMemAlloc_v2");
	*(void **)&device_free = dlsym(vendor, hip ? "hipFree" : "cuMemFree_v2");
	*(void **)&set_device = hip ? dlsym(vendor, "hipSetDevice") : NULL;
	*(void **)&primary = dlsym(vendor, "cuDevicePrimaryCtxRetain");
	*(void **)&release = dlsym(vendor, "cuDevicePrimaryCtxRelease_v2");
	*(void **)&set_context = dlsym(vendor, "cuCtxSetCurrent");
	if (keeps)
		return tap_run(kept, sizeof(kept) / sizeof(kept[0]));
	/* hiding memory from the CPU takes time: what differs between drivers comes first */
	return tap_run(cases, hip ? 1 : sizeof(cases) / sizeof(cases[0]));
}
