/* SPDX-License-Identifier: MIT */
/* Switch channels: one buffer of every rank of a comm, reduced from and stored to by any of them. */
#ifndef SPMTD_SWITCH_H
#define SPMTD_SWITCH_H

#include "rma.h"
#include "terms.h"

/*
 * SPMTD_MULTIMEM: defined where the chip has it and the compiler's PTX can say so, 8.2: nvcc 12.2 or later, NVRTC, for sm_90 or later. clang
 * does not tell which PTX it writes; with one that writes 8.2 (-Xclang -target-feature -Xclang +ptx82) a program defines it itself.
 * SPMTD_MULTIMEM_MODEL: a test has the switch's operations. In all other programs switch channels go to each rank in turn.
 */
#if !defined(SPMTD_MULTIMEM) && defined(SPMTD_NVPTX) && defined(__CUDA_ARCH__) && \
	defined(__CUDACC_VER_MAJOR__)
#if __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1202
#define SPMTD_MULTIMEM 1
#endif
#endif
#if defined(SPMTD_MULTIMEM_MODEL) || (defined(SPMTD_MULTIMEM) && defined(SPMTD_NVPTX))
#define SPMTD_MULTIMEM_ 1
#endif

SPMTD_BEGIN

/* ---- a switch's multicast --------------------------------------------------------------------- */

/*
 * X(type, op, form, PTX's words): what a switch folds. A form is how 16 bytes are loaded: V4_ by one load, X2_ by two, X4_ by four. A sum of halves is
 * made in float and rounded at its end.
 */
#define SPMTD_MULTIMEM_INTEGER(X, name, form, type, add) \
	X(name, sum, form, "add." add)                   \
	X(name, min, form, "min." type)                  \
	X(name, max, form, "max." type)
#define SPMTD_MULTIMEM_HALF(X, name, type)         \
	X(name, sum, V4_, "add.acc::f32.v4." type) \
	X(name, min, V4_, "min.v4." type)          \
	X(name, max, V4_, "max.v4." type)
#define SPMTD_MULTIMEM_FOLDS(X)                              \
	SPMTD_MULTIMEM_INTEGER(X, uint32, X4_, "u32", "u32") \
	SPMTD_MULTIMEM_INTEGER(X, int32, X4_, "s32", "s32")  \
	SPMTD_MULTIMEM_INTEGER(X, uint64, X2_, "u64", "u64") \
	SPMTD_MULTIMEM_INTEGER(X, int64, X2_, "s64", "u64")  \
	X(float, sum, V4_, "add.v4.f32")                     \
	X(double, sum, X2_, "add.f64")                       \
	SPMTD_MULTIMEM_HALF(X, half, "f16x2")                \
	SPMTD_MULTIMEM_HALF(X, bfloat16, "bf16x2")

/* X(type, op): what it does not, so that each rank's is loaded. */
#define SPMTD_MULTIMEM_SMALL(X, name) \
	X(name, sum)                  \
	X(name, prod)                 \
	X(name, min)                  \
	X(name, max)
#define SPMTD_MULTIMEM_LACKS(X)         \
	SPMTD_MULTIMEM_SMALL(X, uint8)  \
	SPMTD_MULTIMEM_SMALL(X, int8)   \
	SPMTD_MULTIMEM_SMALL(X, schar)  \
	SPMTD_MULTIMEM_SMALL(X, uint16) \
	SPMTD_MULTIMEM_SMALL(X, int16)  \
	X(uint32, prod)                 \
	X(int32, prod)                  \
	X(uint64, prod)                 \
	X(int64, prod)                  \
	X(float, prod)                  \
	X(float, min)                   \
	X(float, max)                   \
	X(double, prod)                 \
	X(double, min)                  \
	X(double, max)                  \
	X(half, prod)                   \
	X(bfloat16, prod)

enum spmtd_multimem_folds_ {
	SPMTD_MULTI_NONE_,
#define SPMTD_MULTIMEM_FOLD(name, op, form, ptx) SPMTD_MULTI_##name##_##op##_,
	SPMTD_MULTIMEM_FOLDS(SPMTD_MULTIMEM_FOLD)
#undef SPMTD_MULTIMEM_FOLD
#define SPMTD_MULTIMEM_LACK(name, op) SPMTD_MULTI_##name##_##op##_ = SPMTD_MULTI_NONE_,
		SPMTD_MULTIMEM_LACKS(SPMTD_MULTIMEM_LACK)
#undef SPMTD_MULTIMEM_LACK
};

/*
 * Addresses are multiples of 16 at which a multicast is mapped; no other load, store, atomic or copy may use them.
 *	multimem_load_    16 bytes of each rank, folded
 *	multimem_store_   16 bytes to each rank
 *	multimem_fence_   what this thread has seen of memory by ranks' own addresses, and what it accesses by these, in order, both ways: for
 *	                  PTX's model the two are aliases, and a barrier or signal alone orders no aliases
 */
#if defined(SPMTD_MULTIMEM_MODEL)

struct spmtd_unit_ spmtd_multimem_load_(uint64_t a, int fold);
void spmtd_multimem_store_(uint64_t a, struct spmtd_unit_ u);
void spmtd_multimem_fence_(void);

#define SPMTD_MULTIMEM_LOAD(name, op, form, ptx)                                       \
	SPMTD_FN struct spmtd_unit_ spmtd_multimem_load_##name##_##op##_(uint64_t a) { \
		return spmtd_multimem_load_(a, SPMTD_MULTI_##name##_##op##_);          \
	}

#elif defined(SPMTD_MULTIMEM_)

SPMTD_FN void spmtd_multimem_fence_(void)
{
	SPMTD_ASM("fence.proxy.alias;" ::: "memory");
}

SPMTD_FN void spmtd_multimem_store_(uint64_t a, struct spmtd_unit_ u)
{
	SPMTD_ASM("{ .reg .u64 g; .reg .b32 a, b, c, d; cvta.to.global.u64 g, %0; "
		  "mov.b64 {a, b}, %1; mov.b64 {c, d}, %2; "
		  "multimem.st.relaxed.sys.global.v4.f32 [g], {a, b, c, d}; }" ::"l"(a),
		  "l"(u.a), "l"(u.b)
		  : "memory");
}

#define SPMTD_MULTIMEM_OF(ptx) "multimem.ld_reduce.relaxed.sys.global." ptx
#define SPMTD_MULTIMEM_V4_(ptx) SPMTD_MULTIMEM_OF(ptx) " {a, b, c, d}, [g]; "
#define SPMTD_MULTIMEM_X4_(ptx)                                             \
	SPMTD_MULTIMEM_OF(ptx)                                              \
	" a, [g]; " SPMTD_MULTIMEM_OF(ptx) " b, [g+4]; " SPMTD_MULTIMEM_OF( \
		ptx) " c, [g+8]; " SPMTD_MULTIMEM_OF(ptx) " d, [g+12]; "
#define SPMTD_MULTIMEM_X2_(ptx)                                             \
	SPMTD_MULTIMEM_OF(ptx)                                              \
	" e, [g]; " SPMTD_MULTIMEM_OF(ptx) " f, [g+8]; mov.b64 {a, b}, e; " \
					   "mov.b64 {c, d}, f; "
#define SPMTD_MULTIMEM_LOAD(name, op, form, ptx)                                        \
	SPMTD_FN struct spmtd_unit_ spmtd_multimem_load_##name##_##op##_(uint64_t at) { \
		struct spmtd_unit_ u;                                                   \
		SPMTD_ASM("{ .reg .u64 g; .reg .b32 a, b, c, d; .reg .b64 e, f; "       \
			  "cvta.to.global.u64 g, %2; " SPMTD_MULTIMEM_##form(           \
				  ptx) "mov.b64 %0, {a, b}; mov.b64 %1, {c, d}; }"      \
			  : "=l"(u.a), "=l"(u.b)                                        \
			  : "l"(at)                                                     \
			  : "memory");                                                  \
		return u;                                                               \
	}

#endif

#define SPMTD_MULTIMEM_NOT(name, op)                                                  \
	SPMTD_FN void spmtd_multimem_fold_##name##_##op##_(                           \
		uint64_t dst, uint64_t at, uint64_t n, uint32_t lane, uint32_t lanes) \
	{                                                                             \
		(void)dst, (void)at, (void)n, (void)lane, (void)lanes;                \
	}

/* n units of 16 bytes by so many threads. Never inlined: a kernel that goes to each rank in turn has a call beside that, and no register less. */
#if defined(SPMTD_MULTIMEM_)

SPMTD_FN void spmtd_multimem_begin_(int scope)
{
	spmtd_meet_(scope);
	spmtd_multimem_fence_();
}

SPMTD_FN void spmtd_multimem_end_(int scope)
{
	spmtd_multimem_fence_();
	spmtd_meet_(scope);
}

/* Loads that are on their way to a thread at once. */
#define SPMTD_MULTIMEM_FLIGHT 4

#define SPMTD_MULTIMEM_FOLD(name, op, form, ptx)                                          \
	SPMTD_MULTIMEM_LOAD(name, op, form, ptx)                                          \
	SPMTD_RARE void spmtd_multimem_fold_##name##_##op##_(                             \
		uint64_t dst, uint64_t at, uint64_t n, uint32_t lane, uint32_t lanes)     \
	{                                                                                 \
		uint64_t step = (uint64_t)lanes * SPMTD_MULTIMEM_FLIGHT;                  \
		SPMTD_ROLLED for (uint64_t i = lane; i < n; i += step)                    \
		{                                                                         \
			struct spmtd_unit_ u[SPMTD_MULTIMEM_FLIGHT];                      \
			SPMTD_UNROLL for (uint64_t j = 0; j < SPMTD_MULTIMEM_FLIGHT; j++) \
			{                                                                 \
				u[j].a = u[j].b = 0;                                      \
				if (i + j * lanes < n)                                    \
					u[j] = spmtd_multimem_load_##name##_##op##_(      \
						at + (i + j * lanes) * 16);               \
			}                                                                 \
			SPMTD_UNROLL for (uint64_t j = 0; j < SPMTD_MULTIMEM_FLIGHT;      \
					  j++) if (i + j * lanes < n)                     \
				spmtd_store16b_(dst + (i + j * lanes) * 16, u[j]);        \
		}                                                                         \
	}
SPMTD_MULTIMEM_FOLDS(SPMTD_MULTIMEM_FOLD)

SPMTD_RARE void spmtd_multimem_spread_(
	uint64_t at, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	SPMTD_ROLLED for (uint64_t i = lane; i < n; i += lanes)
		spmtd_multimem_store_(at + i * 16, spmtd_load16b_(src + i * 16));
}

#else

SPMTD_FN void spmtd_multimem_begin_(int scope)
{
	(void)scope;
}

SPMTD_FN void spmtd_multimem_end_(int scope)
{
	(void)scope;
}

#define SPMTD_MULTIMEM_FOLD(name, op, form, ptx) SPMTD_MULTIMEM_NOT(name, op)
SPMTD_MULTIMEM_FOLDS(SPMTD_MULTIMEM_FOLD)

SPMTD_FN void spmtd_multimem_spread_(
	uint64_t at, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	(void)at, (void)src, (void)n, (void)lane, (void)lanes;
}

#endif

/* Never called: what the switch does not fold has no units. */
SPMTD_MULTIMEM_LACKS(SPMTD_MULTIMEM_NOT)

/* How many of n bytes go by the multicast at `a`, whole units; 0: none, as what is there lies otherwise. */
SPMTD_FN uint64_t spmtd_multimem_bytes_(uint64_t a, uint64_t other, uint64_t n)
{
#if defined(SPMTD_MULTIMEM_)
	return (a | other) & 15 ? 0 : n & ~(uint64_t)15;
#else
	(void)a, (void)other, (void)n;
	return 0;
#endif
}

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
 * Nothing here waits or tells: barriers, signals and channels do. _group: as of channels. Loads and stores go to each rank in turn.
 *
 * Where spmt_switch_get was asked to (SPMT_MULTICAST=1) s has an address of the switch's multicast, and kernels that are compiled for it (SPMTD_MULTIMEM)
 * have the switch do it: broadcast stores once, and reduce loads what the switch has folded: sum, min and max of 32- and 64-bit integers, half
 * and bfloat16, and sum of float and double. All else goes as without it, as do the last bytes after whole units of 16, and all where one side is not at a
 * multiple of 16. Integers, and min and max, have the same bits both ways; sums of float and double are rounded in the order that the switch takes,
 * and those of half and bfloat16, summed in float, once at the end. Which NaN comes out, min and max of halves with a NaN or with zeros of both
 * signs, and sums below the normal range, are not said. at_rank gives ranks' own addresses, also for ordinary loads and stores: each call here is a fence between
 * the two.
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

/* How many of n bytes at off the switch does at once. */
SPMTD_FN uint64_t spmtd_switch_units_(
	const struct spmt_switch *s, uint64_t off, uint64_t other, uint64_t n)
{
	return s->multicast ? spmtd_multimem_bytes_(s->multicast + off, other, n) : 0;
}

SPMTD_FN void spmtd_switch_spread_(const struct spmt_view *v, const struct spmt_switch *s,
	uint64_t off, uint64_t src, uint64_t n, int scope)
{
	spmtd_multimem_begin_(scope);
	spmtd_multimem_spread_(
		s->multicast + off, src, n / 16, spmtd_lane_(scope), spmtd_lanes_(scope));
	spmtd_multimem_end_(scope);
	SPMTD_ROLLED for (int pe = 0; pe < s->npes; pe++) spmtd_wake_(v, pe);
}

SPMTD_FN void spmtd_do_switch_broadcast_(const struct spmt_view *v, const struct spmt_switch *s,
	uint64_t off, uint64_t src, uint64_t n, int scope)
{
	uint64_t units = spmtd_switch_units_(s, off, src, n);

	if (units) {
		spmtd_switch_spread_(v, s, off, src, units, scope);
		off += units;
		src += units;
		n -= units;
		if (!n)
			return;
	}
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

/* `by`: this block's share of the whole units, as of what is left. */
#define SPMTD_SWITCH_FOLD(name, T, op, OP)                                                         \
	SPMTD_FN void spmtd_switch_##name##_##op##_by_(const struct spmt_switch *s, T *dst,        \
		uint64_t off, uint64_t count, int scope, uint32_t index, uint32_t blocks)          \
	{                                                                                          \
		uint64_t to = spmtd_at_(dst), n = count * sizeof(T), units = 0;                    \
		struct spmtd_terms_ t;                                                             \
		if (SPMTD_MULTI_##name##_##op##_ != SPMTD_MULTI_NONE_)                             \
			units = spmtd_switch_units_(s, off, to, n);                                \
		if (units) {                                                                       \
			struct spmtd_range_ by = spmtd_share_by_(units, index, blocks);            \
			spmtd_multimem_begin_(scope);                                              \
			spmtd_multimem_fold_##name##_##op##_(to + by.from,                         \
				s->multicast + off + by.from, by.n / 16, spmtd_lane_(scope),       \
				spmtd_lanes_(scope));                                              \
			spmtd_multimem_end_(scope);                                                \
			if (units == n)                                                            \
				return;                                                            \
		}                                                                                  \
		t = spmtd_switch_terms_(s, spmtd_to_(to + units), off + units);                    \
		spmtd_##name##_terms_by_(&t, OP, count - units / sizeof(T), scope, index, blocks); \
	}
#define SPMTD_SWITCH_REDUCE_BY(name, T, op, OP, suffix, scope)                               \
	SPMTD_FN void spmtd_switch_##name##_##op##_reduce##suffix(const struct spmt_view *v, \
		const struct spmt_switch *s, T *dst, size_t off, size_t count)               \
	{                                                                                    \
		(void)v;                                                                     \
		spmtd_switch_##name##_##op##_by_(s, dst, off, count, scope, 0, 1);           \
	}
#define SPMTD_SWITCH_REDUCE(name, T, op, OP)                                                       \
	SPMTD_SWITCH_FOLD(name, T, op, OP)                                                         \
	SPMTD_SWITCH_REDUCE_BY(name, T, op, OP, , SPMTD_THREAD_)                                   \
	SPMTD_SWITCH_REDUCE_BY(name, T, op, OP, _warp, SPMTD_WARP_)                                \
	SPMTD_SWITCH_REDUCE_BY(name, T, op, OP, _block, SPMTD_BLOCK_)                              \
	SPMTD_FN void spmtd_switch_##name##_##op##_reduce_group(const struct spmt_view *v,         \
		const struct spmt_switch *s, T *dst, size_t off, size_t count, uint32_t index,     \
		uint32_t blocks)                                                                   \
	{                                                                                          \
		(void)v;                                                                           \
		spmtd_switch_##name##_##op##_by_(s, dst, off, count, SPMTD_BLOCK_, index, blocks); \
	}
SPMTD_TERM_TYPES(SPMTD_SWITCH_REDUCE)

#undef SPMTD_MULTIMEM_INTEGER
#undef SPMTD_MULTIMEM_HALF
#undef SPMTD_MULTIMEM_FOLDS
#undef SPMTD_MULTIMEM_SMALL
#undef SPMTD_MULTIMEM_LACKS
#undef SPMTD_MULTIMEM_OF
#undef SPMTD_MULTIMEM_V4_
#undef SPMTD_MULTIMEM_X2_
#undef SPMTD_MULTIMEM_X4_
#undef SPMTD_MULTIMEM_LOAD
#undef SPMTD_MULTIMEM_FOLD
#undef SPMTD_MULTIMEM_NOT
#undef SPMTD_MULTIMEM_FLIGHT
#undef SPMTD_SWITCH_BROADCAST
#undef SPMTD_SWITCH_FOLD
#undef SPMTD_SWITCH_REDUCE_BY
#undef SPMTD_SWITCH_REDUCE

SPMTD_END

#endif
