/* SPDX-License-Identifier: MIT */
#ifndef SPMT_VIEW_H
#define SPMT_VIEW_H

#include "spmt/comm/comm.h"

/* This rank's library area. */
static inline char *comm_own(const spmt_comm *comm)
{
	const struct link *self = &comm->links[comm->rank];

	return comm->lane_area ? comm->lane_area : link_at(self, self->own);
}

/* 0, or SPMT_ERR_UNSUPPORTED and a sentence where some rank's kernels do not reach some peer: the same on all ranks. */
int view_whole(const spmt_comm *comm, const char *what);
/* SPMT_ERR_UNSUPPORTED on such a comm, for kernels that do not know of this. */
int view_too_old(const spmt_comm *comm, const char *what) __attribute__((cold));
void view_prepare(spmt_comm *comm); /* once the links are attached */
bool view_multicast_wanted(void);   /* SPMT_MULTICAST=1 */
/* Where kernels reach `bytes` at `offset` of the heaps of all ranks at once; or, with address NULL, whether there can be such a place, which
   makes none. A code and the sentence why not. */
int view_multicast(spmt_comm *comm, uint64_t offset, uint64_t bytes, uint64_t *address);
void view_fill(spmt_comm *comm, struct spmt_view *view);

#endif
