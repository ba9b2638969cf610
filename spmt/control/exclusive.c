/* SPDX-License-Identifier: MIT */
#include "exclusive.h"

#include <pthread.h>

/* Not 0, and unique among live threads. */
static uintptr_t exclusive_self(void)
{
	return (uintptr_t)pthread_self();
}

struct object *exclusive_take(struct object *object, const char *call)
{
	uintptr_t nobody = 0;

	if (!atomic_compare_exchange_strong(&object->owner, &nobody, exclusive_self()))
		return NULL;
	atomic_store(&object->owner_call, call);
	return object;
}

void exclusive_give(struct object *object)
{
	atomic_store(&object->owner_call, NULL);
	atomic_store(&object->owner, 0);
}

const char *exclusive_other(const struct object *object)
{
	uintptr_t who = atomic_load(&object->owner);
	const char *call = atomic_load(&object->owner_call);

	if (atomic_load(&object->state) != OBJECT_CHECKED || who == exclusive_self())
		return NULL;
	return who && call ? call : "a call";
}
