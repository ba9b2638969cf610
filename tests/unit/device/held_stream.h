/* SPDX-License-Identifier: MIT */
/* Streams of the host backend that a test holds up. */
#ifndef TESTS_HELD_STREAM_H
#define TESTS_HELD_STREAM_H

#include <stdatomic.h>

#include "host_backend.h"

/* A gate that work in a stream stops at until the test opens it. */
struct gate {
	_Atomic int entered, open;
};

static inline void pass_gate(void *arg)
{
	struct gate *g = arg;

	atomic_store(&g->entered, 1);
	while (!atomic_load(&g->open))
		usleep(200);
}

static inline void block(int dev, device_stream s, struct gate *g)
{
	OK(b->call(dev, s, pass_gate, g));
	while (!atomic_load(&g->entered))
		usleep(200);
}

static inline device_stream stream_of(int dev)
{
	device_stream s;

	OK(b->open(dev));
	OK(b->stream_create(dev, &s));
	return s;
}

static inline void end(int dev, device_stream s)
{
	OK(b->stream_destroy(dev, s));
	b->close(dev);
}

static inline void settle(int dev, device_stream s)
{
	OK(b->stream_sync(dev, s, 10 * SECOND, NULL));
}

#endif
