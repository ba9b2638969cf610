/* SPDX-License-Identifier: MIT */
/*
 * Movers that wrap a link's movers: trace, count, delay, fail. For tests; a link that is not wrapped pays nothing.
 *
 * hook_wrap puts a table of its own in link->movers and keeps the real movers as its state; every op goes through to
 * them, and none past them (link->direct and link->by_kernel are off while it lasts). Called, like the movers, from the thread that
 * uses the link.
 */
#ifndef TESTS_HOOK_H
#define TESTS_HOOK_H

#include "transports/transport.h"

struct hook_config {
	bool trace;	   /* each op to the log, level info */
	unsigned delay_us; /* slept before each put and get */
	uint64_t fail_at;  /* the nth put or get, from 1, fails and moves nothing; 0: none does */
	int fail_code;	   /* negative; 0: -EIO */
};
struct hook_counts {
	uint64_t puts, gets, bytes, fences, quiets,
		failures; /* calls, those that failed included; bytes asked for */
};

/* -EALREADY: the link is wrapped. -EINVAL: a positive code. */
int hook_wrap(struct link *link, const struct hook_config *config);
/* From any thread. Zeros if the link is not wrapped. */
void hook_counts(const struct link *link, struct hook_counts *counts);
/* Puts back what the link would have now without the hook. close() of the link's movers does it too. */
void hook_unwrap(struct link *link);

#endif
