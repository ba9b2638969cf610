/* SPDX-License-Identifier: MIT */
/*
 * Where the devices of a group meet for one call: a room for each run of a program and call site in it. Who comes leaves its
 * buffers and a future, and goes; the last to come closes the room, as loops come again by the same run and site, and moves the
 * data. A timer fails a room that stays short. A failed room stays until all have come, or long after, so that a late device
 * gets the same answer at once.
 */
#ifndef SPMT_XLA_ROOM_H
#define SPMT_XLA_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "bindings/jax/ffi.h"
#include "bindings/jax/site.h"
#include "bindings/jax/work.h"
#include "bindings/jax/world.h"

struct member {
	struct room *room;
	const struct ffi_api *api;
	struct ffi_future
		*future; /* NULL: has not come, was completed, or completes by returning */
	struct call call;
	bool here;
	_Atomic bool done; /* counted in room->left */
	struct work work;
};

struct room {
	struct room *next;
	struct world *world; /* held until the data has moved, then NULL */
	const struct site *site;
	uint64_t id; /* of the site */
	int group, arrived;
	int64_t run, deadline_ns;
	enum ffi_code code; /* FFI_OK, or failed for this reason */
	char why[256];
	bool busy;	    /* somebody fails its members' futures */
	_Atomic int left;   /* members whose data still moves, and who queues it */
	_Atomic int status; /* the first code of the library's */
	struct work work;
	struct member members[];
};

struct visit {
	struct world *world;
	const struct site *site;
	int group, rank;
	int64_t run;
};

/* Enters, and moves the data if this rank is the last. frame->future is set if the call goes on. */
struct ffi_error *room_enter(
	struct ffi_frame *frame, const struct visit *visit, const struct call *call);
/* This rank will not come: everybody else's call ends with this. */
void room_refuse(const struct visit *visit, enum kind kind, enum ffi_code code, const char *why);
/* The world is closed: ends all calls that wait in it. */
void room_close(struct world *world);
/* Starts the timer and the workers, once; timeouts of worlds are not below this. 0 or a code. */
int room_start(int64_t timeout_ms);

#endif
