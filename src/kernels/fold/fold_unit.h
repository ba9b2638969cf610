/* SPDX-License-Identifier: MIT */
/* How the folds of all types reach their operands and go on from rank to rank. */
#ifndef SPMT_KERNELS_FOLD_UNIT_H
#define SPMT_KERNELS_FOLD_UNIT_H

#include "../../../include/spmt.h"
#include "fold.h"
#include "fold_float.h"
#include "slot_unit.h"

/* Two words in two registers; left alone, ptxas carries every byte of a unit through the loop in a
   register of its own. Not on AMD: of a function with assembly LLVM does not know that it calls
   nobody, and gives each lane of its kernels 16 KiB of scratch. */
static inline union unit packed(union unit u)
{
#if defined(__NVPTX__)
	__asm__ volatile("" : "+l"(u.words[0]), "+l"(u.words[1]));
#endif
	return u;
}

static inline struct wide packed_wide(struct wide w)
{
	return w;
}

/* Bytes of unit k that there are. */
static inline uint32_t unit_bytes(const struct fold *r, uint64_t k)
{
	uint64_t left = r->bytes - 16 * k;

	return 16 * k >= r->bytes ? 0 : left < 16 ? (uint32_t)left : 16;
}

static inline union unit unit_of(const struct fold *r, int pe, uint64_t k)
{
	if (r->slots)
		return packed(unit_arrived(r->slots + (uint64_t)(uint32_t)pe * r->slot, k));
	return packed(fetch(r->inboxes[pe].src + r->from + 16 * k, unit_bytes(r, k)));
}

static inline void unit_out(const struct fold *r, uint64_t k, union unit u)
{
	uint32_t n = unit_bytes(r, k);
	int pe = r->first;

	if (!r->everyone) {
		place(r->dst + r->to + 16 * k, u, n);
		return;
	}
	for (int i = 0; i < r->everyone; i++) {
		place(r->inboxes[pe].dst + r->to + 16 * k, u, n);
		pe = pe + 1 < r->npes ? pe + 1 : 0;
	}
}

static inline uint64_t fold_factor(const struct fold *r, int pe)
{
	return piece_data(slot_peek(r->factors + PIECE_IN_SLOT * (uint64_t)(uint32_t)pe));
}

static inline union unit same(union unit u)
{
	return u;
}

/* ---- sums of integers of 64 bits, for their mean ---------------------------------------------- */

struct mean_sum {
	uint64_t low, high;
};

static inline void mean_add(struct mean_sum *s, uint64_t x, int is_signed)
{
	s->low += x;
	s->high += (uint64_t)(s->low < x) - (uint64_t)(is_signed && x >> 63);
}

/* The quotient has 64 bits, so high < n: two steps of 32 bits. */
static inline uint64_t mean_over(struct mean_sum s, uint64_t n, int is_signed)
{
	uint64_t sign = is_signed ? 0 - (s.high >> 63) : 0, part, quotient;

	if (sign) {
		s.low = 0 - s.low;
		s.high = ~s.high + (s.low == 0);
	}
	part = s.high << 32 | s.low >> 32;
	quotient = part / n << 32;
	part = part % n << 32 | (uint32_t)s.low;
	quotient |= part / n;
	return (quotient ^ sign) - sign;
}

/* ---- steps: acc and x are units of values; halves have their values in two units --------------- */

/* One step of a fold, acc a with the next rank's unit x; m: the member of both that is meant. */
#define STEP_SUM(m, a, x) ((a).m += (x).m)
#define STEP_PROD(m, a, x) ((a).m *= (x).m)
#define STEP_AND(m, a, x) ((a).m &= (x).m)
#define STEP_OR(m, a, x) ((a).m |= (x).m)
#define STEP_XOR(m, a, x) ((a).m ^= (x).m)
#define STEP_KEEP(mask, a, x) ((a).u64 = ((a).u64 & (u64x2)(mask)) | ((x).u64 & ~(u64x2)(mask)))
#define STEP_MIN(m, a, x) STEP_KEEP((a).m < (x).m, a, x)
#define STEP_MAX(m, a, x) STEP_KEEP((a).m > (x).m, a, x)
#define STEP_MIN_F(m, a, x) ((a).m = min_##m((a).m, (x).m))
#define STEP_MAX_F(m, a, x) ((a).m = max_##m((a).m, (x).m))

/* The same for halves, m: f16 or bf16. */
#define STEP_WIDE(m, a, x, part)               \
	do {                                   \
		struct wide w_ = m##_widen(x); \
		part((a).lo, w_.lo);           \
		part((a).hi, w_.hi);           \
	} while (0)
#define PART_SUM(a, x) ((a) += (x))
#define PART_PROD(a, x) ((a) *= (x))
#define PART_MIN(a, x) ((a) = min_f32((a), (x)))
#define PART_MAX(a, x) ((a) = max_f32((a), (x)))
#define STEP_WIDE_SUM(m, a, x) STEP_WIDE(m, a, x, PART_SUM)
#define STEP_WIDE_PROD(m, a, x) STEP_WIDE(m, a, x, PART_PROD)
#define STEP_WIDE_MIN(m, a, x) STEP_WIDE(m, a, x, PART_MIN)
#define STEP_WIDE_MAX(m, a, x) STEP_WIDE(m, a, x, PART_MAX)

#endif
