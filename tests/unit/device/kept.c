/* SPDX-License-Identifier: MIT */
#include "kept.h"

#include <errno.h>
#include <stdatomic.h>

#include "src/kernels/kernels.h"
#include "tests/lib/ranks.h"

#define KEPT_LARGE ((size_t)80 << 20) /* more than stays while no device is open */

/* Of `devices` once opened nothing is there but what is kept for each, and `blocks` of the pool. */
bool standin_only_kept(const struct standin *s, int devices, int blocks)
{
	struct fake_counts now;

	s->live(&now);
	return !now.events && !now.reservations && !now.physicals && now.streams == devices &&
		now.modules == devices && now.blocks == devices + blocks;
}

static void kept_gate(void *arg)
{
	while (!atomic_load((_Atomic int *)arg))
		sleep_ms(1);
}

/* A stream of the device is held up all the while, by the last holder of the stand-in's drain. */
void kept_frees_do_not_wait(const struct backend *b)
{
	_Atomic int open = 0;
	void *ptr, *host, *seen, *again;
	device_stream held, other;
	int64_t begin;

	cr_assert(!b->open(0) && !b->stream_create(0, &held) && !b->stream_create(0, &other));
	cr_assert(!b->alloc(0, 5000, DEVICE_MEMORY_PLAIN, &ptr) &&
		!b->host_alloc(0, 5000, &host, &seen));
	cr_assert_eq(b->call(0, held, kept_gate, &open), 0);
	begin = calm_ns();
	memset(ptr, 0x5a, 5000);
	memset(host, 0x5a, 5000);
	cr_assert(!b->free(0, ptr) && !b->host_free(0, host));
	cr_assert(!b->open(0), "%s", status_sentence());
	b->close(0);
	cr_assert(!b->fill(0, host, 1, 8, other) && !b->stream_sync(0, other, 5000000000, NULL));
	cr_assert_eq(b->alloc(0, 4900, DEVICE_MEMORY_PLAIN, &again), 0);
	cr_expect_eq(again, ptr, "another block");
	cr_expect(((char *)again)[0] == 0 && ((char *)again)[4899] == 0, "not zeroed");
	cr_assert_eq(b->host_alloc(0, 5000, &again, &seen), 0);
	cr_expect(again == host && ((char *)again)[4999] == 0);
	cr_assert_eq(b->stream_destroy(0, other), 0);
	cr_expect_eq(b->free(0, (char *)ptr + 8), -EINVAL);
	cr_expect_eq(b->free(0, host), -EINVAL, "pinned memory is not device memory");
	cr_expect(!b->free(0, ptr) && b->free(0, ptr) == -EINVAL, "freed twice");
	cr_expect_lt(calm_ns() - begin, 2000000000);
	cr_assert_eq(b->stream_query(0, held), 0, "the test held nothing");
	atomic_store(&open, 1);
	cr_assert(!b->stream_sync(0, held, 5000000000, NULL) && !b->stream_destroy(0, held));
	b->host_free(0, host);
	b->close(0);
}

/* Only while none is open, and only what is too much; or where the driver has nothing left. */
void kept_is_given_back(const struct backend *b, const struct standin *s, const char *alloc)
{
	struct fake_counts now;
	void *ptr, *small;

	cr_assert(!b->open(0) && !b->open(1));
	cr_assert(!b->alloc(0, KEPT_LARGE, DEVICE_MEMORY_PLAIN, &ptr) &&
		!b->alloc(0, 64, DEVICE_MEMORY_PLAIN, &small));
	cr_assert(!b->free(0, ptr) && !b->free(0, small));
	b->close(0);
	cr_expect(standin_only_kept(s, 2, 2), "device 1 is still open");
	b->close(1);
	cr_expect(standin_only_kept(s, 2, 1), "the small one stays");
	cr_assert(!b->open(0) && !b->alloc(0, KEPT_LARGE, DEVICE_MEMORY_PLAIN, &ptr) &&
		!b->free(0, ptr));
	fail(-1, "nothing said");
	s->fail(alloc, 1, 2);
	cr_assert_eq(b->alloc(0, 1 << 20, DEVICE_MEMORY_PLAIN, &ptr), 0, "%s", status_sentence());
	cr_expect_eq(s->calls(), 2);
	cr_expect_str_eq(status_sentence(), "nothing said");
	s->live(&now);
	cr_expect_eq(now.blocks, 3, "%d", now.blocks);
	s->fail(alloc, -1, 2);
	cr_expect_eq(b->alloc(0, 2 << 20, DEVICE_MEMORY_PLAIN, &small), -ENOMEM);
	s->fail("", 0, 0);
	cr_assert_eq(b->free(0, ptr), 0);
	b->close(0);
}

/* Never used again, and given back, small as it is, with the rest. */
void kept_retires(const struct backend *b, const struct standin *s, const char *alloc)
{
	void *ptr, *again, *more;

	cr_assert(!b->open(0) && !b->alloc(0, 4096, DEVICE_MEMORY_SYMMETRIC, &ptr));
	cr_assert_eq(b->retire(0, ptr), 0, "%s", status_sentence());
	cr_expect_eq(b->retire(0, ptr), -EINVAL);
	cr_expect_eq(b->free(0, ptr), -EINVAL);
	cr_assert_eq(b->alloc(0, 4096, DEVICE_MEMORY_SYMMETRIC, &again), 0);
	cr_expect_neq(again, ptr, "used again");
	cr_assert_eq(b->free(0, again), 0);
	cr_expect(standin_only_kept(s, 1, 2));
	b->close(0);
	cr_expect(standin_only_kept(s, 1, 1), "the retired one stays");
	cr_assert(!b->open(0) && !b->alloc(0, 4096, DEVICE_MEMORY_SYMMETRIC, &ptr));
	cr_assert(!b->retire(0, ptr) && !b->retire(0, NULL));
	s->fail(alloc, 1, 2);
	cr_expect_eq(b->alloc(0, 4096, DEVICE_MEMORY_SYMMETRIC, &more), 0, "%s", status_sentence());
	s->fail("", 0, 0);
	cr_expect(standin_only_kept(s, 1, 1), "there was no memory left but this");
	cr_assert_eq(b->free(0, more), 0);
	b->close(0);
}

/* create: the call that makes memory for ranges. */
void kept_yields_to_ranges(const struct backend *b, const struct standin *s, const char *create)
{
	void *ptr, *base;
	size_t g;

	cr_assert(!b->open(0) && !b->vmm->granularity(0, &g) && !b->vmm->reserve(g, g, &base));
	cr_assert(!b->alloc(0, 4096, DEVICE_MEMORY_PLAIN, &ptr) && !b->free(0, ptr));
	s->fail(create, 1, 2);
	cr_expect_eq(b->vmm->commit(0, base, g, NULL, 0), 0, "%s", status_sentence());
	cr_expect_eq(s->calls(), 2);
	s->fail(create, 1, 2);
	cr_assert_eq(b->vmm->decommit(0, base, g), 0);
	cr_expect_eq(
		b->vmm->commit(0, base, g, NULL, 0), -ENOMEM, "there was nothing to give back");
	s->fail("", 0, 0);
	cr_assert_eq(b->vmm->unreserve(base, g), 0);
	b->close(0);
	cr_expect(standin_only_kept(s, 1, 0));
}

/* SPMT_FAKE_NOPEER is 1. Who may not reach a range is found out, and told, where a route is chosen. */
void ranges_pass_over_strangers(const struct backend *b)
{
	const int peers[] = { 0, 1, 2 };
	void *base;
	size_t g;

	cr_assert(!b->open(0) && !b->vmm->granularity(0, &g) && !b->vmm->reserve(g, g, &base));
	cr_assert_eq(b->vmm->commit(0, base, g, peers, 3), 0, "%s", status_sentence());
	cr_assert(!b->vmm->decommit(0, base, g) && !b->vmm->unreserve(base, g));
	b->close(0);
}

static void kept_copy(const struct backend *b)
{
	struct kernel_copy_args args = { .wake = -1, .size = 64 };
	void *from, *to;
	device_stream s;

	cr_assert_eq(b->open(0), 0, "%s", status_sentence());
	cr_assert_eq(b->open(1), 0, "%s", status_sentence());
	cr_assert(!b->alloc(0, 64, DEVICE_MEMORY_SYMMETRIC, &from) &&
			!b->alloc(1, 64, DEVICE_MEMORY_SYMMETRIC, &to) && !b->peer_enable(0, 1) &&
			!b->stream_create(0, &s),
		"%s", status_sentence());
	args.dst = (uintptr_t)to;
	args.src = (uintptr_t)from;
	cr_assert_eq(b->launch(0, s, &kernel_copy, 1, 32, &args, sizeof(args)), 0, "%s",
		status_sentence());
	cr_assert(!b->copy(0, to, from, 64, s) && !b->stream_sync(0, s, 1000000000, NULL), "%s",
		status_sentence());
	cr_assert(!b->stream_destroy(0, s) && !b->free(0, from) && !b->free(1, to));
	b->close(0);
	b->close(1);
}

/* The application resets devices between worlds; it may also use one again before we do. */
void kept_survives_resets(const struct backend *b, const struct standin *s, void (*reset)(int dev),
	void (*use)(int dev))
{
	kept_copy(b);
	for (int i = 0; i < 8; i++) {
		if (i & 1)
			reset(0);
		if (i & 2)
			reset(1);
		if (i & 4)
			use(0);
		kept_copy(b);
	}
	reset(0);
	reset(1);
	kept_copy(b);
	cr_expect(standin_only_kept(s, 2, 2));
}
