/* SPDX-License-Identifier: MIT */
/* For the suites of device_cuda and device_hip: a rank's work with a device, whatever fails in
   it. */
#ifndef SPMT_TESTS_SCENE_H
#define SPMT_TESTS_SCENE_H

#include "src/device.h"

/* Everything a rank does with a device and a peer, failures ignored; what could be made is taken
   back. */
struct standin_scene {
	void *plain, *symmetric, *host, *seen, *base;
	device_stream s;
	device_event e;
	size_t g;
	bool opened[2], committed;
};

static inline void standin_nothing(void *arg)
{
	(void)arg;
}

static inline int standin_work(const struct backend *b, struct standin_scene *x)
{
	int failed = 0, peers[] = { 1 };
	struct device_saved saved;
	char reason[DEVICE_REASON];
	struct device_desc desc;

	failed += b->describe(0, &desc) < 0;
	failed += !(x->opened[0] = !b->open(0));
	failed += !(x->opened[1] = !b->open(1));
	failed += b->peer_check(0, 1, reason) < 0;
	failed += b->peer_enable(0, 1) < 0;
	if (!b->enter(0, &saved))
		b->leave(&saved);
	else
		failed++;
	failed += b->alloc(0, 5000, DEVICE_MEMORY_PLAIN, &x->plain) < 0;
	failed += b->alloc(0, 5000, DEVICE_MEMORY_SYMMETRIC, &x->symmetric) < 0;
	failed += b->host_alloc(0, 5000, &x->host, &x->seen) < 0;
	failed += b->stream_create(0, &x->s) < 0;
	failed += b->event_create(0, &x->e) < 0;
	if (!b->vmm->granularity(0, &x->g) && !b->vmm->reserve(2 * x->g, x->g, &x->base)) {
		x->committed = !b->vmm->commit(0, x->base, x->g, peers, 1);
		failed += !x->committed;
	}
	if (x->s && x->e && x->plain && x->symmetric) {
		failed += b->fill(0, x->plain, 1, 5000, x->s) < 0;
		failed += b->copy(0, x->symmetric, x->plain, 5000, x->s) < 0;
		failed += b->event_record(0, x->e, x->s) < 0;
		failed += b->stream_wait_event(0, x->s, x->e) < 0;
		failed += b->call(0, x->s, standin_nothing, NULL) < 0;
		failed += b->stream_sync(0, x->s, 1000000000, NULL) < 0;
		failed += b->event_query(0, x->e) < 0;
		b->capturing(0, x->s);
	}
	return failed;
}

static inline int standin_undo(const struct backend *b, const struct standin_scene *x)
{
	int failed = 0;

	if (x->s)
		failed += b->stream_sync(0, x->s, 1000000000, NULL) < 0;
	if (x->committed)
		failed += b->vmm->decommit(0, x->base, x->g) < 0;
	if (x->base)
		failed += b->vmm->unreserve(x->base, 2 * x->g) < 0;
	if (x->e)
		failed += b->event_destroy(0, x->e) < 0;
	if (x->s)
		failed += b->stream_destroy(0, x->s) < 0;
	if (x->host)
		failed += b->host_free(0, x->host) < 0;
	if (x->symmetric)
		failed += b->free(0, x->symmetric) < 0;
	if (x->plain)
		failed += b->free(0, x->plain) < 0;
	if (x->opened[1])
		b->close(1);
	if (x->opened[0])
		b->close(0);
	return failed;
}

#endif
