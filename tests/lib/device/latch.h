/* SPDX-License-Identifier: MIT */
/* A latch holds a stream or a thread up until the test opens it, so that no clock decides what is still under way. All zeros: shut. */
#ifndef TESTS_LATCH_H
#define TESTS_LATCH_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "src/device/device.h"

struct latch {
	_Atomic int open, reached, passed, given_up;
};

enum { LATCH_MS = 10000, LATCH_POLLS_A_MS = 5 };

static inline void latch_poll(void)
{
	struct timespec t = { 0, 1000000 / LATCH_POLLS_A_MS };

	nanosleep(&t, NULL);
}

/* Waits for the latch, LATCH_MS at most: what comes later than that has waited for what it was not to wait for. */
static inline void latch_pass(struct latch *latch)
{
	latch->reached = 1;
	for (int polls = LATCH_MS * LATCH_POLLS_A_MS; !latch->open; polls--) {
		if (!polls) {
			latch->given_up = 1;
			break;
		}
		latch_poll();
	}
	latch->passed = 1;
}

/* For stream_call(): a copy of a pointer to the latch. */
static inline void latch_kernel(void *args)
{
	latch_pass(*(struct latch **)args);
}

/* For a backend's `call`. */
static inline void latch_call(void *latch)
{
	latch_pass(latch);
}

/* False if it was given up: a call that should only have queued something waited for what was held up. */
static inline bool latch_open(struct latch *latch)
{
	latch->open = 1;
	return !latch->given_up;
}

/* Holds a stream up, and returns once it stands at the latch: 0, or a code. */
static inline int latch_hold(
	struct latch *latch, const struct backend *backend, int dev, device_stream stream)
{
	int rc;

	*latch = (struct latch){ .open = 0 };
	rc = backend->call(dev, stream, latch_call, latch);
	for (int polls = LATCH_MS * LATCH_POLLS_A_MS; !rc && !latch->reached; polls--) {
		if (!polls)
			rc = -ETIMEDOUT;
		latch_poll();
	}
	return rc;
}

/* Opens it, and returns once the stream has passed, so that the latch may go. */
static inline void latch_release(struct latch *latch)
{
	latch->open = 1;
	while (!latch->passed)
		latch_poll();
}

#endif
