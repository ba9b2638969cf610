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

/* Where the calling thread's first one goes, which needs nothing of what is ahead in the stream: at[i] in epochs that are even, or odd. 0: this
   block, or thread, has none to say. */
LL_FN void ll_hello_find(const struct coll *c, uint64_t at[2])
{
	const struct area_inbox *box;

	at[0] = at[1] = 0;
	if (kernel_block() != 0 || ll_teller() >= c->view->npes)
		return;
	box = coll_box(c, area_there(c->view, ll_teller()), c->view->pe);
	for (int odd = 0; odd < 2; odd++)
		at[odd] = kernel_now(spmtd_at_(box->hello[odd]));
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

/* To all of them, by what was found. */
LL_FN void ll_hello_found(const struct coll *c, const uint64_t at[2])
{
	uint64_t hello = c->epoch & 1 ? at[1] : at[0];

	if (!hello)
		return;
	ll_hello_at(c, hello, ll_teller());
	ll_hello(c, ll_teller() + (int)spmtd_threads_());
}

#endif
