/* SPDX-License-Identifier: MIT */
/* What a rank sends on in `ll2`. */
#ifndef SPMT_KERNELS_LL_RELAY_H
#define SPMT_KERNELS_LL_RELAY_H

#include "ll_send.h"

/* What a rank has folded lies behind what it has sent to be folded. */
LL_FN uint64_t ll_relayed(const struct coll *c)
{
	return 2 * (uint64_t)slot_half(c->args->room);
}

/* A unit that this rank has folded, to all others. */
LL_FN void ll_relay(const struct coll *c, uint64_t k, union unit x, const struct slot_flags *flags)
{
	const int me = c->view->pe, npes = c->view->npes;
	const uint64_t shift = ll_relayed(c);

	LL_ROLLED
	for (int i = 1, pe = me + 1; i < npes; i++, pe++) {
		if (pe >= npes)
			pe -= npes;
		ll_send_unit(c, coll_slot(c, area_there(c->view, pe), me) + shift, k, x, flags);
	}
}

#endif
