/* SPDX-License-Identifier: MIT */
/* Folds of packets in which a thread has one unit at the most, which is whole: what it executes is most of what they take. */
#ifndef SPMT_KERNELS_PLAN_BRIEF_H
#define SPMT_KERNELS_PLAN_BRIEF_H

#include "coll/ll/ll_loops.h"
#include "plan_units.h"

PLAN_FN int plan_is_brief(const struct plan_fold *f)
{
	return f->units <= spmtd_threads_() && !(f->n % 8 || f->src[0] % 8);
}

/* What is plain, and not a packet. */
PLAN_FN union unit plan_brief_own(const struct plan_fold *f, uint64_t k)
{
#if defined(UNITS_ALIGNED)
	return (union unit){ .words = { spmtd_gload64_(f->src[0] + 8 * k), 0 } };
#else
	return fetch(f->src[0] + 8 * k, 8);
#endif
}

/* The next term's packet is looked at before this one's is folded. */
#define DEFINE_PLAN_BRIEF(name, acc, begin, step, end, hold)            \
	PLAN_FN void plan_brief_##name(struct plan_fold *f)             \
	{                                                               \
		const uint64_t k = spmtd_tid_();                        \
		union unit u, next = { .words = { 0, 0 } };             \
		acc a;                                                  \
                                                                        \
		if (k >= f->units)                                      \
			return;                                         \
		u = plan_brief_own(f, k);                               \
		if (f->nsrc > 1)                                        \
			next = plan_peek(f, 1, k);                      \
		a = hold(begin(packed(u), f->second));                  \
		ROLLED                                                  \
		for (uint32_t term = 1; term < f->nsrc; term++) {       \
			u = next;                                       \
			if (term + 1 < f->nsrc)                         \
				next = plan_peek(f, term + 1, k);       \
			u = plan_arrived(f, term, k, u);                \
			if (f->rc)                                      \
				return;                                 \
			a = hold(step(a, packed(u), f->op, f->second)); \
		}                                                       \
		plan_store(f, k, end(a, f->op, 1, f->second), 1);       \
	}

#endif
