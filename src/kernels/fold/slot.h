/* SPDX-License-Identifier: MIT */
/*
 * Data on its way to a peer that waits for nothing else. In a slot of a library area 8 bytes of data,
 * a piece, are two words of 4 bytes below a flag each. A word arrives as a whole, so its flag says
 * that its data is there, and no release has to wait for an acknowledgement.
 */
#ifndef SPMT_KERNELS_SLOT_H
#define SPMT_KERNELS_SLOT_H

#include "unit.h"

#define PIECE 8u	  /* bytes of data */
#define PIECE_IN_SLOT 16u /* bytes there */

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

static inline void slot_poke(uint64_t a, struct spmtd_unit_ u)
{
	spmtd_poke64_(a, u.a);
	spmtd_poke64_(a + 8, u.b);
}

#endif

/* n of its bytes, anywhere in memory. */
static inline uint64_t piece_fetch(uint64_t a, uint32_t n)
{
#if defined(__AMDGCN__) || defined(__NVPTX__)
	if (n == PIECE && a % PIECE == 0)
		return spmtd_gload64_(a);
#endif
	return fetch(a, n).words[0];
}

static inline void piece_place(uint64_t a, uint64_t x, uint32_t n)
{
	union unit u = { .words = { x, 0 } };

#if defined(__AMDGCN__) || defined(__NVPTX__)
	if (n == PIECE && a % PIECE == 0) {
		spmtd_gstore64_(a, x);
		return;
	}
#endif
	place(a, u, n);
}

static inline void piece_send(uint64_t slot, uint64_t p, uint64_t x, uint32_t flag)
{
	uint64_t above = (uint64_t)flag << 32;
	struct spmtd_unit_ u = { above | (uint32_t)x, above | x >> 32 };

	slot_poke(slot + PIECE_IN_SLOT * p, u);
}

static inline int piece_is_here(uint64_t slot, uint64_t p, uint32_t flag)
{
	struct spmtd_unit_ u = slot_peek(slot + PIECE_IN_SLOT * p);

	return u.a >> 32 == flag && u.b >> 32 == flag;
}

static inline uint64_t piece_arrived(uint64_t slot, uint64_t p)
{
	struct spmtd_unit_ u = slot_peek(slot + PIECE_IN_SLOT * p);

	return (uint32_t)u.a | u.b << 32;
}

static inline union unit unit_arrived(uint64_t slot, uint64_t k)
{
	union unit u = { .words = { piece_arrived(slot, 2 * k), piece_arrived(slot, 2 * k + 1) } };

	return u;
}

#endif
