/* SPDX-License-Identifier: MIT */
/*
 * Marks behind work in streams, for waiting on that work. A stream may be destroyed before its
 * work has ended, and the next stream may get its handle.
 */
#ifndef SPMT_MARK_H
#define SPMT_MARK_H

#include "include/spmt.h"
#include "src/device/device.h"

/* Identifies a stream. */
struct stream_key {
	device_stream stream;
	uint64_t id; /* 0: its backend has none, and only the handle tells */
	int thread;  /* whose SPMT_STREAM_PER_THREAD it is; else 0 */
};
struct stream_key stream_key_of(const spmt_comm *comm, device_stream stream);
/* For a stream that its user keeps: always has an id. */
struct stream_key stream_key_kept(spmt_comm *comm, device_stream stream);
/* True for the same stream; without ids also for a stream that reuses the handle of another. */
bool stream_key_alike(const struct stream_key *a, const struct stream_key *b);

struct mark {
	struct stream_key at;
	device_event event; /* made with the first use, and kept */
	bool set;	    /* there is work that may not have ended */
	bool late;	    /* the event is yet to be recorded for it */
	bool users; /* the work is the user's: only whoever releases what it may use waits for it */
	bool kept;  /* its user has said that the stream stays, and this mark is its own */
};

/*
 * Call these before and after queueing the work that the mark follows. mark_ready can fail: it
 * makes the stream at `at` wait for the earlier work of the mark, unless that is in the same
 * stream. mark_put cannot fail: it sets the mark behind the work, if need be by recording its
 * event later.
 */
int mark_ready(const spmt_comm *comm, struct mark *mark, const struct stream_key *at);
void mark_put(const spmt_comm *comm, struct mark *mark, const struct stream_key *at);
/* The same, but its event is recorded only when somebody looks: after all that the stream holds by then. */
void mark_put_late(struct mark *mark, const struct stream_key *at);

/* Makes the stream wait for the work that the mark follows, if any. */
int mark_join(const spmt_comm *comm, struct mark *mark, const struct stream_key *at);
/* Call before using the event: records it if that is still to be done. -EBUSY: the stream is being captured by now. */
int mark_late(const spmt_comm *comm, struct mark *mark);
void mark_drop(const spmt_comm *comm, struct mark *mark);

#endif
