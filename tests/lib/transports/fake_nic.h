/* SPDX-License-Identifier: MIT */
/* Ranks that reach each other by the stand-in for libibverbs alone, and what a test tells it. */
#ifndef TESTS_FAKE_NIC_H
#define TESTS_FAKE_NIC_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fakes/fake_verbs.h"

#define FAKE_NIC(X)                          \
	X(fail, fake_verbs_fail)             \
	X(fail_named, fake_verbs_fail_named) \
	X(break_work, fake_verbs_break)      \
	X(lose, fake_verbs_lose)             \
	X(inline_most, fake_verbs_inline)    \
	X(hold, fake_verbs_hold)             \
	X(prompt, fake_verbs_prompt)         \
	X(congest, fake_verbs_congest)       \
	X(event, fake_verbs_event)           \
	X(tell, fake_verbs_tell)             \
	X(port, fake_verbs_port)             \
	X(shout, fake_verbs_shout)           \
	X(overheard, fake_verbs_overheard)   \
	X(atomics, fake_verbs_atomics)       \
	X(joined, fake_verbs_joined)         \
	X(limit, fake_verbs_limit)           \
	X(live, fake_verbs_live)             \
	X(unplug, fake_verbs_unplug)

static struct {
#define X(field, symbol) __typeof__(&symbol) field;
	FAKE_NIC(X)
#undef X
} fake;

/* path: of the built stand-in. Before the first world. 1: there is none, as is said on stderr. */
static inline int fake_nic(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	setenv("SPMT_MAPS", "rdma", 1);
	setenv("SPMT_VERBS_LIB", path, 1);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
#define X(field, symbol) *(void **)&fake.field = dlsym(library, #symbol);
	FAKE_NIC(X)
#undef X
	return 0;
}

#endif
