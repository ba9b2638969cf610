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
/* SPMT_ERR_UNSUPPORTED: of a comm where that is so, for kernels that do not know of it. */
int view_too_old(const spmt_comm *comm, const char *what) __attribute__((cold));
void view_prepare(spmt_comm *comm); /* once the links are attached */
void view_fill(spmt_comm *comm, struct spmt_view *view);

#endif
