/* SPDX-License-Identifier: MIT */
/*
 * A lane: what the ranks of a comm, all in this process, share to run the collectives of one key. Each rank has a queue of steps. A
 * collective begins once it is the first step of every rank's queue, so that no thread waits for it: whoever brings the last one
 * moves the data for all. A call of a user's function is a step of one rank alone.
 * On GPUs, and between processes, there are no steps: a lane has a library area in the heap of every rank (place), in which its ranks'
 * kernels meet, and each process its own of these.
 */
#ifndef SPMT_LANE_H
#define SPMT_LANE_H

#include <pthread.h>
#include <stdatomic.h>

#include "caller.h"
#include "spmt/control/keys.h"
#include "src/kernels/kernels.h"

struct comm_lane;
struct lanes;

/* Made by the caller, zeroed but for what is said here. */
struct step {
	struct step *next;
	struct comm_lane *lane;
	int rank;	    /* of lane */
	const char *what;   /* the public call */
	int64_t timeout_ns; /* < 0: none. Of a collective, from when it is the rank's first step */
	bool streamed; /* a stream has it: it waits until lane_reach, which frees it; the lane is held for it */
	struct kernel_collective_args
		args; /* of a collective: all but the view, which needs pe and npes alone */
	void (*fn)(void *arg, int code); /* not NULL: a call, on this thread */
	void *arg;
	struct caller *caller;
	struct errand errand; /* this and what follows: lane.c's own */
	bool reached, posted, ended;
	int code;
};

struct side {
	struct step *first, **end;
	uint64_t queued, ended; /* steps so far */
	int64_t due;
	bool here;  /* its first step is a collective that may begin */
	int failed; /* the first failure since lane_failure */
	void *user; /* lanes.c */
	pthread_mutex_t
		calls; /* guards what calls of the rank queue where its kernels meet the others', and of steps what goes into streams */
};

/* Where ranks meet in kernels, as spmt/control/keys.h has it. */
struct lane_place {
	struct keys *keys; /* NULL: they do not */
	struct keys_place in;
	const uint32_t *stop; /* of what the table belongs to */
};

struct comm_lane {
	struct comm_lane
		*next; /* this paragraph: lanes.c, guarded by the table's lock, or constant */
	struct lanes *all;
	uint64_t comm, key;
	uint64_t id; /* no other's in this process; of comms by kernels */
	struct lane_place place;
	int users;

	int nranks;
	struct control *control; /* without rows: whether and why it is broken */
	void *area;		 /* as a library area, for the kernels' inboxes */
	_Atomic int64_t due;	 /* the earliest of those that wait; INT64_MAX: none */

	pthread_mutex_t
		lock; /* guards the rest. The locks of the table, before it, and of clock and callers, behind it */
	pthread_cond_t ended;
	int sleepers;
	int here;
	bool moving;	 /* the first steps are being run, without the lock */
	uint32_t *raise; /* where its ranks meet in kernels: the word that these look at */
	struct side sides[];
};

/* place: NULL, or its own from now on. NULL: no memory; then the place is left. */
struct comm_lane *lane_open(
	uint64_t comm, uint64_t key, int nranks, const struct lane_place *place);
void lane_close(struct comm_lane *lane); /* takes NULL */

static inline bool lane_is_broken(const struct comm_lane *lane)
{
	return atomic_load_explicit(&lane->control->stop, memory_order_acquire);
}

/* Queues a step, which belongs to the lane now. Does not wait for anybody; the last to come moves the data. */
void lane_queue(struct step *step);
/* By the stream that has the step, perhaps before it is queued: waits until it has ended. Returns how, with the sentence of a lane
   that is broken. */
int lane_reach(struct step *step, struct cause *cause);
/* Waits for what the rank has queued so far: 0, or -ETIMEDOUT without a sentence. timeout_ns < 0: none. */
int lane_drain(struct comm_lane *lane, int rank, int64_t timeout_ns);
/* The first failure of the rank's steps since it was last asked, without a sentence; 0: none. */
int lane_failure(struct comm_lane *lane, int rank);

/* Nobody takes part in it any more: what has not begun fails. The first cause counts. Returns whether this was it. */
bool lane_break(struct comm_lane *lane, const struct cause *cause);
/* From now on a break writes this word, too; at once if it is broken. */
void lane_raises(struct comm_lane *lane, uint32_t *word);
/* The same if its deadline has passed. */
void lane_expire(struct comm_lane *lane, int64_t now);
/* Streams that have not come to the rank's steps are not waited for any more. In a broken lane. */
void lane_unstream(struct comm_lane *lane, int rank);

#endif
