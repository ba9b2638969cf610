/* SPDX-License-Identifier: MIT */
/* Ports: puts between two ranks' buffers by offset and signals that count, made by the host for a kernel: by a copy engine or a NIC. */
#ifndef SPMTD_PORT_H
#define SPMTD_PORT_H

#include "channel.h"
#include "fifo.h"

SPMTD_BEGIN

/* ---- ports ---------------------------------------------------------------------------------- */

/*
 * p is what spmt_port_get has filled, v a view of the same comm. Each call but wait and poll is one post: the thread of the host that
 * serves all ranks of the process finds it and has a copy engine, a NIC or the CPU do it, in the order of this rank's posts. Returns 0, or
 * the code of a wait: for a place, where the ring of posts is full, and then nothing has been posted; or of a flush. The host checks
 * offsets: one that does not fit breaks the comm, with a sentence.
 *
 *	put             n bytes of this rank's buffer, from src_off on, to the peer's at dst_off. The buffer is this rank's again after a
 *	                flush, or once the peer has answered
 *	signal          the peer's count of this port rises by 1, behind all puts of this port that were posted before
 *	put_signal      put, then signal, in one post
 *	put_packets     size bytes of src, any memory, as packets (packet.h): made at via_off of this rank's buffer, in as many bytes as packets
 *	                have there, which are its own again as after a put, and put from there to the peer's at dst_off, by one post
 *	unpack_packets  waits for each packet at src_off of this rank's own copy of the peer's buffer, and stores its data at dst, any
 *	                memory; 0, SPMTD_INVALID where they are beyond it, or the code of a wait
 *	read_put_packets  waits in the same way, and has the packets sent on from there to the peer's at dst_off, by one post
 *	flush           what this rank has posted through any of its ports is complete everywhere; waits
 *	put_signal_flush  put, signal and flush, in one post
 *	wait            for one more signal than before; 0, or the code of a wait, after which the next wait is for the same one
 *	poll            1: a signal had come, and this was the wait for it; else 0 at once
 *
 * As with channels, dst_off, src_off and via_off of packets count bytes of packets, aligned to 16, of packets8 to 8, and size is bytes of data.
 *
 * _warp, _block: by all its threads with the same arguments; one posts, and the post covers all their earlier stores. One thread, warp or
 * block at a time waits or polls through a port. Any number may post.
 */
SPMTD_FN int spmtd_do_port_(const struct spmt_view *v, const struct spmt_port *p, int kind,
	size_t dst_off, size_t src_off, size_t n, int scope)
{
	int rc = 0;

	spmtd_meet_settled_(scope);
	if (spmtd_lane_(scope) == 0)
		rc = spmtd_post_(p->fifo, v->timeout_ns,
			spmtd_post_head_(SPMTD_POST_PORT | kind, p->peer, p->index),
			(uint64_t)dst_off, (uint64_t)src_off, (uint64_t)n, kind & SPMTD_POST_FLUSH);
	return spmtd_agree_(rc, scope);
}

SPMTD_FN struct spmtd_counts_ spmtd_port_counts_(const struct spmt_port *p)
{
	struct spmtd_counts_ n;

	n.arrived = p->arrived;
	n.expected = p->expected;
	n.peer = p->peer;
	n.what = SPMTD_WHAT_PORT;
	return n;
}

#define SPMTD_PORTS(suffix, scope)                                                                 \
	SPMTD_FN int spmtd_port_put##suffix(const struct spmt_view *v, const struct spmt_port *p,  \
		size_t dst_off, size_t src_off, size_t n)                                          \
	{                                                                                          \
		return spmtd_do_port_(v, p, SPMTD_POST_PUT, dst_off, src_off, n, scope);           \
	}                                                                                          \
	SPMTD_FN int spmtd_port_signal##suffix(                                                    \
		const struct spmt_view *v, const struct spmt_port *p)                              \
	{                                                                                          \
		return spmtd_do_port_(v, p, SPMTD_POST_SIGNAL, 0, 0, 0, scope);                    \
	}                                                                                          \
	SPMTD_FN int spmtd_port_put_signal##suffix(const struct spmt_view *v,                      \
		const struct spmt_port *p, size_t dst_off, size_t src_off, size_t n)               \
	{                                                                                          \
		return spmtd_do_port_(                                                             \
			v, p, SPMTD_POST_PUT | SPMTD_POST_SIGNAL, dst_off, src_off, n, scope);     \
	}                                                                                          \
	SPMTD_FN int spmtd_port_put_signal_flush##suffix(const struct spmt_view *v,                \
		const struct spmt_port *p, size_t dst_off, size_t src_off, size_t n)               \
	{                                                                                          \
		return spmtd_do_port_(v, p, SPMTD_POST_PUT | SPMTD_POST_SIGNAL | SPMTD_POST_FLUSH, \
			dst_off, src_off, n, scope);                                               \
	}                                                                                          \
	SPMTD_FN int spmtd_port_flush##suffix(                                                     \
		const struct spmt_view *v, const struct spmt_port *p)                              \
	{                                                                                          \
		return spmtd_do_port_(v, p, SPMTD_POST_FLUSH, 0, 0, 0, scope);                     \
	}                                                                                          \
	SPMTD_FN int spmtd_port_wait##suffix(const struct spmt_view *v, const struct spmt_port *p) \
	{                                                                                          \
		return spmtd_do_channel_wait_(                                                     \
			v, spmtd_port_counts_(p), SPMTD_DATA_SYNC_BOTH, 0, scope);                 \
	}                                                                                          \
	SPMTD_FN int spmtd_port_poll##suffix(const struct spmt_view *v, const struct spmt_port *p) \
	{                                                                                          \
		(void)v;                                                                           \
		return spmtd_do_channel_poll_(spmtd_port_counts_(p), scope);                       \
	}
SPMTD_PORTS(, SPMTD_THREAD_)
SPMTD_PORTS(_warp, SPMTD_WARP_)
SPMTD_PORTS(_block, SPMTD_BLOCK_)

/* ---- ports: packets ------------------------------------------------------------------------- */

/* Bytes of the packets of so much data; of more than any memory has, as many as no buffer has. */
SPMTD_FN uint64_t spmtd_port_room_(uint64_t size, uint32_t bytes)
{
	uint64_t most = ~(uint64_t)0;

	return size > most / 4 ? most : spmtd_packets_count_(size, bytes) * 2 * bytes;
}

/* 1: they lie in a buffer of this rank's of `has` bytes at `base`, and where packets may. What does not is left to the host, which says so. */
SPMTD_FN int spmtd_port_fits_(
	uint64_t base, uint64_t has, uint64_t off, uint64_t size, uint32_t bytes)
{
	uint64_t room = spmtd_port_room_(size, bytes);

	return size <= has && room <= has && off <= has - room && !((base + off) & (2 * bytes - 1));
}

SPMTD_FN int spmtd_port_packets_kind_(uint32_t bytes)
{
	return SPMTD_POST_PUT | SPMTD_POST_PACKETS | (bytes == 8 ? SPMTD_POST_PAIRS : 0);
}

#define SPMTD_PORT_PACKETS(format, suffix, scope, bytes)                                          \
	SPMTD_FN int spmtd_port_put_##format##suffix(const struct spmt_view *v,                   \
		const struct spmt_port *p, size_t dst_off, size_t via_off, const void *src,       \
		size_t size, uint32_t flag)                                                       \
	{                                                                                         \
		if (!size)                                                                        \
			return 0;                                                                 \
		if (spmtd_port_fits_(p->local, p->local_size, via_off, size, bytes))              \
			spmtd_do_put_packets_(                                                    \
				v, p->local + via_off, src, size, flag, v->pe, scope, bytes);     \
		return spmtd_do_port_(v, p, spmtd_port_packets_kind_(bytes), dst_off, via_off,    \
			spmtd_port_room_(size, bytes), scope);                                    \
	}                                                                                         \
	SPMTD_FN int spmtd_port_unpack_##format##suffix(const struct spmt_view *v,                \
		const struct spmt_port *p, void *dst, size_t src_off, size_t size, uint32_t flag) \
	{                                                                                         \
		if (!spmtd_port_fits_(p->incoming, p->incoming_size, src_off, size, bytes))       \
			return SPMTD_INVALID;                                                     \
		return spmtd_do_get_packets_(v, dst, spmtd_channel_from_(p->incoming, src_off),   \
			size, flag, 0, -1, scope, bytes);                                         \
	}                                                                                         \
	SPMTD_FN int spmtd_port_read_put_##format##suffix(const struct spmt_view *v,              \
		const struct spmt_port *p, size_t dst_off, size_t src_off, size_t size,           \
		uint32_t flag)                                                                    \
	{                                                                                         \
		int rc = spmtd_port_unpack_##format##suffix(                                      \
			v, p, spmtd_to_(0), src_off, size, flag);                                 \
		if (rc || !size)                                                                  \
			return rc;                                                                \
		return spmtd_do_port_(v, p, spmtd_port_packets_kind_(bytes) | SPMTD_POST_CAME,    \
			dst_off, src_off, spmtd_port_room_(size, bytes), scope);                  \
	}
SPMTD_PORT_PACKETS(packets, , SPMTD_THREAD_, 8)
SPMTD_PORT_PACKETS(packets, _warp, SPMTD_WARP_, 8)
SPMTD_PORT_PACKETS(packets, _block, SPMTD_BLOCK_, 8)
SPMTD_PORT_PACKETS(packets8, , SPMTD_THREAD_, 4)
SPMTD_PORT_PACKETS(packets8, _warp, SPMTD_WARP_, 4)
SPMTD_PORT_PACKETS(packets8, _block, SPMTD_BLOCK_, 4)

#undef SPMTD_PORTS
#undef SPMTD_PORT_PACKETS

SPMTD_END

#endif
