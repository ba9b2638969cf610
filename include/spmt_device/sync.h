/* SPDX-License-Identifier: MIT */
/* Barrier and sync of all ranks. */
#ifndef SPMTD_SYNC_H
#define SPMTD_SYNC_H

#include "wait.h"

SPMTD_BEGIN

/* ---- barrier and sync ----------------------------------------------------------------------- */

/*
 * Each rank has a slot in every other's library area and counts its arrivals there; all wait until
 * every slot of their own has come to their epoch. An arrival is an add, which needs no look at the
 * epoch first: that look takes a third of a microsecond and now passes while the arrivals travel.
 * Where the wait fails the arrivals are taken back and the epoch stays: a later call begins the same
 * meeting again, whoever has seen them.
 */
/* This rank's slot at pe. */
SPMTD_FN struct spmtd_inbox *spmtd_outbox_(const struct spmt_view *v, int pe)
{
	return spmtd_inbox_at_(v->stride ? spmtd_there_(v, v->own, pe) : v->peers[pe].own, v->pe);
}

SPMTD_FN uint64_t spmtd_epoch_(const struct spmt_view *v)
{
	return spmtd_peek64_(spmtd_at_(&v->own->sync_epoch));
}

SPMTD_FN void spmtd_epoch_set_(const struct spmt_view *v, uint64_t epoch)
{
	spmtd_poke64_(spmtd_at_(&v->own->sync_epoch), epoch);
}

/* by: 1, or -1 to take it back. */
SPMTD_FN void spmtd_sync_post_(const struct spmt_view *v, int by, int scope)
{
	int lane = (int)spmtd_lane_(scope), lanes = (int)spmtd_lanes_(scope);
	int most = (int)spmtd_warp_size_();

	if (!spmtd_posts_(scope))
		return;
	if (lanes > most)
		lanes = most;
	SPMTD_ROLLED for (int pe = lane; pe < v->npes; pe += lanes)
	{
		if (pe == v->pe)
			continue;
		spmtd_tell_add64_(spmtd_at_(&spmtd_outbox_(v, pe)->sync), (uint64_t)(int64_t)by);
		spmtd_wake_(v, pe);
	}
}

SPMTD_FN int spmtd_sync_await_(
	const struct spmt_view *v, uint64_t epoch, int lane, int lanes, int what)
{
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	SPMTD_ROLLED for (int pe = lane; pe < v->npes && !rc; pe += lanes) if (pe != v->pe) rc =
		spmtd_await_(v, &w, SPMTD_KIND_W_, 64, spmtd_at_(&spmtd_inbox_(v, pe)->sync), 0,
			epoch, what, pe);
	spmtd_wait_end_(v, &w);
	return rc;
}

/* lasting: where the wait fails the arrival stays and the epoch goes on, for meetings that nobody
   begins again: who is missing can then be told from who gave up at the same time. */
SPMTD_FN int spmtd_sync_(const struct spmt_view *v, int scope, int what, int lasting)
{
	int lane = (int)spmtd_lane_(scope), lanes = (int)spmtd_lanes_(scope), rc = 0;
	uint64_t epoch = 0;

	if (what == SPMTD_WHAT_BARRIER)
		spmtd_settle_();
	spmtd_meet_(scope);
	if (lane < v->npes) {
		if (what == SPMTD_WHAT_BARRIER && spmtd_posts_(scope))
			spmtd_complete_();
		spmtd_sync_post_(v, 1, scope);
		epoch = spmtd_epoch_(v) + 1;
		rc = spmtd_sync_await_(v, epoch, lane, lanes, what);
	}
	if (scope != SPMTD_THREAD_) {
		rc = spmtd_agree_(rc, scope);
		spmtd_acquired_(); /* by those who did not look, too */
	}
	if (rc && !lasting)
		spmtd_sync_post_(v, -1, scope);
	else if (lane == 0)
		spmtd_epoch_set_(v, epoch);
	return rc;
}

/* One thread, warp or block of each rank takes part. 0, or the code that ended the wait, the
   same for all threads of the scope. */
SPMTD_FN int spmtd_sync(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_THREAD_, SPMTD_WHAT_SYNC, 0);
}

SPMTD_FN int spmtd_sync_warp(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_WARP_, SPMTD_WHAT_SYNC, 0);
}

SPMTD_FN int spmtd_sync_block(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_BLOCK_, SPMTD_WHAT_SYNC, 0);
}

SPMTD_FN int spmtd_barrier(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_THREAD_, SPMTD_WHAT_BARRIER, 0);
}

SPMTD_FN int spmtd_barrier_warp(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_WARP_, SPMTD_WHAT_BARRIER, 0);
}

SPMTD_FN int spmtd_barrier_block(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_BLOCK_, SPMTD_WHAT_BARRIER, 0);
}

/* A sync in two halves, by one thread: each arrive is followed by one wait before the next
   arrive, sync or barrier. */
SPMTD_FN void spmtd_sync_arrive(const struct spmt_view *v)
{
	spmtd_sync_post_(v, 1, SPMTD_THREAD_);
	spmtd_epoch_set_(v, spmtd_epoch_(v) + 1);
}

SPMTD_FN int spmtd_sync_wait(const struct spmt_view *v)
{
	return spmtd_sync_await_(v, spmtd_epoch_(v), 0, 1, SPMTD_WHAT_SYNC);
}

SPMTD_END

#endif
