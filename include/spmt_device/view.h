/* SPDX-License-Identifier: MIT */
/*
 * A kernel's view of its world: who and where; and who takes part in a call: a thread, a warp or a block (enum spmtd_scope_). spmtd_lane_ of
 * spmtd_lanes_ is the caller's place among them; spmtd_meet_, spmtd_meet_settled_ and spmtd_agree_ are meetings of them all.
 */
#ifndef SPMTD_VIEW_H
#define SPMTD_VIEW_H

#include "machine.h"

SPMTD_BEGIN

/* ---- threads of a scope --------------------------------------------------------------------- */

/* The calling thread in its block, and how many there are. The library's own kernels have blocks of one dimension. */
SPMTD_FN uint32_t spmtd_tid_(void)
{
#if defined(SPMTD_HOST)
	return 0;
#elif defined(SPMTD_ROWS_)
	return spmtd_tid_x_();
#else
	return spmtd_tid_x_() +
		spmtd_ntid_x_() * (spmtd_tid_y_() + spmtd_ntid_y_() * spmtd_tid_z_());
#endif
}

SPMTD_FN uint32_t spmtd_threads_(void)
{
#if defined(SPMTD_HOST)
	return 1;
#elif defined(SPMTD_ROWS_)
	return spmtd_ntid_x_();
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

/* One code for all threads of the scope, of 0 and those of waits: an abort, the least, outdoes a timeout. Votes make a timeout of any other
   code, so that none may come here. Then what one of them has seen is before all that any does next: a warp's vote alone orders no memory. */
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

/* ---- who and where -------------------------------------------------------------------------- */

SPMTD_FN int spmtd_my_pe(const struct spmt_view *v)
{
	return v->pe;
}

SPMTD_FN int spmtd_n_pes(const struct spmt_view *v)
{
	return v->npes;
}

SPMTD_FN uint64_t spmtd_base_(const struct spmt_view *v, int pe)
{
	return v->stride ? v->flat + (uint64_t)(uint32_t)pe * v->stride : v->peers[pe].base;
}

SPMTD_FN uint64_t spmtd_there_(const struct spmt_view *v, const volatile void *sym, int pe)
{
	return spmtd_base_(v, pe) + (spmtd_at_(sym) - v->base);
}

SPMTD_FN uint64_t spmtd_mem_there_(const struct spmt_mem_view *m, size_t off, int pe)
{
	return m->peers[pe].base + off;
}

/*
 * What the host is asked by where some peer has no address (fifo.h); 0: all have one. Constant with SPMTD_NEAR, for kernels that are only
 * started where they have: with SPMT_NEAR (spmt_device.h), and the library's own.
 */
SPMTD_FN uint64_t spmtd_fifo_(const struct spmt_view *v)
{
#if defined(SPMTD_NEAR)
	(void)v;
	return 0;
#else
	return spmtd_at_(v->fifo);
#endif
}

/* pe has no address here. */
SPMTD_FN int spmtd_is_far_(const struct spmt_view *v, int pe)
{
#if defined(SPMTD_NEAR)
	(void)v, (void)pe;
	return 0;
#else
	return !v->stride && !v->peers[pe].base;
#endif
}

/* Of a registered buffer: where each part begins, for posts, and whether pe's has no address; likewise. */
SPMTD_FN const uint64_t *spmtd_mem_far_(const struct spmt_mem_view *m)
{
#if defined(SPMTD_NEAR)
	(void)m;
	return (const uint64_t *)spmtd_to_(0);
#else
	return m->far;
#endif
}

SPMTD_FN int spmtd_mem_is_far_(const struct spmt_mem_view *m, int pe)
{
	return spmtd_mem_far_(m) && !m->peers[pe].base;
}

SPMTD_FN uint64_t spmtd_mem_offset_(const struct spmt_mem_view *m, size_t off, int pe)
{
	return spmtd_mem_far_(m)[pe] + off;
}

/* The address at which pe's copy of `sym` can be loaded and stored; NULL: pe out of range, not
   in the heap, not reachable. */
SPMTD_FN void *spmtd_ptr(const struct spmt_view *v, const void *sym, int pe)
{
	uint64_t off = spmtd_at_(sym) - v->base, base;

	if (pe < 0 || pe >= v->npes || off >= v->heap_size)
		return spmtd_to_(0);
	base = spmtd_base_(v, pe);
	return spmtd_to_(base ? base + off : 0);
}

/* Where pe's part of a registered buffer begins; NULL: pe out of range, no part, not reachable. */
SPMTD_FN void *spmtd_mem_ptr(const struct spmt_mem_view *m, int pe)
{
	return spmtd_to_(pe < 0 || pe >= m->npes ? 0 : m->peers[pe].base);
}

/* An address whose stores reach all ranks at once, as NVSHMEM has it: NULL, since here a switch's multicast is reached through switch channels
   alone (spmt_switch_get). */
SPMTD_FN void *spmtd_mc_ptr(const struct spmt_view *v, const void *sym)
{
	(void)v;
	(void)sym;
	return spmtd_to_(0);
}

SPMTD_FN void spmtd_wake_(const struct spmt_view *v, int pe)
{
#if defined(SPMTD_HOST)
	if (v->host)
		v->host->wake(v, pe);
#else
	(void)v;
	(void)pe;
#endif
}

SPMTD_END

#endif
