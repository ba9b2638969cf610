/* SPDX-License-Identifier: MIT */
/* Switch channels: one buffer of every rank of a comm, reduced from and stored to by any of them. */
#ifndef SPMTD_SWITCH_H
#define SPMTD_SWITCH_H

#include "rma.h"
#include "terms.h"

SPMTD_BEGIN

/* ---- switch channels ------------------------------------------------------------------------ */

/*
 * s is what spmt_switch_get has filled, v the view of the same comm. Offsets are bytes, and not checked. The ranks are those of the comm:
 * for some of them alone, split it.
 *
 *	at_rank    where pe's buffer begins; NULL: there is no such rank
 *	broadcast  n bytes of src, any memory, to every rank's buffer at off, its own included, from the next rank on
 *	reduce     count elements of every rank's buffer at off, folded in rank order, to dst, any memory: the same bits whoever calls.
 *	           Types and rounding are those of the collectives
 *
 * Nothing here waits or tells: barriers, signals and channels do. _group: as of channels. Loads and stores go to each rank in turn; the
 * multicast of a switch is not used.
 */
SPMTD_FN uint64_t spmtd_switch_there_(const struct spmt_switch *s, int pe)
{
	if (s->parts)
		return s->parts[pe].base;
	return s->offset +
		(s->stride ? s->flat + (uint64_t)(uint32_t)pe * s->stride : s->peers[pe].base);
}

SPMTD_FN void *spmtd_switch_at_rank(const struct spmt_view *v, const struct spmt_switch *s, int pe)
{
	(void)v;
	return spmtd_to_(pe < 0 || pe >= s->npes ? 0 : spmtd_switch_there_(s, pe));
}

SPMTD_FN void spmtd_do_switch_broadcast_(const struct spmt_view *v, const struct spmt_switch *s,
	uint64_t off, uint64_t src, uint64_t n, int scope)
{
	spmtd_meet_(scope);
	SPMTD_ROLLED for (int i = 1; n && i <= s->npes; i++)
	{
		int pe = i < s->npes - s->pe ? s->pe + i : s->pe + i - s->npes;
		uint64_t there = spmtd_switch_there_(s, pe) + off;

		if (there == src)
			continue;
		spmtd_copy_put_(there, src, n, scope);
		spmtd_wake_(v, pe);
	}
	spmtd_meet_(scope);
}

#define SPMTD_SWITCH_BROADCAST(suffix, scope)                                       \
	SPMTD_FN void spmtd_switch_broadcast##suffix(const struct spmt_view *v,     \
		const struct spmt_switch *s, size_t off, const void *src, size_t n) \
	{                                                                           \
		spmtd_do_switch_broadcast_(v, s, off, spmtd_at_(src), n, scope);    \
	}
SPMTD_SWITCH_BROADCAST(, SPMTD_THREAD_)
SPMTD_SWITCH_BROADCAST(_warp, SPMTD_WARP_)
SPMTD_SWITCH_BROADCAST(_block, SPMTD_BLOCK_)

SPMTD_FN void spmtd_switch_broadcast_group(const struct spmt_view *v, const struct spmt_switch *s,
	size_t off, const void *src, size_t n, uint32_t index, uint32_t blocks)
{
	struct spmtd_range_ by = spmtd_share_by_(n, index, blocks);

	spmtd_do_switch_broadcast_(
		v, s, off + by.from, spmtd_at_(src) + by.from, by.n, SPMTD_BLOCK_);
}

SPMTD_FN struct spmtd_terms_ spmtd_switch_terms_(
	const struct spmt_switch *s, void *dst, uint64_t off)
{
	struct spmtd_terms_ t;

	t.channels = (const struct spmt_channel *)spmtd_to_(0);
	t.offsets = (const uint64_t *)spmtd_to_(0);
	t.peers = s->peers;
	t.parts = s->parts;
	t.flat = s->flat;
	t.stride = s->stride;
	t.at = s->offset + off;
	t.dst = spmtd_at_(dst);
	t.terms = s->npes;
	t.switched = 1;
	t.from = t.n = 0;
	t.lane = 0;
	t.lanes = 1;
	return t;
}

#define SPMTD_SWITCH_REDUCE_BY(name, T, op, OP, suffix, scope)                               \
	SPMTD_FN void spmtd_switch_##name##_##op##_reduce##suffix(const struct spmt_view *v, \
		const struct spmt_switch *s, T *dst, size_t off, size_t count)               \
	{                                                                                    \
		struct spmtd_terms_ t = spmtd_switch_terms_(s, dst, off);                    \
		(void)v;                                                                     \
		spmtd_##name##_terms_by_(&t, OP, count, scope, 0, 1);                        \
	}
#define SPMTD_SWITCH_REDUCE(name, T, op, OP)                                                   \
	SPMTD_SWITCH_REDUCE_BY(name, T, op, OP, , SPMTD_THREAD_)                               \
	SPMTD_SWITCH_REDUCE_BY(name, T, op, OP, _warp, SPMTD_WARP_)                            \
	SPMTD_SWITCH_REDUCE_BY(name, T, op, OP, _block, SPMTD_BLOCK_)                          \
	SPMTD_FN void spmtd_switch_##name##_##op##_reduce_group(const struct spmt_view *v,     \
		const struct spmt_switch *s, T *dst, size_t off, size_t count, uint32_t index, \
		uint32_t blocks)                                                               \
	{                                                                                      \
		struct spmtd_terms_ t = spmtd_switch_terms_(s, dst, off);                      \
		(void)v;                                                                       \
		spmtd_##name##_terms_by_(&t, OP, count, SPMTD_BLOCK_, index, blocks);          \
	}
SPMTD_TERM_TYPES(SPMTD_SWITCH_REDUCE)

#undef SPMTD_SWITCH_BROADCAST
#undef SPMTD_SWITCH_REDUCE_BY
#undef SPMTD_SWITCH_REDUCE

SPMTD_END

#endif
