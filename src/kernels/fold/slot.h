/* SPDX-License-Identifier: MIT */
/*
 * Data on its way to a peer that waits for nothing else. In a slot of a library area 8 bytes of data,
 * a piece, are two words of 4 bytes below a flag each. A word arrives as a whole, so its flag says
 * that its data is there, and no release has to wait for an acknowledgement.
 *
 * A unit (slot_unit.h), which is two pieces, has four flags. Each has 15 bits of the epoch, which are enough since slots are
 * cleared before these come again, and a quarter of the call's key: a unit is never taken for another call's.
 */
#ifndef SPMT_KERNELS_SLOT_H
#define SPMT_KERNELS_SLOT_H

#include "src/kernels/area.h"
#include "unit.h"

#define PIECE 8u	  /* bytes of data */
#define PIECE_IN_SLOT 16u /* bytes there */

struct slot_flags {
	struct piece_flags {
		uint32_t a, b;
	} lo, hi; /* of even pieces, and of odd ones */
};

/* Never 0, as slots are at first. */
static inline struct slot_flags slot_flags(uint64_t epoch, uint64_t key)
{
	uint32_t above = 1u << 31 | ((uint32_t)(epoch >> 1) & 0x7fff) << 16;
	struct slot_flags f = { { above | (uint16_t)key, above | (uint16_t)(key >> 16) },
		{ above | (uint16_t)(key >> 32), above | (uint16_t)(key >> 48) } };

	return f;
}

static inline struct piece_flags slot_flags_of(const struct slot_flags *f, uint64_t piece)
{
	struct piece_flags of = { piece & 1 ? f->hi.a : f->lo.a, piece & 1 ? f->hi.b : f->lo.b };

	return of;
}

#if defined(__NVPTX__)

static inline struct spmtd_unit_ slot_peek(uint64_t a)
{
	struct spmtd_unit_ u;

	__asm__ volatile("ld.relaxed.sys.v2.u64 {%0, %1}, [%2];"
			 : "=l"(u.a), "=l"(u.b)
			 : "l"(a)
			 : "memory");
	return u;
}

/* Of which the upper half has a flag for all, where 16 bytes arrive at once. A CPU stores that last, and looks at it first. */
static inline struct spmtd_unit_ slot_peek_flagged(uint64_t a)
{
	return slot_peek(a);
}

static inline void slot_poke(uint64_t a, struct spmtd_unit_ u)
{
	__asm__ volatile("st.relaxed.sys.v2.u64 [%0], {%1, %2};" ::"l"(a), "l"(u.a), "l"(u.b)
			 : "memory");
}

#else

static inline struct spmtd_unit_ slot_peek(uint64_t a)
{
	struct spmtd_unit_ u = { spmtd_peek64_(a), spmtd_peek64_(a + 8) };

	return u;
}

static inline struct spmtd_unit_ slot_peek_flagged(uint64_t a)
{
	struct spmtd_unit_ u;

	u.b = spmtd_peek64_(a + 8);
	u.a = spmtd_peek64_(a);
	return u;
}

static inline void slot_poke(uint64_t a, struct spmtd_unit_ u)
{
	spmtd_poke64_(a, u.a);
	spmtd_poke64_(a + 8, u.b);
}

#endif

/* n of its bytes, anywhere in memory. */
static inline uint64_t piece_fetch(uint64_t a, uint32_t n)
{
#if defined(UNITS_ALIGNED)
	if (n == PIECE && a % PIECE == 0)
		return spmtd_gload64_(a);
#endif
	return fetch(a, n).words[0];
}

static inline void piece_place(uint64_t a, uint64_t x, uint32_t n)
{
	union unit u = { .words = { x, 0 } };

#if defined(UNITS_ALIGNED)
	if (n == PIECE && a % PIECE == 0) {
		spmtd_gstore64_(a, x);
		return;
	}
#endif
	place(a, u, n);
}

static inline void piece_send(uint64_t slot, uint64_t p, uint64_t x, struct piece_flags f)
{
	struct spmtd_unit_ u = { (uint64_t)f.a << 32 | (uint32_t)x, (uint64_t)f.b << 32 | x >> 32 };

	slot_poke(slot + PIECE_IN_SLOT * p, u);
}

static inline int piece_is_whole(struct spmtd_unit_ u, struct piece_flags f)
{
	return u.a >> 32 == f.a && u.b >> 32 == f.b;
}

static inline uint64_t piece_data(struct spmtd_unit_ u)
{
	return (uint32_t)u.a | u.b << 32;
}

#endif
