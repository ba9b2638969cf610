/* SPDX-License-Identifier: MIT */
/* Put, get and signal: bytes, the 11 types and two halves, on the heap and on registered buffers. */
#ifndef SPMTD_RMA_H
#define SPMTD_RMA_H

#include "copy.h"
#include "fifo.h"
#include "half.h"

SPMTD_BEGIN

/* ---- put, get, signal ----------------------------------------------------------------------- */

/* 1: a view that was handed shared memory has moved them by the engine (bulk.h), and all of the scope have met. */
#if defined(SPMTD_BULK_BY_VIEW)
SPMTD_FN int spmtd_view_moves_(
	const struct spmt_view *v, uint64_t dst, uint64_t src, uint64_t n, int way, int scope);
#else
SPMTD_FN int spmtd_view_moves_(
	const struct spmt_view *v, uint64_t dst, uint64_t src, uint64_t n, int way, int scope)
{
	(void)v, (void)dst, (void)src, (void)n, (void)way, (void)scope;
	return 0;
}
#endif

/* Where a put goes: a raw address, or from where it is found once it is wanted. */
enum spmtd_goal_kind_ { SPMTD_GOAL_RAW_, SPMTD_GOAL_HEAP_, SPMTD_GOAL_MEM_ };

struct spmtd_goal_ {
	const struct spmt_view *v;
	const struct spmt_mem_view *m;
	uint64_t at; /* this rank's symmetric address, or the offset in m */
	int pe, kind;
};

SPMTD_FN struct spmtd_goal_ spmtd_goal_of_(const struct spmt_view *v, uint64_t at, int pe, int kind)
{
	struct spmtd_goal_ g;

	g.v = v;
	g.m = (const struct spmt_mem_view *)spmtd_to_(0);
	g.at = at;
	g.pe = pe;
	g.kind = kind;
	return g;
}

SPMTD_FN uint64_t spmtd_goal_at_(struct spmtd_goal_ g)
{
	if (g.kind == SPMTD_GOAL_HEAP_)
		return spmtd_there_(g.v, spmtd_to_(g.at), g.pe);
	return g.kind == SPMTD_GOAL_MEM_ ? spmtd_mem_there_(g.m, (size_t)g.at, g.pe) : g.at;
}

/* What is addressed is found behind the meeting, by those who move something. */
SPMTD_FN void spmtd_do_put_to_(
	struct spmtd_goal_ g, const void *src, uint64_t n, int scope, int nbi)
{
	spmtd_meet_(scope);
	if (spmtd_has_part_(n, scope)) {
		spmtd_quick_put_(spmtd_goal_at_(g), spmtd_at_(src), n, scope);
		spmtd_wake_(g.v, g.pe);
	}
	if (!nbi)
		spmtd_meet_(scope);
}

/* dst: the raw address on pe. */
SPMTD_FN void spmtd_do_put_(const struct spmt_view *v, uint64_t dst, const void *src, uint64_t n,
	int pe, int scope, int nbi)
{
	spmtd_do_put_to_(spmtd_goal_of_(v, dst, pe, SPMTD_GOAL_RAW_), src, n, scope, nbi);
}

SPMTD_FN void spmtd_do_get_(void *dst, uint64_t src, uint64_t n, int scope, int nbi)
{
	spmtd_meet_(scope);
	if (n)
		spmtd_copy_get_(spmtd_at_(dst), src, n, scope);
	if (!nbi)
		spmtd_meet_(scope);
}

SPMTD_FN void spmtd_signal_at_(uint64_t sig, uint64_t val, int op)
{
	if (op == SPMT_SIGNAL_SET)
		spmtd_release_set_(sig, val);
	else
		spmtd_release_add_(sig, val);
}

/* Data of 8 bytes and a signal that is set, in the same aligned 16 bytes, are one store where the machine has it: they need no
   order. Beside less data lies what such a store would write, too. By one thread; 0: they are not. */
SPMTD_FN int spmtd_put_whole_(
	uint64_t dst, const void *src, uint64_t n, uint64_t sig, uint64_t val, int op)
{
#if defined(SPMTD_WHOLE)
	struct spmtd_unit_ u;
	uint64_t x;

	if (n != 8 || op != SPMT_SIGNAL_SET || (dst ^ sig) != 8 || (dst & 7))
		return 0;
	x = spmtd_local_load_(spmtd_at_(src), 8);
	u.a = dst & 8 ? val : x;
	u.b = dst & 8 ? x : val;
	spmtd_poke128_(dst & ~(uint64_t)15, u);
	return 1;
#else
	(void)dst, (void)src, (void)n, (void)sig, (void)val, (void)op;
	return 0;
#endif
}

/* What is as small is one thread's: the others of a block have a branch of it. */
SPMTD_FN void spmtd_do_put_signal_(const struct spmt_view *v, uint64_t dst, const void *src,
	uint64_t n, uint64_t *sig, uint64_t val, int op, int pe, int scope)
{
	int first = spmtd_lane_(scope) == 0, whole = 0;

	spmtd_meet_(scope);
	if (n > 8) {
		if (!spmtd_view_moves_(v, dst, spmtd_at_(src), n, SPMTD_PUT_, scope) &&
			spmtd_has_part_(n, scope))
			spmtd_quick_put_(dst, spmtd_at_(src), n, scope);
	} else if (n && first) {
		whole = spmtd_put_whole_(dst, src, n, spmtd_there_(v, sig, pe), val, op);
		if (!whole)
			spmtd_small_put_(dst, spmtd_at_(src), n);
	}
	spmtd_meet_settled_(scope);
	if (first && !whole)
		spmtd_signal_at_(spmtd_there_(v, sig, pe), val, op);
	spmtd_wake_(v, pe);
}

/* The same, by the view's shared memory where it has some. */
SPMTD_FN void spmtd_put_at_(struct spmtd_goal_ g, const void *src, uint64_t n, int scope, int nbi)
{
	if (spmtd_view_moves_(g.v, spmtd_goal_at_(g), spmtd_at_(src), n, SPMTD_PUT_, scope))
		spmtd_wake_(g.v, g.pe);
	else
		spmtd_do_put_to_(g, src, n, scope, nbi);
}

SPMTD_FN void spmtd_get_at_(
	const struct spmt_view *v, void *dst, uint64_t src, uint64_t n, int scope, int nbi)
{
	if (!spmtd_view_moves_(v, spmtd_at_(dst), src, n, SPMTD_GET_, scope))
		spmtd_do_get_(dst, src, n, scope, nbi);
}

/* The same by this rank's symmetric address of what is there, whether it has an address or not. */
SPMTD_FN void spmtd_put_to_(const struct spmt_view *v, void *dst, const void *src, uint64_t n,
	int pe, int scope, int nbi)
{
	if (spmtd_is_far_(v, pe))
		spmtd_far_put_(v, dst, src, n, pe, scope, nbi);
	else
		spmtd_put_at_(spmtd_goal_of_(v, spmtd_at_(dst), pe, SPMTD_GOAL_HEAP_), src, n,
			scope, nbi);
}

SPMTD_FN void spmtd_get_from_(const struct spmt_view *v, void *dst, const void *src, uint64_t n,
	int pe, int scope, int nbi)
{
	if (spmtd_is_far_(v, pe))
		spmtd_far_get_(v, dst, src, n, pe, scope, nbi);
	else
		spmtd_get_at_(v, dst, spmtd_there_(v, src, pe), n, scope, nbi);
}

/* Of a registered buffer, likewise. */
SPMTD_FN void spmtd_mem_put_to_(const struct spmt_view *v, const struct spmt_mem_view *m,
	size_t dst_off, const void *src, uint64_t n, int pe, int scope, int nbi)
{
	struct spmtd_goal_ g = spmtd_goal_of_(v, (uint64_t)dst_off, pe, SPMTD_GOAL_MEM_);

	g.m = m;
	if (spmtd_mem_is_far_(m, pe))
		spmtd_far_move_(v, SPMTD_FAR_PUT | SPMTD_FAR_MEM, spmtd_mem_offset_(m, dst_off, pe),
			spmtd_at_(src), n, pe, scope, nbi);
	else
		spmtd_put_at_(g, src, n, scope, nbi);
}

SPMTD_FN void spmtd_mem_get_from_(const struct spmt_view *v, void *dst,
	const struct spmt_mem_view *m, size_t src_off, uint64_t n, int pe, int scope, int nbi)
{
	if (spmtd_mem_is_far_(m, pe))
		spmtd_far_move_(v, SPMTD_FAR_GET | SPMTD_FAR_MEM, spmtd_mem_offset_(m, src_off, pe),
			spmtd_at_(dst), n, pe, scope, nbi);
	else
		spmtd_get_at_(v, dst, spmtd_mem_there_(m, src_off, pe), n, scope, nbi);
}

/* op: SPMT_SIGNAL_SET or SPMT_SIGNAL_ADD. One release at system scope. */
SPMTD_FN void spmtd_signal_op(
	const struct spmt_view *v, uint64_t *sig, uint64_t val, int op, int pe)
{
	if (spmtd_is_far_(v, pe)) {
		spmtd_far_signal_(v, spmtd_offset_(v, sig), val, op, pe, 0);
		return;
	}
	spmtd_signal_at_(spmtd_there_(v, sig, pe), val, op);
	spmtd_wake_(v, pe);
}

SPMTD_FN uint64_t spmtd_signal_fetch(const struct spmt_view *v, const uint64_t *sig)
{
	uint64_t x = spmtd_look64_(spmtd_at_(sig));

	(void)v;
	spmtd_acquired_();
	return x;
}

/* The same without the release, and without the acquire: where nothing has to be ordered a signal costs what the wire
   costs. What was put before need not have come when it has. */
SPMTD_FN void spmtd_signal_op_relaxed(
	const struct spmt_view *v, uint64_t *sig, uint64_t val, int op, int pe)
{
	if (spmtd_is_far_(v, pe)) {
		spmtd_far_signal_(v, spmtd_offset_(v, sig), val, op, pe, 0);
		return;
	}
	if (op == SPMT_SIGNAL_SET)
		spmtd_poke64_(spmtd_there_(v, sig, pe), val);
	else
		spmtd_noret_add64_(spmtd_there_(v, sig, pe), val);
	spmtd_wake_(v, pe);
}

SPMTD_FN uint64_t spmtd_signal_fetch_relaxed(const struct spmt_view *v, const uint64_t *sig)
{
	(void)v;
	return spmtd_peek64_(spmtd_at_(sig));
}

/* The byte forms, on the heap and on a registered buffer at a byte offset. */
#define SPMTD_BYTES(suffix, scope, nbi)                                                            \
	SPMTD_FN void spmtd_putmem##suffix(                                                        \
		const struct spmt_view *v, void *dst, const void *src, size_t n, int pe)           \
	{                                                                                          \
		spmtd_put_to_(v, dst, src, n, pe, scope, nbi);                                     \
	}                                                                                          \
	SPMTD_FN void spmtd_getmem##suffix(                                                        \
		const struct spmt_view *v, void *dst, const void *src, size_t n, int pe)           \
	{                                                                                          \
		spmtd_get_from_(v, dst, src, n, pe, scope, nbi);                                   \
	}                                                                                          \
	SPMTD_FN void spmtd_putmem_signal##suffix(const struct spmt_view *v, void *dst,            \
		const void *src, size_t n, uint64_t *sig, uint64_t val, int op, int pe)            \
	{                                                                                          \
		if (spmtd_is_far_(v, pe))                                                          \
			spmtd_far_put_signal_(v, SPMTD_FAR_HEAP, spmtd_offset_(v, dst), src, n,    \
				sig, val, op, pe, scope, nbi);                                     \
		else                                                                               \
			spmtd_do_put_signal_(                                                      \
				v, spmtd_there_(v, dst, pe), src, n, sig, val, op, pe, scope);     \
	}                                                                                          \
	SPMTD_FN void spmtd_mem_putmem##suffix(const struct spmt_view *v,                          \
		const struct spmt_mem_view *m, size_t dst_off, const void *src, size_t n, int pe)  \
	{                                                                                          \
		spmtd_mem_put_to_(v, m, dst_off, src, n, pe, scope, nbi);                          \
	}                                                                                          \
	SPMTD_FN void spmtd_mem_getmem##suffix(const struct spmt_view *v, void *dst,               \
		const struct spmt_mem_view *m, size_t src_off, size_t n, int pe)                   \
	{                                                                                          \
		spmtd_mem_get_from_(v, dst, m, src_off, n, pe, scope, nbi);                        \
	}                                                                                          \
	SPMTD_FN void spmtd_mem_putmem_signal##suffix(const struct spmt_view *v,                   \
		const struct spmt_mem_view *m, size_t dst_off, const void *src, size_t n,          \
		uint64_t *sig, uint64_t val, int op, int pe)                                       \
	{                                                                                          \
		if (spmtd_mem_is_far_(m, pe))                                                      \
			spmtd_far_put_signal_(v, SPMTD_FAR_MEM, spmtd_mem_offset_(m, dst_off, pe), \
				src, n, sig, val, op, pe, scope, nbi);                             \
		else                                                                               \
			spmtd_do_put_signal_(v, spmtd_mem_there_(m, dst_off, pe), src, n, sig,     \
				val, op, pe, scope);                                               \
	}
SPMTD_BYTES(, SPMTD_THREAD_, 0)
SPMTD_BYTES(_warp, SPMTD_WARP_, 0)
SPMTD_BYTES(_block, SPMTD_BLOCK_, 0)
SPMTD_BYTES(_nbi, SPMTD_THREAD_, 1)
SPMTD_BYTES(_nbi_warp, SPMTD_WARP_, 1)
SPMTD_BYTES(_nbi_block, SPMTD_BLOCK_, 1)

/* n counts elements; offsets into registered buffers stay bytes. */
#define SPMTD_TYPED(name, T, suffix, scope, nbi)                                               \
	SPMTD_FN void spmtd_##name##_put##suffix(                                              \
		const struct spmt_view *v, T *dst, const T *src, size_t n, int pe)             \
	{                                                                                      \
		spmtd_put_to_(v, dst, src, n * sizeof(T), pe, scope, nbi);                     \
	}                                                                                      \
	SPMTD_FN void spmtd_##name##_get##suffix(                                              \
		const struct spmt_view *v, T *dst, const T *src, size_t n, int pe)             \
	{                                                                                      \
		spmtd_get_from_(v, dst, src, n * sizeof(T), pe, scope, nbi);                   \
	}                                                                                      \
	SPMTD_FN void spmtd_mem_##name##_put##suffix(const struct spmt_view *v,                \
		const struct spmt_mem_view *m, size_t dst_off, const T *src, size_t n, int pe) \
	{                                                                                      \
		spmtd_mem_put_to_(v, m, dst_off, src, n * sizeof(T), pe, scope, nbi);          \
	}                                                                                      \
	SPMTD_FN void spmtd_mem_##name##_get##suffix(const struct spmt_view *v, T *dst,        \
		const struct spmt_mem_view *m, size_t src_off, size_t n, int pe)               \
	{                                                                                      \
		spmtd_mem_get_from_(v, dst, m, src_off, n * sizeof(T), pe, scope, nbi);        \
	}
#define SPMTD_RMA(name, T, U_, bits, kind)                                                        \
	SPMTD_TYPED(name, T, , SPMTD_THREAD_, 0)                                                  \
	SPMTD_TYPED(name, T, _warp, SPMTD_WARP_, 0)                                               \
	SPMTD_TYPED(name, T, _block, SPMTD_BLOCK_, 0)                                             \
	SPMTD_TYPED(name, T, _nbi, SPMTD_THREAD_, 1)                                              \
	SPMTD_TYPED(name, T, _nbi_warp, SPMTD_WARP_, 1)                                           \
	SPMTD_TYPED(name, T, _nbi_block, SPMTD_BLOCK_, 1)                                         \
	SPMTD_FN void spmtd_##name##_p(const struct spmt_view *v, T *dst, T value, int pe)        \
	{                                                                                         \
		if (spmtd_is_far_(v, pe)) {                                                       \
			spmtd_far_value_(v, SPMTD_FAR_HEAP, spmtd_offset_(v, dst),                \
				spmtd_##name##_bits_(value), bits / 8, pe);                       \
			return;                                                                   \
		}                                                                                 \
		spmtd_poke##bits##_(spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value));       \
		spmtd_wake_(v, pe);                                                               \
	}                                                                                         \
	SPMTD_FN T spmtd_##name##_g(const struct spmt_view *v, const T *src, int pe)              \
	{                                                                                         \
		if (spmtd_is_far_(v, pe))                                                         \
			return spmtd_##name##_of_((U_)spmtd_far_fetch_(                           \
				v, SPMTD_FAR_HEAP, spmtd_offset_(v, src), bits / 8, pe));         \
		return spmtd_##name##_of_(spmtd_peek##bits##_(spmtd_there_(v, src, pe)));         \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_##name##_p(const struct spmt_view *v,                             \
		const struct spmt_mem_view *m, size_t dst_off, T value, int pe)                   \
	{                                                                                         \
		if (spmtd_mem_is_far_(m, pe)) {                                                   \
			spmtd_far_value_(v, SPMTD_FAR_MEM, spmtd_mem_offset_(m, dst_off, pe),     \
				spmtd_##name##_bits_(value), bits / 8, pe);                       \
			return;                                                                   \
		}                                                                                 \
		spmtd_poke##bits##_(                                                              \
			spmtd_mem_there_(m, dst_off, pe), spmtd_##name##_bits_(value));           \
		spmtd_wake_(v, pe);                                                               \
	}                                                                                         \
	SPMTD_FN T spmtd_mem_##name##_g(                                                          \
		const struct spmt_view *v, const struct spmt_mem_view *m, size_t src_off, int pe) \
	{                                                                                         \
		if (spmtd_mem_is_far_(m, pe))                                                     \
			return spmtd_##name##_of_((U_)spmtd_far_fetch_(v, SPMTD_FAR_MEM,          \
				spmtd_mem_offset_(m, src_off, pe), bits / 8, pe));                \
		return spmtd_##name##_of_(spmtd_peek##bits##_(spmtd_mem_there_(m, src_off, pe))); \
	}
SPMTD_TYPES(SPMTD_RMA)
/* f16 and bf16, as their bits */
SPMTD_RMA(half, uint16_t, uint16_t, 16, U)
SPMTD_RMA(bfloat16, uint16_t, uint16_t, 16, U)

#undef SPMTD_BYTES
#undef SPMTD_TYPED
#undef SPMTD_RMA

SPMTD_END

#endif
