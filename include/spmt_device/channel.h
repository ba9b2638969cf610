/* SPDX-License-Identifier: MIT */
/* Channels: puts, gets, packets and reductions between two ranks' buffers by offset, and signals that count. */
#ifndef SPMTD_CHANNEL_H
#define SPMTD_CHANNEL_H

#include "packet.h"
#include "rma.h"
#include "terms.h"
#include "waitby.h"

SPMTD_BEGIN

/* ---- channels ------------------------------------------------------------------------------- */

/*
 * c is what spmt_channel_get has filled, v the view of the same comm. `local` is this rank's buffer, `remote` the peer's, `incoming`
 * this rank's own copy of what `remote` is: where the peer's puts come if it names the same buffer. Offsets are bytes, and not
 * checked. Calls are by a thread, _warp or _block as everywhere; _group is one transfer by `blocks` blocks, each of which calls with its
 * index, and none waits for another, but as packet.h says of AMD GPUs; _each is one of packets by `threads` threads, likewise (packet.h).
 *
 *	signal          the peer's counter rises by 1, behind all that the calling thread or, with data_sync BEFORE, its warp or block
 *	                has put. _relaxed: without that order
 *	wait            for one more signal than before; 0, or the code of a wait, after which the next wait is for the same one.
 *	                _relaxed: what was put before the signal need not be seen
 *	poll            1: a signal had come, and this was the wait for it; else 0 at once
 *	put             n bytes of local, from src_off on, to remote at dst_off; put_signal: and then a signal
 *	get             n bytes of remote, from src_off on, to local at dst_off
 *	put_packets     size bytes of local as packets (packet.h) to remote at dst_off; of any size, as packet.h has it
 *	unpack_packets  waits for each packet at src_off of incoming, and stores its data in local at dst_off
 *	read_put_packets  waits for each packet at src_off of incoming, and sends it on to remote at dst_off
 *	reduce          dst: count elements of `own`, folded with those at offsets[i] of channels[i]'s remote, in this order, for n
 *	                channels. dst is any memory that the threads may store to, `own` itself or a peer's; types and rounding are those of
 *	                the collectives
 *
 * One thread, warp or block at a time waits or polls through a channel. Any number may signal.
 *
 * data_sync, enum spmtd_data_sync: one thread of a warp or block signals or waits, and this says when all meet: before, after, both, or not
 * at all. Without AFTER the threads that do not wait themselves get 0, and may not yet touch the data waited for.
 */
SPMTD_FN void spmtd_do_channel_signal_(const struct spmt_view *v, const struct spmt_channel *c,
	int data_sync, int relaxed, int scope)
{
	if (data_sync & SPMTD_DATA_SYNC_BEFORE)
		spmtd_meet_settled_(scope);
	if (spmtd_lane_(scope) == 0) {
		if (relaxed)
			spmtd_noret_add64_(c->there, 1);
		else
			spmtd_release_add_(c->there, 1);
		spmtd_wake_(v, c->peer);
	}
	if (data_sync & SPMTD_DATA_SYNC_AFTER)
		spmtd_meet_(scope);
}

/* What has arrived is compared as numbers that only rise, and may wrap. */
struct spmtd_counts_ {
	uint64_t arrived, expected; /* addresses */
	int peer, what;
};

SPMTD_FN struct spmtd_counts_ spmtd_channel_counts_(const struct spmt_channel *c)
{
	struct spmtd_counts_ n;

	n.arrived = c->arrived;
	n.expected = c->expected;
	n.peer = c->peer;
	n.what = SPMTD_WHAT_CHANNEL;
	return n;
}

SPMTD_FN int spmtd_channel_has_(
	struct spmtd_counts_ c, uint64_t expected, int relaxed, uint64_t *seen)
{
	*seen = relaxed ? spmtd_peek64_(c.arrived) : spmtd_look64_(c.arrived);
	return spmtd_holds_(SPMTD_KIND_W_, *seen, 0, expected);
}

SPMTD_FN int spmtd_channel_await_(const struct spmt_view *v, struct spmtd_counts_ c, int relaxed)
{
	uint64_t expected = spmtd_peek64_(c.expected) + 1, seen;
	struct spmtd_waiter_ w;
	int rc = 0;

	/* Before the wait, so that a signal which follows it, and waits for all stores of its thread, need not wait for this one. */
	spmtd_poke64_(c.expected, expected);
	spmtd_wait_begin_(&w);
	while (!spmtd_channel_has_(c, expected, relaxed, &seen)) {
		rc = spmtd_wait_check_(v, &w);
		if (rc) {
			spmtd_record_(v, rc, c.what, c.peer, c.arrived, expected, seen);
			break;
		}
	}
	spmtd_wait_rest_(v, &w);
	if (rc)
		spmtd_poke64_(c.expected, expected - 1);
	return rc;
}

SPMTD_FN int spmtd_do_channel_wait_(
	const struct spmt_view *v, struct spmtd_counts_ c, int data_sync, int relaxed, int scope)
{
	int rc = 0;

	if (data_sync & SPMTD_DATA_SYNC_BEFORE)
		spmtd_meet_(scope);
	if (spmtd_lane_(scope) == 0)
		rc = spmtd_channel_await_(v, c, relaxed);
	if (data_sync & SPMTD_DATA_SYNC_AFTER)
		rc = spmtd_agree_(rc, scope);
	if (!relaxed)
		spmtd_acquired_(); /* by those who did not look, too */
	return rc;
}

SPMTD_FN int spmtd_do_channel_poll_(struct spmtd_counts_ c, int scope)
{
	int came = 0;

	spmtd_meet_(scope);
	if (spmtd_lane_(scope) == 0) {
		uint64_t expected = spmtd_peek64_(c.expected) + 1, seen;

		came = spmtd_channel_has_(c, expected, 0, &seen);
		if (came)
			spmtd_poke64_(c.expected, expected);
	}
	came = spmtd_vote_(came, scope);
	spmtd_meet_(scope);
	spmtd_acquired_();
	return came;
}

SPMTD_FN void spmtd_channel_signal(const struct spmt_view *v, const struct spmt_channel *c)
{
	spmtd_do_channel_signal_(v, c, SPMTD_DATA_SYNC_NONE, 0, SPMTD_THREAD_);
}

SPMTD_FN void spmtd_channel_signal_relaxed(const struct spmt_view *v, const struct spmt_channel *c)
{
	spmtd_do_channel_signal_(v, c, SPMTD_DATA_SYNC_NONE, 1, SPMTD_THREAD_);
}

SPMTD_FN int spmtd_channel_wait(const struct spmt_view *v, const struct spmt_channel *c)
{
	return spmtd_do_channel_wait_(
		v, spmtd_channel_counts_(c), SPMTD_DATA_SYNC_NONE, 0, SPMTD_THREAD_);
}

SPMTD_FN int spmtd_channel_wait_relaxed(const struct spmt_view *v, const struct spmt_channel *c)
{
	return spmtd_do_channel_wait_(
		v, spmtd_channel_counts_(c), SPMTD_DATA_SYNC_NONE, 1, SPMTD_THREAD_);
}

#define SPMTD_CHANNEL_SIGNALS(suffix, scope)                                                     \
	SPMTD_FN void spmtd_channel_signal##suffix(                                              \
		const struct spmt_view *v, const struct spmt_channel *c, int data_sync)          \
	{                                                                                        \
		spmtd_do_channel_signal_(v, c, data_sync, 0, scope);                             \
	}                                                                                        \
	SPMTD_FN void spmtd_channel_signal_relaxed##suffix(                                      \
		const struct spmt_view *v, const struct spmt_channel *c, int data_sync)          \
	{                                                                                        \
		spmtd_do_channel_signal_(v, c, data_sync, 1, scope);                             \
	}                                                                                        \
	SPMTD_FN int spmtd_channel_wait##suffix(                                                 \
		const struct spmt_view *v, const struct spmt_channel *c, int data_sync)          \
	{                                                                                        \
		return spmtd_do_channel_wait_(v, spmtd_channel_counts_(c), data_sync, 0, scope); \
	}                                                                                        \
	SPMTD_FN int spmtd_channel_wait_relaxed##suffix(                                         \
		const struct spmt_view *v, const struct spmt_channel *c, int data_sync)          \
	{                                                                                        \
		return spmtd_do_channel_wait_(v, spmtd_channel_counts_(c), data_sync, 1, scope); \
	}
SPMTD_CHANNEL_SIGNALS(_warp, SPMTD_WARP_)
SPMTD_CHANNEL_SIGNALS(_block, SPMTD_BLOCK_)

SPMTD_FN const void *spmtd_channel_from_(uint64_t base, size_t off)
{
	return spmtd_to_(base + off);
}

SPMTD_FN void spmtd_do_channel_put_signal_(const struct spmt_view *v, const struct spmt_channel *c,
	size_t dst_off, size_t src_off, size_t n, int scope)
{
	spmtd_meet_(scope);
	if (n)
		spmtd_copy_put_(c->remote + dst_off, c->local + src_off, n, scope);
	spmtd_do_channel_signal_(v, c, SPMTD_DATA_SYNC_BEFORE, 0, scope);
}

#define SPMTD_CHANNEL_MOVES(suffix, scope)                                                       \
	SPMTD_FN int spmtd_channel_poll##suffix(                                                 \
		const struct spmt_view *v, const struct spmt_channel *c)                         \
	{                                                                                        \
		(void)v;                                                                         \
		return spmtd_do_channel_poll_(spmtd_channel_counts_(c), scope);                  \
	}                                                                                        \
	SPMTD_FN void spmtd_channel_put##suffix(const struct spmt_view *v,                       \
		const struct spmt_channel *c, size_t dst_off, size_t src_off, size_t n)          \
	{                                                                                        \
		spmtd_do_put_(v, c->remote + dst_off, spmtd_channel_from_(c->local, src_off), n, \
			c->peer, scope, 0);                                                      \
	}                                                                                        \
	SPMTD_FN void spmtd_channel_put_signal##suffix(const struct spmt_view *v,                \
		const struct spmt_channel *c, size_t dst_off, size_t src_off, size_t n)          \
	{                                                                                        \
		spmtd_do_channel_put_signal_(v, c, dst_off, src_off, n, scope);                  \
	}                                                                                        \
	SPMTD_FN void spmtd_channel_get##suffix(const struct spmt_view *v,                       \
		const struct spmt_channel *c, size_t dst_off, size_t src_off, size_t n)          \
	{                                                                                        \
		(void)v;                                                                         \
		spmtd_do_get_(spmtd_to_(c->local + dst_off), c->remote + src_off, n, scope, 0);  \
	}
SPMTD_CHANNEL_MOVES(, SPMTD_THREAD_)
SPMTD_CHANNEL_MOVES(_warp, SPMTD_WARP_)
SPMTD_CHANNEL_MOVES(_block, SPMTD_BLOCK_)

SPMTD_FN void spmtd_channel_put_group(const struct spmt_view *v, const struct spmt_channel *c,
	size_t dst_off, size_t src_off, size_t n, uint32_t index, uint32_t blocks)
{
	struct spmtd_range_ by = spmtd_share_by_(n, index, blocks);

	spmtd_channel_put_block(
		v, c, dst_off + (size_t)by.from, src_off + (size_t)by.from, (size_t)by.n);
}

SPMTD_FN void spmtd_channel_get_group(const struct spmt_view *v, const struct spmt_channel *c,
	size_t dst_off, size_t src_off, size_t n, uint32_t index, uint32_t blocks)
{
	struct spmtd_range_ by = spmtd_share_by_(n, index, blocks);

	spmtd_channel_get_block(
		v, c, dst_off + (size_t)by.from, src_off + (size_t)by.from, (size_t)by.n);
}

/* ---- channels: packets ---------------------------------------------------------------------- */

#define SPMTD_CHANNEL_PACKETS(format, suffix, scope, bytes)                                  \
	SPMTD_FN void spmtd_channel_put_##format##suffix(const struct spmt_view *v,          \
		const struct spmt_channel *c, size_t dst_off, size_t src_off, size_t size,   \
		uint32_t flag)                                                               \
	{                                                                                    \
		spmtd_do_put_packets_(v, c->remote + dst_off,                                \
			spmtd_channel_from_(c->local, src_off), size, flag, c->peer, scope,  \
			bytes);                                                              \
	}                                                                                    \
	SPMTD_FN int spmtd_channel_unpack_##format##suffix(const struct spmt_view *v,        \
		const struct spmt_channel *c, size_t dst_off, size_t src_off, size_t size,   \
		uint32_t flag)                                                               \
	{                                                                                    \
		return spmtd_do_get_packets_(v, spmtd_to_(c->local + dst_off),               \
			spmtd_channel_from_(c->incoming, src_off), size, flag, 0, -1, scope, \
			bytes);                                                              \
	}                                                                                    \
	SPMTD_FN int spmtd_channel_read_put_##format##suffix(const struct spmt_view *v,      \
		const struct spmt_channel *c, size_t dst_off, size_t src_off, size_t size,   \
		uint32_t flag)                                                               \
	{                                                                                    \
		return spmtd_do_get_packets_(v, spmtd_to_(0),                                \
			spmtd_channel_from_(c->incoming, src_off), size, flag,               \
			c->remote + dst_off, c->peer, scope, bytes);                         \
	}
#define SPMTD_CHANNEL_PACKETS_EACH(format, bytes)                                               \
	SPMTD_FN void spmtd_channel_put_##format##_each(const struct spmt_view *v,              \
		const struct spmt_channel *c, size_t dst_off, size_t src_off, size_t size,      \
		uint32_t flag, uint32_t index, uint32_t threads)                                \
	{                                                                                       \
		spmtd_do_put_packets_each_(v, c->remote + dst_off,                              \
			spmtd_channel_from_(c->local, src_off), size, flag, c->peer,            \
			spmtd_worker_at_(index, threads), bytes);                               \
	}                                                                                       \
	SPMTD_FN int spmtd_channel_unpack_##format##_each(const struct spmt_view *v,            \
		const struct spmt_channel *c, size_t dst_off, size_t src_off, size_t size,      \
		uint32_t flag, uint32_t index, uint32_t threads)                                \
	{                                                                                       \
		return spmtd_do_get_packets_each_(v, spmtd_to_(c->local + dst_off),             \
			spmtd_channel_from_(c->incoming, src_off), size, flag, 0, -1,           \
			spmtd_worker_at_(index, threads), bytes);                               \
	}                                                                                       \
	SPMTD_FN int spmtd_channel_read_put_##format##_each(const struct spmt_view *v,          \
		const struct spmt_channel *c, size_t dst_off, size_t src_off, size_t size,      \
		uint32_t flag, uint32_t index, uint32_t threads)                                \
	{                                                                                       \
		return spmtd_do_get_packets_each_(v, spmtd_to_(0),                              \
			spmtd_channel_from_(c->incoming, src_off), size, flag,                  \
			c->remote + dst_off, c->peer, spmtd_worker_at_(index, threads), bytes); \
	}
/* A share of the data is one of the packets, too, twice as far on. */
#define SPMTD_CHANNEL_PACKETS_GROUP(format)                                                   \
	SPMTD_FN void spmtd_channel_put_##format##_group(const struct spmt_view *v,           \
		const struct spmt_channel *c, size_t dst_off, size_t src_off, size_t size,    \
		uint32_t flag, uint32_t index, uint32_t blocks)                               \
	{                                                                                     \
		struct spmtd_range_ by = spmtd_share_by_(size, index, blocks);                \
		spmtd_channel_put_##format##_block(v, c, dst_off + 2 * (size_t)by.from,       \
			src_off + (size_t)by.from, (size_t)by.n, flag);                       \
	}                                                                                     \
	SPMTD_FN int spmtd_channel_unpack_##format##_group(const struct spmt_view *v,         \
		const struct spmt_channel *c, size_t dst_off, size_t src_off, size_t size,    \
		uint32_t flag, uint32_t index, uint32_t blocks)                               \
	{                                                                                     \
		struct spmtd_range_ by = spmtd_share_by_(size, index, blocks);                \
		return spmtd_channel_unpack_##format##_block(v, c, dst_off + (size_t)by.from, \
			src_off + 2 * (size_t)by.from, (size_t)by.n, flag);                   \
	}                                                                                     \
	SPMTD_FN int spmtd_channel_read_put_##format##_group(const struct spmt_view *v,       \
		const struct spmt_channel *c, size_t dst_off, size_t src_off, size_t size,    \
		uint32_t flag, uint32_t index, uint32_t blocks)                               \
	{                                                                                     \
		struct spmtd_range_ by = spmtd_share_by_(size, index, blocks);                \
		return spmtd_channel_read_put_##format##_block(v, c,                          \
			dst_off + 2 * (size_t)by.from, src_off + 2 * (size_t)by.from,         \
			(size_t)by.n, flag);                                                  \
	}
SPMTD_CHANNEL_PACKETS(packets, , SPMTD_THREAD_, 8)
SPMTD_CHANNEL_PACKETS(packets, _warp, SPMTD_WARP_, 8)
SPMTD_CHANNEL_PACKETS(packets, _block, SPMTD_BLOCK_, 8)
SPMTD_CHANNEL_PACKETS(packets8, , SPMTD_THREAD_, 4)
SPMTD_CHANNEL_PACKETS(packets8, _warp, SPMTD_WARP_, 4)
SPMTD_CHANNEL_PACKETS(packets8, _block, SPMTD_BLOCK_, 4)
SPMTD_CHANNEL_PACKETS_EACH(packets, 8)
SPMTD_CHANNEL_PACKETS_EACH(packets8, 4)
SPMTD_CHANNEL_PACKETS_GROUP(packets)
SPMTD_CHANNEL_PACKETS_GROUP(packets8)

/* ---- channels: reductions ------------------------------------------------------------------- */

SPMTD_FN struct spmtd_terms_ spmtd_channel_terms_(void *dst, const void *own,
	const struct spmt_channel *channels, const uint64_t *offsets, int n)
{
	struct spmtd_terms_ t;

	t.channels = channels;
	t.offsets = offsets;
	t.peers = (const struct spmtd_peer *)spmtd_to_(0);
	t.parts = (const struct spmtd_mem_peer *)spmtd_to_(0);
	t.flat = t.stride = 0;
	t.at = spmtd_at_(own);
	t.dst = spmtd_at_(dst);
	t.terms = n + 1;
	t.switched = 0;
	t.from = t.n = 0;
	t.lane = 0;
	t.lanes = 1;
	return t;
}

#define SPMTD_CHANNEL_REDUCE_BY(name, T, op, OP, suffix, scope)                               \
	SPMTD_FN void spmtd_channel_##name##_##op##_reduce##suffix(const struct spmt_view *v, \
		T *dst, const T *own, const struct spmt_channel *channels,                    \
		const uint64_t *offsets, int n, size_t count)                                 \
	{                                                                                     \
		struct spmtd_terms_ t = spmtd_channel_terms_(dst, own, channels, offsets, n); \
		(void)v;                                                                      \
		spmtd_##name##_terms_by_(&t, OP, count, scope, 0, 1);                         \
	}
#define SPMTD_CHANNEL_REDUCE(name, T, op, OP)                                                  \
	SPMTD_CHANNEL_REDUCE_BY(name, T, op, OP, , SPMTD_THREAD_)                              \
	SPMTD_CHANNEL_REDUCE_BY(name, T, op, OP, _warp, SPMTD_WARP_)                           \
	SPMTD_CHANNEL_REDUCE_BY(name, T, op, OP, _block, SPMTD_BLOCK_)                         \
	SPMTD_FN void spmtd_channel_##name##_##op##_reduce_group(const struct spmt_view *v,    \
		T *dst, const T *own, const struct spmt_channel *channels,                     \
		const uint64_t *offsets, int n, size_t count, uint32_t index, uint32_t blocks) \
	{                                                                                      \
		struct spmtd_terms_ t = spmtd_channel_terms_(dst, own, channels, offsets, n);  \
		(void)v;                                                                       \
		spmtd_##name##_terms_by_(&t, OP, count, SPMTD_BLOCK_, index, blocks);          \
	}
SPMTD_TERM_TYPES(SPMTD_CHANNEL_REDUCE)

#undef SPMTD_CHANNEL_SIGNALS
#undef SPMTD_CHANNEL_MOVES
#undef SPMTD_CHANNEL_PACKETS
#undef SPMTD_CHANNEL_PACKETS_EACH
#undef SPMTD_CHANNEL_PACKETS_GROUP
#undef SPMTD_CHANNEL_REDUCE_BY
#undef SPMTD_CHANNEL_REDUCE

SPMTD_END

#endif
