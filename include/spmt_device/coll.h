/* SPDX-License-Identifier: MIT */
/* Collectives of all ranks, by one thread, warp or block of each. */
#ifndef SPMTD_COLL_H
#define SPMTD_COLL_H

#include "copy.h"
#include "half.h"
#include "sync.h"

SPMTD_BEGIN

/* ---- collectives ---------------------------------------------------------------------------- */

/*
 * Between two barriers, of the world's sync or, where the name has _at, of the session that the last argument names: all ranks
 * call with equal sizes, roots and indices. dst and src are symmetric and may not overlap, but that broadcasts
 * and reductions take dst == src, and all_gather this rank's place in dst as src. On return dst is written and src free. 0,
 * or the code of a barrier that failed, after which dst may be written in part; SPMTD_INVALID: no such root or session. If it failed
 * on all ranks, they may call it again with the same arguments, dst as it was left and src as it was before: for a reduction with dst ==
 * src, write src anew. If it returned 0 on some rank, do not repeat it.
 *
 *	broadcastmem    size bytes of root's src to every dst, its own included
 *	all_gathermem   size bytes of each, in rank order
 *	all_to_allmem   the size bytes at pe * size of src to pe, which has them at this rank's place in dst
 *	all_reduce      count elements of all ranks, folded in rank order, at every dst, with the same bits
 *	reduce          the same at root's dst alone
 *
 * Reductions are SPMTD_UNSUPPORTED, on all ranks, where some rank has no address for another (fifo.h).
 *
 * Integers wrap. f16 and bf16 (half, bfloat16: as their bits) are folded in f32 and rounded once, to nearest even.
 * min and max: a NaN on any rank gives NaN, -0 is below +0. Every NaN that comes out is the positive quiet one.
 */
enum spmtd_coll_ { SPMTD_BROADCAST_, SPMTD_ALL_GATHER_, SPMTD_ALL_TO_ALL_ };

/* The numbers of enum spmt_op. */
enum spmtd_op_ {
	SPMTD_OP_SUM_,
	SPMTD_OP_PROD_,
	SPMTD_OP_MIN_,
	SPMTD_OP_MAX_,
	SPMTD_OP_AND_,
	SPMTD_OP_OR_,
	SPMTD_OP_XOR_
};

/* ---- collectives: moves --------------------------------------------------------------------- */

SPMTD_FN void spmtd_move_to_all_(
	const struct spmt_view *v, int kind, void *dst, const void *src, uint64_t n, int scope)
{
	uint64_t to = kind == SPMTD_BROADCAST_ ? 0 : (uint64_t)(uint32_t)v->pe * n;

	/* from the next rank on, so that not all are at one */
	for (int i = 1; n && i <= v->npes; i++) {
		int pe = i < v->npes - v->pe ? v->pe + i : v->pe + i - v->npes;
		uint64_t there = spmtd_there_(v, dst, pe) + to;
		uint64_t here = spmtd_at_(src) +
			(kind == SPMTD_ALL_TO_ALL_ ? (uint64_t)(uint32_t)pe * n : 0);

		if (spmtd_is_far_(v, pe)) /* the barrier behind it completes that */
			spmtd_far_move_(v, SPMTD_FAR_PUT, spmtd_offset_(v, dst) + to, here, n, pe,
				scope, 1);
		else if (there != here)
			spmtd_copy_put_(there, here, n, scope);
	}
}

SPMTD_ONCE int spmtd_move_(const struct spmt_view *v, int kind, void *dst, const void *src,
	uint64_t n, int root, int scope, int64_t index)
{
	if (root < 0 || root >= v->npes || !spmtd_session_is_(v, index))
		return SPMTD_INVALID;
	/* Two barriers, which are one in the code. */
	SPMTD_ROLLED for (int done = 0;; done = 1)
	{
		int rc = spmtd_session_meet_(
			v, spmtd_session_of_(v, index), scope, SPMTD_WHAT_BARRIER);

		if (rc && done)
			spmtd_session_undo_(v, spmtd_session_of_(v, index), scope);
		if (rc || done)
			return rc;
		if (kind != SPMTD_BROADCAST_ || v->pe == root)
			spmtd_move_to_all_(v, kind, dst, src, n, scope);
	}
}

#define SPMTD_MOVES(suffix, scope)                                                                \
	SPMTD_FN int spmtd_broadcastmem##suffix(                                                  \
		const struct spmt_view *v, void *dst, const void *src, size_t size, int root)     \
	{                                                                                         \
		return spmtd_move_(                                                               \
			v, SPMTD_BROADCAST_, dst, src, size, root, scope, SPMTD_WORLD_);          \
	}                                                                                         \
	SPMTD_FN int spmtd_all_gathermem##suffix(                                                 \
		const struct spmt_view *v, void *dst, const void *src, size_t size)               \
	{                                                                                         \
		return spmtd_move_(v, SPMTD_ALL_GATHER_, dst, src, size, 0, scope, SPMTD_WORLD_); \
	}                                                                                         \
	SPMTD_FN int spmtd_all_to_allmem##suffix(                                                 \
		const struct spmt_view *v, void *dst, const void *src, size_t size)               \
	{                                                                                         \
		return spmtd_move_(v, SPMTD_ALL_TO_ALL_, dst, src, size, 0, scope, SPMTD_WORLD_); \
	}                                                                                         \
	SPMTD_FN int spmtd_broadcastmem_at##suffix(const struct spmt_view *v, void *dst,          \
		const void *src, size_t size, int root, uint32_t index)                           \
	{                                                                                         \
		return spmtd_move_(                                                               \
			v, SPMTD_BROADCAST_, dst, src, size, root, scope, (int64_t)index);        \
	}                                                                                         \
	SPMTD_FN int spmtd_all_gathermem_at##suffix(const struct spmt_view *v, void *dst,         \
		const void *src, size_t size, uint32_t index)                                     \
	{                                                                                         \
		return spmtd_move_(                                                               \
			v, SPMTD_ALL_GATHER_, dst, src, size, 0, scope, (int64_t)index);          \
	}                                                                                         \
	SPMTD_FN int spmtd_all_to_allmem_at##suffix(const struct spmt_view *v, void *dst,         \
		const void *src, size_t size, uint32_t index)                                     \
	{                                                                                         \
		return spmtd_move_(                                                               \
			v, SPMTD_ALL_TO_ALL_, dst, src, size, 0, scope, (int64_t)index);          \
	}
SPMTD_MOVES(, SPMTD_THREAD_)
SPMTD_MOVES(_warp, SPMTD_WARP_)
SPMTD_MOVES(_block, SPMTD_BLOCK_)

/* ---- collectives: reductions ---------------------------------------------------------------- */

/* What a rank folds: its share of the elements of all ranks, written to `targets` ranks from `target` on. Not the view,
   whose address would reach a call. */
struct spmtd_share_ {
	const struct spmtd_peer *peers;
	uint64_t flat, stride;
	uint64_t dst, src; /* where the share begins in every heap */
	uint64_t n;	   /* elements */
	int32_t npes, target, targets;
	uint32_t lane, lanes;
};

/* Shares are whole units, but for the last rank's that has one. */
SPMTD_FN struct spmtd_share_ spmtd_share_of_(const struct spmt_view *v, void *dst, const void *src,
	uint64_t count, uint32_t bytes, int scope)
{
	uint64_t a_unit = 16 / bytes, units = (count + a_unit - 1) / a_unit;
	uint64_t a_rank = (units + (uint32_t)v->npes - 1) / (uint32_t)v->npes * a_unit;
	uint64_t first = a_rank * (uint32_t)v->pe, left = first < count ? count - first : 0;
	struct spmtd_share_ s;

	s.peers = v->peers;
	s.flat = v->flat;
	s.stride = v->stride;
	s.dst = spmtd_at_(dst) - v->base + first * bytes;
	s.src = spmtd_at_(src) - v->base + first * bytes;
	s.n = left < a_rank ? left : a_rank;
	s.npes = v->npes;
	s.target = v->pe;
	s.targets = v->npes;
	s.lane = spmtd_lane_(scope);
	s.lanes = spmtd_lanes_(scope);
	return s;
}

SPMTD_FN uint64_t spmtd_share_at_(const struct spmtd_share_ *s, int pe)
{
	return s->stride ? s->flat + (uint64_t)(uint32_t)pe * s->stride : s->peers[pe].base;
}

/* How two elements are one, W: the type in which that is done; how an element becomes a W, and back. */
#define SPMTD_JOIN_INT(name, T, U_)                                             \
	SPMTD_FN T spmtd_##name##_join_(int op, T x, T y)                       \
	{                                                                       \
		U_ a = spmtd_##name##_bits_(x), b = spmtd_##name##_bits_(y), z; \
		switch (op) {                                                   \
		case SPMTD_OP_SUM_:                                             \
			z = (U_)(a + b);                                        \
			break;                                                  \
		case SPMTD_OP_PROD_:                                            \
			z = (U_)((uint64_t)a * b);                              \
			break;                                                  \
		case SPMTD_OP_MIN_:                                             \
			return x < y ? x : y;                                   \
		case SPMTD_OP_MAX_:                                             \
			return x > y ? x : y;                                   \
		case SPMTD_OP_AND_:                                             \
			z = (U_)(a & b);                                        \
			break;                                                  \
		case SPMTD_OP_OR_:                                              \
			z = (U_)(a | b);                                        \
			break;                                                  \
		default:                                                        \
			z = (U_)(a ^ b);                                        \
		}                                                               \
		return spmtd_##name##_of_(z);                                   \
	}                                                                       \
	SPMTD_FN T spmtd_##name##_widened_(T x)                                 \
	{                                                                       \
		return x;                                                       \
	}                                                                       \
	SPMTD_FN T spmtd_##name##_rounded_(T x)                                 \
	{                                                                       \
		return x;                                                       \
	}
#define SPMTD_JOIN_FLOAT(name, T, bits, nan)                            \
	SPMTD_FN T spmtd_##name##_join_(int op, T x, T y)               \
	{                                                               \
		int below = spmtd_##name##_bits_(x) >> (bits - 1) != 0; \
		if (op == SPMTD_OP_PROD_)                               \
			return x * y;                                   \
		if (op == SPMTD_OP_SUM_ || x != x || y != y)            \
			return x + y;                                   \
		if (op == SPMTD_OP_MIN_)                                \
			return x < y || (x == y && below) ? x : y;      \
		return x > y || (x == y && !below) ? x : y;             \
	}                                                               \
	SPMTD_FN T spmtd_##name##_widened_(T x)                         \
	{                                                               \
		return x;                                               \
	}                                                               \
	SPMTD_FN T spmtd_##name##_rounded_(T x)                         \
	{                                                               \
		return x != x ? spmtd_##name##_of_(nan) : x;            \
	}
#define SPMTD_JOIN_HALF(name)                                         \
	SPMTD_FN float spmtd_##name##_join_(int op, float x, float y) \
	{                                                             \
		return spmtd_float_join_(op, x, y);                   \
	}                                                             \
	SPMTD_FN float spmtd_##name##_widened_(uint16_t x)            \
	{                                                             \
		return spmtd_##name##_value_(x);                      \
	}                                                             \
	SPMTD_FN uint16_t spmtd_##name##_rounded_(float x)            \
	{                                                             \
		return spmtd_##name##_nearest_(x);                    \
	}
SPMTD_JOIN_INT(uint8, uint8_t, uint8_t)
SPMTD_JOIN_INT(int8, int8_t, uint8_t)
SPMTD_JOIN_INT(schar, signed char, uint8_t)
SPMTD_JOIN_INT(uint16, uint16_t, uint16_t)
SPMTD_JOIN_INT(int16, int16_t, uint16_t)
SPMTD_JOIN_INT(uint32, uint32_t, uint32_t)
SPMTD_JOIN_INT(int32, int32_t, uint32_t)
SPMTD_JOIN_INT(uint64, uint64_t, uint64_t)
SPMTD_JOIN_INT(int64, int64_t, uint64_t)
SPMTD_JOIN_FLOAT(float, float, 32, 0x7fc00000u)
SPMTD_JOIN_FLOAT(double, double, 64, 0x7ff8000000000000u)
SPMTD_JOIN_HALF(half)
SPMTD_JOIN_HALF(bfloat16)

/* Ranks whose elements are on their way to a thread at once. */
#define SPMTD_FLIGHT 4

/* chunk: 16 bytes, or one element; n of them, from the byte `from` of the share on. */
#define SPMTD_FOLD(name, T, W, bits)                                                             \
	union spmtd_##name##_chunk_ {                                                            \
		struct spmtd_unit_ unit;                                                         \
		uint##bits##_t one;                                                              \
		T x[16 / sizeof(T)];                                                             \
	};                                                                                       \
	SPMTD_FN void spmtd_##name##_chunk_fold_(const struct spmtd_share_ *s, int op,           \
		uint64_t at, uint32_t chunk, union spmtd_##name##_chunk_ *out)                   \
	{                                                                                        \
		W sum[16 / sizeof(T)];                                                           \
		SPMTD_UNROLL for (uint32_t k = 0; k < chunk / sizeof(T); k++) sum[k] = 0;        \
		SPMTD_ROLLED for (int pe = 0; pe < s->npes; pe += SPMTD_FLIGHT)                  \
		{                                                                                \
			union spmtd_##name##_chunk_ in[SPMTD_FLIGHT];                            \
			SPMTD_UNROLL for (int j = 0; j < SPMTD_FLIGHT; j++)                      \
			{                                                                        \
				uint64_t a = pe + j < s->npes                                    \
					? spmtd_share_at_(s, pe + j) + s->src + at               \
					: 0;                                                     \
				in[j].unit.a = in[j].unit.b = 0;                                 \
				if (a && chunk == 16)                                            \
					in[j].unit = spmtd_gload16b_(a);                         \
				else if (a)                                                      \
					in[j].one = spmtd_gload##bits##_(a);                     \
			}                                                                        \
			SPMTD_UNROLL for (int j = 0; j < SPMTD_FLIGHT; j++)                      \
			{                                                                        \
				if (pe + j >= s->npes)                                           \
					continue;                                                \
				SPMTD_UNROLL for (uint32_t k = 0; k < chunk / sizeof(T); k++)    \
				{                                                                \
					W x = spmtd_##name##_widened_(in[j].x[k]);               \
					sum[k] = pe + j == 0                                     \
						? x                                              \
						: spmtd_##name##_join_(op, sum[k], x);           \
				}                                                                \
			}                                                                        \
		}                                                                                \
		SPMTD_UNROLL for (uint32_t k = 0; k < chunk / sizeof(T); k++) out->x[k] =        \
			spmtd_##name##_rounded_(sum[k]);                                         \
	}                                                                                        \
	SPMTD_FN void spmtd_##name##_fold_(                                                      \
		const struct spmtd_share_ *s, int op, uint64_t from, uint64_t n, uint32_t chunk) \
	{                                                                                        \
		SPMTD_ROLLED for (uint64_t i = s->lane; i < n; i += s->lanes)                    \
		{                                                                                \
			union spmtd_##name##_chunk_ out;                                         \
			uint64_t at = from + i * chunk;                                          \
			spmtd_##name##_chunk_fold_(s, op, at, chunk, &out);                      \
			SPMTD_ROLLED for (int k = 0, pe = s->target; k < s->targets; k++)        \
			{                                                                        \
				uint64_t a = spmtd_share_at_(s, pe) + s->dst + at;               \
				if (chunk == 16)                                                 \
					spmtd_gstore16b_(a, out.unit);                           \
				else                                                             \
					spmtd_gstore##bits##_(a, out.one);                       \
				pe = pe + 1 < s->npes ? pe + 1 : 0;                              \
			}                                                                        \
		}                                                                                \
	}                                                                                        \
	SPMTD_RARE void spmtd_##name##_fold_all_(const struct spmtd_share_ *s, int op)           \
	{                                                                                        \
		uint64_t units = (s->dst | s->src) & 15 ? 0 : s->n / (16 / sizeof(T));           \
		uint64_t rest = s->n - units * (16 / sizeof(T));                                 \
		spmtd_##name##_fold_(s, op, 0, units, 16);                                       \
		spmtd_##name##_fold_(s, op, units * 16, rest, sizeof(T));                        \
	}                                                                                        \
	SPMTD_ONCE int spmtd_##name##_reduction_(const struct spmt_view *v, int op, T *dst,      \
		const T *src, size_t count, int root, int everyone, int scope, int64_t index)    \
	{                                                                                        \
		struct spmtd_share_ s;                                                           \
		if (root < 0 || root >= v->npes || !spmtd_session_is_(v, index))                 \
			return SPMTD_INVALID;                                                    \
		if (spmtd_fifo_(v)) /* on all ranks: some do not load from some */               \
			return SPMTD_UNSUPPORTED;                                                \
		s = spmtd_share_of_(v, dst, src, count, sizeof(T), scope);                       \
		if (!everyone) {                                                                 \
			s.target = root;                                                         \
			s.targets = 1;                                                           \
		}                                                                                \
		SPMTD_ROLLED for (int done = 0;; done = 1)                                       \
		{                                                                                \
			int rc = spmtd_session_meet_(                                            \
				v, spmtd_session_of_(v, index), scope, SPMTD_WHAT_BARRIER);      \
			if (rc && done)                                                          \
				spmtd_session_undo_(v, spmtd_session_of_(v, index), scope);      \
			if (rc || done)                                                          \
				return rc;                                                       \
			spmtd_##name##_fold_all_(&s, op);                                        \
		}                                                                                \
	}
SPMTD_FOLD(uint8, uint8_t, uint8_t, 8)
SPMTD_FOLD(int8, int8_t, int8_t, 8)
SPMTD_FOLD(schar, signed char, signed char, 8)
SPMTD_FOLD(uint16, uint16_t, uint16_t, 16)
SPMTD_FOLD(int16, int16_t, int16_t, 16)
SPMTD_FOLD(uint32, uint32_t, uint32_t, 32)
SPMTD_FOLD(int32, int32_t, int32_t, 32)
SPMTD_FOLD(uint64, uint64_t, uint64_t, 64)
SPMTD_FOLD(int64, int64_t, int64_t, 64)
SPMTD_FOLD(float, float, float, 32)
SPMTD_FOLD(double, double, double, 64)
SPMTD_FOLD(half, uint16_t, float, 16)
SPMTD_FOLD(bfloat16, uint16_t, float, 16)

#define SPMTD_REDUCE_BY(name, T, op, OP, suffix, scope)                                         \
	SPMTD_FN int spmtd_##name##_##op##_all_reduce##suffix(                                  \
		const struct spmt_view *v, T *dst, const T *src, size_t count)                  \
	{                                                                                       \
		return spmtd_##name##_reduction_(                                               \
			v, OP, dst, src, count, 0, 1, scope, SPMTD_WORLD_);                     \
	}                                                                                       \
	SPMTD_FN int spmtd_##name##_##op##_all_reduce_at##suffix(                               \
		const struct spmt_view *v, T *dst, const T *src, size_t count, uint32_t index)  \
	{                                                                                       \
		return spmtd_##name##_reduction_(                                               \
			v, OP, dst, src, count, 0, 1, scope, (int64_t)index);                   \
	}                                                                                       \
	SPMTD_FN int spmtd_##name##_##op##_reduce##suffix(                                      \
		const struct spmt_view *v, T *dst, const T *src, size_t count, int root)        \
	{                                                                                       \
		return spmtd_##name##_reduction_(                                               \
			v, OP, dst, src, count, root, 0, scope, SPMTD_WORLD_);                  \
	}                                                                                       \
	SPMTD_FN int spmtd_##name##_##op##_reduce_at##suffix(const struct spmt_view *v, T *dst, \
		const T *src, size_t count, int root, uint32_t index)                           \
	{                                                                                       \
		return spmtd_##name##_reduction_(                                               \
			v, OP, dst, src, count, root, 0, scope, (int64_t)index);                \
	}
#define SPMTD_REDUCE(name, T, op, OP)                        \
	SPMTD_REDUCE_BY(name, T, op, OP, , SPMTD_THREAD_)    \
	SPMTD_REDUCE_BY(name, T, op, OP, _warp, SPMTD_WARP_) \
	SPMTD_REDUCE_BY(name, T, op, OP, _block, SPMTD_BLOCK_)
#define SPMTD_REDUCE_NUMBERS(name, T)               \
	SPMTD_REDUCE(name, T, sum, SPMTD_OP_SUM_)   \
	SPMTD_REDUCE(name, T, prod, SPMTD_OP_PROD_) \
	SPMTD_REDUCE(name, T, min, SPMTD_OP_MIN_)   \
	SPMTD_REDUCE(name, T, max, SPMTD_OP_MAX_)
#define SPMTD_REDUCE_BITS(name, T)                \
	SPMTD_REDUCE_NUMBERS(name, T)             \
	SPMTD_REDUCE(name, T, and, SPMTD_OP_AND_) \
	SPMTD_REDUCE(name, T, or, SPMTD_OP_OR_)   \
	SPMTD_REDUCE(name, T, xor, SPMTD_OP_XOR_)
SPMTD_REDUCE_BITS(uint8, uint8_t)
SPMTD_REDUCE_BITS(int8, int8_t)
SPMTD_REDUCE_BITS(schar, signed char)
SPMTD_REDUCE_BITS(uint16, uint16_t)
SPMTD_REDUCE_BITS(int16, int16_t)
SPMTD_REDUCE_BITS(uint32, uint32_t)
SPMTD_REDUCE_BITS(int32, int32_t)
SPMTD_REDUCE_BITS(uint64, uint64_t)
SPMTD_REDUCE_BITS(int64, int64_t)
SPMTD_REDUCE_NUMBERS(float, float)
SPMTD_REDUCE_NUMBERS(double, double)
SPMTD_REDUCE_NUMBERS(half, uint16_t)
SPMTD_REDUCE_NUMBERS(bfloat16, uint16_t)

#undef SPMTD_MOVES
#undef SPMTD_JOIN_INT
#undef SPMTD_JOIN_FLOAT
#undef SPMTD_JOIN_HALF
#undef SPMTD_FLIGHT
#undef SPMTD_FOLD
#undef SPMTD_REDUCE_BY
#undef SPMTD_REDUCE
#undef SPMTD_REDUCE_NUMBERS
#undef SPMTD_REDUCE_BITS

SPMTD_END

#endif
