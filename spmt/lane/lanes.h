/* SPDX-License-Identifier: MIT */
/* The lanes of a world in this process, by comm and key; and the clock that ends those whose deadline has passed. */
#ifndef SPMT_LANES_H
#define SPMT_LANES_H

#include "lane.h"

#define LANES_ANY UINT64_MAX /* of every comm */

/* *slot: NULL, or the table, made by the first who comes. NULL: no memory. */
struct lanes *lanes_of(_Atomic(struct lanes *) *slot);
void lanes_close(struct lanes *all); /* takes NULL; no lane is left */

/* The thread of the clock, made by the first who needs it. A failure has a sentence that names no call. */
int lanes_clock(struct lanes *all);
/* The clock looks again at that time, at the latest. */
void lanes_due(struct lanes *all, int64_t due);

/* Around looking a lane up and taking a place in it. */
void lanes_lock(struct lanes *all);
void lanes_unlock(struct lanes *all);
/* The lane that the key names now; NULL: there is none that is whole. Under the lock. */
struct comm_lane *lanes_find(struct lanes *all, uint64_t comm, uint64_t key);
/* A new one, as lane_open. NULL: no memory. Under the lock. */
struct comm_lane *lanes_add(
	struct lanes *all, uint64_t comm, uint64_t key, int nranks, const struct lane_place *place);
/* The rank's handle on it, NULL: none; the last to go frees the lane. Under the lock. */
void lanes_enter(struct comm_lane *lane, int rank, void *user);
static inline void *lanes_user(const struct comm_lane *lane, int rank)
{
	return lane->sides[rank].user;
}
void lanes_leave(struct comm_lane *lane, int rank); /* takes the lock */
/* Frees it if nobody has entered. Under the lock. */
void lanes_drop(struct comm_lane *lane);
/* The lane stays, with its table, also when its ranks have gone: for a step that a stream has, which calls release at its end. */
void lanes_hold(struct comm_lane *lane);
void lanes_release(struct comm_lane *lane);

/* Breaks all lanes of this comm. NULL: there are none. */
void lanes_break(struct lanes *all, uint64_t comm, const struct cause *cause);

#endif
