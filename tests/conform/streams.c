/* SPDX-License-Identifier: MIT */
/* Order, asynchrony, events, deadlines, words in streams, kernels, and every failure on purpose. */
#include "conform.h"

#include <errno.h>
#include <string.h>

#include "include/spmt.h"
#include "src/base/fault.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/kernels/images.h"
#include "src/kernels/kernels.h"
#include "tests/lib/device/latch.h"

#define BIG ((size_t)8 << 20)

static int case_order(struct conform *c)
{
	struct rig r;
	void *a, *b;

	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	CHECK(c,
		!c->b->alloc(0, BIG, DEVICE_MEMORY_PLAIN, &a) &&
			!c->b->alloc(0, BIG, DEVICE_MEMORY_PLAIN, &b));
	CHECK(c, !c->b->fill(0, a, 1, BIG, r.s) && !c->b->copy(0, b, a, BIG, r.s));
	CHECK(c, !c->b->fill(0, a, 2, BIG, r.s) && !c->b->copy(0, a, b, BIG / 2, r.s));
	CHECK(c, rig_holds(c, &r, (char *)b + BIG - 4096, 4096, NULL, 1));
	CHECK(c, rig_holds(c, &r, (char *)a + BIG - 4096, 4096, NULL, 2));
	CHECK(c, rig_holds(c, &r, (char *)a + BIG / 2 - 4096, 4096, NULL, 1));
	CHECK(c, !c->b->free(0, a) && !c->b->free(0, b));
	return rig_close(c, &r);
}

static void count_up(void *arg)
{
	__atomic_fetch_add((int *)arg, 1, __ATOMIC_SEQ_CST);
}

/* Work behind a host function that does not return: nothing here may wait for it but
   stream_sync, and that not for ever. */
static int case_asynchronous(struct conform *c)
{
	struct latch latch = { 0 };
	uint32_t stop = 0;
	int64_t start;
	struct rig r;
	void *ptr;
	int calls = 0;

	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	CHECK(c, !c->b->alloc(0, 4096, DEVICE_MEMORY_PLAIN, &ptr));
	CHECK(c, c->b->stream_query(0, r.s) == 1);
	CHECK(c, !latch_hold(&latch, c->b, 0, r.s));
	CHECK(c, !c->b->fill(0, ptr, 5, 4096, r.s) && !c->b->copy(0, r.host, ptr, 4096, r.s));
	CHECK(c, !c->b->call(0, r.s, count_up, &calls));
	CHECK(c, c->b->stream_query(0, r.s) == 0 && !calls);
	fail(-1, "nothing said");
	start = process_now();
	CHECK(c, c->b->stream_sync(0, r.s, 20000000, NULL) == -ETIMEDOUT);
	CHECK(c, process_now() - start >= 20000000 && process_now() - start < 2000000000);
	CHECK(c, c->b->stream_sync(0, r.s, 0, NULL) == -ETIMEDOUT);
	stop = 1;
	CHECK(c, c->b->stream_sync(0, r.s, -1, &stop) == -ECANCELED);
	CHECK(c, !strcmp(status_sentence(), "nothing said"));
	CHECK(c, !c->b->capturing(0, r.s));
	CHECK(c, latch_open(&latch));
	stop = 0;
	CHECK(c, !c->b->stream_sync(0, r.s, 5000000000, &stop) && calls == 1 && r.host[4095] == 5);
	CHECK(c, c->b->stream_query(0, r.s) == 1);
	CHECK(c, !c->b->free(0, ptr));
	return rig_close(c, &r);
}

static int case_destroy_runs_on(struct conform *c)
{
	struct latch latch = { 0 };
	device_stream s;
	int calls = 0, i;

	CHECK(c, !c->b->open(0) && !c->b->stream_create(0, &s));
	CHECK(c, !latch_hold(&latch, c->b, 0, s) && !c->b->call(0, s, count_up, &calls));
	CHECK(c, !c->b->stream_destroy(0, s));
	CHECK(c, latch_open(&latch));
	for (i = 0; i < 5000 && !__atomic_load_n(&calls, __ATOMIC_SEQ_CST); i++)
		conform_nap(1000);
	CHECK(c, calls == 1);
	c->b->close(0);
	return CONFORM_PASS;
}

static int case_events(struct conform *c)
{
	struct latch latch = { 0 };
	struct rig r, late;
	uint32_t stop = 0;
	device_event e;
	int calls = 0;

	if (rig_open(c, 0, &r) || rig_open(c, 0, &late))
		return CONFORM_FAIL;
	CHECK(c, !c->b->event_create(0, &e) && c->b->event_query(0, e) == 1);
	CHECK(c, !c->b->event_sync(0, e, 0, NULL));
	CHECK(c, !latch_hold(&latch, c->b, 0, r.s));
	CHECK(c, !c->b->event_record(0, e, r.s) && c->b->event_query(0, e) == 0);
	CHECK(c,
		!c->b->stream_wait_event(0, late.s, e) && !c->b->call(0, late.s, count_up, &calls));
	conform_nap(20000);
	CHECK(c, !calls && c->b->stream_query(0, late.s) == 0);
	CHECK(c, c->b->event_sync(0, e, 0, NULL) == -ETIMEDOUT);
	CHECK(c, c->b->event_sync(0, e, 20000000, &stop) == -ETIMEDOUT);
	stop = 1;
	CHECK(c, c->b->event_sync(0, e, -1, &stop) == -ECANCELED);
	CHECK(c, latch_open(&latch));
	CHECK(c, !c->b->event_sync(0, e, 5000000000, NULL));
	CHECK(c, !c->b->event_sync(0, e, 0, &stop));
	CHECK(c, !c->b->stream_sync(0, late.s, 5000000000, NULL) && calls == 1);
	CHECK(c, c->b->event_query(0, e) == 1);
	CHECK(c, !c->b->event_record(0, e, late.s) && !c->b->stream_sync(0, late.s, -1, NULL));
	CHECK(c, c->b->event_query(0, e) == 1 && !c->b->event_destroy(0, e));
	return rig_close(c, &r) || rig_close(c, &late) ? CONFORM_FAIL : CONFORM_PASS;
}

/* An event of one device holds a stream of another. */
static int case_events_across(struct conform *c)
{
	struct latch latch = { 0 };
	struct rig r, late;
	device_event e;
	int calls = 0;

	if (c->n < 2)
		return conform_skip(c, "one device");
	if (rig_open(c, 0, &r) || rig_open(c, 1, &late))
		return CONFORM_FAIL;
	CHECK(c, !c->b->event_create(0, &e) && !latch_hold(&latch, c->b, 0, r.s));
	CHECK(c, !c->b->event_record(0, e, r.s) && !c->b->stream_wait_event(1, late.s, e));
	CHECK(c, !c->b->call(1, late.s, count_up, &calls));
	conform_nap(20000);
	CHECK(c, !calls);
	CHECK(c, latch_open(&latch));
	CHECK(c,
		!c->b->stream_sync(1, late.s, 5000000000, NULL) && calls == 1 &&
			!c->b->event_destroy(0, e));
	return rig_close(c, &r) || rig_close(c, &late) ? CONFORM_FAIL : CONFORM_PASS;
}

/* None, or one that no other stream ever has. */
static int case_stream_ids(struct conform *c)
{
	enum { TIMES = 20 };
	uint64_t seen[TIMES], legacy, own;
	struct rig r;
	device_stream s;
	int i, j;

	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	for (i = 0; i < TIMES; i++) {
		CHECK(c, !c->b->stream_create(0, &s));
		seen[i] = c->b->stream_id(0, s);
		CHECK(c, c->b->stream_id(0, s) == seen[i]);
		CHECK(c, !c->b->stream_destroy(0, s));
	}
	legacy = c->b->stream_id(0, DEVICE_STREAM_LEGACY);
	own = c->b->stream_id(0, DEVICE_STREAM_PER_THREAD);
	CHECK(c, c->b->stream_id(0, DEVICE_STREAM_LEGACY) == legacy && (legacy != own || !own));
	while (i--) {
		CHECK(c, seen[0] ? seen[i] && seen[i] != legacy && seen[i] != own : !seen[i]);
		for (j = 0; j < i; j++)
			CHECK(c, !seen[0] || seen[i] != seen[j]);
	}
	return rig_close(c, &r);
}

static int case_default_streams(struct conform *c)
{
	const device_stream streams[] = { DEVICE_STREAM_LEGACY, DEVICE_STREAM_PER_THREAD };
	struct rig r;
	device_event e;
	void *ptr;
	int i;

	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	CHECK(c, !c->b->alloc(0, 4096, DEVICE_MEMORY_PLAIN, &ptr) && !c->b->event_create(0, &e));
	for (i = 0; i < 2; i++) {
		CHECK(c,
			!c->b->fill(0, ptr, 0x30 + i, 4096, streams[i]) &&
				!c->b->event_record(0, e, streams[i]));
		CHECK(c,
			!c->b->stream_sync(0, streams[i], 5000000000, NULL) &&
				c->b->stream_query(0, streams[i]) == 1);
		CHECK(c, !c->b->capturing(0, streams[i]) && c->b->event_query(0, e) == 1);
		CHECK(c, rig_holds(c, &r, ptr, 4096, NULL, 0x30 + i));
		CHECK(c, c->b->stream_destroy(0, streams[i]) < 0);
	}
	CHECK(c, !c->b->event_destroy(0, e) && !c->b->free(0, ptr));
	return rig_close(c, &r);
}

static int case_launch(struct conform *c)
{
	static const struct kernel unknown = { .name = "no_such_kernel" };
	struct kernel_copy_args args;
	struct rig r;
	void *ptr;
	int rc;

	memset(&args, 0, sizeof(args));
	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	CHECK(c, !c->b->alloc(0, 2 * BIG, DEVICE_MEMORY_SYMMETRIC, &ptr));
	args.dst = (uintptr_t)ptr + BIG + 16;
	args.src = (uintptr_t)ptr;
	args.size = BIG - 32;
	args.wake = -1;
	CHECK(c, !c->b->fill(0, ptr, 0x66, BIG, r.s) && !c->b->stream_sync(0, r.s, -1, NULL));
	rc = c->b->launch(0, r.s, &kernel_copy, 16, 256, &args, sizeof(args));
	if (rc == SPMT_ERR_UNSUPPORTED && strcmp(c->b->name, "host") &&
		strstr(status_sentence(), "image"))
		return conform_skip(c, status_sentence());
	memset(&args, 0xff, sizeof(args));
	CHECK(c, !rc && !c->b->stream_sync(0, r.s, 5000000000, NULL));
	CHECK(c, rig_holds(c, &r, (char *)ptr + BIG, 16, NULL, 0));
	CHECK(c, rig_holds(c, &r, (char *)ptr + BIG + 16, 65536, NULL, 0x66));
	CHECK(c, rig_holds(c, &r, (char *)ptr + 2 * BIG - 32, 16, NULL, 0x66));
	CHECK(c, rig_holds(c, &r, (char *)ptr + 2 * BIG - 16, 16, NULL, 0));
	CHECK(c,
		!strcmp(c->b->name, "host") || c->b->launch(0, r.s, &unknown, 1, 32, &args, 8) < 0);
	CHECK(c, !c->b->free(0, ptr));
	return rig_close(c, &r);
}

/* ---- every failure on purpose */

struct scene {
	void *ptr, *host, *seen, *base;
	device_stream s;
	device_event e;
	size_t g;
	int opened, peer;
	bool committed;
};

static void nothing(void *arg)
{
	(void)arg;
}

static int scene_memory(struct conform *c, struct scene *x)
{
	int rc = c->b->open(0);

	if (rc < 0)
		return rc;
	x->opened = 1;
	rc = c->b->alloc(0, 100000, DEVICE_MEMORY_SYMMETRIC, &x->ptr);
	if (!rc)
		rc = c->b->host_alloc(0, 4096, &x->host, &x->seen);
	if (!rc && c->b->vmm && !c->b->vmm->granularity(0, &x->g)) {
		rc = c->b->vmm->reserve(4 * x->g, x->g, &x->base);
		if (!rc)
			rc = c->b->vmm->commit(0, x->base, x->g, NULL, 0);
		x->committed = !rc;
	}
	if (!rc && x->peer) {
		rc = c->b->open(x->peer);
		x->opened += !rc;
		if (!rc)
			rc = c->b->peer_enable(0, x->peer);
	}
	return rc;
}

static int scene_stream(struct conform *c, struct scene *x)
{
	int rc = c->b->stream_create(0, &x->s);

	if (!rc)
		rc = c->b->event_create(0, &x->e);
	if (!rc)
		rc = c->b->fill(0, x->ptr, 9, 4096, x->s);
	if (!rc)
		rc = c->b->copy(0, x->host, x->ptr, 4096, x->s);
	if (!rc)
		rc = c->b->event_record(0, x->e, x->s);
	if (!rc)
		rc = c->b->stream_wait_event(0, x->s, x->e);
	if (!rc)
		rc = c->b->call(0, x->s, nothing, NULL);
	return rc;
}

/* What was made is taken back; none of that may fail, whatever is armed. */
static int scene_end(struct conform *c, const struct scene *x)
{
	if (x->s)
		CHECK(c, !c->b->stream_sync(0, x->s, -1, NULL) && !c->b->stream_destroy(0, x->s));
	if (x->e)
		CHECK(c, !c->b->event_destroy(0, x->e));
	if (x->committed)
		CHECK(c, !c->b->vmm->decommit(0, x->base, x->g));
	if (x->base)
		CHECK(c, !c->b->vmm->unreserve(x->base, 4 * x->g));
	if (x->host)
		CHECK(c, !c->b->host_free(0, x->host));
	if (x->ptr)
		CHECK(c, !c->b->free(0, x->ptr));
	if (x->opened > 1)
		c->b->close(x->peer);
	if (x->opened)
		c->b->close(0);
	return CONFORM_PASS;
}

static int case_faults(struct conform *c)
{
	char reason[DEVICE_REASON];
	uint64_t n;
	bool fired = true;

	for (n = 1; fired; n++) {
		struct scene x = { .peer = c->n > 1 && !c->b->peer_check(0, 1, reason) };
		int rc;

		CHECK(c, n < 100);
		fail(-1, "nothing said");
		fault_arm(FAULT_ANY, n);
		rc = scene_memory(c, &x);
		if (!rc)
			rc = scene_stream(c, &x);
		fired = fault_fired();
		if (scene_end(c, &x))
			return CONFORM_FAIL;
		fault_disarm();
		CHECK(c, fired == (rc < 0));
		CHECK(c, !fired || strcmp(status_sentence(), "nothing said"));
	}
	CHECK(c, n > 10);
	return CONFORM_PASS;
}

/* A stream stands at a word until the CPU, or another stream, has stored what it waits for, or more. */
static int case_words(struct conform *c)
{
	const struct device_word_ops *words = c->b->words;
	char reason[DEVICE_REASON] = "";
	uint64_t *host, *dev;
	void *a, *b;
	device_stream s;
	struct rig r;

	if (!words || words->check(0, reason))
		return conform_skip(c, words ? reason : "no words");
	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	CHECK(c, !c->b->host_alloc(0, 64, &a, &b) && !words->stream_create(0, &s));
	host = a;
	dev = b;
	memset(host, 0, 64);
	CHECK(c, !words->wait(0, r.s, dev, 5) && !words->write(0, r.s, dev + 1, 7));
	CHECK(c, !words->write(0, s, dev, 4) && !c->b->stream_sync(0, s, -1, NULL));
	CHECK(c, __atomic_load_n(host, __ATOMIC_ACQUIRE) == 4 && !c->b->stream_query(0, r.s));
	CHECK(c, !__atomic_load_n(host + 1, __ATOMIC_ACQUIRE));
	CHECK(c, !words->write(0, s, dev, 6) && !c->b->stream_sync(0, r.s, -1, NULL));
	CHECK(c, __atomic_load_n(host + 1, __ATOMIC_ACQUIRE) == 7);
	/* by the CPU; what is above counts as signed */
	CHECK(c, !words->wait(0, r.s, dev, 1ull << 40) && !c->b->stream_query(0, r.s));
	__atomic_store_n(host, 1ull << 62, __ATOMIC_RELEASE);
	CHECK(c, !c->b->stream_sync(0, r.s, -1, NULL));
	CHECK(c, !c->b->stream_destroy(0, s) && !c->b->host_free(0, a));
	return rig_close(c, &r);
}

const struct conform_case conform_streams[] = {
	{ "order", case_order },
	{ "asynchronous", case_asynchronous },
	{ "destroy_runs_on", case_destroy_runs_on },
	{ "events", case_events },
	{ "events_across", case_events_across },
	{ "stream_ids", case_stream_ids },
	{ "default_streams", case_default_streams },
	{ "launch", case_launch },
	{ "words", case_words },
	{ "faults", case_faults },
	{ NULL, NULL },
};
