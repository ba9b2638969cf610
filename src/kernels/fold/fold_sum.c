/* SPDX-License-Identifier: MIT */
/*
 * Sums on a CPU, of up to eight ranks at once, so that one stays in a register while it grows, and by wide vectors where the CPU has them:
 * one rank after the other took 1.8 times what a memcpy of as many bytes takes, with eight ranks whose buffers are in the caches.
 */
#include "fold.h"

#if !defined(__AMDGCN__) && !defined(__NVPTX__)

#include "fold_loop.h"

/* Clang looks for itself whether they overlap, and warns of a loop that it was asked to do by vectors where it does none. */
#if defined(__clang__)
#define SUM_APART
#else
#define SUM_APART _Pragma("GCC ivdep")
#endif
#define SUM_HERE static inline __attribute__((always_inline))
#if defined(__x86_64__) && !defined(COLL_ONE_UNIT)
#define SUM_WIDE 1
#endif

/* In rank order, whatever a compiler may think of sums of floats. */
#define SUM_1 s[0][i]
#define SUM_2 s[0][i] + s[1][i]
#define SUM_4 s[0][i] + s[1][i] + s[2][i] + s[3][i]
#define SUM_8 s[0][i] + s[1][i] + s[2][i] + s[3][i] + s[4][i] + s[5][i] + s[6][i] + s[7][i]
#define SUM_1_ON to[i] + s[0][i]
#define SUM_2_ON to[i] + s[0][i] + s[1][i]
#define SUM_4_ON to[i] + s[0][i] + s[1][i] + s[2][i] + s[3][i]
#define SUM_8_ON \
	to[i] + s[0][i] + s[1][i] + s[2][i] + s[3][i] + s[4][i] + s[5][i] + s[6][i] + s[7][i]

#define SUM_EACH(T, what) SUM_APART for (uint32_t i = 0; i < n; i++) to[i] = (T)(what)
#define SUM_OF(T, which)                         \
	do {                                     \
		if (first)                       \
			SUM_EACH(T, which);      \
		else                             \
			SUM_EACH(T, which##_ON); \
	} while (0)

/* So many ranks are summed in the next pass, of those that are left. */
SUM_HERE int sum_ranks(int left)
{
	return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* X(name, type, how a sum ends) */
#define SUM_TYPES(X)               \
	X(u8, uint8_t, )           \
	X(u16, uint16_t, )         \
	X(u32, uint32_t, )         \
	X(u64, uint64_t, )         \
	X(f32, float, sum_end_f32) \
	X(f64, double, sum_end_f64)

#define sum_end_f32                                        \
	SUM_APART for (uint32_t i = 0; i < n; i++) to[i] = \
		to[i] == to[i] ? to[i] : (summed_f32)__builtin_nanf("")
#define sum_end_f64                                        \
	SUM_APART for (uint32_t i = 0; i < n; i++) to[i] = \
		to[i] == to[i] ? to[i] : (summed_f64)__builtin_nan("")

#define DEFINE_SUM(name, T, end)                                                                   \
	typedef T __attribute__((may_alias)) summed_##name;                                        \
	SUM_HERE void sum_pass_##name(summed_##name *to, const summed_##name *const *s, int ranks, \
		int first, uint32_t n)                                                             \
	{                                                                                          \
		if (ranks == 8)                                                                    \
			SUM_OF(T, SUM_8);                                                          \
		else if (ranks == 4)                                                               \
			SUM_OF(T, SUM_4);                                                          \
		else if (ranks == 2)                                                               \
			SUM_OF(T, SUM_2);                                                          \
		else                                                                               \
			SUM_OF(T, SUM_1);                                                          \
	}                                                                                          \
	SUM_HERE void sum_all_##name(const struct fold *r)                                         \
	{                                                                                          \
		const uint64_t most = sizeof(union unit) * FOLD_TILE;                              \
		union unit tile[FOLD_TILE];                                                        \
		summed_##name *to = (summed_##name *)tile;                                         \
                                                                                                   \
		for (uint64_t at = r->lane * most; at < r->bytes; at += r->lanes * most) {         \
			uint64_t bytes = r->bytes - at < most ? r->bytes - at : most;              \
			uint32_t n = (uint32_t)(bytes / sizeof(T));                                \
                                                                                                   \
			for (int pe = 0, ranks; pe < r->npes; pe += ranks) {                       \
				const summed_##name *s[8];                                         \
                                                                                                   \
				ranks = sum_ranks(r->npes - pe);                                   \
				for (int i = 0; i < ranks; i++)                                    \
					s[i] = (const summed_##name *)spmtd_to_(                   \
						r->inboxes[pe + i].src + r->from + at);            \
				sum_pass_##name(to, s, ranks, pe == 0, n);                         \
			}                                                                          \
			end;                                                                       \
			tile_out(r, at / sizeof(union unit),                                       \
				tile_units(r, at / sizeof(union unit)), tile);                     \
		}                                                                                  \
	}                                                                                          \
	static __attribute__((noinline)) void sum_plain_##name(const struct fold *r)               \
	{                                                                                          \
		sum_all_##name(r);                                                                 \
	}
SUM_TYPES(DEFINE_SUM)

#if defined(SUM_WIDE)
#define DEFINE_WIDE(name, T, end)                                              \
	static __attribute__((noinline, target("avx2"))) void sum_wide_##name( \
		const struct fold *r)                                          \
	{                                                                      \
		sum_all_##name(r);                                             \
	}
SUM_TYPES(DEFINE_WIDE)
#define SUM_BY(name) (__builtin_cpu_supports("avx2") ? sum_wide_##name(r) : sum_plain_##name(r))
#else
#define SUM_BY(name) sum_plain_##name(r)
#endif

int fold_sum(const struct fold *r, int type)
{
	if (r->slots)
		return 0;
	switch (type) {
	case SPMT_TYPE_I8:
	case SPMT_TYPE_U8:
		SUM_BY(u8);
		return 1;
	case SPMT_TYPE_I16:
	case SPMT_TYPE_U16:
		SUM_BY(u16);
		return 1;
	case SPMT_TYPE_I32:
	case SPMT_TYPE_U32:
		SUM_BY(u32);
		return 1;
	case SPMT_TYPE_I64:
	case SPMT_TYPE_U64:
		SUM_BY(u64);
		return 1;
	case SPMT_TYPE_F32:
		SUM_BY(f32);
		return 1;
	case SPMT_TYPE_F64:
		SUM_BY(f64);
		return 1;
	default:
		return 0;
	}
}

#endif
