/* SPDX-License-Identifier: MIT */
/* The bootstrap of a process, for the files that implement it. */
#ifndef SPMT_BOOTSTRAP_STATE_H
#define SPMT_BOOTSTRAP_STATE_H

#include <poll.h>
#include <pthread.h>

#include "client.h"

struct hub;

/* Waiting for descriptors in the service thread: the set is built anew for each wait (poll.c). */
struct poller {
	struct pollfd *set;
	size_t room;
	int epoll;
};

struct bootstrap {
	struct bootstrap_config config;
	struct uid uid;
	unsigned char
		nonce[16]; /* of the process that opened it: a forked child has no part in it */

	pthread_mutex_t calling; /* held while `broken` is called, guards `closing` with `lock` */
	pthread_mutex_t lock;	 /* guards the rest; never held across a wait for a peer */
	pthread_cond_t changed;
	bool closing;
	struct client client;
	struct hub *hub; /* NULL: another process is it */
	unsigned number; /* of the hub's name */
	int64_t below;	 /* when to look for another at lower numbers */

	int wake; /* eventfd */
	pthread_t thread;
	struct poller poller; /* of the thread */
};

/* Wakes the service thread, so that it looks at new requests. */
void bootstrap_wake(struct bootstrap *b);

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
