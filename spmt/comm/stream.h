/* SPDX-License-Identifier: MIT */
/* The streams in which a comm has queued work. */
#ifndef SPMT_STREAM_H
#define SPMT_STREAM_H

#include "comm.h"

/* The stream that a user's argument means. */
device_stream stream_of(const spmt_comm *comm, spmt_stream stream);

/*
 * Brackets all that a public call queues and quiet must wait for: what can fail comes first, so that no failing call has queued unnoted
 * work. Asks the driver what the stream is, and stream_note records an event: each once a call, since these are the cost. A
 * reservation is valid until one is made for another stream.
 */
struct reserved {
	struct stream_key at;
	struct mark *mark; /* NULL: none is needed */
	bool stays; /* the comm's own stream, or one that the user keeps: its event can wait until it is asked for */
	bool captured; /* into a graph: nothing runs now, and its events order nothing outside the graph */
};
int stream_reserve(spmt_comm *comm, device_stream stream, struct reserved *reserved);
/* The same for a collective: those of one comm run one after the other, whatever streams they are on, since their kernels share
   one inbox. */
int stream_reserve_collective(spmt_comm *comm, device_stream stream, struct reserved *reserved);
void stream_note(spmt_comm *comm, const struct reserved *reserved);
/* The same for a user's kernel: in a user's stream quiet does not wait for it, but what it may use stays until it has ended. */
int stream_reserve_users(spmt_comm *comm, device_stream stream, struct reserved *reserved);
/* At the top of a block that makes several driver calls for comm's device: binds it once, until the block ends. NULL: none. */
#define HOLD_DEVICE(comm) \
	__attribute__((cleanup(stream_let_go), unused)) const spmt_comm *held = stream_hold(comm)
/* The same where a stream takes copies and events alone, for which most need nothing bound. */
#define HOLD_FOR_COPIES(comm, stream)                                           \
	__attribute__((cleanup(stream_let_go), unused)) const spmt_comm *held = \
		stream_is_open((comm), (stream)) ? NULL : stream_hold(comm)
static inline bool stream_is_open(const spmt_comm *comm, device_stream stream)
{
	return comm && comm->backend->traits & DEVICE_OPEN_STREAMS &&
		(uintptr_t)stream > (uintptr_t)DEVICE_STREAM_PER_THREAD;
}
const spmt_comm *stream_hold(const spmt_comm *comm);
void stream_let_go(const spmt_comm **held);
/* The same for a call that has queued only an order, no work, and may still fail. */
int stream_note_order(spmt_comm *comm, const struct reserved *reserved);

/* spmt_stream_register and its end; a stream that has a handle of its own. -EEXIST, -EINVAL: it is registered; it is not. -EBUSY: it is
   being captured, and what it holds cannot be marked. */
int stream_keep(spmt_comm *comm, device_stream stream);
int stream_keep_end(spmt_comm *comm, device_stream stream);
/* A registered stream that has earlier work is being captured. */
bool streams_held_back(spmt_comm *comm);

/* What is reserved waits for what this comm has queued in the user's other streams. */
int streams_join(spmt_comm *comm, const struct reserved *reserved);
/* What is reserved waits for all that this comm has issued: spmt_quiet_on_stream in the name of `what`. */
int stream_quiet(spmt_comm *comm, const char *what, const struct reserved *reserved);
/* Waits for all these streams; returns the first failure of what ran there. */
int streams_quiet(spmt_comm *comm, const char *what);
/* Waits for the comm's own stream. */
int stream_drain(spmt_comm *comm, const char *what);

/* The time (of process_now()) at which an ending comm stops waiting. */
int64_t streams_deadline(const spmt_comm *comm);
/* Waits for the devices, also in a broken world, before anything that queued work uses is
   released. False: some work goes on. */
bool streams_settle(spmt_comm *comm, int64_t deadline);
/* After that returned false: whether the work has ended or failed by now. */
bool streams_ended(spmt_comm *comm);
/* release(arg) becomes the last piece of work in comm's own stream, behind what the others hold. For hosts only: vendors let no
   call of theirs be made from a stream. False: there is no memory for it, and it is never called. */
bool streams_hand_over(spmt_comm *comm, void (*release)(void *arg), void *arg);
void streams_drop(spmt_comm *comm);

#endif
