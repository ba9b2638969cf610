/* SPDX-License-Identifier: MIT */
/* Posts: what a kernel has the host do for it, through a ring of descriptors (struct spmtd_post) that a thread of the host reads; what is
   posted to peers that have no address; and the order of what a thread does. */
#ifndef SPMTD_FIFO_H
#define SPMTD_FIFO_H

#include "wait.h"

SPMTD_BEGIN

/* Has a value of 32 bits come from nowhere, as far as the compiler sees. On AMD GPUs by a permutation of four lanes that leaves each where it
   is: not by assembly, as in amdgcn.h's spmtd_written_back_. */
#if defined(SPMTD_AMDGCN)
#define SPMTD_HIDE(x) ((x) = (__typeof__(x))__builtin_amdgcn_mov_dpp((int)(x), 0xe4, 0xf, 0xf, 1))
#elif defined(__CUDACC_RTC__)
#define SPMTD_HIDE(x) asm volatile("" : "+r"(x))
#else
#define SPMTD_HIDE(x) __asm__ volatile("" : "+r"(x))
#endif

/*
 * Threads claim places in turn, by compare-and-swap: one whose deadline passes before there is a free place has claimed none, and the
 * ring goes on without it. The count of what the host has taken is across the bus, so that the device keeps what it saw last.
 */
SPMTD_FN int spmtd_post_fits_(const struct spmtd_fifo *f, uint64_t place)
{
	uint64_t seen = spmtd_at_(&f->own->taken);
	int64_t places = (int64_t)1 << f->shift;
	uint64_t taken = spmtd_peek64_(seen);

	if ((int64_t)(place - taken) < places)
		return 1;
	taken = spmtd_look64_(f->taken);
	spmtd_poke64_(seen, taken);
	return (int64_t)(place - taken) < places;
}

SPMTD_FN uint64_t spmtd_post_head_(int kind, int peer, uint32_t arg)
{
	return (uint64_t)arg << 32 | (uint64_t)(uint32_t)peer << 8 | (uint64_t)(uint32_t)kind << 1;
}

SPMTD_FN int spmtd_post_peer_(uint64_t head)
{
	return (int)(head >> 8 & 0xffffff);
}

/* The fields of a post, by value: one in memory would give each kernel a stack. */
#define SPMTD_POST_ uint64_t head, uint64_t to, uint64_t from, uint64_t size

/* Behind all that the calling thread has stored. */
SPMTD_FN void spmtd_post_write_(const struct spmtd_fifo *f, uint64_t place, SPMTD_POST_)
{
	uint64_t at = place & (((uint64_t)1 << f->shift) - 1);
	uint64_t a = f->ring + at * sizeof(struct spmtd_post);

	spmtd_poke64_(a + 8, to);
	spmtd_poke64_(a + 16, from);
	spmtd_poke64_(a + 24, size);
	spmtd_release_set_(a, head | (~(place >> f->shift) & 1));
}

/*
 * Claims a place and fills it; 0, or the code of the wait for one. A post is written within the loop, which a thread then leaves on another way
 * round: threads of a warp that have to run together all come out of a loop before any goes on, and others may wait in it for this post to
 * be taken.
 */
SPMTD_FN int spmtd_post_claim_(const struct spmt_view *v, const struct spmtd_fifo *f,
	struct spmtd_waiter_ *w, uint64_t *place, SPMTD_POST_)
{
	uint64_t posted = spmtd_at_(&f->own->posted);
	uint64_t at = spmtd_peek64_(posted), seen;
	int rc, mine = 0;

	while (!mine) {
		if (spmtd_post_fits_(f, at)) {
			seen = spmtd_cas64_(posted, at, at + 1);
			mine = seen == at;
			if (mine)
				spmtd_post_write_(f, at, head, to, from, size);
			else
				at = seen;
			SPMTD_HIDE(mine);
			continue;
		}
		rc = spmtd_wait_check_(v, w);
		if (rc) {
			spmtd_record_(v, rc, SPMTD_WHAT_POST, spmtd_post_peer_(head), f->taken, at,
				spmtd_look64_(f->taken));
			return rc;
		}
		at = spmtd_peek64_(posted);
	}
	*place = at;
	return 0;
}

SPMTD_FN void spmtd_post_view_(const struct spmtd_fifo *f, uint64_t timeout_ns, struct spmt_view *v)
{
	v->pe = f->pe;
	v->own = f->own;
	v->stop = f->stop;
	v->record = f->record;
	v->timeout_ns = timeout_ns;
	v->host = f->host;
}

/*
 * By one thread. waits: until the host is through with it. 0, or the code of the wait for a place, or of that for the host, which drops what
 * it finds in a broken world. A quiet tells either again, as most callers return nothing: what was waited for may then come late, or never.
 * Not of a port's flush or of a quiet itself, which return it. Never inlined on devices, and not by the view, so that kernels which do not post pay little for it.
 */
SPMTD_LONG int spmtd_post_(uint64_t fifo, uint64_t timeout_ns, SPMTD_POST_, int waits)
{
	const struct spmtd_fifo *f = (const struct spmtd_fifo *)spmtd_to_(fifo);
	int peer = spmtd_post_peer_(head), kind = (int)(head >> 1 & 0x7f);
	int told = kind == SPMTD_FAR_QUIET, rc;
	struct spmtd_waiter_ w;
	struct spmt_view v;
	uint64_t place = 0;

	spmtd_post_view_(f, timeout_ns, &v);
	spmtd_wait_begin_(&w);
	rc = spmtd_post_claim_(&v, f, &w, &place, head, to, from, size);
	if (!rc) {
#if defined(SPMTD_HOST)
		if (v.host && v.host->posted)
			v.host->posted(&v);
#endif
		if (waits)
			rc = spmtd_await_(&v, &w, SPMTD_KIND_W_, 64, f->taken, 0, place + 1,
				SPMTD_WHAT_POST, peer);
		if (waits && !rc && spmtd_stopped_(&v))
			rc = SPMTD_ABORTED;
		told |= kind & SPMTD_POST_PORT;
	}
	if (rc && !told)
		spmtd_poke64_(spmtd_at_(&f->own->lost), (uint64_t)(int64_t)rc);
	spmtd_wait_end_(&v, &w);
	return rc;
}

/* ---- to peers that have no address ------------------------------------------------------------ */

SPMTD_FN int spmtd_far_post_(const struct spmt_view *v, int kind, int pe, uint32_t arg, uint64_t to,
	uint64_t from, uint64_t size, int waits)
{
	return spmtd_post_(spmtd_fifo_(v), v->timeout_ns, spmtd_post_head_(kind, pe, arg), to, from,
		size, waits);
}

SPMTD_FN uint64_t spmtd_offset_(const struct spmt_view *v, const volatile void *sym)
{
	return spmtd_at_(sym) - v->base;
}

/* What a scope does there, in one call by value, as spmtd_post_ is: so that what kernels do for peers that have addresses keeps its registers. n may
   be 0. */
SPMTD_LONG void spmtd_far_move_by_(uint64_t fifo, uint64_t timeout_ns, int kind, int pe,
	uint64_t off, uint64_t local, uint64_t n, int scope, int nbi)
{
	spmtd_meet_settled_(scope);
	if (n && spmtd_lane_(scope) == 0)
		(void)spmtd_post_(
			fifo, timeout_ns, spmtd_post_head_(kind + nbi, pe, 0), off, local, n, !nbi);
	if (!nbi) {
		spmtd_meet_(scope);
		spmtd_acquired_();
	}
}

SPMTD_FN void spmtd_far_move_(const struct spmt_view *v, int kind, uint64_t off, uint64_t local,
	uint64_t n, int pe, int scope, int nbi)
{
	spmtd_far_move_by_(spmtd_fifo_(v), v->timeout_ns, kind, pe, off, local, n, scope, nbi);
}

SPMTD_FN void spmtd_far_put_(const struct spmt_view *v, const volatile void *dst, const void *src,
	uint64_t n, int pe, int scope, int nbi)
{
	spmtd_far_move_(v, SPMTD_FAR_PUT, spmtd_offset_(v, dst), spmtd_at_(src), n, pe, scope, nbi);
}

SPMTD_FN void spmtd_far_get_(const struct spmt_view *v, void *dst, const volatile void *src,
	uint64_t n, int pe, int scope, int nbi)
{
	spmtd_far_move_(v, SPMTD_FAR_GET, spmtd_offset_(v, src), spmtd_at_(dst), n, pe, scope, nbi);
}

/* where: SPMTD_FAR_HEAP or SPMTD_FAR_MEM, which `off` is of. */
SPMTD_FN void spmtd_far_value_(
	const struct spmt_view *v, int where, uint64_t off, uint64_t value, uint32_t bytes, int pe)
{
	(void)spmtd_far_post_(v, SPMTD_FAR_VALUE | where, pe, 0, off, value, bytes, 0);
}

SPMTD_LONG void spmtd_far_signal_by_(
	uint64_t fifo, uint64_t timeout_ns, uint64_t off, uint64_t value, int op, int pe, int waits)
{
	(void)spmtd_post_(fifo, timeout_ns, spmtd_post_head_(SPMTD_FAR_SIGNAL, pe, (uint32_t)op),
		off, value, 0, waits);
}

SPMTD_FN void spmtd_far_signal_(
	const struct spmt_view *v, uint64_t off, uint64_t value, int op, int pe, int waits)
{
	spmtd_far_signal_by_(spmtd_fifo_(v), v->timeout_ns, off, value, op, pe, waits);
}

/* kind: of the put. */
SPMTD_LONG void spmtd_far_put_signal_by_(uint64_t fifo, uint64_t timeout_ns, int kind, int pe,
	uint64_t off, uint64_t local, uint64_t n, uint64_t sig, uint64_t value, int op, int scope,
	int nbi)
{
	spmtd_meet_settled_(scope);
	if (spmtd_lane_(scope) == 0) {
		int rc = n ? spmtd_post_(fifo, timeout_ns, spmtd_post_head_(kind + nbi, pe, 0), off,
				     local, n, 0)
			   : 0;

		if (!rc)
			spmtd_far_signal_by_(fifo, timeout_ns, sig, value, op, pe, !nbi);
	}
	if (!nbi)
		spmtd_meet_(scope);
}

SPMTD_FN void spmtd_far_put_signal_(const struct spmt_view *v, int where, uint64_t off,
	const void *src, uint64_t n, const volatile uint64_t *sig, uint64_t value, int op, int pe,
	int scope, int nbi)
{
	spmtd_far_put_signal_by_(spmtd_fifo_(v), v->timeout_ns, SPMTD_FAR_PUT | where, pe, off,
		spmtd_at_(src), n, spmtd_offset_(v, sig), value, op, scope, nbi);
}

/* ---- what a post brings back --------------------------------------------------------------------- */

/* A cell of one's own: its number; SPMTD_CELLS: none is free, of those in *used. */
SPMTD_FN uint32_t spmtd_cell_try_(const struct spmt_view *v, uint64_t *used)
{
	uint64_t bits = spmtd_at_(&v->own->cells), seen = spmtd_peek64_(bits);
	uint32_t cell;

	do {
		*used = seen;
		for (cell = 0; cell < SPMTD_CELLS && *used >> cell & 1; cell++)
			continue;
		if (cell == SPMTD_CELLS)
			break;
		seen = spmtd_cas64_(bits, *used, *used | (uint64_t)1 << cell);
	} while (seen != *used);
	return cell;
}

SPMTD_FN void spmtd_cells_free_(const struct spmtd_fifo *f, uint64_t cells)
{
	struct spmt_view v;

	spmtd_post_view_(f, 0, &v);
	spmtd_noret_and64_(spmtd_at_(&f->own->cells), ~cells);
	spmtd_wake_(&v, v.pe);
}

/* With that cell. One that the host may still write to is not used again until a quiet that began behind it is done. */
SPMTD_FN uint64_t spmtd_far_ask_by_(
	const struct spmtd_fifo *f, uint64_t timeout_ns, uint32_t cell, SPMTD_POST_)
{
	int atomic = (int)(head >> 1 & 0x7f) == SPMTD_FAR_ATOMIC;
	uint64_t x;

	head |= atomic ? (uint64_t)(cell + 1) << 48 : (uint64_t)cell << 32;
	if (spmtd_post_(spmtd_at_(f), timeout_ns, head, to, from, size, 1)) {
		spmtd_noret_or64_(spmtd_at_(&f->own->late), (uint64_t)1 << cell);
		return 0;
	}
	x = spmtd_look64_(f->cells + cell * sizeof(x));
	spmtd_cells_free_(f, (uint64_t)1 << cell);
	return x;
}

/* By one thread; 0 where it failed, which a quiet tells. All that is done with a cell is within the loop, as in spmtd_post_claim_: others of the warp may
   wait in it for this cell. */
SPMTD_LONG uint64_t spmtd_far_ask_(uint64_t fifo, uint64_t timeout_ns, SPMTD_POST_)
{
	const struct spmtd_fifo *f = (const struct spmtd_fifo *)spmtd_to_(fifo);
	struct spmtd_waiter_ w;
	uint64_t used, x = 0;
	struct spmt_view v;
	uint32_t cell;
	int rc, mine = 0;

	spmtd_post_view_(f, timeout_ns, &v);
	spmtd_wait_begin_(&w);
	while (!mine) {
		cell = spmtd_cell_try_(&v, &used);
		mine = cell < SPMTD_CELLS;
		if (mine) {
			x = spmtd_far_ask_by_(f, timeout_ns, cell, head, to, from, size);
			SPMTD_HIDE(mine);
			continue;
		}
		rc = spmtd_wait_check_(&v, &w);
		if (rc) {
			spmtd_record_(&v, rc, SPMTD_WHAT_POST, spmtd_post_peer_(head),
				spmtd_at_(&v.own->cells), 0, used);
			spmtd_poke64_(spmtd_at_(&v.own->lost), (uint64_t)(int64_t)rc);
			break;
		}
	}
	spmtd_wait_rest_(&v, &w);
	return x;
}

SPMTD_FN uint64_t spmtd_far_fetch_(
	const struct spmt_view *v, int where, uint64_t off, uint32_t bytes, int pe)
{
	return spmtd_far_ask_(spmtd_fifo_(v), v->timeout_ns,
		spmtd_post_head_(SPMTD_FAR_FETCH | where, pe, 0), off, 0, bytes);
}

/* The numbers of enum spmt_amo. */
enum spmtd_far_amo_ {
	SPMTD_AMO_FETCH_,
	SPMTD_AMO_SET_,
	SPMTD_AMO_SWAP_,
	SPMTD_AMO_COMPARE_SWAP_,
	SPMTD_AMO_ADD_ = 5,
	SPMTD_AMO_AND_,
	SPMTD_AMO_OR_,
	SPMTD_AMO_XOR_,
	SPMTD_AMO_FETCH_ADD_ = 10,
	SPMTD_AMO_FETCH_AND_,
	SPMTD_AMO_FETCH_OR_,
	SPMTD_AMO_FETCH_XOR_
};

SPMTD_FN uint64_t spmtd_far_amo_head_(int pe, int op, uint32_t bytes)
{
	return spmtd_post_head_(SPMTD_FAR_ATOMIC, pe, (uint32_t)op | bytes << 8);
}

SPMTD_FN void spmtd_far_amo_(const struct spmt_view *v, const volatile void *sym, int pe, int op,
	uint32_t bytes, uint64_t operand)
{
	(void)spmtd_post_(spmtd_fifo_(v), v->timeout_ns, spmtd_far_amo_head_(pe, op, bytes),
		spmtd_offset_(v, sym), operand, 0, 0);
}

SPMTD_FN uint64_t spmtd_far_amo_fetch_(const struct spmt_view *v, const volatile void *sym, int pe,
	int op, uint32_t bytes, uint64_t operand, uint64_t compare)
{
	return spmtd_far_ask_(spmtd_fifo_(v), v->timeout_ns, spmtd_far_amo_head_(pe, op, bytes),
		spmtd_offset_(v, sym), operand, compare);
}

/* What only loads and stores can do: the host breaks the comm, with a sentence. */
SPMTD_FN void spmtd_far_refuse_(const struct spmt_view *v, int pe, int scope)
{
	if (spmtd_lane_(scope) == 0)
		(void)spmtd_far_post_(v, SPMTD_FAR_REFUSED, pe, 0, 0, 0, 0, 0);
}

/* All that this rank's kernels have posted before. */
SPMTD_LONG int spmtd_far_quiet_by_(uint64_t fifo, uint64_t timeout_ns, int scope)
{
	const struct spmtd_fifo *f = (const struct spmtd_fifo *)spmtd_to_(fifo);
	int rc = 0;

	if (spmtd_lane_(scope) == 0) {
		uint64_t late = spmtd_swap64_(spmtd_at_(&f->own->late), 0), lost;

		rc = spmtd_post_(
			fifo, timeout_ns, spmtd_post_head_(SPMTD_FAR_QUIET, f->pe, 0), 0, 0, 0, 1);
		if (late && rc)
			spmtd_noret_or64_(spmtd_at_(&f->own->late), late);
		else if (late)
			spmtd_cells_free_(f, late);
		lost = spmtd_swap64_(spmtd_at_(&f->own->lost), 0);
		if (!rc)
			rc = (int)(int64_t)lost;
	}
	rc = spmtd_agree_(rc, scope);
	spmtd_acquired_();
	return rc;
}

SPMTD_FN void spmtd_far_fence_(const struct spmt_view *v, int scope)
{
	if (spmtd_lane_(scope) == 0)
		(void)spmtd_far_post_(v, SPMTD_FAR_FENCE, v->pe, 0, 0, 0, 0, 0);
}

/* ---- what kernels have submitted to copy engines (sdma.h) ---------------------------------------- */

/* Queues are of AMD's engines and of virtual devices. */
SPMTD_FN int spmtd_sdma_has_(const struct spmt_view *v)
{
#if defined(SPMTD_NVPTX)
	(void)v;
	return 0;
#else
	return v->sdma ? 1 : 0;
#endif
}

/* Without its atomics the engine stores the lower half of the position alone, which is never more than the ring's size behind what is
   claimed. */
SPMTD_FN uint64_t spmtd_sdma_completed_(const struct spmtd_sdma *q)
{
	uint32_t low;
	uint64_t ahead;

	if (q->atomics & SPMTD_SDMA_COUNTS)
		return spmtd_look64_(q->completed);
	low = spmtd_look32_(q->completed);
	ahead = spmtd_peek64_(spmtd_at_(&q->claimed));
	return ahead - (uint32_t)(ahead - low);
}

/* By one thread: all that has been submitted to pe by now. */
SPMTD_FN int spmtd_sdma_await_(const struct spmt_view *v, const struct spmtd_sdma *q, int pe)
{
	uint64_t want = spmtd_peek64_(spmtd_at_(&q->claimed)), seen;
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	while (seen = spmtd_sdma_completed_(q), (int64_t)(seen - want) < 0) {
		rc = spmtd_wait_check_(v, &w);
		if (rc) {
			spmtd_record_(v, rc, SPMTD_WHAT_SDMA, pe, q->completed, want, seen);
			break;
		}
	}
	spmtd_wait_end_(v, &w);
	return rc;
}

/* pe < 0: to all. Only where the view has queues. */
SPMTD_FN int spmtd_sdma_done_(const struct spmt_view *v, int pe)
{
	int from = pe < 0 ? 0 : pe, to = pe < 0 ? v->npes : pe + 1, rc = 0;

	SPMTD_ROLLED for (int i = from; i < to && !rc; i++) if (v->sdma[i].ring) rc =
		spmtd_sdma_await_(v, v->sdma + i, i);
	return rc;
}

SPMTD_FN int spmtd_sdma_done_by_(const struct spmt_view *v, int pe, int scope)
{
	int rc = spmtd_lane_(scope) == 0 ? spmtd_sdma_done_(v, pe) : 0;

	return spmtd_agree_(rc, scope);
}

/* ---- order ---------------------------------------------------------------------------------- */

/*
 * By PTX's model a relaxed store tells of what others have stored if its own thread has fenced before
 * it, after it had met them. So threads meet first, then fence; and those who fence for a block, its first
 * warp, for which a fence is one instruction, also post for it in a sync. Posts after a quiet of the same
 * scope then need no fence of their own, which would take as long as a barrier's.
 */
SPMTD_FN int spmtd_posts_(int scope)
{
	return spmtd_lane_(scope) < spmtd_warp_size_();
}

/* What neither a thread's own stores nor their fences are. */
SPMTD_FN void spmtd_fence_others_(const struct spmt_view *v, int scope)
{
	if (spmtd_sdma_has_(v) && spmtd_lane_(scope) == 0)
		(void)spmtd_sdma_done_(v, -1); /* queues order nothing but themselves */
	if (spmtd_fifo_(v))
		spmtd_far_fence_(v, scope);
}

SPMTD_FN int spmtd_quiet_others_(const struct spmt_view *v, int scope)
{
	int rc = spmtd_sdma_has_(v) ? spmtd_sdma_done_by_(v, -1, scope) : 0;
	int far = spmtd_fifo_(v) ? spmtd_far_quiet_by_(spmtd_fifo_(v), v->timeout_ns, scope) : 0;

	return rc ? rc : far;
}

SPMTD_FN void spmtd_fence(const struct spmt_view *v)
{
	spmtd_order_();
	spmtd_fence_others_(v, SPMTD_THREAD_);
}

SPMTD_FN void spmtd_fence_warp(const struct spmt_view *v)
{
	spmtd_meet_warp_();
	spmtd_order_();
	spmtd_fence_others_(v, SPMTD_WARP_); /* by one thread, and others may go on by themselves */
	if (spmtd_sdma_has_(v) || spmtd_fifo_(v))
		spmtd_meet_warp_();
}

/* What all threads of the block have stored is then before what its first warp stores, and that alone: the others have not fenced, and a
   thread of theirs that stores what tells of it does so first. */
SPMTD_FN void spmtd_fence_block(const struct spmt_view *v)
{
	spmtd_meet_settled_(SPMTD_BLOCK_);
	if (spmtd_posts_(SPMTD_BLOCK_))
		spmtd_order_();
	spmtd_fence_others_(v, SPMTD_BLOCK_);
	spmtd_meet_block_();
}

/* 0; a code, where completion has to be waited for and is not seen before the deadline. */
SPMTD_FN int spmtd_quiet(const struct spmt_view *v)
{
	spmtd_complete_();
	return spmtd_quiet_others_(v, SPMTD_THREAD_);
}

SPMTD_FN int spmtd_quiet_warp(const struct spmt_view *v)
{
	spmtd_meet_warp_();
	spmtd_complete_();
	return spmtd_quiet_others_(v, SPMTD_WARP_);
}

SPMTD_FN int spmtd_quiet_block(const struct spmt_view *v)
{
	spmtd_meet_settled_(SPMTD_BLOCK_);
	if (spmtd_posts_(SPMTD_BLOCK_))
		spmtd_complete_();
	spmtd_meet_block_();
	return spmtd_quiet_others_(v, SPMTD_BLOCK_);
}

#undef SPMTD_POST_

SPMTD_END

#endif
