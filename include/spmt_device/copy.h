/* SPDX-License-Identifier: MIT */
/*
 * Copies by the threads of a scope, between raw addresses: spmtd_copy_put_ and spmtd_copy_get_, whose remote side is device memory;
 * spmtd_bulk_raw_, where both sides are. None meets, fences or wakes.
 */
#ifndef SPMTD_COPY_H
#define SPMTD_COPY_H

#include "view.h"

SPMTD_BEGIN

/* Less than 8 bytes, or at any address: one by one. */
SPMTD_RARE uint64_t spmtd_bytes_load_(uint64_t a, uint64_t n)
{
	uint64_t x = 0;

	for (uint32_t i = 0; i < n; i++)
		x |= (uint64_t)spmtd_load8_(a + i) << (8 * i);
	return x;
}

SPMTD_RARE void spmtd_bytes_store_(uint64_t a, uint64_t n, uint64_t x)
{
	for (uint32_t i = 0; i < n; i++)
		spmtd_store8_(a + i, (uint8_t)(x >> (8 * i)));
}

/* ---- copies --------------------------------------------------------------------------------- */

/* Which side of a copy is device memory; the other may be any memory. */
enum spmtd_way_ { SPMTD_PUT_, SPMTD_GET_, SPMTD_RAW_ };

#if defined(SPMTD_HOST)

/* Overlap is fine. The caller has dealt with single accesses. */
SPMTD_FN void spmtd_bulk_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	(void)way;
	if (lanes == 1)
		__builtin_memmove(spmtd_to_(dst), spmtd_to_(src), (size_t)n);
	else if (lane == 0)
		__builtin_memcpy(spmtd_to_(dst), spmtd_to_(src), (size_t)n);
}

SPMTD_FN int spmtd_plain_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	(void)way, (void)dst, (void)src, (void)n, (void)lane, (void)lanes;
	return 0;
}

SPMTD_FN uint64_t spmtd_local_load_(uint64_t a, uint64_t n)
{
	if (n == 8)
		return spmtd_load64_(a);
	if (n == 4)
		return spmtd_load32_(a);
	return n == 2 ? spmtd_load16_(a) : spmtd_load8_(a);
}

SPMTD_FN void spmtd_local_store_(uint64_t a, uint64_t n, uint64_t x)
{
	if (n == 8)
		spmtd_store64_(a, x);
	else if (n == 4)
		spmtd_store32_(a, (uint32_t)x);
	else if (n == 2)
		spmtd_store16_(a, (uint16_t)x);
	else
		spmtd_store8_(a, (uint8_t)x);
}

#else

/* Accesses of one kind that a thread keeps in flight: all loads are issued before the first
   store. */
#define SPMTD_FLIGHT 8
#define SPMTD_MANY 512 /* threads */

/* base + step * j. Opaque where the compiler would rather keep all of a round's addresses in
   registers, more than a full block has. */
SPMTD_FN uint64_t spmtd_hop_(uint64_t base, uint32_t step, uint32_t j)
{
#if defined(SPMTD_NVPTX)
	uint64_t a = base;

	if (j)
		SPMTD_PURE("mad.wide.u32 %0, %1, %2, %3;" : "=l"(a) : "r"(step), "r"(j), "l"(base));
	return a;
#else
	return base + (uint64_t)step * j;
#endif
}

#define SPMTD_SIDES(bits, type)                                                              \
	SPMTD_FN type spmtd_from##bits##_(int way, uint64_t a)                               \
	{                                                                                    \
		return way == SPMTD_PUT_ ? spmtd_load##bits##_(a) : spmtd_gload##bits##_(a); \
	}                                                                                    \
	SPMTD_FN void spmtd_into##bits##_(int way, uint64_t a, type x)                       \
	{                                                                                    \
		if (way == SPMTD_GET_)                                                       \
			spmtd_store##bits##_(a, x);                                          \
		else                                                                         \
			spmtd_gstore##bits##_(a, x);                                         \
	}                                                                                    \
	SPMTD_FN type spmtd_zero##bits##_(void)                                              \
	{                                                                                    \
		union {                                                                      \
			uint64_t words[2];                                                   \
			type x;                                                              \
		} u;                                                                         \
		u.words[0] = u.words[1] = 0;                                                 \
		return u.x;                                                                  \
	}
SPMTD_SIDES(8, uint8_t)
SPMTD_SIDES(16, uint16_t)
SPMTD_SIDES(32, uint32_t)
SPMTD_SIDES(64, uint64_t)
SPMTD_SIDES(16b, struct spmtd_unit_)

/* n units of one size, lane by lane. The last, short round is in flight at once too; its values
   begin as zeros, because ptxas takes registers that need not be written here for live in all
   callers. Every warp of a block walks all of it, so what a round does not need costs: 16-byte units go
   in rounds of half the accesses where those suffice, and where many threads put, whose loads are
   near. */
#define SPMTD_RUN(bits, type, bytes)                                                               \
	SPMTD_FN uint64_t spmtd_rounds##bits##_(int way, uint64_t *dst, uint64_t *src, uint64_t n, \
		uint32_t lanes, uint32_t flight)                                                   \
	{                                                                                          \
		uint32_t step = lanes * bytes, round = lanes * flight;                             \
                                                                                                   \
		for (; n >= round; n -= round) {                                                   \
			type x[SPMTD_FLIGHT];                                                      \
                                                                                                   \
			SPMTD_UNROLL for (uint32_t j = 0; j < flight; j++) x[j] =                  \
				spmtd_from##bits##_(way, spmtd_hop_(*src, step, j));               \
			SPMTD_UNROLL for (uint32_t j = 0; j < flight; j++)                         \
				spmtd_into##bits##_(way, spmtd_hop_(*dst, step, j), x[j]);         \
			*src += (uint64_t)step * flight;                                           \
			*dst += (uint64_t)step * flight;                                           \
		}                                                                                  \
		return n;                                                                          \
	}                                                                                          \
	SPMTD_FN void spmtd_rest##bits##_(int way, uint64_t dst, uint64_t src, uint32_t n,         \
		uint32_t lane, uint32_t lanes, uint32_t flight)                                    \
	{                                                                                          \
		type x[SPMTD_FLIGHT];                                                              \
                                                                                                   \
		SPMTD_UNROLL for (uint32_t j = 0; j < flight; j++) x[j] = spmtd_zero##bits##_();   \
		SPMTD_UNROLL for (uint32_t j = 0; j < flight; j++) if (lane + j * lanes < n)       \
			x[j] = spmtd_from##bits##_(way, spmtd_hop_(src, lanes * bytes, j));        \
		SPMTD_UNROLL for (uint32_t j = 0; j < flight; j++) if (lane + j * lanes < n)       \
			spmtd_into##bits##_(way, spmtd_hop_(dst, lanes *bytes, j), x[j]);          \
	}                                                                                          \
	SPMTD_FN void spmtd_run##bits##_(                                                          \
		int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)    \
	{                                                                                          \
		uint32_t half = SPMTD_FLIGHT / 2;                                                  \
		int wide = bytes == 16 && way == SPMTD_PUT_ && lanes >= SPMTD_MANY;                \
                                                                                                   \
		dst += (uint64_t)lane * bytes;                                                     \
		src += (uint64_t)lane * bytes;                                                     \
		if (!wide)                                                                         \
			n = spmtd_rounds##bits##_(way, &dst, &src, n, lanes, SPMTD_FLIGHT);        \
		if (bytes == 16 && (wide || n == half * lanes))                                    \
			n = spmtd_rounds##bits##_(way, &dst, &src, n, lanes, half);                \
		if (lane >= n)                                                                     \
			return;                                                                    \
		if (bytes == 16 && n < half * lanes)                                               \
			spmtd_rest##bits##_(way, dst, src, (uint32_t)n, lane, lanes, half);        \
		else                                                                               \
			spmtd_rest##bits##_(                                                       \
				way, dst, src, (uint32_t)n, lane, lanes, SPMTD_FLIGHT);            \
	}
SPMTD_RUN(8, uint8_t, 1u)
SPMTD_RUN(16, uint16_t, 2u)
SPMTD_RUN(32, uint32_t, 4u)
SPMTD_RUN(64, uint64_t, 8u)
SPMTD_RUN(16b, struct spmtd_unit_, 16u)

/* The widest accesses that both addresses and the length allow. */
SPMTD_RARE void spmtd_words_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	uint64_t odd = dst | src | n;

	if (odd & 1)
		spmtd_run8_(way, dst, src, n, lane, lanes);
	else if (odd & 2)
		spmtd_run16_(way, dst, src, n / 2, lane, lanes);
	else if (odd & 4)
		spmtd_run32_(way, dst, src, n / 4, lane, lanes);
	else
		spmtd_run64_(way, dst, src, n / 8, lane, lanes);
}

/* The ends of a copy whose two sides are misaligned alike, by one thread: `head` bytes up to a
   multiple of 16, then, from `from` on, `tail` bytes. At most four accesses each, all loads
   first. */
SPMTD_RARE void spmtd_ends_(
	int way, uint64_t dst, uint64_t src, uint64_t head, uint64_t from, uint64_t tail)
{
	uint64_t h2 = head & 1, h4 = head & 3, h8 = head & 7;
	uint64_t t8 = from, t4 = from + (tail & 8), t2 = from + (tail & 12),
		 t1 = from + (tail & 14);
	uint64_t ha8 = 0, ta8 = 0;
	uint32_t ha4 = 0, ta4 = 0;
	uint16_t ha2 = 0, ta2 = 0;
	uint8_t ha1 = 0, ta1 = 0;

	if (head & 1)
		ha1 = spmtd_from8_(way, src);
	if (head & 2)
		ha2 = spmtd_from16_(way, src + h2);
	if (head & 4)
		ha4 = spmtd_from32_(way, src + h4);
	if (head & 8)
		ha8 = spmtd_from64_(way, src + h8);
	if (tail & 8)
		ta8 = spmtd_from64_(way, src + t8);
	if (tail & 4)
		ta4 = spmtd_from32_(way, src + t4);
	if (tail & 2)
		ta2 = spmtd_from16_(way, src + t2);
	if (tail & 1)
		ta1 = spmtd_from8_(way, src + t1);
	if (head & 1)
		spmtd_into8_(way, dst, ha1);
	if (head & 2)
		spmtd_into16_(way, dst + h2, ha2);
	if (head & 4)
		spmtd_into32_(way, dst + h4, ha4);
	if (head & 8)
		spmtd_into64_(way, dst + h8, ha8);
	if (tail & 8)
		spmtd_into64_(way, dst + t8, ta8);
	if (tail & 4)
		spmtd_into32_(way, dst + t4, ta4);
	if (tail & 2)
		spmtd_into16_(way, dst + t2, ta2);
	if (tail & 1)
		spmtd_into8_(way, dst + t1, ta1);
}

/* The 16 bytes that begin s bytes into `lo`, 0 < s < 16. */
SPMTD_FN struct spmtd_unit_ spmtd_merge_(struct spmtd_unit_ lo, struct spmtd_unit_ hi, uint32_t s)
{
	uint64_t w0 = s < 8 ? lo.a : lo.b, w1 = s < 8 ? lo.b : hi.a, w2 = s < 8 ? hi.a : hi.b;
	uint32_t down = s % 8 * 8, up = 63 - down;
	struct spmtd_unit_ u;

	u.a = w0 >> down | w1 << 1 << up;
	u.b = w1 >> down | w2 << 1 << up;
	return u;
}

/*
 * What a block's copy has besides aligned units, less than 64 bytes: the first `head`, and what lies behind `gap` more. In accesses as wide
 * as all of it allows (what it allows, `head` does), and by its first lanes, of which each has one or two.
 */
SPMTD_FN void spmtd_scraps_(int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t head,
	uint64_t gap, uint32_t lane, uint32_t lanes)
{
	uint32_t odd = (uint32_t)(dst | src | n) | 8, size = odd & (0 - odd);
	uint32_t left = (uint32_t)(n - gap), step = size * (lanes < 32 ? lanes : 32);

	if (lane >= 32)
		return;
	SPMTD_ROLLED for (uint32_t i = size * lane; i < left; i += step)
	{
		uint64_t at = i < head ? i : i + gap;

		if (size == 8)
			spmtd_into64_(way, dst + at, spmtd_from64_(way, src + at));
		else if (size == 4)
			spmtd_into32_(way, dst + at, spmtd_from32_(way, src + at));
		else if (size == 2)
			spmtd_into16_(way, dst + at, spmtd_from16_(way, src + at));
		else
			spmtd_into8_(way, dst + at, spmtd_from8_(way, src + at));
	}
}

/* The units of a copy whose sides are misaligned differently: how many, and what lies before them. */
struct spmtd_cut_ {
	uint64_t head, units;
	uint32_t shift; /* of src from a unit's begin */
};

SPMTD_FN struct spmtd_cut_ spmtd_cut_of_(uint64_t dst, uint64_t src, uint64_t n)
{
	struct spmtd_cut_ cut;

	cut.head = (0 - dst) & 15;
	cut.shift = (uint32_t)(src + cut.head) & 15;
	if (cut.head < cut.shift)
		cut.head += 16;
	cut.units = n + cut.shift < 32 + cut.head ? 0 : (n + cut.shift - 32 - cut.head) / 16 + 1;
	if (!cut.units)
		cut.head = n;
	return cut;
}

/* dst in aligned units, each merged from two aligned units of src; only units of src that lie wholly in the range are touched.
   `flight` of them at once. */
SPMTD_FN void spmtd_merged_(int way, uint64_t dst, uint64_t src, struct spmtd_cut_ cut,
	uint32_t lane, uint32_t lanes, uint32_t flight)
{
	uint32_t step = 16 * lanes;

	dst += cut.head + 16 * (uint64_t)lane;
	src += cut.head - cut.shift + 16 * (uint64_t)lane;
	for (uint64_t i = lane; i < cut.units; i += (uint64_t)flight * lanes) {
		struct spmtd_unit_ lo[SPMTD_FLIGHT / 2], hi[SPMTD_FLIGHT / 2];

		SPMTD_UNROLL for (uint32_t j = 0; j < flight; j++) lo[j] = hi[j] = spmtd_zero16b_();
		SPMTD_UNROLL for (uint32_t j = 0; j < flight;
				  j++) if (i + (uint64_t)j * lanes < cut.units)
		{
			lo[j] = spmtd_from16b_(way, spmtd_hop_(src, step, j));
			hi[j] = spmtd_from16b_(way, spmtd_hop_(src, step, j) + 16);
		}
		SPMTD_UNROLL for (uint32_t j = 0; j < flight;
				  j++) if (i + (uint64_t)j * lanes < cut.units) spmtd_into16b_(way,
			spmtd_hop_(dst, step, j), spmtd_merge_(lo[j], hi[j], cut.shift));
		src += (uint64_t)step * flight;
		dst += (uint64_t)step * flight;
	}
}

SPMTD_FN void spmtd_shifted_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	struct spmtd_cut_ cut = spmtd_cut_of_(dst, src, n);
	uint64_t to = cut.head + 16 * cut.units;

	spmtd_words_(way, dst, src, cut.head, lane, lanes);
	spmtd_words_(way, dst + to, src + to, n - to, lane, lanes);
	spmtd_merged_(way, dst, src, cut, lane, lanes, SPMTD_FLIGHT / 2);
}

/* Whole aligned units. Functions of their own, because ptxas gives one that calls others too few
   registers to keep a round in. */
#define SPMTD_LEAVES(way, WAY)                                                         \
	SPMTD_RARE void spmtd_units_##way##_(                                          \
		uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes) \
	{                                                                              \
		spmtd_run16b_(WAY, dst, src, n / 16, lane, lanes);                     \
	}                                                                              \
	SPMTD_RARE void spmtd_shifted_##way##_(                                        \
		uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes) \
	{                                                                              \
		spmtd_shifted_(WAY, dst, src, n, lane, lanes);                         \
	}
SPMTD_LEAVES(put, SPMTD_PUT_)
SPMTD_LEAVES(get, SPMTD_GET_)
SPMTD_LEAVES(raw, SPMTD_RAW_)

SPMTD_FN void spmtd_units_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	if (way == SPMTD_PUT_)
		spmtd_units_put_(dst, src, n, lane, lanes);
	else if (way == SPMTD_GET_)
		spmtd_units_get_(dst, src, n, lane, lanes);
	else
		spmtd_units_raw_(dst, src, n, lane, lanes);
}

SPMTD_FN void spmtd_bulk_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	if (((dst ^ src) & 15) && n >= 16) {
		if (way == SPMTD_PUT_)
			spmtd_shifted_put_(dst, src, n, lane, lanes);
		else if (way == SPMTD_GET_)
			spmtd_shifted_get_(dst, src, n, lane, lanes);
		else
			spmtd_shifted_raw_(dst, src, n, lane, lanes);
	} else if (n < 16) {
		spmtd_words_(way, dst, src, n, lane, lanes);
	} else {
		uint64_t head = (0 - dst) & 15, tail = (n - head) & 15;

		/* The last lane has the fewest units. */
		if ((head | tail) && lane == lanes - 1)
			spmtd_ends_(way, dst, src, head, n - tail, tail);
		spmtd_units_(way, dst + head, src + head, n - head - tail, lane, lanes);
	}
}

SPMTD_FN uint64_t spmtd_local_load_(uint64_t a, uint64_t n)
{
	if (a & (n - 1))
		return spmtd_bytes_load_(a, n);
	if (n == 8)
		return spmtd_load64_(a);
	if (n == 4)
		return spmtd_load32_(a);
	return n == 2 ? spmtd_load16_(a) : spmtd_load8_(a);
}

SPMTD_FN void spmtd_local_store_(uint64_t a, uint64_t n, uint64_t x)
{
	if (a & (n - 1))
		spmtd_bytes_store_(a, n, x);
	else if (n == 8)
		spmtd_store64_(a, x);
	else if (n == 4)
		spmtd_store32_(a, (uint32_t)x);
	else if (n == 2)
		spmtd_store16_(a, (uint16_t)x);
	else
		spmtd_store8_(a, (uint8_t)x);
}

/* Aligned units; 0: they are not. One a lane is in line and short: all warps of a full block walk
   it, and a hundred instructions of each are a quarter of the time of a small copy. */
SPMTD_FN int spmtd_plain_(
	int way, uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	uint32_t at = 16 * lane;

	if ((dst | src | n) & 15)
		return 0;
	if (n > 16 * (uint64_t)lanes)
		spmtd_units_(way, dst, src, n, lane, lanes);
	else if (at < n)
		spmtd_into16b_(way, dst + at, spmtd_from16b_(way, src + at));
	return 1;
}

#endif

SPMTD_LONG void spmtd_bulk_put_(
	uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	spmtd_bulk_(SPMTD_PUT_, dst, src, n, lane, lanes);
}

SPMTD_LONG void spmtd_bulk_get_(
	uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	spmtd_bulk_(SPMTD_GET_, dst, src, n, lane, lanes);
}

/* Both sides device memory: for the library's kernels. */
SPMTD_LONG void spmtd_bulk_raw_(
	uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	spmtd_bulk_(SPMTD_RAW_, dst, src, n, lane, lanes);
}

/* One atomic access on the remote side. */
SPMTD_FN int spmtd_single_(uint64_t remote, uint64_t n)
{
	return n && n <= 8 && !(n & (n - 1)) && !(remote & (n - 1));
}

SPMTD_FN uint64_t spmtd_peek_(uint64_t a, uint64_t n)
{
	if (n == 8)
		return spmtd_peek64_(a);
	if (n == 4)
		return spmtd_peek32_(a);
	return n == 2 ? spmtd_peek16_(a) : spmtd_peek8_(a);
}

SPMTD_FN void spmtd_poke_(uint64_t a, uint64_t n, uint64_t x)
{
	if (n == 8)
		spmtd_poke64_(a, x);
	else if (n == 4)
		spmtd_poke32_(a, (uint32_t)x);
	else if (n == 2)
		spmtd_poke16_(a, (uint16_t)x);
	else
		spmtd_poke8_(a, (uint8_t)x);
}

#if defined(SPMTD_HOST)

/* 1 to 8 bytes, by one thread. */
SPMTD_FN void spmtd_small_put_(uint64_t dst, uint64_t src, uint64_t n)
{
	if (spmtd_single_(dst, n))
		spmtd_poke_(dst, n, spmtd_local_load_(src, n));
	else
		spmtd_bulk_put_(dst, src, n, 0, 1);
}

#else

/* That are no single access: all loads first, then stores as wide as dst and n allow. */
SPMTD_RARE void spmtd_odd_put_(uint64_t dst, uint64_t src, uint64_t n)
{
	uint32_t odd = (uint32_t)(dst | n) | 8, size = odd & (0 - odd);
	uint64_t x = 0;

	SPMTD_UNROLL for (uint32_t i = 0; i < 8; i++) if (i < n) x |=
		(uint64_t)spmtd_load8_(src + i) << (8 * i);
	SPMTD_ROLLED for (uint32_t i = 0; i < n; i += size)
	{
		if (size == 4)
			spmtd_gstore32_(dst + i, (uint32_t)(x >> (8 * i)));
		else if (size == 2)
			spmtd_gstore16_(dst + i, (uint16_t)(x >> (8 * i)));
		else
			spmtd_gstore8_(dst + i, (uint8_t)(x >> (8 * i)));
	}
}

/* 1 to 8 bytes, by one thread. */
SPMTD_FN void spmtd_small_put_(uint64_t dst, uint64_t src, uint64_t n)
{
	if (spmtd_single_(dst, n))
		spmtd_poke_(dst, n, spmtd_local_load_(src, n));
	else
		spmtd_odd_put_(dst, src, n);
}

SPMTD_RARE void spmtd_scraps_put_(uint64_t dst, uint64_t src, uint64_t n, uint32_t head,
	uint64_t gap, uint32_t lane, uint32_t lanes)
{
	spmtd_scraps_(SPMTD_PUT_, dst, src, n, head, gap, lane, lanes);
}

/* A unit fewer in flight than by others: with more ptxas has a full block's caller keep its own
   values in memory, whether it comes here or not. */
SPMTD_RARE void spmtd_apart_put_(
	uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	struct spmtd_cut_ cut = spmtd_cut_of_(dst, src, n);

	spmtd_scraps_(SPMTD_PUT_, dst, src, n, (uint32_t)cut.head, 16 * cut.units, lane, lanes);
	spmtd_merged_(SPMTD_PUT_, dst, src, cut, lane, lanes, SPMTD_FLIGHT / 2 - 1);
}

/*
 * A put's part of a block's warp that has one (spmtd_has_part_). In line but for what is misaligned, which takes few registers: what a
 * function takes that is not in line, a kernel of 1024 threads has not, and keeps a loop's values in memory instead.
 */
SPMTD_FN void spmtd_block_put_(
	uint64_t dst, uint64_t src, uint64_t n, uint32_t lane, uint32_t lanes)
{
	uint64_t at = 16 * (uint64_t)lane;

	if ((dst | src | n) & 15) {
		uint64_t head = (0 - dst) & 15;

		if (n <= 8) {
			if (lane == 0)
				spmtd_small_put_(dst, src, n);
			return;
		}
		if (((dst ^ src) & 15) || n < 16) {
			spmtd_apart_put_(dst, src, n, lane, lanes);
			return;
		}
		n -= head;
		spmtd_scraps_put_(
			dst, src, n + head, (uint32_t)head, n & ~(uint64_t)15, lane, lanes);
		dst += head;
		src += head;
		n &= ~(uint64_t)15;
	}
	if (n > 16 * (uint64_t)lanes)
		spmtd_run16b_(SPMTD_PUT_, dst, src, n / 16, lane, lanes);
	else if (at < n)
		spmtd_into16b_(SPMTD_PUT_, dst + at, spmtd_from16b_(SPMTD_PUT_, src + at));
}

#endif

SPMTD_FN void spmtd_copy_put_(uint64_t dst, uint64_t src, uint64_t n, int scope)
{
	uint32_t lane = spmtd_lane_(scope), lanes = spmtd_lanes_(scope);

	if (spmtd_plain_(SPMTD_PUT_, dst, src, n, lane, lanes))
		return;
	if (!spmtd_single_(dst, n))
		spmtd_bulk_put_(dst, src, n, lane, lanes);
	else if (lane == 0)
		spmtd_poke_(dst, n, spmtd_local_load_(src, n));
}

SPMTD_FN void spmtd_copy_get_(uint64_t dst, uint64_t src, uint64_t n, int scope)
{
	uint32_t lane = spmtd_lane_(scope), lanes = spmtd_lanes_(scope);

	if (spmtd_plain_(SPMTD_GET_, dst, src, n, lane, lanes))
		return;
	if (!spmtd_single_(src, n))
		spmtd_bulk_get_(dst, src, n, lane, lanes);
	else if (lane == 0)
		spmtd_local_store_(dst, n, spmtd_peek_(src, n));
}

/*
 * Whether the calling warp has a part of a put. A block's that has none knows by its place alone and goes straight to the next meeting: all
 * 32 of a full block share four schedulers, so that an instruction of each takes eight cycles.
 */
SPMTD_FN int spmtd_has_part_(uint64_t n, int scope)
{
#if !defined(SPMTD_HOST)
	if (scope == SPMTD_BLOCK_)
		return (uint64_t)(spmtd_lane_(scope) / 32) * 512 < n;
#endif
	(void)scope;
	return n != 0;
}

/* As spmtd_copy_put_, where it is asked for often and one after the other; for who has a part. */
SPMTD_FN void spmtd_quick_put_(uint64_t dst, uint64_t src, uint64_t n, int scope)
{
#if !defined(SPMTD_HOST)
	if (scope == SPMTD_BLOCK_) {
		spmtd_block_put_(dst, src, n, spmtd_lane_(scope), spmtd_lanes_(scope));
		return;
	}
#endif
	spmtd_copy_put_(dst, src, n, scope);
}

#undef SPMTD_FLIGHT
#undef SPMTD_MANY
#undef SPMTD_SIDES
#undef SPMTD_RUN
#undef SPMTD_LEAVES

SPMTD_END

#endif
