/* SPDX-License-Identifier: MIT */
/*
 * Calls on one comm come one at a time. With SPMT_CHECK each such call marks the comm as taken,
 * and a call of another thread meanwhile returns -EBUSY. With SPMT_TRACE it is noted. Without them nothing is done.
 */
#ifndef SPMT_EXCLUSIVE_H
#define SPMT_EXCLUSIVE_H

#include "object.h"

/* NULL: this thread is in a call already, or another thread has the object; then comm_enter fails. */
struct object *exclusive_take(struct object *object, const char *call) __attribute__((cold));
void exclusive_give(struct object *object) __attribute__((cold));
/* In a call that has asked to take it: the call that kept it from it, if only until just now, or NULL. */
const char *exclusive_other(const struct object *object);

static inline struct object *exclusive_begin(struct object *object, const char *call)
{
	if (LIKELY(!object || !object_is_checked(object)))
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

/* The same of a call that any thread may make at any time, which is noted. */
struct object *exclusive_note(struct object *object, const char *call) __attribute__((cold));
void exclusive_noted(struct object **object);

static inline struct object *traced_begin(struct object *object, const char *call)
{
	if (LIKELY(!object || !object_is_checked(object)))
		return NULL;
	return exclusive_note(object, call);
}

#define TRACED(comm, call)                                                        \
	__attribute__((cleanup(exclusive_noted), unused)) struct object *traced = \
		traced_begin((comm) ? &(comm)->head : NULL, (call))

/* Whether what a call on it does is noted. */
static inline bool object_is_traced(const struct object *object)
{
	return UNLIKELY(object_is_checked(object)) && object->looks.trace;
}

#endif
