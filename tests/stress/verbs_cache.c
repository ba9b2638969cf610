/* SPDX-License-Identifier: MIT */
/*
 * verbs_cache auto|off|trust [DEVICE]: moves from and to large buffers that nobody has registered, over the stand-in for libibverbs, whose
 * registrations hold pages as a device's do, or over a device of the machine's. Buffers that are given back and mapped anew at the
 * same addresses, limits of what may be registered, buffers in use that are to make room for others. What is moved is right in any
 * case; how often something is registered says that the cache is there. Trusted, it does move old pages: the test sees the difference.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/bytes.h"
#include "tests/lib/transports/fake_nic.h"

enum { RANKS = 2, MIB = 1 << 20, MANY = 300, SMALL = 64 << 10, KEPT = 256 };

static bool caches; /* in this mode, on this machine */
static bool trusts; /* whether what is unmapped is found out */

static const struct spmt_attr attr = { .size = sizeof(attr), .heap_size = 64 << 20 };

/* ---- buffers ---------------------------------------------------------------------------------- */

/* New pages, at an address or at any. Rank and salt fill them. */
static char *pages(char *at, size_t n, int salt)
{
	int fd = memfd_create("fake-pages", MFD_CLOEXEC);
	char *p;

	if (fd < 0 || ftruncate(fd, (off_t)n))
		abort();
	p = mmap(at, n, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
	if (p == MAP_FAILED)
		abort();
	close(fd);
	fill(p, n, salt);
	return p;
}

/* How many registrations there were since the last call of this thread's; -1: nobody counts. */
static int made(void)
{
	static __thread uint64_t last;
	uint64_t all = fake.limit ? fake.limit(0) : 0, since = all - last;

	if (!fake.limit)
		return -1;

	last = all;
	return (int)since;
}

/* Of the device's objects, as far as somebody counts. */
static int left(void)
{
	return fake.live ? fake.live() : 0;
}

/* From own to the peer and back; the other rank looks on. */
static int there_and_back(spmt_comm *comm, char *block, char *own, size_t n, int salt)
{
	REQUIRE_OK(spmt_put(comm, block, own, n, 1));
	memset(own, 0, n);
	REQUIRE_OK(spmt_get(comm, own, block, n, 1));
	return filled_by("there and back", own, n, salt);
}

/* ---- what is mapped anew ---------------------------------------------------------------------- */

/* Bytes that a put from own takes to the peer. */
static int takes(spmt_comm *comm, char *block, const char *own, size_t n, bool nbi)
{
	if (nbi)
		REQUIRE_OK(spmt_put_nbi(comm, block, own, n, 1));
	else
		REQUIRE_OK(spmt_put(comm, block, own, n, 1));
	return spmt_quiet(comm);
}

/* The peer's bytes, by way of registered memory. */
static int arrived(spmt_comm *comm, char *block, size_t at, size_t n, int salt)
{
	char *here = block + 8 * (size_t)MIB;

	REQUIRE_OK(spmt_get(comm, here, block + at, n, 1));
	for (size_t i = 0; i < n; i++)
		if (here[i] != value_at(salt, i))
			return ranks_fail("byte %zu of %zu is %d", i, n, here[i]);
	return 0;
}

/* All of it, then a page in the middle. Trusted, the pages that were there before are moved. */
static int remap_rank(spmt_comm *comm, void *arg)
{
	size_t n = MIB, page = (size_t)sysconf(_SC_PAGESIZE);
	char *block, *own;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 16 * (size_t)MIB, (void **)&block));
	if (spmt_rank(comm))
		return spmt_barrier(comm);
	own = pages(NULL, n, 1);
	for (int nbi = 0; nbi < 2; nbi++) {
		TRY(takes(comm, block, own, n, nbi));
		TRY(arrived(comm, block, 0, n, 1));
		munmap(own, n);
		pages(own, n, 2);
		TRY(takes(comm, block, own, n, nbi));
		TRY(arrived(comm, block, 0, n, trusts ? 1 : 2));
		pages(own + 8 * page, page, 3);
		TRY(takes(comm, block, own, n, nbi));
		if (!trusts)
			TRY(arrived(comm, block, 8 * page, page, 3));
		if (trusts) /* nothing more is to be seen */
			break;
		pages(own, n, 1);
	}
	/* what comes goes to the pages that are there */
	pages(own, n, 4);
	REQUIRE_OK(spmt_get(comm, own, block, n, 1));
	if (!trusts)
		REQUIRE(own[0] == value_at(1, 0) || own[0] == value_at(2, 0));
	else
		TRY(filled(own, n, 4));
	munmap(own, n);
	return spmt_barrier(comm);
}

static int mapped_anew(void)
{
	TRY(ranks_run(RANKS, &attr, remap_rank, NULL));
	REQUIRE_EQ(left(), 0);
	return 0;
}

/* The file that is mapped loses its pages, and the memory its contents. */
static int emptied_rank(spmt_comm *comm, void *arg)
{
	int fd = memfd_create("fake-pages", MFD_CLOEXEC);
	size_t n = MIB;
	char *block, *own;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 16 * (size_t)MIB, (void **)&block));
	if (spmt_rank(comm)) {
		close(fd);
		return spmt_barrier(comm);
	}
	REQUIRE(fd >= 0 && !ftruncate(fd, (off_t)n));
	own = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	REQUIRE(own != MAP_FAILED);
	fill(own, n, 1);
	TRY(takes(comm, block, own, n, false));
	made();
	REQUIRE(!ftruncate(fd, 0) && !ftruncate(fd, (off_t)n));
	fill(own, n, 2);
	TRY(takes(comm, block, own, n, false));
	if (!fake.limit) {
		TRY(arrived(comm, block, 0, n, trusts ? 1 : 2));
	} else { /* the stand-in's own mapping has the new pages, too */
		REQUIRE_EQ(made() > 0, caches && !trusts);
		TRY(arrived(comm, block, 0, n, 2));
	}
	munmap(own, n);
	close(fd);
	return spmt_barrier(comm);
}

static int emptied(void)
{
	TRY(ranks_run(RANKS, &attr, emptied_rank, NULL));
	REQUIRE_EQ(left(), 0);
	return 0;
}

/* ---- what is kept ------------------------------------------------------------------------------ */

/* 20 MiB are kept at most (main). */
static int order_rank(spmt_comm *comm, void *arg)
{
	size_t n = 8 * (size_t)MIB;
	char *block, *own[3];

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, n, (void **)&block));
	if (spmt_rank(comm))
		return spmt_barrier(comm);
	for (int i = 0; i < 3; i++)
		own[i] = pages(NULL, n, i);
	TRY(there_and_back(comm, block, own[0], n, 0));
	made();
	TRY(there_and_back(comm, block, own[1], n, 1));
	REQUIRE_EQ(made() > 0, caches);
	if (trusts) { /* otherwise the kernel may have moved pages between any two of them */
		REQUIRE_OK(spmt_put(comm, block, own[0] + 4097, MIB, 1)); /* a part */
		REQUIRE_EQ(made(), 0);
		fill(own[0], n, 0);
		TRY(there_and_back(comm, block, own[2], n, 2)); /* instead of the second */
		REQUIRE_EQ(made(), 1);
		TRY(there_and_back(comm, block, own[0], n, 0));
		REQUIRE_EQ(made(), 0);
		TRY(there_and_back(comm, block, own[1], n, 1));
		REQUIRE_EQ(made(), 1);
	}
	for (int i = 0; i < 3; i++)
		munmap(own[i], n);
	return spmt_barrier(comm);
}

static int in_order(void)
{
	TRY(ranks_run(RANKS, &attr, order_rank, NULL));
	REQUIRE_EQ(left(), 0);
	return 0;
}

/* 24 MiB are more than all, and 1 MiB is more than there is beside what is in flight. */
static int larger_rank(spmt_comm *comm, void *arg)
{
	size_t small = 4 * (size_t)SMALL, wide = 19 * (size_t)MIB + 8 * (size_t)SMALL;
	size_t large = 24 * (size_t)MIB;
	char *block, *own, *other;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, large, (void **)&block));
	if (spmt_rank(comm))
		return spmt_barrier(comm);
	own = pages(NULL, small, 1);
	other = pages(NULL, large, 2);
	TRY(there_and_back(comm, block, own, small, 1));
	made();
	TRY(there_and_back(comm, block, other, large, 2));
	REQUIRE_EQ(made(), 0);
	REQUIRE_OK(spmt_put(comm, block, own, small, 1));
	if (trusts) /* otherwise the kernel may have moved its pages */
		REQUIRE_EQ(made(), 0);
	fake.hold(caches);
	REQUIRE_OK(spmt_get_nbi(comm, other, block, wide, 1));
	REQUIRE_OK(spmt_get_nbi(comm, other + wide, block + wide, MIB, 1));
	fake.hold(0);
	REQUIRE_OK(spmt_quiet(comm));
	made();
	REQUIRE_OK(spmt_put(comm, block, own, small, 1));
	if (trusts)
		REQUIRE_EQ(made(), 0);
	munmap(own, small);
	munmap(other, large);
	return spmt_barrier(comm);
}

static int larger(void)
{
	TRY(ranks_run(RANKS, &attr, larger_rank, NULL));
	REQUIRE_EQ(left(), 0);
	return 0;
}

/* Ordinary memory: to have the pages of so many takes the stand-in its time. */
static int many_rank(spmt_comm *comm, void *arg)
{
	char *block, *own;
	int before;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, SMALL, (void **)&block));
	if (spmt_rank(comm))
		return spmt_barrier(comm);
	own = aligned_alloc(SMALL, MANY * (size_t)SMALL);
	REQUIRE(own != NULL);
	fill(own, SMALL, 0);
	TRY(there_and_back(comm, block, own, SMALL, 0));
	before = fake.live();
	for (size_t i = 1; i < MANY; i++) {
		fill(own + i * SMALL, SMALL, (int)i);
		TRY(there_and_back(comm, block, own + i * SMALL, SMALL, (int)i));
	}
	REQUIRE(fake.live() - before < KEPT);
	REQUIRE(fake.live() - before >= (trusts ? KEPT - 1 : 0));
	free(own);
	return spmt_barrier(comm);
}

static int many(void)
{
	TRY(ranks_run(RANKS, &attr, many_rank, NULL));
	REQUIRE_EQ(left(), 0);
	return 0;
}

/* ---- what is in use ---------------------------------------------------------------------------- */

/* Others want room while the device has it. */
static int flight_rank(spmt_comm *comm, void *arg)
{
	size_t n = 9 * (size_t)MIB, more = MIB + 3 * (size_t)SMALL;
	char *block, *own[3];

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 3 * n, (void **)&block));
	fill(block, n, 7);
	fill(block + n, n, 8);
	fill(block + 2 * n, n, 9);
	REQUIRE_OK(spmt_barrier(comm));
	if (!spmt_rank(comm)) {
		for (int i = 0; i < 3; i++)
			own[i] = pages(NULL, i < 2 ? n : more, i);
		REQUIRE_OK(spmt_put(comm, block, block, 8, 1)); /* connects */
		fake.hold(caches);				/* what bounces waits for chunks */
		for (size_t i = 0; i < 3; i++)
			REQUIRE_OK(spmt_get_nbi(comm, own[i], block + i * n, i < 2 ? n : more, 1));
		fake.hold(0);
		REQUIRE_OK(spmt_quiet(comm));
		for (int i = 0; i < 3; i++) {
			TRY(filled_by("in flight", own[i], i < 2 ? n : more, 7 + i));
			munmap(own[i], i < 2 ? n : more);
		}
	}
	return spmt_barrier(comm);
}

static int in_flight(void)
{
	TRY(ranks_run(RANKS, &attr, flight_rank, NULL));
	REQUIRE_EQ(left(), 0);
	return 0;
}

/* ---- limits ------------------------------------------------------------------------------------- */

/* A buffer that cannot be registered bounces; what is kept goes for what the user registers. */
static int limit_rank(spmt_comm *comm, void *arg)
{
	size_t n = 4 * (size_t)MIB;
	char *block, *own[3];
	spmt_mem *mem;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, n, (void **)&block));
	for (int i = 0; i < 3; i++)
		own[i] = pages(NULL, n, i);
	if (!spmt_rank(comm)) {
		fake.limit(MIB);
		TRY(there_and_back(comm, block, own[0], n, 0));
		fake.limit(0);
		TRY(there_and_back(comm, block, own[1], n, 1));
		fake.limit(MIB);
		TRY(there_and_back(comm, block, own[2], n, 2)); /* instead of the other */
		fake.limit(0);
		TRY(there_and_back(comm, block, own[2], n, 2));
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (!spmt_rank(comm))
		fake.limit(caches ? n + MIB : 2 * n); /* of two that register, one makes room */
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_register(comm, own[0], n, &mem));
	fill(own[0], n, 5);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_mem_put(comm, mem, 0, own[1], n, !spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(filled_by("a registered buffer", own[0], n, 1));
	REQUIRE_OK(spmt_deregister(comm, mem));
	for (int i = 0; i < 3; i++)
		munmap(own[i], n);
	return spmt_barrier(comm);
}

static int limits(void)
{
	TRY(ranks_run(RANKS, &attr, limit_rank, NULL));
	fake.limit(0);
	REQUIRE_EQ(left(), 0);
	return 0;
}

/* In order of a stream. */
static int stream_rank(spmt_comm *comm, void *arg)
{
	size_t n = MIB;
	char *block, *own;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, n, (void **)&block));
	if (spmt_rank(comm))
		return spmt_barrier(comm);
	REQUIRE_OK(spmt_put(comm, block, block, 8, 1)); /* connects */
	own = pages(NULL, n, 1);
	made();
	REQUIRE_OK(spmt_put_on_stream(comm, block, own, n, 1, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_EQ(made(), caches);
	memset(own, 0, n);
	REQUIRE_OK(spmt_get_on_stream(comm, own, block, n, 1, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(filled(own, n, 1));
	munmap(own, n);
	return spmt_barrier(comm);
}

static int in_streams(void)
{
	TRY(ranks_run(RANKS, &attr, stream_rank, NULL));
	REQUIRE_EQ(left(), 0);
	return 0;
}

/* A look at the page map is none. A thread of its own, which a call that is one does not come out of. */
struct pending {
	spmt_comm *comm;
	char *block, *own;
	int rc;
};

static void *move_pending(void *arg)
{
	struct pending *p = arg;

	pthread_cancel(pthread_self());
	p->rc = spmt_put(p->comm, p->block, p->own, MIB, 1);
	if (!p->rc)
		p->rc = spmt_get(p->comm, p->own, p->block, MIB, 1);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return p;
}

static int pending_rank(spmt_comm *comm, void *arg)
{
	struct pending p = { .comm = comm };
	void *returned = NULL;
	pthread_t thread;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, MIB, (void **)&p.block));
	if (spmt_rank(comm))
		return spmt_barrier(comm);
	p.own = pages(NULL, MIB, 1);
	REQUIRE_EQ(pthread_create(&thread, NULL, move_pending, &p), 0);
	REQUIRE_EQ(pthread_join(thread, &returned), 0);
	REQUIRE(returned == &p);
	REQUIRE_OK(p.rc);
	munmap(p.own, MIB);
	return spmt_barrier(comm);
}

static int no_cancellation_point(void)
{
	TRY(ranks_run(RANKS, &attr, pending_rank, NULL));
	REQUIRE_EQ(left(), 0);
	return 0;
}

/* Whether the kernel tells this process of page frames. */
static bool frames_are_told(void)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uintptr_t page = (uintptr_t)&fd / (uintptr_t)sysconf(_SC_PAGESIZE);
	uint64_t entry = 0;

	if (fd < 0)
		return false;
	if (pread(fd, &entry, sizeof(entry), (off_t)(page * sizeof(entry))) != sizeof(entry))
		entry = 0;
	close(fd);
	return entry & ((1ull << 55) - 1);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "memory that is mapped anew", mapped_anew },
		{ "memory of a file that is emptied", emptied },
		{ "the last used are kept", in_order },
		{ "what is too large makes no room", larger },
		{ "so many are kept", many },
		{ "what is in flight stays", in_flight },
		{ "no more may be registered", limits },
		{ "moves in streams", in_streams },
		{ "a cancellation that is pending", no_cancellation_point },
	};
	const char *mode = argc > 1 ? argv[1] : "auto";

	trusts = !strcmp(mode, "trust");
	caches = trusts || (!strcmp(mode, "auto") && frames_are_told());
	setenv("SPMT_RDMA_CACHE", mode, 1);
	setenv("SPMT_TIMEOUT_MS", "60000", 1); /* one rank works while the other waits */
	setenv("SPMT_RDMA_CACHE_SIZE", "20M", 1);
	setenv("SPMT_RDMA_CACHE_FROM", "64K", 1);
	setenv("SPMT_RDMA_DEVICE", argc > 2 ? argv[2] : "fake0", 1);
	setenv("SPMT_MAPS", "rdma", 1);
	if (argc > 2)
		return tap_run(cases, 2);
	if (fake_nic(FAKES "/fake-verbs.so"))
		return 1;
	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
