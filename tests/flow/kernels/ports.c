/* SPDX-License-Identifier: MIT */
/* Ports as a program gets them: of the heap, of registered buffers, of parts of a comm, in one process and in several; what ends
   them; and what is refused. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt_channel.h"
#include "tests/lib/device/kernel_checks.h"
#include "tests/lib/processes.h"
#include "tests/lib/ranks.h"

/* More posts than the ring has places. */
enum { WORDS = 64, BYTES = WORDS * 8, ROUNDS = 400, INDEX = 7, LARGE = 3 << 20 };
/* Places in a buffer: what is sent, then what the previous rank puts. */
enum { OWN = 0, CAME = BYTES, ROOM = 2 * BYTES };

#define KERNELS "kernels that are C functions (tests/gpu/port.c calls ports from images)"

struct args {
	struct spmt_view view;
	struct spmt_port next, prev;
	uint64_t *own, *came;
	int *line;
	uint32_t rounds;
	int code;
};

static int put_one(const struct args *a, uint32_t round)
{
	const struct spmt_view *v = &a->view;
	int rc;

	if (round % 4 == 0)
		return spmtd_port_put_signal_flush(v, &a->next, CAME, OWN, BYTES);
	if (round % 4 == 1)
		return spmtd_port_put_signal(v, &a->next, CAME, OWN, BYTES);
	if (round % 4 == 2) {
		rc = spmtd_port_put_warp(v, &a->next, CAME, OWN, BYTES);
		return rc ? rc : spmtd_port_signal_block(v, &a->next);
	}
	/* in parts, one of them of nothing */
	rc = spmtd_port_put_block(v, &a->next, CAME, OWN, 8);
	if (!rc)
		rc = spmtd_port_put(v, &a->next, CAME + 8, OWN + 8, BYTES - 8);
	if (!rc)
		rc = spmtd_port_put(v, &a->next, CAME, OWN, 0);
	if (!rc)
		rc = spmtd_port_signal(v, &a->next);
	return rc ? rc : spmtd_port_flush_warp(v, &a->next);
}

/* Data round the ring; `prev` tells that the buffer is free again. */
static void ring(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int n = spmtd_n_pes(v), me = spmtd_my_pe(v), from = (me + n - 1) % n;

	for (uint32_t round = 1; round <= a->rounds; round++) {
		for (int i = 0; i < WORDS; i++)
			a->own[i] = word_of(round, me, i);
		CHECK(put_one(a, round) == 0);
		if (round % 8)
			CHECK(spmtd_port_wait(v, &a->prev) == 0);
		else
			while (!spmtd_port_poll_block(v, &a->prev))
				CHECK(!*v->stop);
		for (int i = 0; i < WORDS; i++)
			CHECK(a->came[i] == word_of(round, from, i));
		CHECK(spmtd_port_signal(v, &a->prev) == 0);
		CHECK(spmtd_port_wait_warp(v, &a->next) == 0);
	}
}

static int run_kernel(spmt_comm *comm, void (*kernel)(void *), struct args *a)
{
	int line = 0;

	a->line = &line;
	REQUIRE_OK(spmt_host_launch(comm, NULL, kernel, a, sizeof(*a)));
	REQUIRE_OK(spmt_quiet(comm));
	return line ? ranks_fail("the kernel failed at line %d", line) : 0;
}

static int get_both(spmt_comm *comm, const struct spmt_channel_attr *like, struct args *a)
{
	int n = spmt_nranks(comm), me = spmt_rank(comm);
	struct spmt_channel_attr attr = *like;

	a->view.size = sizeof(a->view);
	a->next.size = a->prev.size = sizeof(a->next);
	REQUIRE_OK(spmt_view_get(comm, &a->view));
	attr.peer = (me + 1) % n;
	REQUIRE_OK(spmt_port_get(comm, &attr, &a->next));
	attr.peer = (me + n - 1) % n;
	/* with one rank or two both go to one peer */
	attr.index += n <= 2;
	REQUIRE_OK(spmt_port_get(comm, &attr, &a->prev));
	if (n == 2 && me == 1) {
		struct spmt_port p = a->next;

		a->next = a->prev;
		a->prev = p;
	}
	if (n == 1)
		a->prev = a->next;
	return 0;
}

static int by_heap(spmt_comm *comm, void *arg)
{
	struct spmt_channel_attr attr = {
		.size = sizeof(attr), .index = INDEX, .remote_size = ROOM
	};
	struct args a = { .rounds = spmt_nranks(comm) > 1 ? ROUNDS : 0 };
	void *block;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, ROOM, &block));
	attr.remote = block;
	a.own = block;
	a.came = a.own + WORDS;
	for (int i = 0; i < 2; i++) { /* asked for again it goes on counting */
		TRY(get_both(comm, &attr, &a));
		REQUIRE_EQ(a.next.remote_size, ROOM);
		REQUIRE_EQ(a.next.local_size, ROOM);
		TRY(run_kernel(comm, ring, &a));
	}
	REQUIRE_OK(spmt_free(comm, block));
	return 0;
}

Test(ports, of_the_heap)
{
	NEEDS_HOST(KERNELS);
	for (int n = 1; n <= 4; n++)
		RANKS_OK(ranks_run(n, NULL, by_heap, NULL));
}

/* Of other sizes and places on each rank; sent from memory of the rank's own. */
static int by_buffer(spmt_comm *comm, void *arg)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr), .index = INDEX };
	size_t size = ROOM + 16 * (size_t)spmt_rank(comm);
	struct args a = { .rounds = ROUNDS / 4 };
	char *buffer = calloc(1, size);
	uint64_t own[WORDS];
	int rc;

	(void)arg;
	REQUIRE(buffer);
	rc = spmt_register(comm, buffer, size, &attr.mem);
	attr.local = a.own = own;
	attr.local_size = sizeof(own);
	a.came = (uint64_t *)(void *)buffer + WORDS;
	if (!rc)
		rc = get_both(comm, &attr, &a);
	if (!rc && a.next.local_size != sizeof(own))
		rc = ranks_fail("%llu bytes", (unsigned long long)a.next.local_size);
	if (!rc)
		rc = run_kernel(comm, ring, &a);
	if (!rc)
		rc = spmt_deregister(comm, attr.mem);
	if (!rc)
		free(buffer);
	return rc;
}

Test(ports, of_registered_buffers)
{
	NEEDS_HOST(KERNELS);
	for (int n = 2; n <= 3; n++)
		RANKS_OK(ranks_run(n, NULL, by_buffer, NULL));
}

/* The halves of a comm have words and posts of their own, and so has the whole. */
static int by_halves(spmt_comm *comm, void *arg)
{
	return ranks_halves(comm, by_heap, arg);
}

Test(ports, of_parts_of_a_comm)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(4, NULL, by_halves, NULL));
}

/* ---- packets ------------------------------------------------------------------------------------------------- */

/* Places in the peer's buffer: packets of the rank before, and of the one before that, which it has sent on. */
enum { FIRST = 0, SECOND = 2 * BYTES, PACKETS = 4 * BYTES };

/* To the next rank, and on from there, in one format or the other. */
static int send_packets(const struct args *a, uint32_t round)
{
	const struct spmt_view *v = &a->view;
	const struct spmt_port *p = &a->next;
	int rc;

	if (round % 2) {
		rc = spmtd_port_put_packets_warp(v, p, FIRST, 0, a->own, BYTES, round);
		return rc ? rc : spmtd_port_read_put_packets(v, p, SECOND, FIRST, BYTES, round);
	}
	rc = spmtd_port_put_packets8(v, p, FIRST, 0, a->own, BYTES, round);
	return rc ? rc : spmtd_port_read_put_packets8_block(v, p, SECOND, FIRST, BYTES, round);
}

static int unpack_packets(const struct args *a, size_t off, uint32_t round)
{
	return (round % 2 ? spmtd_port_unpack_packets_block : spmtd_port_unpack_packets8)(
		&a->view, &a->next, a->came, off, BYTES, round);
}

/* No signal says that packets have come; `prev` tells that they may come again, once they have been sent on. */
static void packets_ring(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int n = spmtd_n_pes(v), me = spmtd_my_pe(v);

	for (uint32_t round = 1; round <= a->rounds; round++) {
		for (int i = 0; i < WORDS; i++)
			a->own[i] = word_of(round, me, i);
		CHECK(send_packets(a, round) == 0);
		for (int hops = 1; hops <= 2; hops++) {
			CHECK(unpack_packets(a, hops == 1 ? FIRST : SECOND, round) == 0);
			for (int i = 0; i < WORDS; i++)
				CHECK(a->came[i] == word_of(round, (me + 2 * n - hops) % n, i));
		}
		CHECK(!spmtd_port_flush(v, &a->next) && !spmtd_port_signal(v, &a->prev));
		CHECK(spmtd_port_wait(v, &a->next) == 0);
	}
}

static int by_packets(spmt_comm *comm, void *arg)
{
	uint64_t via[2 * WORDS] __attribute__((aligned(16))), own[WORDS], came[WORDS];
	struct spmt_channel_attr attr = { .size = sizeof(attr),
		.index = INDEX,
		.remote_size = PACKETS,
		.local = via,
		.local_size = sizeof(via) };
	struct args a = { .rounds = 30, .own = own, .came = came };
	void *block;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, PACKETS, &block));
	attr.remote = block;
	TRY(get_both(comm, &attr, &a));
	REQUIRE(a.next.local == (uintptr_t)via && a.next.incoming == (uintptr_t)block);
	TRY(run_kernel(comm, packets_ring, &a));
	REQUIRE_OK(spmt_free(comm, block));
	return 0;
}

Test(ports, packets_round_a_ring)
{
	NEEDS_HOST(KERNELS);
	for (int n = 2; n <= 4; n++)
		RANKS_OK(ranks_run(n, NULL, by_packets, NULL));
}

static int in_processes(spmt_comm *comm, void *arg)
{
	TRY(by_heap(comm, arg));
	return by_packets(comm, arg);
}

Test(ports, between_processes)
{
	struct processes p = { .layout = "0,2|1,3" };

	NEEDS_HOST(KERNELS);
	RANKS_OK(processes_world(&p, in_processes, NULL));
}

/* ---- by a copy engine, and what quiet completes ------------------------------------------------------------- */

/* Puts without a flush: the host's quiet is one. */
static void puts_only(void *args)
{
	struct args *a = args;

	CHECK(spmtd_port_put(&a->view, &a->next, 0, 0, LARGE - 8) == 0);
	CHECK(spmtd_port_put(&a->view, &a->next, LARGE - 8, LARGE - 8, 8) == 0);
}

static int large(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm), me = spmt_rank(comm);
	struct spmt_channel_attr attr = { .size = sizeof(attr),
		.peer = (me + 1) % n,
		.remote_size = LARGE,
		.local_size = LARGE };
	struct args a = { .view.size = sizeof(a.view), .next.size = sizeof(a.next) };
	unsigned char *block, *from = malloc(LARGE);
	void *sym;

	(void)arg;
	REQUIRE(from);
	REQUIRE_OK(spmt_calloc(comm, 1, LARGE, &sym));
	block = sym;
	attr.remote = block;
	attr.local = from;
	REQUIRE_OK(spmt_view_get(comm, &a.view));
	REQUIRE_OK(spmt_port_get(comm, &attr, &a.next));
	for (int round = 0; round < 3; round++) {
		memset(from, 1 + 10 * round + me, LARGE);
		TRY(run_kernel(comm, puts_only, &a));
		REQUIRE_OK(spmt_barrier(comm));
		for (size_t i = 0; i < LARGE; i++)
			REQUIRE_EQ(block[i], 1 + 10 * round + (me + n - 1) % n);
		REQUIRE_OK(spmt_barrier(comm));
	}
	free(from);
	return 0;
}

static int run_large(void)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.heap_size = 8u << 20;
	return ranks_run(2, &attr, large, NULL);
}

Test(ports, quiet_completes_what_was_put)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(run_large());
}

Test(ports, by_a_copy_engine)
{
	NEEDS_HOST(KERNELS);
	setenv("SPMT_MOVES", "sdma", 1);
	RANKS_OK(run_large());
	RANKS_OK(ranks_run(3, NULL, by_heap, NULL));
	RANKS_OK(ranks_run(3, NULL, by_packets, NULL));
}

Test(ports, by_queues_of_a_copy_engine)
{
	NEEDS_HOST(KERNELS);
	setenv("SPMT_MOVES", "sdma", 1);
	setenv("SPMT_SDMA", "queues", 1);
	RANKS_OK(run_large());
	RANKS_OK(ranks_run(3, NULL, by_heap, NULL));
	RANKS_OK(ranks_run(3, NULL, by_packets, NULL));
}

/* ---- the thread --------------------------------------------------------------------------------------------- */

/* Threads of this process that have the name. */
static int threads_named(const char *name)
{
	DIR *dir = opendir("/proc/self/task");
	const struct dirent *entry;
	int n = 0;

	while (dir && (entry = readdir(dir))) {
		char path[300], comm[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		f = fopen(path, "r");
		if (f && fgets(comm, sizeof(comm), f))
			n += strncmp(comm, name, strlen(name)) == 0;
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return n;
}

static int one_thread(spmt_comm *comm, void *arg)
{
	TRY(by_heap(comm, arg));
	REQUIRE_EQ(threads_named("spmt-proxy"), 1);
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

Test(ports, have_one_thread_a_process)
{
	NEEDS_HOST(KERNELS);
	for (int i = 0; i < 3; i++) {
		RANKS_OK(ranks_run(3, NULL, one_thread, NULL));
		cr_assert_eq(threads_named("spmt-proxy"), 0);
	}
}

/* ---- what ends otherwise ------------------------------------------------------------------------------------ */

static void wait_once(void *args)
{
	struct args *a = args;

	*a->line = spmtd_port_wait(&a->view, &a->prev);
}

static int nobody_signals(spmt_comm *comm, void *arg)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr), .index = INDEX };
	struct args a = { .rounds = 1 };
	int code = 1;

	(void)arg;
	TRY(get_both(comm, &attr, &a));
	a.line = &code;
	if (spmt_rank(comm) == 0) {
		REQUIRE_OK(spmt_set_timeout(comm, 50));
		REQUIRE_OK(spmt_view_get(comm, &a.view));
		REQUIRE_OK(spmt_set_timeout(comm, 0));
		REQUIRE_OK(spmt_host_launch(comm, NULL, wait_once, &a, sizeof(a)));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("signal 1 of rank 2's");
		REQUIRE_EQ(code, SPMTD_TIMEOUT);
		REQUIRE_OK(spmt_view_get(comm, &a.view));
	}
	REQUIRE_OK(spmt_barrier(comm));
	/* It comes after all, and is the one that the next wait is for. */
	REQUIRE_EQ(spmtd_port_signal(&a.view, &a.next), 0);
	REQUIRE_OK(spmt_host_launch(comm, NULL, wait_once, &a, sizeof(a)));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_EQ(code, 0);
	return 0;
}

Test(ports, a_wait_ends_at_the_deadline)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(3, NULL, nobody_signals, NULL));
}

struct beyond {
	size_t dst, src, n;
	const char *says, *call; /* call: NULL: spmtd_port_put */
};

static int put_beyond(const struct args *a, const struct beyond *b)
{
	uint64_t words[2] = { 0 };

	return b->call ? spmtd_port_put_packets(&a->view, &a->next, b->dst, b->src, words, b->n, 1)
		       : spmtd_port_put(&a->view, &a->next, b->dst, b->src, b->n);
}

/* All ranks hear of it: those that wait, and the one that posted, by its flush. */
static int goes_beyond(spmt_comm *comm, void *arg)
{
	const struct beyond *b = arg;
	struct spmt_channel_attr attr = { .size = sizeof(attr), .remote_size = ROOM };
	struct args a = { .rounds = 1 };
	void *block;

	REQUIRE_OK(spmt_calloc(comm, 1, ROOM, &block));
	attr.remote = block;
	TRY(get_both(comm, &attr, &a));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 1) {
		REQUIRE_EQ(put_beyond(&a, b), 0);
		REQUIRE_EQ(spmtd_port_flush(&a.view, &a.next), SPMTD_ABORTED);
	} else {
		REQUIRE_EQ(spmtd_port_wait(&a.view, &a.prev), SPMTD_ABORTED);
	}
	REQUIRE_CODE(spmt_status(comm), -EINVAL);
	REQUIRE_CODE(spmt_quiet(comm), -EINVAL);
	REQUIRE_SAYS(b->call ? b->call : "spmtd_port_put: rank 1: ");
	REQUIRE_SAYS(b->says);
	/* what is posted now is dropped, and nobody waits for it */
	for (int i = 0; i < 2000; i++)
		spmtd_port_put_signal(&a.view, &a.next, 0, 0, 8);
	REQUIRE_CODE(spmt_quiet(comm), -EINVAL);
	return 0;
}

Test(ports, a_post_that_fails_breaks_the_comm)
{
	static struct beyond beyond[] = {
		{ ROOM - 8, 0, 16,
			"offset 1016 with 16 bytes goes beyond rank 2's buffer of 1024" },
		{ 0, ROOM, 1, "offset 1024 with 1 bytes goes beyond this rank's buffer of 1024" },
		{ SIZE_MAX - 7, 0, 16, "goes beyond rank 2's buffer" },
		{ 0, 0, SIZE_MAX, "with 18446744073709551615 bytes" },
		{ ROOM - 16, 0, 16, "offset 1008 with 32 bytes goes beyond rank 2's buffer",
			"spmtd_port_put_packets: rank 1: " },
		{ 4, 0, 8, "packets of 16 bytes lie at multiples of that",
			"spmtd_port_put_packets: rank 1: " },
	};

	NEEDS_HOST(KERNELS);
	for (size_t i = 0; i < sizeof(beyond) / sizeof(*beyond); i++)
		RANKS_OK(ranks_run(3, NULL, goes_beyond, &beyond[i]));
}

static int one_aborts(spmt_comm *comm, void *arg)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr) };
	struct args a = { .rounds = 1 };
	int code = 1;

	(void)arg;
	REQUIRE_OK(spmt_set_timeout(comm, -1));
	TRY(get_both(comm, &attr, &a));
	a.line = &code;
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		REQUIRE_OK(spmt_abort(comm, -ENOSPC));
		return 0;
	}
	wait_once(&a);
	REQUIRE_EQ(code, SPMTD_ABORTED);
	return 0;
}

Test(ports, an_abort_ends_a_wait)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(3, NULL, one_aborts, NULL));
}

/* ---- what is refused ---------------------------------------------------------------------------------------- */

#define BAD(call, word)                      \
	do {                                 \
		REQUIRE_CODE(call, -EINVAL); \
		REQUIRE_SAYS(word);          \
	} while (0)

static int bad_attributes(
	spmt_comm *comm, const struct spmt_channel_attr *good, const spmt_mem *mem)
{
	struct spmt_channel_attr attr = *good;
	struct spmt_port p = { .size = sizeof(p), .remote_size = 99 };
	char local[8];

	BAD(spmt_port_get(comm, NULL, &p), "spmt_port_get: rank");
	BAD(spmt_port_get(comm, good, NULL), "port is NULL");
	attr.size--;
	BAD(spmt_port_get(comm, &attr, &p), "spmt_port_get: rank");
	attr = *good;
	attr.peer = spmt_nranks(comm);
	BAD(spmt_port_get(comm, &attr, &p), "spmt_port_get");
	attr = *good;
	attr.index = 64;
	BAD(spmt_port_get(comm, &attr, &p), "index 64");
	attr = *good;
	attr.remote = local;
	BAD(spmt_port_get(comm, &attr, &p), "attr.remote");
	attr = *good;
	attr.mem = (spmt_mem *)(uintptr_t)mem;
	BAD(spmt_port_get(comm, &attr, &p), "both given");
	attr = *good;
	attr.local_size = 8;
	BAD(spmt_port_get(comm, &attr, &p), "attr.local is NULL");
	REQUIRE_EQ(p.remote_size, 99);
	p.size = 20;
	BAD(spmt_port_get(comm, good, &p), "port->size 20");
	return 0;
}

static int refused(spmt_comm *comm, void *arg)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr), .remote_size = 64 };
	struct spmt_port p = { .size = sizeof(p) };
	char buffer[64];
	spmt_mem *mem;
	void *block;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 64, &block));
	REQUIRE_OK(spmt_register(comm, buffer, sizeof(buffer), &mem));
	attr.remote = block;
	TRY(bad_attributes(comm, &attr, mem));
	REQUIRE_OK(spmt_deregister(comm, mem));
	attr = (struct spmt_channel_attr){ .size = sizeof(attr), .mem = mem };
	REQUIRE_CODE(spmt_port_get(comm, &attr, &p), -EBADF);
	REQUIRE_CODE(spmt_port_get(NULL, &attr, &p), -EINVAL);
	return 0;
}

Test(ports, refused)
{
	RANKS_OK(ranks_run(2, NULL, refused, NULL));
}
