/* SPDX-License-Identifier: MIT */
/*
 * Registered buffers across processes: each rank names the allocation that holds its buffer, the ranks
 * of other processes map it. What lies in the symmetric heap is mapped already and is not named again.
 */
#ifndef SPMT_SHARE_H
#define SPMT_SHARE_H

#include "spmt/comm/comm.h"

#define SHARE_WHY 192

/* What this rank knows of one rank's buffer; kept in an array by rank. */
struct share {
	struct device_export export; /* kind DEVICE_EXPORT_NONE: not named */
	void *base;		     /* where it is mapped here; NULL: it is not */
	char why[SHARE_WHY];	     /* why it is not named, or not mapped; "": no need */
};

/* Before the meeting of a registration: names this rank's buffer in it. If it cannot be named,
   that is no failure: the others get the reason. Out of memory or descriptors is one. */
int share_offer(spmt_comm *comm, void *buf, size_t size);
/* After that meeting: takes what the others said, maps it, and meets again if any rank has named its buffer. If one cannot be mapped,
   that is no failure either, except for want of memory or descriptors, which fails every rank: then nothing is mapped. */
int share_accept(spmt_comm *comm, struct share *shares);
/* Instead of share_accept, when the meeting has failed. */
void share_withdraw(spmt_comm *comm);
/* Unmaps the buffers. This rank has nothing in flight. */
void share_drop(spmt_comm *comm, struct share *shares);
/* Whether any rank has named a buffer: equal on all ranks. */
bool share_any(const spmt_comm *comm, const struct share *shares);

#endif
