/* SPDX-License-Identifier: MIT */
/* Waiting for descriptors in the service thread: the set is built anew for each wait. */
#ifndef SPMT_BOOTSTRAP_POLL_H
#define SPMT_BOOTSTRAP_POLL_H

#include <poll.h>

#include "src/base/base.h"

struct poller {
	struct pollfd *set;
	size_t room;
	int epoll;
};

/* poller_close() is due after a failure too, and takes one whose epoll is -1. */
int poller_open(struct poller *p);
void poller_close(struct poller *p);
/* Room for n entries, unless there is no memory: then the room is as it was, and false. */
bool poller_room(struct poller *p, size_t n);
/* As poll(2) of the first n entries, whatever RLIMIT_NOFILE is by now. A descriptor that cannot
   be polled counts as not ready, and the call sleeps briefly, so that no failure makes the caller
   spin. */
void poller_wait(struct poller *p, size_t n, int timeout_ms);

#endif
