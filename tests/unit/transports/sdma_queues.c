/* SPDX-License-Identifier: MIT */
/* Mover sdma over user-mode queues: whose engine is software, and whose doorbell a test may hold. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "spmt.h"
#include "src/base/fault.h"
#include "src/base/status.h"
#include "tests/lib/patterns.h"
#include "tests/lib/transports/device_links.h"
#include "transports/sdma/copy_queue.h"
#include "transports/sdma/sdma.h"

enum { AREA = 1 << 20 };

static struct links l;

/* A doorbell that may be held: then the engine does not learn what was submitted. */
static struct device_sdma_ops gated;
static struct backend backend;
static struct {
	bool closed;
	struct sdma_queue *queue; /* whose doorbell was rung last, and with what */
	uint64_t end;
} gate;

static void gated_doorbell(struct sdma_queue *queue, uint64_t end)
{
	gate.queue = queue;
	gate.end = end;
	if (!gate.closed)
		backend_host.sdma->doorbell(queue, end);
}

static void open_gate(void)
{
	gate.closed = false;
	backend_host.sdma->doorbell(gate.queue, gate.end);
}

static void init(void)
{
	setenv("SPMT_SDMA", "queues", 1);
	backend = backend_host;
	gated = *backend_host.sdma;
	gated.doorbell = gated_doorbell;
	backend.sdma = &gated;
	cr_assert_eq(links_open(&l, &backend, 4, AREA), 0, "%s", status_sentence());
}

static void fini(void)
{
	links_close(&l);
	cr_assert_eq(copy_queues_live(), 0);
}

static int put(struct link *link, void *remote, const void *local, size_t n, enum move_mode mode)
{
	return links_put(links_sdma(link), remote, local, n, mode, NULL);
}

/* A first move makes the queue; the second one stays in the ring until open_gate(). */
static void hold(struct link *link)
{
	cr_assert_eq(put(link, link->base, "warm", 5, MOVE_BLOCKING), 0, "%s", status_sentence());
	cr_assert_not_null(gate.queue, "it went through the ring");
	gate.closed = true;
}

Test(sdma_queues, bytes_of_all_sizes_and_formats, .init = init, .fini = fini)
{
	for (int from = 0; from < 4; from++) {
		struct link *link = links_at(&l, from, (from + 1) % 4);

		gate.queue = NULL;
		for (size_t n = 1; n < 70000; n += 1 + n / 3) {
			char *local = l.mem[from] + n % 13, *remote = link->base + n % 7;

			pattern_fill(local, n, n);
			cr_assert_eq(
				put(link, remote, local, n, n & 1 ? MOVE_NBI : MOVE_BLOCKING), 0);
			cr_assert_eq(n & 1 ? links_quiet(links_sdma(link)) : 0, 0);
			cr_assert_eq(pattern_differs(remote, n, n), SIZE_MAX, "put of %zu", n);
			memset(local, 0, n);
			cr_assert_eq(
				links_get(links_sdma(link), local, remote, n, MOVE_BLOCKING, NULL),
				0);
			cr_assert_eq(pattern_differs(local, n, n), SIZE_MAX, "get of %zu", n);
		}
		cr_assert_not_null(gate.queue, "device %d", from);
		cr_assert_eq(gate.queue->format.version, from & 1 ? SDMA_V5 : SDMA_V4);
		cr_assert_eq(gate.queue->format.atomics, !(from & 2));
	}
}

Test(sdma_queues, nbi_is_complete_at_quiet, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);

	hold(link);
	cr_assert_eq(put(link, link->base + 64, "held", 5, MOVE_NBI), 0);
	cr_assert_eq(put(link, link->base + 128, "too", 4, MOVE_NBI), 0);
	cr_assert_eq(sdma_pending(link), 2);
	cr_assert(link->pending);
	l.timeout_ms = 20;
	cr_assert_eq(links_quiet(links_sdma(link)), SPMT_ERR_TIMEOUT);
	cr_assert_eq(links_fence(links_sdma(link)), SPMT_ERR_TIMEOUT);
	cr_assert_eq(link->base[64], 0);
	cr_assert_eq(put(link, link->base + 192, "late", 5, MOVE_BLOCKING), SPMT_ERR_TIMEOUT);
	open_gate();
	l.timeout_ms = 10000;
	cr_assert_eq(links_quiet(links_sdma(link)), 0);
	cr_assert_str_eq(link->base + 64, "held");
	cr_assert_str_eq(link->base + 128, "too");
	cr_assert_eq(sdma_pending(link), 0);
}

Test(sdma_queues, a_full_ring_waits_until_the_deadline, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 1, 2);
	int n = 0, rc;

	hold(link);
	l.timeout_ms = 20;
	while (!(rc = put(link, link->base + 64 + n, l.mem[1] + n, 1, MOVE_NBI)))
		n++;
	cr_assert_eq(rc, SPMT_ERR_TIMEOUT);
	cr_assert_not_null(strstr(status_sentence(), "SPMT_TIMEOUT_MS"), "%s", status_sentence());
	cr_assert_geq(n, 500);
	cr_assert_eq(sdma_pending(link), (uint64_t)n);
	open_gate();
	l.timeout_ms = 10000;
	cr_assert_eq(links_quiet(links_sdma(link)), 0);
}

/* The engine moves in no particular order, so that a stream does it. */
Test(sdma_queues, what_overlaps_is_left_to_a_stream, .init = init, .fini = fini)
{
	struct link *self = links_at(&l, 1, 1);
	uint64_t before;

	hold(self);
	before = gate.end;
	for (int i = 0; i < 9000; i++)
		self->base[i] = (char)(i * 7 >> 3);
	cr_assert_eq(put(self, self->base + 100, self->base, 8000, MOVE_BLOCKING), 0);
	for (int i = 0; i < 8000; i++)
		cr_assert_eq(self->base[100 + i], (char)(i * 7 >> 3));
	cr_assert_eq(gate.end, before);
	cr_assert_eq(put(self, self->base + 16384, self->base, 8000, MOVE_NBI), 0);
	cr_assert_neq(gate.end, before, "apart they are the engine's");
	open_gate();
	cr_assert_eq(links_quiet(links_sdma(self)), 0);
	cr_assert_eq(memcmp(self->base + 16384, self->base, 8000), 0);
}

static bool reaches_nothing(int src, const void *ptr, size_t n)
{
	(void)src;
	(void)ptr;
	(void)n;
	return false;
}

Test(sdma_queues, what_the_engine_does_not_reach_is_left_to_a_stream, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);

	gated.reaches = reaches_nothing;
	cr_assert_eq(put(link, link->base, "by stream", 10, MOVE_NBI), 0);
	cr_assert_null(gate.queue);
	cr_assert_eq(links_quiet(links_sdma(link)), 0);
	cr_assert_str_eq(link->base, "by stream");
}

/* ---- failures */

Test(sdma_queues, an_engine_that_stops_is_one_moves_failure, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);
	struct route route;
	void *gone;

	cr_assert_eq(backend_host.alloc(1, 4096, DEVICE_MEMORY_PLAIN, &gone), 0);
	hold(link);
	cr_assert_eq(put(link, link->base + 64, "before", 7, MOVE_NBI), 0);
	cr_assert_eq(put(link, gone, "lost", 5, MOVE_NBI), 0);
	cr_assert_eq(put(link, link->base + 128, "behind", 7, MOVE_NBI), 0);
	cr_assert_eq(backend_host.free(1, gone), 0);
	link_route(link, &route);
	cr_assert_str_eq(route.reason, "a test wants it");
	open_gate();
	cr_assert_eq(links_quiet(links_sdma(link)), -EIO);
	cr_assert_not_null(
		strstr(status_sentence(), "does not reach 5 bytes at"), "%s", status_sentence());
	cr_assert_str_eq(link->base + 64, "before");
	cr_assert_str_eq(link->base + 128, "behind", "made again by a stream");
	cr_assert_eq(links_quiet(links_sdma(link)), 0);
	link_route(link, &route);
	cr_assert_not_null(
		strstr(route.reason, "; sdma: streams: a software model"), "%s", route.reason);
	cr_assert_eq(route.nmovers, 2);
	gate.queue = NULL;
	cr_assert_eq(put(link, link->base + 192, "on", 3, MOVE_BLOCKING), 0);
	cr_assert_str_eq(link->base + 192, "on");
	cr_assert_null(gate.queue, "the engine takes no more");
}

Test(sdma_queues, another_links_moves_are_made_again, .init = init, .fini = fini)
{
	struct links other;
	struct link *a = links_at(&l, 0, 1), *b;
	void *gone;

	cr_assert_eq(links_open(&other, &backend, 2, AREA), 0);
	b = links_at(&other, 0, 1);
	cr_assert_eq(backend_host.alloc(1, 4096, DEVICE_MEMORY_PLAIN, &gone), 0);
	hold(a);
	cr_assert_eq(put(a, gone, "lost", 5, MOVE_NBI), 0);
	cr_assert_eq(put(b, b->base, "theirs", 7, MOVE_NBI), 0);
	cr_assert_eq(backend_host.free(1, gone), 0);
	open_gate();
	cr_assert_eq(links_quiet(links_sdma(b)), 0, "%s", status_sentence());
	cr_assert_str_eq(b->base, "theirs");
	cr_assert_eq(links_quiet(links_sdma(a)), -EIO);
	links_close(&other);
}

static int no_queue(int src, int dst, struct sdma_queue **queue)
{
	(void)src;
	(void)dst;
	(void)queue;
	return fail(-ENODEV, "all engines are taken");
}

Test(sdma_queues, without_a_queue_streams_do_it_and_the_route_says_so, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);
	struct route route;

	gated.open = no_queue;
	fail(-EBADF, "an older sentence");
	cr_assert_eq(put(link, link->base, "streamed", 9, MOVE_BLOCKING), 0);
	cr_assert_str_eq(status_sentence(), "an older sentence");
	cr_assert_str_eq(link->base, "streamed");
	cr_assert_eq(link->ops[MOVER_SDMA], 1);
	link_route(link, &route);
	cr_assert_str_eq(route.reason, "a test wants it; sdma: streams: all engines are taken");
	cr_assert_eq(route.nmovers, 2);
}

Test(sdma_queues, a_backend_without_any_says_so, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);
	struct route route;

	backend.sdma = NULL;
	cr_assert_eq(put(link, link->base, "streamed", 9, MOVE_BLOCKING), 0);
	link_route(link, &route);
	cr_assert_not_null(
		strstr(route.reason, "there are no user-mode queues for host"), "%s", route.reason);
}

/* Everything that a move asks for is refused in turn: it is made by some means, or fails; it is never half made. */
Test(sdma_queues, fault_sweep, .init = init, .fini = fini)
{
	bool fired = true;
	int n = 0;

	while (fired) {
		struct link link = *links_at(&l, 2, 3);
		int rc, quiet;

		links_sdma(&link)->link = &link;
		memset(link.base, 0, 64);
		fault_arm(FAULT_ANY, (uint64_t)++n);
		rc = put(&link, link.base, "swept", 6, MOVE_NBI);
		quiet = links_quiet(links_sdma(&link));
		fired = fault_fired();
		fault_disarm();
		cr_assert_eq(quiet, 0, "request %d: %s", n, status_sentence());
		cr_assert_str_eq(link.base, rc ? "" : "swept", "request %d", n);
		mover_sdma.close(links_sdma(&link));
		cr_assert_eq(copy_queues_live(), 0, "request %d", n);
	}
	cr_assert_gt(n, 6, "the sweep saw %d requests", n);
}

Test(sdma_queues, nothing_is_left_after_the_last_user, .init = init, .fini = fini)
{
	int tasks = links_count("task");

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 16; i++)
			cr_assert_eq(put(&l.links[i], l.links[i].base, "abc", 4, MOVE_NBI), 0);
		cr_assert_eq(copy_queues_live(), 16);
		for (int i = 0; i < 16; i++)
			mover_sdma.close(links_sdma(&l.links[i]));
		cr_assert_eq(copy_queues_live(), 0);
	}
	cr_assert_eq(links_count_down("task", tasks), tasks);
}
