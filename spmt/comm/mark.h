/* SPDX-License-Identifier: MIT */
/*
 * Marks behind work in streams, by which others wait for it. A stream may be destroyed before its work has ended, and its handle be
 * the next one's.
 */
#ifndef SPMT_MARK_H
#define SPMT_MARK_H

#include "include/spmt.h"
#include "src/device/device.h"

/* Which stream that is. */
struct stream_key {
	device_stream stream;
	uint64_t id; /* 0: its backend has none, and only the handle tells */
	int thread;  /* whose SPMT_STREAM_PER_THREAD it is; else 0 */
};
struct stream_key stream_key_of(const spmt_comm *comm, device_stream stream);
/* One stream; or two, where there are no numbers and one has the handle that the other had. */
bool stream_key_alike(const struct stream_key *a, const struct stream_key *b);

struct mark {
	struct stream_key at;
	device_event event; /* made with the first use, and kept */
	bool set;	    /* there is work that may not have ended */
	bool late;	    /* the event is yet to be recorded for it */
};

/*
 * Round the queueing of what the mark is to be behind. First what can fail: the stream at `at` waits for what the mark is behind,
 * unless that is the same stream. Then the mark is behind what is there, if only once its event can be recorded.
 */
int mark_ready(const spmt_comm *comm, struct mark *mark, const struct stream_key *at);
void mark_put(const spmt_comm *comm, struct mark *mark, const struct stream_key *at);
/* The same, but its event is recorded no sooner than somebody looks: behind all that the stream holds by then. */
void mark_put_late(struct mark *mark, const struct stream_key *at);

/* The stream waits for what the mark is behind, if anything. */
int mark_join(const spmt_comm *comm, struct mark *mark, const struct stream_key *at);
/* Before anybody looks at the event: records it if that is yet to be done. */
int mark_late(const spmt_comm *comm, struct mark *mark);
void mark_drop(const spmt_comm *comm, struct mark *mark);

#endif
