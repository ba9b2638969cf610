/* SPDX-License-Identifier: MIT */
/* How a thread of `ll` waits for what comes, and what its block makes of waits that fail. */
#ifndef SPMT_KERNELS_LL_WAIT_H
#define SPMT_KERNELS_LL_WAIT_H

#include "ll_hello.h"
#include "ll_send.h"

/* A thread's waits in one collective. Inlined where they are, as all of this: no address of it is taken, and it stays in registers. */
struct ll_waits {
	struct spmtd_waiter_ w;
	struct slot_flags flags;
	/* not 0: one has failed, for this rank's unit, which lies there; none is waited for any more */
	int rc, pe;
	uint64_t at, seen;
};

LL_FN uint64_t ll_slot(const struct coll *c, int pe)
{
	return coll_slot(c, spmtd_at_(c->view->own), pe);
}

LL_FN int ll_differs(const struct coll *c, int pe)
{
	uint64_t key;

	return coll_hello(c, pe, &key) && key != c->args->key;
}

/* Of pe's unit there, which has been s. Of no meaning once w->rc is set, as it is where pe calls something else, or where waits end. */
LL_FN union unit ll_arrives(
	const struct coll *c, struct ll_waits *w, int pe, struct unit_place at, struct slot_unit s)
{
	while (!w->rc && !slot_unit_is_whole(&s, &w->flags)) {
		w->rc = coll_patience(c->view, &w->w);
		if (!w->rc && COLL_LOOKS(w->w.polls) && ll_differs(c, pe))
			w->rc = SPMTD_MISMATCH;
		if (w->rc) {
			w->pe = pe;
			w->at = at.even;
			w->seen = s.lo.a;
		}
		s = slot_unit_peek(at);
	}
	return slot_unit_data(&s);
}

/* Waits for what all others call, and where `own` until this rank has said so itself; some thread of every block does for each. */
LL_FN void await_keys(const struct coll *c, struct ll_waits *w, int own)
{
	int differs = -1;

	w->rc = 0;
	w->pe = -1;
	w->seen = 0;
	for (int pe = ll_teller(); pe < c->view->npes && !w->rc; pe += (int)spmtd_threads_()) {
		uint64_t key = c->args->key;

		w->pe = pe;
		w->at = spmtd_at_(area_inbox(c->view, pe)->hello[c->epoch & 1]);
		while ((own || pe != c->view->pe) && !w->rc && !coll_hello(c, pe, &key))
			w->rc = coll_patience(c->view, &w->w);
		if (!w->rc && key != c->args->key && differs < 0)
			differs = pe;
	}
	if (w->rc || differs < 0)
		return;
	w->rc = SPMTD_MISMATCH;
	w->pe = differs;
}

LL_FN void ll_record(const struct coll *c, const struct ll_waits *w)
{
	if (w->pe >= 0)
		kernel_record_here(c->view, c->args->report, w->rc, SPMTD_WHAT_COLLECTIVE, w->pe,
			w->at, c->args->key, w->seen);
}

/* The code of all threads' waits; each tells of its own. What ends the comm does so first, as one at a time is written down: a mismatch is told
   where the block agrees on that. */
LL_FN int ll_agreed(const struct coll *c, struct ll_waits *w)
{
	int rc;

	if (w->rc && w->rc != SPMTD_MISMATCH)
		ll_record(c, w);
	rc = coll_agrees(w->rc);
	if (rc != SPMTD_MISMATCH)
		return rc;
	if (w->rc) {
		w->at = spmtd_at_(area_inbox(c->view, w->pe)->hello[c->epoch & 1]);
		coll_hello(c, w->pe, &w->seen);
		ll_record(c, w);
	}
	spmtd_meet_settled_(SPMTD_BLOCK_);
	return rc;
}

/* The same, before a block has stored anything: the host may have broken the comm meanwhile. */
LL_FN int ll_first_agreed(const struct coll *c, struct ll_waits *w)
{
	if (coll_stopped(c)) {
		w->rc = SPMTD_ABORTED;
		w->pe = -1;
	}
	return ll_agreed(c, w);
}

#endif
