/* SPDX-License-Identifier: MIT */
/*
 * Who takes part in a call: a thread, a warp or a block (enum spmtd_scope_). spmtd_lane_ of spmtd_lanes_ is the caller's place among them;
 * spmtd_meet_, spmtd_meet_settled_ and spmtd_agree_ are meetings of them all.
 */
#ifndef SPMTD_SCOPE_H
#define SPMTD_SCOPE_H

#include "machine.h"

SPMTD_BEGIN

/* ---- threads of a scope --------------------------------------------------------------------- */

/* The calling thread in its block, and how many there are. */
SPMTD_FN uint32_t spmtd_tid_(void)
{
#if defined(SPMTD_HOST)
	return 0;
#else
	return spmtd_tid_x_() +
		spmtd_ntid_x_() * (spmtd_tid_y_() + spmtd_ntid_y_() * spmtd_tid_z_());
#endif
}

SPMTD_FN uint32_t spmtd_threads_(void)
{
#if defined(SPMTD_HOST)
	return 1;
#else
	return spmtd_ntid_x_() * spmtd_ntid_y_() * spmtd_ntid_z_();
#endif
}

SPMTD_FN uint32_t spmtd_lane_(int scope)
{
#if defined(SPMTD_HOST)
	(void)scope;
	return 0;
#else
	if (scope == SPMTD_THREAD_)
		return 0;
	return scope == SPMTD_WARP_ ? spmtd_tid_() % spmtd_warp_size_() : spmtd_tid_();
#endif
}

/* A block's last warp may be short. */
SPMTD_FN uint32_t spmtd_lanes_(int scope)
{
#if defined(SPMTD_HOST)
	(void)scope;
	return 1;
#else
	uint32_t size = spmtd_warp_size_(), left;

	if (scope == SPMTD_THREAD_)
		return 1;
	if (scope == SPMTD_BLOCK_)
		return spmtd_threads_();
	left = spmtd_threads_() - spmtd_tid_() / size * size;
	return left < size ? left : size;
#endif
}

SPMTD_FN void spmtd_meet_(int scope)
{
	if (scope == SPMTD_WARP_)
		spmtd_meet_warp_();
	else if (scope == SPMTD_BLOCK_)
		spmtd_meet_block_();
}

/* After it one thread's release covers what all threads of the scope have stored. */
SPMTD_FN void spmtd_meet_settled_(int scope)
{
	if (scope != SPMTD_THREAD_)
		spmtd_settle_();
	spmtd_meet_(scope);
}

/* One code for all threads of the scope; an abort, the least, outdoes a timeout. Then what one of
   them has seen is before all that any does next: a warp's vote alone orders no memory. */
SPMTD_FN int spmtd_agree_(int code, int scope)
{
	if (scope == SPMTD_WARP_) {
#if defined(SPMTD_REDUX) /* between GPUs two votes took a sync of a warp 0.15 us more */
		code = spmtd_least_warp_(code);
#else
		if (spmtd_any_warp_(code))
			code = spmtd_any_warp_(code == SPMTD_ABORTED) ? SPMTD_ABORTED
								      : SPMTD_TIMEOUT;
#endif
		spmtd_meet_warp_();
		return code;
	}
	if (scope == SPMTD_BLOCK_) {
		if (!spmtd_any_block_(code))
			return 0;
		return spmtd_any_block_(code == SPMTD_ABORTED) ? SPMTD_ABORTED : SPMTD_TIMEOUT;
	}
	return code;
}

SPMTD_END

#endif
