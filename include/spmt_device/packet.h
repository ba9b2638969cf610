/* SPDX-License-Identifier: MIT */
/* Packets: data that says itself that it has come. */
#ifndef SPMTD_PACKET_H
#define SPMTD_PACKET_H

#include "copy.h"
#include "fifo.h"

SPMTD_BEGIN

/* ---- packets -------------------------------------------------------------------------------- */

/*
 * A packet is half data, half flag: 8 bytes of data in 16, as 4 of data, the flag, 4 of data, the flag; or 4
 * in 8 (packets8). Each aligned 8 bytes are stored at once, so that whoever sees the flag has the data beside
 * it: no fence, no signal, and one way is one store. Packets order nothing else.
 *
 *	put       size bytes of src, a multiple of 8 (4), into 2 * size bytes of pe's dst, aligned to 16 (8)
 *	get       waits for each packet at this rank's src and stores its data at dst; 0, or the code of a wait,
 *	          after which part of dst may be written
 *	forward   as get, and sends each packet on to pe's onto as it comes; dst may be NULL, for nowhere. SPMTD_UNSUPPORTED, and nothing
 *	          done, where pe has no address here (fifo.h)
 *
 * put_packet, get_packet are one packet by value, by one thread.
 *
 * flag is not 0, and differs from those of earlier uses of the buffer. With two buffers in turn and a flag
 * that rises by 1 a call, in a word of the device where kernels are in graphs, ranks of which each puts to and
 * gets from all others in each call need no other word that the buffer is free again.
 */

/* What a thread has in flight. */
enum { SPMTD_PACKETS_ = 4 };

SPMTD_FN struct spmtd_unit_ spmtd_packet_(uint64_t x, uint32_t flag)
{
	struct spmtd_unit_ u;

	u.a = (x & 0xffffffffu) | (uint64_t)flag << 32;
	u.b = x >> 32 | (uint64_t)flag << 32;
	return u;
}

SPMTD_FN uint64_t spmtd_packet_data_(struct spmtd_unit_ u)
{
	return (u.a & 0xffffffffu) | u.b << 32;
}

/* bytes: of data, 8 or 4, of which the second half is not in memory. */
SPMTD_FN struct spmtd_unit_ spmtd_packet_peek_(uint64_t a, uint32_t bytes)
{
	struct spmtd_unit_ u;

	if (bytes == 8)
		return spmtd_peek16b_(a);
	u.a = u.b = spmtd_peek64_(a);
	return u;
}

SPMTD_FN void spmtd_packet_poke_(uint64_t a, struct spmtd_unit_ u, uint32_t bytes)
{
	if (bytes == 8)
		spmtd_poke16b_(a, u);
	else
		spmtd_poke64_(a, u.a);
}

SPMTD_FN int spmtd_packet_came_(struct spmtd_unit_ u, uint32_t flag)
{
	return (uint32_t)(u.a >> 32) == flag && (uint32_t)(u.b >> 32) == flag;
}

/* dst: the raw address on pe. */
SPMTD_FN void spmtd_do_put_packets_(const struct spmt_view *v, uint64_t dst, const void *src,
	uint64_t size, uint32_t flag, int pe, int scope, uint32_t bytes)
{
	uint64_t from = spmtd_at_(src), n = size / bytes, lanes = spmtd_lanes_(scope);

	spmtd_meet_(scope);
	for (uint64_t i = spmtd_lane_(scope); i < n; i += SPMTD_PACKETS_ * lanes) {
		uint64_t x[SPMTD_PACKETS_];

		SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_PACKETS_; j++) x[j] = i + j * lanes < n
			? spmtd_local_load_(from + (i + j * lanes) * bytes, bytes)
			: 0;
		SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_PACKETS_; j++) if (i + j * lanes < n)
			spmtd_packet_poke_(dst + (i + j * lanes) * 2 * bytes,
				spmtd_packet_(x[j], flag), bytes);
	}
	if (n)
		spmtd_wake_(v, pe);
	spmtd_meet_(scope);
}

/* Each half of a packet is a post. */
SPMTD_FN void spmtd_far_packet_(const struct spmt_view *v, int where, uint64_t off,
	struct spmtd_unit_ u, int pe, uint32_t bytes)
{
	spmtd_far_value_(v, where, off, u.a, 8, pe);
	if (bytes == 8)
		spmtd_far_value_(v, where, off + 8, u.b, 8, pe);
}

SPMTD_FN void spmtd_far_put_packets_(const struct spmt_view *v, int where, uint64_t off,
	const void *src, uint64_t size, uint32_t flag, int pe, int scope, uint32_t bytes)
{
	uint64_t from = spmtd_at_(src);

	spmtd_meet_(scope);
	for (uint64_t i = spmtd_lane_(scope); i < size / bytes; i += spmtd_lanes_(scope))
		spmtd_far_packet_(v, where, off + i * 2 * bytes,
			spmtd_packet_(spmtd_local_load_(from + i * bytes, bytes), flag), pe, bytes);
	spmtd_meet_(scope);
}

/* Where packets come, as many as lie there, and how far apart a thread's are. */
struct spmtd_packets_ {
	uint64_t at, n, lanes;
	uint32_t flag, bytes;
};

/* The calling thread's next, from the ith on. Past the end, packets have come. */
SPMTD_FN int spmtd_packets_await_(const struct spmt_view *v, struct spmtd_waiter_ *w,
	const struct spmtd_packets_ *p, uint64_t i, struct spmtd_unit_ *u)
{
	for (;;) {
		uint64_t missing = 0, seen = 0;
		int rc;

		SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_PACKETS_; j++) u[j] =
			i + j * p->lanes < p->n
			? spmtd_packet_peek_(p->at + (i + j * p->lanes) * 2 * p->bytes, p->bytes)
			: spmtd_packet_(0, p->flag);
		SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_PACKETS_;
				  j++) if (!spmtd_packet_came_(u[j], p->flag))
		{
			missing = p->at + (i + j * p->lanes) * 2 * p->bytes;
			seen = (uint32_t)(u[j].a >> 32) == p->flag ? u[j].b : u[j].a;
		}
		if (!missing)
			return 0;
		rc = spmtd_wait_check_(v, w);
		if (rc) {
			spmtd_record_(v, rc, SPMTD_WHAT_WAIT, -1, missing, p->flag, seen >> 32);
			return rc;
		}
	}
}

/* onto: the raw address on pe; 0: nowhere. */
SPMTD_FN int spmtd_do_get_packets_(const struct spmt_view *v, void *dst, const void *src,
	uint64_t size, uint32_t flag, uint64_t onto, int pe, int scope, uint32_t bytes)
{
	struct spmtd_packets_ p;
	struct spmtd_waiter_ w;
	uint64_t to = spmtd_at_(dst);
	int rc = 0;

	p.at = spmtd_at_(src);
	p.n = size / bytes;
	p.lanes = spmtd_lanes_(scope);
	p.flag = flag;
	p.bytes = bytes;
	spmtd_meet_(scope);
	spmtd_wait_begin_(&w);
	for (uint64_t i = spmtd_lane_(scope); i < p.n; i += SPMTD_PACKETS_ * p.lanes) {
		struct spmtd_unit_ u[SPMTD_PACKETS_];

		rc = spmtd_packets_await_(v, &w, &p, i, u);
		if (rc)
			break;
		SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_PACKETS_;
				  j++) if (i + j * p.lanes < p.n)
		{
			uint64_t k = (i + j * p.lanes) * bytes;

			if (onto)
				spmtd_packet_poke_(onto + 2 * k, u[j], bytes);
			if (to)
				spmtd_local_store_(to + k, bytes, spmtd_packet_data_(u[j]));
		}
		if (onto)
			spmtd_wake_(v, pe);
	}
	spmtd_wait_rest_(v, &w);
	return spmtd_agree_(rc, scope);
}

/* One by value. */
SPMTD_FN int spmtd_do_get_packet_(
	const struct spmt_view *v, const void *src, uint32_t flag, uint64_t *x, uint32_t bytes)
{
	struct spmtd_unit_ u[SPMTD_PACKETS_];
	struct spmtd_packets_ p;
	struct spmtd_waiter_ w;
	int rc;

	p.at = spmtd_at_(src);
	p.n = p.lanes = 1;
	p.flag = flag;
	p.bytes = bytes;
	spmtd_wait_begin_(&w);
	rc = spmtd_packets_await_(v, &w, &p, 0, u);
	spmtd_wait_rest_(v, &w);
	if (!rc)
		*x = spmtd_packet_data_(u[0]);
	return rc;
}

#define SPMTD_PACKETS(format, suffix, scope, bytes)                                                \
	SPMTD_FN void spmtd_put_##format##suffix(const struct spmt_view *v, void *dst,             \
		const void *src, size_t size, uint32_t flag, int pe)                               \
	{                                                                                          \
		if (spmtd_is_far_(v, pe))                                                          \
			spmtd_far_put_packets_(v, SPMTD_FAR_HEAP, spmtd_offset_(v, dst), src,      \
				size, flag, pe, scope, bytes);                                     \
		else                                                                               \
			spmtd_do_put_packets_(                                                     \
				v, spmtd_there_(v, dst, pe), src, size, flag, pe, scope, bytes);   \
	}                                                                                          \
	SPMTD_FN void spmtd_mem_put_##format##suffix(const struct spmt_view *v,                    \
		const struct spmt_mem_view *m, size_t dst_off, const void *src, size_t size,       \
		uint32_t flag, int pe)                                                             \
	{                                                                                          \
		if (spmtd_mem_is_far_(m, pe))                                                      \
			spmtd_far_put_packets_(v, SPMTD_FAR_MEM,                                   \
				spmtd_mem_offset_(m, dst_off, pe), src, size, flag, pe, scope,     \
				bytes);                                                            \
		else                                                                               \
			spmtd_do_put_packets_(v, spmtd_mem_there_(m, dst_off, pe), src, size,      \
				flag, pe, scope, bytes);                                           \
	}                                                                                          \
	SPMTD_FN int spmtd_get_##format##suffix(                                                   \
		const struct spmt_view *v, void *dst, const void *src, size_t size, uint32_t flag) \
	{                                                                                          \
		return spmtd_do_get_packets_(v, dst, src, size, flag, 0, -1, scope, bytes);        \
	}                                                                                          \
	SPMTD_FN int spmtd_forward_##format##suffix(const struct spmt_view *v, void *onto,         \
		void *dst, const void *src, size_t size, uint32_t flag, int pe)                    \
	{                                                                                          \
		if (spmtd_is_far_(v, pe))                                                          \
			return SPMTD_UNSUPPORTED;                                                  \
		return spmtd_do_get_packets_(                                                      \
			v, dst, src, size, flag, spmtd_there_(v, onto, pe), pe, scope, bytes);     \
	}
SPMTD_PACKETS(packets, , SPMTD_THREAD_, 8)
SPMTD_PACKETS(packets, _warp, SPMTD_WARP_, 8)
SPMTD_PACKETS(packets, _block, SPMTD_BLOCK_, 8)
SPMTD_PACKETS(packets8, , SPMTD_THREAD_, 4)
SPMTD_PACKETS(packets8, _warp, SPMTD_WARP_, 4)
SPMTD_PACKETS(packets8, _block, SPMTD_BLOCK_, 4)

SPMTD_FN void spmtd_put_packet(
	const struct spmt_view *v, void *dst, uint64_t value, uint32_t flag, int pe)
{
	if (spmtd_is_far_(v, pe)) {
		spmtd_far_packet_(v, SPMTD_FAR_HEAP, spmtd_offset_(v, dst),
			spmtd_packet_(value, flag), pe, 8);
		return;
	}
	spmtd_poke16b_(spmtd_there_(v, dst, pe), spmtd_packet_(value, flag));
	spmtd_wake_(v, pe);
}

SPMTD_FN int spmtd_get_packet(
	const struct spmt_view *v, const void *src, uint32_t flag, uint64_t *value)
{
	return spmtd_do_get_packet_(v, src, flag, value, 8);
}

SPMTD_FN void spmtd_put_packet8(
	const struct spmt_view *v, void *dst, uint32_t value, uint32_t flag, int pe)
{
	if (spmtd_is_far_(v, pe)) {
		spmtd_far_packet_(v, SPMTD_FAR_HEAP, spmtd_offset_(v, dst),
			spmtd_packet_(value, flag), pe, 4);
		return;
	}
	spmtd_poke64_(spmtd_there_(v, dst, pe), spmtd_packet_(value, flag).a);
	spmtd_wake_(v, pe);
}

SPMTD_FN int spmtd_get_packet8(
	const struct spmt_view *v, const void *src, uint32_t flag, uint32_t *value)
{
	uint64_t x = 0;
	int rc = spmtd_do_get_packet_(v, src, flag, &x, 4);

	if (!rc)
		*value = (uint32_t)x;
	return rc;
}

#undef SPMTD_PACKETS

SPMTD_END

#endif
