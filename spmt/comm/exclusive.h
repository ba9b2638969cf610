/* SPDX-License-Identifier: MIT */
/*
 * Calls on one comm come one at a time. With SPMT_CHECK each such call marks the comm as taken,
 * and a call of another thread meanwhile returns -EBUSY. Without it nothing is marked.
 */
#ifndef SPMT_EXCLUSIVE_H
#define SPMT_EXCLUSIVE_H

#include "comm.h"

/* NULL: this thread has the comm already, or another thread has it; then comm_enter fails. */
spmt_comm *exclusive_take(spmt_comm *comm, const char *call) __attribute__((cold));
void exclusive_give(spmt_comm *comm) __attribute__((cold));
/* In a call that has asked to take the comm: the call that kept it from it, if only until just now, or NULL. */
const char *exclusive_other(const spmt_comm *comm);

static inline spmt_comm *exclusive_begin(spmt_comm *comm, const char *call)
{
	if (LIKELY(!comm ||
		    atomic_load_explicit(&comm->head.state, memory_order_relaxed) !=
			    OBJECT_CHECKED))
		return NULL;
	return exclusive_take(comm, call);
}

static inline void exclusive_end(spmt_comm **comm)
{
	if (UNLIKELY(*comm))
		exclusive_give(*comm);
}

/* Stands at the beginning of a public call and lasts to its end. */
#define EXCLUSIVE(comm, call)                                                  \
	__attribute__((cleanup(exclusive_end), unused)) spmt_comm *exclusive = \
		exclusive_begin((comm), (call))

#endif
