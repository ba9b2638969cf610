/* SPDX-License-Identifier: MIT */
/*
 * A fold of a plan: what lies at some places, in their order, to some other places, each unit as soon as it is folded. A thread has loads of
 * several terms and units under way, as those of `twoshot` have. A place that is written may be one that is read: by the same thread.
 */
#ifndef SPMT_KERNELS_PLAN_FOLD_H
#define SPMT_KERNELS_PLAN_FOLD_H

#include "coll/ll/ll_loops.h"
#include "plan_brief.h"
#include "plan_straight.h"

/* AMD's kernels of plans call functions that copy, and would put registers of a loop between such calls into memory. */
#if defined(__AMDGCN__)
#define PLAN_LOOP static __attribute__((noinline))
#else
#define PLAN_LOOP PLAN_FN
#endif

PLAN_FN void plan_store(const struct plan_fold *f, uint64_t k, union unit u, int packets)
{
	uint32_t n = plan_unit_has(f, k, packets);

	ROLLED
	for (uint32_t i = 0; i < f->ndst; i++)
		if (packets && i)
			spmtd_packet_poke_(
				f->dst[i] + 16 * k, spmtd_packet_(u.words[0], f->flag), 8);
		else
			place_here(f->dst[i] + plan_unit(packets) * k, u, n);
}

/* Others have one step, and one store, for all, as in `twoshot`. */
#define DEFINE_PLAN_FOLD(name, acc, begin, step, end, hold)                                        \
	PLAN_FN void plan_fold_##name(struct plan_fold *f, int packets)                            \
	{                                                                                          \
		struct plan_way w = plan_way_of(f);                                                \
		struct in_flight x;                                                                \
		acc a;                                                                             \
                                                                                                   \
		__builtin_memset(&x, 0, sizeof(x));                                                \
		__builtin_memset(&a, 0, sizeof(a));                                                \
		if (!packets && f->straight) {                                                     \
			plan_straight_##name(f);                                                   \
			plan_way_others(f, &w);                                                    \
		}                                                                                  \
		while (plan_way_on(f, &w))                                                         \
			for (uint32_t base = 0; base < f->nsrc; base += 1u << w.terms) {           \
				if (!w.part)                                                       \
					plan_load(f, &x, &w, base, packets);                       \
				ROLLED                                                             \
				for (uint32_t i = 0; i < IN_FLIGHT; i++) {                         \
					uint32_t term = base + (i & ((1u << w.terms) - 1));        \
					uint64_t k =                                               \
						w.k + (uint64_t)(i >> w.terms) * spmtd_threads_(); \
					union unit u = next_of(&x);                                \
                                                                                                   \
					if (term >= f->nsrc || (!w.part && k >= f->whole))         \
						continue;                                          \
					if (w.part)                                                \
						u = plan_load_part(f, term, k, packets);           \
					if (packets)                                               \
						u = plan_arrived(f, term, k, u);                   \
					if (packets && f->rc)                                      \
						return;                                            \
					u = packed(u);                                             \
					a = term ? step(a, u, f->op, f->second)                    \
						 : begin(u, f->second);                            \
					a = hold(a);                                               \
					if (term + 1 == f->nsrc)                                   \
						plan_store(f, k, end(a, f->op, 1, f->second),      \
							packets);                                  \
				}                                                                  \
			}                                                                          \
	}
LL_LOOPS_OF_PLANS(DEFINE_PLAN_FOLD)
LL_LOOPS_OF_PLANS(DEFINE_PLAN_BRIEF)

#define DEFINE_PLAN_LOOPS(name, acc, begin, step, end, hold)         \
	PLAN_LOOP void plan_fold_plain_##name(struct plan_fold *f)   \
	{                                                            \
		plan_fold_##name(f, 0);                              \
	}                                                            \
	PLAN_LOOP void plan_fold_packets_##name(struct plan_fold *f) \
	{                                                            \
		if (plan_is_brief(f))                                \
			plan_brief_##name(f);                        \
		else                                                 \
			plan_fold_##name(f, 1);                      \
	}
LL_LOOPS_OF_PLANS(DEFINE_PLAN_LOOPS)

/* Type and op as plan_given has them. */
PLAN_FN void plan_fold_units(struct plan_fold *f, int type, int op)
{
	uint64_t odd = f->packets ? 0 : f->src[0];

	for (uint32_t i = 1; i < f->nsrc; i++)
		odd |= f->src[i];
	f->units = (f->n + plan_unit(f->packets) - 1) / plan_unit(f->packets);
	f->whole = odd & 15 ? 0 : f->n / plan_unit(f->packets);
	f->straight = plan_is_straight(f, type, op);
	f->op = op;
	f->second = second_type(type);
	f->rc = 0;
	spmtd_wait_begin_(&f->wait);
	switch (type < SPMT_TYPE_F16 ? (int)FOLD_u8 + type / 2
				     : (int)FOLD_f16 + type - (int)SPMT_TYPE_F16) {
#define X(name, acc, begin, step, end, hold)         \
	case FOLD_##name:                            \
		if (f->packets)                      \
			plan_fold_packets_##name(f); \
		else                                 \
			plan_fold_plain_##name(f);   \
		break;
		LL_LOOPS_OF_PLANS(X)
#undef X
	default:
		break;
	}
	spmtd_wait_rest_(f->v, &f->wait);
}

#endif
