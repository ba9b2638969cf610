/* SPDX-License-Identifier: MIT */
/*
 * Which keys name lanes whose ranks meet in kernels, and by which library areas: of a world and all comms split from it, behind the room
 * of its control block. A lane has a row, which each process with ranks on it takes once. Rows are guarded by a word that processes
 * claim for a moment, in which they wait for nothing. Nobody has to come: the first who asks for a key decides for all.
 *
 * What another process may have written is looked at once and checked, as in control.h; a claim that does not end is given up.
 */
#ifndef SPMT_KEYS_H
#define SPMT_KEYS_H

#include "control.h"

#define KEYS_ROWS 1024

struct keys;

/* Bytes, at a multiple of CACHE_LINE. All zero, it is empty. */
size_t keys_size(void);

struct keys_want {
	uint64_t comm, key;   /* the comm's id */
	int areas;	      /* that the comm has, 1 .. KEYS_ROWS */
	int64_t most_ns;      /* to wait for the claim of another process */
	const uint32_t *stop; /* not 0: do not */
};
struct keys_place {
	int row, area;
	struct control *control; /* without rows: whether and why the lane is broken */
};
/* The whole lane that the key names, or a new one. Without a sentence: -ENOMEM: as many areas as the comm has, or all rows, are taken or
   were those of lanes that have broken. -ECANCELED: `stop`. -ETIMEDOUT: the claim. -EIO: the row has been overwritten. */
int keys_enter(struct keys *keys, const struct keys_want *want, struct keys_place *place);
/* The last process frees the row of a whole lane; the area of a broken one is in no state that ranks agree on. */
void keys_leave(struct keys *keys, int i, const uint32_t *stop);
/* Breaks the comm's lanes in all processes: others may have lanes that this one does not. The comm is known to be broken. */
void keys_break(struct keys *keys, uint64_t comm, const struct cause *cause, const uint32_t *stop);
/* What broke a comm, as its lane of that key tells it. */
void keys_cause(uint64_t key, const struct cause *comms, struct cause *cause);
/* The comm has ended on all its ranks. */
void keys_forget(struct keys *keys, uint64_t comm, const uint32_t *stop);

#endif
