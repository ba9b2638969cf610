/* SPDX-License-Identifier: MIT */
/* Streams of the host backend that a test holds up. */
#ifndef TESTS_HELD_STREAM_H
#define TESTS_HELD_STREAM_H

#include "host_backend.h"
#include "tests/lib/device/latch.h"

static inline void block(int dev, device_stream s, struct latch *latch)
{
	OK(latch_hold(latch, b, dev, s));
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
