/* SPDX-License-Identifier: MIT */
/*
 * Copy engines fed by kernels: where SPMT_SDMA=queues got the view a queue to a peer (AMD's engines, which read packets from user space,
 * and those of virtual devices), these calls write packets into its ring; where it got none they are the ordinary put and signal, and
 * what they do is the same.
 *	put      returns once it is submitted: quiet says when the bytes are there, and when `src` may be written again. What the thread (warp,
 *	         block) has stored before is sent.
 *	signal   comes after all that was put to pe by these calls before, by this thread or in the same scope, and after that thread's own
 *	         ordinary puts.
 *	quiet    all that this rank's kernels have submitted to pe, or, with pe < 0, to all, is complete. spmtd_quiet and barrier cover it,
 *	         too, and spmt_quiet on the host once the kernel has ended; the end of a kernel alone does not. spmtd_fence waits likewise;
 *	         it returns nothing, so if its wait ends early, later operations are not ordered, and only spmt_quiet on the host reports it.
 * All return 0, or the code of a wait that failed: for room in a full ring, in which case what found room is submitted and the rest is not,
 * or for the engine. Kernels notice a stopped engine at their deadline; the next spmt_quiet says why, and breaks the comm. `src` is
 * memory of the device or the heap, not a thread's stack or shared memory. Any number of threads, warps and blocks submit at once; nobody
 * waits for another one, only for the engine.
 */
#ifndef SPMTD_SDMA_H
#define SPMTD_SDMA_H

#include "rma.h"

SPMTD_BEGIN

/* ---- copy engines fed by kernels ------------------------------------------------------------- */

/* Words of each packet, and the most that one of nothing skips. */
enum {
	SPMTD_SDMA_COPY_WORDS_ = 7,
	SPMTD_SDMA_FENCE_WORDS_ = 4,
	SPMTD_SDMA_ATOMIC_WORDS_ = 8,
	SPMTD_SDMA_CACHE_WORDS_ = 5,
	SPMTD_SDMA_NOP_MOST_ = 1 << 14
};
/* First words; SDMA 4 and 5 differ in the fence's. The atomics are a swap and an addition of 64 bits. */
#define SPMTD_SDMA_COPY_ 1u
#define SPMTD_SDMA_FENCE_ 5u
#define SPMTD_SDMA_UNCACHED_ (3u << 16)
#define SPMTD_SDMA_SWAP_ (10u | 39u << 25)
#define SPMTD_SDMA_ADD_ (10u | 47u << 25)
#define SPMTD_SDMA_CACHE_ (17u | 1u << 8)
/* All addresses: written back, and forgotten. */
#define SPMTD_SDMA_CACHE_WRITE_ 0x80400000u
#define SPMTD_SDMA_CACHE_DROP_ 0x43800000u

/* What is submitted at once: a copy, or a signal, of which `from` is the value. */
enum spmtd_sdma_kind_ { SPMTD_SDMA_DO_COPY_, SPMTD_SDMA_DO_SET_, SPMTD_SDMA_DO_ADD_ };

/* -- packets: each writes one and returns its end */

SPMTD_FN uint64_t spmtd_sdma_pair_(uint64_t at, uint64_t x)
{
	spmtd_poke32_(at, (uint32_t)x);
	spmtd_poke32_(at + 4, (uint32_t)(x >> 32));
	return at + 8;
}

SPMTD_FN uint64_t spmtd_sdma_copy_(uint64_t at, uint64_t to, uint64_t from, uint64_t n)
{
	spmtd_poke32_(at, SPMTD_SDMA_COPY_);
	spmtd_poke32_(at + 4, (uint32_t)(n - 1));
	spmtd_poke32_(at + 8, 0);
	return spmtd_sdma_pair_(spmtd_sdma_pair_(at + 12, from), to);
}

SPMTD_FN uint64_t spmtd_sdma_fence_(uint64_t at, uint32_t version, uint64_t word, uint32_t x)
{
	spmtd_poke32_(at, SPMTD_SDMA_FENCE_ | (version >= 5 ? SPMTD_SDMA_UNCACHED_ : 0));
	at = spmtd_sdma_pair_(at + 4, word);
	spmtd_poke32_(at, x);
	return at + 4;
}

/* head: SPMTD_SDMA_SWAP_ or SPMTD_SDMA_ADD_ */
SPMTD_FN uint64_t spmtd_sdma_atomic_(uint64_t at, uint32_t head, uint64_t word, uint64_t x)
{
	spmtd_poke32_(at, head);
	at = spmtd_sdma_pair_(spmtd_sdma_pair_(at + 4, word), x);
	spmtd_poke32_(at, 0);
	return spmtd_sdma_pair_(at + 4, 0);
}

SPMTD_FN uint64_t spmtd_sdma_cache_(uint64_t at, int drop)
{
	spmtd_poke32_(at, SPMTD_SDMA_CACHE_);
	spmtd_poke32_(at + 4, 0);
	spmtd_poke32_(at + 8, SPMTD_SDMA_CACHE_WRITE_ | (drop ? SPMTD_SDMA_CACHE_DROP_ : 0));
	return spmtd_sdma_pair_(at + 12, 0);
}

SPMTD_FN uint64_t spmtd_sdma_nop_(uint64_t at, uint64_t bytes)
{
	SPMTD_ROLLED while (bytes)
	{
		uint64_t words = bytes / 4;

		if (words > SPMTD_SDMA_NOP_MOST_)
			words = SPMTD_SDMA_NOP_MOST_;
		spmtd_poke32_(at, (uint32_t)(words - 1) << 16);
		SPMTD_ROLLED for (uint64_t i = 1; i < words; i++) spmtd_poke32_(at + i * 4, 0);
		at += words * 4;
		bytes -= words * 4;
	}
	return at;
}

/* -- a submission */

/* Most bytes of one copy. */
SPMTD_FN uint64_t spmtd_sdma_copy_most_(const struct spmtd_sdma *q)
{
	return ((uint64_t)1 << q->count_bits) - 32;
}

SPMTD_FN uint64_t spmtd_sdma_bytes_(const struct spmtd_sdma *q, int kind, uint64_t n)
{
	uint64_t most = spmtd_sdma_copy_most_(q);
	uint64_t words = SPMTD_SDMA_ATOMIC_WORDS_;

	if (kind == SPMTD_SDMA_DO_COPY_)
		words = (n + most - 1) / most * SPMTD_SDMA_COPY_WORDS_;
	if (q->version >= 5)
		words += 2 * SPMTD_SDMA_CACHE_WORDS_;
	words +=
		q->atomics & SPMTD_SDMA_COUNTS ? SPMTD_SDMA_ATOMIC_WORDS_ : SPMTD_SDMA_FENCE_WORDS_;
	return (words * 4 + q->unit - 1) & ~(uint64_t)(q->unit - 1);
}

SPMTD_FN uint64_t spmtd_sdma_write_copies_(
	const struct spmtd_sdma *q, uint64_t at, uint64_t to, uint64_t from, uint64_t n)
{
	uint64_t most = spmtd_sdma_copy_most_(q);

	SPMTD_ROLLED while (n)
	{
		uint64_t piece = n < most ? n : most;

		at = spmtd_sdma_copy_(at, to, from, piece);
		to += piece;
		from += piece;
		n -= piece;
	}
	return at;
}

/* From `begin` to `end`, of which the last `bytes` are the packets: before them lie what the ring has left at its end. The engine
   counts all of it. */
SPMTD_FN void spmtd_sdma_write_(const struct spmtd_sdma *q, uint64_t begin, uint64_t end,
	uint64_t bytes, int kind, uint64_t to, uint64_t from, uint64_t n)
{
	uint64_t first = end - bytes, at = q->ring + (first & (q->size - 1)), last = at + bytes;

	(void)spmtd_sdma_nop_(q->ring + (begin & (q->size - 1)), first - begin);
	if (q->version >= 5)
		at = spmtd_sdma_cache_(at, 1);
	if (kind == SPMTD_SDMA_DO_COPY_)
		at = spmtd_sdma_write_copies_(q, at, to, from, n);
	else
		at = spmtd_sdma_atomic_(at,
			kind == SPMTD_SDMA_DO_SET_ ? SPMTD_SDMA_SWAP_ : SPMTD_SDMA_ADD_, to, from);
	if (q->version >= 5)
		at = spmtd_sdma_cache_(at, 0);
	if (q->atomics & SPMTD_SDMA_COUNTS)
		at = spmtd_sdma_atomic_(at, SPMTD_SDMA_ADD_, q->completed, end - begin);
	else
		at = spmtd_sdma_fence_(at, q->version, q->completed, (uint32_t)end);
	(void)spmtd_sdma_nop_(at, last - at);
}

/* The ring is never quite full, so that a full one does not look empty to an engine. *read is across the bus, so that the device keeps
   what it saw last. */
SPMTD_FN int spmtd_sdma_fits_(struct spmtd_sdma *q, uint64_t end)
{
	uint64_t read = spmtd_peek64_(spmtd_at_(&q->seen));

	if (end - read < q->size)
		return 1;
	read = spmtd_look64_(q->read);
	spmtd_poke64_(spmtd_at_(&q->seen), read);
	return end - read < q->size;
}

/* One reservation a submission, of `bytes` that do not reach over the ring's end. 1, or 0: there is no room. */
SPMTD_FN int spmtd_sdma_claim_(struct spmtd_sdma *q, uint64_t bytes, uint64_t *begin, uint64_t *end)
{
	uint64_t claimed = spmtd_at_(&q->claimed), at = spmtd_peek64_(claimed), left, seen;

	for (;;) {
		left = q->size - (at & (q->size - 1));
		*begin = at;
		*end = at + bytes + (left < bytes ? left : 0);
		if (!spmtd_sdma_fits_(q, *end))
			return 0;
		seen = spmtd_cas64_(claimed, at, *end);
		if (seen == at)
			return 1;
		at = seen;
	}
}

SPMTD_FN uint64_t spmtd_sdma_end_at_(const struct spmtd_sdma *q, uint64_t begin)
{
	return q->ends + (begin & (q->size - 1)) / q->unit * sizeof(uint64_t);
}

/* How far everything is written. An end of the ring's last round is not ahead of its beginning. */
SPMTD_FN uint64_t spmtd_sdma_written_(const struct spmtd_sdma *q, uint64_t from)
{
	for (;;) {
		uint64_t end = spmtd_look64_(spmtd_sdma_end_at_(q, from));

		if ((int64_t)(end - from) <= 0)
			return from;
		from = end;
	}
}

/* The write pointer first: an engine that is resumed reads it in the doorbell's place. */
SPMTD_FN void spmtd_sdma_ring_(struct spmtd_sdma *q, uint64_t end)
{
	spmtd_release_set_(q->write, end);
	spmtd_release_set_(q->doorbell, end);
#if defined(SPMTD_HOST)
	if (q->rung)
		q->rung(q->queue);
#endif
	spmtd_poke64_(spmtd_at_(&q->told), end);
}

/*
 * What begins at `begin` is written. Whoever finds nobody telling the engine does so, for others too: a thread that has written its
 * packets while another one tells may leave, for that one looks again afterwards. So packets are told of in their order, and no thread
 * waits for one of its own warp.
 */
SPMTD_FN void spmtd_sdma_publish_(struct spmtd_sdma *q, uint64_t begin, uint64_t end)
{
	uint64_t telling = spmtd_at_(&q->telling), told;

	spmtd_release_set_(spmtd_sdma_end_at_(q, begin), end);
	do {
		spmtd_order_();
		if (spmtd_swap64_(telling, 1))
			return;
		spmtd_order_();
		told = spmtd_peek64_(spmtd_at_(&q->told));
		end = spmtd_sdma_written_(q, told);
		spmtd_order_(); /* what others have written, too, before the engine is told */
		if (end != told)
			spmtd_sdma_ring_(q, end);
		spmtd_release_set_(telling, 0);
		spmtd_order_();
	} while (spmtd_sdma_written_(q, end) != end);
}

/*
 * By one thread: 0, or the code of the wait for room, and nothing is submitted. Threads of a warp that run in step leave a loop together:
 * one that has found room submits inside of it, or those that wait for room could wait for what it holds back. The compiler is kept from
 * moving that behind the loop.
 */
SPMTD_FN int spmtd_sdma_submit_(const struct spmt_view *v, struct spmtd_sdma *q, int pe, int kind,
	uint64_t to, uint64_t from, uint64_t n)
{
	uint64_t bytes = spmtd_sdma_bytes_(q, kind, n), begin = 0, end = 0;
	struct spmtd_waiter_ w;
	uint32_t waits = 1;
	int rc = 0;

	spmtd_wait_begin_(&w);
	do {
		if (spmtd_sdma_claim_(q, bytes, &begin, &end)) {
			spmtd_sdma_write_(q, begin, end, bytes, kind, to, from, n);
			spmtd_sdma_publish_(q, begin, end);
			waits = 0;
		} else {
			rc = spmtd_wait_check_(v, &w);
			if (rc) {
				spmtd_record_(v, rc, SPMTD_WHAT_SDMA, pe, q->read,
					end - q->size + 1, spmtd_look64_(q->read));
				waits = 0;
			}
		}
		SPMTD_HIDE(waits);
	} while (waits);
	spmtd_wait_rest_(v, &w);
	return rc;
}

/* The queue to pe; NULL: none. */
SPMTD_FN struct spmtd_sdma *spmtd_sdma_of_(const struct spmt_view *v, int pe)
{
	return spmtd_sdma_has_(v) && v->sdma[pe].ring ? v->sdma + pe
						      : (struct spmtd_sdma *)spmtd_to_(0);
}

SPMTD_FN int spmtd_sdma_put_by_(
	const struct spmt_view *v, void *dst, const void *src, uint64_t n, int pe, int scope)
{
	struct spmtd_sdma *q = spmtd_sdma_of_(v, pe);
	uint64_t to = q ? spmtd_there_(v, dst, pe) : 0, from = spmtd_at_(src);
	int rc = 0;

	/* the engine moves in no particular order */
	if (!q || (to > from ? to - from : from - to) < n) {
		spmtd_put_to_(v, dst, src, n, pe, scope, 0);
		return 0;
	}
	spmtd_meet_settled_(scope);
	if (spmtd_lane_(scope) == 0) {
		SPMTD_ROLLED for (uint64_t at = 0; at < n && !rc; at += q->most)
		{
			uint64_t part = n - at < q->most ? n - at : q->most;

			rc = spmtd_sdma_submit_(
				v, q, pe, SPMTD_SDMA_DO_COPY_, to + at, from + at, part);
		}
	}
	return spmtd_agree_(rc, scope);
}

/* By one thread. What the engine's atomics do not reach is stored here, behind all that it has to do. */
SPMTD_FN int spmtd_sdma_signal_one_(
	const struct spmt_view *v, uint64_t *sig, uint64_t val, int op, int pe)
{
	struct spmtd_sdma *q = spmtd_sdma_of_(v, pe);
	int kind = op == SPMT_SIGNAL_SET ? SPMTD_SDMA_DO_SET_ : SPMTD_SDMA_DO_ADD_, rc = 0;

	if (q && (q->atomics & SPMTD_SDMA_SIGNALS))
		return spmtd_sdma_submit_(v, q, pe, kind, spmtd_there_(v, sig, pe), val, 0);
	if (q)
		rc = spmtd_sdma_await_(v, q, pe);
	if (!rc)
		spmtd_signal_op(v, sig, val, op, pe);
	return rc;
}

SPMTD_FN int spmtd_sdma_signal_by_(
	const struct spmt_view *v, uint64_t *sig, uint64_t val, int op, int pe, int scope)
{
	int rc = 0;

	spmtd_meet_settled_(scope);
	if (spmtd_lane_(scope) == 0)
		rc = spmtd_sdma_signal_one_(v, sig, val, op, pe);
	return spmtd_agree_(rc, scope);
}

/* Of ordinary puts to a peer without a queue, too. */
SPMTD_FN int spmtd_sdma_quiet_by_(const struct spmt_view *v, int pe, int scope)
{
	int rc;

	spmtd_meet_settled_(scope);
	spmtd_complete_();
	rc = spmtd_sdma_has_(v) ? spmtd_sdma_done_by_(v, pe, scope) : 0;
	if (!rc && spmtd_fifo_(v) && (pe < 0 || spmtd_is_far_(v, pe)))
		rc = spmtd_far_quiet_by_(spmtd_fifo_(v), v->timeout_ns, scope);
	return rc;
}

#define SPMTD_SDMA(suffix, scope)                                                        \
	SPMTD_FN int spmtd_sdma_put##suffix(                                             \
		const struct spmt_view *v, void *dst, const void *src, size_t n, int pe) \
	{                                                                                \
		return spmtd_sdma_put_by_(v, dst, src, n, pe, scope);                    \
	}                                                                                \
	SPMTD_FN int spmtd_sdma_signal##suffix(                                          \
		const struct spmt_view *v, uint64_t *sig, uint64_t val, int op, int pe)  \
	{                                                                                \
		return spmtd_sdma_signal_by_(v, sig, val, op, pe, scope);                \
	}                                                                                \
	SPMTD_FN int spmtd_sdma_quiet##suffix(const struct spmt_view *v, int pe)         \
	{                                                                                \
		return spmtd_sdma_quiet_by_(v, pe, scope);                               \
	}
SPMTD_SDMA(, SPMTD_THREAD_)
SPMTD_SDMA(_warp, SPMTD_WARP_)
SPMTD_SDMA(_block, SPMTD_BLOCK_)

#undef SPMTD_HIDE
#undef SPMTD_SDMA
#undef SPMTD_SDMA_COPY_
#undef SPMTD_SDMA_FENCE_
#undef SPMTD_SDMA_UNCACHED_
#undef SPMTD_SDMA_SWAP_
#undef SPMTD_SDMA_ADD_
#undef SPMTD_SDMA_CACHE_
#undef SPMTD_SDMA_CACHE_WRITE_
#undef SPMTD_SDMA_CACHE_DROP_

SPMTD_END

#endif
