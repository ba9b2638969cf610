/* SPDX-License-Identifier: MIT */
/* How a rank says what it calls in `ll`. */
#ifndef SPMT_KERNELS_LL_HELLO_H
#define SPMT_KERNELS_LL_HELLO_H

#include "ll_units.h"
#include "src/kernels/coll/words.h"
#include "src/kernels/fold/slot.h"

/* The threads that have the least of the data. */
LL_FN int ll_teller(void)
{
	return (int)(spmtd_threads_() - 1 - spmtd_tid_());
}

/* In one packet, to pe, which finds it there. */
LL_FN void ll_hello_at(const struct coll *c, uint64_t there, int pe)
{
	uint64_t flag = (uint64_t)area_flag(c->epoch) << 32, key = c->args->key;
	struct spmtd_unit_ u = { flag | (uint32_t)key, flag | key >> 32 };

	slot_poke(there, u);
	spmtd_wake_(c->view, pe);
}

/* To every rank that is the calling thread's, from `pe` on. */
LL_FN void ll_hello(const struct coll *c, int pe)
{
	const struct spmt_view *v = c->view;

	LL_ROLLED
	for (; pe < v->npes; pe += (int)spmtd_threads_())
		ll_hello_at(c,
			spmtd_at_(coll_box(c, area_there(v, pe), v->pe)->hello[c->epoch & 1]), pe);
}

#endif
