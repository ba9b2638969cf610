/* SPDX-License-Identifier: MIT */
/* Barrier and sync of all ranks. */
#ifndef SPMTD_SYNC_H
#define SPMTD_SYNC_H

#include "fifo.h"

SPMTD_BEGIN

/* ---- barrier and sync ----------------------------------------------------------------------- */

/*
 * Each rank has a slot in every other's library area and counts its arrivals there; all wait until
 * every slot of their own has come to their epoch. An arrival is an add, which needs no look at the
 * epoch first: that look takes a third of a microsecond and now passes while the arrivals travel.
 * A peer without an address gets the number itself: a post may find no place, and the next one then
 * makes up for it, though the rank's next quiet or barrier still tells of the post. Where the wait fails the arrivals are taken back and the epoch stays: a later call
 * begins the same meeting again, whoever has seen them.
 */
/* Where the counters of a meeting lie in every rank's library area: `step` bytes from one writer's to the
   next; and this rank's epoch. */
struct spmtd_session_ {
	uint64_t first, step, epoch;
};

#define SPMTD_LINE 64u
/* Not one of the sessions by index. */
enum { SPMTD_WORLD_ = -1 };

SPMTD_FN uint64_t spmtd_session_size_(int npes)
{
	return ((uint64_t)(uint32_t)npes * sizeof(uint64_t) + SPMTD_LINE - 1) / SPMTD_LINE *
		SPMTD_LINE;
}

SPMTD_FN struct spmtd_session_ spmtd_session_of_(const struct spmt_view *v, int64_t index)
{
	struct spmtd_session_ s;

	if (index == SPMTD_WORLD_) {
		s.first = sizeof(struct spmtd_own);
		s.step = sizeof(struct spmtd_inbox);
		s.epoch = 0;
	} else {
		s.first = v->sessions + (uint64_t)index * spmtd_session_size_(v->npes);
		s.step = sizeof(uint64_t);
		s.epoch = s.first + (uint64_t)(uint32_t)v->pe * s.step;
	}
	return s;
}

/* What `writer` has arrived, in the library area at `own`. */
SPMTD_FN uint64_t spmtd_arrived_(struct spmtd_session_ s, uint64_t own, int writer)
{
	return own + s.first + (uint64_t)(uint32_t)writer * s.step;
}

SPMTD_FN uint64_t spmtd_own_there_(const struct spmt_view *v, int pe)
{
	return v->stride ? spmtd_there_(v, v->own, pe) : v->peers[pe].own;
}

SPMTD_FN uint64_t spmtd_epoch_of_(const struct spmt_view *v, struct spmtd_session_ s)
{
	return spmtd_peek64_(spmtd_at_(v->own) + s.epoch);
}

SPMTD_FN uint64_t spmtd_epoch_(const struct spmt_view *v)
{
	return spmtd_epoch_of_(v, spmtd_session_of_(v, SPMTD_WORLD_));
}

SPMTD_FN void spmtd_epoch_set_(const struct spmt_view *v, struct spmtd_session_ s, uint64_t epoch)
{
	spmtd_poke64_(spmtd_at_(v->own) + s.epoch, epoch);
}

/* by: 1, or -1 to take it back. */
SPMTD_FN void spmtd_sync_post_(
	const struct spmt_view *v, struct spmtd_session_ s, int by, int scope)
{
	int lane = (int)spmtd_lane_(scope), lanes = (int)spmtd_lanes_(scope);
	int most = (int)spmtd_warp_size_();

	if (!spmtd_posts_(scope))
		return;
	if (lanes > most)
		lanes = most;
	SPMTD_ROLLED for (int pe = lane; pe < v->npes; pe += lanes)
	{
		uint64_t at;

		if (pe == v->pe)
			continue;
		at = spmtd_arrived_(s, spmtd_own_there_(v, pe), v->pe);
		if (spmtd_is_far_(v, pe)) {
			spmtd_far_signal_(
				v, at, spmtd_epoch_of_(v, s) + (by > 0), SPMT_SIGNAL_SET, pe, 0);
			continue;
		}
		spmtd_noret_add64_(at, (uint64_t)(int64_t)by);
		spmtd_wake_(v, pe);
	}
}

SPMTD_FN int spmtd_sync_await_(const struct spmt_view *v, struct spmtd_session_ s, uint64_t epoch,
	int lane, int lanes, int what)
{
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	SPMTD_ROLLED for (int pe = lane; pe < v->npes && !rc; pe += lanes) if (pe != v->pe) rc =
		spmtd_await_(v, &w, SPMTD_KIND_W_, 64, spmtd_arrived_(s, spmtd_at_(v->own), pe), 0,
			epoch, what, pe);
	spmtd_wait_end_(v, &w);
	return rc;
}

/* What a barrier does before it arrives: all that the scope's threads have done is where it goes. */
SPMTD_FN int spmtd_session_settle_(const struct spmt_view *v, int scope)
{
	int rc;

	spmtd_settle_();
	spmtd_meet_(scope);
	rc = spmtd_quiet_others_(v, scope);
	if (!rc && (int)spmtd_lane_(scope) < v->npes && spmtd_posts_(scope))
		spmtd_complete_();
	return rc;
}

/* lasting: where the wait fails the arrival stays and the epoch goes on, for meetings that nobody
   begins again: who is missing can then be told from who gave up at the same time. */
SPMTD_FN int spmtd_session_join_(
	const struct spmt_view *v, struct spmtd_session_ s, int scope, int what, int lasting)
{
	int lane = (int)spmtd_lane_(scope), lanes = (int)spmtd_lanes_(scope), rc = 0;
	uint64_t epoch = 0;

	if (lane < v->npes) {
		spmtd_sync_post_(v, s, 1, scope);
		epoch = spmtd_epoch_of_(v, s) + 1;
		rc = spmtd_sync_await_(v, s, epoch, lane, lanes, what);
	}
	if (scope != SPMTD_THREAD_) {
		rc = spmtd_agree_(rc, scope);
		spmtd_acquired_(); /* by those who did not look, too */
	}
	if (rc && !lasting)
		spmtd_sync_post_(v, s, -1, scope);
	else if (lane == 0)
		spmtd_epoch_set_(v, s, epoch);
	return rc;
}

SPMTD_FN int spmtd_session_meet_(
	const struct spmt_view *v, struct spmtd_session_ s, int scope, int what)
{
	int rc = 0;

	if (what == SPMTD_WHAT_BARRIER)
		rc = spmtd_session_settle_(v, scope);
	else
		spmtd_meet_(scope);
	return rc ? rc : spmtd_session_join_(v, s, scope, what, 0);
}

/* Takes back the last meeting that did take place, for a call that was of two and failed in its second: so that it begins with the first when it
   is called again, as it does on ranks that failed there. By all threads of the scope. */
SPMTD_FN void spmtd_session_undo_(const struct spmt_view *v, struct spmtd_session_ s, int scope)
{
	if (spmtd_lane_(scope) == 0)
		spmtd_epoch_set_(v, s, spmtd_epoch_of_(v, s) - 1);
	spmtd_meet_(scope);
	spmtd_sync_post_(v, s, -1, scope);
}

SPMTD_FN int spmtd_sync_(const struct spmt_view *v, int scope, int what)
{
	return spmtd_session_meet_(v, spmtd_session_of_(v, SPMTD_WORLD_), scope, what);
}

/* Whether there is such a session; SPMTD_WORLD_ is one. */
SPMTD_FN int spmtd_session_is_(const struct spmt_view *v, int64_t index)
{
	return index < (int64_t)v->nsessions;
}

SPMTD_FN int spmtd_meet_at_(const struct spmt_view *v, int64_t index, int scope, int what)
{
	if (!spmtd_session_is_(v, index))
		return SPMTD_INVALID;
	return spmtd_session_meet_(v, spmtd_session_of_(v, index), scope, what);
}

/* One thread, warp or block of each rank takes part. 0, or the code that ended the wait, the
   same for all threads of the scope. */
SPMTD_FN int spmtd_sync(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_THREAD_, SPMTD_WHAT_SYNC);
}

SPMTD_FN int spmtd_sync_warp(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_WARP_, SPMTD_WHAT_SYNC);
}

SPMTD_FN int spmtd_sync_block(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_BLOCK_, SPMTD_WHAT_SYNC);
}

SPMTD_FN int spmtd_barrier(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_THREAD_, SPMTD_WHAT_BARRIER);
}

SPMTD_FN int spmtd_barrier_warp(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_WARP_, SPMTD_WHAT_BARRIER);
}

SPMTD_FN int spmtd_barrier_block(const struct spmt_view *v)
{
	return spmtd_sync_(v, SPMTD_BLOCK_, SPMTD_WHAT_BARRIER);
}

/* A sync in two halves, by one thread: each arrive is followed by one wait before the next
   arrive, sync or barrier. */
SPMTD_FN void spmtd_sync_arrive(const struct spmt_view *v)
{
	struct spmtd_session_ s = spmtd_session_of_(v, SPMTD_WORLD_);

	spmtd_sync_post_(v, s, 1, SPMTD_THREAD_);
	spmtd_epoch_set_(v, s, spmtd_epoch_of_(v, s) + 1);
}

SPMTD_FN int spmtd_sync_wait(const struct spmt_view *v)
{
	struct spmtd_session_ s = spmtd_session_of_(v, SPMTD_WORLD_);

	return spmtd_sync_await_(v, s, spmtd_epoch_of_(v, s), 0, 1, SPMTD_WHAT_SYNC);
}

/*
 * The same in barrier sessions, 0 .. SPMT_CAP_BARRIERS - 1, each independent of the others and of the calls without
 * a session: so blocks of one index meet on all ranks whatever the others do. One thread, warp or block of a
 * rank is in a session at a time. SPMTD_INVALID: there is no such session, and nobody has been told of an arrival.
 */
#define SPMTD_SESSIONS(suffix, scope)                                                    \
	SPMTD_FN int spmtd_sync_at##suffix(const struct spmt_view *v, uint32_t index)    \
	{                                                                                \
		return spmtd_meet_at_(v, (int64_t)index, scope, SPMTD_WHAT_SYNC);        \
	}                                                                                \
	SPMTD_FN int spmtd_barrier_at##suffix(const struct spmt_view *v, uint32_t index) \
	{                                                                                \
		return spmtd_meet_at_(v, (int64_t)index, scope, SPMTD_WHAT_BARRIER);     \
	}
SPMTD_SESSIONS(, SPMTD_THREAD_)
SPMTD_SESSIONS(_warp, SPMTD_WARP_)
SPMTD_SESSIONS(_block, SPMTD_BLOCK_)

SPMTD_FN void spmtd_sync_arrive_at(const struct spmt_view *v, uint32_t index)
{
	struct spmtd_session_ s = spmtd_session_of_(v, (int64_t)index);

	if (!spmtd_session_is_(v, (int64_t)index))
		return;
	spmtd_sync_post_(v, s, 1, SPMTD_THREAD_);
	spmtd_epoch_set_(v, s, spmtd_epoch_of_(v, s) + 1);
}

SPMTD_FN int spmtd_sync_wait_at(const struct spmt_view *v, uint32_t index)
{
	struct spmtd_session_ s = spmtd_session_of_(v, (int64_t)index);

	if (!spmtd_session_is_(v, (int64_t)index))
		return SPMTD_INVALID;
	return spmtd_sync_await_(v, s, spmtd_epoch_of_(v, s), 0, 1, SPMTD_WHAT_SYNC);
}

#undef SPMTD_LINE
#undef SPMTD_SESSIONS

SPMTD_END

#endif
