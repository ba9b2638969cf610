/* SPDX-License-Identifier: MIT */
#ifndef SPMT_COLLECTIVE_H
#define SPMT_COLLECTIVE_H

#include "spmt/comm/comm.h"

#define COLL_STAGE (1u << 20)	 /* bytes, either way, where ranks live in several processes */
#define SPLIT_STAGE (128u << 10) /* the same of a comm split from another */
/* Bytes of a slot (coll/table.h), where all slots of a rank may take `most`. */
#define COLL_SLOTS (1u << 20)
#define SPLIT_SLOTS (64u << 10)
#define SPLITS_ROOM \
	(4u << 20) /* for the areas of comms split from a world; then they take from the heap */
uint32_t coll_room(const spmt_comm *comm, uint64_t most);

/* For collectives of the comm the algorithm of this name, where it fits; NULL: no wish. */
int coll_wish(spmt_comm *comm, const char *name);

#endif
