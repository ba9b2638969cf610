/* SPDX-License-Identifier: MIT */
/* Packets and lines: data that carries its own arrival flag. */
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
 *	put       size bytes of src into packets at pe's dst, aligned to 16 (8): 2 * size bytes, and of a size that is no multiple of 8 (4) up to
 *	          the next multiple of 16 (8), as the last packet is whole, too, with zeros behind the data
 *	get       waits for each packet at this rank's src and stores its data, size bytes in all, at dst; 0, or the code of a wait,
 *	          after which part of dst may be written. SPMTD_INVALID, and nothing done, where flag is 0, which memory has before any put
 *	forward   as get, and sends each packet on to pe's onto as it comes; dst may be NULL, for nowhere. SPMTD_UNSUPPORTED, and nothing
 *	          done, where pe has no address here (fifo.h)
 *
 * put_packet, get_packet are one packet by value, by one thread. _each is one transfer by `threads` threads of one block or of several, of
 * which each calls with its index and moves its own packets, every threads-th from its index on: none waits for another (but that on AMD GPUs
 * the threads of a wavefront leave a wait together), and what get and forward return is of the caller's packets alone. An index of `threads` or more moves nothing; get and forward say SPMTD_INVALID.
 *
 * flag is not 0, and differs from those of earlier uses of the buffer. With two alternating buffers and a flag
 * that rises by 1 per call (kept in device memory where kernels are in graphs), ranks that each put to and get
 * from all others in every call need no other sign that a buffer is free again.
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

/* 0: it has come. Of several this is one compare. */
SPMTD_FN uint32_t spmtd_packet_lacks_(struct spmtd_unit_ u, uint32_t flag)
{
	return ((uint32_t)(u.a >> 32) ^ flag) | ((uint32_t)(u.b >> 32) ^ flag);
}

SPMTD_FN int spmtd_packet_came_(struct spmtd_unit_ u, uint32_t flag)
{
	return !spmtd_packet_lacks_(u, flag);
}

/*
 * Where a thread's packets are: the next one's data and place, and how far apart they are. Four at a time, then two, then one, so that none of
 * them asks whether it is there. Sums alone: what a block of 1024 threads executes for each of them is seen in what 64 KiB take.
 */
struct spmtd_packets_ {
	uint64_t data, at;
	uint64_t step; /* bytes of data from a thread's packet to its next one */
	int64_t left; /* bytes of the call's data from the next one on; none: the thread has no more */
	uint32_t flag, bytes;
};

SPMTD_FN uint64_t spmtd_packets_count_(uint64_t size, uint32_t bytes)
{
	return size / bytes + (size % bytes != 0);
}

/* Who moves packets: a thread, of as many as there are. */
struct spmtd_worker_ {
	uint32_t index, workers;
};

SPMTD_FN struct spmtd_worker_ spmtd_worker_of_(int scope)
{
	struct spmtd_worker_ w;

	w.index = spmtd_lane_(scope);
	w.workers = spmtd_lanes_(scope);
	return w;
}

SPMTD_FN struct spmtd_worker_ spmtd_worker_at_(uint32_t index, uint32_t workers)
{
	struct spmtd_worker_ w;

	w.index = index;
	w.workers = workers;
	return w;
}

SPMTD_FN struct spmtd_packets_ spmtd_packets_of_(uint64_t data, uint64_t at, uint64_t size,
	uint32_t flag, struct spmtd_worker_ by, uint32_t bytes)
{
	struct spmtd_packets_ p;
	uint64_t first = (uint64_t)by.index * bytes;

	p.data = data + first;
	p.at = at + 2 * first;
	p.step = (uint64_t)by.workers * bytes;
	p.left = (int64_t)(size - first);
	p.flag = flag;
	p.bytes = bytes;
	return p;
}

/* A thread's next `some` are done. */
SPMTD_FN void spmtd_packets_on_(struct spmtd_packets_ *p, uint32_t some)
{
	uint64_t past = some * p->step;

	p->data += past;
	p->at += 2 * past;
	p->left -= (int64_t)past;
}

/* 1: the thread has `some` more. */
SPMTD_FN int spmtd_packets_has_(const struct spmtd_packets_ *p, uint32_t some)
{
	return p->left > (int64_t)((some - 1) * p->step);
}

/* Of more threads four each are more than one multiprocessor has under way at a time: 64 KiB by 1024 took 0.2 us less in twos. */
enum { SPMTD_FOURS_LANES_ = 512 };

SPMTD_FN int spmtd_packets_has_four_(const struct spmtd_packets_ *p)
{
	return p->step <= SPMTD_FOURS_LANES_ * p->bytes && spmtd_packets_has_(p, 4);
}

/* The next one's data, at any address, as far as there is any. */
SPMTD_FN uint64_t spmtd_packets_load_(const struct spmtd_packets_ *p)
{
	uint64_t n = (uint64_t)p->left;

	return n < p->bytes ? spmtd_bytes_load_(p->data, n) : spmtd_local_load_(p->data, p->bytes);
}

SPMTD_FN void spmtd_packets_store_(const struct spmtd_packets_ *p, uint64_t x)
{
	uint64_t n = (uint64_t)p->left;

	if (n < p->bytes)
		spmtd_bytes_store_(p->data, n, x);
	else
		spmtd_local_store_(p->data, p->bytes, x);
}

/* 1: addresses are multiples of a packet's data, and so is the size. */
SPMTD_FN int spmtd_packets_whole_(uint64_t a, uint64_t size, uint32_t bytes)
{
	return !((a | size) & (bytes - 1));
}

/* `some`: a constant; 1 where they are not whole. */
SPMTD_FN void spmtd_put_some_(struct spmtd_packets_ *p, uint32_t some, int whole)
{
	uint64_t x[SPMTD_PACKETS_];

	SPMTD_UNROLL for (uint32_t j = 0; j < some; j++)
	{
		uint64_t a = p->data + j * p->step;

		x[j] = !whole		? spmtd_packets_load_(p)
			: p->bytes == 8 ? spmtd_load64_(a)
					: spmtd_load32_(a);
	}
	SPMTD_UNROLL for (uint32_t j = 0; j < some; j++)
		spmtd_packet_poke_(p->at + 2 * j * p->step, spmtd_packet_(x[j], p->flag), p->bytes);
	spmtd_packets_on_(p, some);
}

/* All of one thread's. whole: as above. */
SPMTD_FN void spmtd_put_all_(struct spmtd_packets_ *p, int whole)
{
	if (!whole) {
		SPMTD_ROLLED while (p->left > 0) spmtd_put_some_(p, 1, 0);
		return;
	}
	if (spmtd_packets_has_(p, 2)) {
		SPMTD_ROLLED while (spmtd_packets_has_four_(p)) spmtd_put_some_(p, 4, 1);
		SPMTD_ROLLED while (spmtd_packets_has_(p, 2)) spmtd_put_some_(p, 2, 1);
	}
	if (p->left > 0)
		spmtd_put_some_(p, 1, 1);
}

/* dst: the raw address on pe. */
SPMTD_FN void spmtd_do_put_packets_(const struct spmt_view *v, uint64_t dst, const void *src,
	uint64_t size, uint32_t flag, int pe, int scope, uint32_t bytes)
{
	uint64_t from = spmtd_at_(src);
	struct spmtd_packets_ p =
		spmtd_packets_of_(from, dst, size, flag, spmtd_worker_of_(scope), bytes);

	spmtd_meet_(scope);
	spmtd_put_all_(&p, spmtd_packets_whole_(from, size, bytes));
	if (size)
		spmtd_wake_(v, pe);
	spmtd_meet_(scope);
}

SPMTD_FN void spmtd_do_put_packets_each_(const struct spmt_view *v, uint64_t dst, const void *src,
	uint64_t size, uint32_t flag, int pe, struct spmtd_worker_ by, uint32_t bytes)
{
	uint64_t from = spmtd_at_(src);
	struct spmtd_packets_ p = spmtd_packets_of_(from, dst, size, flag, by, bytes);

	if (by.index >= by.workers || p.left <= 0)
		return;
	spmtd_put_all_(&p, spmtd_packets_whole_(from, size, bytes));
	spmtd_wake_(v, pe);
}

/* Each half of a packet is a post. */
SPMTD_FN void spmtd_far_packet_(const struct spmt_view *v, int where, uint64_t off,
	struct spmtd_unit_ u, int pe, uint32_t bytes)
{
	spmtd_far_value_(v, where, off, u.a, 8, pe);
	if (bytes == 8)
		spmtd_far_value_(v, where, off + 8, u.b, 8, pe);
}

SPMTD_FN void spmtd_far_put_all_(
	const struct spmt_view *v, int where, struct spmtd_packets_ *p, int pe)
{
	SPMTD_ROLLED while (p->left > 0)
	{
		spmtd_far_packet_(v, where, p->at, spmtd_packet_(spmtd_packets_load_(p), p->flag),
			pe, p->bytes);
		spmtd_packets_on_(p, 1);
	}
}

SPMTD_FN void spmtd_far_put_packets_(const struct spmt_view *v, int where, uint64_t off,
	const void *src, uint64_t size, uint32_t flag, int pe, int scope, uint32_t bytes)
{
	struct spmtd_packets_ p =
		spmtd_packets_of_(spmtd_at_(src), off, size, flag, spmtd_worker_of_(scope), bytes);

	spmtd_meet_(scope);
	spmtd_far_put_all_(v, where, &p, pe);
	spmtd_meet_(scope);
}

SPMTD_FN void spmtd_far_put_packets_each_(const struct spmt_view *v, int where, uint64_t off,
	const void *src, uint64_t size, uint32_t flag, int pe, struct spmtd_worker_ by,
	uint32_t bytes)
{
	struct spmtd_packets_ p = spmtd_packets_of_(spmtd_at_(src), off, size, flag, by, bytes);

	if (by.index < by.workers)
		spmtd_far_put_all_(v, where, &p, pe);
}

/* Looks at a packet that follow each other at once, since what is asked between two of them keeps the next one waiting. A power of two, no
   more than SPMTD_CLOCK_EVERY_. */
enum { SPMTD_PACKET_LOOKS_ = 8 };

/* All but the last of them. 1: it has come. */
SPMTD_FN int spmtd_packet_soon_(const struct spmtd_packets_ *p, struct spmtd_unit_ *u)
{
	SPMTD_ROLLED for (uint32_t n = 1; n < SPMTD_PACKET_LOOKS_; n++)
	{
		*u = spmtd_packet_peek_(p->at, p->bytes);
		if (spmtd_packet_came_(*u, p->flag))
			return 1;
	}
	return 0;
}

/* Which of `some` has not come, for whoever is told of it. */
SPMTD_FN void spmtd_packets_missed_(const struct spmt_view *v, const struct spmtd_packets_ *p,
	uint32_t some, const struct spmtd_unit_ *u, int code)
{
	uint64_t at = p->at;
	struct spmtd_unit_ last = u[0];

	SPMTD_UNROLL for (uint32_t j = 1; j < some; j++) if (spmtd_packet_came_(last, p->flag))
	{
		at = p->at + 2 * j * p->step;
		last = u[j];
	}
	spmtd_record_(v, code, SPMTD_WHAT_WAIT, -1, at, p->flag,
		((uint32_t)(last.a >> 32) == p->flag ? last.b : last.a) >> 32);
}

/* The calling thread's next, `some` of them, a constant. */
SPMTD_FN int spmtd_packets_await_(const struct spmt_view *v, struct spmtd_waiter_ *w,
	const struct spmtd_packets_ *p, uint32_t some, struct spmtd_unit_ *u)
{
	for (;;) {
		uint32_t lacks = 0;
		int rc;

		if (some == 1 && spmtd_packet_soon_(p, u))
			return 0;
		SPMTD_UNROLL for (uint32_t j = 0; j < some; j++) u[j] =
			spmtd_packet_peek_(p->at + 2 * j * p->step, p->bytes);
		SPMTD_UNROLL for (uint32_t j = 0; j < some; j++) lacks |=
			spmtd_packet_lacks_(u[j], p->flag);
		if (!lacks)
			return 0;
		/* the next number is a multiple of them, whatever this wait has had before */
		if (some == 1)
			w->polls |= SPMTD_PACKET_LOOKS_ - 1;
		rc = spmtd_wait_check_(v, w);
		if (rc) {
			spmtd_packets_missed_(v, p, some, u, rc);
			return rc;
		}
	}
}

/* Where what came goes: to memory of this rank (whole: aligned), if `to`, and as packets to pe's from `onto` on, if not 0. */
struct spmtd_packets_to_ {
	uint64_t onto; /* less where packets come */
	int to, whole, pe;
};

SPMTD_FN int spmtd_get_some_(const struct spmt_view *v, struct spmtd_waiter_ *w,
	struct spmtd_packets_ *p, const struct spmtd_packets_to_ *t, uint32_t some)
{
	struct spmtd_unit_ u[SPMTD_PACKETS_];
	int rc = spmtd_packets_await_(v, w, p, some, u);

	if (rc)
		return rc;
	SPMTD_UNROLL for (uint32_t j = 0; j < some; j++)
	{
		uint64_t k = j * p->step, x = spmtd_packet_data_(u[j]);

		if (t->onto)
			spmtd_packet_poke_(t->onto + p->at + 2 * k, u[j], p->bytes);
		if (!t->to)
			continue;
		if (!t->whole)
			spmtd_packets_store_(p, x);
		else if (p->bytes == 8)
			spmtd_store64_(p->data + k, x);
		else
			spmtd_store32_(p->data + k, (uint32_t)x);
	}
	if (t->onto)
		spmtd_wake_(v, t->pe);
	spmtd_packets_on_(p, some);
	return 0;
}

/* to: the address of dst here, or 0. onto: the raw address on pe; 0: nowhere. */
SPMTD_FN struct spmtd_packets_to_ spmtd_packets_to_of_(
	uint64_t to, uint64_t at, uint64_t size, uint64_t onto, int pe, uint32_t bytes)
{
	struct spmtd_packets_to_ t;

	t.onto = onto ? onto - at : 0;
	t.to = to != 0;
	t.whole = spmtd_packets_whole_(to, size, bytes);
	t.pe = pe;
	return t;
}

/* All of one thread's. */
SPMTD_FN int spmtd_get_all_(
	const struct spmt_view *v, struct spmtd_packets_ *p, const struct spmtd_packets_to_ *t)
{
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	if (!t->whole) {
		SPMTD_ROLLED while (!rc && p->left > 0) rc = spmtd_get_some_(v, &w, p, t, 1);
	} else if (!spmtd_packets_has_(p, 2)) {
		if (p->left > 0)
			rc = spmtd_get_some_(v, &w, p, t, 1);
	} else {
		SPMTD_ROLLED while (!rc && spmtd_packets_has_four_(p)) rc =
			spmtd_get_some_(v, &w, p, t, 4);
		SPMTD_ROLLED while (!rc && spmtd_packets_has_(p, 2)) rc =
			spmtd_get_some_(v, &w, p, t, 2);
		if (!rc && p->left > 0)
			rc = spmtd_get_some_(v, &w, p, t, 1);
	}
	spmtd_wait_rest_(v, &w);
	return rc;
}

/* dst: here; onto: the raw address on pe; 0: nowhere. */
SPMTD_FN int spmtd_do_get_packets_(const struct spmt_view *v, void *dst, const void *src,
	uint64_t size, uint32_t flag, uint64_t onto, int pe, int scope, uint32_t bytes)
{
	uint64_t to = spmtd_at_(dst), at = spmtd_at_(src);
	struct spmtd_packets_ p =
		spmtd_packets_of_(to, at, size, flag, spmtd_worker_of_(scope), bytes);
	struct spmtd_packets_to_ t = spmtd_packets_to_of_(to, at, size, onto, pe, bytes);

	if (!flag)
		return SPMTD_INVALID;
	spmtd_meet_(scope);
	return spmtd_agree_(spmtd_get_all_(v, &p, &t), scope);
}

SPMTD_FN int spmtd_do_get_packets_each_(const struct spmt_view *v, void *dst, const void *src,
	uint64_t size, uint32_t flag, uint64_t onto, int pe, struct spmtd_worker_ by,
	uint32_t bytes)
{
	uint64_t to = spmtd_at_(dst), at = spmtd_at_(src);
	struct spmtd_packets_ p = spmtd_packets_of_(to, at, size, flag, by, bytes);
	struct spmtd_packets_to_ t = spmtd_packets_to_of_(to, at, size, onto, pe, bytes);

	if (!flag || by.index >= by.workers)
		return SPMTD_INVALID;
	return spmtd_get_all_(v, &p, &t);
}

/* One by value. */
SPMTD_FN int spmtd_do_get_packet_(
	const struct spmt_view *v, const void *src, uint32_t flag, uint64_t *x, uint32_t bytes)
{
	struct spmtd_unit_ u[SPMTD_PACKETS_];
	struct spmtd_packets_ p;
	struct spmtd_waiter_ w;
	int rc;

	if (!flag)
		return SPMTD_INVALID;
	p.data = p.step = 0;
	p.at = spmtd_at_(src);
	p.left = 1;
	p.flag = flag;
	p.bytes = bytes;
	spmtd_wait_begin_(&w);
	rc = spmtd_packets_await_(v, &w, &p, 1, u);
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
#define SPMTD_PACKETS_EACH(format, bytes)                                                          \
	SPMTD_FN void spmtd_put_##format##_each(const struct spmt_view *v, void *dst,              \
		const void *src, size_t size, uint32_t flag, int pe, uint32_t index,               \
		uint32_t threads)                                                                  \
	{                                                                                          \
		struct spmtd_worker_ by = spmtd_worker_at_(index, threads);                        \
                                                                                                   \
		if (spmtd_is_far_(v, pe))                                                          \
			spmtd_far_put_packets_each_(v, SPMTD_FAR_HEAP, spmtd_offset_(v, dst), src, \
				size, flag, pe, by, bytes);                                        \
		else                                                                               \
			spmtd_do_put_packets_each_(                                                \
				v, spmtd_there_(v, dst, pe), src, size, flag, pe, by, bytes);      \
	}                                                                                          \
	SPMTD_FN void spmtd_mem_put_##format##_each(const struct spmt_view *v,                     \
		const struct spmt_mem_view *m, size_t dst_off, const void *src, size_t size,       \
		uint32_t flag, int pe, uint32_t index, uint32_t threads)                           \
	{                                                                                          \
		struct spmtd_worker_ by = spmtd_worker_at_(index, threads);                        \
                                                                                                   \
		if (spmtd_mem_is_far_(m, pe))                                                      \
			spmtd_far_put_packets_each_(v, SPMTD_FAR_MEM,                              \
				spmtd_mem_offset_(m, dst_off, pe), src, size, flag, pe, by,        \
				bytes);                                                            \
		else                                                                               \
			spmtd_do_put_packets_each_(v, spmtd_mem_there_(m, dst_off, pe), src, size, \
				flag, pe, by, bytes);                                              \
	}                                                                                          \
	SPMTD_FN int spmtd_get_##format##_each(const struct spmt_view *v, void *dst,               \
		const void *src, size_t size, uint32_t flag, uint32_t index, uint32_t threads)     \
	{                                                                                          \
		return spmtd_do_get_packets_each_(                                                 \
			v, dst, src, size, flag, 0, -1, spmtd_worker_at_(index, threads), bytes);  \
	}                                                                                          \
	SPMTD_FN int spmtd_forward_##format##_each(const struct spmt_view *v, void *onto,          \
		void *dst, const void *src, size_t size, uint32_t flag, int pe, uint32_t index,    \
		uint32_t threads)                                                                  \
	{                                                                                          \
		if (spmtd_is_far_(v, pe))                                                          \
			return SPMTD_UNSUPPORTED;                                                  \
		return spmtd_do_get_packets_each_(v, dst, src, size, flag,                         \
			spmtd_there_(v, onto, pe), pe, spmtd_worker_at_(index, threads), bytes);   \
	}
SPMTD_PACKETS(packets, , SPMTD_THREAD_, 8)
SPMTD_PACKETS(packets, _warp, SPMTD_WARP_, 8)
SPMTD_PACKETS(packets, _block, SPMTD_BLOCK_, 8)
SPMTD_PACKETS(packets8, , SPMTD_THREAD_, 4)
SPMTD_PACKETS(packets8, _warp, SPMTD_WARP_, 4)
SPMTD_PACKETS(packets8, _block, SPMTD_BLOCK_, 4)
SPMTD_PACKETS_EACH(packets, 8)
SPMTD_PACKETS_EACH(packets8, 4)

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
#undef SPMTD_PACKETS_EACH

/* ---- lines ---------------------------------------------------------------------------------- */

/*
 * A line is 120 bytes of data and a flag of 8 behind them, in 128 aligned to 128: more data a byte than packets, for sizes between a
 * packet's and a copy's. The last line of a call is whole too; what it has no data for is zeros. By a warp or a block; the format is the
 * same by either, and on every target, so that who puts and who gets may differ in both.
 *
 *	put       size bytes of src, any number at any address, into spmtd_lines_room(size) bytes of pe's dst, aligned to 128; 0
 *	get       waits for each line at this rank's src and stores its data, size bytes in all, at dst; 0, or the code of a wait, after
 *	          which part of dst may be written. SPMTD_INVALID, and nothing done, where flag is 0
 *	forward   as get, and sends the lines on to pe's onto; dst may be NULL, for nowhere
 *	room      bytes that the lines of size bytes take
 *	whole     1: lines go to pe whole; 0: in order
 *
 * put and forward are SPMTD_UNSUPPORTED, and nothing is done, where pe has no address here (fifo.h): put packets there. src of get and
 * forward, and dst and onto at pe, are memory of a GPU (on the host backend, of the host), never the host's memory as a GPU sees it.
 *
 * Whole, where SPMTD_LINES_WHOLE is defined as 1 before this header, in the kernels of both ranks: 8 lanes store a line by 16 bytes each in
 * one instruction, a warp 4 lines, in the hope that a flag is there no sooner than its line. No document guarantees this, and it takes a
 * converged warp, which nothing can enforce: where threads have diverged, ptxas 13 leaves them so after bar.warp.sync, and lines are stored,
 * and looked at, in pieces. Between two H100 lines came whose data was older than their flag (docs/tried.md). So nothing in this library
 * asks for it, and who does checks the data by other means. A forwarding warp sends each few lines on as they come.
 * In order, as everywhere else: data, then a release by the scope, then the flags; and who gets acquires the flags before it reads, by the
 * rules of memory on every target. forward sends nothing on before all has come.
 *
 * flag is as a packet's, of 64 bits, and so is what two buffers in turn save. Lines order nothing else.
 */

enum {
	SPMTD_LINE_BYTES_ = 128,
	SPMTD_LINE_DATA_ = 120,
	SPMTD_LINE_LANES_ = 8,
	SPMTD_LINES_ = 4 /* what a thread has in flight */
};

#ifndef SPMTD_LINES_WHOLE
#define SPMTD_LINES_WHOLE 0
#endif

SPMTD_FN size_t spmtd_lines_room(size_t size)
{
	return (size / SPMTD_LINE_DATA_ + (size % SPMTD_LINE_DATA_ != 0)) * SPMTD_LINE_BYTES_;
}

SPMTD_FN int spmtd_lines_whole(const struct spmt_view *v, int pe)
{
	return SPMTD_LINES_WHOLE && !spmtd_is_far_(v, pe);
}

/* Of some data's lines: how many, of how many bytes, and this call's flag. */
struct spmtd_lines_ {
	uint64_t n, size, flag;
};

SPMTD_FN struct spmtd_lines_ spmtd_lines_of_(size_t size, uint64_t flag)
{
	struct spmtd_lines_ l;

	l.n = spmtd_lines_room(size) / SPMTD_LINE_BYTES_;
	l.size = size;
	l.flag = flag;
	return l;
}

/* 8 bytes of data, from the byte `at` on, as far as there are any. */
SPMTD_FN uint64_t spmtd_line_load_(uint64_t from, uint64_t size, uint64_t at)
{
	if (at + 8 <= size)
		return spmtd_local_load_(from + at, 8);
	return at < size ? spmtd_bytes_load_(from + at, size - at) : 0;
}

SPMTD_FN void spmtd_line_store_(uint64_t to, uint64_t size, uint64_t at, uint64_t x)
{
	if (at + 8 <= size)
		spmtd_local_store_(to + at, 8, x);
	else if (at < size)
		spmtd_bytes_store_(to + at, size - at, x);
}

/* Which 16 bytes of which lines are the calling thread's: of line `group` and of every `groups` from there. */
struct spmtd_line_part_ {
	uint32_t part, group, groups; /* groups, 0: lines go in order */
};

SPMTD_FN struct spmtd_line_part_ spmtd_line_part_of_(int scope)
{
	struct spmtd_line_part_ p;

	p.part = spmtd_lane_(scope) % SPMTD_LINE_LANES_;
	p.group = spmtd_lane_(scope) / SPMTD_LINE_LANES_;
	p.groups = SPMTD_LINES_WHOLE ? spmtd_lanes_(scope) / SPMTD_LINE_LANES_ : 0;
	return p;
}

/* The jth line of this thread's group in the round from `first` on; l->n or more: none. A warp's threads go round alike, those without
   a line as well, because they meet. */
SPMTD_FN uint64_t spmtd_line_of_(
	const struct spmtd_lines_ *l, const struct spmtd_line_part_ *p, uint64_t first, uint32_t j)
{
	return p->group < p->groups ? first + p->group + (uint64_t)j * p->groups : l->n;
}

SPMTD_FN struct spmtd_unit_ spmtd_line_unit_(
	const struct spmtd_lines_ *l, uint64_t from, uint64_t line, uint32_t part)
{
	uint64_t at = line * SPMTD_LINE_DATA_ + 16 * part;
	struct spmtd_unit_ u;

	u.a = line < l->n ? spmtd_line_load_(from, l->size, at) : 0;
	u.b = l->flag;
	if (line < l->n && part != SPMTD_LINE_LANES_ - 1)
		u.b = spmtd_line_load_(from, l->size, at + 8);
	return u;
}

/* The warp's threads together, else lines would be stored in pieces. */
SPMTD_FN void spmtd_lines_poke_(uint64_t dst, const struct spmtd_lines_ *l,
	const struct spmtd_line_part_ *p, uint64_t first, const struct spmtd_unit_ *u)
{
	spmtd_meet_warp_();
	SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_LINES_; j++)
	{
		uint64_t line = spmtd_line_of_(l, p, first, j);

		if (line < l->n)
			spmtd_poke16b_(dst + line * SPMTD_LINE_BYTES_ + 16 * p->part, u[j]);
	}
}

SPMTD_FN void spmtd_put_lines_whole_(
	uint64_t dst, uint64_t from, const struct spmtd_lines_ *l, const struct spmtd_line_part_ *p)
{
	for (uint64_t first = 0; first < l->n; first += (uint64_t)SPMTD_LINES_ * p->groups) {
		struct spmtd_unit_ u[SPMTD_LINES_];

		SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_LINES_; j++) u[j] =
			spmtd_line_unit_(l, from, spmtd_line_of_(l, p, first, j), p->part);
		spmtd_lines_poke_(dst, l, p, first, u);
	}
}

/* One look at a warp's lines of a round. */
SPMTD_FN void spmtd_lines_peek_(uint64_t src, const struct spmtd_lines_ *l,
	const struct spmtd_line_part_ *p, uint64_t first, struct spmtd_unit_ *u)
{
	spmtd_meet_warp_();
	SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_LINES_; j++)
	{
		uint64_t line = spmtd_line_of_(l, p, first, j);

		u[j].a = u[j].b = l->flag;
		if (line < l->n)
			u[j] = spmtd_peek16b_(src + line * SPMTD_LINE_BYTES_ + 16 * p->part);
	}
}

/* A warp's lines of a round: 0, or one code for all of its threads. A line is stored whole, but looked at in pieces, of which
   the flag's may be a newer one than others: so the data is that of a look that began when all flags had been seen. */
SPMTD_FN int spmtd_lines_await_(const struct spmt_view *v, struct spmtd_waiter_ *w, uint64_t src,
	const struct spmtd_lines_ *l, const struct spmtd_line_part_ *p, uint64_t first,
	struct spmtd_unit_ *u)
{
	for (;;) {
		uint64_t missing = 0, seen = 0;
		int rc;

		spmtd_lines_peek_(src, l, p, first, u);
		SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_LINES_;
				  j++) if (p->part == SPMTD_LINE_LANES_ - 1 && u[j].b != l->flag)
		{
			missing =
				src + (spmtd_line_of_(l, p, first, j) + 1) * SPMTD_LINE_BYTES_ - 8;
			seen = u[j].b;
		}
		if (!spmtd_any_warp_(missing != 0))
			break;
		rc = spmtd_agree_(spmtd_wait_check_(v, w), SPMTD_WARP_);
		if (rc) {
			if (missing)
				spmtd_record_(v, rc, SPMTD_WHAT_WAIT, -1, missing, l->flag, seen);
			return rc;
		}
	}
	spmtd_lines_peek_(src, l, p, first, u);
	return 0;
}

SPMTD_FN int spmtd_get_lines_whole_(const struct spmt_view *v, uint64_t to, uint64_t src,
	const struct spmtd_lines_ *l, const struct spmtd_line_part_ *p, uint64_t onto)
{
	struct spmtd_waiter_ w;

	spmtd_wait_begin_(&w);
	for (uint64_t first = 0; first < l->n; first += (uint64_t)SPMTD_LINES_ * p->groups) {
		struct spmtd_unit_ u[SPMTD_LINES_];
		int rc = spmtd_lines_await_(v, &w, src, l, p, first, u);

		if (rc)
			return rc;
		if (onto)
			spmtd_lines_poke_(onto, l, p, first, u);
		SPMTD_UNROLL for (uint32_t j = 0; j < SPMTD_LINES_; j++)
		{
			uint64_t line = spmtd_line_of_(l, p, first, j);
			uint64_t at = line * SPMTD_LINE_DATA_ + 16 * p->part;

			if (!to || line >= l->n)
				continue;
			spmtd_line_store_(to, l->size, at, u[j].a);
			if (p->part != SPMTD_LINE_LANES_ - 1)
				spmtd_line_store_(to, l->size, at + 8, u[j].b);
		}
	}
	return 0;
}

/* Behind all data that threads of the scope have stored. */
SPMTD_FN void spmtd_lines_flag_(uint64_t dst, const struct spmtd_lines_ *l, int scope)
{
	uint32_t lanes = spmtd_lanes_(scope), most = spmtd_warp_size_();

	if (lanes > most)
		lanes = most;
	spmtd_meet_settled_(scope);
	if (!spmtd_posts_(scope))
		return;
	spmtd_order_();
	SPMTD_ROLLED for (uint64_t i = spmtd_lane_(scope); i < l->n; i += lanes)
		spmtd_poke64_(dst + (i + 1) * SPMTD_LINE_BYTES_ - 8, l->flag);
}

/* Where the ith 8 bytes of data lie in their lines. */
SPMTD_FN uint64_t spmtd_line_word_(uint64_t i)
{
	const uint32_t words = SPMTD_LINE_DATA_ / 8;

	return i / words * SPMTD_LINE_BYTES_ + i % words * 8;
}

SPMTD_FN void spmtd_put_lines_in_order_(
	uint64_t dst, uint64_t from, const struct spmtd_lines_ *l, int scope)
{
	uint64_t words = l->n * (SPMTD_LINE_DATA_ / 8);

	SPMTD_ROLLED for (uint64_t i = spmtd_lane_(scope); i < words; i += spmtd_lanes_(scope))
		spmtd_poke64_(dst + spmtd_line_word_(i), spmtd_line_load_(from, l->size, 8 * i));
	spmtd_lines_flag_(dst, l, scope);
}

SPMTD_FN int spmtd_get_lines_in_order_(const struct spmt_view *v, uint64_t to, uint64_t src,
	const struct spmtd_lines_ *l, uint64_t onto, int scope)
{
	uint64_t words = l->n * (SPMTD_LINE_DATA_ / 8), lanes = spmtd_lanes_(scope);
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	SPMTD_ROLLED for (uint64_t i = spmtd_lane_(scope); i < l->n && !rc; i += lanes) rc =
		spmtd_await_(v, &w, SPMTD_KIND_U_, 64, src + (i + 1) * SPMTD_LINE_BYTES_ - 8,
			SPMT_CMP_EQ, l->flag, SPMTD_WHAT_WAIT, -1);
	spmtd_wait_rest_(v, &w);
	rc = spmtd_agree_(rc, scope);
	if (rc)
		return rc;
	spmtd_acquired_(); /* by those who did not look, too */
	SPMTD_ROLLED for (uint64_t i = spmtd_lane_(scope); i < words; i += lanes)
	{
		uint64_t x = spmtd_peek64_(src + spmtd_line_word_(i));

		if (onto)
			spmtd_poke64_(onto + spmtd_line_word_(i), x);
		if (to)
			spmtd_line_store_(to, l->size, 8 * i, x);
	}
	if (onto)
		spmtd_lines_flag_(onto, l, scope);
	return 0;
}

/* dst: the raw address on pe. */
SPMTD_FN int spmtd_do_put_lines_(const struct spmt_view *v, uint64_t dst, const void *src,
	size_t size, uint64_t flag, int pe, int scope)
{
	struct spmtd_lines_ l = spmtd_lines_of_(size, flag);
	struct spmtd_line_part_ p = spmtd_line_part_of_(scope);

	spmtd_meet_(scope);
	if (p.groups)
		spmtd_put_lines_whole_(dst, spmtd_at_(src), &l, &p);
	else
		spmtd_put_lines_in_order_(dst, spmtd_at_(src), &l, scope);
	if (l.n)
		spmtd_wake_(v, pe);
	spmtd_meet_(scope);
	return 0;
}

/* onto: the raw address on pe; 0: nowhere. */
SPMTD_FN int spmtd_do_get_lines_(const struct spmt_view *v, void *dst, const void *src, size_t size,
	uint64_t flag, uint64_t onto, int pe, int scope)
{
	struct spmtd_lines_ l = spmtd_lines_of_(size, flag);
	struct spmtd_line_part_ p = spmtd_line_part_of_(scope);
	uint64_t to = spmtd_at_(dst), from = spmtd_at_(src);
	int rc;

	if (!flag)
		return SPMTD_INVALID;
	spmtd_meet_(scope);
	if (p.groups)
		rc = spmtd_get_lines_whole_(v, to, from, &l, &p, onto);
	else
		rc = spmtd_get_lines_in_order_(v, to, from, &l, onto, scope);
	if (onto && l.n && !rc)
		spmtd_wake_(v, pe);
	return spmtd_agree_(rc, scope);
}

#define SPMTD_PUT_LINES(suffix, scope)                                                             \
	SPMTD_FN int spmtd_put_lines##suffix(const struct spmt_view *v, void *dst,                 \
		const void *src, size_t size, uint64_t flag, int pe)                               \
	{                                                                                          \
		if (spmtd_is_far_(v, pe))                                                          \
			return SPMTD_UNSUPPORTED;                                                  \
		return spmtd_do_put_lines_(                                                        \
			v, spmtd_there_(v, dst, pe), src, size, flag, pe, scope);                  \
	}                                                                                          \
	SPMTD_FN int spmtd_mem_put_lines##suffix(const struct spmt_view *v,                        \
		const struct spmt_mem_view *m, size_t dst_off, const void *src, size_t size,       \
		uint64_t flag, int pe)                                                             \
	{                                                                                          \
		if (spmtd_mem_is_far_(m, pe))                                                      \
			return SPMTD_UNSUPPORTED;                                                  \
		return spmtd_do_put_lines_(                                                        \
			v, spmtd_mem_there_(m, dst_off, pe), src, size, flag, pe, scope);          \
	}                                                                                          \
	SPMTD_FN int spmtd_get_lines##suffix(                                                      \
		const struct spmt_view *v, void *dst, const void *src, size_t size, uint64_t flag) \
	{                                                                                          \
		return spmtd_do_get_lines_(v, dst, src, size, flag, 0, -1, scope);                 \
	}                                                                                          \
	SPMTD_FN int spmtd_forward_lines##suffix(const struct spmt_view *v, void *onto, void *dst, \
		const void *src, size_t size, uint64_t flag, int pe)                               \
	{                                                                                          \
		if (spmtd_is_far_(v, pe))                                                          \
			return SPMTD_UNSUPPORTED;                                                  \
		return spmtd_do_get_lines_(                                                        \
			v, dst, src, size, flag, spmtd_there_(v, onto, pe), pe, scope);            \
	}
SPMTD_PUT_LINES(_warp, SPMTD_WARP_)
SPMTD_PUT_LINES(_block, SPMTD_BLOCK_)

#undef SPMTD_LINES_WHOLE
#undef SPMTD_PUT_LINES

SPMTD_END

#endif
