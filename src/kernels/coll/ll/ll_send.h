/* SPDX-License-Identifier: MIT */
/* What a rank sends in `ll`. */
#ifndef SPMT_KERNELS_LL_SEND_H
#define SPMT_KERNELS_LL_SEND_H

#include "ll_units.h"
#include "src/kernels/coll/words.h"
#include "src/kernels/fold/slot_unit.h"

/* What this rank gives to itself goes through no slot; it is the first that it gives to, and that gives to it. */
LL_FN int ll_self(const struct coll *c, int first, int ranks)
{
	return ranks && first == c->view->pe;
}

LL_FN struct unit_place ll_unit_place(const struct coll *c, uint64_t slot, uint64_t k)
{
	return unit_place(slot, k, unit_group(c->args->room));
}

LL_FN void ll_send_there(struct unit_place to, union unit x, const struct slot_flags *flags)
{
	piece_send(to.even, 0, x.words[0], flags->lo);
	piece_send(to.odd, 0, x.words[1], flags->hi);
}

LL_FN void ll_send_unit(const struct coll *c, uint64_t slot, uint64_t k, union unit x,
	const struct slot_flags *flags)
{
	ll_send_there(ll_unit_place(c, slot, k), x, flags);
}

/* To one rank, where there are many. */
LL_FN void ll_send_to(const struct coll *c, int pe, const struct slot_flags *flags)
{
	const uint32_t threads = spmtd_threads_();
	uint64_t slot = coll_slot(c, area_there(c->view, pe), c->view->pe), from;
	uint32_t n = ll_units(c, &from), k;
	uint64_t src = ll_src(c, pe) + 16 * from;
	uint32_t whole = ll_whole(c, src, from, n);

	for (k = spmtd_tid_(); k < whole; k += LL_MANY * threads) {
		union unit x[LL_MANY];

		LL_EACH(LL_MANY)
		{
			if (k + i * threads < whole)
				x[i].raw = spmtd_gload16b_(src + 16 * (uint64_t)(k + i * threads));
		}
		LL_EACH(LL_MANY)
		{
			if (k + i * threads < whole)
				ll_send_unit(c, slot, from + k + i * threads, x[i], flags);
		}
	}
	LL_ROLLED
	for (k = whole + spmtd_tid_(); k < n; k += threads)
		ll_send_unit(c, slot, from + k, ll_fetch(c, (struct ll_at){ pe, from + k }), flags);
}

/* A thread's next units, where there are few. */
struct ll_few {
	struct ll_walk walk;
	struct ll_at at[LL_FEW];
	union unit u[LL_FEW];
};

LL_FN void ll_few_fetch(const struct coll *c, struct ll_few *f)
{
	LL_EACH(LL_FEW)
	{
		f->at[i] = ll_next(c, &f->walk);
		if (f->at[i].pe >= 0)
			f->u[i] = ll_fetch(c, f->at[i]);
	}
}

/* What a thread sends first is loaded while it is found out which epoch this is. */
LL_FN void ll_send_begin(const struct coll *c, struct ll_few *f)
{
	const struct coll_moves *m = &c->args->moves;
	int self = ll_self(c, m->to, m->tos);

	f->at[0].pe = -1;
	if (!c->bytes || ll_are_many(c))
		return;
	f->walk = ll_walk_of(c, m->to + self, m->tos - self);
	ll_few_fetch(c, f);
}

LL_FN void ll_send_few(const struct coll *c, struct ll_few *f, const struct slot_flags *flags)
{
	while (f->at[0].pe >= 0) {
		LL_EACH(LL_FEW)
		{
			int pe = f->at[i].pe;

			if (pe >= 0)
				ll_send_unit(c, coll_slot(c, area_there(c->view, pe), c->view->pe),
					f->at[i].unit, f->u[i], flags);
		}
		if (f->at[LL_FEW - 1].pe < 0)
			return;
		ll_few_fetch(c, f);
	}
}

/* The nth rank from `first` on. */
LL_FN int ll_rank(const struct coll *c, int first, int nth)
{
	int pe = first + nth;

	return pe < c->view->npes ? pe : pe - c->view->npes;
}

LL_FN void ll_send(const struct coll *c, struct ll_few *first, const struct slot_flags *flags)
{
	const struct coll_moves *m = &c->args->moves;
	int self = ll_self(c, m->to, m->tos);

	if (!ll_are_many(c)) {
		ll_send_few(c, first, flags);
		return;
	}
	LL_ROLLED
	for (int nth = self; nth < m->tos; nth++)
		ll_send_to(c, ll_rank(c, m->to, nth), flags);
}

#endif
