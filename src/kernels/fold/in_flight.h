/* SPDX-License-Identifier: MIT */
/* Units that a thread loads at once, before it folds the first: what `twoshot` and the executor of plans share. */
#ifndef SPMT_KERNELS_IN_FLIGHT_H
#define SPMT_KERNELS_IN_FLIGHT_H

#include "unit.h"

/* Of so many ranks or terms, or of fewer and more units. */
#define IN_FLIGHT_LOG 3
#define IN_FLIGHT (1 << IN_FLIGHT_LOG)

#if defined(__AMDGCN__) || defined(__NVPTX__)
#define UNROLLED _Pragma("unroll")
#define ROLLED _Pragma("nounroll")
#else
#define UNROLLED
#define ROLLED
#endif

#if defined(UNITS_ALIGNED)
/* An aligned unit. */
static inline __attribute__((always_inline)) union unit fetch_whole(uint64_t a)
{
	union unit u;

	u.raw = spmtd_gload16b_(a);
	return u;
}

static inline __attribute__((always_inline)) void place_whole(uint64_t a, union unit u)
{
	spmtd_gstore16b_(a, u.raw);
}

static inline __attribute__((always_inline)) void place_here(uint64_t a, union unit u, uint32_t n)
{
	if (n < 16 || (a & 15))
		scatter_here(a, u, n);
	else
		spmtd_gstore16b_(a, u.raw);
}
#else
#define fetch_whole(a) fetch(a, 16)
#define place_whole(a, u) place(a, u, 16)
#define gather_here(a, n) fetch(a, n)
#define place_here(a, u, n) place(a, u, n)
#endif

/* In the order in which it is folded: a unit of 8 ranks, or of 4 and then the one that is a grid's threads further of these, or of 2
   and so on. */
struct in_flight {
	union unit x[IN_FLIGHT];
};

static inline __attribute__((always_inline)) union unit next_of(struct in_flight *f)
{
	union unit x = f->x[0];

	UNROLLED
	for (int i = 0; i + 1 < IN_FLIGHT; i++)
		f->x[i] = f->x[i + 1];
	return x;
}

#endif
