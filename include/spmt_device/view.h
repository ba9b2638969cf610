/* SPDX-License-Identifier: MIT */
/* A kernel's view of its world: who and where. */
#ifndef SPMTD_VIEW_H
#define SPMTD_VIEW_H

#include "scope.h"

SPMTD_BEGIN

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

/* pe has no address here: the host does what is done there (fifo.h). */
SPMTD_FN int spmtd_is_far_(const struct spmt_view *v, int pe)
{
	return !v->stride && !v->peers[pe].base;
}

/* Of a registered buffer: likewise, and what a post names then. */
SPMTD_FN int spmtd_mem_is_far_(const struct spmt_mem_view *m, int pe)
{
	return m->far && !m->peers[pe].base;
}

SPMTD_FN uint64_t spmtd_mem_offset_(const struct spmt_mem_view *m, size_t off, int pe)
{
	return m->far[pe] + off;
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

/* An address whose stores reach all ranks at once; NULL: there is none. */
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
