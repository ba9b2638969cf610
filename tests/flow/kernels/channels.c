/* SPDX-License-Identifier: MIT */
/* Channels and switch channels as a program gets them: of the heap, of registered buffers, of parts of a comm, in one process and in
   several; and what is refused. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "spmt_channel.h"
#include "tests/lib/device/kernel_checks.h"
#include "tests/lib/processes.h"
#include "tests/lib/ranks.h"

enum { WORDS = 64, BYTES = WORDS * 8, ROUNDS = 20, INDEX = 7 };

#define KERNELS "kernels that are C functions (tests/gpu has them as images)"

/* What a kernel gets. Its buffers have WORDS words to send, then WORDS that the previous rank puts, then packets. */
struct args {
	struct spmt_view view;
	struct spmt_channel next, prev;
	struct spmt_switch all;
	int *line;
	uint32_t rounds;
	int code;
};

enum { OWN = 0, CAME = BYTES, PACKETS = 2 * BYTES, SUM = 4 * BYTES, ROOM = 5 * BYTES };

static uint64_t *words_at(const struct args *a, size_t off)
{
	return (uint64_t *)(uintptr_t)(a->next.local + off);
}

static bool is_of(const uint64_t *words, uint32_t round, int pe)
{
	for (int i = 0; i < WORDS; i++)
		if (words[i] != word_of(round, pe, i))
			return false;
	return true;
}

/* Data round the ring, each way it can go; `prev` tells that a buffer is free again. */
static void ring(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int n = spmtd_n_pes(v), me = spmtd_my_pe(v), from = (me + n - 1) % n;

	for (uint32_t round = 1; round <= a->rounds; round++) {
		uint64_t *own = words_at(a, OWN), *came = words_at(a, CAME);

		for (int i = 0; i < WORDS; i++)
			own[i] = word_of(round, me, i);
		if (round % 2) {
			spmtd_channel_put_signal(v, &a->next, CAME, OWN, BYTES);
		} else {
			spmtd_channel_put_block(v, &a->next, CAME, OWN, BYTES);
			spmtd_channel_signal_block(v, &a->next, SPMTD_DATA_SYNC_BOTH);
		}
		CHECK(spmtd_channel_wait(v, &a->prev) == 0);
		CHECK(is_of(came, round, from));
		spmtd_channel_put_packets(v, &a->next, PACKETS, CAME, BYTES, round);
		CHECK(spmtd_channel_unpack_packets(v, &a->next, SUM, PACKETS, BYTES, round) == 0);
		CHECK(is_of(words_at(a, SUM), round, (me + 2 * n - 2) % n));
		spmtd_channel_signal(v, &a->prev);
		CHECK(spmtd_channel_wait(v, &a->next) == 0);
		spmtd_channel_get(v, &a->next, SUM, OWN, BYTES);
		CHECK(is_of(words_at(a, SUM), round, (me + 1) % n));
		CHECK(spmtd_barrier(v) == 0);
	}
}

/* Every rank's words at OWN, added up, and one rank's stored to all. */
static void all_of(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int n = spmtd_n_pes(v), me = spmtd_my_pe(v);
	uint64_t *own = (uint64_t *)spmtd_switch_at_rank(v, &a->all, me);

	for (int i = 0; i < WORDS; i++)
		own[i] = word_of(3, me, i);
	CHECK(spmtd_barrier(v) == 0);
	spmtd_switch_uint64_sum_reduce_block(v, &a->all, own + SUM / 8, OWN, WORDS);
	for (int i = 0; i < WORDS; i++)
		CHECK(own[SUM / 8 + i] ==
			(uint64_t)n * word_of(3, 0, i) + (uint64_t)(n * (n - 1) / 2) * 1000);
	if (me == n - 1)
		spmtd_switch_broadcast(v, &a->all, CAME, own, BYTES);
	CHECK(spmtd_barrier(v) == 0);
	CHECK(is_of(own + CAME / 8, 3, n - 1));
	CHECK(spmtd_barrier(v) == 0); /* nobody is put into before */
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
	a->all.size = sizeof(a->all);
	REQUIRE_OK(spmt_view_get(comm, &a->view));
	attr.peer = (me + 1) % n;
	REQUIRE_OK(spmt_channel_get(comm, &attr, &a->next));
	attr.peer = (me + n - 1) % n;
	/* with two ranks both go to one peer */
	attr.index = n == 2 ? attr.index + 1 : attr.index;
	REQUIRE_OK(spmt_channel_get(comm, &attr, &a->prev));
	if (n == 2 && me == 1) {
		struct spmt_channel c = a->next;

		a->next = a->prev;
		a->prev = c;
	}
	if (attr.remote || attr.mem)
		REQUIRE_OK(spmt_switch_get(comm, attr.remote, attr.remote_size, attr.mem, &a->all));
	return 0;
}

static int by_heap(spmt_comm *comm, void *arg)
{
	struct spmt_channel_attr attr = {
		.size = sizeof(attr), .index = INDEX, .remote_size = ROOM
	};
	struct args a = { .rounds = ROUNDS };
	void *block;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, ROOM, &block));
	attr.remote = block;
	for (int i = 0; i < 3; i++) { /* asked for again it goes on counting */
		TRY(get_both(comm, &attr, &a));
		REQUIRE_EQ(a.next.remote_size, ROOM);
		REQUIRE_EQ(a.next.local, (uintptr_t)block);
		TRY(run_kernel(comm, ring, &a));
		TRY(run_kernel(comm, all_of, &a));
	}
	REQUIRE_OK(spmt_free(comm, block));
	return 0;
}

Test(channels, of_the_heap)
{
	NEEDS_HOST(KERNELS);
	for (int n = 1; n <= 5; n++)
		RANKS_OK(ranks_run(n, NULL, by_heap, NULL));
}

/* Of other sizes and places on each rank. */
static int by_buffer(spmt_comm *comm, void *arg)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr), .index = INDEX };
	size_t size = ROOM + 16 * (size_t)spmt_rank(comm);
	struct args a = { .rounds = ROUNDS };
	char *buffer = calloc(1, size);
	int rc;

	(void)arg;
	REQUIRE(buffer);
	rc = spmt_register(comm, buffer, size, &attr.mem);
	if (!rc)
		rc = get_both(comm, &attr, &a);
	if (!rc && a.all.bytes != ROOM)
		rc = ranks_fail("the switch has %llu bytes", (unsigned long long)a.all.bytes);
	if (!rc)
		rc = run_kernel(comm, ring, &a);
	if (!rc)
		rc = run_kernel(comm, all_of, &a);
	if (!rc)
		rc = spmt_deregister(comm, attr.mem);
	if (!rc)
		free(buffer);
	return rc;
}

Test(channels, of_registered_buffers)
{
	NEEDS_HOST(KERNELS);
	for (int n = 1; n <= 4; n++)
		RANKS_OK(ranks_run(n, NULL, by_buffer, NULL));
}

/* The halves of a comm have words of their own, and so has the whole. */
static int by_halves(spmt_comm *comm, void *arg)
{
	return ranks_halves(comm, by_heap, arg);
}

Test(channels, of_parts_of_a_comm)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(6, NULL, by_halves, NULL));
}

/* A buffer of the rank's own is what is sent from; offsets into it are its own. */
static int by_local(spmt_comm *comm, void *arg)
{
	struct spmt_channel_attr attr = {
		.size = sizeof(attr), .peer = spmt_rank(comm), .remote_size = 64, .local_size = 32
	};
	struct spmt_view view = { .size = sizeof(view) };
	struct spmt_channel c = { .size = sizeof(c) };
	char local[32] = "0123456789abcdef";
	void *block;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, 64, &block));
	attr.remote = block;
	attr.local = local;
	REQUIRE_OK(spmt_view_get(comm, &view));
	REQUIRE_OK(spmt_channel_get(comm, &attr, &c));
	REQUIRE_EQ(c.local_size, 32);
	spmtd_channel_put(&view, &c, 8, 2, 4);
	REQUIRE(memcmp((char *)block + 8, "2345", 4) == 0);
	return 0;
}

Test(channels, with_a_local_buffer)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(2, NULL, by_local, NULL));
}

/* ---- several processes -------------------------------------------------------------------------- */

static int in_processes(spmt_comm *comm, void *arg)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr), .index = INDEX };
	struct args a = { .rounds = ROUNDS };
	void *block;

	TRY(by_heap(comm, arg));
	REQUIRE_OK(spmt_calloc(comm, 1, ROOM, &block));
	REQUIRE_OK(spmt_register(comm, block, ROOM, &attr.mem));
	TRY(get_both(comm, &attr, &a));
	TRY(run_kernel(comm, ring, &a));
	TRY(run_kernel(comm, all_of, &a));
	REQUIRE_OK(spmt_deregister(comm, attr.mem));
	return 0;
}

Test(channels, between_processes)
{
	struct processes p = { .layout = "0,2|1,3" };

	NEEDS_HOST(KERNELS);
	RANKS_OK(processes_world(&p, in_processes, NULL));
}

/* Memory that no other process can map has no channel there, and its owner's peers in the process do. */
static int beyond_reach(spmt_comm *comm, void *arg)
{
	static char own[4][256];
	int me = spmt_rank(comm);
	struct spmt_channel_attr attr = { .size = sizeof(attr), .peer = (me + 2) % 4 };
	struct spmt_channel c = { .size = sizeof(c) };
	struct spmt_switch s = { .size = sizeof(s) };

	(void)arg;
	REQUIRE_OK(spmt_register(comm, own[me], sizeof(own[me]), &attr.mem));
	REQUIRE_OK(spmt_channel_get(comm, &attr, &c));
	attr.peer = (me + 1) % 4;
	REQUIRE_CODE(spmt_channel_get(comm, &attr, &c), SPMT_ERR_UNSUPPORTED);
	REQUIRE_SAYS("in another process, cannot be reached");
	REQUIRE_CODE(spmt_switch_get(comm, NULL, 0, attr.mem, &s), SPMT_ERR_UNSUPPORTED);
	REQUIRE_SAYS("spmt_switch_get");
	REQUIRE_OK(spmt_deregister(comm, attr.mem));
	return 0;
}

Test(channels, of_memory_that_cannot_be_mapped)
{
	struct processes p = { .layout = "0,2|1,3" };

	NEEDS_HOST(KERNELS);
	RANKS_OK(processes_world(&p, beyond_reach, NULL));
}

/* ---- waits that end otherwise -------------------------------------------------------------------- */

static void wait_once(void *args)
{
	struct args *a = args;

	*a->line = spmtd_channel_wait(&a->view, &a->prev);
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
		/* The kernel's deadline is its view's, and quiet's the comm's again. */
		REQUIRE_OK(spmt_set_timeout(comm, 0));
		REQUIRE_OK(spmt_host_launch(comm, NULL, wait_once, &a, sizeof(a)));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS(
			"rank 0: a kernel's wait for signal 1 of rank 2's through a channel ended: 0 had come");
		REQUIRE_EQ(code, SPMTD_TIMEOUT);
		REQUIRE_OK(spmt_view_get(comm, &a.view));
	}
	REQUIRE_OK(spmt_barrier(comm));
	/* It comes after all, and is the one that the next wait is for. */
	spmtd_channel_signal(&a.view, &a.next);
	REQUIRE_OK(spmt_host_launch(comm, NULL, wait_once, &a, sizeof(a)));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_EQ(code, 0);
	return 0;
}

Test(channels, a_wait_ends_at_the_deadline)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(3, NULL, nobody_signals, NULL));
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

Test(channels, an_abort_ends_a_wait)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(3, NULL, one_aborts, NULL));
}

/* ---- what is refused ------------------------------------------------------------------------------ */

#define BAD(call, word)                      \
	do {                                 \
		REQUIRE_CODE(call, -EINVAL); \
		REQUIRE_SAYS(word);          \
	} while (0)

struct longer {
	struct spmt_channel_attr attr;
	char more[16];
};

static int bad_attributes(spmt_comm *comm, const struct spmt_channel_attr *good)
{
	struct longer attr = { .attr = *good };
	struct spmt_channel c = { .size = sizeof(c) };

	BAD(spmt_channel_get(comm, NULL, &c), "attr is NULL");
	BAD(spmt_channel_get(comm, good, NULL), "channel is NULL");
	for (attr.attr.size = 0; attr.attr.size < sizeof(*good); attr.attr.size += 8)
		BAD(spmt_channel_get(comm, &attr.attr, &c), "attr.size");
	attr.attr.size = SIZE_MAX / 2;
	BAD(spmt_channel_get(comm, &attr.attr, &c), "attr.size 9223372036854775807: set it");
	attr.attr.size = sizeof(attr);
	REQUIRE_OK(spmt_channel_get(comm, &attr.attr, &c));
	attr.more[3] = 1;
	BAD(spmt_channel_get(comm, &attr.attr, &c), "does not know");
	attr.attr = *good;
	for (int peer = -1; peer <= spmt_nranks(comm); peer += spmt_nranks(comm) + 1) {
		attr.attr.peer = peer;
		BAD(spmt_channel_get(comm, &attr.attr, &c), "spmt_channel_get");
	}
	attr.attr = *good;
	attr.attr.index = -1;
	BAD(spmt_channel_get(comm, &attr.attr, &c), "index -1");
	attr.attr.index = 64;
	BAD(spmt_channel_get(comm, &attr.attr, &c), "index 64");
	attr.attr.index = 63;
	REQUIRE_OK(spmt_channel_get(comm, &attr.attr, &c));
	c.size = 20;
	BAD(spmt_channel_get(comm, good, &c), "channel->size 20");
	return 0;
}

static int bad_buffers(spmt_comm *comm, const struct spmt_channel_attr *good, spmt_mem *mem)
{
	struct spmt_channel_attr attr = *good;
	struct spmt_channel c = { .size = sizeof(c), .remote = 99 };
	char local[8];

	attr.remote = local;
	BAD(spmt_channel_get(comm, &attr, &c), "attr.remote");
	attr.remote = NULL;
	BAD(spmt_channel_get(comm, &attr, &c), "attr.remote is NULL");
	attr = *good;
	attr.remote_size = SIZE_MAX / 2;
	BAD(spmt_channel_get(comm, &attr, &c), "beyond the heap's end");
	attr = *good;
	attr.remote_size = 0;
	BAD(spmt_channel_get(comm, &attr, &c), "attr.remote has 0 bytes");
	attr = *good;
	attr.local = local;
	BAD(spmt_channel_get(comm, &attr, &c), "attr.local has 0 bytes");
	attr = *good;
	attr.mem = mem;
	BAD(spmt_channel_get(comm, &attr, &c), "both given");
	attr = *good;
	attr.local_size = 8;
	BAD(spmt_channel_get(comm, &attr, &c), "attr.local is NULL");
	attr.local = local;
	attr.local_size = SIZE_MAX;
	BAD(spmt_channel_get(comm, &attr, &c), "attr.local");
	REQUIRE_EQ(c.remote, 99);
	return 0;
}

static int bad_switches(spmt_comm *comm, void *block, spmt_mem *mem)
{
	struct spmt_switch s = { .size = sizeof(s), .bytes = 99 };
	char local[8];

	BAD(spmt_switch_get(comm, block, 64, NULL, NULL), "sw is NULL");
	BAD(spmt_switch_get(comm, block, 64, mem, &s), "both given");
	BAD(spmt_switch_get(comm, NULL, 0, NULL, &s), "neither");
	BAD(spmt_switch_get(comm, NULL, 64, NULL, &s), "sym is NULL");
	BAD(spmt_switch_get(comm, local, 8, NULL, &s), "sym");
	BAD(spmt_switch_get(comm, block, SIZE_MAX / 2, NULL, &s), "beyond the heap's end");
	REQUIRE_EQ(s.bytes, 99);
	s.size = 12;
	BAD(spmt_switch_get(comm, block, 64, NULL, &s), "sw->size 12");
	return 0;
}

static int refused(spmt_comm *comm, void *arg)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr), .remote_size = 64 };
	struct spmt_channel c = { .size = sizeof(c) };
	struct spmt_switch s = { .size = sizeof(s) };
	char buffer[64];
	spmt_mem *mem;
	void *block;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 64, &block));
	REQUIRE_OK(spmt_register(comm, buffer, sizeof(buffer), &mem));
	attr.remote = block;
	TRY(bad_attributes(comm, &attr));
	TRY(bad_buffers(comm, &attr, mem));
	TRY(bad_switches(comm, block, mem));
	REQUIRE_OK(spmt_deregister(comm, mem));
	attr = (struct spmt_channel_attr){ .size = sizeof(attr), .mem = mem };
	REQUIRE_CODE(spmt_channel_get(comm, &attr, &c), -EBADF);
	REQUIRE_CODE(spmt_switch_get(comm, NULL, 0, mem, &s), -EBADF);
	REQUIRE_CODE(spmt_channel_get(NULL, &attr, &c), -EINVAL);
	REQUIRE_CODE(spmt_switch_get(NULL, block, 64, NULL, &s), -EINVAL);
	REQUIRE_OK(spmt_register(
		comm, spmt_rank(comm) ? NULL : buffer, spmt_rank(comm) ? 0 : sizeof(buffer), &mem));
	BAD(spmt_switch_get(comm, NULL, 0, mem, &s), "rank 1 has no part of mem");
	return spmt_deregister(comm, mem);
}

Test(channels, refused)
{
	RANKS_OK(ranks_run(2, NULL, refused, NULL));
}

/* Programs that were compiled with a smaller struct get no more than that. */
static int grown(spmt_comm *comm, void *arg)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr) };
	struct spmt_channel c;

	(void)arg;
	memset(&c, 0x5a, sizeof(c));
	c.size = offsetof(struct spmt_channel, reserved);
	REQUIRE_OK(spmt_channel_get(comm, &attr, &c));
	REQUIRE_EQ(c.size, offsetof(struct spmt_channel, reserved));
	REQUIRE_EQ(c.reserved[0], 0x5a5a5a5a5a5a5a5a);
	return 0;
}

Test(channels, of_earlier_headers)
{
	RANKS_OK(ranks_run(1, NULL, grown, NULL));
}
