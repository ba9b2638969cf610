/* SPDX-License-Identifier: MIT */
#include "turn.h"

#include <pthread.h>

/* Not 0, unique among threads that live. */
static uintptr_t turn_self(void)
{
	return (uintptr_t)pthread_self();
}

spmt_comm *turn_take(spmt_comm *comm, const char *call)
{
	uintptr_t nobody = 0;

	if (!atomic_compare_exchange_strong(&comm->turn, &nobody, turn_self()))
		return NULL;
	atomic_store(&comm->turn_call, call);
	return comm;
}

void turn_give(spmt_comm *comm)
{
	atomic_store(&comm->turn_call, NULL);
	atomic_store(&comm->turn, 0);
}

const char *turn_other(const spmt_comm *comm)
{
	uintptr_t who = atomic_load(&comm->turn);
	const char *call = atomic_load(&comm->turn_call);

	if (!who || who == turn_self())
		return NULL;
	return call ? call : "a call";
}
