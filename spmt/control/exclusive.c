/* SPDX-License-Identifier: MIT */
#include "exclusive.h"

#include <pthread.h>

#include "trace.h"

/* Not 0, and unique among live threads. */
static uintptr_t exclusive_self(void)
{
	return (uintptr_t)pthread_self();
}

static bool exclusive_begins(const struct object *object, const char *call)
{
	const struct object_looks *l = &object->looks;

	return l->trace && trace_begin(object, call, l->rank, l->of, l->nranks);
}

struct object *exclusive_take(struct object *object, const char *call)
{
	uintptr_t nobody = 0;

	if (!object->looks.alone)
		return exclusive_begins(object, call) ? object : NULL;
	if (!atomic_compare_exchange_strong(&object->owner, &nobody, exclusive_self()))
		return NULL;
	atomic_store(&object->owner_call, call);
	exclusive_begins(object, call);
	return object;
}

/* Another thread may have ended the comm meanwhile, where it is broken, and its head be another's, who is not alone: what counts is
   what was taken. */
void exclusive_give(struct object *object)
{
	uintptr_t self = exclusive_self();

	if (object->looks.trace)
		trace_end(object);
	if (atomic_load(&object->owner) != self)
		return;
	atomic_store(&object->owner_call, NULL);
	atomic_compare_exchange_strong(&object->owner, &self, 0);
}

struct object *exclusive_note(struct object *object, const char *call)
{
	return exclusive_begins(object, call) ? object : NULL;
}

void exclusive_noted(struct object **object)
{
	if (UNLIKELY(*object))
		trace_end(*object);
}

const char *exclusive_other(const struct object *object)
{
	uintptr_t who = atomic_load(&object->owner);
	const char *call = atomic_load(&object->owner_call);

	if (!object_is_checked(object) || !object->looks.alone || who == exclusive_self())
		return NULL;
	return who && call ? call : "a call";
}
