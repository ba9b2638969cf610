/* SPDX-License-Identifier: MIT */
/* Worlds that are open: devices of XLA as ranks of libspmt, in groups. */
#ifndef SPMT_XLA_WORLD_H
#define SPMT_XLA_WORLD_H

#include <pthread.h>
#include <spmt.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bindings/jax/work.h"

struct group {
	pthread_mutex_t
		issue; /* guards the order of calls on comms, and comms; nobody waits for a peer under it */
	spmt_comm **
		comms; /* by rank; NULL while the group has none, as the last failed to be made anew */
	_Atomic bool broken; /* comms have to be made anew before the next call */
	/* in streams, guarded by the same lock; then there are no comms here */
	struct crew *crew;
	struct turns *turns;
	bool renewing; /* a thread makes the next one */
	pthread_cond_t renewed;
};

struct world {
	struct world *next; /* of the table */
	int64_t id, timeout_ms;
	int ngroups, nranks;
	int32_t *devices; /* ordinals, by group and rank */
	char backend[8];
	size_t heap_size;
	bool host;    /* devices are of the host backend */
	bool streams; /* calls are queued in the programs' streams; else they meet in rooms */
	int refs;     /* guarded by the table's lock: the table's own, and one a call under way */
	_Atomic bool closed; /* takes no more calls */
	struct group *groups;
	struct work work;
};

/* The world, held until xla_world_put; NULL: none is open by that name. */
struct world *xla_world_get(int64_t id);
void xla_world_hold(struct world *world);
void xla_world_put(struct world *world);
/* Of a device: its group and rank; -1: it is not in the world. */
int xla_world_place(const struct world *world, int32_t device, int *rank);
int32_t xla_world_device(const struct world *world, int group, int rank);
/* A comm of each rank of the group. 0 or a code with a sentence of the library's. */
int xla_world_join(const struct world *world, int group, spmt_comm **comms);
/* Under group->issue: comms that work. 0 or a code. */
int xla_world_renew(struct world *world, int group);

#endif
