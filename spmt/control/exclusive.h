/* SPDX-License-Identifier: MIT */
/*
 * Calls on one comm come one at a time. With SPMT_CHECK each such call marks the comm as taken,
 * and a call of another thread meanwhile returns -EBUSY. Without it nothing is marked.
 */
#ifndef SPMT_EXCLUSIVE_H
#define SPMT_EXCLUSIVE_H

#include "object.h"

/* NULL: this thread has the object already, or another thread has it; then comm_enter fails. */
struct object *exclusive_take(struct object *object, const char *call) __attribute__((cold));
void exclusive_give(struct object *object) __attribute__((cold));
/* In a call that has asked to take it: the call that kept it from it, if only until just now, or NULL. */
const char *exclusive_other(const struct object *object);

static inline struct object *exclusive_begin(struct object *object, const char *call)
{
	if (LIKELY(!object ||
		    atomic_load_explicit(&object->state, memory_order_relaxed) != OBJECT_CHECKED))
		return NULL;
	return exclusive_take(object, call);
}

static inline void exclusive_end(struct object **object)
{
	if (UNLIKELY(*object))
		exclusive_give(*object);
}

/* Stands at the beginning of a public call and lasts to its end. */
#define EXCLUSIVE(comm, call)                                                      \
	__attribute__((cleanup(exclusive_end), unused)) struct object *exclusive = \
		exclusive_begin((comm) ? &(comm)->head : NULL, (call))

#endif
