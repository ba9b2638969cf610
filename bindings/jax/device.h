/* SPDX-License-Identifier: MIT */
/*
 * Calls in the streams of a program, as on GPUs. The handler queues a kernel and returns: addresses and flags meet in the devices'
 * memory, so that no thread waits for another device. What fails there fails when the thread has long gone; it is told to the
 * run that comes next, on all devices, and the run behind that one has comms of its own.
 */
#ifndef SPMT_XLA_DEVICE_H
#define SPMT_XLA_DEVICE_H

#include "bindings/jax/room.h"

/* The comms of a group, until one of them fails. */
struct crew {
	struct crew *
		older; /* it has failed; ends with the world, as programs may still hold its kernels */
	spmt_comm **comms; /* by rank */
	pthread_mutex_t
		*locks; /* by rank: guards calls on its comm. Nobody waits for a peer under it */
	/* guarded by the group's lock: */
	int64_t first, last; /* of the turns that have come */
	enum ffi_code code;  /* FFI_OK, or it has failed for this reason */
	char why[512];
};

/*
 * Which run comes before which. XLA's numbers do not say: they are of 32 bits, begin anywhere for each program, negative as well, and are
 * the same again when a program is compiled again. But all devices come to runs in one order, so the first to come gives a run its turn.
 */
enum { TURNS = 1024 };
struct turns {
	int64_t last;	     /* turn that was given; guarded by the group's lock, as the rest */
	int64_t runs[TURNS]; /* by turn, the last so many */
	int64_t of[];	     /* by rank: the turn of its latest call */
};

/* Comms for the group's first crew, or its next. 0 or a code with a sentence of the library's. */
int crew_join(struct world *world, int group);
void crew_leave(struct crew *crew, int nranks); /* and all older ones */

/* Before the call is read: what streams cannot do; behind it: what the result holds before is there, as both have one buffer. */
struct ffi_error *device_check(struct ffi_frame *frame, enum kind kind, const struct call *call);
struct ffi_error *device_queue(
	struct ffi_frame *frame, const struct visit *visit, const struct call *call);
/* This rank will not come: the others' kernels end, and their next run hears why. */
void device_refuse(const struct visit *visit, enum kind kind, const char *why);
/* The failure of a call of the group that no run was told yet, with its sentence; 0: none. */
int device_status(struct world *world, int group, char *why, size_t size);

#endif
