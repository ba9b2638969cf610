/* SPDX-License-Identifier: MIT */
/* The data of a thread's packets as it lies before and behind them. */
#ifndef SPMT_KERNELS_PACKETS_PLAIN_H
#define SPMT_KERNELS_PACKETS_PLAIN_H

#include "packets_words.h"

/* a: where the thread's first one is. */
PLAN_FN struct packets_data packets_load(const struct packets *t, uint64_t a)
{
	struct packets_data x;

	if (t->odd)
		return packets_gather(t, a);
	__builtin_memset(&x, 0, sizeof(x));
	LL_EACH(PLAN_PACKETS_EACH)
	{
		if (t->size == PLAN_PACKETS_WIDE)
			x.x[i] = packets_fetch_wide(t, a, i);
		else if (packets_has(t, i))
			x.x[i] = packets_fetch(t, a, i);
	}
	return x;
}

PLAN_FN void packets_store(const struct packets *t, uint64_t a, const struct packets_data *x)
{
	if (t->odd) {
		packets_scatter(t, a, x);
		return;
	}
	LL_EACH(PLAN_PACKETS_EACH)
	{
		if (t->size == PLAN_PACKETS_WIDE)
			packets_put_wide(t, a, x->x[i], i);
		else if (packets_has(t, i))
			packets_put(t, a, x->x[i], i);
	}
}

#endif
