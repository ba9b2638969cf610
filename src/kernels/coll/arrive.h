/* SPDX-License-Identifier: MIT */
/* Units in slots that a thread takes as they come, without a meeting before. */
#ifndef SPMT_KERNELS_ARRIVE_H
#define SPMT_KERNELS_ARRIVE_H

#include "coll.h"
#include "slot.h"

/* A thread's waits in one collective. By value: kernels' arguments whose address reaches a call are copied to the stack. */
struct arrivals {
	struct spmt_view view; /* on GPUs what waits need of it */
	uint64_t epoch, key;
	struct spmtd_waiter_ w;
	struct slot_flags flags;
	/* not 0: one has failed, for this rank's unit, which lies there; none is waited for any more */
	int rc, pe;
	uint64_t at, seen;
};

static inline void arrivals_begin(const struct coll *c, struct arrivals *a)
{
	const struct spmt_view *v = c->view;

#if defined(__AMDGCN__) || defined(__NVPTX__)
	a->view.own = v->own;
	a->view.pe = v->pe;
	a->view.npes = v->npes;
	a->view.stop = v->stop;
	a->view.timeout_ns = v->timeout_ns;
#else
	a->view = *v;
#endif
	a->epoch = c->epoch;
	a->key = c->args->key;
	a->flags = slot_flags(c->epoch, c->args->key);
	a->rc = 0;
	spmtd_wait_begin_(&a->w);
}

/* Waits for the unit k in pe's slot, which was not whole when somebody looked. a->rc is set, and it is not whole, where pe calls
   something else or where waits end. */
COLL_RARE struct slot_unit coll_arrives(struct arrivals *a, uint64_t slot, uint64_t k, int pe);

/* s: as it lay there. Of no meaning once a->rc is set. */
static inline union unit unit_arrives(
	struct arrivals *a, uint64_t slot, uint64_t k, int pe, const struct slot_unit *s)
{
	struct slot_unit late;

	if (slot_unit_is_whole(s, &a->flags))
		return slot_unit_data(s);
	late = coll_arrives(a, slot, k, pe);
	return slot_unit_data(&late);
}

#endif
