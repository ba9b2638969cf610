/* SPDX-License-Identifier: MIT */
/*
 * Row `engine` of the collectives: copy engines move the data, and no kernel does. Their ranks are of one process. In a rank's stream the
 * call is a word that says that the stream has come, and a wait for a word that says that the rank's part is done. Neither waits for
 * another rank's call: whoever has called leaves its buffers with the comm's meeting, and a thread has the copies made once all ranks have
 * called and all their streams have come. So what has been queued runs at once, and what has not been queued by the deadline never is: when
 * the comm breaks the waiting streams go on, and nothing touches their buffers any more.
 */
#ifndef SPMT_ENGINE_H
#define SPMT_ENGINE_H

#include "collective.h"

struct engine_call {
	const char *what; /* lives as long as the library */
	enum kernel_collective_kind kind;
	void *dst;
	const void *src;
	uint64_t bytes; /* of a block */
	uint64_t key;	/* equal on all ranks (coll_key.h) */
	struct coll_moves moves;
};

/* Whether the comm has the row, the same on all its ranks; *apart: each has a GPU of its own. `why`, of DEVICE_REASON bytes: why not. */
bool engine_fits(spmt_comm *comm, bool *apart, char *why);
/* At the beginning of each collective, whatever its row: the comm's meeting, the first time. -ENOMEM and a sentence. */
int engine_begin(spmt_comm *comm);
/* At the end of each that has been queued: ranks are compared by how many they have made. key 0: not known. */
void engine_end(spmt_comm *comm, uint64_t key, bool captured);
/* Queues the call, of an open comm that has been claimed, in the order of its other collectives; not into a capture. Nothing is queued on
   failure. */
int engine_queue(spmt_comm *comm, const struct engine_call *call, device_stream stream);
/* Once its streams have ended, before its links go. */
void engine_drop(spmt_comm *comm);

#endif
