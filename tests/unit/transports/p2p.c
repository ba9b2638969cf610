/* SPDX-License-Identifier: MIT */
/* Maps self, p2p and ipc; the store mover where the CPU moves the bytes and where the device has to. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spmt.h"
#include "src/base/fault.h"
#include "src/base/status.h"
#include "src/device/host/host.h"
#include "tests/lib/device/latch.h"
#include "tests/lib/transports/device_links.h"

#define SIZE (1u << 20)

enum { MOST = 257, PAD = 16, ROOM = MOST + 2 * PAD };

static struct links l;

static void fini(void)
{
	links_close(&l);
}

static void open_with(const struct backend *backend)
{
	cr_assert_eq(links_open(&l, backend, 3, SIZE), 0, "%s", status_sentence());
}

static void init(void)
{
	open_with(&backend_host);
}

/* ---- maps */

Test(p2p, attach_names_the_peers_memory, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1), *self = links_at(&l, 2, 2);

	cr_assert_eq(link->base, l.mem[1]);
	cr_assert_eq(link_at(link, link->own), l.mem[1] + SIZE / 2);
	cr_assert_eq(self->base, l.mem[2]);
	cr_assert_eq(link_at(self, self->own), l.mem[2] + SIZE / 2);
	for (int i = 0; i < 2; i++) {
		map_p2p.detach(link, &backend_host, 0);
		map_self.detach(self, &backend_host, 2);
		cr_assert_null(link->base);
		cr_assert_null(self->base);
	}
}

Test(p2p, a_refusal_is_eacces_and_names_both_ranks, .init = init, .fini = fini)
{
	struct link fresh = { .backend = &backend_host, .dev = 0, .peer_dev = 1, .rank = 7 };
	struct rank_info peer = { .rank = 9, .device = -1, .heap_base = 64, .own_base = 128 };

	host_forbid_peer(0, 1, true);
	cr_assert_eq(map_p2p.attach(&fresh, &backend_host, 0, &peer), -EACCES);
	cr_assert_not_null(strstr(status_sentence(), "rank 7"), "%s", status_sentence());
	cr_assert_not_null(strstr(status_sentence(), "rank 9"), "%s", status_sentence());
	cr_assert_null(fresh.base);
	host_forbid_peer(0, 1, false);
	fault_arm(1u << FAULT_PEER, 1);
	cr_assert_eq(map_p2p.attach(&fresh, &backend_host, 0, &peer), -EACCES);
	cr_assert(fault_fired());
	fault_disarm();
	cr_assert_eq(map_p2p.attach(&fresh, &backend_host, 0, &peer), 0);
	cr_assert_eq((uintptr_t)fresh.base, 64);
	cr_assert_eq(fresh.own, 64);
}

Test(p2p, ipc_says_that_it_is_not_there)
{
	struct link link = { .backend = &backend_host, .rank = 3 };
	struct rank_info peer = { .rank = 4 };
	struct backend without = backend_host;

	cr_assert_eq(map_ipc.attach(&link, &backend_host, 0, &peer), SPMT_ERR_UNSUPPORTED);
	cr_assert_not_null(strstr(status_sentence(), "rank 4"), "%s", status_sentence());
	cr_assert_null(link.base);
	without.ipc = NULL;
	cr_assert_eq(map_ipc.attach(&link, &without, 0, &peer), SPMT_ERR_UNSUPPORTED);
	cr_assert_not_null(strstr(status_sentence(), "backend host"), "%s", status_sentence());
	map_ipc.detach(&link, &backend_host, 0);
}

/* ---- bytes */

static void check_bytes(
	const unsigned char *at, const unsigned char *want, size_t n, const char *what)
{
	cr_assert_arr_eq(at, want, n, "%s", what);
}

/* One put and one get of n bytes, with guard bytes on both sides of where they go. */
static void round_trip(size_t n, size_t dst_off, size_t src_off)
{
	struct link *link = links_at(&l, 0, 1);
	unsigned char *far = (unsigned char *)link->base, *near = (unsigned char *)l.mem[0];
	unsigned char want[ROOM];
	char what[64];

	snprintf(what, sizeof(what), "%zu bytes, offsets %zu and %zu", n, dst_off, src_off);
	for (size_t i = 0; i < ROOM; i++)
		near[i] = (unsigned char)(i * 7 + n);
	memset(far, 0xA5, ROOM);
	memset(want, 0xA5, ROOM);
	memcpy(want + dst_off, near + src_off, n);
	cr_assert_eq(
		links_put(links_store(link), far + dst_off, near + src_off, n, MOVE_BLOCKING, NULL),
		0);
	check_bytes(far, want, ROOM, what);

	memset(near, 0x5A, ROOM);
	memset(want, 0x5A, ROOM);
	memcpy(want + src_off, far + dst_off, n);
	cr_assert_eq(
		links_get(links_store(link), near + src_off, far + dst_off, n, MOVE_BLOCKING, NULL),
		0);
	check_bytes(near, want, ROOM, what);
}

Test(p2p, all_sizes_and_misalignments, .init = init, .fini = fini)
{
	for (size_t n = 1; n <= MOST; n++)
		for (size_t dst = 0; dst < PAD; dst++)
			for (size_t src = 0; src < PAD; src++)
				round_trip(n, dst, src);
	cr_assert_eq(links_at(&l, 0, 1)->ops[MOVER_STORE], 2ull * MOST * PAD * PAD);
	cr_assert_eq(
		links_at(&l, 0, 1)->bytes[MOVER_STORE], 2ull * (MOST * (MOST + 1) / 2) * PAD * PAD);
}

Test(p2p, all_sizes_by_the_device, .fini = fini)
{
	struct backend deaf = links_deaf();

	open_with(&deaf);
	for (size_t n = 1; n <= MOST; n++)
		for (size_t off = 0; off < 9; off += 4)
			round_trip(n, off, 8 - off);
	links_close(&l);
}

/* Self moves overlap in both directions and at every distance, as memmove has it. */
static void overlap(size_t n)
{
	struct link *self = links_at(&l, 0, 0);
	unsigned char model[2 * 300];
	unsigned char *mem = (unsigned char *)self->base;

	for (size_t from = 0; from <= 300 - n; from += 1 + n / 16) {
		for (size_t to = 0; to <= 300 - n; to++) {
			for (size_t i = 0; i < 300; i++)
				model[i] = mem[i] = (unsigned char)(i + n);
			memmove(model + to, model + from, n);
			cr_assert_eq(links_put(links_store(self), mem + to, mem + from, n,
					     MOVE_BLOCKING, NULL),
				0);
			cr_assert_arr_eq(mem, model, 300, "%zu bytes from %zu to %zu", n, from, to);
		}
	}
}

Test(p2p, overlap_to_self_is_memmove, .init = init, .fini = fini)
{
	for (size_t n = 1; n <= 80; n++)
		overlap(n);
	overlap(257);
}

Test(p2p, large_overlap_to_self, .init = init, .fini = fini)
{
	struct link *self = links_at(&l, 0, 0);
	size_t n = SIZE - 4096;
	char *model = malloc(SIZE), *mem = self->base;

	for (int shift = 1; shift <= 4096; shift = shift * 3 + 1) {
		for (size_t i = 0; i < SIZE; i++)
			model[i] = mem[i] = (char)(i * 31 >> 3);
		memmove(model + shift, model, n);
		memmove(model, model + shift / 2, n);
		links_put(links_store(self), mem + shift, mem, n, MOVE_BLOCKING, NULL);
		links_get(links_store(self), mem, mem + shift / 2, n, MOVE_BLOCKING, NULL);
		cr_assert_eq(memcmp(mem, model, SIZE), 0, "shift %d", shift);
	}
	free(model);
}

/* ---- one access */

struct torn {
	struct link *link;
	_Atomic int stop;
	size_t n;
};

/* Puts all ones and all zeros in turn, from a place that is not aligned. */
static void *flip(void *arg)
{
	struct torn *t = arg;
	unsigned char src[2][16];

	memset(src[0], 0, sizeof(src[0]));
	memset(src[1], 0xFF, sizeof(src[1]));
	for (unsigned i = 0; !t->stop; i++)
		links_put(links_store(t->link), t->link->base + 64, src[i & 1] + 1, t->n,
			MOVE_BLOCKING, NULL);
	return NULL;
}

Test(p2p, an_aligned_word_is_never_torn, .init = init, .fini = fini)
{
	for (size_t n = 1; n <= 8; n *= 2) {
		struct torn t = { .link = links_at(&l, 0, 1), .n = n };
		pthread_t thread;

		memset(l.mem[1], 0, 128);
		cr_assert_eq(pthread_create(&thread, NULL, flip, &t), 0);
		for (int i = 0; i < 200000; i++) {
			struct link *reader = links_at(&l, 2, 1);
			uint64_t seen = 0, ones = UINT64_MAX >> (64 - 8 * n);

			links_get(links_store(reader), &seen, reader->base + 64, n, MOVE_BLOCKING,
				NULL);
			if (seen && seen != ones) {
				t.stop = 1;
				cr_assert_fail("%zu bytes: %#llx", n, (unsigned long long)seen);
			}
		}
		t.stop = 1;
		pthread_join(thread, NULL);
	}
}

/* ---- modes */

Test(p2p, the_cpu_moves_at_once_and_leaves_nothing_to_wait_for, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);
	struct latch latch;

	cr_assert_eq(latch_hold(&latch, &backend_host, 0, link->stream), 0);
	cr_assert_eq(
		links_put(links_store(link), link->base, "nonblocking", 12, MOVE_NBI, NULL), 0);
	cr_assert_str_eq(link->base, "nonblocking");
	cr_assert_not(link->pending);
	cr_assert_eq(links_fence(links_store(link)), 0);
	cr_assert_eq(links_quiet(links_store(link)), 0);
	latch_release(&latch);
}

Test(p2p, a_stream_move_keeps_the_order_of_its_stream, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);
	device_stream s;
	struct latch latch;

	cr_assert_eq(backend_host.stream_create(0, &s), 0);
	cr_assert_eq(latch_hold(&latch, &backend_host, 0, s), 0);
	cr_assert_eq(links_put(links_store(link), link->base, "in order", 9, MOVE_STREAM, s), 0);
	usleep(10000);
	cr_assert_eq(link->base[0], 0);
	latch_release(&latch);
	cr_assert_eq(backend_host.stream_sync(0, s, -1, NULL), 0);
	cr_assert_str_eq(link->base, "in order");
	cr_assert_eq(backend_host.stream_destroy(0, s), 0);
}

Test(p2p, without_host_access_quiet_and_fence_wait, .fini = fini)
{
	struct backend deaf = links_deaf();
	struct link *link;
	struct latch latch;

	open_with(&deaf);
	link = links_at(&l, 0, 1);
	cr_assert_eq(latch_hold(&latch, &deaf, 0, link->stream), 0);
	cr_assert_eq(links_put(links_store(link), link->base, "later", 6, MOVE_NBI, NULL), 0);
	cr_assert(link->pending);
	l.timeout_ms = 30;
	cr_assert_eq(links_quiet(links_store(link)), SPMT_ERR_TIMEOUT);
	cr_assert_not_null(strstr(status_sentence(), "SPMT_TIMEOUT_MS"), "%s", status_sentence());
	cr_assert_eq(links_fence(links_store(link)), SPMT_ERR_TIMEOUT);
	l.timeout_ms = -1;
	__atomic_store_n(&l.stop, 1, __ATOMIC_RELEASE);
	cr_assert_eq(links_quiet(links_store(link)), -ECANCELED);
	cr_assert_not_null(strstr(status_sentence(), "rank 1"), "%s", status_sentence());
	__atomic_store_n(&l.stop, 0, __ATOMIC_RELEASE);
	cr_assert_eq(link->base[0], 0);
	latch_release(&latch);
	cr_assert_eq(links_quiet(links_store(link)), 0);
	cr_assert_str_eq(link->base, "later");
	links_close(&l);
}

Test(p2p, a_queued_copy_that_fails_is_an_error, .fini = fini)
{
	struct backend deaf = links_deaf();
	struct link *link;

	open_with(&deaf);
	link = links_at(&l, 0, 1);
	fault_arm(1u << FAULT_DEVICE, 1);
	cr_assert_eq(
		links_put(links_store(link), link->base, "never", 6, MOVE_BLOCKING, NULL), -EIO);
	fault_disarm();
	cr_assert_eq(link->base[0], 0);
	cr_assert_eq(link->ops[MOVER_STORE], 0);
	links_close(&l);
}

/* ---- signals and atomics */

Test(p2p, the_cpu_signals_and_adds, .init = init, .fini = fini)
{
	struct mover *m = links_store(links_at(&l, 0, 1));
	const struct amo add = { .op = SPMT_AMO_FETCH_ADD, .size = 4, .operand = 3 };
	uint64_t *far = (uint64_t *)(void *)l.mem[1], old = 0;

	cr_assert_eq(m->ops->signal(m, 64, 5, SPMT_SIGNAL_SET, NULL), 0);
	cr_assert_eq(m->ops->signal(m, 64, 2, SPMT_SIGNAL_ADD, NULL), 0);
	cr_assert_eq(far[8], 7);
	cr_assert_eq(m->ops->atomic(m, 64, &add, &old), 0);
	cr_assert_eq(old, 7);
	cr_assert_eq(m->ops->atomic(m, 64, &add, NULL), 0);
	cr_assert_eq(far[8], 13);
	cr_assert_eq(m->link->ops[MOVER_STORE], 4);
	cr_assert_eq(m->link->bytes[MOVER_STORE], 24);
	cr_assert_not(m->link->pending);
}

/* Kernels do, where the map is loadable: no mover is asked. */
Test(p2p, the_cpu_says_where_it_cannot, .fini = fini)
{
	struct backend deaf = links_deaf();
	const struct amo add = { .op = SPMT_AMO_FETCH_ADD, .size = 8, .operand = 3 };
	struct mover *m;

	init();
	m = links_store(links_at(&l, 0, 1));
	cr_assert_eq(
		m->ops->signal(m, 64, 5, SPMT_SIGNAL_SET, m->link->stream), SPMT_ERR_UNSUPPORTED);
	m->link->backend = &deaf;
	cr_assert_eq(m->ops->signal(m, 64, 5, SPMT_SIGNAL_SET, NULL), SPMT_ERR_UNSUPPORTED);
	cr_assert_eq(m->ops->atomic(m, 64, &add, NULL), SPMT_ERR_UNSUPPORTED);
	cr_assert_not_null(strstr(status_sentence(), "to rank 1"), "%s", status_sentence());
	cr_assert_eq(l.mem[1][64], 0);
	m->link->backend = &backend_host;
}
