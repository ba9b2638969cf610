/* SPDX-License-Identifier: MIT */
/* The streams in which a comm has queued work. */
#ifndef SPMT_STREAM_H
#define SPMT_STREAM_H

#include "comm.h"

/* One stream with work that this comm has queued since the last quiet. */
struct used_stream {
	device_stream stream;
	int thread;	    /* whose SPMT_STREAM_PER_THREAD it is; else 0 */
	device_event event; /* behind the last such work */
	bool dirty;
};

/* The stream meant by a user's argument; after queueing work there, note it for quiet. */
device_stream stream_of(const spmt_comm *comm, spmt_stream stream);
int stream_note(spmt_comm *comm, device_stream stream);
/* The stream is being captured into a graph: nothing runs now, and its events order nothing outside the graph. */
bool stream_captured(const spmt_comm *comm, device_stream stream);
/* `stream` waits for what this comm has queued in the user's other streams. */
int streams_join(spmt_comm *comm, device_stream stream);
/* spmt_quiet_on_stream in the name of `what`. */
int stream_quiet(spmt_comm *comm, const char *what, device_stream stream);
/* Waits for all of them; failures of kernels are reported here. */
int streams_quiet(spmt_comm *comm, const char *what);
/* Waits for the comm's own. */
int stream_drain(spmt_comm *comm, const char *what);
/* Of a broken world, too, for devices and no rank: before anything that queued work uses is
   released. False: a user's kernel goes on. */
bool streams_settle(spmt_comm *comm);
/* After one that was false: what went on then has ended, or failed. */
bool streams_ended(spmt_comm *comm);
/* `release` becomes the last piece of work in comm's own stream, behind what the others held when they
   were settled. False: not here; vendors let no call of theirs be made from a stream. */
bool streams_hand_over(spmt_comm *comm, void (*release)(void *comm));
void streams_drop(spmt_comm *comm);

#endif
