/* SPDX-License-Identifier: MIT */
/* How a thread waits for packets, and what a block makes of it. */
#ifndef SPMT_KERNELS_PACKETS_WAIT_H
#define SPMT_KERNELS_PACKETS_WAIT_H

#include "packets_there.h"
#include "src/kernels/coll/ll/ll_wait.h"

/* A plan does not say whose packets are missing: some rank calls something else, or one has not come. */
PLAN_FN void packets_look_around(const struct coll *c, struct ll_waits *w)
{
	w->pe = -1;
	LL_ROLLED
	for (int pe = 0; pe < c->view->npes; pe++) {
		uint64_t key = c->args->key;
		int came = pe == c->view->pe || coll_hello(c, pe, &key);

		if (!came && w->pe < 0)
			w->pe = pe;
		if (w->rc || !came || key == c->args->key)
			continue;
		w->rc = SPMTD_MISMATCH;
		w->pe = pe;
		return;
	}
}

PLAN_FN void packets_gave_up(const struct coll *c, const struct packets *t, struct ll_waits *w,
	uint64_t at, uint64_t seen)
{
	w->at = at;
	w->seen = seen;
	if (w->rc != SPMTD_MISMATCH)
		packets_look_around(c, w);
	if (w->pe < 0)
		kernel_record_here(c->view, c->args->report, w->rc, SPMTD_WHAT_CHANNEL, -1, at,
			t->flag, seen >> 32);
}

/* Until they have come, or as often as is cheap. s: what has been seen of them. */
PLAN_FN struct packets_seen packets_poll(
	const struct packets *t, uint64_t even, struct packets_seen s)
{
	LL_ROLLED
	for (uint32_t n = 0; n < PACKETS_POLLS && !packets_came(t, &s); n++)
		s = packets_look(t, even);
	return s;
}

/* Of no meaning once w->rc is set. */
PLAN_FN struct packets_data packets_arrive(const struct coll *c, const struct packets *t,
	struct ll_waits *w, uint64_t even, struct packets_seen s)
{
	s = packets_poll(t, even, s);
	while (UNLIKELY(!w->rc && !packets_came(t, &s))) {
		w->rc = coll_patience(c->view, &w->w);
		if (!w->rc && COLL_LOOKS(w->w.polls))
			packets_look_around(c, w);
		if (w->rc)
			packets_gave_up(c, t, w, even + t->set, s.at[0].b);
		s = packets_poll(t, even, s);
	}
	return packets_data_of(t, &s);
}

/* Before the block stores anything: all call the same, and none has ended the comm. */
PLAN_FN int packets_agreed(const struct coll *c, struct ll_waits *w)
{
	if (!w->rc || w->rc == SPMTD_MISMATCH)
		await_keys(c, w, 0);
	return ll_first_agreed(c, w);
}

#endif
