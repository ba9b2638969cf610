/* SPDX-License-Identifier: MIT */
/* What a process knows of its job, for launch.c and launch_server.c. */
#ifndef SPMT_LAUNCH_STATE_H
#define SPMT_LAUNCH_STATE_H

#include <pthread.h>

#include "launch.h"
#include "pmix.h"
#include "src/base/status.h"

/* The launcher's server, asked once for bytes that all processes of the job share: the uid of which those of
   the worlds are derived. */
struct server {
	enum { SERVER_IDLE, SERVER_ASKING, SERVER_KNOWN, SERVER_LEFT } state;
	uint64_t begun; /* times it has been asked */
	int code;	/* of the last time, with its sentence */
	char sentence[STATUS_SENTENCE];
	struct uid seed;
	/* of the one thread that asks */
	struct pmix pmix;
	const char *path;
	int64_t timeout_ms;
	spmt_uid bytes;
	bool made; /* process 0: bytes are the job's, whatever fails later */
};

struct launch_state {
	pthread_mutex_t lock;	/* guards the rest; never held across a wait */
	_Atomic uint32_t turns; /* counts what waiters wait for */
	struct party *
		parties; /* launch.c: worlds that some ranks of this process have not come to yet */
	uint64_t worlds; /* of the launcher's job */
	struct server server;
};

/* Of the process; a forked child has an empty one. NULL: out of memory. */
struct launch_state *launch_state(void);
/* Of the process that was or is the server's client, 0: none; a forked child sees its parent's. */
_Atomic(pid_t) *launch_client(void);

/* Gives up the lock until something happens, or until `begin` + timeout_ms: false. */
bool launch_sleep(struct launch_state *s, int64_t begin, int64_t timeout_ms);
void launch_changed(struct launch_state *s);

/* The job's own uid. Called and returns with the lock held. SPMT_ERR_TIMEOUT while the server or another
   process keeps silent. */
int server_ask(
	struct launch_state *s, int64_t timeout_ms, struct uid *seed, struct job_info *launch);

#endif
