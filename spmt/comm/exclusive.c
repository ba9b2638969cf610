/* SPDX-License-Identifier: MIT */
#include "exclusive.h"

#include <pthread.h>

/* Not 0, and unique among live threads. */
static uintptr_t exclusive_self(void)
{
	return (uintptr_t)pthread_self();
}

spmt_comm *exclusive_take(spmt_comm *comm, const char *call)
{
	uintptr_t nobody = 0;

	if (!atomic_compare_exchange_strong(&comm->exclusive, &nobody, exclusive_self()))
		return NULL;
	atomic_store(&comm->exclusive_call, call);
	return comm;
}

void exclusive_give(spmt_comm *comm)
{
	atomic_store(&comm->exclusive_call, NULL);
	atomic_store(&comm->exclusive, 0);
}

const char *exclusive_other(const spmt_comm *comm)
{
	uintptr_t who = atomic_load(&comm->exclusive);
	const char *call = atomic_load(&comm->exclusive_call);

	if (atomic_load(&comm->head.state) != OBJECT_CHECKED || who == exclusive_self())
		return NULL;
	return who && call ? call : "a call";
}
