/* SPDX-License-Identifier: MIT */
/* The bootstrap of a process, for the files that implement it. */
#ifndef SPMT_BOOTSTRAP_STATE_H
#define SPMT_BOOTSTRAP_STATE_H

#include <pthread.h>

#include "client.h"
#include "poll.h"

struct hub;

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

#endif
