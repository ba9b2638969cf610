/* SPDX-License-Identifier: MIT */
/* The streams in which a comm has queued work. */
#ifndef SPMT_STREAM_H
#define SPMT_STREAM_H

#include "comm.h"

/* The stream meant by a user's argument. */
device_stream stream_of(const spmt_comm *comm, spmt_stream stream);

/*
 * Round all that a public call queues for which quiet has to wait: what can fail comes first, so that no call that fails has queued
 * what is not noted. Asks the driver what the stream is, and stream_note records an event: each once a call, since that is what
 * costs. What is reserved is valid until that is done for another stream.
 */
struct reserved {
	struct stream_key at;
	struct mark *mark; /* NULL: none is needed */
	bool captured; /* into a graph: nothing runs now, and its events order nothing outside the graph */
};
int stream_reserve(spmt_comm *comm, device_stream stream, struct reserved *reserved);
/* The same for a collective: those of one comm run one after the other, whatever streams they are on, since their kernels share
   one inbox. */
int stream_reserve_collective(spmt_comm *comm, device_stream stream, struct reserved *reserved);
void stream_note(spmt_comm *comm, const struct reserved *reserved);
/* Instead, of a call that has queued nothing but order, and may still fail. */
int stream_note_order(spmt_comm *comm, const struct reserved *reserved);

/* What is reserved waits for what this comm has queued in the user's other streams. */
int streams_join(spmt_comm *comm, const struct reserved *reserved);
/* What is reserved waits for all that this comm has issued: spmt_quiet_on_stream in the name of `what`. */
int stream_quiet(spmt_comm *comm, const char *what, const struct reserved *reserved);
/* Waits for all of them; the first failure of what ran there. */
int streams_quiet(spmt_comm *comm, const char *what);
/* Waits for the comm's own. */
int stream_drain(spmt_comm *comm, const char *what);

/* When a comm that ends stops waiting, in process_now()'s time. */
int64_t streams_deadline(const spmt_comm *comm);
/* Of a broken world, too, for devices and no rank: before anything that queued work uses is
   released. False: some work goes on. */
bool streams_settle(spmt_comm *comm, int64_t deadline);
/* After one that was false: what went on then has ended, or failed. */
bool streams_ended(spmt_comm *comm);
/* release(arg) becomes the last piece of work in comm's own stream, behind what the others hold. For hosts only: vendors let no
   call of theirs be made from a stream. False: there is no memory for it, and it is never called. */
bool streams_hand_over(spmt_comm *comm, void (*release)(void *arg), void *arg);
void streams_drop(spmt_comm *comm);

#endif
